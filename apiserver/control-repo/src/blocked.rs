//! Blocked files: valid files that cannot be applied yet, because another object is in the way or missing.
//!
//! The record lists them beside invalid files, and both block writes of their objects through the API. A push waits a short
//! time for all of its files together. Files that are still blocked then are reported, and retried with a growing delay.
//!
//! Start at `Session::have_patience` for a push and `Session::retry_waiting` for later. Elsewhere: `push` applies files.

use std::{ops::Bound, time::Duration};

use git2::Oid;
use stoa_machinery::backoff::Policy;
use tokio::time::Instant;

use super::{GitError, InvalidFile, push::Refused, repository::FileChange, session::Session};

/// The first delay between two attempts of a push. It doubles each time.
const LOOK: Duration = Duration::from_millis(50);
/// The longest delay between two attempts of a blocked file.
const LONGEST: Duration = Duration::from_secs(60);
/// So long files are tried again at a time, and then everything else has its turn for as long.
const TURN: Duration = Duration::from_millis(200);

/// The time of the next attempt of blocked files.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    first: Duration,
    failures: u32,
    due: Instant,
    /// The last file of an attempt that had no time for the following ones.
    last: Option<String>,
}

impl Retry {
    /// After this time, and then ever less often.
    pub(super) fn soon(first: Duration) -> Self {
        Self { first, failures: 1, due: Instant::now() + first, last: None }
    }

    /// Continues with the files after this one, or else begins anew after twice the delay.
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

impl Session {
    /// Retries the blocked files of a push for a while, as for the namespace of an organization in the same push. Then it
    /// reports the files that are still blocked.
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
            let mut gets_on = false;
            for path in waiting {
                let outcome = self.try_again(&path, target).await?;
                gets_on |= outcome.is_none();
                refused.extend(outcome.filter(|refused| !refused.waits));
                if Instant::now() >= deadline {
                    break;
                }
            }
            if gets_on && refused.is_empty() {
                // The record unblocks the applied files for other writers at once.
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

    /// The time of the next attempt, if any file is blocked.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.progress.invalid.values().any(|file| file.waits).then_some(self.retry.due)
    }

    /// Retries blocked files, as many as fit into a turn.
    pub(super) async fn retry_waiting(&mut self) -> Result<(), GitError> {
        let Some(tip) = self.tip()? else {
            self.retry.later(None);
            return Ok(());
        };
        let began = Instant::now();
        let from = self.retry.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let files = self.progress.invalid.range((from, Bound::<String>::Unbounded)).filter(|(_, file)| file.waits);
        let waiting: Vec<String> = files.map(|(path, _)| path.clone()).collect();
        let (mut gets_on, mut refused, mut last) = (false, Vec::new(), None);
        for path in waiting {
            let known = self.reason(&path);
            match self.try_again(&path, tip).await {
                Ok(None) => gets_on = true,
                Ok(Some(again)) if again.waits && self.reason(&path) == known => {}
                Ok(Some(again)) => refused.push(again),
                // No other file waits for this one.
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

    /// Applies a blocked file as it is in the commit `tip`; returns the report when it is rejected again.
    async fn try_again(&mut self, path: &str, tip: Oid) -> Result<Option<Refused>, GitError> {
        let file = self.progress.invalid.get(path);
        // The repository may have been replaced since.
        let commit = file.and_then(|file| Oid::from_str(&file.commit).ok()).unwrap_or(tip);
        let (good, name) = (file.and_then(InvalidFile::good_commit), path.to_owned());
        let read = self.git(move |git| {
            let reader = git.reader()?;
            Ok((reader.commit_info(commit, tip)?, reader.pushed(tip, &name, None)?, reader.good(good, &name)?))
        });
        let (commit, pushed, good) = read.await?;
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
    fn retry_backs_off_and_resumes_skipped_files() {
        let mut retry = Retry::soon(Duration::from_secs(1));
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            check(&mut retry, Some("things/web.yaml"), TURN);
            check(&mut retry, None, Duration::from_secs(seconds));
        }
    }
}
