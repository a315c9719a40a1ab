//! The index of a namespace: a record in the log that names the segments that count.

use serde::{Deserialize, Serialize};
use stoa_engine::document::{self, Document};
use stoa_machinery::{
    ApiError, Key,
    log::{Change, Entry, Expect, Log, LogError, Write},
};
use stoa_storage::Digest;

use super::of_log;

/// Where the indexes are, by namespace.
const PREFIX: &str = "/stoa/hub/";
/// How often a write is repeated that another one came before.
const ATTEMPTS: usize = 10;

/// The segments of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Index {
    pub(super) segments: Vec<Segment>,
}

impl Document for Index {
    const SCHEMA_VERSION: u32 = 1;
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Segment {
    pub(super) digest: Digest,
    /// The Backend; empty: the server's own folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) backend: String,
    pub(super) rows: usize,
    /// The first and the last time, in microseconds since the Unix epoch.
    pub(super) from: i64,
    pub(super) to: i64,
    /// Why it is not read; empty for one that is fine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) set_aside: String,
}

fn key(namespace: &str) -> Key {
    Key::new(format!("{PREFIX}{namespace}"))
}

fn decode(namespace: &str, entry: &Entry) -> Result<Index, ApiError> {
    document::decode(&entry.value).map_err(|error| {
        let advice = error.advice();
        tracing::error!(namespace, error = &error as &dyn std::error::Error, "the index of the hub is unreadable");
        ApiError::internal(format_args!("the index of the hub's archive is unreadable: {error}; {advice}"))
    })
}

/// The index of a namespace; empty where there is none.
pub(super) async fn read(log: &dyn Log, namespace: &str) -> Result<Index, ApiError> {
    let entry = log.read(&key(namespace)).await.map_err(|error| of_log(&error))?;
    entry.map_or_else(|| Ok(Index::default()), |entry| decode(namespace, &entry))
}

/// The namespaces that have an index.
pub(super) async fn namespaces(log: &dyn Log) -> Result<Vec<String>, ApiError> {
    let found = log.scan(PREFIX, None).await.map_err(|error| of_log(&error))?;
    Ok(found.entries.iter().filter_map(|entry| entry.key.as_str().strip_prefix(PREFIX)).map(str::to_owned).collect())
}

/// Changes the index of a namespace, again when another write comes between. `change` says whether it changed anything. An
/// index without segments is removed.
pub(super) async fn update(
    log: &dyn Log,
    namespace: &str,
    mut change: impl FnMut(&mut Index) -> bool + Send,
) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        let key = key(namespace);
        let entry = log.read(&key).await.map_err(|error| of_log(&error))?;
        let mut index = entry.as_ref().map_or_else(|| Ok(Index::default()), |entry| decode(namespace, entry))?;
        if !change(&mut index) {
            return Ok(());
        }
        let expect = entry.as_ref().map_or(Expect::Absent, |entry| Expect::At(entry.version));
        let put = match (index.segments.is_empty(), &entry) {
            (true, None) => return Ok(()),
            (true, Some(_)) => Change::Delete,
            (false, _) => Change::Put(document::encode(&index).into()),
        };
        match log.append(Write::new(key, expect, put).by("system:stoa:hub")).await {
            Ok(_) => return Ok(()),
            Err(LogError::Conflict { .. }) => {}
            Err(error) => return Err(of_log(&error)),
        }
    }
    Err(ApiError::service_unavailable("other writes to the index of the hub's archive come first").with_retry_after(1))
}
