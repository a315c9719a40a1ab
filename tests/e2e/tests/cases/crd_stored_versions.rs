//! Case `crd-stored-versions`.
//!
//! Reports: fluxcd/flux2#2743, fluxcd/flux2#5598.
