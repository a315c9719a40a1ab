//! The log of one replica, on local files.
//!
//! Start at [`LocalLog::open`]. One process at a time has the directory, by a file lock. A single
//! thread (`writer`) turns concurrent writes into batches with one sync each; readers work on
//! persistent maps in memory (`state`) and never wait for it. `files` reads everything back after
//! a restart or a crash, `codec` is the format.

mod codec;
mod disk;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod state;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    collections::VecDeque,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, RwLock};
use stoa_machinery::log::{Change, Entry, Key, Lease, Log, LogError, RecordStream, Snapshot, Version, Write};
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use self::disk::volume_size;
pub use self::disk::{Directory, Disk, DiskFile};
pub use self::disk::{create_private_dir, require_room_at, sync_dir};
use self::{
    codec::SnapshotStart,
    files::{Segment, unavailable},
    state::{History, State, View, under},
    writer::{Reply, Request, Writer},
};
use crate::clock::{Clock, SystemClock};

/// The most requests that wait for the writer. Further requests wait for a slot.
const QUEUE: usize = 4096;
/// The records that a follower reads at a time. Few under test, so that it reads several times.
const FOLLOW_CHUNK: usize = if cfg!(test) { 4 } else { 256 };
/// The largest value, in bytes. Anything near it belongs into a document.
const MAX_VALUE: usize = 256 << 20;

/// Settings of a [`LocalLog`].
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// A segment file is closed when it is this long, in bytes.
    pub segment_bytes: u64,
    /// The clock for the times of records and for leases.
    pub clock: Arc<dyn Clock>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, clock: Arc::new(SystemClock) }
    }
}

/// The published state: durable records alone.
#[derive(Debug)]
struct Published {
    state: State,
    history: History,
}

#[derive(Clone, Copy, Debug)]
struct Tip {
    head: Version,
    closed: bool,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    options: LocalOptions,
    clock: Arc<dyn Clock>,
    published: RwLock<Published>,
    tip: watch::Sender<Tip>,
    segments: Mutex<Vec<Segment>>,
    /// Locked while a snapshot is written and replaced files are removed.
    compaction: Mutex<()>,
    /// Whether it rejects writes because a sync failed.
    failed: AtomicBool,
    /// Excludes other processes until the last user of the files is dropped.
    _lock: Box<dyn Any + Send + Sync>,
}

/// A [`Log`] in a directory of the machine.
///
/// Dropping it waits for the batch that is being written and lets the directory go.
#[derive(Debug)]
pub struct LocalLog {
    shared: Arc<Shared>,
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl LocalLog {
    /// Opens the log in the directory at `path`, or starts one where there is none.
    ///
    /// # Errors
    ///
    /// [`LogError::Unavailable`] when another process has it open or the files cannot be read or
    /// written. [`LogError::Corrupt`] when what is there is damaged anywhere but in a write that
    /// was never acknowledged; nothing is changed then.
    pub fn open(path: impl AsRef<Path>, options: LocalOptions) -> Result<Self, LogError> {
        let directory = Directory::open(path.as_ref()).map_err(unavailable)?;
        Self::open_on(Arc::new(directory), options)
    }

    /// [`open`](Self::open) on any [`Disk`].
    pub fn open_on(disk: Arc<dyn Disk>, options: LocalOptions) -> Result<Self, LogError> {
        let (mut log, writer, requests) = Self::without_thread(disk, options)?;
        let thread = std::thread::Builder::new().name("log-writer".to_owned());
        log.writer = Some(thread.spawn(move || writer.run(requests)).map_err(unavailable)?);
        Ok(log)
    }

    /// The log with a writer that somebody has to run.
    fn without_thread(
        disk: Arc<dyn Disk>,
        options: LocalOptions,
    ) -> Result<(Self, Writer, mpsc::Receiver<Request>), LogError> {
        let lock = disk.lock().map_err(unavailable)?;
        let mut recovered = files::recover(disk.as_ref())?;
        recovered.state.extend_leases(options.clock.steady_ms());
        let state = &recovered.state;
        tracing::info!(
            head = %state.head,
            oldest = %recovered.history.oldest,
            keys = state.values.len(),
            segments = recovered.segments.len(),
            cut = recovered.cut,
            "log opened"
        );
        let head = state.head;
        let shared = Arc::new(Shared {
            disk,
            clock: Arc::clone(&options.clock),
            options,
            published: RwLock::new(Published { state: recovered.state, history: recovered.history }),
            tip: watch::Sender::new(Tip { head, closed: false }),
            segments: Mutex::new(recovered.segments),
            compaction: Mutex::new(()),
            failed: AtomicBool::new(false),
            _lock: lock,
        });
        let (requests, receiver) = mpsc::channel(QUEUE);
        let writer = Writer { shared: Arc::clone(&shared), file: recovered.file, length: recovered.length };
        Ok((Self { shared, requests: Some(requests), writer: None }, writer, receiver))
    }

    /// The oldest version that can be read.
    pub fn oldest(&self) -> Version {
        self.shared.published.read().history.oldest
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, LogError> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().expect("taken only by drop");
        // The permit comes first: from here on the request is made whole, or not at all.
        let permit = requests.reserve().await.map_err(unavailable)?;
        permit.send(request(reply));
        answer.await.map_err(unavailable)?
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so, and there is nothing left to wait for.
            let _ = writer.join();
        }
        self.shared.tip.send_modify(|tip| tip.closed = true);
    }
}

