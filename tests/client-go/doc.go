// Package clientgo drives a Stoa server with client-go, as controllers written in Go do: dynamic and metadata
// informers with streaming lists, paging, optimistic concurrency, discovery.
//
// STOA_TEST_KUBECONFIG names the server, standalone or a cluster with Stoa behind it, and a user that may do
// anything with backends. Every test works on objects with names and labels of its own.
package clientgo
