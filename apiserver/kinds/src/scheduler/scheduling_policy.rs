//! SchedulingPolicy: which deployment targets run on which cluster types.

use stoa_machinery::definition::{Cell, Column};
use stoa_types::scheduler::SchedulingPolicy;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind SchedulingPolicy.
pub(crate) static KIND: Kind = owned::kind::<SchedulingPolicy>();

impl Owned for SchedulingPolicy {
    const COLUMNS: &'static [Column] = &[Column::new(
        "Workspace",
        Cell::Path(&["spec", "deploymentTargetSelector", "workspace"]),
        "The workspace of the targets.",
    )];
    const READY: Option<&'static str> = Some("Whether its assignments exist.");
}
