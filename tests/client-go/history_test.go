package clientgo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
)

// change is one event as every watcher has to see it.
type change struct {
	kind    watch.EventType
	name    string
	version uint64
}

// chronicle is what a watcher has seen, in order.
type chronicle struct {
	mu      sync.Mutex
	changes []change
}

func (c *chronicle) add(event watch.Event) error {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		return fmt.Errorf("the watch delivered %+v", event)
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if event.Type != watch.Bookmark {
		c.changes = append(c.changes, change{event.Type, object.GetName(), version})
	}
	return nil
}

func (c *chronicle) seen() []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.changes)
}

// from are the changes from a version on.
func (c *chronicle) from(version uint64) []change {
	return slices.DeleteFunc(c.seen(), func(change change) bool { return change.version < version })
}

// before are the changes before a version.
func (c *chronicle) before(version uint64) []change {
	return slices.DeleteFunc(c.seen(), func(change change) bool { return change.version >= version })
}

// at is what was there at a version, from the first version on: the version of each object by its name.
func at(changes []change, version uint64) map[string]uint64 {
	there := map[string]uint64{}
	for _, change := range changes {
		switch {
		case change.version > version:
		case change.kind == watch.Deleted:
			delete(there, change.name)
		default:
			there[change.name] = change.version
		}
	}
	return there
}

// follow watches the bed's objects from a version on until the context ends. With chaos the connection breaks at
// random, and the watch resumes from the last version seen, whether an object's or a bookmark's.
func (b *bed) follow(ctx context.Context, group *sync.WaitGroup, version string, chaos bool) *chronicle {
	b.t.Helper()
	config, wire := wired(config(b.t))
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	seen := &chronicle{}
	if chaos {
		group.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(1+rand.IntN(40)) * time.Millisecond)
				wire.cut()
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			options := metav1.ListOptions{LabelSelector: b.selector(), ResourceVersion: version, AllowWatchBookmarks: true}
			stream, err := client.Resource(backends).Watch(ctx, options)
			if err != nil {
				if ctx.Err() == nil {
					b.t.Errorf("watch from %s: %v", version, err)
				}
				return
			}
			for event := range stream.ResultChan() {
				// A connection that breaks, or is given up, within an event leaves an error behind, and no event.
				if status, ok := event.Object.(*metav1.Status); ok && (chaos || ctx.Err() != nil) && status.Code != 410 {
					continue
				}
				if err := seen.add(event); err != nil {
					b.t.Error(err)
					return
				}
				version = event.Object.(*unstructured.Unstructured).GetResourceVersion()
			}
		}
	})
	return seen
}

// churn creates, changes and deletes new objects from several goroutines, each with objects of its own, until the
// context ends or each has taken its steps.
func (b *bed) churn(ctx context.Context, writers, steps int) *sync.WaitGroup {
	group := &sync.WaitGroup{}
	for range writers {
		first := b.churned
		b.churned += steps
		group.Go(func() {
			var there []int
			for step := 0; step < steps && ctx.Err() == nil; step++ {
				switch choice := rand.IntN(10); {
				case choice < 4 || len(there) == 0:
					there = append(there, first+step)
					b.create(first + step)
				case choice < 8:
					b.step(there[rand.IntN(len(there))], step)
				default:
					chosen := rand.IntN(len(there))
					b.delete(there[chosen])
					there = slices.Delete(there, chosen, chosen+1)
				}
			}
		})
	}
	return group
}

// version is the bed's version now.
func (b *bed) version() string {
	b.t.Helper()
	list, err := b.client.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector()})
	if err != nil {
		b.t.Fatal(err)
	}
	return list.GetResourceVersion()
}

