//! Lets go of history that no watch can ask for any more.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use stoa_machinery::{Version, log::Log};
use stoa_storage::git::GitStatus;
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

/// Up to where the history takes too much memory; nothing while it does not.
fn too_large(log: &dyn Log) -> Version {
    log.excess(2 * MEMORY).and_then(|_| log.excess(MEMORY)).unwrap_or_default()
}

/// The heads of the log at earlier looks, oldest first.
#[derive(Default)]
struct Heads(VecDeque<(Instant, Version)>);

impl Heads {
    /// Up to where nobody is to watch from any more, by age and number.
    async fn too_old(&mut self, log: &dyn Log, history: HistoryOptions) -> Version {
        let Ok(head) = log.head().await else { return Version::default() };
        let now = Instant::now();
        self.0.push_back((now, head));
        let mut old = Version::default();
        while let Some((_, version)) = self.0.pop_front_if(|(at, _)| now.duration_since(*at) > history.age()) {
            old = version;
        }
        if old == Version::default() {
            return old;
        }
        log.before_last(history.records()).await.map_or(Version::default(), |kept| old.min(kept))
    }
}

#[cfg(test)]
mod tests {
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
            let task = tokio::spawn(run(log.clone(), history, status, end.clone()));
            let begin = oldest(&*log).await;
            for _ in 0..130 {
                append(&*log, 1).await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            let expected = if goes { log.head().await.unwrap().0 - 100 } else { begin };
            assert_eq!(oldest(&*log).await, expected, "of {history_seconds} s");
            end.cancel();
            task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn large_history_goes_before_its_time_but_not_what_is_not_in_git() {
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