#[async_trait]
impl Log for LocalLog {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        let origin = &write.origin;
        let value = if let Change::Put(value) = &write.change { value.len() } else { 0 };
        let length = value + write.key.as_str().len() + origin.user.len() + origin.verb.len() + origin.message.len();
        if length > MAX_VALUE {
            return Err(LogError::TooLarge { size: length, limit: format!("{MAX_VALUE} bytes are the limit") });
        }
        self.ask(|reply| Request::Append(Box::new(write), reply)).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        // Not the tip, which hears of a batch after those who read.
        Ok(self.shared.published.read().state.head)
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        Ok(self.shared.published.read().state.values.get(key).map(|current| current.entry(key)))
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        let published = self.shared.published.read();
        let head = published.state.head;
        let version = at.unwrap_or(head);
        let entries = if version == head {
            let values = published.state.values.clone();
            drop(published);
            under(&values, prefix).map(|(key, current)| current.entry(key)).collect()
        } else {
            let view = published.history.view(version, &published.state)?;
            drop(published);
            view.scan(prefix)
        };
        Ok(Snapshot { version, entries })
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        self.shared.published.read().history.after(since, 0)?;
        let follower = Follower {
            shared: Arc::clone(&self.shared),
            tip: self.shared.tip.subscribe(),
            since,
            taken: VecDeque::new(),
        };
        Ok(stream::unfold(Some(follower), |follower| async move {
            let mut follower = follower?;
            match follower.next().await {
                Ok(record) => Some((Ok(record), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.compact(before)).await.map_err(unavailable)?
    }

    fn excess(&self, bytes: usize) -> Option<Version> {
        self.shared.published.read().history.excess(bytes)
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.ask(|reply| Request::Acquire { name, holder, ttl, reply }).await
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        self.ask(|reply| Request::Renew(lease.clone(), reply)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.ask(|reply| Request::Release(lease.clone(), reply)).await
    }
}

/// One reader of the log's records.
struct Follower {
    shared: Arc<Shared>,
    tip: watch::Receiver<Tip>,
    since: Version,
    taken: VecDeque<stoa_machinery::log::Record>,
}

impl Follower {
    async fn next(&mut self) -> Result<stoa_machinery::log::Record, LogError> {
        loop {
            if let Some(record) = self.taken.pop_front() {
                self.since = record.version;
                return Ok(record);
            }
            let tip = *self.tip.borrow_and_update();
            self.taken = self.shared.published.read().history.after(self.since, FOLLOW_CHUNK)?.into();
            if !self.taken.is_empty() {
                continue;
            }
            if tip.closed {
                return Err(unavailable("the log was closed"));
            }
            self.tip.changed().await.map_err(unavailable)?;
        }
    }
}

/// The values as of a version, and the leases of now.
struct LoadedSnapshot {
    start: SnapshotStart,
    view: View,
    state: State,
}

impl Shared {
    /// Writes a snapshot at `before`, drops older history, and removes its files.
    fn compact(&self, before: Version) -> Result<(), LogError> {
        let _one_at_a_time = self.compaction.lock();
        self.kept(before)?.map_or(Ok(()), |kept| self.compact_to(kept))
    }

    /// The state at `before`; `None` when that history was dropped already.
    fn kept(&self, before: Version) -> Result<Option<LoadedSnapshot>, LogError> {
        let published = self.published.read();
        let before = before.min(published.state.head);
        if before <= published.history.oldest {
            return Ok(None);
        }
        let view = published.history.view(before, &published.state)?;
        let state = published.state.clone();
        let start = SnapshotStart { version: before, batch: state.batch, token: state.token };
        Ok(Some(LoadedSnapshot { start, view, state }))
    }

    /// Replaces older history by a snapshot, while the writer continues.
    fn compact_to(&self, LoadedSnapshot { start, view, state }: LoadedSnapshot) -> Result<(), LogError> {
        files::write_snapshot(self.disk.as_ref(), start, &view.scan(""), &state).map_err(unavailable)?;
        self.published.write().history.forget(start.version);
        files::retire_snapshots(self.disk.as_ref(), start.version).map_err(unavailable)?;
        self.retire_segments(start).map_err(unavailable)
    }

    fn retire_segments(&self, start: SnapshotStart) -> std::io::Result<()> {
        loop {
            let oldest = match self.segments.lock().as_slice() {
                [oldest, next, ..] if next.continues(start) => oldest.name(),
                _ => return Ok(()),
            };
            self.disk.remove(&oldest)?;
            self.segments.lock().remove(0);
            // One at a time, so that a crash leaves no gap between those that are left.
            self.disk.sync_directory()?;
        }
    }
}
