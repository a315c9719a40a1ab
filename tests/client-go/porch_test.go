package clientgo

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	porch "github.com/nephio-project/porch/api/generated/clientset/versioned"
	"github.com/nephio-project/porch/api/generated/informers/externalversions"
	"github.com/nephio-project/porch/api/porch/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

var (
	organizations = schema.GroupVersionResource{Group: "config.stoa.dev", Version: "v1alpha1", Resource: "organizations"}
	repositories  = schema.GroupVersionResource{Group: "config.porch.kpt.dev", Version: "v1alpha1", Resource: "repositories"}
)

// packages are a registered repository in a namespace of its own, and Porch's own client.
type packages struct {
	*bed
	porch  porch.Interface
	remote string
}

func newPackages(t *testing.T) *packages {
	t.Helper()
	b := newBed(t)
	config := config(t)
	client, err := porch.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	remote := filepath.Join(t.TempDir(), "blueprints.git")
	if out, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", remote).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	p := &packages{bed: b, porch: client, remote: remote}
	organization := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": organizations.GroupVersion().String(), "kind": "Organization", "metadata": map[string]any{"name": b.id},
		"spec": map[string]any{"deletionPolicy": "Orphan"},
	}}
	if _, err := objects.Resource(organizations).Create(b.ctx, organization, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := objects.Resource(organizations).Delete(b.ctx, b.id, metav1.DeleteOptions{}); err != nil {
			t.Errorf("removing the organization: %v", err)
		}
	})
	p.await("the organization is ready", func() bool { return isReady(b, objects.Resource(organizations), b.id) })
	repository := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": repositories.GroupVersion().String(), "kind": "Repository", "metadata": map[string]any{"name": "blueprints"},
		"spec": map[string]any{"git": map[string]any{"repo": "file://" + remote, "branch": "main", "createBranch": true}},
	}}
	in := objects.Resource(repositories).Namespace(b.id)
	if _, err := in.Create(b.ctx, repository, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await("the repository is ready", func() bool { return isReady(b, in, "blueprints") })
	return p
}

func isReady(b *bed, client dynamic.ResourceInterface, name string) bool {
	object, err := client.Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c := condition.(map[string]any); c["type"] == "Ready" && c["status"] == "True" {
			return true
		}
	}
	return false
}

func (p *packages) await(what string, is func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("not after %v: %s", 2*patience, what)
		}
	}
}

func (p *packages) init(name string) *v1alpha1.PackageRevision {
	p.t.Helper()
	revision := &v1alpha1.PackageRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.id, Name: "any"},
		Spec: v1alpha1.PackageRevisionSpec{
			PackageName: name, RepositoryName: "blueprints", WorkspaceName: "v1",
			Tasks: []v1alpha1.Task{{Type: v1alpha1.TaskTypeInit, Init: &v1alpha1.PackageInitTaskSpec{Description: "A package"}}},
		},
	}
	created, err := p.porch.PorchV1alpha1().PackageRevisions(p.id).Create(p.ctx, revision, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return created
}

