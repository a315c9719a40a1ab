//! Case `adopt-client-side-apply`.
//!
//! Reports: kubernetes/kubernetes#99003, kubernetes/kubernetes#80914, fluxcd/kustomize-controller#486.
