//! Case `same-port-two-protocols`.
//!
//! Reports: kubernetes/kubernetes#39188, kubernetes/kubernetes#105610.
