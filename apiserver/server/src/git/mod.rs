//! The control repository: what people decide, as commits, and what they push there, as writes.
//!
//! Start at [`start`]. [`stoa_control_repo`] does the work and knows no kinds. The server gives it the list of kinds
//! ([`GIT_PATHS`]), the layout ([`layout`]), and the way of a pushed file to a write ([`ingest`]). [`report`] records the
//! problems of pushed files in the condition `Synced` and in Events. Until a file is valid again, [`guard`] rejects writes of
//! its object. [`status`] reports the state of the projection and of its remote.

mod guard;
mod ingest;
mod layout;
mod report;
mod status;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use stoa_control_repo::{GitHistory, GitOptions, GitProjector, GitStatus, Identity, ProjectionState, RemoteOptions};
use stoa_controller::{events::Recorder, leader::Term};
use stoa_kinds::{GIT_PATHS, cluster::Cluster};
use stoa_machinery::{Registry, admission::Chain, auth::Authorizer, log::Log, registry::RegistryBuilder};
use stoa_types::{Organization, names};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use self::status::Metrics;

/// The name of the repository in its folder.
const REPOSITORY: &str = "control.git";

/// The control repository of a server.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    /// The folder of the repository, or of its copy with a remote.
    pub(crate) folder: PathBuf,
    /// The remote that has main, if there is one.
    pub(crate) remote: Option<RemoteOptions>,
    /// The time without a remote after which organizations get a condition.
    pub(crate) patience: Duration,
    /// The metrics of the projection.
    pub(crate) metrics: Metrics,
}

impl Repository {
    fn path(&self) -> PathBuf {
        self.folder.join(REPOSITORY)
    }
}

/// The organization of a name.
fn organization(name: &str) -> Identity {
    let found = GIT_PATHS.of_resource(names::group::<Organization>(), names::plural::<Organization>());
    Identity { kind: found.expect("organizations are in Git"), namespace: String::new(), name: name.to_owned() }
}

/// Serves old versions of authored objects from the control repository or the log, and adds admission plugins for every
/// write, after the check for an invalid file of the object.
pub(crate) fn attach(
    builder: RegistryBuilder,
    mut admission: Chain,
    cluster: Arc<dyn Cluster>,
    log: Arc<dyn Log>,
    repository: &Repository,
) -> RegistryBuilder {
    let record = ProjectionState::default();
    admission.prepend(Arc::new(guard::InvalidFileGuard::new(record.clone(), cluster)));
    let history = GitHistory::new(repository.path(), |definition| GIT_PATHS.includes(definition), record.clone());
    let history = history.with_log(log).with_remote(repository.remote.clone());
    builder.observe(ProjectionState::PREFIX, Arc::new(record)).history(Arc::new(history)).admission(admission)
}

/// Keeps the control repository in step with the log until the term ends. It makes a missing repository.
///
/// `authorizer` decides the permissions of the user `stoa:git:control`, who writes pushed files. A server for masters alone
/// accepts every pusher and gives an authorizer that allows everything. The log may be compacted up to [`GitStatus::safe`].
///
/// # Errors
///
/// When the data directory cannot be made, or a kind has an invalid schema. Later failures are in the status, and are
/// retried.
pub(crate) async fn start(
    registry: Arc<Registry>,
    log: Arc<dyn Log>,
    repository: &Repository,
    authorizer: Arc<dyn Authorizer>,
    recorder: Recorder,
    term: &Term,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<watch::Receiver<GitStatus>> {
    let options = GitOptions { fence: term.fence.clone(), remote: repository.remote.clone(), ..GitOptions::default() };
    start_with(registry, log, repository, authorizer, recorder, options, term.end.clone(), tasks).await
}

#[expect(clippy::too_many_arguments, reason = "what start takes, and the options that only tests change")]
async fn start_with(
    registry: Arc<Registry>,
    log: Arc<dyn Log>,
    repository: &Repository,
    authorizer: Arc<dyn Authorizer>,
    recorder: Recorder,
    options: GitOptions,
    end: CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<watch::Receiver<GitStatus>> {
    let folder = &repository.folder;
    tokio::fs::create_dir_all(folder).await.with_context(|| format!("{} cannot be made", folder.display()))?;
    let audience = status::Audience { organizations: registry.api(), recorder: recorder.clone() };
    let ingest = ingest::ControlIngest::new(&registry, authorizer, recorder, options.fence.clone())?;
    let has_remote = options.remote.is_some();
    let layout = Arc::new(layout::ControlLayout);
    let projector = GitProjector::new(log, repository.path(), layout, Arc::new(ingest), options);
    let status = projector.status();
    tasks.spawn(status::count(status.clone(), repository.metrics.clone(), has_remote, end.clone()));
    tasks.spawn(status::tell(status.clone(), audience, has_remote, repository.patience, end.clone()));
    tasks.spawn(async move { projector.run(end).await });
    Ok(status)
}
