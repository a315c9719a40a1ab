//! A reader of the log for one sink.
//!
//! Each sink reads as fast as it delivers, so a slow one delays no other and unread records need no memory.
//! Where history is compacted, the reader lists the present objects instead ([`Feed::relist`]) and reports the
//! gap.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use stoa_kinds::lookup::Lookup;
use stoa_machinery::{
    ApiError, Key, Version,
    log::{self, Log, LogError, Record, RecordStream},
};

use super::events::{self, Changed, Event, Happened, Known, State, Watched};

/// How many objects are remembered as they were; of others the log is asked.
const REMEMBERED: usize = 4096;
/// After how many records it is looked whether there is anything else to do.
const AT_ONCE: usize = 256;
/// How far apart the clocks of two servers may be.
const CLOCKS: SignedDuration = SignedDuration::from_mins(1);

/// What is read.
#[derive(Debug)]
pub(super) enum Fed {
    /// Events of the record at this version; none of some records.
    Happened(Version, Vec<Happened>),
    /// Events of an object that was found when history was gone.
    Found(Vec<Happened>),
    /// History between the two versions was gone.
    Gap { from: Version, to: Version },
    /// Something was written under the prefix that is watched besides.
    Besides(Record),
}

/// Why it cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    #[error("the log cannot be read")]
    Log(#[from] LogError),
    #[error("objects cannot be read: {0}")]
    Objects(#[from] ApiError),
}

/// Reads what happened.
pub(super) struct Feed {
    log: Arc<dyn Log>,
    lookup: Lookup,
    /// What links begin with.
    prefix: String,
    /// Records under here are passed on.
    besides: String,
    /// Everything up to here has been returned.
    position: Version,
    /// When that was written.
    time: Timestamp,
    records: Option<RecordStream>,
    /// A record that was taken and not returned.
    taken: Option<Record>,
    known: HashMap<Key, Known>,
    /// What was found instead of history, and has to be read before it goes on from a version.
    found: Option<(VecDeque<Changed>, Version)>,
}

impl Feed {
    /// Begins after a version, which was written at some time. Links begin with `prefix`, and records under `besides` are
    /// passed on.
    pub(super) fn new(
        log: Arc<dyn Log>,
        lookup: Lookup,
        prefix: &str,
        besides: String,
        (position, time): (Version, Timestamp),
    ) -> Self {
        Self {
            log,
            lookup,
            prefix: prefix.to_owned(),
            besides,
            position,
            time,
            records: None,
            taken: None,
            known: HashMap::new(),
            found: None,
        }
    }

    /// The version up to which everything has been returned.
    pub(super) fn position(&self) -> Version {
        self.position
    }

    /// When that was written.
    pub(super) fn time(&self) -> Timestamp {
        self.time
    }

    /// What comes next. A call that is dropped loses nothing.
    ///
    /// # Errors
    ///
    /// When the log or objects cannot be read; another call tries again.
    pub(super) async fn next(&mut self) -> Result<Fed, FeedError> {
        if self.found.is_some() {
            return self.next_found().await;
        }
        for _ in 0..AT_ONCE {
            if self.taken.is_none() {
                match self.take().await {
                    Ok(record) => self.taken = Some(record),
                    Err(LogError::Expired { .. }) => return self.relist().await,
                    Err(error) => return Err(error.into()),
                }
            }
            let events = self.events().await?;
            let record = self.taken.take().expect("it was taken above");
            self.position = record.version;
            self.time = written(&record);
            if record.key.as_str().starts_with(&self.besides) {
                return Ok(Fed::Besides(record));
            }
            if !events.is_empty() {
                return Ok(Fed::Happened(record.version, events));
            }
        }
        Ok(Fed::Happened(self.position, Vec::new()))
    }

    async fn take(&mut self) -> Result<Record, LogError> {
        if self.records.is_none() {
            self.records = Some(self.log.follow(self.position).await?);
        }
        let records = self.records.as_mut().expect("it was opened above");
        match records.next().await {
            Some(Ok(record)) => Ok(record),
            Some(Err(error)) => {
                self.records = None;
                Err(error)
            }
            None => {
                self.records = None;
                Err(LogError::Unavailable("the log ended".into()))
            }
        }
    }

    /// The events of the record that was taken.
    async fn events(&mut self) -> Result<Vec<Happened>, FeedError> {
        let Some(record) = &self.taken else { return Ok(Vec::new()) };
        let Some(kind) = events::of_key(record.key.as_str()) else { return Ok(Vec::new()) };
        let log::Change::Put(value) = &record.change else {
            self.known.remove(&record.key);
            return Ok(Vec::new());
        };
        let Some(state) = read(kind, &record.key, value, &self.prefix) else { return Ok(Vec::new()) };
        let before = match self.known.get(&record.key) {
            Some(known) => known.clone(),
            None if !state.has_marks() || record.origin.verb == "create" => Known::default(),
            None => before(&*self.log, kind, record, &self.prefix).await?,
        };
        let happened = state.events(&before, written(record), &self.prefix);
        let key = record.key.clone();
        self.remember(key, state.known());
        Ok(happened)
    }

    fn remember(&mut self, key: Key, known: Known) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(key, known);
    }

    /// Goes on from what is there, since history is gone: all objects that were written after it, oldest first, are read as
    /// they are now. What they went through in between and do not say any more is lost, and so are those that are gone.
    async fn relist(&mut self) -> Result<Fed, FeedError> {
        let (from, mut to, mut found) = (self.position, None::<Version>, Vec::new());
        for kind in events::kinds() {
            let (version, changed) = kind.changed(&self.lookup, from).await?;
            // Kinds are listed one after the other: what was written meanwhile is read from the log, and what comes
            // twice has the same ids.
            to = Some(to.map_or(version, |to| to.min(version)));
            found.extend(changed);
        }
        let to = to.unwrap_or(from);
        found.sort_by_key(|changed| changed.version);
        self.known.clear();
        (self.records, self.taken) = (None, None);
        self.found = Some((found.into(), to));
        Ok(Fed::Gap { from, to })
    }

    async fn next_found(&mut self) -> Result<Fed, FeedError> {
        let Some((found, to)) = &mut self.found else { return Ok(Fed::Found(Vec::new())) };
        let Some(next) = found.front().cloned() else {
            self.position = *to;
            self.found = None;
            return Ok(Fed::Found(Vec::new()));
        };
        let current = next.kind.current(&self.lookup, &next.namespace, &next.name).await?;
        found.pop_front();
        let Some(value) = current else { return Ok(Fed::Found(Vec::new())) };
        let place = if next.namespace.is_empty() { String::new() } else { format!("{}/", next.namespace) };
        let (group, plural) = next.kind.resource();
        let key = Key::new(format!("/registry/{group}/{plural}/{place}{}", next.name));
        let Some(state) = read(next.kind, &key, &value, &self.prefix) else { return Ok(Fed::Found(Vec::new())) };
        let mut happened = state.events(&Known::default(), self.time, &self.prefix);
        // What an object went through long before was told then. The clocks of servers need not agree by the second.
        let since = self.time.saturating_sub(CLOCKS).unwrap_or(self.time);
        happened.retain(|happened| happened.event.time >= since);
        Ok(Fed::Found(happened))
    }
}

