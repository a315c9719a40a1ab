//! The delivery to one sink, as long as its spec stays the same.
//!
//! A delivery survives a crash: an event leaves the window when the endpoint took it or its dead letter is in
//! the log, and the recorded cursor never passes an event in the window. The cursor is written up to a second
//! later. A crash therefore repeats the deliveries of that second, with the same ids.
//!
//! Elsewhere: `start_cursor` has the first position, `sender` signs and posts, `retry_policy` says how often,
//! `sink_status` writes the status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, events::Kind};
use stoa_machinery::{
    Key, Version,
    log::{Change, Fence, LogError, Record},
    outbound,
};
use stoa_types::{NotificationSink, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    delivery::{Endpoint, Outcome},
    events::{Happened, Scope},
    feed::{self, Fed, Feed, FeedError},
    metrics::{self, Metrics},
    records::{Cursor, DeadLetter, Gap, RecordError, Records},
    selection::Selection,
    sender::{NO_KEY_AGE, Sender, Tried},
};
use crate::Services;
use crate::{
    inflight::{InFlight, Pending},
    retry_policy::{RejectedTypes, RetrySchedule},
    sink_status::{Problem, SinkStatus, earlier, tell},
    start_cursor::cursor,
};

/// How many dead letters are kept of a sink.
pub(super) const MOST_DEAD: usize = 1000;
/// The cursor is written this long after the one before, at the earliest.
const PERSIST: Duration = Duration::from_secs(1);
/// It is written though there was nothing to deliver when it is behind by so many versions, which is far less than the
/// history that is kept.
const BEHIND: u64 = 10_000;
/// The status is written this long after the one before, at the earliest.
const TELL: Duration = Duration::from_secs(2);
/// How often to look at the clock, for the lag.
const TICK: Duration = Duration::from_secs(5);
/// How long to wait after a failure of the log.
const RETRY: Duration = Duration::from_secs(1);
/// For how long answers are awaited when the term ends.
const ANSWERS: Duration = Duration::from_millis(500);
/// How long the last write may take then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Delivers to one sink.
pub(super) struct Worker {
    pub(super) services: Services,
    pub(super) metrics: Metrics,
    pub(super) fence: Option<Fence>,
    pub(super) sink: NotificationSink,
}

/// What makes it begin again, after a while.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error("records cannot be written")]
    Log(#[from] LogError),
}

impl Worker {
    /// Delivers until the token ends.
    pub(super) async fn run(self, end: CancellationToken) {
        let name = self.sink.name_any();
        while !end.is_cancelled() {
            let Err(stopped) = self.deliver(&end).await else { return };
            if let Stopped::Records(error @ RecordError::Unreadable(_)) = &stopped {
                tracing::error!(sink = name, %error, "nothing is delivered to a notification sink");
                let problem = (reason::UNREADABLE_STATE, error.to_string());
                tell(&self.services, &self.sink, &SinkStatus { problem: Some(problem), ..SinkStatus::default() }).await;
                return end.cancelled().await;
            }
            tracing::warn!(sink = name, error = outbound::causes(&stopped), "a notification sink begins again");
            end.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }

    async fn deliver(&self, end: &CancellationToken) -> Result<(), Stopped> {
        let mut delivery = Delivery::begin(self).await?;
        let mut tries: FuturesUnordered<BoxFuture<'_, Tried>> = FuturesUnordered::new();
        loop {
            while let Some(next) = delivery.window.start(Instant::now()) {
                tries.push(Box::pin(delivery.sender.clone().attempt(next.number, next.happened.clone())));
            }
            delivery.count();
            let wake = delivery.wake();
            tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(tried) = tries.next() => delivery.settle(tried).await?,
                fed = delivery.feed.next(), if delivery.window.has_room() => delivery.take(fed?).await?,
                () = tokio::time::sleep_until(wake) => {}
            }
            delivery.persist(false).await?;
            delivery.tell().await;
        }
        // What is answered soon need not be repeated by whoever goes on.
        let deadline = Instant::now() + ANSWERS;
        while let Ok(Some(tried)) = tokio::time::timeout_at(deadline, tries.next()).await {
            delivery.settle(tried).await?;
        }
        if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, delivery.persist(true)).await {
            tracing::debug!(sink = delivery.name, error = outbound::causes(&error), "the cursor stays behind");
        }
        Ok(())
    }
}

