//! Follows the log and main, and keeps the two in step.
//!
//! Start at [`GitProjector::run`]. Elsewhere: `session` is the work between two failures, and `retry` the delay after one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use stoa_machinery::{
    log::{Change, Fence, Log, LogError, Record, RecordStream, Version},
    outbound,
};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    GitError, Ingest, InvalidFile, Layout,
    remote::{RemoteError, RemoteOptions},
    repack,
    repository::MOST_ENTRIES,
    session::Session,
};
use stoa_storage::clock::{Clock, SystemClock};

/// The most records of one pack and one move of main.
const BATCH: usize = 1024;
/// The most records of one push to a remote. A push takes as long for few records as for many, and people wait longer for
/// it.
const REMOTE_BATCH: usize = 4096;
/// A batch with so many bytes takes no more records.
const BATCH_BYTES: usize = 64 << 20;
/// The number of lost races for main in a row after which the status reports an error.
const RACES: u32 = 10;

/// Settings of a [`GitProjector`].
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// The remote that has main; `None` when the repository itself has it.
    pub remote: Option<RemoteOptions>,
    /// The interval at which main of the repository itself is checked for commits of others.
    pub poll: Duration,
    /// The time for which a commit waits for others to share its pack.
    pub linger: Duration,
    /// The least time between two packs under constant writes: a pack has the whole tree of each folder that it changes, for
    /// one commit as for a hundred. Writes are on main within a second all the same. Main of a remote has a pace of its own.
    pub pace: Duration,
    /// The delay after a failure, and the first delay before blocked files are retried.
    pub retry: Duration,
    /// The time for which a push waits, once for all its files, for objects that appear by themselves, such as a namespace.
    pub patience: Duration,
    /// The interval at which the number of packs is checked.
    pub repack: Duration,
    /// The most tree entries that a walk counts to find the changes of a push. A push with more is rejected.
    pub most_entries: usize,
    /// Dates the commits that have no record.
    pub clock: Arc<dyn Clock>,
    /// The lease of the projector, where several could run. After its loss main does not move any more.
    pub fence: Option<Fence>,
}

impl Default for GitOptions {
    fn default() -> Self {
        Self {
            remote: None,
            poll: Duration::from_millis(500),
            linger: Duration::from_millis(50),
            pace: Duration::from_millis(800),
            retry: Duration::from_secs(1),
            patience: Duration::from_secs(5),
            repack: Duration::from_secs(30),
            most_entries: MOST_ENTRIES,
            clock: Arc::new(SystemClock),
            fence: None,
        }
    }
}

/// The progress of the projection, for readiness, metrics and people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitStatus {
    /// Each record up to here is in Git, or does not belong there.
    pub projected: Version,
    /// The log may be compacted up to here: a restart loses no commit then.
    pub safe: Version,
    /// The number of records that the projection has not read yet.
    pub backlog: u64,
    /// The newest processed commit on main, as 40 hexadecimal digits.
    pub commit: Option<String>,
    /// Commits made since the start.
    pub commits: u64,
    /// Pushes applied since the start.
    pub pushes: u64,
    /// The number of times that main was put back since the start, because commits were removed from it or a push exceeded a
    /// limit.
    pub refused: u64,
    /// Pushed files that were applied or rejected since the start.
    pub files: u64,
    /// Restarts since the start, because another writer moved main or because of a failure.
    pub restarts: u64,
    /// The rejected and blocked files, by path, as far as the record in the log has room for them.
    pub invalid: BTreeMap<String, InvalidFile>,
    /// The current error, while there is no progress.
    pub error: Option<String>,
    /// The current problem with the remote as one CamelCase word; see [`RemoteError::reason`].
    ///
    /// [`RemoteError::reason`]: super::RemoteError::reason
    pub remote_problem: Option<&'static str>,
    /// Pushes to the remote since the start, each with any number of commits.
    pub remote_pushes: u64,
}

/// Keeps the control repository in step with the log.
#[derive(Debug)]
pub struct GitProjector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub log: Arc<dyn Log>,
    pub layout: Arc<dyn Layout>,
    pub ingest: Arc<dyn Ingest>,
    pub options: GitOptions,
    pub path: PathBuf,
    pub status: watch::Sender<GitStatus>,
}

impl GitProjector {
    /// A projection of `log` into the bare repository at `path`, which [`run`](Self::run) makes where it is missing. At most
    /// one projector runs on a log.
    pub fn new(
        log: Arc<dyn Log>,
        path: impl AsRef<Path>,
        layout: Arc<dyn Layout>,
        ingest: Arc<dyn Ingest>,
        options: GitOptions,
    ) -> Self {
        let path = path.as_ref().to_owned();
        let status = watch::Sender::default();
        Self { shared: Arc::new(Shared { log, layout, ingest, options, path, status }) }
    }

