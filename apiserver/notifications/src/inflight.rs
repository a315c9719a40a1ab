//! Events of a sink that are read and not delivered: which of them are due, and up to where all are delivered.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use stoa_machinery::{Key, Version};
use tokio::time::Instant;

use super::events::Happened;

/// How many events wait in memory; what comes after them stays in the log.
pub(super) const SIZE: usize = 256;
/// How many may be delivered ahead of one that is not, before nothing more is read.
const AHEAD: usize = 1024;
/// How many events are tried at once.
pub(super) const AT_ONCE: usize = 8;

/// An event that is to be delivered.
#[derive(Debug)]
pub(super) struct Pending {
    /// What it is called in the window.
    pub(super) number: u64,
    pub(super) happened: Happened,
    /// Where in the log it is: the version of its record and its number in it. Nothing for what does not come from there.
    pub(super) at: Option<(Version, usize)>,
    /// The version that everything is told up to as long as this is not delivered; nothing for a dead letter.
    pub(super) holds: Option<Version>,
    /// The dead letter that is delivered again.
    pub(super) dead: Option<Key>,
    /// Since when it counts as waiting.
    pub(super) since: Timestamp,
    pub(super) attempts: u32,
    /// The time of the first attempt in the current series of answers 400.
    pub(super) doubted: Option<Instant>,
    due: Instant,
    is_tried: bool,
}

/// The events that wait, oldest first.
#[derive(Debug)]
pub(super) struct InFlight {
    pending: VecDeque<Pending>,
    /// Events that were delivered or given up ahead of older ones.
    settled: BTreeSet<(Version, usize)>,
    next: u64,
}

impl InFlight {
    /// Nothing waits; these need not wait again.
    pub(super) fn new(settled: BTreeSet<(Version, usize)>) -> Self {
        Self { pending: VecDeque::new(), settled, next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether more may be read, given that what is not needed was [forgotten](Self::forget).
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < SIZE && self.settled.len() < AHEAD
    }

    /// Adds an event of the log, unless it was delivered in an earlier life.
    pub(super) fn add(&mut self, happened: Happened, at: (Version, usize)) {
        if !self.settled.contains(&at) {
            let before = Version(at.0.0.saturating_sub(1));
            let since = happened.event.time;
            self.push(happened, Some(at), Some(before), None, since);
        }
    }

    /// Adds an event that is found again as long as everything is told up to `holds` only.
    pub(super) fn add_found(&mut self, happened: Happened, holds: Version) {
        let since = happened.event.time;
        self.push(happened, None, Some(holds), None, since);
    }

    /// Adds a dead letter that is to be delivered again since then, unless it waits already.
    pub(super) fn add_dead(&mut self, happened: Happened, key: Key, since: Timestamp) {
        if !self.pending.iter().any(|pending| pending.dead.as_ref() == Some(&key)) {
            self.push(happened, None, None, Some(key), since);
        }
    }

    fn push(
        &mut self,
        happened: Happened,
        at: Option<(Version, usize)>,
        holds: Option<Version>,
        dead: Option<Key>,
        since: Timestamp,
    ) {
        self.next += 1;
        self.pending.push_back(Pending {
            number: self.next,
            happened,
            at,
            holds,
            dead,
            since,
            attempts: 0,
            doubted: None,
            due: Instant::now(),
            is_tried: false,
        });
    }

    /// The first of each lane that is not being tried.
    fn fronts(&self) -> impl Iterator<Item = (usize, &Pending)> {
        let mut lanes = HashSet::new();
        self.pending.iter().enumerate().filter_map(move |(place, pending)| {
            let is_front = lanes.insert(pending.happened.lane.as_str());
            (is_front && !pending.is_tried).then_some((place, pending))
        })
    }

    /// Whether as many are tried as may be.
    fn is_busy(&self) -> bool {
        self.pending.iter().filter(|pending| pending.is_tried).count() >= AT_ONCE
    }

    /// An event that is to be tried now, which counts as tried from here on.
    pub(super) fn start(&mut self, now: Instant) -> Option<&Pending> {
        if self.is_busy() {
            return None;
        }
        let place = self.fronts().find(|(_, pending)| pending.due <= now).map(|(place, _)| place)?;
        let pending = &mut self.pending[place];
        pending.is_tried = true;
        Some(pending)
    }

    /// When the next event is to be tried, if none comes and none that is tried ends before that.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        self.fronts().map(|(_, pending)| pending.due).min()
    }

    /// An event that was tried.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|pending| pending.number == number)
    }

    /// Waits before an event is tried again.
    pub(super) fn put_off(&mut self, number: u64, wait: Duration) {
        if let Some(pending) = self.get_mut(number) {
            pending.due = Instant::now() + wait;
            pending.is_tried = false;
        }
    }

    /// Takes out an event that was delivered or given up.
    pub(super) fn settle(&mut self, number: u64) -> Option<Pending> {
        let place = self.pending.iter().position(|pending| pending.number == number)?;
        let settled = self.pending.remove(place)?;
        self.settled.extend(settled.at);
        Some(settled)
    }

    /// The version up to which everything is settled, given that everything up to `read` was added.
    pub(super) fn position(&self, read: Version) -> Version {
        self.pending.iter().filter_map(|pending| pending.holds).fold(read, Version::min)
    }

    /// Forgets what is settled up to a position: nobody asks for it any more.
    pub(super) fn forget(&mut self, position: Version) {
        self.settled.retain(|(version, _)| *version > position);
    }

    /// What was delivered or given up ahead of older events.
    pub(super) fn settled(&self) -> &BTreeSet<(Version, usize)> {
        &self.settled
    }

    /// When the oldest event of those that wait happened.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.pending.iter().filter(|pending| pending.dead.is_none()).map(|pending| pending.happened.event.time).min()
    }

    /// Takes out a dead letter that is not to be delivered again after all, unless it is being tried.
    pub(super) fn drop_dead(&mut self, key: &Key) {
        self.pending.retain(|pending| pending.is_tried || pending.dead.as_ref() != Some(key));
    }

    /// Whether a dead letter is being delivered again.
    pub(super) fn has_dead(&self, key: &Key) -> bool {
        self.pending.iter().any(|pending| pending.dead.as_ref() == Some(key))
    }
}
