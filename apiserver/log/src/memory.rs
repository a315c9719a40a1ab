//! A [`Log`] in memory: the reference for the contract, and what tests run on.
//!
//! Nothing survives the process. Every past version back to the last compaction is kept, as
//! snapshots that share their structure.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{Change, Entry, Expect, Fence, Key, Lease, Log, LogError, Record, RecordStream, Snapshot, Version, Write};

/// How many records a follower copies at a time, so that it holds the lock only shortly.
const FOLLOW_BATCH: usize = 256;

/// A log that lives as long as the process.
#[derive(Debug)]
pub struct MemoryLog {
    state: Arc<Mutex<State>>,
    head: watch::Sender<Version>,
}

#[derive(Debug, Default)]
struct State {
    head: Version,
    /// The oldest version that can be read.
    floor: Version,
    /// The values at `floor`; later versions are in `history`.
    base: OrdMap<Key, Entry>,
    /// Every record after `floor`, with the values as they were right after it.
    history: VecDeque<(Record, OrdMap<Key, Entry>)>,
    leases: HashMap<String, HeldLease>,
    last_token: u64,
}

#[derive(Debug)]
struct HeldLease {
    holder: String,
    token: u64,
    ttl: Duration,
    expires: Instant,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self { state: Arc::default(), head: watch::Sender::new(Version::default()) }
    }
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }
}

impl State {
    fn values(&self) -> &OrdMap<Key, Entry> {
        self.history.back().map_or(&self.base, |(_, values)| values)
    }

    fn values_at(&self, at: Version) -> Result<&OrdMap<Key, Entry>, LogError> {
        if at < self.floor {
            return Err(LogError::Expired { asked: at, oldest: self.floor });
        }
        if at > self.head {
            return Err(LogError::Future { asked: at, head: self.head });
        }
        match self.history_after(at) {
            0 => Ok(&self.base),
            n => Ok(&self.history[n - 1].1),
        }
    }

    /// The index in `history` of the first record after `version`, which is not before `floor`.
    fn history_after(&self, version: Version) -> usize {
        self.history.partition_point(|(record, _)| record.version <= version)
    }

    fn check_fence(&self, fence: &Fence) -> Result<(), LogError> {
        self.held(&fence.lease, fence.token).map(|_| ())
    }

    fn held(&self, name: &str, token: u64) -> Result<&HeldLease, LogError> {
        self.leases
            .get(name)
            .filter(|held| held.token == token && held.expires > Instant::now())
            .ok_or_else(|| LogError::Fenced { lease: name.to_owned(), token })
    }

    fn append(&mut self, write: Write) -> Result<Version, LogError> {
        if let Some(fence) = &write.fence {
            self.check_fence(fence)?;
        }
        let found = self.values().get(&write.key).map(|entry| entry.version);
        let holds = match write.expect {
            Expect::Absent => found.is_none() && write.change != Change::Delete,
            Expect::At(version) => found == Some(version),
            Expect::Any => true,
        };
        if !holds {
            return Err(LogError::Conflict { key: write.key, found });
        }
        let version = Version(self.head.0 + 1);
        let mut values = self.values().clone();
        match &write.change {
            Change::Put(value) => {
                let entry = Entry { key: write.key.clone(), version, value: value.clone() };
                values.insert(write.key.clone(), entry);
            }
            Change::Delete => {
                values.remove(&write.key);
            }
        }
        let record = Record {
            version,
            key: write.key,
            change: write.change,
            origin: write.origin,
            time_ms: jiff::Timestamp::now().as_millisecond(),
        };
        self.history.push_back((record, values));
        self.head = version;
        Ok(version)
    }

    fn records_after(&self, since: Version) -> Result<Vec<Record>, LogError> {
        if since < self.floor {
            return Err(LogError::Expired { asked: since, oldest: self.floor });
        }
        let from = self.history_after(since);
        Ok(self.history.range(from..).take(FOLLOW_BATCH).map(|(record, _)| record.clone()).collect())
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        let mut state = self.state.lock();
        let version = state.append(write)?;
        // Told under the lock, so that the head that followers see never goes back.
        self.head.send_replace(version);
        Ok(version)
    }

    async fn head(&self) -> Result<Version, LogError> {
        Ok(self.state.lock().head)
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        Ok(self.state.lock().values().get(key).cloned())
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        let (version, values) = {
            let state = self.state.lock();
            match at {
                Some(at) => (at, state.values_at(at)?.clone()),
                None => (state.head, state.values().clone()),
            }
        };
        let entries = values
            .range(Key::new(prefix)..)
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .map(|(_, entry)| entry.clone())
            .collect();
        Ok(Snapshot { version, entries })
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        self.state.lock().records_after(since)?;
        let batches = stream::unfold(Some((self.state.clone(), self.head.subscribe(), since)), |follower| async {
            let (state, mut head, since) = follower?;
            loop {
                head.borrow_and_update();
                match state.lock().records_after(since) {
                    Err(expired) => return Some((vec![Err(expired)], None)),
                    Ok(records) => {
                        if let Some(last) = records.last() {
                            let since = last.version;
                            return Some((records.into_iter().map(Ok).collect(), Some((state.clone(), head, since))));
                        }
                    }
                }
                if head.changed().await.is_err() {
                    let gone = LogError::Unavailable("the log was dropped".into());
                    return Some((vec![Err(gone)], None));
                }
            }
        });
        Ok(batches.flat_map(stream::iter).boxed())
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let floor = before.min(state.head);
        if floor > state.floor {
            state.base = state.values_at(floor)?.clone();
            let drop = state.history_after(floor);
            state.history.drain(..drop);
            state.floor = floor;
        }
        Ok(())
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if let Some(held) = state.leases.get(name)
            && held.holder != holder
            && held.expires > now
        {
            return Err(LogError::Held { lease: name.to_owned(), holder: held.holder.clone() });
        }
        state.last_token += 1;
        let token = state.last_token;
        state.leases.insert(name.to_owned(), HeldLease { holder: holder.to_owned(), token, ttl, expires: now + ttl });
        Ok(Lease { name: name.to_owned(), holder: holder.to_owned(), token, ttl })
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.held(&lease.name, lease.token)?;
        if let Some(held) = state.leases.get_mut(&lease.name) {
            held.expires = Instant::now() + held.ttl;
        }
        Ok(())
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if state.leases.get(&lease.name).is_some_and(|held| held.token == lease.token) {
            state.leases.remove(&lease.name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn fresh() -> (Arc<dyn Log>, ()) {
        (Arc::new(MemoryLog::new()), ())
    }

    crate::log_conformance_tests!(fresh);

    #[tokio::test]
    async fn log_is_begun_once() {
        let log = MemoryLog::new();
        for _ in 0..2 {
            super::super::begin(&log).await.unwrap();
            assert_eq!(log.head().await.unwrap(), Version(1));
        }
    }
}
