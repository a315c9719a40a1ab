//! The log that orders every write: one sequence of records, whose number is the
//! resourceVersion, plus the leases that are fenced by it.
//!
//! Start at [`Log`]. The in-memory implementation is in [`memory`]; the contract's tests are in
//! `conformance` (feature of the same name), and every implementation runs them.
//!
//! The log knows keys and bytes. What the bytes mean, and everything HTTP, is elsewhere.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod memory;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

pub use memory::MemoryLog;

/// A position in the log: the number of the record that was written there.
///
/// Versions are greater than 0 and order every write to every key; 0 is "before the first write".
/// They grow with every write, not always by one. On the wire it is the `resourceVersion`, in decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a value lives.
///
/// API objects live at `/registry/<group>/<resource>/<name>` when cluster-scoped and at
/// `/registry/<group>/<resource>/<namespace>/<name>` when namespaced, with `core` for the empty
/// group. Whatever Stoa keeps for itself lives outside `/registry/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(std::sync::Arc<str>);

impl Key {
    /// Wraps a path such as `/registry/config.stoa.dev/stacks/shop/web`.
    pub fn new(path: impl Into<std::sync::Arc<str>>) -> Self {
        Self(path.into())
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What must hold of a key for a write to it to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is there.
    Absent,
    /// The last write to it is this one, and it was not a delete.
    At(Version),
    /// Whatever is or is not there.
    Any,
}

/// What a write does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the value.
    Put(Bytes),
    /// Removes it. Removing what is not there is a [`LogError::Conflict`] unless [`Expect::Any`].
    Delete,
}

/// Who wrote a record and how: what the Git projection and the audit trail say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The Kubernetes user name; a component of Stoa's own is `system:stoa:<component>`.
    pub user: String,
    /// The API verb: `create`, `update`, `patch`, `apply`, `delete`; empty for Stoa's own records.
    pub verb: String,
    /// Free text for people, such as why a controller wrote; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One write to one key.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where.
    pub key: Key,
    /// On which condition.
    pub expect: Expect,
    /// What.
    pub change: Change,
    /// The lease that must still be held, when the write is made under one.
    pub fence: Option<Fence>,
    /// Who and how.
    pub origin: Origin,
}

impl Write {
    /// A write under no lease, by nobody in particular.
    pub fn new(key: Key, expect: Expect, change: Change) -> Self {
        Self { key, expect, change, fence: None, origin: Origin::default() }
    }

    /// The same write by a user, who is named as [`Origin::user`] is.
    #[must_use]
    pub fn by(mut self, user: &str) -> Self {
        user.clone_into(&mut self.origin.user);
        self
    }
}

/// A write that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub version: Version,
    /// Where it was written.
    pub key: Key,
    /// What it did.
    pub change: Change,
    /// Who and how.
    pub origin: Origin,
    /// When, in milliseconds since the Unix epoch, by the clock of the writer.
    pub time_ms: i64,
}

/// The value at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub key: Key,
    /// The version of the write that put it there.
    pub version: Version,
    /// The bytes that were put.
    pub value: Bytes,
}

/// Everything under a prefix at one version, in bytewise key order.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The version it shows: no later write is in it, every earlier one is.
    pub version: Version,
    /// The values.
    pub entries: Vec<Entry>,
}

/// Proof that a lease was held when a write was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The lease's name.
    pub lease: String,
    /// The token of the holding, from [`Lease::token`].
    pub token: u64,
}

/// A lease as granted: nobody else holds its name until it expires or is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name, such as `run/<stack uid>/<workspace>`.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// Grows with every change of holder and is never used twice.
    pub token: u64,
    /// How long it lasts from the last renewal.
    pub ttl: Duration,
}

impl Lease {
    /// The fence to put on writes made under this lease.
    pub fn fence(&self) -> Fence {
        Fence { lease: self.name.clone(), token: self.token }
    }
}

/// Records after some version, oldest first. Ends only with an error.
pub type RecordStream = BoxStream<'static, Result<Record, LogError>>;

