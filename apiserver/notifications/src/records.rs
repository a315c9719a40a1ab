//! Records of a sink in the log, at `/stoa/notifications/<uid of the sink>/`: its position (`cursor`), and its
//! dead letters (`dead/<number>`).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key, Version,
    log::{Change, Expect, Fence, Log, LogError, Origin, Write},
};

use super::events::Event;

const ROOT: &str = "/stoa/notifications/";
/// The shape of these records.
const SCHEMA: u32 = 1;

/// How far a sink was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cursor {
    schema_version: u32,
    /// All events of records up to here were delivered or given up.
    pub(super) position: Version,
    /// When that was written.
    #[serde(default)]
    pub(super) time: Timestamp,
    /// Those after it that were, too, by the version of the record and their number in it.
    #[serde(default)]
    pub(super) settled: BTreeSet<(Version, usize)>,
    /// How many dead letters were dropped for newer ones.
    #[serde(default)]
    pub(super) dropped: i64,
    /// How many times history was gone.
    #[serde(default)]
    pub(super) gaps: i64,
    pub(super) last_gap: Option<Gap>,
}

/// Where history was gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gap {
    pub(super) from: Version,
    pub(super) to: Version,
    pub(super) time: Timestamp,
}

impl Cursor {
    /// Nothing was told up to a version, which was written at some time.
    pub(super) fn at(position: Version, time: Timestamp) -> Self {
        Self { schema_version: SCHEMA, position, time, ..Self::default() }
    }
}

/// An event that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetter {
    schema_version: u32,
    /// Why, as the last try had it.
    pub(crate) reason: String,
    /// How many tries there were, in the term of the server that gave it up.
    pub(crate) attempts: u32,
    /// When it was given up.
    pub(crate) time: Timestamp,
    /// When somebody asked for it to be delivered again, until it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redeliver: Option<Timestamp>,
    pub(super) lane: String,
    pub(crate) event: Event,
}

impl DeadLetter {
    pub(super) fn new(event: Event, lane: String, reason: String, attempts: u32, time: Timestamp) -> Self {
        Self { schema_version: SCHEMA, reason, attempts, time, redeliver: None, lane, event }
    }
}

/// Why records cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("the log cannot be used")]
    Log(#[from] LogError),
    /// A later version wrote it, or it is damaged; it is left as it is.
    #[error("the record {0} does not decode, or a later version wrote it")]
    Unreadable(Key),
}

/// The records of one sink.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    log: Arc<dyn Log>,
    uid: String,
    fence: Option<Fence>,
}

impl Records {
    /// Writes are made under the fence, if there is one.
    pub(crate) fn new(log: Arc<dyn Log>, uid: &str, fence: Option<Fence>) -> Self {
        Self { log, uid: uid.to_owned(), fence }
    }

    fn cursor_key(&self) -> Key {
        Key::new(format!("{ROOT}{}/cursor", self.uid))
    }

    /// What the keys of dead letters begin with.
    pub(super) fn dead_prefix(&self) -> String {
        format!("{ROOT}{}/dead/", self.uid)
    }

    /// The key of a dead letter; later ones have greater numbers.
    pub(super) fn dead_key(&self, number: u64) -> Key {
        Key::new(format!("{}{number:020}", self.dead_prefix()))
    }

    /// The number of a dead letter by its key.
    pub(super) fn number(&self, key: &Key) -> Option<u64> {
        key.as_str().strip_prefix(&self.dead_prefix())?.parse().ok()
    }

    pub(super) async fn cursor(&self) -> Result<Option<Cursor>, RecordError> {
        let key = self.cursor_key();
        let Some(entry) = self.log.read(&key).await? else { return Ok(None) };
        let cursor: Option<Cursor> = serde_json::from_slice(&entry.value).ok();
        cursor.filter(|cursor| cursor.schema_version <= SCHEMA).ok_or(RecordError::Unreadable(key)).map(Some)
    }

