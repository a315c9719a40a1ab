package clientgo

import (
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// recorder keeps what an informer's handlers are told, and finds what an informer must never be told.
type recorder struct {
	mu      sync.Mutex
	objects map[string]*history
	faults  []string
	// A list that is repeated tells again what was known.
	listsAgain bool
}

// history is one object's events: the steps it was seen at and the versions they came with.
type history struct {
	steps   []string
	version uint64
	deleted bool
	// The last state was not seen, only that the object is gone.
	unseen bool
}

func newRecorder() *recorder { return &recorder{objects: map[string]*history{}} }

func (r *recorder) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.record("add", object) },
		UpdateFunc: func(_, object any) { r.record("update", object) },
		DeleteFunc: func(object any) { r.record("delete", object) },
	}
}

func (r *recorder) record(event string, object any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unseen := false
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object, unseen = tombstone.Obj, true
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		r.fault("%s: %v", event, err)
		return
	}
	name := accessor.GetName()
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		r.fault("%s %s: %v", event, name, err)
		return
	}
	known := r.objects[name]
	switch {
	case event == "add" && known != nil:
		r.fault("%s was added twice", name)
		return
	case event == "add":
		r.objects[name] = &history{steps: []string{step(accessor)}, version: version}
		return
	case known == nil:
		r.fault("%s of %s, which was never added", event, name)
		return
	case known.deleted:
		r.fault("%s of %s after its deletion", event, name)
		return
	}
	// A tombstone carries the last state seen, and a resync repeats one.
	if version < known.version || (version == known.version && !unseen && event == "update" && !r.listsAgain) {
		r.fault("%s of %s goes from version %d to %d", event, name, known.version, version)
	}
	known.version = version
	if event == "delete" {
		known.deleted, known.unseen = true, unseen
		return
	}
	// Controllers may write status in between; those events repeat the step.
	if now := step(accessor); now != known.steps[len(known.steps)-1] {
		known.steps = append(known.steps, now)
	}
}

func step(object metav1.Object) string { return object.GetAnnotations()[stepAnnotation] }

func (r *recorder) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// holds says whether the condition holds for what is known of every object named.
func (r *recorder) holds(names []string, condition func(history) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		known := r.objects[name]
		if known == nil || !condition(*known) {
			return false
		}
	}
	return true
}

func (r *recorder) of(name string) history {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.objects[name]; known != nil {
		return *known
	}
	return history{}
}

func (r *recorder) faultsFound() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.faults...)
}
