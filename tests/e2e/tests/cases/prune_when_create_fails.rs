//! Case `prune-when-create-fails`.
//!
//! Reports: fluxcd/kustomize-controller#734, fluxcd/kustomize-controller#340.