    pub(super) async fn write_cursor(&self, cursor: &Cursor) -> Result<(), LogError> {
        self.put(self.cursor_key(), Expect::Any, cursor).await
    }

    /// All dead letters with the versions of their records, oldest first.
    pub(crate) async fn dead(&self) -> Result<Vec<(Key, Version, DeadLetter)>, RecordError> {
        let entries = self.log.scan(&self.dead_prefix(), None).await?.entries;
        entries
            .into_iter()
            .map(|entry| Ok((entry.key.clone(), entry.version, decode(&entry.key, &entry.value)?)))
            .collect()
    }

    /// A dead letter as it is now.
    pub(super) async fn letter(&self, key: &Key) -> Result<Option<DeadLetter>, RecordError> {
        let entry = self.log.read(key).await?;
        entry.map(|entry| decode(key, &entry.value)).transpose()
    }

    pub(super) async fn write_dead(&self, key: Key, letter: &DeadLetter) -> Result<(), LogError> {
        self.put(key, Expect::Any, letter).await
    }

    /// Removes a dead letter; one that is gone already is no error.
    pub(super) async fn remove_dead(&self, key: Key) -> Result<(), LogError> {
        self.append(key, Expect::Any, Change::Delete).await
    }

    /// Asks for a dead letter to be delivered again, if it still is as it was read. Whoever delivers follows the log.
    pub(crate) async fn ask(
        &self,
        key: Key,
        version: Version,
        mut letter: DeadLetter,
        now: Timestamp,
    ) -> Result<bool, LogError> {
        letter.redeliver = Some(now);
        if_unchanged(self.put(key, Expect::At(version), &letter).await)
    }

    /// Drops a dead letter for good, if it still is as it was read. Whoever delivers follows the log.
    pub(crate) async fn drop_dead(&self, key: Key, version: Version) -> Result<bool, LogError> {
        if_unchanged(self.append(key, Expect::At(version), Change::Delete).await)
    }

    /// How many dead letters were dropped for newer ones.
    pub(crate) async fn dropped(&self) -> Result<i64, RecordError> {
        Ok(self.cursor().await?.map_or(0, |cursor| cursor.dropped))
    }

    async fn put(&self, key: Key, expect: Expect, value: &impl Serialize) -> Result<(), LogError> {
        let value = Bytes::from(serde_json::to_vec(value).expect("records serialize"));
        self.append(key, expect, Change::Put(value)).await
    }

    async fn append(&self, key: Key, expect: Expect, change: Change) -> Result<(), LogError> {
        let origin = Origin { user: "system:stoa:notifications".to_owned(), ..Origin::default() };
        self.log.append(Write { key, expect, change, fence: self.fence.clone(), origin }).await.map(drop)
    }
}

/// False where the record was written meanwhile.
fn if_unchanged(written: Result<(), LogError>) -> Result<bool, LogError> {
    match written {
        Ok(()) => Ok(true),
        Err(LogError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a dead letter.
fn decode(key: &Key, value: &[u8]) -> Result<DeadLetter, RecordError> {
    let letter: Option<DeadLetter> = serde_json::from_slice(value).ok();
    letter.filter(|letter| letter.schema_version <= SCHEMA).ok_or_else(|| RecordError::Unreadable(key.clone()))
}

/// Removes all records of sinks that are not among those with these uids.
pub(super) async fn retain(log: &dyn Log, uids: &BTreeSet<String>, fence: Option<&Fence>) -> Result<(), LogError> {
    for entry in log.scan(ROOT, None).await?.entries {
        let uid = entry.key.as_str().strip_prefix(ROOT).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        if uids.contains(uid) {
            continue;
        }
        let origin = Origin { user: "system:stoa:notifications".to_owned(), ..Origin::default() };
        let write =
            Write { key: entry.key, expect: Expect::Any, change: Change::Delete, fence: fence.cloned(), origin };
        log.append(write).await?;
    }
    Ok(())
}
