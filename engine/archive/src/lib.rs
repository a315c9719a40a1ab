//! Archives of others: ZIP and tar, extracted within limits.
//!
//! Start at [`zip::extract`] and [`tar::read`]. Both check each name with [`Names`]: no entry leads out of the folder,
//! occurs twice, or is a file and a folder at the same time.

mod names;
pub mod tar;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod zip;

use std::{io, path::PathBuf};

pub use self::names::Names;

/// The limits of an archive.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    /// The number of files and folders.
    pub entries: usize,
    /// The size of all files, in bytes.
    pub size: u64,
}

impl Default for ArchiveLimits {
    /// The limits of a package with programs.
    fn default() -> Self {
        Self { entries: 10_000, size: 4 << 30 }
    }
}

/// An archive that cannot be extracted.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file cannot be read or written.
    #[error("reading or writing {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is no archive of this format, or a damaged one.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// An entry is not permitted.
    #[error("the archive has the entry {name:?}, which {problem}")]
    Entry {
        /// The name of the entry.
        name: String,
        /// The reason.
        problem: &'static str,
    },
    /// The archive is too large.
    #[error("the archive has more than {} files and folders, or {} bytes", limits.entries, limits.size)]
    TooLarge {
        /// The limits.
        limits: ArchiveLimits,
    },
}
