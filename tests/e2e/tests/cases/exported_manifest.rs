//! Case `exported-manifest`.
//!
//! Reports: argoproj/argo-cd#28585, kubernetes/kubernetes#81453.
