//! The history of a watch cache: a ring of events, and the snapshots for pages of lists.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, OnceLock},
};

use stoa_log::Version;

use super::{CacheEntry, Objects, Stored, TooOld, Window};

/// How many snapshots are kept at hand for pages. Others in the window are made by undoing events.
const KEPT_SNAPSHOTS: usize = 256;
/// How many events are kept however large the objects are.
const FEWEST: usize = 100;

/// So many of the last events are looked at one by one.
const RECENT: usize = 8;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct CacheEvent {
    /// The version of the event.
    pub version: Version,
    pub(crate) time_ms: i64,
    /// As it is after; nothing after a delete.
    pub new: Option<CacheEntry>,
    /// As it was before; nothing when it is new.
    pub old: Option<CacheEntry>,
    gone: OnceLock<Arc<Stored>>,
}

impl CacheEvent {
    pub(crate) fn new(version: Version, time_ms: i64, new: Option<CacheEntry>, old: Option<CacheEntry>) -> Self {
        Self { version, time_ms, new, old, gone: OnceLock::new() }
    }

    /// How much is kept in memory for this event alone: of a state that is not replaced yet, nothing.
    fn len(&self) -> usize {
        self.old.as_ref().map_or(0, CacheEntry::len)
    }

    /// The old state with this event's version: what a watch says that loses the object here.
    pub(crate) fn gone(&self) -> Option<Arc<Stored>> {
        let old = self.old.as_ref()?.object()?;
        Some(self.gone.get_or_init(|| Arc::new(old.at_version(self.version))).clone())
    }
}

#[derive(Debug)]
pub(super) struct History {
    /// All events after this version are in the ring.
    floor: Version,
    events: VecDeque<Arc<CacheEvent>>,
    /// What the events take in all.
    bytes: usize,
    snapshots: BTreeMap<Version, Objects>,
}

impl History {
    pub(super) fn new(floor: Version) -> Self {
        Self { floor, events: VecDeque::new(), bytes: 0, snapshots: BTreeMap::new() }
    }

    pub(super) fn last(&self) -> Version {
        self.events.back().map_or(self.floor, |event| event.version)
    }

    pub(super) fn push(&mut self, event: CacheEvent) {
        self.bytes += event.len();
        self.events.push_back(Arc::new(event));
    }

    /// Drops what is outside the window: older than its age and more than its number, or more than its bytes.
    pub(super) fn trim(&mut self, window: &Window, now_ms: i64) {
        let age = i64::try_from(window.age.as_millis()).unwrap_or(i64::MAX);
        let before = self.floor;
        while self.events.front().is_some_and(|event| {
            let is_old = self.events.len() > window.events && now_ms.saturating_sub(event.time_ms) > age;
            is_old || (self.bytes > window.bytes && self.events.len() > FEWEST)
        }) && let Some(event) = self.events.pop_front()
        {
            self.bytes -= event.len();
            self.floor = event.version;
        }
        if self.floor != before {
            self.snapshots = self.snapshots.split_off(&self.floor);
        }
    }

    pub(super) fn keep(&mut self, version: Version, objects: Objects) {
        if version < self.floor {
            return;
        }
        self.snapshots.insert(version, objects);
        while self.snapshots.len() > KEPT_SNAPSHOTS {
            self.snapshots.pop_first();
        }
    }

    fn index_after(&self, version: Version) -> usize {
        // Who keeps up wants the last ones. A search of all would read as many of long ago, once for each watch.
        let last = self.events.iter().rev().take(RECENT).take_while(|event| event.version > version).count();
        if last < RECENT {
            return self.events.len() - last;
        }
        self.events.partition_point(|event| event.version <= version)
    }

    pub(super) fn events_after(&self, version: Version) -> Result<impl Iterator<Item = &CacheEvent>, TooOld> {
        if version < self.floor {
            return Err(TooOld { oldest: self.floor });
        }
        Ok(self.events.range(self.index_after(version)..).map(AsRef::as_ref))
    }

    /// A snapshot at or after `version`, and the events to undo in it, newest first.
    pub(super) fn since(&self, version: Version, now: &Objects) -> Result<(Objects, Vec<Arc<CacheEvent>>), TooOld> {
        if version < self.floor {
            return Err(TooOld { oldest: self.floor });
        }
        let (upto, objects) = match self.snapshots.range(version..).next() {
            Some((at, objects)) => (self.index_after(*at), objects),
            None => (self.events.len(), now),
        };
        let undo = self.events.range(self.index_after(version)..upto).rev().cloned().collect();
        Ok((objects.clone(), undo))
    }
}

/// The objects before these events, which are newest first.
pub(super) fn undo(mut objects: Objects, events: Vec<Arc<CacheEvent>>) -> Objects {
    for event in events {
        match (&event.old, &event.new) {
            (Some(old), _) => {
                objects.insert(old.key().clone(), old.clone());
            }
            (None, Some(new)) => {
                objects.remove(new.key());
            }
            (None, None) => {}
        }
    }
    objects
}
