//! Case `yaml-read-as-kubectl`.
//!
//! Reports: kubernetes/kubernetes#34146, kubernetes-sigs/kustomize#4386, kubernetes-sigs/kustomize#4908.
