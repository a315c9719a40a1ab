//! Case `too-large-for-etcd`.
//!
//! Reports: kubernetes/kubernetes#74600, kubernetes-sigs/prow#181, rancher/fleet#2388.
