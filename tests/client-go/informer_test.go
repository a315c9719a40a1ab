package clientgo

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// start runs a dynamic informer on the bed's objects until the test ends, and waits for its first sync.
func (b *bed) start(recorder *recorder) (cache.SharedIndexInformer, *wire) {
	b.t.Helper()
	return b.informer(false, recorder)
}

// informer runs an informer of objects, or of their metadata, until the test ends, and waits for its first sync.
func (b *bed) informer(ofMetadata bool, recorder *recorder) (cache.SharedIndexInformer, *wire) {
	b.t.Helper()
	config, wire := wired(config(b.t))
	tweak := func(options *metav1.ListOptions) { options.LabelSelector = b.selector() }
	if ofMetadata {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			b.t.Fatal(err)
		}
		factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, metav1.NamespaceAll, tweak)
		informer := factory.ForResource(backends).Informer()
		b.run(informer, recorder, factory.Start, factory.Shutdown)
		return informer, wire
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll, tweak)
	informer := factory.ForResource(backends).Informer()
	b.run(informer, recorder, factory.Start, factory.Shutdown)
	return informer, wire
}

func (b *bed) run(informer cache.SharedIndexInformer, recorder *recorder, start func(<-chan struct{}), shutdown func()) {
	b.t.Helper()
	registration, err := informer.AddEventHandler(recorder.handler())
	if err != nil {
		b.t.Fatal(err)
	}
	stop := make(chan struct{})
	start(stop)
	b.t.Cleanup(func() { close(stop); shutdown() })
	if !cache.WaitForCacheSync(b.ctx.Done(), informer.HasSynced, registration.HasSynced) {
		b.t.Fatal("the informer does not sync")
	}
}

func (b *bed) names(from, to int) []string {
	var names []string
	for i := from; i < to; i++ {
		names = append(names, b.name(i))
	}
	return names
}

func (b *bed) noFaults(recorder *recorder) {
	b.t.Helper()
	if faults := recorder.faultsFound(); len(faults) > 0 {
		b.t.Errorf("the informer was told what cannot be:\n%s", strings.Join(faults, "\n"))
	}
}

func (b *bed) wantSteps(recorder *recorder, i int, want ...string) {
	b.t.Helper()
	if got := recorder.of(b.name(i)).steps; !slices.Equal(got, want) {
		b.t.Errorf("%s was seen at steps %v, want %v", b.name(i), got, want)
	}
}

// An informer sees what was there, and after that every change exactly once and in order.
func TestInformerSeesEveryChangeOnceAndInOrder(t *testing.T) {
	b := newBed(t)
	for i := range 20 {
		b.create(i)
	}
	recorder := newRecorder()
	informer, wire := b.start(recorder)
	if got := len(informer.GetStore().ListKeys()); got != 20 {
		t.Fatalf("the cache holds %d objects after the sync, want 20", got)
	}
	watches, lists := wire.seen()
	if len(watches) != 1 || lists != 0 {
		t.Errorf("the first sync took %d lists and watches %q, want one streaming list", lists, watches)
	}
	if query, _ := url.ParseQuery(watches[0]); query.Get("sendInitialEvents") != "true" {
		t.Errorf("the informer did not ask for a streaming list: %s", watches[0])
	}

	for step := 1; step <= 3; step++ {
		for i := range 20 {
			b.step(i, step)
		}
	}
	for i := range 10 {
		b.delete(i)
	}
	b.create(20)
	eventually(t, "the last changes", func() bool {
		return recorder.holds(b.names(0, 10), func(h history) bool { return h.deleted }) &&
			recorder.holds(b.names(20, 21), func(h history) bool { return true })
	})
	for i := range 20 {
		b.wantSteps(recorder, i, "0", "1", "2", "3")
	}
	if got := len(informer.GetStore().ListKeys()); got != 11 {
		t.Errorf("the cache holds %d objects in the end, want 11", got)
	}
	b.noFaults(recorder)
}

// After a lost connection the informer goes on from the last version: nothing twice, nothing missing, no new list.
func TestInformerResumesAfterLostConnections(t *testing.T) {
	b := newBed(t)
	for i := range 5 {
		b.create(i)
	}
	recorder := newRecorder()
	_, wire := b.start(recorder)
	var steps []string
	for step := 1; step <= 5; step++ {
		// Not before the first step: a watch that ends at once with nothing delivered makes client-go list again.
		if step > 1 {
			wire.cut()
		}
		for i := range 5 {
			b.step(i, step)
		}
		last := string(rune('0' + step))
		steps = append(steps, last)
		eventually(t, "step "+last, func() bool {
			return recorder.holds(b.names(0, 5), func(h history) bool { return h.steps[len(h.steps)-1] == last })
		})
	}
	for i := range 5 {
		b.wantSteps(recorder, i, append([]string{"0"}, steps...)...)
	}
	watches, lists := wire.seen()
	if lists != 0 {
		t.Errorf("%d lists were needed", lists)
	}
	if len(watches) < 5 {
		t.Errorf("the connection was not lost four times: %q", watches)
	}
	for _, watch := range watches[1:] {
		query, _ := url.ParseQuery(watch)
		if query.Get("resourceVersion") == "" || query.Get("sendInitialEvents") != "" {
			t.Errorf("the informer began anew instead of resuming: %s", watch)
		}
	}
	b.noFaults(recorder)
}

