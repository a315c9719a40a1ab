package clientgo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/pager"
)

// needsShortHistory skips a test where the server keeps far more history than a test makes.
func needsShortHistory(t *testing.T) {
	t.Helper()
	if os.Getenv("STOA_TEST_SHORT_HISTORY") == "" {
		t.Skip("STOA_TEST_SHORT_HISTORY says that the server forgets within seconds")
	}
}

// outlive writes to object number i until the server has let go of a version.
func (b *bed) outlive(version string, i int) {
	b.t.Helper()
	step := 0
	eventually(b.t, "version "+version+" is gone", func() bool {
		step++
		b.step(i, step)
		seconds := int64(1)
		stream, err := b.client.Watch(b.ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &seconds})
		if err != nil {
			return apierrors.IsResourceExpired(err)
		}
		defer stream.Stop()
		// There is an event: that write.
		event := <-stream.ResultChan()
		return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
	})
}

// Informers that were away for longer than the server keeps changes are refused, list anew, and miss nothing of what is
// there then.
func TestInformersMissNothingWhenTheirVersionIsGone(t *testing.T) {
	needsShortHistory(t)
	for _, streamed := range []bool{true, false} {
		t.Run(fmt.Sprintf("streamed %t", streamed), func(t *testing.T) {
			featuretesting.SetFeatureDuringTest(t, features.WatchListClient, streamed)
			b := newBed(t)
			for i := range 6 {
				b.create(i)
			}
			recorder := newRecorder()
			recorder.listsAgain = true
			informer, wire := b.informer(false, recorder)
			// A watch that ends at once with nothing delivered would make client-go list again by itself.
			b.step(2, 1)
			eventually(t, "an event", func() bool {
				return recorder.holds(b.names(2, 3), func(h history) bool { return len(h.steps) == 2 })
			})

			release := wire.hold()
			asked, lists := wire.seen()
			b.step(0, 1)
			b.delete(1)
			b.create(6)
			// Gone and there again under its name.
			b.delete(3)
			b.create(3)
			last := informer.LastSyncResourceVersion()
			b.outlive(last, 5)
			release()

			eventually(t, "the cache at what is there", func() bool {
				list, err := b.client.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector()})
				if err != nil {
					t.Fatal(err)
				}
				var cached []unstructured.Unstructured
				for _, object := range informer.GetStore().List() {
					cached = append(cached, *object.(*unstructured.Unstructured))
				}
				return maps.Equal(versions(t, cached), versions(t, list.Items))
			})
			eventually(t, "the handlers are told", func() bool {
				return recorder.of(b.name(1)).deleted && recorder.holds(b.names(6, 7), func(history) bool { return true }) &&
					recorder.holds(b.names(0, 1), func(h history) bool { return slices.Equal(h.steps, []string{"0", "1"}) })
			})
			watches, listed := wire.seen()
			resumed := slices.ContainsFunc(watches, func(query string) bool {
				values, _ := url.ParseQuery(query)
				return values.Get("resourceVersion") == last && values.Get("sendInitialEvents") == ""
			})
			anew := slices.ContainsFunc(watches[len(asked):], func(query string) bool { return strings.Contains(query, "sendInitialEvents=true") })
			if !resumed || anew != streamed || (listed > lists) == streamed {
				t.Errorf("it did not resume at %s, or did not list anew: %d lists after %d, watches %q", last, listed, lists, watches)
			}
		})
	}
}

// A token whose version is gone is refused with another one, with which the list goes on where it was, in the present.
func TestListGoesOnWithAnotherTokenWhenItsVersionIsGone(t *testing.T) {
	needsShortHistory(t)
	b := newBed(t)
	for i := range 9 {
		b.create(i)
	}
	list := func(token string) (*unstructured.UnstructuredList, error) {
		return b.client.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector(), Limit: 3, Continue: token})
	}
	named := func(page *unstructured.UnstructuredList) (names []string) {
		for _, item := range page.Items {
			names = append(names, item.GetName())
		}
		return names
	}
	first, err := list("")
	if err != nil || !slices.Equal(named(first), b.names(0, 3)) || first.GetContinue() == "" {
		t.Fatalf("the first page: %v %v", first, err)
	}
	b.delete(1)
	b.delete(4)
	b.create(9)
	b.outlive(first.GetResourceVersion(), 8)

	_, err = list(first.GetContinue())
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("a token whose version is gone: %v", err)
	}
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) || refused.ErrStatus.Code != 410 || refused.ErrStatus.Continue == "" {
		t.Fatalf("the refusal comes without another token: %#v", err)
	}
	rest := []string{b.name(3), b.name(5), b.name(6), b.name(7), b.name(8), b.name(9)}
	second, err := list(refused.ErrStatus.Continue)
	if err != nil || !slices.Equal(named(second), rest[:3]) {
		t.Fatalf("the page after the refusal: %v %v", second, err)
	}
	// From there on the pages are of one version again.
	third, err := list(second.GetContinue())
	if err != nil || !slices.Equal(named(third), rest[3:]) || third.GetResourceVersion() != second.GetResourceVersion() {
		t.Fatalf("the last page: %v %v", third, err)
	}
}

// client-go's pager, whose version goes while it turns the pages, lists everything at once instead.
func TestPagerListsAllAtOnceWhenItsVersionIsGone(t *testing.T) {
	needsShortHistory(t)
	b := newBed(t)
	for i := range 7 {
		b.create(i)
	}
	pages, refusals := 0, 0
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := b.client.List(ctx, options)
		if apierrors.IsResourceExpired(err) {
			refusals++
		}
		if err == nil {
			if pages++; pages == 1 {
				b.delete(0)
				b.outlive(page.GetResourceVersion(), 6)
			}
		}
		return page, err
	})
	p.PageSize, p.FullListIfExpired = 3, true
	all, _, err := p.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector()})
	if err != nil {
		t.Fatal(err)
	}
	items := all.(*unstructured.UnstructuredList).Items
	if refusals != 1 || pages != 2 || len(items) != 6 || items[0].GetName() != b.name(1) {
		t.Errorf("%d pages and %d refusals came to %d objects", pages, refusals, len(items))
	}
}
