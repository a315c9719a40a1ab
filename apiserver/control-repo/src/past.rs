//! Reads the authored objects of an old version, for any replica.
//!
//! Start at [`GitHistory`]. Elsewhere: `history` is the format in Git.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use git2::{Oid, Repository};
use stoa_machinery::{
    definition::ResourceDefinition,
    log::{Entry, Log, Version},
    registry::{History, HistoryError, Past},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    ProjectionState,
    history::{self, Range},
    progress::{Point, Progress},
    remote::{Remote, RemoteOptions},
    repack,
    repository::{self, ControlRepository},
};

/// The history of the authored objects. Any replica reads it that has access to the folder of the control repository, or to
/// a copy of a remote.
///
/// It has the authored fields of an object: names, labels, annotations and spec, with the version of the last change.
/// Versions that are not in Git yet are read from the log, which has whole objects.
#[derive(Clone, Debug)]
pub struct GitHistory {
    path: PathBuf,
    keeps: fn(&ResourceDefinition) -> bool,
    record: ProjectionState,
    log: Option<Arc<dyn Log>>,
    remote: Option<RemoteOptions>,
    repack: Duration,
    bringing: Arc<Bringing>,
}

/// Readers that wait for a fetch share one fetch.
#[derive(Debug, Default)]
struct Bringing {
    one_at_a_time: Arc<tokio::sync::Mutex<()>>,
    /// Merges packs from the first fetch on: each adds some.
    repack: OnceLock<AbortOnDropHandle<()>>,
}

impl GitHistory {
    /// Reads the repository at `path` up to the progress in `record`; `keeps` selects the resources in Git.
    pub fn new(path: PathBuf, keeps: fn(&ResourceDefinition) -> bool, record: ProjectionState) -> Self {
        Self { path, keeps, record, log: None, remote: None, repack: Duration::from_secs(10), bringing: Arc::default() }
    }

    /// Reads versions that are not in the repository from this log, before it asks the remote.
    #[must_use]
    pub fn with_log(self, log: Arc<dyn Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    /// The repository is a copy of a remote, which a read of a missing version updates.
    #[must_use]
    pub fn with_remote(self, remote: Option<RemoteOptions>) -> Self {
        Self { remote, ..self }
    }

    /// The interval at which the number of packs is checked after a fetch; ten seconds unless set.
    #[must_use]
    pub fn repacked_every(self, repack: Duration) -> Self {
        Self { repack, ..self }
    }

    /// Reads from the repository.
    async fn look(&self, past: &Arc<Past>) -> Result<Option<Vec<Entry>>, HistoryError> {
        let (path, progress, past) = (self.path.clone(), self.record.progress(), Arc::clone(past));
        off_thread(move || read(&path, &progress, &past)).await
    }

    /// Reads from the log. It is not compacted past the newest version in Git, unless another process compacts it. So while
    /// no commits can be made or pushed, each version is in one of the two.
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

    /// Fetches from the remote.
    async fn bring(&self, remote: &RemoteOptions, past: &Arc<Past>) -> Result<Option<Vec<Entry>>, HistoryError> {
        let alone = Arc::clone(&self.bringing.one_at_a_time).lock_owned().await;
        // An earlier reader may have fetched it.
        if let Ok(found) = self.look(past).await {
            return Ok(found);
        }
        let (path, remote, progress) = (self.path.clone(), remote.clone(), self.record.progress());
        off_thread(move || {
            // It runs to the end, also after the reader left.
            let _alone = alone;
            bring(&path, &remote, &progress)
        })
        .await?;
        let keep_few = || AbortOnDropHandle::new(tokio::spawn(repack::keep_few(self.path.clone(), self.repack)));
        self.bringing.repack.get_or_init(keep_few);
        self.look(past).await
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

/// The version up to which the repository has everything; `None` when that is unknown.
fn reach(repository: &Repository, progress: &Progress) -> Result<Option<Version>, git2::Error> {
    if progress.id.is_empty() {
        return Ok(None);
    }
    let Some((index, shown)) = history::covered(repository, &progress.id)? else { return Ok(None) };
    // A version that is recorded as next may be visible or not.
    let shows = |point: &&Point| {
        let Some(end) = point.history.as_deref().and_then(|end| Oid::from_str(end).ok()) else { return false };
        end == shown || repository.graph_descendant_of(shown, end).unwrap_or(false)
    };
    let points = progress.next.iter().chain([&progress.at]);
    // Everything up to the newest version of the index is there, wherever the record is by now.
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

/// Fetches the history of the remote. A projection in this very process does that itself.
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
