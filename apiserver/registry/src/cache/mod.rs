//! The watch cache: every object of one resource, already encoded, and its recent history.
//!
//! Start at `WatchCache`. The log is applied to it record by record; lists take an O(1)
//! snapshot of it, and watches read its ring of events. [`Stored`] is one object as it is kept, `Selectable` what is known of it
//! without a parse, and `CacheEntry` an object or what does not decode.
//!
//! No lock is held while anything waits, and no reader holds up the writer: a list copies
//! pointers out of a snapshot, and a watch that falls behind the ring is cut off.

mod entry;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod history;
mod metrics;
mod notifier;
mod progress;
mod selectable;
mod stored;
mod watch;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::{ArcSwap, Guard};
use imbl::OrdMap;
use parking_lot::RwLock;
use stoa_log::{Key, Version};
use stoa_meta::definition::SelectableField;

pub(crate) use entry::{CacheEntry, Undecodable};
pub use event::Event;
pub(crate) use history::CacheEvent;
pub(crate) use metrics::{Counts, Listed, Metrics};
pub(crate) use progress::Progress;
pub use stored::{DecodeError, Encoded, Prepared, Stored};
pub use watch::deadline;
pub(crate) use watch::{WatchRequest, watch};

use history::History;
use notifier::{Listener, Notifier};

/// Everything in a cache at one version, in key order.
pub(crate) type Objects = OrdMap<Key, CacheEntry>;

/// How much history a cache keeps for watches to resume in and pages to be read at.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// At least this many events.
    pub events: usize,
    /// All events that are younger than this.
    pub age: Duration,
    /// But no more than the last hundred when the states that they replaced are larger than this in all, in bytes.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { events: 10_000, age: Duration::from_secs(300), bytes: 256 << 20 }
    }
}

/// The objects of one resource, kept in step with the log.
#[derive(Debug)]
pub(crate) struct WatchCache {
    fields: Vec<SelectableField>,
    window: Window,
    state: RwLock<State>,
    notifier: Notifier,
    /// How far the log has been applied, for all resources together.
    progress: Arc<Progress>,
    counts: ArcSwap<Counts>,
}

#[derive(Debug)]
struct State {
    objects: Objects,
    /// How long they are in all, in bytes.
    size: usize,
    /// How many of them do not decode.
    undecodable: usize,
    history: History,
}

/// Everything in a cache at a version.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) version: Version,
    pub(crate) objects: Objects,
}

/// A version that the cache cannot show any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest version that it can show.
    pub(crate) oldest: Version,
}

impl WatchCache {
    pub(crate) fn new(fields: Vec<SelectableField>, window: Window, progress: Arc<Progress>, counts: Counts) -> Self {
        let state = RwLock::new(State::new(Version::default(), Objects::new()));
        let counts = ArcSwap::from_pointee(counts);
        Self { fields, window, state, notifier: Notifier::default(), progress, counts }
    }

    pub(crate) fn counts(&self) -> Guard<Arc<Counts>> {
        self.counts.load()
    }

    fn count_in(&self, counts: Counts) {
        self.counts.store(Arc::new(counts));
    }

    fn state(&self) -> metrics::State {
        let applied = self.progress.applied();
        let state = self.state.read();
        metrics::State {
            version: applied.max(state.history.last()).0,
            capacity: self.window.events,
            objects: state.objects.len(),
            size: state.size,
            undecodable: state.undecodable,
        }
    }

    pub(crate) fn fields(&self) -> &[SelectableField] {
        &self.fields
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Starts over with these objects: the history before `version` is gone, and watches that
    /// were in it are cut off.
    pub(crate) fn reset(&self, version: Version, objects: Objects) {
        let state = State::new(version, objects);
        self.counts().initialized(state.objects.len(), state.objects.len() - state.undecodable);
        *self.state.write() = state;
        self.notifier.notify();
    }

    /// Puts what is there after a write, or takes away what was deleted at `version`.
    ///
    /// Versions must grow from call to call. `time_ms` is when the write was made.
    pub(crate) fn apply(&self, key: &Key, version: Version, new: Option<CacheEntry>, time_ms: i64) {
        let counts = self.counts();
        counts.received.inc();
        {
            let mut state = self.state.write();
            let old = match &new {
                Some(new) => state.objects.insert(key.clone(), new.clone()),
                None => state.objects.remove(key),
            };
            if new.is_none() && old.is_none() {
                return;
            }
            state.size = state.size + size(&new) - size(&old);
            state.undecodable = state.undecodable + undecodable_in(&new) - undecodable_in(&old);
            state.history.push(CacheEvent::new(version, time_ms, new, old));
            state.history.trim(&self.window, now_ms());
        }
        counts.dispatched.inc();
        self.notifier.notify();
    }

    pub(crate) fn get(&self, key: &Key) -> Option<CacheEntry> {
        self.state.read().objects.get(key).cloned()
    }

    pub(crate) fn current(&self) -> View {
        // Read before the objects: what is applied meanwhile shows in the history's last version.
        let applied = self.progress.applied();
        let state = self.state.read();
        View { version: applied.max(state.history.last()), objects: state.objects.clone() }
    }

    /// Everything as of `version`, which is not after what has been applied.
    /// Fails with [`TooOld`] when the version is outside the window.
    pub(crate) fn at(&self, version: Version) -> Result<View, TooOld> {
        let state = self.state.read();
        if version >= state.history.last() {
            return Ok(View { version, objects: state.objects.clone() });
        }
        let (objects, undo) = state.history.since(version, &state.objects)?;
        drop(state);
        let objects = history::undo(objects, undo);
        Ok(View { version, objects })
    }

    /// Keeps the snapshot at `view`'s version at hand, because a client was given a token for it.
    pub(crate) fn keep(&self, view: &View) {
        self.state.write().history.keep(view.version, view.objects.clone());
    }

    /// Shows at most `max` events after `version`, oldest first, and says how many there were. `show` has the cache's lock,
    /// so that it does little.
    /// Fails with [`TooOld`] when events after that version are gone.
    pub(crate) fn events_after(
        &self,
        version: Version,
        max: usize,
        show: impl FnMut(&CacheEvent),
    ) -> Result<usize, TooOld> {
        let state = self.state.read();
        let events = state.history.events_after(version)?.take(max);
        Ok(events.map(show).count())
    }

    /// The version of the last change of an object, or of the last start over.
    pub(crate) fn last_change(&self) -> Version {
        self.state.read().history.last()
    }

    fn listen(&self) -> Listener {
        self.notifier.listen()
    }
}

impl State {
    fn new(version: Version, objects: Objects) -> Self {
        let (size, undecodable) = (size(objects.values()), undecodable_in(objects.values()));
        Self { objects, size, undecodable, history: History::new(version) }
    }
}

/// How long these are in all, in bytes.
fn size<'a>(kept: impl IntoIterator<Item = &'a CacheEntry>) -> usize {
    kept.into_iter().map(CacheEntry::len).sum()
}

/// How many of these do not decode.
fn undecodable_in<'a>(kept: impl IntoIterator<Item = &'a CacheEntry>) -> usize {
    kept.into_iter().filter(|kept| kept.undecodable().is_some()).count()
}

/// Milliseconds since the Unix epoch, to compare with the times of records.
fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