/// When a record was written, as its writer's clock had it.
fn written(record: &Record) -> Timestamp {
    Timestamp::from_millisecond(record.time_ms).unwrap_or_default()
}

/// Reads an object; what does not decode is nobody's event.
fn read(kind: &dyn Watched, key: &Key, value: &[u8], prefix: &str) -> Option<State> {
    let read = kind.read(value, prefix);
    read.inspect_err(|error| tracing::error!(%key, %error, "a stored object does not decode, and nobody is told of it"))
        .ok()
}

/// What an object had been through before a record.
async fn before(log: &dyn Log, kind: &dyn Watched, record: &Record, prefix: &str) -> Result<Known, LogError> {
    let version = Version(record.version.0.saturating_sub(1));
    if version.0 == 0 {
        return Ok(Known::default());
    }
    let snapshot = log.scan(record.key.as_str(), Some(version)).await?;
    // Others' names may begin with this one.
    let there = snapshot.entries.iter().find(|entry| entry.key == record.key);
    Ok(there
        .and_then(|entry| read(kind, &entry.key, &entry.value, prefix))
        .map(|state| state.known())
        .unwrap_or_default())
}

/// The gap as an event for the sink itself.
pub(super) fn gap(sink: (&str, &str), from: Version, to: Version, time: Timestamp, prefix: &str) -> Happened {
    let event: Event = events::gap(sink, from, to, time, prefix);
    Happened { lane: event.subject.clone(), event, scope: events::Scope::default() }
}
