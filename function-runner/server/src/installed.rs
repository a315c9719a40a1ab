//! Programs on this machine that the runner executes by their digests.
//!
//! A digest is known while the file is the same, so that a large program is not read for each call.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::failure::Failure;

/// A program. Another file at its path is another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) path: PathBuf,
    /// The SHA-256 of the file.
    pub(crate) digest: [u8; 32],
    file: (u64, u64, u64, i64, i64),
}

/// The program that was read last.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Option<Installed>>);

impl Known {
    /// The program at a path now.
    pub(crate) async fn find(&self, path: PathBuf) -> Result<std::io::Result<Installed>, Failure> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let before = known.clone();
        let read = tokio::task::spawn_blocking(move || read(&path, before)).await;
        let found = read.map_err(|err| Failure::internal(&err))?;
        if let Some(program) = found.as_ref().ok().filter(|program| known.as_ref() != Some(program)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(program.clone());
        }
        Ok(found)
    }
}

fn read(path: &Path, known: Option<Installed>) -> std::io::Result<Installed> {
    let metadata = fs::metadata(path)?;
    let file = (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    if let Some(known) = known.filter(|known| known.path == path && known.file == file) {
        return Ok(known);
    }
    let digest = Sha256::digest(fs::read(path)?).into();
    Ok(Installed { path: path.to_owned(), digest, file })
}

/// The program of a name beside this binary.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(name))
}
