//! Runs: what happens between the creation of a Run and its end.
//!
//! Start at [`drive::drive`], which takes one run from whatever phase it is in to its end; it is
//! called again after a crash and goes on from what is recorded. The pieces:
//!
//! - [`steps`]: what a run does, one step after the other;
//! - [`execution`]: the run itself, its status, its beginning and its end;
//! - [`breaks`]: what becomes of a run in whose calls function-runners go away;
//! - [`state`]: what is recorded of each resource, in the log, under the run's lease;
//! - [`documents`]: what is kept by digest in the Backend; [`backends`]: which store that is; [`garbage`]: what goes again;
//! - [`resources`], [`deployment`], [`readiness`]: what people see of it, in Resources and in the stack's status;
//! - [`compliance`]: whether clusters have what was committed for them;
//! - [`journal`]: what `runs/log` shows;
//! - [`kusion`]: what Kusion has on record, for imports;
//! - [`target`]: everything a run refers to, gathered and checked;
//! - [`runner`]: the function-runner's client.
//!
//! Which runs are executed when is decided in `controllers::runs`.

pub(crate) mod backends;
pub(crate) mod breaks;
pub(crate) mod compliance;
pub(crate) mod deployment;
pub(crate) mod documents;
pub(crate) mod drive;
pub(crate) mod execution;
pub(crate) mod garbage;
pub(crate) mod journal;
mod kusion;
pub(crate) mod readiness;
pub(crate) mod resources;
pub(crate) mod runner;
pub(crate) mod state;
mod steps;
pub(crate) mod target;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use stoa_machinery::{ApiError, auth::Authorizer, log::Log};
use stoa_storage::Clock;
use stoa_types::{
    Run,
    delivery::{Operation, RunPhase, RunStatus},
    reason,
};

use crate::{cluster::Cluster, controllers, encryption::Encryption, events::Recorder, kinds::lookup::Lookup};

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
    pub(crate) queues: controllers::queue::Metrics,
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
pub(crate) enum Halt {
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

impl Halt {
    pub(crate) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }

    pub(crate) fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }
}

impl From<ApiError> for Halt {
    fn from(error: ApiError) -> Self {
        match error.code() {
            404 => Self::Abandoned(error.message().to_owned()),
            403 => Self::failed(reason::PERMISSION_DENIED, error.message()),
            _ => Self::Retry(error.message().to_owned()),
        }
    }
}

/// Whether a run is put down until somebody decides about its plan.
pub(crate) fn awaits_approval(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase == RunPhase::AwaitingApproval && status.approval.is_none())
}

/// When a run was created; to the second where an earlier version made it.
pub(crate) fn queued_at(run: &Run) -> Option<Timestamp> {
    let created = run.metadata.creation_timestamp.as_ref();
    run.status.as_ref().and_then(|status| status.queued_time.as_ref()).map(|it| it.0).or(created.map(|it| it.0))
}

/// Whether a run is put down until somebody merges its pull request.
pub(crate) fn awaits_merge(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase == RunPhase::AwaitingMerge)
}

/// Whether a run is to end before it is done. Deleting one cancels it first, but for what the server
/// itself destroys: in a namespace that goes, everything is deleted again and again until it is gone.
pub(crate) fn wants_end(run: &Run) -> bool {
    let is_own_destroy = run.spec.operation == Operation::Destroy && target::is_internal(&status(run).requester);
    run.spec.cancel || (run.metadata.deletion_timestamp.is_some() && !is_own_destroy)
}

/// The status of a run, which its strategy has set when it was created.
pub(crate) fn status(run: &Run) -> RunStatus {
    run.status.clone().unwrap_or_default()
}