/// Orders writes and keeps them.
///
/// A record is durable before [`append`](Log::append) returns. All keys share one sequence of
/// versions. Every method may be called from many tasks at once.
#[async_trait]
pub trait Log: fmt::Debug + Send + Sync + 'static {
    /// Appends one write if its condition holds, and returns its version once it is durable.
    ///
    /// Dropping the future leaves the write either appended whole or not at all.
    ///
    /// # Errors
    ///
    /// [`LogError::Conflict`] when the condition does not hold, with what was found.
    /// [`LogError::Fenced`] when the write's lease is no longer held by its token.
    /// [`LogError::TooLarge`] when the storage takes no write of that size; nothing was written.
    /// [`LogError::Unavailable`] when the storage is out of reach or full; whether the write is
    /// in the log is then unknown, and reading tells.
    async fn append(&self, write: Write) -> Result<Version, LogError>;

    /// The version of the last durable record.
    async fn head(&self) -> Result<Version, LogError>;

    /// The version after which come the last so many records, or all that ever were when there are no more; also where the
    /// history does not reach back as far. Where versions grow by more than one, as when others write, too, it is not that
    /// many versions before the head.
    async fn before_last(&self, records: u64) -> Result<Version, LogError> {
        Ok(Version(self.head().await?.0.saturating_sub(records)))
    }

    /// Reads one key as of now.
    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError>;

    /// Reads everything whose key begins with `prefix`, as of `at`, or as of now.
    ///
    /// # Errors
    ///
    /// [`LogError::Expired`] when `at` is older than the history kept, and
    /// [`LogError::Future`] when it is newer than the head.
    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError>;

    /// The same as of now, unless the values have more than so many bytes in all: `None` then, of which no more was read than
    /// tells that.
    ///
    /// # Errors
    ///
    /// As of [`scan`](Self::scan).
    async fn scan_within(&self, prefix: &str, bytes: usize) -> Result<Option<Snapshot>, LogError> {
        // Of a log in memory the values are only shared.
        let found = self.scan(prefix, None).await?;
        let all: usize = found.entries.iter().map(|entry| entry.value.len()).sum();
        Ok((all <= bytes).then_some(found))
    }

    /// Streams every record after `since`, then waits for new ones.
    ///
    /// # Errors
    ///
    /// [`LogError::Expired`], here or as the stream's last item, when `since` is older than the
    /// history kept; the caller scans again and follows from that version.
    async fn follow(&self, since: Version) -> Result<RecordStream, LogError>;

    /// Drops the history before `before`; reads and follows at older versions then answer
    /// [`LogError::Expired`]. Values still current are kept, whatever their age. A version past
    /// the head counts as the head.
    async fn compact(&self, before: Version) -> Result<(), LogError>;

    /// Up to which version to [`compact`](Self::compact) for the history to take no more than `bytes` of this process's
    /// memory: the values that later ones replaced. `None` when it takes no more already, or is kept elsewhere.
    fn excess(&self, bytes: usize) -> Option<Version> {
        let _ = bytes;
        None
    }

    /// Takes a lease that nobody holds, or that `holder` itself holds already (the token grows
    /// then too, so that an earlier life of the same holder is fenced off).
    ///
    /// # Errors
    ///
    /// [`LogError::Held`] while another holder's lease has not expired.
    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError>;

    /// Extends a lease by its full length from now.
    ///
    /// # Errors
    ///
    /// [`LogError::Fenced`] when it is no longer held by this token.
    async fn renew(&self, lease: &Lease) -> Result<(), LogError>;

    /// Gives a lease up. One that is no longer held by this token counts as given up.
    async fn release(&self, lease: &Lease) -> Result<(), LogError>;
}

/// Puts a first record into a log that is empty, since to clients a list of version 0 is of any version.
///
/// # Errors
///
/// As [`Log::append`] and [`Log::head`].
pub async fn begin(log: &dyn Log) -> Result<(), LogError> {
    if log.head().await? > Version::default() {
        return Ok(());
    }
    let first = Write::new(Key::new("/begun"), Expect::Absent, Change::Put(Bytes::new()));
    match log.append(first).await {
        // A conflict with another replica, which was first.
        Ok(_) | Err(LogError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Why a [`Log`] call failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The key is not as the write expected.
    #[error("{key} is {}, which is not what the write expected", match .found {
        Some(version) => format!("at version {version}"),
        None => "absent".to_owned(),
    })]
    Conflict {
        /// Where.
        key: Key,
        /// The version there, or nothing.
        found: Option<Version>,
    },
    /// The history asked for is gone.
    #[error("version {asked} is older than the oldest kept, {oldest}")]
    Expired {
        /// The version asked for.
        asked: Version,
        /// The oldest version that can be read.
        oldest: Version,
    },
    /// The version asked for has not been written.
    #[error("version {asked} is newer than the head, {head}")]
    Future {
        /// The version asked for.
        asked: Version,
        /// The version of the last record.
        head: Version,
    },
    /// The lease is held by somebody else.
    #[error("lease {lease} is held by {holder}")]
    Held {
        /// The lease's name.
        lease: String,
        /// Who holds it.
        holder: String,
    },
    /// The lease was lost.
    #[error("lease {lease} is no longer held with token {token}")]
    Fenced {
        /// The lease's name.
        lease: String,
        /// The token that the caller had.
        token: u64,
    },
    /// The write is larger than the storage takes.
    #[error("a write of {size} bytes is too large: {limit}")]
    TooLarge {
        /// How large it is, in bytes.
        size: usize,
        /// What the limit is, in the words of the storage.
        limit: String,
    },
    /// What is stored does not read back.
    #[error("the log is corrupt: {0}")]
    Corrupt(String),
    /// The storage failed or is out of reach.
    #[error("the log is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
