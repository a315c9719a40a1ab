//! Working copies: files that are in no commit, as an archive with a call. They are a source for that call alone.
//!
//! Start at [`Sources::open`]. The process that reads a cache makes a commit of the archive ([`super::import`]), as of an
//! artifact. The cache has a name of its own, and is removed with the value.

use std::fs;
use std::io;
use std::path::PathBuf;

use futures_util::FutureExt as _;
use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};
use stoa_artifacts::layers::{Compression, Form};
use stoa_proto::Source;

use super::disk::on_files;
use super::import::{Import, ImportLayer};
use super::job::Question;
use super::sources::{CACHES, Sources, Visit};
use super::{cache_name, tree};
use crate::failure::Failure;

/// The provider of a source that is a working copy.
pub(super) const PROVIDER: &str = "WorkingCopy";

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether a source is a working copy, of which nothing is kept.
pub(crate) fn is_working_copy(source: &Source) -> bool {
    source.provider == PROVIDER
}

/// A working copy, until it is dropped.
#[derive(Debug)]
pub(crate) struct WorkingCopy {
    source: Source,
    /// The digest of the archive, which names its commit.
    revision: String,
    /// The folders that are removed.
    folders: Vec<PathBuf>,
}

impl WorkingCopy {
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn revision(&self) -> &str {
        &self.revision
    }
}

impl Drop for WorkingCopy {
    fn drop(&mut self) {
        let folders = std::mem::take(&mut self.folders);
        let remove = move || {
            for folder in folders {
                match fs::remove_dir_all(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(%error, folder = %folder.display(), "a working copy is removed later");
                    }
                    _ => {}
                }
            }
        };
        // A runtime that ends removes unused caches when it starts again.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(remove);
        }
    }
}

impl Sources {
    /// Makes a source of the archive of a working copy: tar, plain or compressed by gzip.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if it is no such archive, is too large, or has entries that are not permitted.
    pub(crate) async fn open(&self, organization: &str, archive: Bytes) -> Result<WorkingCopy, Failure> {
        let digest: String = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
        let revision = format!("sha256:{digest}");
        let source = Source {
            provider: PROVIDER.to_owned(),
            remote: uuid::Uuid::new_v4().to_string(),
            organization: organization.to_owned(),
            ..Source::default()
        };
        let cache = self.caches.path(CACHES, &cache_name(&source));
        let of_trees = tree::folder(&self.caches, &source, &revision);
        let copy = WorkingCopy { source: source.clone(), revision: revision.clone(), folders: vec![cache, of_trees] };
        let compression = if archive.starts_with(&GZIP) { Compression::Gzip } else { Compression::Plain };
        self.with_cache(&source, move |visit: &mut Visit| {
            let (archive, revision) = (archive.clone(), revision.clone());
            async move {
                visit.require_room().await?;
                let folder = visit.unfinished().await?;
                let path = folder.path().join("archive");
                let layer = ImportLayer::new(&path, &Form::Archive(compression));
                on_files(move || fs::write(&path, &archive).map_err(|error| Failure::internal(&error))).await?;
                let subject = "working copy".to_owned();
                let import = Import { revision, subject, layers: vec![layer], is_image: false };
                visit.ask_process(Question::Import(import)).await?;
                on_files(move || folder.close().map_err(|error| Failure::internal(&error))).await
            }
            .boxed()
        })
        .await?;
        Ok(copy)
    }
}
