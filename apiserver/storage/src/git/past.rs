//! Reads what was authored at a version long ago, for whoever serves it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use stoa_machinery::{
    definition::ResourceDefinition,
    log::Entry,
    registry::{History, HistoryError, Past},
};

use super::{
    GitRecord,
    history::{self, HISTORY, Range},
    progress::Progress,
    repository,
};

/// The history of what was authored, read from the control repository by any replica that sees its folder.
///
/// It has what people write of an object: names, labels, annotations and spec, with the version of the last change.
#[derive(Clone)]
pub struct GitHistory {
    path: PathBuf,
    keeps: fn(&ResourceDefinition) -> bool,
    record: GitRecord,
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
        Self { path, keeps, record }
    }
}

fn read(path: &Path, progress: &Progress, past: &Past) -> Result<Option<Vec<Entry>>, HistoryError> {
    let failed = |error: git2::Error| HistoryError::Failed(Box::new(error));
    let repository = repository::open(path).map_err(failed)?;
    let shown = repository.refname_to_id(HISTORY).map_err(failed)?.to_string();
    // What is recorded as about to be shown may be shown or not.
    let next = progress.next.as_ref().filter(|next| next.history.as_ref() == Some(&shown));
    let upto = next.unwrap_or(&progress.at).version;
    if past.version > upto {
        return Err(HistoryError::Behind { upto });
    }
    let range = Range { prefix: &past.prefix, after: past.after.as_ref().map(|key| key.as_str()), max: past.max };
    history::read(&repository, past.version, range).map_err(failed)
}

#[async_trait]
impl History for GitHistory {
    fn keeps(&self, definition: &ResourceDefinition) -> bool {
        (self.keeps)(definition)
    }

    async fn read(&self, past: Past) -> Result<Option<Vec<Entry>>, HistoryError> {
        let (path, progress) = (self.path.clone(), self.record.progress());
        let work = tokio::task::spawn_blocking(move || read(&path, &progress, &past));
        work.await.map_err(|error| HistoryError::Failed(Box::new(error)))?
    }
}
