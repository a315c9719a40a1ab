package controllerruntime

import (
	"context"
	"time"

	porchapi "github.com/nephio-project/porch/api/porch/v1alpha1"
	configapi "github.com/nephio-project/porch/api/porchconfig/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	finalizer = "mirror.example.com/finalizer"
	manager   = "mirror.example.com"
	mirrored  = "Mirrored"
	byProject = "spec.project"
)

// mirror keeps, for every stack, a ConfigMap by server-side apply and a Source by reading and writing, says so in the
// stack's status, and leaves a ConfigMap behind when the stack goes.
type mirror struct {
	client.Client
}

func newSource(namespace, name string) *unstructured.Unstructured {
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(configVersion.WithKind("Source"))
	source.SetNamespace(namespace)
	source.SetName(name)
	return source
}

func (m *mirror) setUp(mgr ctrl.Manager) error {
	index := func(object client.Object) []string { return []string{object.(*Stack).Spec.Project} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &Stack{}, byProject, index); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Stack{}).
		Owns(&corev1.ConfigMap{}).
		Owns(newSource("", ""), builder.OnlyMetadata).
		Complete(m)
}

func (m *mirror) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	stack := &Stack{}
	if err := m.Get(ctx, request.NamespacedName, stack); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !stack.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, m.clearUp(ctx, stack)
	}
	if controllerutil.AddFinalizer(stack, finalizer) {
		// The change comes back as an event.
		return ctrl.Result{}, m.Update(ctx, stack)
	}
	if err := m.keep(ctx, stack); err != nil {
		return ctrl.Result{}, err
	}
	condition := metav1.Condition{
		Type: mirrored, Status: metav1.ConditionTrue, Reason: mirrored, Message: stack.Spec.Description,
		ObservedGeneration: stack.Generation,
	}
	if meta.SetStatusCondition(&stack.Status.Conditions, condition) {
		return ctrl.Result{}, m.Status().Update(ctx, stack)
	}
	return ctrl.Result{RequeueAfter: time.Minute}, nil
}

func (m *mirror) keep(ctx context.Context, stack *Stack) error {
	owner := metav1ac.OwnerReference().
		WithAPIVersion(configVersion.String()).WithKind("Stack").WithName(stack.Name).WithUID(stack.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	wanted := corev1ac.ConfigMap(stack.Name+"-mirror", stack.Namespace).
		WithOwnerReferences(owner).WithData(map[string]string{"description": stack.Spec.Description})
	if err := m.Apply(ctx, wanted, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return err
	}
	source := newSource(stack.Namespace, stack.Name+"-mirror")
	_, err := controllerutil.CreateOrUpdate(ctx, m.Client, source, func() error {
		// A second source of the same repository is refused.
		remote := "file:///" + source.GetName() + ".git"
		for field, value := range map[string]string{"remote": remote, "pollInterval": "1h"} {
			if err := unstructured.SetNestedField(source.Object, value, "spec", field); err != nil {
				return err
			}
		}
		return controllerutil.SetControllerReference(stack, source, m.Scheme())
	})
	return err
}

func (m *mirror) clearUp(ctx context.Context, stack *Stack) error {
	if !controllerutil.ContainsFinalizer(stack, finalizer) {
		return nil
	}
	left := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: stack.Name + "-was-here"},
		Data:       map[string]string{"uid": string(stack.UID)},
	}
	if err := client.IgnoreAlreadyExists(m.Create(ctx, left)); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(stack, finalizer)
	return client.IgnoreNotFound(m.Update(ctx, stack))
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	addToScheme(scheme)
	for _, add := range []func(*runtime.Scheme) error{porchapi.AddToScheme, configapi.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}
