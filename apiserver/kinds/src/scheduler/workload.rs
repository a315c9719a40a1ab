//! Workload: an application or service with its deployment targets.

use serde_json::Value;
use stoa_machinery::{
    Object,
    definition::{Cell, Column},
};
use stoa_types::scheduler::Workload;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind Workload.
pub(crate) static KIND: Kind = owned::kind::<Workload>();

impl Owned for Workload {
    const COLUMNS: &'static [Column] =
        &[Column::new("Targets", Cell::Compute(targets), "The number of deployment targets in all environments.")
            .kind("integer")];
    const READY: Option<&'static str> = Some("Whether its deployment targets exist.");
}

fn targets(object: &Object) -> Value {
    object.get_path(&["spec", "deploymentTargets"]).and_then(Value::as_array).map_or(0, Vec::len).into()
}