// mark makes one more object and waits until every chronicle has it, and with it all that was before. Controllers may
// write later on what the test wrote, so that only what comes before is the same for all.
func (b *bed) mark(chronicles ...*chronicle) (version uint64) {
	b.t.Helper()
	marker := b.create(b.churned)
	b.churned++
	version = versions(b.t, []unstructured.Unstructured{*marker})[marker.GetName()]
	eventually(b.t, "every watcher at the end", func() bool {
		for _, chronicle := range chronicles {
			if len(chronicle.from(version)) == 0 {
				return false
			}
		}
		return true
	})
	return version
}

func versions(t *testing.T, items []unstructured.Unstructured) map[string]uint64 {
	t.Helper()
	there := map[string]uint64{}
	for _, item := range items {
		version, err := strconv.ParseUint(item.GetResourceVersion(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		there[item.GetName()] = version
	}
	return there
}

func describe(changes []change) string {
	var lines []string
	for _, change := range changes {
		lines = append(lines, fmt.Sprintf("%d %s %s", change.version, change.kind, change.name))
	}
	return strings.Join(lines, "\n")
}

// Watchers that lose their connections at random see every event exactly once and in order: just what one sees that
// loses none.
func TestWatcherThatDisconnectsSeesEveryEventOnceAndInOrder(t *testing.T) {
	b := newBed(t)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var watching sync.WaitGroup
	start := b.version()
	steady := b.follow(ctx, &watching, start, false)
	shaken := []*chronicle{b.follow(ctx, &watching, start, true), b.follow(ctx, &watching, start, true)}
	b.churn(ctx, 4, 40).Wait()
	end := b.mark(append(shaken, steady)...)
	stop()
	watching.Wait()

	want := steady.before(end)
	if len(want) < 160 {
		t.Errorf("%d events of 160 writes", len(want))
	}
	for i := 1; i < len(want); i++ {
		if want[i].version <= want[i-1].version {
			t.Fatalf("versions do not rise:\n%s", describe(want[i-1:i+1]))
		}
	}
	for _, chronicle := range shaken {
		if got := chronicle.before(end); !slices.Equal(got, want) {
			t.Fatalf("a watcher that was disconnected saw\n%s\nand one that was not\n%s", describe(got), describe(want))
		}
	}
}

// However much is written meanwhile, the pages of a list are what was there at its version, all of it and nothing else.
func TestPagesUnderWritesAreSnapshots(t *testing.T) {
	b := newBed(t)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var watching sync.WaitGroup
	steady := b.follow(ctx, &watching, b.version(), false)
	b.churn(ctx, 3, 20).Wait()
	writing, end := context.WithCancel(ctx)
	writers := b.churn(writing, 3, 120)

	type snapshot struct {
		version uint64
		there   map[string]uint64
		pages   int
	}
	var snapshots []snapshot
	for range 15 {
		taken := snapshot{there: map[string]uint64{}}
		p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			page, err := b.client.List(ctx, options)
			if err == nil {
				taken.pages++
				version, err := strconv.ParseUint(page.GetResourceVersion(), 10, 64)
				if err != nil || (taken.version != 0 && version != taken.version) {
					t.Errorf("a page is of version %s, the first was of %d", page.GetResourceVersion(), taken.version)
				}
				taken.version = version
				for name, version := range versions(t, page.Items) {
					if _, twice := taken.there[name]; twice {
						t.Errorf("%s is on two pages", name)
					}
					taken.there[name] = version
				}
			}
			return page, err
		})
		p.PageSize, p.FullListIfExpired = 5, false
		options := metav1.ListOptions{LabelSelector: b.selector()}
		if err := p.EachListItem(ctx, options, func(runtime.Object) error { return nil }); err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, taken)
	}
	end()
	writers.Wait()
	b.mark(steady)
	stop()
	watching.Wait()

	several := 0
	for _, taken := range snapshots {
		if taken.pages > 1 {
			several++
		}
		if want := at(steady.seen(), taken.version); !maps.Equal(taken.there, want) {
			t.Errorf("the list at %d has %v, and there was %v", taken.version, taken.there, want)
		}
	}
	if several < 5 {
		t.Errorf("%d of %d lists had more than one page", several, len(snapshots))
	}
}
