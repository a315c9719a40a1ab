// Package controllerruntime runs a small manager on controller-runtime against a Stoa server behind kube-apiserver, as
// operators do: typed objects in a cache, a controller with owned objects, finalizers, status and server-side apply.
//
// STOA_TEST_KUBECONFIG names the cluster and a user that may do anything. Every test works in an organization of its
// own.
package controllerruntime
