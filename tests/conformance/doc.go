// Command conformance asks a reference and a subject the same questions and compares their answers.
//
// The reference is Go's sample-apiserver, which is what k8s.io/apiserver does with a typed kind; the subject is the
// example wardle of stoa-storage, which serves the same kinds, on any of our logs. Both are asked directly and behind the same
// kube-apiserver. Of Stoa's own kinds stoa-apiserver is the subject, and custom resources are the reference. A check (checks_*.go) is a script of requests; what is compared is its transcript, in which all that
// differs between any two runs is masked: names, uids, times, versions (normalize.go). A difference fails unless
// allowed.go permits it and says why. The outcome is RESULTS.md (report.go).
package main
