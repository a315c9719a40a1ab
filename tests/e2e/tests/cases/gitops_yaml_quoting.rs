//! Case `gitops-yaml-quoting`.
//!
//! Reports: kcl-lang/kcl#2013, cdk8s-team/cdk8s-core#1230.
