//! The stream of records: a watch of etcd that resumes after each interruption.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use stoa_machinery::log::{Change, LogError, Origin, Record, RecordStream, Version};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tonic::{Status, Streaming};

use super::{
    Shared,
    append::version,
    client::unavailable,
    keys::Note,
    proto::{Event, Headed as _, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse},
};

/// The time of silence after which a watch is asked for its progress, and after as long again it is restarted.
const STILL: Duration = Duration::from_secs(10);
/// The timeout of a search in the history for a known record.
const SEARCH: Duration = Duration::from_secs(5);
/// The longest wait before a watch that broke off is taken up again.
const RETRY: Duration = Duration::from_secs(1);

/// Everything after `since`, without an end.
pub(super) async fn follow(shared: Arc<Shared>, since: Version) -> Result<RecordStream, LogError> {
    let mut follower = Follower {
        asked: since,
        done: revision(since),
        watch: None,
        pieces: Vec::new(),
        ready: VecDeque::new(),
        shared,
    };
    follower.check().await?;
    Ok(stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next().await {
            Ok(record) => Some((Ok(record), Some(follower))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}

fn revision(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX - 1)
}

struct Follower {
    shared: Arc<Shared>,
    /// The version of the last record that was given away, or where it began.
    asked: Version,
    /// The newest processed revision.
    done: i64,
    watch: Option<Watch>,
    /// The beginning of a response that comes in pieces.
    pieces: Vec<Event>,
    ready: VecDeque<Record>,
}

struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    /// Whether it was asked if it is alive.
    asked: bool,
}

impl Follower {
    /// Rejects a compacted revision. A watch alone would not: etcd keeps the events of the very revision of the compaction.
    async fn check(&mut self) -> Result<(), LogError> {
        if self.done == 0 || !self.shared.is_compacted_at(self.done).await? {
            return Ok(());
        }
        let compacted = self.shared.compacted().await?;
        self.missed(compacted).await
    }

    /// The history before `compacted` was dropped, which matters only if it had records.
    async fn missed(&mut self, compacted: i64) -> Result<(), LogError> {
        let (head, now) = self.shared.read_head().await?;
        if revision(head) > self.done {
            return Err(LogError::Expired { asked: self.asked, oldest: version(compacted) });
        }
        self.done = now;
        Ok(())
    }

    async fn next(&mut self) -> Result<Record, LogError> {
        let mut wait = Duration::ZERO;
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.asked = record.version;
                return Ok(record);
            }
            match self.advance().await {
                Ok(true) => wait = Duration::ZERO,
                Ok(false) => {}
                Err(Broken::For(error)) => return Err(error),
                Err(Broken::Off(status)) => {
                    tracing::warn!(%status, since = self.done, "a watch of etcd's broke off and is taken up again");
                    self.shared.client.leave_current(&status);
                    self.watch = None;
                    self.pieces.clear();
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2 + Duration::from_millis(20)).min(RETRY);
                }
            }
        }
    }

    /// Takes the next response; says whether there was one.
    async fn advance(&mut self) -> Result<bool, Broken> {
        let Some(watch) = &mut self.watch else {
            let (key, range_end) = self.shared.keys.log_range();
            let (requests, responses) =
                self.shared.client.watch(create(key, range_end, self.done + 1)).await.map_err(Broken::Off)?;
            self.watch = Some(Watch { requests, responses, asked: false });
            return Ok(false);
        };
        let Ok(response) = timeout(STILL, watch.responses.message()).await else {
            if std::mem::replace(&mut watch.asked, true) {
                return Err(Broken::Off(Status::deadline_exceeded("the watch is silent")));
            }
            let request = WatchRequest { create: None, progress: Some(WatchProgressRequest {}) };
            return match watch.requests.try_send(request) {
                Ok(()) => Ok(false),
                Err(_) => Err(Broken::Off(Status::unavailable("the watch takes no requests"))),
            };
        };
        let response = response.map_err(Broken::Off)?.ok_or_else(|| Broken::Off(Status::unavailable("it ended")))?;
        watch.asked = false;
        self.take(response).await?;
        Ok(true)
    }

    async fn take(&mut self, response: WatchResponse) -> Result<(), Broken> {
        let told = response.revision();
        self.shared.client.observe(told);
        if response.canceled && response.compact_revision > 0 {
            self.watch = None;
            return self.missed(response.compact_revision).await.map_err(Broken::For);
        }
        if response.canceled {
            return Err(Broken::Off(Status::unavailable(response.cancel_reason)));
        }
        if response.created {
            return Ok(());
        }
        if response.events.is_empty() && self.pieces.is_empty() {
            // Nothing of ours has happened up to there.
            self.shared.client.metrics.bookmarks.inc();
            self.done = self.done.max(told);
            return Ok(());
        }
        self.pieces.extend(response.events);
        if response.fragment {
            return Ok(());
        }
        for record in records(&self.shared, std::mem::take(&mut self.pieces)).map_err(Broken::For)? {
            self.done = self.done.max(revision(record.version));
            self.shared.client.metrics.received(record.key.as_str());
            self.ready.push_back(record);
        }
        Ok(())
    }
}

