//! Compacts history that no watch can ask for any more.
//!
//! [`run`] is the leader's work. [`while_full`] runs in every replica, since a full etcd grants no lease to lead by.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use stoa_control_repo::{GitStatus, recorded_version};
use stoa_machinery::{Version, log::Log};
use stoa_storage::{EtcdLog, etcd::WAY_OUT_OF_FULL};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::options::HistoryOptions;

/// The history may not take more memory than this, in bytes, whatever else is to be kept: it is let grow to twice as much, so that large objects do not
/// cost a compaction each.
const MEMORY: usize = if cfg!(test) { 1000 } else { 256 << 20 };
/// How often to look; more often where less time is to be kept.
const LOOK: Duration = Duration::from_secs(30);
/// How often to look at the memory, which large objects take fast.
const LOOK_AT_MEMORY: Duration = Duration::from_secs(2);

/// Compacts the log again and again until the token ends, but never past what is in Git.
pub(crate) async fn run(
    log: Arc<dyn Log>,
    history: HistoryOptions,
    git: watch::Receiver<GitStatus>,
    end: CancellationToken,
) {
    let mut heads = Heads::default();
    let look = LOOK.min(history.age());
    let mut looked: Option<Instant> = None;
    while end.run_until_cancelled(tokio::time::sleep(LOOK_AT_MEMORY)).await.is_some() {
        let mut before = too_large(&*log);
        let safe = git.borrow().safe;
        if looked.is_none_or(|at| at.elapsed() >= look) {
            looked = Some(Instant::now());
            before = before.max(heads.too_old(&*log, history).await).min(safe);
        } else if before > safe {
            // Git is behind: what of it could go now is not worth a compaction every two seconds.
            continue;
        }
        if before == Version::default() {
            continue;
        }
        if let Err(error) = log.compact(before).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the log is not compacted");
        }
    }
}

/// Compacts a full etcd until the token ends, with or without a leader.
///
/// The bound is the leader's but for the number of records: a version that was the head [`HistoryOptions::age`] ago, and
/// none that is not in Git by the record in the log. Other replicas have read all up to such a version. A full etcd takes
/// no writes, so that only watches and pages of clients that are older than that begin anew.
pub(crate) async fn while_full(log: Arc<EtcdLog>, history: HistoryOptions, end: CancellationToken) {
    let etcd = Arc::clone(&log);
    let is_full = move || {
        let etcd = Arc::clone(&etcd);
        async move {
            match etcd.is_full().await {
                Ok(is_full) => Some(is_full),
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "whether etcd is full is not known");
                    None
                }
            }
        }
    };
    compact_while(is_full, log, history, end).await;
}

/// [`while_full`], for any log: `is_full` answers `None` where that is unknown.
async fn compact_while<F>(is_full: impl Fn() -> F, log: Arc<dyn Log>, history: HistoryOptions, end: CancellationToken)
where
    F: Future<Output = Option<bool>>,
{
    let mut heads = Heads::default();
    let (mut was_full, mut warned, mut compacted) = (false, false, Version::default());
    while end.run_until_cancelled(tokio::time::sleep(LOOK.min(history.age()))).await.is_some() {
        let is_full = is_full().await.unwrap_or(was_full);
        if is_full && !was_full {
            tracing::error!("{WAY_OUT_OF_FULL}. History older than {:?} is compacted meanwhile", history.age());
        } else if was_full && !is_full {
            tracing::info!("etcd takes writes again");
            warned = false;
        }
        was_full = is_full;
        let old = heads.older_than(&*log, history.age()).await;
        if !is_full || old == Version::default() {
            continue;
        }
        let safe = match recorded_version(&*log).await {
            Ok(safe) => safe,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a full etcd is not compacted: how much of the log is in Git is not known");
                continue;
            }
        };
        let before = old.min(safe);
        if safe < old && !warned {
            warned = true;
            tracing::warn!(version = %safe, "etcd is full, and is compacted no further: the control repository has records up to this version only");
        }
        if before <= compacted {
            continue;
        }
        match log.compact(before).await {
            Ok(()) => {
                compacted = before;
                tracing::warn!(%before, "etcd is full, and its history is compacted: defragment each member, then disarm the alarm");
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a full etcd is not compacted");
            }
        }
    }
}

/// Up to where the history takes too much memory; nothing while it does not.
fn too_large(log: &dyn Log) -> Version {
    log.excess(2 * MEMORY).and_then(|_| log.excess(MEMORY)).unwrap_or_default()
}

/// The heads of the log at earlier looks, oldest first.
#[derive(Default)]
struct Heads(VecDeque<(Instant, Version)>);