/// Says that nothing is sent for now. What happens meanwhile is sent later, also to a sink that is suspended from the first.
pub(super) async fn suspend(services: &Services, fence: Option<Fence>, sink: &NotificationSink) {
    let records = Records::new(services.log.clone(), &sink.uid().unwrap_or_default(), fence);
    if let Err(error) = cursor(&*services.log, &records, sink).await {
        tracing::warn!(sink = sink.name_any(), error = outbound::causes(&error), "where a sink begins is not recorded");
    }
    let change = |there: &mut NotificationSink| {
        if there.metadata.uid == sink.metadata.uid {
            let status = there.status.get_or_insert_default();
            let message = "delivery is suspended by spec.suspend";
            let generation = sink.metadata.generation;
            set_condition(&mut status.conditions, reason::READY, false, reason::SUSPENDED, message, generation);
        }
    };
    let Ok(sinks) = services.lookup.api::<NotificationSink>() else { return };
    if let Err(error) = sinks.update_status_with("", &sink.name_any(), change).await {
        tracing::warn!(sink = sink.name_any(), %error, "a status is not written");
    }
}

/// What is known of a sink while it is delivered to.
struct Delivery<'a> {
    worker: &'a Worker,
    name: String,
    selection: Selection,
    patience: RetrySchedule,
    rejected: RejectedTypes,
    sender: Sender,
    records: Records,
    feed: Feed,
    window: InFlight,
    /// As it will be written.
    cursor: Cursor,
    /// Which position was written, and when.
    written: (Version, Instant),
    /// Whether it has to be written.
    has_settled: bool,
    /// The dead letters, with the ids of their events.
    letters: BTreeMap<Key, String>,
    problem: Option<Problem>,
    told: Option<(SinkStatus, Instant)>,
}

impl<'a> Delivery<'a> {
    async fn begin(worker: &'a Worker) -> Result<Self, Stopped> {
        let Worker { services, sink, .. } = worker;
        let (name, uid) = (sink.name_any(), sink.uid().unwrap_or_default());
        let spec = &sink.spec;
        let records = Records::new(services.log.clone(), &uid, worker.fence.clone());
        let cursor = cursor(&*services.log, &records, sink).await?;
        let bundle = spec.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
        let tls = outbound::tls(bundle).or_else(|_| outbound::tls(&[])).expect("what the system trusts is no bundle");
        let sender = Sender {
            services: services.clone(),
            metrics: worker.metrics.clone(),
            name: name.clone(),
            endpoint: Endpoint {
                client: outbound::client(tls),
                uri: spec.url.parse().unwrap_or_default(),
                timeout: spec.timeout.parse().unwrap_or(Duration::from_secs(10)),
            },
            secret: spec.secret_ref.clone(),
            keys: Arc::default(),
        };
        let start = (cursor.position, cursor.time);
        let feed = Feed::new(services.log.clone(), services.lookup.clone(), &spec.source, records.dead_prefix(), start);
        let mut window = InFlight::new(cursor.settled.clone());
        let mut letters = BTreeMap::new();
        for (key, _, letter) in records.dead().await? {
            letters.insert(key.clone(), letter.event.id.clone());
            if let Some(since) = letter.redeliver {
                window.add_dead(again(letter), key, since);
            }
        }
        let problem = match sender.keys().await {
            Err(problem) => Some(problem),
            // What was amiss before a restart most likely still is.
            Ok(_) => earlier(sink),
        };
        Ok(Self {
            worker,
            name,
            selection: Selection::new(spec, services.lookup.clone()),
            patience: RetrySchedule::of(&spec.retry),
            rejected: RejectedTypes::default(),
            sender,
            records,
            feed,
            window,
            written: (cursor.position, Instant::now()),
            has_settled: false,
            cursor,
            letters,
            problem,
            told: None,
        })
    }

    /// Takes what was read.
    async fn take(&mut self, fed: Fed) -> Result<(), Stopped> {
        match fed {
            Fed::Happened(version, events) => {
                for (number, happened) in events.into_iter().enumerate() {
                    if self.is_wanted(&happened) {
                        self.window.add(happened, (version, number));
                    }
                }
            }
            Fed::Found(events) => {
                let holds = self.cursor.last_gap.as_ref().map_or(self.cursor.position, |gap| gap.from);
                for happened in events {
                    if self.is_wanted(&happened) {
                        self.window.add_found(happened, holds);
                    }
                }
            }
            Fed::Gap { from, to } => self.miss(from, to),
            Fed::Besides(Record { key, change: Change::Put(_), .. }) => {
                // It may have been delivered since, in this life or another.
                if let Some(letter) = self.records.letter(&key).await?
                    && let Some(since) = letter.redeliver
                {
                    self.window.add_dead(again(letter), key, since);
                }
            }
            Fed::Besides(Record { key, change: Change::Delete, .. }) => {
                // Another may have its number by now.
                if self.records.letter(&key).await?.is_none() {
                    self.letters.remove(&key);
                    self.window.drop_dead(&key);
                }
            }
        }
        Ok(())
    }

