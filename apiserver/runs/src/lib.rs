//! The execution of Runs.
//!
//! Start at [`executor::run_to_completion`], which takes a Run from its recorded phase to its end, also after a crash.
//!
//! - `steps`: the steps of a Run and their driver; `status`: all changes of its status while it is under way;
//! - `execution`: one Run with its status, its run log, its beginning and its end;
//! - `circuit_breaker`: Runs whose calls end function-runners;
//! - [`state`]: the records of a deployment, in the log and under the lease of the Run;
//! - [`documents`]: documents of a Backend by digest; [`backends`]: their stores; [`garbage`]: the removal of unreferenced ones;
//!   [`encryption`]: the encryption of sensitive values;
//! - `resources`, `deployment`: the Resources and the status of the Stack;
//! - [`compliance`]: whether clusters have what was committed for them;
//! - [`run_log`]: the lines of `runs/log`;
//! - `kusion`: releases of Kusion, for imports;
//! - [`target`]: the objects that a Run refers to; `source_keys`: the keys that a Source trusts; [`package_source`]: Sources that
//!   are packages;
//! - [`values`]: the values for generators; `stored_secrets`: Kubernetes Secrets as a secret store; `store_files`: files of
//!   the source as one;
//! - [`working_copy`]: plans of files that are in no commit;
//! - [`runner`]: the client of the function-runners.
//!
//! Elsewhere: the controller of Runs in `stoa-apiserver` decides when a Run is executed.

pub mod backends;
mod circuit_breaker;
pub mod compliance;
pub mod contents;
mod deployment;
pub mod documents;
pub mod encryption;
mod execution;
pub mod executor;
pub mod garbage;
mod kusion;
pub mod modules;
pub mod package_source;
mod resources;
pub mod run_log;
pub mod runner;
mod source_keys;
pub mod state;
mod status;
mod steps;
mod store_files;
mod stored_secrets;
pub mod target;
pub mod terraform_state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod values;
pub mod working_copy;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use stoa_controller::{events::Recorder, probes::RepositoryTimeout, queue};
use stoa_kinds::{cluster::Cluster, lookup::Lookup};
use stoa_machinery::{ApiError, auth::Authorizer, log::Log};
use stoa_storage::Clock;
use stoa_types::reason;

use crate::encryption::Encryption;

/// The services that every Run needs.
#[derive(Clone, Debug)]
pub struct Services {
    /// The objects.
    pub lookup: Lookup,
    /// The log: records of deployments, leases, run logs.
    pub log: Arc<dyn Log>,
    /// The stores of documents.
    pub backends: backends::Backends,
    /// The encryption of sensitive values in stored Specs.
    pub encryption: Encryption,
    /// The function-runners.
    pub runner: runner::Runner,
    /// The questions about folders of Sources.
    pub contents: contents::Contents,
    /// The cluster around the server.
    pub cluster: Arc<dyn Cluster>,
    /// The recorder of Events.
    pub recorder: Recorder,
    /// The permissions of requesters.
    pub authorizer: Arc<dyn Authorizer>,
    /// The name of this server as the holder of leases. It survives restarts on the same data directory, so that a restarted
    /// server acquires its own leases again at once.
    pub identity: String,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The number of Runs that are executed at once.
    pub max_runs: usize,
    /// The time that the lease of a Run lasts without renewal.
    pub run_lease: Duration,
    /// The time that a Run keeps its slot while it is unknown which pull requests were merged.
    pub merges_patience: Duration,
    /// The metrics of the controllers' queues.
    pub queues: queue::Metrics,
}

impl Services {
    /// The wall clock's time, which may be set back at any moment: for people to read, and never to wait by.
    pub fn now(&self) -> Timestamp {
        time_of(&*self.clock)
    }
}

/// The time of a clock, to the millisecond.
fn time_of(clock: &dyn Clock) -> Timestamp {
    Timestamp::from_millisecond(clock.now_ms()).unwrap_or_default()
}

/// The reason why a step of a Run, or a question on behalf of one, does not continue.
#[derive(Clone, Debug, PartialEq)]
pub enum StepError {
    /// The Run failed.
    Failed {
        /// A CamelCase reason of `stoa_types::reason`.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
    /// The Run asks for something invalid, such as a stale plan. It never reached the deployment, whose status stays.
    Refused {
        /// A CamelCase reason of `stoa_types::reason`.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
    /// The source is out of reach: the Run waits for it for half a minute, and then fails.
    SourceUnreachable(String),
    /// Somebody canceled the Run, or its time is up.
    Canceled,
    /// Something is out of reach or busy, as this sentence says; the Run is retried.
    Retry(String),
    /// The plan needs an approval. The Run is suspended until then.
    AwaitingApproval,
    /// The pull request is not merged yet. The Run is suspended, and checks from time to time.
    AwaitingMerge,
    /// Another Run took the place of this one, as this sentence says; its proposal is not its own to record any more.
    Superseded(String),
    /// The Run lost its lease, or its object is deleted: another server continues with it.
    Abandoned(String),
}

impl StepError {
    /// A failure with a reason of `stoa_types::reason` and a sentence.
    pub fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Failed { reason, message: message.into() }
    }

    /// A rejection with a reason of `stoa_types::reason` and a sentence.
    pub fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }

    /// The reason and the message for a status; `otherwise` is the reason of an error that may pass by itself.
    pub fn into_reason(self, otherwise: &'static str) -> (&'static str, String) {
        match self {
            Self::Failed { reason, message } | Self::Refused { reason, message } => (reason, message),
            Self::Retry(message)
            | Self::SourceUnreachable(message)
            | Self::Abandoned(message)
            | Self::Superseded(message) => (otherwise, message),
            Self::Canceled | Self::AwaitingApproval | Self::AwaitingMerge => {
                (otherwise, "the call was canceled".to_owned())
            }
        }
    }

    /// Whether a retry gives the same error.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Refused { .. })
    }
}

impl From<RepositoryTimeout> for StepError {
    fn from(error: RepositoryTimeout) -> Self {
        Self::Retry(error.to_string())
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
