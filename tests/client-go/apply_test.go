package clientgo

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// backend is what a manager applies: object number i with what the manager has to say of it.
func (b *bed) backend(i int, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": backends.GroupVersion().String(),
		"kind":       "Backend",
		"metadata":   map[string]any{"name": b.name(i), "labels": map[string]any{testLabel: b.id}},
		"spec":       spec,
	}}
}

func description(object *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(object.Object, "spec", "description")
	return text
}

// managers is who owns fields, as "manager operation".
func managers(object *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, entry.Manager+" "+string(entry.Operation))
		}
	}
	slices.Sort(names)
	return names
}

// Appliers share what they agree on, learn of each other where they do not, and take over by force.
func TestApplyTellsConflictsAndCanForceThem(t *testing.T) {
	b := newBed(t)
	apply := func(manager, text string, force bool) (*unstructured.Unstructured, error) {
		spec := map[string]any{"type": "Local"}
		if text != "" {
			spec["description"] = text
		}
		return b.client.Apply(b.ctx, b.name(0), b.backend(0, spec), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	mustApply := func(manager, text string, force bool) *unstructured.Unstructured {
		t.Helper()
		object, err := apply(manager, text, force)
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	first := mustApply("ann", "ann's", false)
	again := mustApply("ann", "ann's", false)
	if again.GetResourceVersion() != first.GetResourceVersion() && again.GetGeneration() != 1 {
		t.Errorf("the same again is a change: %v", again)
	}
	_, err := apply("bob", "bob's", false)
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Fatalf("not a conflict with its cause: %v", err)
	}
	cause, _ := apierrors.StatusCause(err, metav1.CauseTypeFieldManagerConflict)
	if cause.Field != ".spec.description" || cause.Message != `conflict with "ann"` {
		t.Errorf("the cause is %+v", cause)
	}
	if got := description(mustApply("bob", "bob's", true)); got != "bob's" {
		t.Errorf("forced, the description is %q", got)
	}
	if got := description(mustApply("ann", "", false)); got != "bob's" {
		t.Errorf("what ann gave up is %q", got)
	}
	if got := description(mustApply("bob", "", false)); got != "" {
		t.Errorf("what nobody wants is %q", got)
	}
	// An update takes what it changes, and an applier hears of it.
	mustApply("ann", "ann's", false)
	patch := []byte(`{"spec":{"description":"edited"}}`)
	if _, err := b.client.Patch(b.ctx, b.name(0), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "editor"}); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("ann", "ann's", false); !apierrors.IsConflict(err) {
		t.Errorf("ann did not hear of the edit: %v", err)
	}
}

// An object of client-side apply is handed over to server-side apply, as kubectl does, and loses nothing: what the
// applier no longer wants goes, as if it had been server-side from the beginning.
func TestClientSideApplyIsUpgraded(t *testing.T) {
	b := newBed(t)
	object := b.backend(0, map[string]any{"type": "Local", "description": "to go", "local": map[string]any{"directory": b.id}})
	applied, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	object.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(applied)})
	const clientSide, serverSide = "kubectl-client-side-apply", "kubectl"
	created, err := b.client.Create(b.ctx, object, metav1.CreateOptions{FieldManager: clientSide})
	if err != nil {
		t.Fatal(err)
	}
	if got := managers(created); !slices.Equal(got, []string{clientSide + " Update"}) {
		t.Fatalf("the managers are %q", got)
	}
	owners := csaupgrade.FindFieldsOwners(created.GetManagedFields(), metav1.ManagedFieldsOperationUpdate, fields(t, `{"f:spec":{"f:description":{}}}`))
	if len(owners) != 1 || owners[0].Manager != clientSide {
		t.Errorf("the description is owned by %v", owners)
	}

	stale, err := csaupgrade.UpgradeManagedFieldsPatch(created, sets.New(clientSide), serverSide)
	if err != nil {
		t.Fatal(err)
	}
	b.patch(types.MergePatchType, `{"metadata":{"annotations":{"example.com/by":"somebody"}}}`, "somebody")
	if _, err := b.client.Patch(b.ctx, b.name(0), types.JSONPatchType, stale, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale upgrade is answered with %v", err)
	}
	var upgraded *unstructured.Unstructured
	// The object's controller may write its status at any time; kubectl tries again then too.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := b.client.Get(b.ctx, b.name(0), metav1.GetOptions{})
		if err != nil {
			return err
		}
		upgrade, err := csaupgrade.UpgradeManagedFieldsPatch(current, sets.New(clientSide), serverSide)
		if err != nil {
			return err
		}
		upgraded, err = b.client.Patch(b.ctx, b.name(0), types.JSONPatchType, upgrade, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{serverSide + " Apply", "somebody Update"}
	if got := managers(upgraded); !slices.Equal(got, want) {
		t.Errorf("after the upgrade the managers are %q, want %q", got, want)
	}
	if rest, err := csaupgrade.UpgradeManagedFieldsPatch(upgraded, sets.New(clientSide), serverSide); err != nil || rest != nil {
		t.Errorf("there is more to upgrade: %s %v", rest, err)
	}

	less := b.backend(0, map[string]any{"type": "Local", "local": map[string]any{"directory": b.id}})
	result, err := b.client.Apply(b.ctx, b.name(0), less, metav1.ApplyOptions{FieldManager: serverSide})
	if err != nil {
		t.Fatal(err)
	}
	if got := description(result); got != "" {
		t.Errorf("what is no longer applied is %q", got)
	}
	if result.GetUID() != created.GetUID() || result.GetAnnotations()["example.com/by"] != "somebody" {
		t.Errorf("the upgrade lost something: %v", result)
	}
}

// patch patches object number 0.
func (b *bed) patch(kind types.PatchType, patch, manager string) *unstructured.Unstructured {
	b.t.Helper()
	object, err := b.client.Patch(b.ctx, b.name(0), kind, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		b.t.Fatalf("patch %s: %v", patch, err)
	}
	return object
}

func fields(t *testing.T, text string) *fieldpath.Set {
	t.Helper()
	set := &fieldpath.Set{}
	if err := set.FromJSON(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return set
}