    /// Whether an event is to be delivered: it is asked for, and was not given up by an earlier life that got no further.
    fn is_wanted(&self, happened: &Happened) -> bool {
        self.selection.takes(happened) && !self.letters.values().any(|id| *id == happened.event.id)
    }

    /// Notes that history is gone, and tells the sink.
    fn miss(&mut self, from: Version, to: Version) {
        let Worker { services, sink, metrics, .. } = self.worker;
        let known = self.cursor.last_gap.clone().filter(|gap| gap.from == from);
        let gap = Gap { from, to, time: known.as_ref().map_or_else(|| services.now(), |gap| gap.time) };
        if known.is_none() {
            // After a crash on the way through it, it is the same gap.
            self.cursor.gaps += 1;
            metrics.gaps.with_label_values(&[&self.name]).inc();
            let message = format!(
                "history from version {from} to {to} expired; only events that the objects still show are delivered"
            );
            tracing::warn!(sink = self.name, %from, %to, "history was gone before a notification sink was told of it");
            services.recorder.record(sink, Kind::Warning, reason::EVENTS_MISSED, message);
        }
        let uid = sink.uid().unwrap_or_default();
        let happened = feed::gap((&self.name, &uid), from, to, gap.time, &sink.spec.source);
        self.cursor.last_gap = Some(gap);
        self.has_settled = true;
        self.window.add_found(happened, from);
    }

    /// Decides what becomes of an event that was tried.
    async fn settle(&mut self, tried: Tried) -> Result<(), Stopped> {
        let Tried { number, outcome, problem, begun } = tried;
        let now = self.worker.services.now();
        let Some(pending) = self.window.get_mut(number) else { return Ok(()) };
        // Without a key it was no try.
        pending.attempts += u32::from(problem.is_none());
        pending.doubted = match outcome {
            Outcome::Doubted { .. } => pending.doubted.or(Some(begun)),
            Outcome::Delivered | Outcome::Failed { .. } | Outcome::Refused { .. } => None,
        };
        let event_type = pending.happened.event.event_type.clone();
        let is_doubted = pending.doubted.is_some();
        let is_over = self.patience.is_over(pending, now) || is_doubted && self.rejected.contains(&event_type);
        let wait = self.patience.wait(pending.attempts);
        // Its number may be another's by now.
        let id = pending.happened.event.id.clone();
        let is_kept = |letters: &BTreeMap<Key, String>, key: &Key| letters.get(key) == Some(&id);
        let was_deleted = pending.dead.as_ref().is_some_and(|key| !is_kept(&self.letters, key));
        let (why, retry_after, is_over) = match outcome {
            Outcome::Delivered => {
                self.count_attempt(metrics::DELIVERED);
                self.rejected.deliver(&event_type);
                self.problem = None;
                self.has_settled = true;
                if let Some(Pending { dead: Some(key), .. }) = self.window.settle(number)
                    && is_kept(&self.letters, &key)
                {
                    self.records.remove_dead(key.clone()).await?;
                    self.letters.remove(&key);
                }
                return Ok(());
            }
            Outcome::Failed { why, .. } if problem.is_some() => (why, NO_KEY_AGE, is_over),
            Outcome::Failed { why, retry_after } => (why, retry_after.unwrap_or_default(), is_over),
            Outcome::Doubted { why } => (why, Duration::ZERO, is_over),
            Outcome::Refused { why } => (why, Duration::ZERO, true),
        };
        if was_deleted {
            self.window.settle(number);
            return Ok(());
        }
        self.complain(problem.unwrap_or_else(|| (reason::DELIVERY_FAILED, why.clone())));
        if is_over {
            self.count_attempt(metrics::DEAD);
            if is_doubted {
                self.rejected.give_up(&event_type);
            }
            return self.give_up(number, why, now).await;
        }
        self.count_attempt(metrics::RETRIED);
        self.window.put_off(number, wait.max(retry_after));
        Ok(())
    }

