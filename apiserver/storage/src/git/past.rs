//! Reads what was authored at a version long ago, for whoever serves it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use git2::{Oid, Repository};
use stoa_machinery::{
    definition::ResourceDefinition,
    log::{Entry, Version},
    registry::{History, HistoryError, Past},
};
use tokio_util::sync::CancellationToken;

use super::{
    GitRecord,
    history::{self, Range},
    progress::{Point, Progress},
    remote::{Remote, RemoteOptions},
    repository::{self, ControlRepository},
};

/// The history of what was authored, read from the control repository by any replica that sees its folder, or from a copy
/// of a remote.
///
/// It has what people write of an object: names, labels, annotations and spec, with the version of the last change.
#[derive(Clone)]
pub struct GitHistory {
    path: PathBuf,
    keeps: fn(&ResourceDefinition) -> bool,
    record: GitRecord,
    remote: Option<RemoteOptions>,
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
        Self { path, keeps, record, remote: None }
    }

    /// The repository is a copy, which is brought up to date when what is asked for is not in it.
    #[must_use]
    pub fn with_remote(self, remote: Option<RemoteOptions>) -> Self {
        Self { remote, ..self }
    }
}

fn failed(error: git2::Error) -> HistoryError {
    HistoryError::Failed(Box::new(error))
}

/// The version that the copy here shows everything up to; `None` when that is not known.
fn reach(repository: &Repository, progress: &Progress) -> Result<Option<Version>, git2::Error> {
    let Some((_, shown)) = history::covered(repository)? else { return Ok(None) };
    // Where it is recorded as about to be shown it may be shown or not.
    let shows = |point: &&Point| {
        let Some(end) = point.history.as_deref().and_then(|end| Oid::from_str(end).ok()) else { return false };
        end == shown || repository.graph_descendant_of(shown, end).unwrap_or(false)
    };
    let points = progress.next.iter().chain([&progress.at]);
    Ok(points.filter(shows).map(|point| point.version).max())
}

fn read(
    path: &Path,
    remote: Option<&RemoteOptions>,
    progress: &Progress,
    past: &Past,
) -> Result<Option<Vec<Entry>>, HistoryError> {
    let here = || -> Result<_, git2::Error> {
        let repository = repository::open(path)?;
        let reach = reach(&repository, progress)?;
        Ok((repository, reach))
    };
    let has = |found: &Result<(Repository, Option<Version>), git2::Error>| {
        found.as_ref().is_ok_and(|(_, reach)| reach.is_some_and(|reach| past.version <= reach))
    };
    let mut found = here();
    if let Some(remote) = remote.filter(|_| !has(&found)) {
        bring(path, remote, progress)?;
        found = here();
    }
    let (repository, reach) = found.map_err(failed)?;
    if reach.is_none_or(|reach| past.version > reach) {
        return Err(HistoryError::Behind { upto: reach.unwrap_or_default() });
    }
    let range = Range { prefix: &past.prefix, after: past.after.as_ref().map(|key| key.as_str()), max: past.max };
    history::read(&repository, past.version, range).map_err(failed)
}

/// Brings the history that the remote has here. Where the projection runs in this very process, it does that itself.
fn bring(path: &Path, remote: &RemoteOptions, progress: &Progress) -> Result<(), HistoryError> {
    let Some(id) = &progress.id else { return Ok(()) };
    let Ok(copy) = ControlRepository::open(path, true) else { return Ok(()) };
    let repository = copy.repository().map_err(failed)?;
    let remote = Remote::new(remote.clone(), CancellationToken::new());
    let heads = remote.fetch(&repository, false, Some(&Remote::history_of(id)));
    let heads = heads.map_err(|error| HistoryError::Failed(Box::new(error)))?;
    heads.history.map_or(Ok(()), |end| copy.set_history(end, None)).map_err(failed)
}

#[async_trait]
impl History for GitHistory {
    fn keeps(&self, definition: &ResourceDefinition) -> bool {
        (self.keeps)(definition)
    }

    async fn read(&self, past: Past) -> Result<Option<Vec<Entry>>, HistoryError> {
        let (path, remote, progress) = (self.path.clone(), self.remote.clone(), self.record.progress());
        let work = tokio::task::spawn_blocking(move || read(&path, remote.as_ref(), &progress, &past));
        work.await.map_err(|error| HistoryError::Failed(Box::new(error)))?
    }
}
