//! Case `aggregated-clusterrole`.
//!
//! Reports: carvel-dev/kapp#227, kyverno/kyverno#4866, fluxcd/flux2#2472.
