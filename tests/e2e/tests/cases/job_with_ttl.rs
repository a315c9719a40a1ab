//! Case `job-with-ttl`.
//!
//! Reports: fluxcd/kustomize-controller#1578, helm/helm#11347.
