//! A watch: the events of a cache that one client asked for.
//!
//! A watch holds a position in the cache's history and nothing else, so that any number of slow
//! ones cost a writer nothing. One that falls out of the window ends with 410 `Expired`.

use std::{
    collections::{VecDeque, vec_deque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use tokio::{sync::watch as signal, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{CacheEvent, Stored, TooOld, WatchCache};
use crate::{
    log::Version,
    registry::Event,
    selector::{FieldSelector, LabelSelector},
    status::ApiError,
};

/// How many events are taken from the history at a time, so that its lock is held only shortly.
const BATCH: usize = 128;
/// How long before its end a watch gets a last bookmark, so that the next one begins close by.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a timeout past the end of time counts as.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a watch shows, and from where on.
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
    /// How often a bookmark comes, if at all.
    pub(crate) bookmarks: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// The events of `cache` that `request` asks for; ends at its timeout or with `end`.
pub(crate) fn watch(
    cache: Arc<WatchCache>,
    request: WatchRequest,
    end: CancellationToken,
) -> BoxStream<'static, Event> {
    let now = Instant::now();
    let watcher = Watcher {
        changed: cache.subscribe(),
        cache,
        position: request.since,
        deadline: now.checked_add(request.timeout).unwrap_or(now + FOREVER),
        bookmarks: request.bookmarks.map(|every| Bookmarks {
            every,
            next: now + every,
            // One that short needs none.
            last_sent: request.timeout <= LAST_BOOKMARK,
        }),
        initial: VecDeque::from(request.initial).into_iter(),
        mark_initial_end: request.mark_initial_end,
        prefix: request.prefix,
        labels: request.labels,
        fields: request.fields,
        pending: VecDeque::new(),
        ended: false,
        end,
    };
    stream::unfold(watcher, |mut watcher| async { watcher.next().await.map(|event| (event, watcher)) }).boxed()
}

#[derive(Debug)]
struct Watcher {
    cache: Arc<WatchCache>,
    changed: signal::Receiver<Version>,
    /// Every event up to here has been looked at.
    position: Version,
    prefix: String,
    labels: LabelSelector,
    fields: FieldSelector,
    initial: vec_deque::IntoIter<Arc<Stored>>,
    mark_initial_end: bool,
    pending: VecDeque<Event>,
    bookmarks: Option<Bookmarks>,
    deadline: Instant,
    end: CancellationToken,
    ended: bool,
}

#[derive(Debug)]
struct Bookmarks {
    every: Duration,
    next: Instant,
    /// Whether the one before the end has been sent.
    last_sent: bool,
}

impl Bookmarks {
    fn due(&self, deadline: Instant) -> Instant {
        match deadline.checked_sub(LAST_BOOKMARK) {
            Some(last) if !self.last_sent => self.next.min(last),
            _ => self.next,
        }
    }

    fn sent(&mut self, now: Instant, deadline: Instant) {
        self.next = now + self.every;
        self.last_sent |= now + LAST_BOOKMARK >= deadline;
    }
}

impl Watcher {
    async fn next(&mut self) -> Option<Event> {
        if let Some(object) = self.initial.next() {
            return Some(Event::Added(object));
        }
        if std::mem::take(&mut self.mark_initial_end) {
            return Some(Event::Bookmark { version: self.position, initial_events_end: true });
        }
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.ended || self.end.is_cancelled() || Instant::now() >= self.deadline {
                return None;
            }
            self.changed.borrow_and_update();
            // Read before the events: once those are drained, nothing before this is left.
            let applied = self.cache.progress().applied();
            match self.cache.events_after(self.position, BATCH) {
                Ok(events) if events.is_empty() => self.position = self.position.max(applied),
                Ok(events) => {
                    for event in &events {
                        self.position = event.version;
                        let change = self.change(event);
                        self.pending.extend(change);
                    }
                    continue;
                }
                Err(TooOld { oldest }) => {
                    self.ended = true;
                    return Some(Event::Error(too_old(self.position, oldest)));
                }
            }
            let bookmark_due = self.bookmarks.as_ref().map(|bookmarks| bookmarks.due(self.deadline));
            tokio::select! {
                biased;
                () = self.end.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => return None,
                changed = self.changed.changed() => if changed.is_err() { return None },
                () = sleep_until(bookmark_due) => {
                    if let Some(bookmarks) = &mut self.bookmarks {
                        bookmarks.sent(Instant::now(), self.deadline);
                    }
                    return Some(Event::Bookmark { version: self.position, initial_events_end: false });
                }
            }
        }
    }

    /// What an event is to this watch: an object that leaves the selectors is deleted for it,
    /// one that enters them is added.
    fn change(&self, event: &CacheEvent) -> Option<Event> {
        let shown = |object: &&Arc<Stored>| {
            object.key.as_str().starts_with(&self.prefix) && object.matches(&self.labels, &self.fields)
        };
        match (event.old.as_ref().filter(shown), event.new.as_ref().filter(shown)) {
            (None, None) => None,
            (None, Some(new)) => Some(Event::Added(new.clone())),
            (Some(_), Some(new)) => Some(Event::Modified(new.clone())),
            (Some(_), None) => event.gone().map(Event::Deleted),
        }
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// 410 for a position that is no longer in the history.
fn too_old(asked: Version, oldest: Version) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}
