//! DeploymentTarget: one variant of a workload for one environment.

use stoa_machinery::definition::{Cell, Column};
use stoa_types::scheduler::DeploymentTarget;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind DeploymentTarget.
pub(crate) static KIND: Kind = owned::kind::<DeploymentTarget>();

impl Owned for DeploymentTarget {
    const COLUMNS: &'static [Column] = &[
        Column::new("Workload", Cell::Path(&["metadata", "labels", "workload"]), "The Workload."),
        Column::new("Workspace", Cell::Path(&["metadata", "labels", "workspace"]), "The workspace of the team."),
        Column::new("Environment", Cell::Path(&["spec", "environment"]), "The environment."),
    ];
}
