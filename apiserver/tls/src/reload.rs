//! Files that are replaced while the server runs.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{authorities::CaError, serving::CertificateError};

/// Why a file cannot be used; what it said before stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It holds no usable CA bundle.
    #[error("{} is no CA bundle", path.display())]
    Ca {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: CaError,
    },
    /// It holds no usable certificate, or the key beside it is another's.
    #[error("{} cannot be served", path.display())]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        source: CertificateError,
    },
    /// It does not do for what it is there for.
    #[error("{} cannot be used", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Something that is kept in files.
pub trait Reload: fmt::Debug + Send + Sync + 'static {
    /// Reads the files again and says whether they say something new.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; nothing has changed then. That is usual for a moment while a certificate and its key are
    /// being replaced one after the other.
    fn reload(&self) -> Result<bool, ReloadError>;
}

/// Reads everything again every so often until `stop`.
///
/// Files are looked into rather than watched: links that are swapped, as Kubernetes mounts them, and every file
/// system work the same, and a few small reads cost nothing.
pub async fn keep_reloading(kept: Vec<Arc<dyn Reload>>, every: Duration, stop: CancellationToken) {
    if kept.is_empty() {
        return;
    }
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let kept = kept.clone();
        let round = tokio::task::spawn_blocking(move || {
            for files in &kept {
                match files.reload() {
                    Ok(true) => tracing::info!(?files, "reloaded"),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "keeping what was loaded before")
                    }
                }
            }
        });
        if let Err(error) = round.await {
            tracing::error!(%error, "reloading files failed");
        }
    }
}

/// What a file says.
///
/// # Errors
///
/// [`ReloadError::Read`].
pub fn read(path: &Path) -> Result<String, ReloadError> {
    fs::read_to_string(path).map_err(|source| ReloadError::Read { path: path.to_owned(), source })
}
