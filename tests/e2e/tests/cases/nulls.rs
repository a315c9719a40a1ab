//! Case `nulls`.
//!
//! Reports: argoproj/argo-cd#25240, kubernetes/kubernetes#129456.
