//! Runs: what happens between the creation of a Run and its end.
//!
//! Start at [`executor::run_to_completion`], which takes one run from whatever phase it is in to its end; it is
//! called again after a crash and goes on from what is recorded. The pieces:
//!
//! - [`steps`]: what a run does, one step after the other;
//! - [`execution`]: the run itself, its status, its beginning and its end;
//! - [`circuit_breaker`]: what becomes of a run in whose calls function-runners go away;
//! - [`state`]: what is recorded of each resource, in the log, under the run's lease;
//! - [`documents`]: what is kept by digest in the Backend; [`backends`]: which store that is; [`garbage`]: what goes again;
//! - [`resources`], [`deployment`]: the Resources and the status of the Stack;
//! - [`compliance`]: whether clusters have what was committed for them;
//! - [`run_log`]: what `runs/log` shows;
//! - [`kusion`]: what Kusion has on record, for imports;
//! - [`target`]: everything a run refers to, gathered and checked;
//! - [`runner`]: the function-runner's client.
//!
//! Which runs are executed when is decided in `controllers::runs`.

pub(crate) mod backends;
pub(crate) mod circuit_breaker;
pub(crate) mod compliance;
pub(crate) mod deployment;
pub(crate) mod documents;
pub(crate) mod execution;
pub(crate) mod executor;
pub(crate) mod garbage;
mod kusion;
pub(crate) mod resources;
pub(crate) mod run_log;
pub(crate) mod runner;
pub(crate) mod state;
mod steps;
pub(crate) mod target;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use stoa_controller::{events::Recorder, queue};
use stoa_kinds::{cluster::Cluster, lookup::Lookup};
use stoa_machinery::{ApiError, auth::Authorizer, log::Log};
use stoa_storage::Clock;
use stoa_types::reason;

use crate::encryption::Encryption;

/// What every run needs.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// The objects.
    pub(crate) lookup: Lookup,
    /// The log, for state, leases and journals.
    pub(crate) log: Arc<dyn Log>,
    /// Where documents go.
    pub(crate) backends: backends::Backends,
    /// What sensitive values are sealed with where they are kept.
    pub(crate) sealing: Encryption,
    /// Who does the work.
    pub(crate) runner: runner::Runner,
    /// The cluster around the server.
    pub(crate) cluster: Arc<dyn Cluster>,
    /// Who tells people.
    pub(crate) recorder: Recorder,
    /// Who decides what the requester may do.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// This server's name as the holder of leases. It stays the same across restarts of the same
    /// data directory, so that a restarted server takes its own leases back at once.
    pub(crate) identity: String,
    /// What the time is.
    pub(crate) clock: Arc<dyn Clock>,
    /// How many runs are executed at once.
    pub(crate) max_runs: usize,
    /// How long the lease of a run lasts without renewal.
    pub(crate) run_lease: Duration,
    /// What is counted of the queues of controllers.
    pub(crate) queues: queue::Metrics,
}

impl Services {
    /// The time, which may be set back at any moment: for people to read, and never to wait by.
    pub(crate) fn now(&self) -> Timestamp {
        time_of(&*self.clock)
    }
}

/// What a clock says, to the millisecond.
pub(crate) fn time_of(clock: &dyn Clock) -> Timestamp {
    Timestamp::from_millisecond(clock.now_ms()).unwrap_or_default()
}

/// Why a run does not go on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepError {
    /// It failed: a reason for machines and a message for people.
    Failed { reason: &'static str, message: String },
    /// What it asks for is a mistake, such as a plan that it may not carry out: a reason for machines and a message for people.
    /// It says nothing about the deployment, to which it was never let in.
    Refused { reason: &'static str, message: String },
    /// The source is out of reach: the run waits for it a little, and then fails.
    SourceUnreachable(String),
    /// Somebody cancelled it.
    Canceled,
    /// Something is out of reach or busy; the run waits and goes on where it is.
    Retry(String),
    /// Somebody has to approve its plan; the run is put down until then.
    AwaitingApproval,
    /// Somebody has to merge its pull request; the run is put down and looks every so often.
    AwaitingMerge,
    /// Another run took its place, as this sentence says: what it proposed is not its own to record any more.
    Superseded(String),
    /// The run's lease is lost or its object is gone: whoever has it now goes on.
    Abandoned(String),
}

impl StepError {
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }

    pub(crate) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}

impl From<ApiError> for StepError {
    fn from(error: ApiError) -> Self {
        match error.code() {
            404 => Self::Abandoned(error.message().to_owned()),
            403 => Self::failed(reason::PERMISSION_DENIED, error.message()),
            _ => Self::Retry(error.message().to_owned()),
        }
    }
}
