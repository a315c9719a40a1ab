//! The keys of the log in etcd, and the note beside each write.
//!
//! ```text
//! <prefix>/log/data<key>     the value of a key
//! <prefix>/log/head          the note of the last write; every write puts it, in the same revision
//! <prefix>/guard             the writes that may still happen: see `append`
//! <prefix>/leases/<name>     the holder of a lease; attached to a lease of etcd
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stoa_machinery::log::{Change, Key, Origin, Write};

/// The names of all keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    log: String,
    data: String,
    leases: String,
    /// The note of the last write.
    pub head: Bytes,
    /// The guard of writes.
    pub guard: Bytes,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        Self {
            log: format!("{prefix}/log/"),
            data: format!("{prefix}/log/data"),
            leases: format!("{prefix}/leases/"),
            head: format!("{prefix}/log/head").into(),
            guard: format!("{prefix}/guard").into(),
        }
    }

    /// The etcd key of a key of the log.
    pub(super) fn data(&self, key: &Key) -> Bytes {
        format!("{}{key}", self.data).into()
    }

    /// The values of all keys that begin with `prefix`: the first, and the first that is no longer one.
    pub(super) fn data_range(&self, prefix: &str) -> (Bytes, Bytes) {
        let start = format!("{}{prefix}", self.data).into_bytes();
        let end = after(&start);
        (start.into(), end)
    }

    /// Everything that a write touches.
    pub(super) fn log_range(&self) -> (Bytes, Bytes) {
        (self.log.clone().into(), after(self.log.as_bytes()))
    }

    /// The log's name of a key of etcd; `None` for what is not the log's.
    pub(super) fn key_of(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(&self.data).map(Key::new)
    }

    /// Who holds a lease.
    pub(super) fn lease(&self, name: &str) -> Bytes {
        format!("{}{name}", self.leases).into()
    }
}

/// The first key after all that begin with `prefix`.
fn after(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    // etcd's word for "no end".
    Bytes::from_static(b"\0")
}

/// The metadata of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The key that was written.
    pub key: Key,
    /// Whether it was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Who and how.
    pub origin: Origin,
    /// The time in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The unique id of the write, also among equal writes.
    pub id: String,
}

impl Note {
    pub(super) fn new(write: &Write, id: &str, time_ms: i64) -> Self {
        Self {
            key: write.key.clone(),
            deleted: write.change == Change::Delete,
            origin: write.origin.clone(),
            time_ms,
            id: id.to_owned(),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings and numbers encode").into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_what_they_stand_for() {
        let keys = Keys::new("/stoa/");
        let key = Key::new("/registry/core/namespaces/a");
        assert_eq!(keys.data(&key), "/stoa/log/data/registry/core/namespaces/a");
        assert_eq!(keys.key_of(&keys.data(&key)), Some(key));
        assert_eq!(keys.key_of(&keys.head), None);
        assert_eq!(keys.key_of(b"/stoa/log/data\xff"), None);
    }

    #[test]
    fn ranges_end_after_the_last_key_of_their_prefix() {
        let keys = Keys::new("stoa");
        assert_eq!(keys.data_range(""), ("/stoa/log/data".into(), "/stoa/log/datb".into()));
        assert_eq!(keys.data_range("/a/"), ("/stoa/log/data/a/".into(), "/stoa/log/data/a0".into()));
        assert_eq!(keys.log_range().1, "/stoa/log0");
        assert_eq!(after(b"a\xff"), "b");
        assert_eq!(after(b"\xff"), "\0");
    }
}
