//! Files that are right and cannot be applied yet, because something else is in their way or what they need is not there.
//!
//! They are in the record beside those that are invalid, and keep others from writing their objects as those do: whoever
//! pushed them decided something of these, which holds once it can. A push has patience with all of its files together;
//! what still waits then is told, and tried again ever less often, so that many of them cost little.

use std::{ops::Bound, time::Duration};

use git2::Oid;
use stoa_machinery::backoff::Policy;
use tokio::time::Instant;

use super::{
    CommitInfo, GitError, InvalidFile,
    push::Refused,
    reader::{Content, Good, Reader},
    repository::FileChange,
    session::Session,
};

/// How long after the first try the next comes, while a push is patient. Each waits twice as long as the one before.
const LOOK: Duration = Duration::from_millis(50);
/// What waits is tried again at least so often.
const LONGEST: Duration = Duration::from_secs(60);
/// So long files are tried again at a time, and then everything else has its turn for as long.
const TURN: Duration = Duration::from_millis(200);

/// When what waits is tried again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    first: Duration,
    failures: u32,
    due: Instant,
    /// The file that was tried last, where there was no time for those after it.
    last: Option<String>,
}

impl Retry {
    /// After this time, and then ever less often.
    pub(super) fn soon(first: Duration) -> Self {
        Self { first, failures: 1, due: Instant::now() + first, last: None }
    }

    /// Goes on with the files after this one, or else begins anew after twice the time.
    fn later(&mut self, last: Option<String>) {
        let pause = match last {
            Some(_) => TURN,
            None => {
                self.failures = self.failures.saturating_add(1);
                Policy::new(self.first, LONGEST.max(self.first)).after(self.failures)
            }
        };
        self.due = Instant::now() + pause;
        self.last = last;
    }
}

/// What it takes to try a file again.
struct Again {
    /// The commit that was refused.
    commit: CommitInfo,
    /// What it says; nothing when it is removed.
    pushed: Option<Content>,
    good: Option<Good>,
}

impl Session {
    /// Tries for a while what of a push waits, such as for the namespace of an organization in the same push; then tells of
    /// what does so still.
    pub(super) async fn have_patience(&mut self, changes: &[FileChange], target: Oid) -> Result<(), GitError> {
        let deadline = Instant::now() + self.shared.options.patience;
        let (mut delay, mut refused) = (LOOK, Vec::new());
        while Instant::now() < deadline {
            tokio::time::sleep_until(deadline.min(Instant::now() + delay)).await;
            delay *= 2;
            let paths = changes.iter().map(|change| &change.path);
            let waiting: Vec<String> = paths.filter(|path| self.progress.waits(path)).cloned().collect();
            if waiting.is_empty() {
                return Ok(());
            }
            let (mut reader, mut gets_on) = (self.git(|git| git.reader()).await?, false);
            for path in waiting {
                let (same, again) = self.read_again(reader, &path, target).await?;
                reader = same;
                let outcome = self.try_again(&path, again).await?;
                gets_on |= outcome.is_none();
                refused.extend(outcome.filter(|refused| !refused.waits));
                if Instant::now() >= deadline {
                    break;
                }
            }
            if gets_on && refused.is_empty() {
                // Whoever wants to write what was applied need not wait for the others.
                self.store.save(&self.progress).await?;
            }
            self.tell(&mut refused).await?;
        }
        for FileChange { path, commit, .. } in changes {
            if let Some(file) = self.progress.invalid.get(path).filter(|file| file.waits) {
                let (path, reason, commit) = (path.clone(), file.reason.clone(), commit.clone());
                refused.push(Refused { path, reason, commit, waits: true });
            }
        }
        if !refused.is_empty() {
            self.retry = Retry::soon(self.retry.first);
        }
        self.tell(&mut refused).await
    }

    /// When what waits is to be tried again, if anything does.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.progress.invalid.values().any(|file| file.waits).then_some(self.retry.due)
    }

    /// Tries what waits once more, as much as there is time for.
    pub(super) async fn retry_waiting(&mut self) -> Result<(), GitError> {
        let Some(tip) = self.tip()? else {
            self.retry.later(None);
            return Ok(());
        };
        let began = Instant::now();
        let from = self.retry.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let files = self.progress.invalid.range((from, Bound::<String>::Unbounded)).filter(|(_, file)| file.waits);
        let waiting: Vec<String> = files.map(|(path, _)| path.clone()).collect();
        let mut reader = self.git(|git| git.reader()).await?;
        let (mut gets_on, mut refused, mut last) = (false, Vec::new(), None);
        for path in waiting {
            let known = self.reason(&path);
            let (same, again) = self.read_again(reader, &path, tip).await?;
            reader = same;
            match self.try_again(&path, again).await {
                Ok(None) => gets_on = true,
                Ok(Some(again)) if again.waits && self.reason(&path) == known => {}
                Ok(Some(again)) => refused.push(again),
                // Nothing else waits for this one.
                Err(GitError::Ingest(error)) => {
                    tracing::warn!(path, error = &error as &dyn std::error::Error, "a pushed file is not applied yet");
                }
                Err(error) => return Err(error),
            }
            if began.elapsed() >= TURN {
                last = Some(path);
                break;
            }
        }
        self.retry.later(last);
        if !gets_on && refused.is_empty() {
            return Ok(());
        }
        self.tell(&mut refused).await?;
        self.store.save(&self.progress).await?;
        let invalid = self.progress.invalid.clone();
        self.report(|status| status.invalid = invalid);
        Ok(())
    }

    /// Reads what it takes to try a file again as it is in the commit `tip`.
    async fn read_again(&self, reader: Reader, path: &str, tip: Oid) -> Result<(Reader, Again), GitError> {
        let file = self.progress.invalid.get(path);
        // The repository may have been replaced since.
        let commit = file.and_then(|file| Oid::from_str(&file.commit).ok()).unwrap_or(tip);
        let good = file.and_then(InvalidFile::good_commit);
        let path = path.to_owned();
        self.git(move |_| {
            let commit = reader.commit_info(commit, tip)?;
            let pushed = reader.pushed(tip, &path, None)?;
            let good = reader.good(good, &path)?;
            Ok((reader, Again { commit, pushed, good }))
        })
        .await
    }

    /// Applies a file that waits; returns what is to be told of it when it is refused again.
    async fn try_again(&mut self, path: &str, again: Again) -> Result<Option<Refused>, GitError> {
        let Again { commit, pushed, good } = again;
        let outcome = self.apply(path, pushed.as_ref(), good.as_ref(), &commit).await?;
        self.conclude(path, outcome, good.map(|(commit, _)| commit), &commit).await
    }

    fn reason(&self, path: &str) -> Option<String> {
        Some(self.progress.invalid.get(path)?.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes after a look that got as far as this, and how long after it.
    fn check(retry: &mut Retry, last: Option<&str>, pause: Duration) {
        let before = Instant::now();
        retry.later(last.map(str::to_owned));
        assert_eq!(retry.last.as_deref(), last);
        assert!((before + pause..=Instant::now() + pause).contains(&retry.due), "{pause:?}");
    }

    #[test]
    fn files_are_tried_ever_less_often_and_those_there_was_no_time_for_next() {
        let mut retry = Retry::soon(Duration::from_secs(1));
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            check(&mut retry, Some("things/web.yaml"), TURN);
            check(&mut retry, None, Duration::from_secs(seconds));
        }
    }
}
