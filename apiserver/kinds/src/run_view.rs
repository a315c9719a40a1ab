//! Parts of a Run for readers that decode every change of one.

use std::collections::BTreeMap;

use serde::Deserialize;
use stoa_types::delivery::{Requester, RunPhase};

/// Where a run is, and what its labels say.
#[derive(Deserialize)]
pub struct OfRunMetadata {
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// How far a run is, and who asked for it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct OfRunStatus {
    /// Its phase.
    pub phase: RunPhase,
    /// Its requester.
    pub requester: Requester,
}
