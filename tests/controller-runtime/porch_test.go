package controllerruntime

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	porchapi "github.com/nephio-project/porch/api/porch/v1alpha1"
	configapi "github.com/nephio-project/porch/api/porchconfig/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// approver publishes proposals whose packages are checked, by the types of Porch.
type approver struct {
	client.Client
}

func (a *approver) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	revision := &porchapi.PackageRevision{}
	if err := a.Get(ctx, request.NamespacedName, revision); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if revision.Spec.Lifecycle != porchapi.PackageRevisionLifecycleProposed || !strings.HasPrefix(revision.Spec.PackageName, "checked") {
		return ctrl.Result{}, nil
	}
	revision.Spec.Lifecycle = porchapi.PackageRevisionLifecyclePublished
	return ctrl.Result{}, a.SubResource("approval").Update(ctx, revision)
}

// A controller with Porch's types approves by a rule of its own.
func TestControllerApprovesPackages(t *testing.T) {
	s := newStage(t)
	remote := filepath.Join(t.TempDir(), "blueprints.git")
	if out, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", remote).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	repository := &configapi.Repository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "blueprints"},
		Spec: configapi.RepositorySpec{
			Type: configapi.RepositoryTypeGit, Git: &configapi.GitRepository{Repo: "file://" + remote, Branch: "main", CreateBranch: true},
		},
	}
	s.must(s.Create(s.ctx, repository))
	s.eventually("the repository is ready", func() bool {
		s.must(s.Get(s.ctx, client.ObjectKeyFromObject(repository), repository))
		return meta.IsStatusConditionTrue(repository.Status.Conditions, configapi.RepositoryReady)
	})
	s.manageWith(func(mgr ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&porchapi.PackageRevision{}).Complete(&approver{mgr.GetClient()})
	})
	propose := func(name string) *porchapi.PackageRevision {
		revision := &porchapi.PackageRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "any"},
			Spec: porchapi.PackageRevisionSpec{
				PackageName: name, RepositoryName: "blueprints", WorkspaceName: "v1",
				Tasks: []porchapi.Task{{Type: porchapi.TaskTypeInit, Init: &porchapi.PackageInitTaskSpec{Description: "A package"}}},
			},
		}
		s.must(s.Create(s.ctx, revision))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"lifecycle":"Proposed"}}`))
		s.must(s.Patch(s.ctx, revision, patch))
		return revision
	}
	other, checked := propose("other"), propose("checked")
	s.eventually("the checked package is published", func() bool {
		s.must(s.Get(s.ctx, client.ObjectKeyFromObject(checked), checked))
		return checked.Spec.Lifecycle == porchapi.PackageRevisionLifecyclePublished && checked.Spec.Revision == 1
	})
	s.eventually("the cache has both", func() bool {
		all := &porchapi.PackageRevisionList{}
		s.must(s.cached.List(s.ctx, all, client.InNamespace(s.namespace)))
		return len(all.Items) >= 2
	})
	s.must(s.Get(s.ctx, client.ObjectKeyFromObject(other), other))
	if other.Spec.Lifecycle != porchapi.PackageRevisionLifecycleProposed {
		t.Errorf("the other package is %s", other.Spec.Lifecycle)
	}
}
