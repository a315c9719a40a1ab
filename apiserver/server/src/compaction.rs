//! Lets go of history that no watch can ask for any more.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use stoa_machinery::{Version, log::Log};
use stoa_storage::git::GitStatus;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// At least this many records can be watched from.
const RECORDS: u64 = 100_000;
/// And at least this long ago.
const AGE: Duration = Duration::from_secs(300);
/// How often to look.
const LOOK: Duration = Duration::from_secs(30);

/// Compacts the log again and again until the token ends, but never past what is in Git.
pub(crate) async fn run(log: Arc<dyn Log>, git: watch::Receiver<GitStatus>, end: CancellationToken) {
    // The head at earlier looks, oldest first.
    let mut heads: VecDeque<(Instant, Version)> = VecDeque::new();
    while end.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        let Ok(head) = log.head().await else { continue };
        let now = Instant::now();
        heads.push_back((now, head));
        let mut old = None;
        while heads.front().is_some_and(|(at, _)| now.duration_since(*at) > AGE) {
            old = heads.pop_front().map(|(_, version)| version);
        }
        let Some(old) = old else { continue };
        let safe = git.borrow().safe;
        let before = Version(old.0.min(head.0.saturating_sub(RECORDS)).min(safe.0));
        if before.0 == 0 {
            continue;
        }
        if let Err(error) = log.compact(before).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the log is not compacted");
        }
    }
}
