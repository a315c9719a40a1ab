//! Case `admission-prerequisites`.
//!
//! Reports: carvel-dev/kapp#95, helm/helm#5916, fluxcd/kustomize-controller#1194.