    fn complain(&mut self, problem: Problem) {
        if self.problem.as_ref() != Some(&problem) {
            let Worker { services, sink, .. } = self.worker;
            tracing::info!(sink = self.name, problem = problem.1, "an event is not delivered");
            services.recorder.record(sink, Kind::Warning, problem.0, problem.1.clone());
            self.problem = Some(problem);
        }
    }

    /// Keeps an event as a dead letter. It is in the log before the event leaves the window.
    async fn give_up(&mut self, number: u64, why: String, now: Timestamp) -> Result<(), Stopped> {
        let Some(pending) = self.window.get_mut(number) else { return Ok(()) };
        let Happened { event, lane, .. } = pending.happened.clone();
        let told = format!("{} of {} became a dead letter: {why}", event.event_type, event.subject);
        let id = event.id.clone();
        let letter = DeadLetter::new(event, lane, why, pending.attempts, now);
        let key = pending.dead.clone();
        let key = key.unwrap_or_else(|| {
            let last = self.letters.last_key_value().and_then(|(key, _)| self.records.number(key));
            self.records.dead_key(last.map_or(0, |last| last + 1))
        });
        self.records.write_dead(key.clone(), &letter).await?;
        self.letters.insert(key, id);
        self.window.settle(number);
        self.has_settled = true;
        let Worker { services, sink, .. } = self.worker;
        services.recorder.record(sink, Kind::Warning, reason::DEAD_LETTER, told);
        while self.letters.len() > MOST_DEAD {
            let Some(oldest) = self.letters.keys().find(|key| !self.window.has_dead(key)).cloned() else { break };
            self.records.remove_dead(oldest.clone()).await?;
            self.letters.remove(&oldest);
            self.cursor.dropped += 1;
        }
        Ok(())
    }

    /// Writes the cursor, if it is time to.
    async fn persist(&mut self, is_last: bool) -> Result<(), LogError> {
        let read = self.feed.position();
        let position = self.window.position(read);
        self.cursor.position = position;
        if position == read {
            self.cursor.time = self.feed.time();
        }
        self.window.forget(position);
        if self.is_behind() && (is_last || self.written.1.elapsed() >= PERSIST) {
            self.cursor.settled.clone_from(self.window.settled());
            self.records.write_cursor(&self.cursor).await?;
            self.written = (position, Instant::now());
            self.has_settled = false;
        }
        Ok(())
    }

    /// Whether the cursor that was written lacks what happened since, or so much was read that it is worth a write.
    fn is_behind(&self) -> bool {
        self.has_settled || self.cursor.position.0.saturating_sub(self.written.0.0) >= BEHIND
    }

    /// Writes the status, if there is something to tell.
    async fn tell(&mut self) {
        let standing = self.standing();
        let is_time = self.told.as_ref().is_none_or(|(told, at)| *told != standing && at.elapsed() >= TELL);
        if is_time {
            tell(&self.worker.services, &self.worker.sink, &standing).await;
            self.told = Some((standing, Instant::now()));
        }
    }

    fn standing(&self) -> SinkStatus {
        SinkStatus {
            problem: self.problem.clone(),
            dead: i64::try_from(self.letters.len()).unwrap_or(i64::MAX),
            dropped: self.cursor.dropped,
            gaps: self.cursor.gaps,
            last_gap: self.cursor.last_gap.clone(),
        }
    }

    /// When there is something to do, if nothing happens before that.
    fn wake(&self) -> Instant {
        let persist = self.is_behind().then(|| self.written.1 + PERSIST);
        let tell = self.told.as_ref().filter(|(told, _)| *told != self.standing()).map(|(_, at)| *at + TELL);
        let due = self.window.due();
        [persist, tell, due].into_iter().flatten().fold(Instant::now() + TICK, Instant::min)
    }

    fn count_attempt(&self, outcome: &str) {
        self.worker.metrics.attempts.with_label_values(&[&self.name, outcome]).inc();
    }

    fn count(&self) {
        let metrics = &self.worker.metrics;
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.pending.with_label_values(&[&self.name]).set(count(self.window.len()));
        metrics.dead_letters.with_label_values(&[&self.name]).set(count(self.letters.len()));
        let since = |oldest: Timestamp| self.worker.services.now().duration_since(oldest).as_secs_f64().max(0.0);
        metrics.lag.with_label_values(&[&self.name]).set(self.window.oldest().map_or(0.0, since));
    }
}

/// A dead letter that is delivered again.
fn again(letter: DeadLetter) -> Happened {
    Happened { event: letter.event, lane: letter.lane, scope: Scope::default() }
}
