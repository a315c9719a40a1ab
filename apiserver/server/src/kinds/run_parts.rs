//! What is read of a run wherever little of it says enough, as with every change of one.

use std::collections::BTreeMap;

use serde::Deserialize;
use stoa_types::delivery::RunPhase;

/// Where a run is, and what its labels say.
#[derive(Deserialize)]
pub(crate) struct OfRunMetadata {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

/// Whose a run is.
#[derive(Deserialize)]
pub(crate) struct OfRunSpec {
    pub(crate) stack: String,
}

/// How far a run is, and who asked for it.
#[derive(Default, Deserialize)]
pub(crate) struct OfRunStatus {
    #[serde(default)]
    pub(crate) phase: RunPhase,
    #[serde(default)]
    pub(crate) requester: OfRequester,
}

/// The name of whoever asked for a run; empty where nobody did yet.
#[derive(Default, Deserialize)]
pub(crate) struct OfRequester {
    #[serde(default)]
    pub(crate) username: String,
}
