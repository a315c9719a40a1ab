//! Case `mutating-policy`.
//!
//! Reports: argoproj/argo-cd#17572.
