//! ConfigSchema: a JSON Schema for the configuration of assignments.

use stoa_machinery::definition::{Cell, Column};
use stoa_types::scheduler::ConfigSchema;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind ConfigSchema.
pub(crate) static KIND: Kind = owned::kind::<ConfigSchema>();

impl Owned for ConfigSchema {
    const COLUMNS: &'static [Column] = &[Column::new(
        "Workload",
        Cell::Path(&["metadata", "labels", "workload"]),
        "The Workload that it is for, if any.",
    )];
}
