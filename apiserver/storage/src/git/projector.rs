//! Follows the log and main, and keeps the two in step.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use stoa_machinery::log::{Change, Fence, Log, LogError, Record, RecordStream, Version};
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
    retry::{self, Looks},
    session::Session,
};
use crate::clock::{Clock, SystemClock};

/// How many records become commits with one pack and one move of main.
const BATCH: usize = 1024;
/// And so many one push to a remote, which takes as long for few as for many and is waited for longer.
const REMOTE_BATCH: usize = 4096;
/// A batch takes no more records once it has so many bytes.
const BATCH_BYTES: usize = 64 << 20;
/// So many races for main may be lost in a row before it is told.
const RACES: u32 = 10;

/// Settings of a [`GitProjector`].
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// The remote that has main, if it is not the repository itself.
    pub remote: Option<RemoteOptions>,
    /// How often main of the repository itself is looked at for commits of others.
    pub poll: Duration,
    /// How long a commit may wait for others to share its pack.
    pub linger: Duration,
    /// The least time between two packs while writes keep coming: a pack has the whole tree of each folder that it
    /// changes, whether by one commit or by a hundred. What is written is on main within a second all the same. Main of a
    /// remote has a pace of its own.
    pub pace: Duration,
    /// How long to wait after a failure, and at first before files that wait for something are tried again.
    pub retry: Duration,
    /// How long a push waits at most, once for all its files, for what comes by itself, such as a namespace.
    pub patience: Duration,
    /// How often it is looked whether packs have to be merged.
    pub repack: Duration,
    /// How many entries of the folders where objects have their files are looked at to find what a push changed. One with
    /// more is not applied.
    pub most_entries: usize,
    /// Dates the commits that no record stands behind.
    pub clock: Arc<dyn Clock>,
    /// The lease under which it runs, where several could. Once it is lost, main is moved no more.
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

/// How far the projection is, for readiness, metrics and people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitStatus {
    /// Every record up to here is in Git, or does not belong there.
    pub projected: Version,
    /// The log may be compacted up to here without a commit being lost in a restart.
    pub safe: Version,
    /// How many records of the log are still to be looked at.
    pub backlog: u64,
    /// The newest commit on main that is accounted for, as 40 hexadecimal digits.
    pub commit: Option<String>,
    /// Commits made since the start.
    pub commits: u64,
    /// Pushes applied since the start.
    pub pushes: u64,
    /// Times since the start that main was put back, because somebody took commits off it or a push changed more than is
    /// looked at.
    pub refused: u64,
    /// Pushed files applied, or refused, since the start.
    pub files: u64,
    /// Times that it had to start again, because somebody else moved main or because of a failure.
    pub restarts: u64,
    /// The files that were refused or wait for something, by path, as far as there is room for them in the log.
    pub invalid: BTreeMap<String, InvalidFile>,
    /// Why it is not getting on, while it is not.
    pub error: Option<String>,
    /// The same as one CamelCase word, while that is because of the remote; see [`RemoteError::reason`].
    ///
    /// [`RemoteError::reason`]: super::RemoteError::reason
    pub remote_problem: Option<&'static str>,
    /// Pushes to the remote since the start, each of which had any number of commits.
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
    /// A projection of `log` into the bare repository at `path`, which is made where it is missing
    /// by [`run`](Self::run). One projector at a time may run on a log.
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

    /// How far it is, now and whenever that changes.
    pub fn status(&self) -> watch::Receiver<GitStatus> {
        self.shared.status.subscribe()
    }

    /// Runs until `stop`. Failures show in the status, and are tried again.
    ///
    /// It may be stopped, or its future dropped, at any point, and run again.
    pub async fn run(&self, stop: CancellationToken) {
        let repack = repack::keep_few(self.shared.path.clone(), self.shared.options.repack);
        let _repack = AbortOnDropHandle::new(tokio::spawn(repack));
        let (mut failures, mut lost) = (retry::Failures::default(), 0);
        // Where main was before a try that found too much there, where that is known.
        let mut seen = None;
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
                // Whoever came first may come again.
                let is_first = lost == 1 && self.shared.options.remote.is_none();
                let longest = if is_first { Duration::ZERO } else { self.shared.options.retry };
                longest.mul_f64(rand::random_range(0.0..=1.0))
            } else {
                let before = failures.another(&error, self.shared.status.borrow().error.is_none());
                self.failed(&error).await;
                self.shared.options.delay(before, &error)
            };
            if !retry::is_too_much(&error) {
                seen = None;
                stop.run_until_cancelled(tokio::time::sleep(delay)).await;
                continue;
            }
            let (path, remote) = (&self.shared.path, &self.shared.options.remote);
            let main = || retry::main_now(path.clone(), remote.clone());
            let moves = retry::until_main_moves(delay, self.looks(), &mut seen, main);
            if stop.run_until_cancelled(moves).await == Some(true) {
                failures.main_moved();
            }
        }
    }

    /// How often main is looked at while nothing else can be done.
    fn looks(&self) -> Looks {
        let options = &self.shared.options;
        let (every, longest) =
            options.remote.as_ref().map_or((options.poll, options.retry), |remote| (remote.poll, remote.longest_retry));
        let every = every.max(options.retry);
        Looks { every, longest: longest.max(every) }
    }

    /// Says why it is not getting on, and how much waits for that.
    async fn failed(&self, error: &GitError) {
        tracing::error!(error = error as &dyn std::error::Error, "the projection to Git failed and will start again");
        let head = self.shared.log.head().await.ok();
        self.shared.status.send_modify(|status| {
            status.error = Some(chain(error));
            status.remote_problem = if let GitError::Remote(error) = error { Some(error.reason()) } else { None };
            status.restarts += 1;
            status.backlog = head.map_or(status.backlog, |head| head.0.saturating_sub(status.projected.0));
        });
    }

    /// Works until something fails, or somebody else moved main under it.
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

/// What a session goes by: the records of the log, and the times to look at main.
struct Feed {
    records: RecordStream,
    poll: Interval,
}

impl Feed {
    /// The first record and those that come soon after, or before the next pack is due.
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
                // What others put on main does not wait for the batch, which goes on top of it then.
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

/// Waits until then, or for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// How many bytes a record has put.
fn size(record: &Record) -> usize {
    match &record.change {
        Change::Put(value) => value.len(),
        Change::Delete => 0,
    }
}

/// The error and what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
