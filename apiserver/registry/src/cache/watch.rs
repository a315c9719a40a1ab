//! A watch: the events of a cache that one client asked for.
//!
//! A watch holds a position in the cache's history and nothing else, so that any number of slow
//! ones cost a writer nothing. One that falls out of the window ends with 410 `Expired`.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
    vec,
};

use futures_util::{FutureExt as _, Stream, StreamExt as _, stream::BoxStream};
use stoa_log::Version;
use stoa_meta::{
    selector::{FieldSelector, LabelSelector},
    status::ApiError,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{CacheEntry, CacheEvent, Listener, Stored, TooOld, WatchCache};
use crate::{cache::Event, stream_timers::StreamTimers};

/// How many events are taken from the history at a time, so that its lock is held only shortly.
const BATCH: usize = 128;
/// How long before its end a watch gets a last bookmark, so that the next one begins close by.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a timeout past the end of time counts as.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug)]
pub(crate) struct WatchRequest {
    /// The beginning of the keys: a resource or one of its namespaces.
    pub(crate) prefix: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// Shown as `Added` before anything else.
    pub(crate) initial: Vec<Arc<Stored>>,
    /// Whether a bookmark says where the initial ones end.
    pub(crate) mark_initial_end: bool,
    /// Only what came after this is shown.
    pub(crate) since: Version,
    /// What whoever watches knows of: a bookmark has to say more.
    pub(crate) known: Version,
    /// How often a bookmark comes, if at all.
    pub(crate) bookmarks: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// When what begins now and may take that long ends.
pub fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + FOREVER)
}

/// The events of `cache` that `request` asks for; ends at its timeout or with `end`.
pub(crate) fn watch(
    cache: Arc<WatchCache>,
    request: WatchRequest,
    end: CancellationToken,
) -> BoxStream<'static, Event> {
    let now = Instant::now();
    cache.counts().initial.inc_by(request.initial.len() as u64);
    let deadline = deadline(request.timeout);
    let timers = StreamTimers::new();
    timers.set(sleep_until(deadline).map(|()| Timer::End));
    timers.set(end.cancelled_owned().map(|()| Timer::End));
    let bookmarks = request.bookmarks.map(|every| {
        // A watch that is that short needs no bookmark before its end.
        let last = if request.timeout <= LAST_BOOKMARK { None } else { deadline.checked_sub(LAST_BOOKMARK) };
        let bookmarks = Bookmarks { every, last };
        timers.set(bookmarks.next(now));
        bookmarks
    });
    let watcher = Watcher {
        changed: cache.listen(),
        cache,
        position: request.since,
        known: request.known,
        behind: true,
        begun: false,
        shown: Shown { prefix: request.prefix, labels: request.labels, fields: request.fields },
        initial: request.initial.into_iter(),
        mark_initial_end: request.mark_initial_end,
        pending: VecDeque::new(),
        bookmarks,
        bookmark_due: false,
        timers,
        ended: false,
    };
    watcher.boxed()
}

struct Watcher {
    cache: Arc<WatchCache>,
    changed: Listener,
    /// Every event up to here has been looked at.
    position: Version,
    known: Version,
    /// Whether there may be more events than those. If not, `changed` says when there are.
    behind: bool,
    /// Whether it ever was where the cache is.
    begun: bool,
    shown: Shown,
    initial: vec::IntoIter<Arc<Stored>>,
    mark_initial_end: bool,
    pending: VecDeque<Event>,
    bookmarks: Option<Bookmarks>,
    /// Whether a bookmark comes once all events before it have.
    bookmark_due: bool,
    timers: StreamTimers<Timer>,
    ended: bool,
}

struct Shown {
    prefix: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

/// What a watch waits for beside events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    End,
    Bookmark,
}

#[derive(Clone, Copy)]
struct Bookmarks {
    every: Duration,
    /// When the one before the end is due, until it has been sent.
    last: Option<Instant>,
}

impl Bookmarks {
    /// Ends when the next is due.
    fn next(self, now: Instant) -> impl Future<Output = Timer> {
        sleep_until(self.last.map_or(now + self.every, |last| last.min(now + self.every))).map(|()| Timer::Bookmark)
    }

    /// One was due; waits for the next.
    fn sent(&mut self, timers: &StreamTimers<Timer>) {
        let now = Instant::now();
        self.last = self.last.filter(|last| now < *last);
        timers.set(self.next(now));
    }
}

impl Stream for Watcher {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        if let Some(object) = this.initial.next() {
            return Poll::Ready(Some(Event::Added(object)));
        }
        if std::mem::take(&mut this.mark_initial_end) {
            return Poll::Ready(Some(Event::Bookmark { version: this.position, initial_events_end: true }));
        }
        loop {
            if let Some(event) = this.pending.pop_front() {
                return Poll::Ready(Some(event));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            if this.behind {
                if let Err(TooOld { oldest }) = this.catch_up() {
                    this.ended = true;
                    // One that begins too far in the past never kept anybody waiting.
                    if this.begun {
                        this.cache.counts().terminated.inc();
                    }
                    return Poll::Ready(Some(Event::Error(too_old(this.position, oldest))));
                }
                // One that never catches up ends as well.
                if this.behind
                    && let Poll::Ready(alarm) = this.timers.poll_next(context)
                {
                    this.heard(alarm);
                }
            } else if std::mem::take(&mut this.bookmark_due) {
                if this.position > this.known {
                    return Poll::Ready(Some(Event::Bookmark { version: this.position, initial_events_end: false }));
                }
            } else if let Poll::Ready(alarm) = this.timers.poll_next(context) {
                this.heard(alarm);
            } else {
                ready!(this.changed.poll(context));
                this.behind = true;
            }
        }
    }
}

impl Watcher {
    fn catch_up(&mut self) -> Result<(), TooOld> {
        // Read before the events: once those are drained, nothing before this is left.
        let applied = self.cache.progress().applied();
        let Self { cache, position, shown, pending, .. } = self;
        let looked_at = cache.events_after(*position, BATCH, |event| {
            *position = event.version;
            pending.extend(shown.change(event));
        })?;
        if !self.begun {
            self.cache.counts().initial.inc_by(self.pending.len() as u64);
        }
        if looked_at < BATCH {
            self.behind = false;
            self.begun = true;
            self.position = self.position.max(applied);
        }
        Ok(())
    }

    fn heard(&mut self, alarm: Timer) {
        match (alarm, &mut self.bookmarks) {
            (Timer::End, _) => self.ended = true,
            (Timer::Bookmark, Some(bookmarks)) => {
                bookmarks.sent(&self.timers);
                self.bookmark_due = true;
                // What is applied by now may be further than what was last looked at.
                self.behind = true;
            }
            (Timer::Bookmark, None) => {}
        }
    }
}

impl Shown {
    /// What an event is to this watch: an object that leaves the selectors is deleted for it,
    /// one that enters them is added.
    fn change(&self, event: &CacheEvent) -> Option<Event> {
        let shown = |object: &&Arc<Stored>| {
            object.key.as_str().starts_with(&self.prefix) && object.matches(&self.labels, &self.fields)
        };
        // What does not decode is to a watch as if it were not there.
        let [old, new] = [&event.old, &event.new].map(|kept| kept.as_ref().and_then(CacheEntry::object).filter(shown));
        match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(Event::Added(new.clone())),
            (Some(_), Some(new)) => Some(Event::Modified(new.clone())),
            (Some(_), None) => event.gone().map(Event::Deleted),
        }
    }
}

/// 410 for a position that is no longer in the history.
fn too_old(asked: Version, oldest: Version) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}
