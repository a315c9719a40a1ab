//! The interface to the server: [`Layout`] says which values are files and how they read, and [`Ingest`] writes pushed files.
//!
//! Elsewhere: [`crate::KindLayout`] is a layout for a list of kinds.

use std::{error::Error, fmt};

use async_trait::async_trait;
use serde_json::Value;
use stoa_git_path::{Document, LayoutError};
use stoa_machinery::log::{Key, Record};

/// The most nested folders that may have files of objects.
pub(super) const DEEPEST: usize = 8;

/// The path of the file of a value, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At this path, such as `organizations/shop/projects/web/stacks/web-dev.yaml`.
    At(String),
    /// The value does not belong in Git. An earlier file is removed.
    Nowhere,
    /// The path depends on the value, which does not decode. Its file stays unchanged until it decodes or is deleted.
    Unknown,
}

impl Location {
    /// The path, if it is known.
    pub fn path(self) -> Option<String> {
        match self {
            Self::At(path) => Some(path),
            Self::Nowhere | Self::Unknown => None,
        }
    }
}

/// Which values are files, and how they read.
///
/// All methods are pure functions of their arguments.
pub trait Layout: fmt::Debug + Send + Sync + 'static {
    /// The key of the object whose file is at `path`; `None` where no object can have its file. Such files, as a README,
    /// belong to people.
    fn key(&self, path: &str) -> Option<Key>;

    /// Whether files of objects may be in a folder or below it; `""` is the root.
    ///
    /// A walk enters no other folder. Files may be in eight nested folders, and a walk goes hardly deeper: a push can nest any
    /// number of folders.
    fn may_have_files(&self, folder: &str) -> bool;

    /// The path of the file of a value.
    ///
    /// An object that waits for its finalizers (`metadata.deletionTimestamp` is set) should have no file: then the user who
    /// requested the deletion is the author of the commit.
    fn location(&self, key: &Key, value: &[u8]) -> Location;

    /// The authored fields of a value.
    ///
    /// # Errors
    ///
    /// Any error leaves the file as it was, and is logged.
    fn read(&self, key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError>;

    /// The authored fields, with defaults, of an object with the content of the file at `path`. `None` where the content does
    /// not decode.
    fn read_file(&self, path: &str, content: &[u8]) -> Option<Box<dyn Document>>;

    /// Whether a file stays when the log has no object of it. A reconciliation of main with the log, as after the log was
    /// replaced, removes all other files without objects.
    fn outlives_log(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Whether two values of a key surely have the same path and the same text, as when only the status differs. `false`
    /// leads to a full comparison, which takes longer.
    fn reads_alike(&self, key: &Key, old: &[u8], new: &[u8]) -> bool {
        let _ = key;
        old == new
    }

    /// The first line of the commit, such as `create stack shop/web-dev`, given the authored fields before and now
    /// [as JSON](Document::json).
    fn subject(&self, record: &Record, before: Option<&Value>, now: Option<&Value>) -> String;

    /// The user of the writes of [`Ingest`], such as `stoa:git:control`. Its writes are in Git already, so they make no commit.
    fn ingest_user(&self) -> &str;
}

/// A commit that somebody pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id, 40 hexadecimal digits.
    pub id: String,
    /// The author by the commit, unverified.
    pub author: String,
    /// The author's address, unverified.
    pub email: String,
    /// The first line of its message.
    pub subject: String,
    /// The time by the commit, in seconds since the Unix epoch.
    pub time: i64,
}

impl CommitInfo {
    /// The [`Origin::message`](stoa_machinery::log::Origin::message) of the writes that apply this commit.
    ///
    /// It ties a record to its commit. So after a crash no file is applied again over later writes of others.
    pub fn origin_message(&self) -> String {
        format!("commit {}", self.id)
    }
}

/// A file that was added or changed.
#[derive(Clone, Copy, Debug)]
pub struct PushedFile<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its content.
    pub content: &'a [u8],
    /// Its content when it was last applied or written; `None` when it is new.
    pub before: Option<&'a [u8]>,
    /// The commit that changed it last.
    pub commit: &'a CommitInfo,
    /// Whether no push was applied completely before: then the log is restored from the repository.
    pub is_first: bool,
}

/// Applies pushed files as API writes by [`Layout::ingest_user`], each with [`CommitInfo::origin_message`] as its message.
///
/// A call may be repeated after a crash, unless it led to a record.
#[async_trait]
pub trait Ingest: fmt::Debug + Send + Sync + 'static {
    /// Applies a file that was added or changed. An unchanged object is no error.
    async fn apply(&self, file: PushedFile<'_>) -> Result<(), IngestError>;

    /// Deletes the object of a file that was removed. A missing object is no error.
    async fn remove(&self, path: &str, commit: &CommitInfo) -> Result<(), IngestError>;

    /// Reports that a file, or its removal, was rejected. The last valid object and the file stay until either changes.
    async fn invalid(&self, path: &str, reason: &str, commit: &CommitInfo) -> Result<(), IngestError>;

    /// Reports that a path that was invalid is valid again: the file was corrected, or a write through the API changed the
    /// object and the file with it.
    async fn valid_again(&self, path: &str) -> Result<(), IngestError>;
}

/// Why [`Ingest`] did not apply a file.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The file is invalid until it changes; the reason is for people.
    #[error("{0}")]
    Invalid(String),
    /// The file is valid, and blocked by something else, such as an object that has to be deleted first; the reason is for
    /// people. It is reported like an invalid file if it stays blocked, blocks no other file, and is retried.
    #[error("{0}")]
    Waiting(String),
    /// A temporary failure; the projection retries.
    #[error("what was pushed cannot be applied now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}
