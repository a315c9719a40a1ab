//! Case `cluster-scoped-with-namespace`.
//!
//! Reports: fluxcd/flux#3135, pipe-cd/pipecd#4269, argoproj/argo-cd#15058.
