//! What the projection has to be told, since it knows no kinds: which values belong in Git, how
//! they read there, and how a pushed file becomes a write.

use std::{error::Error, fmt};

use async_trait::async_trait;
use serde_json::Value;
use stoa_machinery::log::{Key, Record};

/// Why a value cannot be written to Git.
pub type LayoutError = Box<dyn Error + Send + Sync>;

/// So many folders in each other may have files of objects in them.
pub(super) const DEEPEST: usize = 8;

/// What people write of an object, and nothing else, in the two forms in which it is kept.
pub trait Document {
    /// The file's content, in a canonical order: two documents that say the same read the same.
    ///
    /// It decides what is a change: a write that reads as before makes no commit. Comments and
    /// the order that people gave the file survive, since only what differs is edited.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::read`].
    fn yaml(&self) -> Result<String, LayoutError>;

    /// What the file says: the history keeps that.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::read`].
    fn json(&self) -> Result<Value, LayoutError>;
}

/// Where the file of a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At this path, such as `organizations/shop/projects/web/stacks/web-dev.yaml`.
    At(String),
    /// The value does not belong in Git. Where it had a file before, that is removed.
    Nowhere,
    /// Only the value could tell, and it does not decode. It keeps the file that it has, as it is, until it decodes or is
    /// deleted.
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

/// What belongs in Git and where.
///
/// All methods are pure functions of their arguments.
pub trait Layout: fmt::Debug + Send + Sync + 'static {
    /// The key of the object that a file at `path` stands for; `None` when it can stand for no object. Such files, as a
    /// README, are people's own.
    fn key(&self, path: &str) -> Option<Key>;

    /// Whether files of objects may be in a folder, or in one that is in it; `""` is the folder that all others are in.
    ///
    /// No other is looked into. Files may be in eight folders in each other, and much deeper nothing is looked at: a push
    /// can have any number of folders in each other.
    fn may_have_files(&self, folder: &str) -> bool;

    /// Where the file of a value is.
    ///
    /// An object that waits for its finalizers (`metadata.deletionTimestamp` is set) is best said to have none: then the
    /// commit has whoever asked for the deletion as its author.
    fn location(&self, key: &Key, value: &[u8]) -> Location;

    /// What people write of a value, which is what its file says.
    ///
    /// # Errors
    ///
    /// Any error leaves the file as it was, and is logged.
    fn read(&self, key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError>;

    /// What people write of the object that the file at `path` stands for, were it written as the file says: with defaults.
    /// `None` of a file that makes no sense.
    fn read_file(&self, path: &str, content: &[u8]) -> Option<Box<dyn Document>>;

    /// Whether a file stays where the log has nothing of it. No other file is left when main is made again what the log says,
    /// such as that of a log that began anew.
    fn outlives_log(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Whether two values of a key surely are in the same place and read the same, as where only a status differs. What
    /// says no is looked at more closely, which takes longer.
    fn reads_alike(&self, key: &Key, old: &[u8], new: &[u8]) -> bool {
        let _ = key;
        old == new
    }

    /// The first line of the commit, such as `create stack shop/web-dev`, given what was authored before and now,
    /// [as JSON](Document::json).
    fn subject(&self, record: &Record, before: Option<&Value>, now: Option<&Value>) -> String;

    /// The user as whom [`Ingest`] writes, such as `stoa:git:control`. Its writes are in Git
    /// already, so they make no commit.
    fn ingest_user(&self) -> &str;
}

/// A commit that somebody pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id, 40 hexadecimal digits.
    pub id: String,
    /// Who it says wrote it. Nobody has verified that.
    pub author: String,
    /// The author's address, as unverified.
    pub email: String,
    /// The first line of its message.
    pub subject: String,
    /// When it says it was written, in seconds since the Unix epoch.
    pub time: i64,
}

impl CommitInfo {
    /// What [`Origin::message`](stoa_machinery::log::Origin::message) has to be on the writes that
    /// apply this commit.
    ///
    /// It ties a record to the commit it came from, so that after a crash a file is not applied
    /// a second time over what others have written since.
    pub fn origin_message(&self) -> String {
        format!("commit {}", self.id)
    }
}

/// A file that was added or changed.
#[derive(Clone, Copy, Debug)]
pub struct PushedFile<'a> {
    /// Where it is.
    pub path: &'a str,
    /// What it says now.
    pub content: &'a [u8],
    /// What it said when it was last applied or written; nothing when it is new.
    pub before: Option<&'a [u8]>,
    /// The commit that changed it last.
    pub commit: &'a CommitInfo,
    /// Whether no push was applied to the end before: then the log is made of what the repository has.
    pub is_first: bool,
}

/// Applies what people pushed, as API writes by [`Layout::ingest_user`], each with
/// [`CommitInfo::origin_message`] as its message.
///
/// After a crash a call may be repeated when it led to no record.
#[async_trait]
pub trait Ingest: fmt::Debug + Send + Sync + 'static {
    /// Applies a file that was added or changed. Applying what is there already is no error.
    async fn apply(&self, file: PushedFile<'_>) -> Result<(), IngestError>;

    /// Deletes the object of a file that was removed. That there is none is no error.
    async fn remove(&self, path: &str, commit: &CommitInfo) -> Result<(), IngestError>;

    /// Hears that a file, or its removal, was refused. The last good object stays, and so does
    /// the file, until either is changed.
    async fn invalid(&self, path: &str, reason: &str, commit: &CommitInfo) -> Result<(), IngestError>;

    /// Hears that a path that was invalid is fine again: the file was corrected, or the object
    /// was changed by the API and the file with it.
    async fn valid_again(&self, path: &str) -> Result<(), IngestError>;
}

/// Why [`Ingest`] did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The file is wrong and stays so until it is changed; the reason is for people.
    #[error("{0}")]
    Invalid(String),
    /// The file is right, and cannot be applied as long as something else is as it is, such as an object that is to go
    /// first; the reason is for people. It is told as an invalid one is if that takes long, keeps nothing else waiting,
    /// and is tried again until it is over.
    #[error("{0}")]
    Waiting(String),
    /// It may work later; the projection tries again.
    #[error("what was pushed cannot be applied now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}
