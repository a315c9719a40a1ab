// Command conformance sends the same requests to a reference and a subject and compares their answers.
//
// The reference is Go's sample-apiserver, which shows k8s.io/apiserver with a typed kind. The subject is the example
// wardle of stoa-storage, which serves the same kinds on any of Stoa's logs. Both answer directly and behind one
// kube-apiserver. For Stoa's own kinds, stoa-apiserver is the subject and custom resources are the reference.
//
// A check (checks_*.go) is a script of requests. Its transcript is compared, with names, uids, times and versions masked
// (normalize.go). A difference fails unless allowed.go permits it with a source. RESULTS.md has the outcome (report.go).
package main
