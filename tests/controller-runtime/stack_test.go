package controllerruntime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The garbage collector finds kinds that are new to it within half a minute.
const patience = 90 * time.Second

func config(t *testing.T) *rest.Config {
	t.Helper()
	path := os.Getenv("STOA_TEST_KUBECONFIG")
	if path == "" {
		t.Fatal("STOA_TEST_KUBECONFIG has to name the kubeconfig of a cluster with Stoa behind it")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// object makes one of any kind of Stoa's.
func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(configVersion.WithKind(kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// stage is a manager at work in an organization of its own, whose project is `shop`.
type stage struct {
	t         *testing.T
	ctx       context.Context
	namespace string
	// Reads and writes with no cache in between.
	client.Client
	cached client.Client
}

func newStage(t *testing.T) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	direct, err := client.New(config(t), client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, ctx: ctx, namespace: fmt.Sprintf("cr-%08x", rand.Uint32()), Client: direct}
	organization := object("Organization", "", s.namespace, map[string]any{"description": "A test"})
	s.must(s.Create(ctx, organization))
	t.Cleanup(func() {
		if err := direct.Delete(ctx, organization); err != nil {
			t.Errorf("removing the organization: %v", err)
		}
	})
	s.eventually("the organization is ready", func() bool {
		s.must(s.Get(ctx, client.ObjectKeyFromObject(organization), organization))
		conditions, _, _ := unstructured.NestedSlice(organization.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields := condition.(map[string]any)
			return fields["type"] == "Ready" && fields["status"] == "True"
		})
	})
	source := map[string]any{"remote": "file:///nowhere.git", "pollInterval": "1h"}
	s.must(s.Create(ctx, object("Source", s.namespace, "config", source)))
	project := map[string]any{"source": map[string]any{"name": "config"}}
	s.must(s.Create(ctx, object("Project", s.namespace, "shop", project)))
	return s
}

// manage runs a manager with the mirror until the test ends.
func (s *stage) manage() {
	s.t.Helper()
	s.manageWith(func(mgr ctrl.Manager) error { return (&mirror{mgr.GetClient()}).setUp(mgr) })
}

// manageWith runs a manager with any controller.
func (s *stage) manageWith(setUp func(ctrl.Manager) error) {
	s.t.Helper()
	ctrl.SetLogger(testr.New(s.t))
	mgr, err := ctrl.NewManager(config(s.t), ctrl.Options{
		Scheme:  newScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{s.namespace: {}}},
	})
	s.must(err)
	s.must(setUp(mgr))
	s.cached = mgr.GetClient()
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("the manager: %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		s.t.Fatal("the cache does not sync")
	}
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *stage) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// there reads an object, unless it is gone.
func (s *stage) there(name string, into client.Object) bool {
	s.t.Helper()
	err := s.Get(s.ctx, s.key(name), into)
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *stage) stack(name, description string) *Stack {
	return &Stack{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{"test": s.namespace}},
		Spec:       StackSpec{Project: "shop", Description: description},
	}
}