impl Heads {
    /// The newest head that is known to be older than `age`; 0 where there is none yet.
    async fn older_than(&mut self, log: &dyn Log, age: Duration) -> Version {
        let Ok(head) = log.head().await else { return Version::default() };
        let now = Instant::now();
        self.0.push_back((now, head));
        let mut old = Version::default();
        while let Some((_, version)) = self.0.pop_front_if(|(at, _)| now.duration_since(*at) > age) {
            old = version;
        }
        old
    }

    /// The version before which no watch may start, by age and number of records.
    async fn too_old(&mut self, log: &dyn Log, history: HistoryOptions) -> Version {
        let old = self.older_than(log, history.age()).await;
        if old == Version::default() {
            return old;
        }
        log.before_last(history.records()).await.map_or(Version::default(), |kept| old.min(kept))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use stoa_machinery::log::{Change, Expect, Key, Write};
    use stoa_storage::local::{LocalLog, LocalOptions};

    use super::*;

    async fn append(log: &dyn Log, bytes: usize) {
        let change = Change::Put(vec![b' '; bytes].into());
        log.append(Write::new(Key::new("/a"), Expect::Any, change)).await.unwrap();
    }

    /// The oldest version that can be followed from.
    async fn oldest(log: &dyn Log) -> u64 {
        let mut oldest = 0;
        while log.follow(Version(oldest)).await.is_err() {
            oldest += 1;
        }
        oldest
    }

    #[tokio::test(start_paused = true)]
    async fn history_that_is_long_and_old_enough_goes() {
        for (history_seconds, goes) in [(10, true), (1_000_000, false)] {
            let directory = tempfile::tempdir().unwrap();
            let log: Arc<dyn Log> = Arc::new(LocalLog::open(directory.path(), LocalOptions::default()).unwrap());
            let (_git, status) = watch::channel(GitStatus { safe: Version(1000), ..GitStatus::default() });
            let end = CancellationToken::new();
            let history = HistoryOptions { history_records: 100, history_seconds };
            let begin = oldest(&*log).await;
            // The log has a thread of its own: a timer that is there would have the clock run ahead while it writes.
            for _ in 0..130 {
                append(&*log, 1).await;
            }
            let task = tokio::spawn(run(log.clone(), history, status, end.clone()));
            tokio::time::sleep(Duration::from_secs(60)).await;
            let expected = if goes { log.head().await.unwrap().0 - 100 } else { begin };
            assert_eq!(oldest(&*log).await, expected, "of {history_seconds} s");
            end.cancel();
            task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn full_log_compacts_to_git_version_without_leader() {
        let directory = tempfile::tempdir().unwrap();
        let log: Arc<dyn Log> = Arc::new(LocalLog::open(directory.path(), LocalOptions::default()).unwrap());
        for _ in 0..20 {
            append(&*log, 1).await;
        }
        // Whatever number of records a leader keeps.
        let history = HistoryOptions { history_records: 100_000, history_seconds: 10 };
        let (full, end) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let (asked, by, until) = (full.clone(), log.clone(), end.clone());
        let is_full = move || std::future::ready(Some(asked.load(SeqCst)));
        let task = tokio::spawn(compact_while(is_full, by, history, until));
        let oldest = async || {
            tokio::time::sleep(Duration::from_secs(30)).await;
            oldest(&*log).await
        };
        let record = async |version: u64| {
            let value = format!(r#"{{"schemaVersion":1,"version":{version}}}"#).into_bytes();
            log.append(Write::new(Key::new("/stoa/git/control"), Expect::Any, Change::Put(value.into())))
                .await
                .unwrap();
        };
        record(12).await;
        let begin = oldest().await;
        assert!(begin < 12, "it was compacted before it was full");
        full.store(true, SeqCst);
        assert_eq!(oldest().await, 12);
        record(15).await;
        assert_eq!(oldest().await, 15);
        // What cannot be read bounds nothing, so that nothing is compacted.
        log.append(Write::new(Key::new("/stoa/git/control"), Expect::Any, Change::Put("{".into()))).await.unwrap();
        assert_eq!(oldest().await, 15);
        end.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn large_history_compacts_early_up_to_git_version() {
        let directory = tempfile::tempdir().unwrap();
        let log: Arc<dyn Log> = Arc::new(LocalLog::open(directory.path(), LocalOptions::default()).unwrap());
        for _ in 0..10 {
            append(&*log, 500).await;
        }
        let (git, status) = watch::channel(GitStatus { safe: Version(2), ..GitStatus::default() });
        let end = CancellationToken::new();
        let history = HistoryOptions { history_records: 100_000, history_seconds: 300 };
        let task = tokio::spawn(run(log.clone(), history, status, end.clone()));
        let oldest = async || {
            tokio::time::sleep(2 * LOOK_AT_MEMORY).await;
            oldest(&*log).await
        };
        assert_eq!(oldest().await, 2);
        git.send_modify(|git| git.safe = Version(10));
        assert_eq!(oldest().await, 8, "of the values replaced, two are left");
        end.cancel();
        task.await.unwrap();
    }
}
