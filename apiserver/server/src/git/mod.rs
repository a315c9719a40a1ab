//! The control repository: what people decide, as commits, and what they push there, as writes.
//!
//! Start at [`start`]. [`stoa_storage::git`] does the work and knows no kinds; here is what it has
//! to be told: which object is which file ([`place`]), how it reads there ([`layout`]), and how a
//! pushed file becomes a write ([`mod@file`], [`ingest`]). What is wrong with a pushed file is told in
//! the condition `Synced` and in an Event ([`report`]); until it is mended, [`guard`]
//! keeps others from writing its object. How the projection is doing, and that its remote is away, is told by [`status`].

mod fields;
mod file;
mod guard;
mod ingest;
mod layout;
mod lines;
mod place;
mod report;
mod status;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use stoa_controller::{events::Recorder, leader::Term};
use stoa_kinds::cluster::Cluster;
use stoa_machinery::{Registry, admission::Chain, auth::Authorizer, log::Log, registry::RegistryBuilder};
use stoa_storage::git::{GitHistory, GitOptions, GitProjector, GitRecord, GitStatus, RemoteOptions};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) use self::file::{Complaint, complaints, explain};
pub(crate) use self::status::Metrics;

/// The control repository in its folder.
const REPOSITORY: &str = "control.git";

/// Where the control repository is.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    /// The folder that it is in; with a remote, its copy.
    pub(crate) folder: PathBuf,
    /// The remote that has main, if there is one.
    pub(crate) remote: Option<RemoteOptions>,
    /// How long that may be away before organizations are told.
    pub(crate) patience: Duration,
    /// What is counted of it.
    pub(crate) metrics: Metrics,
}

impl Repository {
    fn path(&self) -> PathBuf {
        self.folder.join(REPOSITORY)
    }
}

/// Serves old versions of what people write from the control repository or the log, and asks these plugins about every
/// write, after it was looked at whether the file of what is written is invalid.
pub(crate) fn attach(
    builder: RegistryBuilder,
    mut admission: Chain,
    cluster: Arc<dyn Cluster>,
    log: Arc<dyn Log>,
    repository: &Repository,
) -> RegistryBuilder {
    let record = GitRecord::default();
    admission.prepend(Arc::new(guard::InvalidFileGuard::new(record.clone(), cluster)));
    let history = GitHistory::new(repository.path(), place::is_authored, record.clone());
    let history = history.with_log(log).with_remote(repository.remote.clone());
    builder.observe(GitRecord::PREFIX, Arc::new(record)).history(Arc::new(history)).admission(admission)
}

/// Keeps the control repository in step with the log until the term ends; makes it when it is
/// missing.
///
/// `authorizer` decides what user `stoa:git:control`, as whom pushed files are written, may do. A
/// server to which only masters have access takes the permission to push for all of it, and gives
/// an authorizer that allows everything. The log may be compacted up to [`GitStatus::safe`].
///
/// # Errors
///
/// When the data directory cannot be made, or a kind has a schema that makes no sense. Whatever
/// goes wrong later is in the status, and is tried again.
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
