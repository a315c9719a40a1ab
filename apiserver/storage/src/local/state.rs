//! The state of the log in memory.
//!
//! [`State`] is persistent: the writer changes a copy, which costs next to nothing, and publishes it to readers once its records
//! are durable. [`History`] undoes the newest records to show an older version.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use imbl::OrdMap;
use stoa_machinery::log::{Change, Entry, Expect, Fence, Key, LogError, Origin, Record, Version};

/// A lease and who has it. It stays here when it expires, until somebody else takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub name: String,
    pub holder: String,
    pub token: u64,
    pub ttl: Duration,
    /// The expiry, by the steady clock of the process that wrote it. It means nothing to another process.
    pub deadline_ms: i64,
}

/// A value and the write that put it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub version: Version,
    pub value: Bytes,
}

impl Current {
    pub(super) fn entry(&self, key: &Key) -> Entry {
        Entry { key: key.clone(), version: self.version, value: self.value.clone() }
    }
}

/// All current values.
pub(super) type Values = OrdMap<Key, Current>;

/// Everything as of one version.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub head: Version,
    pub values: Values,
    pub leases: OrdMap<String, Holding>,
    /// The last lease token given out.
    pub token: u64,
    /// The last batch that this state includes.
    pub batch: u64,
}

impl State {
    /// Whether a write to `key` may be appended now.
    pub(super) fn check(
        &self,
        key: &Key,
        expect: Expect,
        deletes: bool,
        fence: Option<&Fence>,
        steady_ms: i64,
    ) -> Result<(), LogError> {
        if let Some(fence) = fence {
            self.held(&fence.lease, fence.token, steady_ms)?;
        }
        let found = self.values.get(key).map(|current| current.version);
        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => found.is_none() && !deletes,
            Expect::At(version) => found == Some(version),
        };
        if holds { Ok(()) } else { Err(LogError::Conflict { key: key.clone(), found }) }
    }

    /// The lease, if its token is `token` and it has not expired.
    pub(super) fn held(&self, name: &str, token: u64, steady_ms: i64) -> Result<&Holding, LogError> {
        self.leases
            .get(name)
            .filter(|held| held.token == token && steady_ms < held.deadline_ms)
            .ok_or_else(|| LogError::Fenced { lease: name.to_owned(), token })
    }

    /// Applies a record and returns what the history keeps of it.
    pub(super) fn apply(&mut self, record: Record) -> Step {
        self.head = record.version;
        let replaced = match &record.change {
            Change::Put(value) => {
                self.values.insert(record.key.clone(), Current { version: record.version, value: value.clone() })
            }
            Change::Delete => self.values.remove(&record.key),
        };
        let checkpoint = record.version.0.is_multiple_of(CHECKPOINT).then(|| self.values.clone());
        Step { record, replaced, checkpoint }
    }

    /// Lets every lease last as long again as when it was renewed: how much time has passed since another process wrote
    /// when they expire is not known here.
    pub(super) fn extend_leases(&mut self, steady_ms: i64) {
        let names: Vec<String> = self.leases.keys().cloned().collect();
        for name in names {
            if let Some(held) = self.leases.get_mut(&name) {
                held.deadline_ms = deadline(steady_ms, held.ttl);
            }
        }
    }

    pub(super) fn hold(&mut self, held: Holding) {
        self.token = self.token.max(held.token);
        self.leases.insert(held.name.clone(), held);
    }

    pub(super) fn release(&mut self, name: &str, token: u64) {
        if self.leases.get(name).is_some_and(|held| held.token == token) {
            self.leases.remove(name);
        }
    }
}

/// The expiry of a lease that is renewed now. One millisecond is added, since `steady_ms` cuts off as much: no lease ends
/// early.
pub(super) fn deadline(steady_ms: i64, ttl: Duration) -> i64 {
    steady_ms.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)).saturating_add(1)
}

/// Everything in `values` whose key begins with `prefix`.
pub(super) fn under<'a>(values: &'a Values, prefix: &'a str) -> impl Iterator<Item = (&'a Key, &'a Current)> {
    values.range(Key::new(prefix)..).take_while(move |(key, _)| key.as_str().starts_with(prefix))
}

/// A record and what it replaced, in little memory: there are as many as the window has records.
#[derive(Clone, Debug)]
struct Past {
    version: Version,
    key: Key,
    change: Change,
    /// Shared, since most records near each other are of one user and verb.
    origin: Arc<Origin>,
    time_ms: i64,
    /// Boxed, since most records of many are of new objects.
    replaced: Option<Box<Current>>,
}

impl Past {
    /// The bytes in memory for this record alone: none for a value that is still current.
    fn len(&self) -> usize {
        self.replaced.as_ref().map_or(0, |replaced| replaced.value.len())
    }

    fn record(&self) -> Record {
        Record {
            version: self.version,
            key: self.key.clone(),
            change: self.change.clone(),
            origin: Origin::clone(&self.origin),
            time_ms: self.time_ms,
        }
    }
}

/// One record applied, as [`History::push`] takes it.
#[derive(Debug)]
pub(super) struct Step {
    record: Record,
    /// The entry at its key before.
    replaced: Option<Current>,
    /// All values right after it, where a checkpoint is due: those at the end of its batch may be of later records.
    checkpoint: Option<Values>,
}

