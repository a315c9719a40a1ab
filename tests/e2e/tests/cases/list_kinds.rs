//! Case `list-kinds`.
//!
//! Reports: kubernetes-sigs/kustomize#5042, crossplane-contrib/provider-kafka#56.