// When the server no longer has the history an informer asks for, the informer lists again and ends at the truth.
func TestInformerListsAgainWhenItsVersionExpired(t *testing.T) {
	b := newBed(t)
	for i := range 6 {
		b.create(i)
	}
	recorder := newRecorder()
	informer, wire := b.start(recorder)

	// A watch that ends at once with nothing delivered would make client-go list again by itself.
	b.step(2, 1)
	eventually(t, "an event", func() bool {
		return recorder.holds(b.names(2, 3), func(h history) bool { return len(h.steps) == 2 })
	})

	wire.expire()
	b.step(0, 1)
	b.delete(1)
	b.create(6)

	eventually(t, "the state after listing again", func() bool {
		return recorder.of(b.name(1)).deleted && recorder.holds(b.names(6, 7), func(history) bool { return true }) &&
			recorder.holds(b.names(0, 1), func(h history) bool { return slices.Equal(h.steps, []string{"0", "1"}) })
	})
	watches, _ := wire.seen()
	streaming := slices.DeleteFunc(watches, func(query string) bool { return !strings.Contains(query, "sendInitialEvents=true") })
	if len(streaming) != 2 {
		t.Errorf("the informer listed %d times, want 2: %q", len(streaming), watches)
	}
	if got := len(informer.GetStore().ListKeys()); got != 6 {
		t.Errorf("the cache holds %d objects in the end, want 6", got)
	}
}

// A metadata informer, as the garbage collector and the namespace controller run, gets metadata and nothing else.
func TestMetadataInformerSeesMetadataOnly(t *testing.T) {
	b := newBed(t)
	for i := range 3 {
		b.create(i)
	}
	recorder := newRecorder()
	informer, _ := b.informer(true, recorder)

	b.step(0, 1)
	b.delete(1)
	b.create(3)
	eventually(t, "the changes", func() bool {
		return recorder.of(b.name(1)).deleted && recorder.holds(b.names(3, 4), func(history) bool { return true }) &&
			recorder.holds(b.names(0, 1), func(h history) bool { return slices.Equal(h.steps, []string{"0", "1"}) })
	})
	for _, object := range informer.GetStore().List() {
		partial, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			t.Fatalf("the cache holds a %T", object)
		}
		if partial.Labels[testLabel] != b.id || partial.UID == "" || partial.ResourceVersion == "" {
			t.Errorf("not an object's metadata: %+v", partial)
		}
	}
	b.noFaults(recorder)
}

// Informers of objects and of metadata, whose first list is streamed, as by default, or not, end at what is there,
// whatever their connections do meanwhile.
func TestInformersOfEveryFormEndAtWhatIsThere(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		for _, form := range []string{"objects", "metadata"} {
			t.Run(fmt.Sprintf("%s, streamed %t", form, streamed), func(t *testing.T) {
				featuretesting.SetFeatureDuringTest(t, features.WatchListClient, streamed)
				b := newBed(t)
				b.churn(b.ctx, 2, 20).Wait()
				// A watch that ends at once with nothing delivered makes client-go list again.
				recorder := newRecorder()
				recorder.listsAgain = true
				informer, wire := b.informer(form == "metadata", recorder)
				watches, lists := wire.seen()
				if streams := len(watches) > 0 && strings.Contains(watches[0], "sendInitialEvents=true"); streams != streamed || (lists > 0) == streamed {
					t.Errorf("the first sync took %d lists and the watches %q", lists, watches)
				}
				writers := b.churn(b.ctx, 3, 30)
				for range 10 {
					time.Sleep(30 * time.Millisecond)
					wire.cut()
				}
				writers.Wait()
				eventually(t, "the cache at what is there", func() bool {
					list, err := b.client.List(b.ctx, metav1.ListOptions{LabelSelector: b.selector()})
					if err != nil {
						t.Fatal(err)
					}
					cached := map[string]uint64{}
					for _, object := range informer.GetStore().List() {
						accessor, err := meta.Accessor(object)
						if err != nil {
							t.Fatal(err)
						}
						cached[accessor.GetName()], _ = strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
					}
					return maps.Equal(cached, versions(t, list.Items))
				})
				b.noFaults(recorder)
			})
		}
	}
}

// Without streamed lists an informer whose version expired lists anew, page by page where it is told to.
func TestInformerWithoutStreamedListsListsAgain(t *testing.T) {
	featuretesting.SetFeatureDuringTest(t, features.WatchListClient, false)
	b := newBed(t)
	for i := range 3 {
		b.create(i)
	}
	recorder := newRecorder()
	informer, wire := b.informer(false, recorder)
	b.step(0, 1)
	eventually(t, "an event", func() bool {
		return recorder.holds(b.names(0, 1), func(h history) bool { return len(h.steps) == 2 })
	})
	wire.expire()
	b.delete(1)
	b.create(3)
	eventually(t, "the state after listing again", func() bool {
		return recorder.of(b.name(1)).deleted && recorder.holds(b.names(3, 4), func(history) bool { return true })
	})
	if _, lists := wire.seen(); lists != 2 {
		t.Errorf("the informer listed %d times, want 2", lists)
	}
	if got := len(informer.GetStore().ListKeys()); got != 3 {
		t.Errorf("the cache holds %d objects in the end, want 3", got)
	}
}
