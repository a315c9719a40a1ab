//! Validation levels for manifests that no cluster checks before they are deployed.

use serde::Deserialize;

/// The minor versions of Kubernetes with shipped schemas (`stoa-schemas`), oldest first.
pub const KUBERNETES_VERSIONS: [&str; 4] = ["1.33", "1.34", "1.35", "1.36"];

/// The newest of [`KUBERNETES_VERSIONS`], by which manifests are validated unless a workspace names another.
pub const NEWEST_KUBERNETES: &str = KUBERNETES_VERSIONS[KUBERNETES_VERSIONS.len() - 1];

/// The effect of an invalid manifest on a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Validation {
    /// It refuses the plan.
    #[default]
    Strict,
    /// It is a warning of the plan.
    Warn,
    /// Nothing: manifests are not validated.
    Off,
}
