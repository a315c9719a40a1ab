//! Parts of a Run for readers that decode every change of one.

use std::collections::BTreeMap;

use serde::Deserialize;
use stoa_types::delivery::RunPhase;

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

/// Whose a run is.
#[derive(Deserialize)]
pub struct OfRunSpec {
    /// The Stack of the run.
    pub stack: String,
}

/// How far a run is, and who asked for it.
#[derive(Default, Deserialize)]
pub struct OfRunStatus {
    /// Its phase.
    #[serde(default)]
    pub phase: RunPhase,
    /// Its requester.
    #[serde(default)]
    pub requester: OfRequester,
}

/// The name of whoever asked for a run; empty where nobody did yet.
#[derive(Default, Deserialize)]
pub struct OfRequester {
    /// The name.
    #[serde(default)]
    pub username: String,
}