// A manager keeps what stacks own, follows both, tells of it in their status and clears up after them.
func TestManagerKeepsWhatStacksOwn(t *testing.T) {
	s := newStage(t)
	early := s.stack("early", "before the manager")
	s.must(s.Create(s.ctx, early))
	s.manage()
	web := s.stack("web", "one")
	s.must(s.Create(s.ctx, web))

	says := func(name, text string) func() bool {
		return func() bool {
			kept := &corev1.ConfigMap{}
			return s.there(name+"-mirror", kept) && kept.Data["description"] == text
		}
	}
	tells := func(name string, generation int64) func() bool {
		return func() bool {
			stack := &Stack{}
			s.must(s.Get(s.ctx, s.key(name), stack))
			condition := meta.FindStatusCondition(stack.Status.Conditions, mirrored)
			// Beside the server's own.
			ready := meta.FindStatusCondition(stack.Status.Conditions, "Ready")
			return condition != nil && condition.ObservedGeneration == generation && ready != nil
		}
	}
	s.eventually("the early stack is mirrored", says("early", "before the manager"))
	s.eventually("the stack is mirrored", says("web", "one"))
	s.eventually("the stack says so", tells("web", 1))
	s.must(s.Get(s.ctx, s.key("web"), web))
	if !slices.Contains(web.Finalizers, finalizer) || !slices.Contains(web.Finalizers, "stoa.dev/infrastructure") {
		t.Errorf("the finalizers are %q", web.Finalizers)
	}
	if web.Spec.StackName != "web" || web.Spec.DesiredVersion != "latest" || web.Generation != 1 {
		t.Errorf("the manager changed more than metadata and status: %+v", web)
	}

	// Everything that is not as it should be is mended.
	patch := client.MergeFrom(web.DeepCopyObject().(*Stack))
	web.Spec.Description = "two"
	s.must(s.Patch(s.ctx, web, patch))
	s.eventually("the change is mirrored", says("web", "two"))
	s.eventually("the stack says so again", tells("web", 2))
	source := newSource(s.namespace, "web-mirror")
	s.must(s.Get(s.ctx, s.key("web-mirror"), source))
	before := source.GetUID()
	s.must(s.Delete(s.ctx, source))
	s.eventually("the source is made again", func() bool {
		return s.there("web-mirror", source) && source.GetUID() != before
	})
	kept := &corev1.ConfigMap{}
	s.must(s.Get(s.ctx, s.key("web-mirror"), kept))
	kept.Data["description"] = "meddled"
	s.must(s.Update(s.ctx, kept))
	s.eventually("the ConfigMap is mended", says("web", "two"))

	// The manager's cache has what the server has, by its own index too.
	s.eventually("the cache is complete", func() bool {
		list := &StackList{}
		s.must(s.cached.List(s.ctx, list, client.MatchingFields{byProject: "shop"}, client.InNamespace(s.namespace)))
		return len(list.Items) == 2
	})

	s.must(s.Delete(s.ctx, web, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.eventually("the stack is gone", func() bool { return !s.there("web", &Stack{}) })
	left := &corev1.ConfigMap{}
	s.must(s.Get(s.ctx, s.key("web-was-here"), left))
	if left.Data["uid"] != string(web.UID) {
		t.Errorf("it was cleared up after %q", left.Data["uid"])
	}
	s.eventually("what it owned is gone", func() bool {
		return !s.there("web-mirror", &corev1.ConfigMap{}) && !s.there("web-mirror", newSource("", ""))
	})
	s.must(s.DeleteAllOf(s.ctx, &Stack{}, client.InNamespace(s.namespace), client.MatchingLabels{"test": s.namespace}))
	s.eventually("every stack is gone", func() bool { return !s.there("early", &Stack{}) })
}

// What controller-runtime's client offers, without a manager: optimistic locks, dry runs, strict fields, pages.
func TestClient(t *testing.T) {
	s := newStage(t)
	for i := range 5 {
		s.must(s.Create(s.ctx, s.stack(fmt.Sprintf("s%d", i), "a")))
	}
	web := &Stack{}
	s.must(s.Get(s.ctx, s.key("s0"), web))
	stale := web.DeepCopyObject().(*Stack)
	locked := client.MergeFromWithOptions(web.DeepCopyObject().(*Stack), client.MergeFromWithOptimisticLock{})
	web.Labels["tier"] = "front"
	s.eventually("the label is written between the server's own writes", func() bool {
		err := s.Patch(s.ctx, web, locked)
		if apierrors.IsConflict(err) {
			s.must(s.Get(s.ctx, s.key("s0"), web))
			locked = client.MergeFromWithOptions(web.DeepCopyObject().(*Stack), client.MergeFromWithOptimisticLock{})
			web.Labels["tier"] = "front"
			return false
		}
		s.must(err)
		return true
	})
	locked = client.MergeFromWithOptions(stale.DeepCopyObject().(*Stack), client.MergeFromWithOptimisticLock{})
	stale.Labels["tier"] = "back"
	if err := s.Patch(s.ctx, stale, locked); !apierrors.IsConflict(err) {
		t.Errorf("a stale patch is answered with %v", err)
	}
	if err := s.Update(s.ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale update is answered with %v", err)
	}

	dry := client.NewDryRunClient(s.Client)
	s.must(dry.Create(s.ctx, s.stack("dry", "a")))
	if s.there("dry", &Stack{}) {
		t.Error("a dry run created a stack")
	}
	wrong := object("Stack", s.namespace, "wrong", map[string]any{"project": "shop", "projct": "shop"})
	if err := client.WithFieldValidation(s.Client, metav1.FieldValidationStrict).Create(s.ctx, wrong); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field is answered with %v", err)
	}
	invalid := s.stack("invalid", "a")
	invalid.Spec.Project = ""
	if err := s.Create(s.ctx, invalid); !apierrors.IsInvalid(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueRequired) {
		t.Errorf("a stack with no project is answered with %v", err)
	}

	var names []string
	options := []client.ListOption{client.InNamespace(s.namespace), client.MatchingLabels{"test": s.namespace}, client.Limit(2)}
	for token := ""; ; {
		page := &StackList{}
		s.must(s.List(s.ctx, page, append(options, client.Continue(token))...))
		for _, stack := range page.Items {
			names = append(names, stack.Name)
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if want := []string{"s0", "s1", "s2", "s3", "s4"}; !slices.Equal(names, want) {
		t.Errorf("the pages hold %q", names)
	}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(configVersion.WithKind("StackList"))
	s.must(s.List(s.ctx, metadata, client.InNamespace(s.namespace), client.MatchingFields{byProject: "shop"}))
	if len(metadata.Items) != 5 {
		t.Errorf("%d stacks are of the project", len(metadata.Items))
	}
}