/// The most records that a read of an old version undoes. Few under test, so that every simulated life has many.
const CHECKPOINT: u64 = if cfg!(test) { 8 } else { 256 };

/// The number of the last records in which an equal origin is searched.
const RECENT: usize = 8;

/// The records inside the window, and what it takes to go back to any of them.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The oldest version that can be shown.
    pub oldest: Version,
    /// The records after `oldest`, without a gap.
    past: VecDeque<Past>,
    /// The bytes of all.
    bytes: usize,
    /// All values as of some versions, oldest first.
    checkpoints: BTreeMap<Version, Values>,
}

impl History {
    pub(super) fn starting_at(oldest: Version) -> Self {
        Self { oldest, ..Self::default() }
    }

    pub(super) fn push(&mut self, Step { record, replaced, checkpoint }: Step) {
        let Record { version, key, change, origin, time_ms } = record;
        if let Some(values) = checkpoint {
            self.checkpoints.insert(version, values);
        }
        let past =
            Past { version, key, change, origin: self.shared(origin), time_ms, replaced: replaced.map(Box::new) };
        self.bytes += past.len();
        self.past.push_back(past);
    }

    /// An origin in the memory of one of the last records, if it is like it.
    fn shared(&self, origin: Origin) -> Arc<Origin> {
        let last = self.past.iter().rev().take(RECENT);
        let alike = last.map(|past| &past.origin).find(|past| ***past == origin).cloned();
        alike.unwrap_or_else(|| Arc::new(origin))
    }

    /// At most `limit` records after `since`, oldest first.
    pub(super) fn after(&self, since: Version, limit: usize) -> Result<Vec<Record>, LogError> {
        let skip = since.0.checked_sub(self.oldest.0).ok_or(self.expired(since))?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.past.len());
        Ok(self.past.range(skip..).take(limit).map(Past::record).collect())
    }

    /// The parts of version `at`: later values, and the entries that replace them.
    pub(super) fn view(&self, at: Version, current: &State) -> Result<View, LogError> {
        if at > current.head {
            return Err(LogError::Future { asked: at, head: current.head });
        }
        let skip = at.0.checked_sub(self.oldest.0).ok_or(self.expired(at))?;
        let (from, values) = self
            .checkpoints
            .range(at..)
            .next()
            .map_or((current.head, &current.values), |(version, values)| (*version, values));
        let start = usize::try_from(skip).expect("the history fits in memory");
        let length = usize::try_from(from.0 - at.0).expect("the history fits in memory");
        let undo = self.past.range(start..start + length).cloned().collect();
        Ok(View { values: values.clone(), undo })
    }

    /// Forgets the records up to and including `before`.
    pub(super) fn forget(&mut self, before: Version) {
        while let Some(past) = self.past.pop_front_if(|past| past.version <= before) {
            self.bytes -= past.len();
        }
        self.checkpoints = self.checkpoints.split_off(&before);
        self.oldest = self.oldest.max(before);
    }

    /// Up to where to forget for `bytes` to be enough for the rest; `None` when that is so.
    pub(super) fn excess(&self, bytes: usize) -> Option<Version> {
        let mut excess = self.bytes.checked_sub(bytes).filter(|excess| *excess > 0)?;
        let last = self.past.iter().find(|past| {
            excess = excess.saturating_sub(past.len());
            excess == 0
        })?;
        Some(last.version)
    }

    fn expired(&self, asked: Version) -> LogError {
        LogError::Expired { asked, oldest: self.oldest }
    }
}

/// An old version, ready to be read without any lock.
#[derive(Debug)]
pub(super) struct View {
    values: Values,
    /// The records between it and `values`, oldest first.
    undo: Vec<Past>,
}

impl View {
    /// Everything whose key begins with `prefix`, in key order.
    pub(super) fn scan(&self, prefix: &str) -> Vec<Entry> {
        // The oldest record on a key says what was there before any of them.
        let mut before = BTreeMap::new();
        for past in self.undo.iter().rev().filter(|past| past.key.as_str().starts_with(prefix)) {
            before.insert(past.key.clone(), past.replaced.as_deref().cloned());
        }
        if before.is_empty() {
            return under(&self.values, prefix).map(|(key, current)| current.entry(key)).collect();
        }
        let mut entries: BTreeMap<Key, Entry> =
            under(&self.values, prefix).map(|(key, current)| (key.clone(), current.entry(key))).collect();
        for (key, replaced) in before {
            match replaced {
                Some(current) => entries.insert(key.clone(), current.entry(&key)),
                None => entries.remove(&key),
            };
        }
        entries.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: u64, user: &str) -> Record {
        Record {
            version: Version(version),
            key: Key::new("/k"),
            change: Change::Put(Bytes::from(version.to_string())),
            origin: Origin { user: user.to_owned(), ..Origin::default() },
            time_ms: 0,
        }
    }

    #[test]
    fn history_returns_identical_records_with_shared_origin() {
        let (mut state, mut history) = (State::default(), History::default());
        let records = [written(1, "ann"), written(2, "ben"), written(3, "ann")];
        for record in records.clone() {
            history.push(state.apply(record));
        }
        assert_eq!(history.after(Version(0), 10).expect("nothing is forgotten"), records);
        let [ann, ben] = [0, 1].map(|index: usize| Arc::strong_count(&history.past[index].origin));
        assert_eq!((ann, ben), (2, 1));
        assert_eq!(history.bytes, 2, "the values of the first two");
    }
}