/// Why a watch does not go on.
enum Broken {
    /// It can be taken up again.
    Off(Status),
    /// It cannot.
    For(LogError),
}

fn create(key: Bytes, range_end: Bytes, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { key, range_end, start_revision, progress_notify: true, fragment: true }
}

/// Joins the events of each revision to one record. Whole revisions only.
fn records(shared: &Shared, events: Vec<Event>) -> Result<Vec<Record>, LogError> {
    let keys = &shared.keys;
    let mut records = Vec::new();
    let mut events = events.into_iter().filter_map(|event| Some((event.is_delete(), event.kv?))).peekable();
    while let Some((_, first)) = events.peek() {
        let at = first.mod_revision;
        let mut note = None;
        let mut changed = None;
        while let Some((is_delete, kv)) = events.next_if(|(_, kv)| kv.mod_revision == at) {
            if kv.key == keys.head {
                let decoded = Note::decode(&kv.value);
                note = Some(decoded.map_err(|e| LogError::Corrupt(format!("the note of version {at}: {e}")))?);
            } else if let Some(key) = keys.key_of(&kv.key) {
                let change = match is_delete {
                    true => Change::Delete,
                    // Copied, so that one value does not keep the whole response in memory.
                    false => Change::Put(Bytes::copy_from_slice(&kv.value)),
                };
                changed = Some((key, change));
            }
        }
        let (note, key, change) = match (note, changed) {
            (Some(note), Some((key, change))) if note.key == key => (Some(note), key, change),
            // It was not there before either.
            (Some(note), None) if note.deleted => (Some(note.clone()), note.key, Change::Delete),
            (None, Some((key, change))) => {
                tracing::warn!(%key, version = at, "somebody other than the log has written to it");
                (None, key, change)
            }
            (Some(note), _) => return Err(LogError::Corrupt(format!("version {at} has no value for {}", note.key))),
            (None, None) => continue,
        };
        let (origin, time_ms) = note.map_or((Origin::default(), 0), |note| (note.origin, note.time_ms));
        records.push(Record { version: version(at), key, change, origin, time_ms });
    }
    Ok(records)
}

impl Shared {
    /// The version of the write `id` after revision `since` and not after `head`, a revision at which there was a write.
    pub(super) async fn find_in_history(&self, id: &str, since: i64, head: i64) -> Result<Option<Version>, Status> {
        let deadline = Instant::now() + SEARCH;
        let late = || Status::deadline_exceeded("the history did not come in time");
        let mut create = create(self.keys.head.clone(), Bytes::new(), since + 1);
        create.fragment = false;
        let (_requests, mut responses) = self.client.watch(create).await?;
        loop {
            let response = timeout_at(deadline, responses.message()).await.map_err(|_| late())??;
            let response = response.ok_or_else(|| Status::unavailable("it ended"))?;
            if response.canceled && response.compact_revision > 0 {
                // It is unknown by now.
                return Err(Status::out_of_range(response.cancel_reason));
            }
            if response.canceled {
                return Err(Status::unavailable(response.cancel_reason));
            }
            for kv in response.events.into_iter().filter_map(|event| event.kv) {
                if Note::decode(&kv.value).is_ok_and(|note| note.id == id) {
                    return Ok(Some(version(kv.mod_revision)));
                }
                if kv.mod_revision >= head {
                    return Ok(None);
                }
            }
        }
    }

    /// The revision of the last compaction.
    pub(super) async fn compacted(&self) -> Result<i64, LogError> {
        let mut patience = self.client.patience();
        loop {
            let asked = async {
                let (_requests, mut responses) =
                    self.client.watch(create(self.keys.head.clone(), Bytes::new(), 1)).await?;
                while let Some(response) = responses.message().await? {
                    if response.canceled {
                        return Ok(response.compact_revision);
                    }
                    if !response.created {
                        return Ok(0);
                    }
                }
                Err(Status::unavailable("it ended"))
            };
            let answer = timeout(SEARCH, asked).await;
            match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the watch is silent"))) {
                Ok(revision) => return Ok(revision),
                Err(status) => {
                    if !patience.wait().await {
                        return Err(unavailable(status));
                    }
                }
            }
        }
    }
}
