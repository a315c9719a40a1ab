//! Reads what was authored at a version long ago, for whoever serves it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use git2::{Oid, Repository};
use parking_lot::Mutex;
use stoa_machinery::{
    definition::ResourceDefinition,
    log::{Entry, Log, Version},
    registry::{History, HistoryError, Past},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    GitRecord,
    history::{self, Range},
    progress::{Point, Progress},
    remote::{Remote, RemoteOptions},
    repack,
    repository::{self, ControlRepository},
};

/// The history of what was authored, read from the control repository by any replica that sees its folder, or from a copy
/// of a remote.
///
/// It has what people write of an object: names, labels, annotations and spec, with the version of the last change. What is
/// not in Git yet is read from the log, where objects are whole.
#[derive(Clone)]
pub struct GitHistory {
    path: PathBuf,
    keeps: fn(&ResourceDefinition) -> bool,
    record: GitRecord,
    log: Option<Arc<dyn Log>>,
    remote: Option<RemoteOptions>,
    repack: Duration,
    bringing: Arc<Bringing>,
}

/// The readers that wait for what the copy lacks share what one of them brings.
#[derive(Default)]
struct Bringing {
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// Each time brings packs.
    repack: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl fmt::Debug for GitHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHistory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl GitHistory {
    /// Reads the repository at `path` as far as `record` says that it reaches; `keeps` says of which resources it has the
    /// objects.
    pub fn new(path: PathBuf, keeps: fn(&ResourceDefinition) -> bool, record: GitRecord) -> Self {
        let repack = Duration::from_secs(10);
        Self { path, keeps, record, log: None, remote: None, repack, bringing: Arc::default() }
    }

    /// What is not in the repository is read from this log, as long as that has it, before anybody else is asked.
    #[must_use]
    pub fn with_log(self, log: Arc<dyn Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    /// The repository is a copy, which is brought up to date when what is asked for is not in it.
    #[must_use]
    pub fn with_remote(self, remote: Option<RemoteOptions>) -> Self {
        Self { remote, ..self }
    }

    /// How often it is looked whether packs of the copy have to be merged, after some were brought; every ten seconds if
    /// this is not called.
    #[must_use]
    pub fn repacked_every(self, repack: Duration) -> Self {
        Self { repack, ..self }
    }

    /// Reads what is here.
    async fn look(&self, past: &Arc<Past>) -> Result<Option<Vec<Entry>>, HistoryError> {
        let (path, progress, past) = (self.path.clone(), self.record.progress(), Arc::clone(past));
        off_thread(move || read(&path, &progress, &past)).await
    }

    /// Reads what the log has. It is not compacted past what is in Git, so that while no commits can be made or pushed
    /// everything is here or there, unless somebody else compacts it.
    async fn look_in_log(&self, past: &Past) -> Option<Vec<Entry>> {
        let mut entries = match self.log.as_ref()?.scan(&past.prefix, Some(past.version)).await {
            Ok(snapshot) => snapshot.entries,
            Err(error) => {
                tracing::debug!(%error, version = %past.version, "the log does not have what is not in Git yet");
                return None;
            }
        };
        entries.retain(|entry| past.after.as_ref().is_none_or(|after| entry.key > *after));
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Some(entries)
    }

    /// Brings what the remote has and is not here.
    async fn bring(&self, remote: &RemoteOptions, past: &Arc<Past>) -> Result<Option<Vec<Entry>>, HistoryError> {
        let alone = Arc::clone(&self.bringing.one_at_a_time).lock_owned().await;
        // Whoever was alone before may have brought it.
        if let Ok(found) = self.look(past).await {
            return Ok(found);
        }
        let (path, remote, progress) = (self.path.clone(), remote.clone(), self.record.progress());
        off_thread(move || {
            // To the end, even if nobody waits any more.
            let _alone = alone;
            bring(&path, &remote, &progress)
        })
        .await?;
        self.make_few();
        self.look(past).await
    }

    /// Merges what was brought, unless that is under way.
    fn make_few(&self) {
        let mut repack = self.bringing.repack.lock();
        if repack.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let task = tokio::spawn(repack::make_few(self.path.clone(), self.repack));
            *repack = Some(AbortOnDropHandle::new(task));
        }
    }
}

fn failed(error: git2::Error) -> HistoryError {
    HistoryError::Failed(Box::new(error))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HistoryError> + Send + 'static,
) -> Result<T, HistoryError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| HistoryError::Failed(Box::new(error)))?
}

/// The version that the copy here shows everything up to; `None` when that is not known.
fn reach(repository: &Repository, progress: &Progress) -> Result<Option<Version>, git2::Error> {
    if progress.id.is_empty() {
        return Ok(None);
    }
    let Some((index, shown)) = history::covered(repository, &progress.id)? else { return Ok(None) };
    // Where it is recorded as about to be shown it may be shown or not.
    let shows = |point: &&Point| {
        let Some(end) = point.history.as_deref().and_then(|end| Oid::from_str(end).ok()) else { return false };
        end == shown || repository.graph_descendant_of(shown, end).unwrap_or(false)
    };
    let points = progress.next.iter().chain([&progress.at]);
    // All up to its newest is there, wherever the record has got to since.
    let newest = history::newest_indexed(repository, index)?;
    Ok(points.filter(shows).map(|point| point.version).chain(newest).max())
}

fn read(path: &Path, progress: &Progress, past: &Past) -> Result<Option<Vec<Entry>>, HistoryError> {
    let repository = repository::open(path).map_err(failed)?;
    let reach = reach(&repository, progress).map_err(failed)?;
    if reach.is_none_or(|reach| past.version > reach) {
        return Err(HistoryError::Behind { upto: reach.unwrap_or_default() });
    }
    let range = Range { prefix: &past.prefix, after: past.after.as_ref().map(|key| key.as_str()), max: past.wanted };
    history::read(&repository, &progress.id, past.version, range).map_err(failed)
}

/// Brings the history that the remote has here. Where the projection runs in this very process, it does that itself.
fn bring(path: &Path, remote: &RemoteOptions, progress: &Progress) -> Result<(), HistoryError> {
    if progress.id.is_empty() {
        return Ok(());
    }
    let Ok(copy) = ControlRepository::open(path, true) else { return Ok(()) };
    let copy = copy.of_log(&progress.id);
    let repository = copy.repository().map_err(failed)?;
    let remote = Remote::new(remote.clone(), CancellationToken::new());
    let heads = remote.fetch(&repository, false, Some(&Remote::history_of(&progress.id)));
    let heads = heads.map_err(|error| HistoryError::Failed(Box::new(error)))?;
    heads.history.map_or(Ok(()), |end| copy.set_history(end, None)).map_err(failed)
}

#[async_trait]
impl History for GitHistory {
    fn keeps(&self, definition: &ResourceDefinition) -> bool {
        (self.keeps)(definition)
    }

    async fn read(&self, past: Past) -> Result<Option<Vec<Entry>>, HistoryError> {
        let past = Arc::new(past);
        let found = self.look(&past).await;
        if let Ok(Some(_)) = found {
            return found;
        }
        if let Some(entries) = self.look_in_log(&past).await {
            return Ok(Some(entries));
        }
        match &self.remote {
            Some(remote) if found.is_err() => self.bring(remote, &past).await,
            _ => found,
        }
    }
}