// change updates a revision as Porch's clients do: all that their types know of it.
func (p *packages) change(name string, lifecycle v1alpha1.PackageRevisionLifecycle) *v1alpha1.PackageRevision {
	p.t.Helper()
	client := p.porch.PorchV1alpha1().PackageRevisions(p.id)
	var changed *v1alpha1.PackageRevision
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		revision, err := client.Get(p.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		revision.Spec.Lifecycle = lifecycle
		if lifecycle == v1alpha1.PackageRevisionLifecyclePublished {
			changed, err = client.UpdateApproval(p.ctx, name, revision, metav1.UpdateOptions{})
		} else {
			changed, err = client.Update(p.ctx, revision, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return changed
}

func TestPorchClientPublishesPackage(t *testing.T) {
	p := newPackages(t)
	created := p.init("basens")
	if created.Name != "blueprints.basens.v1" || created.Spec.Lifecycle != v1alpha1.PackageRevisionLifecycleDraft {
		t.Fatalf("created %s, %s", created.Name, created.Spec.Lifecycle)
	}
	files := p.porch.PorchV1alpha1().PackageRevisionResources(p.id)
	resources, err := files.Get(p.ctx, created.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := resources.DeepCopy()
	// Labels and gates of the Kptfile become fields that Porch's types do not have.
	kptfile := strings.Replace(resources.Spec.Resources["Kptfile"], "metadata:\n", "metadata:\n  labels:\n    tier: gold\n", 1)
	resources.Spec.Resources["Kptfile"] = kptfile
	resources.Spec.Resources["settings.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n"
	saved, err := files.Update(p.ctx, resources, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if saved.Spec.Resources["settings.yaml"] == "" || saved.Status.RenderStatus.Err != "" {
		t.Fatalf("saved %v, %+v", saved.Spec.Resources, saved.Status.RenderStatus)
	}
	stale.Spec.Resources["settings.yaml"] = "lost: update\n"
	if _, err := files.Update(p.ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("a stale save answered %v", err)
	}
	p.change(created.Name, v1alpha1.PackageRevisionLifecycleProposed)
	published := p.change(created.Name, v1alpha1.PackageRevisionLifecyclePublished)
	if published.Spec.Revision != 1 || published.Status.PublishedBy == "" || published.Status.PublishedAt.IsZero() {
		t.Fatalf("published %+v, %+v", published.Spec, published.Status)
	}
	tags, err := exec.Command("git", "-C", p.remote, "tag").CombinedOutput()
	if err != nil || strings.TrimSpace(string(tags)) != "basens/v1" {
		t.Fatalf("tags %q, %v", tags, err)
	}
	err = p.porch.PorchV1alpha1().PackageRevisions(p.id).Delete(p.ctx, created.Name, metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a deletion without a proposal answered %v", err)
	}
	p.change(created.Name, v1alpha1.PackageRevisionLifecycleDeletionProposed)
	if err := p.porch.PorchV1alpha1().PackageRevisions(p.id).Delete(p.ctx, created.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestPorchInformerSeesWholeLifeOfPackage(t *testing.T) {
	p := newPackages(t)
	factory := externalversions.NewSharedInformerFactoryWithOptions(p.porch, 0, externalversions.WithNamespace(p.id))
	informer := factory.Porch().V1alpha1().PackageRevisions()
	seen := make(chan string, 100)
	report := func(event string, object any) {
		revision := object.(*v1alpha1.PackageRevision)
		seen <- fmt.Sprintf("%s %s %s", event, revision.Spec.PackageName, revision.Spec.Lifecycle)
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { report("added", object) },
		UpdateFunc: func(_, object any) { report("updated", object) },
		DeleteFunc: func(object any) { report("deleted", object) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(p.ctx.Done())
	factory.WaitForCacheSync(p.ctx.Done())
	name := p.init("basens").Name
	p.change(name, v1alpha1.PackageRevisionLifecycleProposed)
	p.change(name, v1alpha1.PackageRevisionLifecyclePublished)
	p.change(name, v1alpha1.PackageRevisionLifecycleDeletionProposed)
	if err := p.porch.PorchV1alpha1().PackageRevisions(p.id).Delete(p.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expected := []string{
		"added basens Draft", "updated basens Proposed", "updated basens Published", "updated basens DeletionProposed", "deleted basens DeletionProposed",
	}
	for deadline := time.After(2 * patience); len(expected) > 0; {
		select {
		case event := <-seen:
			// Pushes and labels are further updates.
			if event == expected[0] {
				expected = expected[1:]
			}
		case <-deadline:
			t.Fatalf("not seen: %v", expected)
		}
	}
	p.await("the lister has only the package on the branch", func() bool {
		listed, err := informer.Lister().PackageRevisions(p.id).List(labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		return len(listed) == 1 && listed[0].Spec.Revision == -1
	})
}
