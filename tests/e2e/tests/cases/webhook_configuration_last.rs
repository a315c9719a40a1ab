//! Case `webhook-configuration-last`.
//!
//! Reports: kubernetes-sigs/kustomize#821, kubernetes-sigs/kustomize#3794.
