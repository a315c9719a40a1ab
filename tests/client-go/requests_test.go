package clientgo

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

// Pages of one list are one snapshot, whatever is written while the client turns them.
func TestPagesOfAListAreOneSnapshot(t *testing.T) {
	b := newBed(t)
	for i := range 20 {
		b.create(i)
	}
	pages := 0
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := b.client.List(ctx, options)
		if pages++; pages == 2 {
			// Behind and ahead of where the client is.
			b.delete(0)
			b.delete(19)
			b.create(20)
		}
		return page, err
	}
	var names []string
	options := metav1.ListOptions{LabelSelector: b.selector(), Limit: 7}
	p := pager.New(list)
	p.PageSize = 7
	err := p.EachListItem(b.ctx, options, func(object runtime.Object) error {
		names = append(names, object.(*unstructured.Unstructured).GetName())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages != 3 || len(names) != 20 || names[0] != b.name(0) || names[19] != b.name(19) {
		t.Errorf("%d pages held %v, want the 20 objects of the first page's moment in 3", pages, names)
	}
}

// Writers that read, change and retry on conflict lose no change.
func TestConflictsLoseNoChange(t *testing.T) {
	b := newBed(t)
	b.create(0)
	const writers, writes = 50, 2
	var group sync.WaitGroup
	failures := make(chan error, writers)
	var tries atomic.Int64
	for range writers {
		group.Go(func() {
			for range writes {
				// Fifty that try again at once would keep each other from ever getting through.
				backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Jitter: 9, Steps: 1000}
				err := retry.RetryOnConflict(backoff, func() error {
					tries.Add(1)
					object, err := b.client.Get(b.ctx, b.name(0), metav1.GetOptions{})
					if err != nil {
						return err
					}
					annotations := object.GetAnnotations()
					count, err := strconv.Atoi(annotations[stepAnnotation])
					if err != nil {
						return err
					}
					annotations[stepAnnotation] = strconv.Itoa(count + 1)
					object.SetAnnotations(annotations)
					_, err = b.client.Update(b.ctx, object, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	object, err := b.client.Get(b.ctx, b.name(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := step(object); got != strconv.Itoa(writers*writes) {
		t.Errorf("%s changes arrived, want %d", got, writers*writes)
	}
	if tries.Load() == writers*writes {
		t.Error("no two writers were ever at it together")
	}
}

// A write against an old version is a conflict that Go programs recognise.
func TestStaleUpdateIsAConflict(t *testing.T) {
	b := newBed(t)
	stale := b.create(0)
	b.step(0, 1)
	stale.SetAnnotations(map[string]string{stepAnnotation: "stale"})
	_, err := b.client.Update(b.ctx, stale, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("a stale update answers %v, want a conflict", err)
	}
	_, err = b.client.Create(b.ctx, stale, metav1.CreateOptions{})
	if err == nil {
		t.Error("an object with a resourceVersion was created")
	}
	_, err = b.client.Get(b.ctx, b.name(1), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("reading what is not there answers %v, want not found", err)
	}
}

// A watch from a list's version delivers exactly what came after it, with increasing versions.
func TestWatchFromAListsVersion(t *testing.T) {
	b := newBed(t)
	b.create(0)
	list, err := b.client.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector()})
	if err != nil {
		t.Fatal(err)
	}
	b.create(1)
	b.delete(0)
	options := metav1.ListOptions{LabelSelector: b.selector(), ResourceVersion: list.GetResourceVersion()}
	stream, err := b.client.Watch(b.ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	last, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	added := false
	for event := range stream.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the watch delivered %+v", event)
		}
		version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err != nil || version <= last {
			t.Fatalf("version %q came after %d (%v)", object.GetResourceVersion(), last, err)
		}
		last = version
		switch {
		case event.Type == watch.Added && object.GetName() == b.name(1):
			added = true
		case event.Type == watch.Deleted && object.GetName() == b.name(0):
			if !added {
				t.Error("the deletion came before the creation that preceded it")
			}
			return
		case event.Type != watch.Modified:
			t.Fatalf("unexpected %s of %s", event.Type, object.GetName())
		}
	}
	t.Fatal(errors.Join(errors.New("the watch ended before the deletion"), b.ctx.Err()))
}