    /// The status, and each change of it.
    pub fn status(&self) -> watch::Receiver<GitStatus> {
        self.shared.status.subscribe()
    }

    /// Runs until `stop`. The status reports failures, which are retried.
    ///
    /// It may be stopped at any point, also by dropping the future, and run again.
    pub async fn run(&self, stop: CancellationToken) {
        let repack = repack::keep_few(self.shared.path.clone(), self.shared.options.repack);
        let _repack = AbortOnDropHandle::new(tokio::spawn(repack));
        let (mut failures, mut lost) = (0_u32, 0);
        while !stop.is_cancelled() {
            let before = self.shared.status.borrow().commit.clone();
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = self.session() => result,
            };
            let Err(error) = result;
            let got_on = self.shared.status.borrow().commit != before;
            lost = match error {
                GitError::Raced | GitError::Remote(RemoteError::Raced) if got_on => 1,
                GitError::Raced | GitError::Remote(RemoteError::Raced) => lost + 1,
                _ => 0,
            };
            let delay = if (1..=RACES).contains(&lost) {
                self.shared.status.send_modify(|status| status.restarts += 1);
                // The other writer may come again.
                let is_first = lost == 1 && self.shared.options.remote.is_none();
                let longest = if is_first { Duration::ZERO } else { self.shared.options.retry };
                longest.mul_f64(rand::random_range(0.0..=1.0))
            } else {
                failures = if self.shared.status.borrow().error.is_none() { 0 } else { failures.saturating_add(1) };
                self.failed(&error).await;
                self.shared.options.delay(failures, &error)
            };
            stop.run_until_cancelled(tokio::time::sleep(delay)).await;
        }
    }

    /// Reports an error and the backlog.
    async fn failed(&self, error: &GitError) {
        tracing::error!(error = error as &dyn std::error::Error, "the projection to Git failed and will start again");
        let head = self.shared.log.head().await.ok();
        self.shared.status.send_modify(|status| {
            status.error = Some(outbound::causes(error));
            status.remote_problem = if let GitError::Remote(error) = error { Some(error.reason()) } else { None };
            status.restarts += 1;
            status.backlog = head.map_or(status.backlog, |head| head.0.saturating_sub(status.projected.0));
        });
    }

    /// Works until a failure, or until another writer moves main.
    async fn session(&self) -> Result<Infallible, GitError> {
        let mut session = Session::resume(Arc::clone(&self.shared)).await?;
        let records = self.shared.log.follow(session.version).await?;
        let options = &self.shared.options;
        let every = options.remote.as_ref().map_or(options.poll, |remote| remote.poll);
        let mut poll = tokio::time::interval_at(Instant::now() + every, every);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut feed = Feed { records, poll };
        let mut due = Instant::now();
        loop {
            session.caught_up_to(session.version).await?;
            let first = tokio::select! {
                record = feed.records.next() => record,
                _ = feed.poll.tick() => {
                    session.look_at_main().await?;
                    continue;
                }
                () = until(session.retry_due()) => {
                    session.retry_waiting().await?;
                    continue;
                }
            };
            due = due.max(session.rests_until);
            let batch = feed.batch(&mut session, first, due).await?;
            due = Instant::now() + options.pace;
            if !session.project(batch).await? {
                return Err(session.lost());
            }
        }
    }
}

/// The inputs of a session: the records of the log, and the times to check main.
struct Feed {
    records: RecordStream,
    poll: Interval,
}

impl Feed {
    /// The first record and those that follow soon, or before the next pack is due.
    async fn batch(
        &mut self,
        session: &mut Session,
        first: Option<Result<Record, LogError>>,
        due: Instant,
    ) -> Result<Vec<Record>, GitError> {
        let ended = || LogError::Unavailable("the log ended".into());
        let mut batch = vec![first.ok_or_else(ended)??];
        let mut bytes = size(&batch[0]);
        let options = &session.shared.options;
        let deadline = due.max(Instant::now() + options.linger);
        let most = if options.remote.is_some() { REMOTE_BATCH } else { BATCH };
        while batch.len() < most && bytes < BATCH_BYTES {
            let next = tokio::select! {
                next = tokio::time::timeout_at(deadline, self.records.next()) => next,
                // Commits of others on main do not wait for the batch, which goes on top of them then.
                _ = self.poll.tick() => {
                    session.look_at_main().await?;
                    continue;
                }
                () = until(session.retry_due()) => {
                    session.retry_waiting().await?;
                    continue;
                }
            };
            let Ok(next) = next else { break };
            let next = next.ok_or_else(ended)??;
            bytes += size(&next);
            batch.push(next);
        }
        Ok(batch)
    }
}

/// Waits until a time, or for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The size of the value of a record, in bytes.
fn size(record: &Record) -> usize {
    match &record.change {
        Change::Put(value) => value.len(),
        Change::Delete => 0,
    }
}
