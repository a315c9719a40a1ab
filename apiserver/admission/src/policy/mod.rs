//! Policies: rules in CEL that a cluster's administrators configure.
//!
//! Start at [`ValidatingPolicies`] and [`MutatingPolicies`]. A policy says what is checked or changed, its bindings where
//! and with which parameters. Follows `pkg/admission/plugin/policy` of `k8s.io/apiserver`.
//!
//! Submodules: `binding` and `matching` say which policies count for a write, `params` what their bindings hand to
//! them, `compiled` is a policy that validates, `mutation` one that mutates.

mod binding;
mod compiled;
mod matching;
mod mutating;
mod mutation;
mod params;
mod validating;

pub use binding::Binding;
pub use compiled::Policy;
pub use mutating::MutatingPolicies;
pub use mutation::MutatingPolicy;
pub use params::{ClusterParams, Params};
pub use validating::ValidatingPolicies;
