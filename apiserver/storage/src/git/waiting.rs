//! Files that are right and cannot be applied yet, because something else is in their way or what they need is not there.
//!
//! They are in the record beside those that are invalid, and keep others from writing their objects as those do: whoever
//! pushed them decided something of these, which holds once it can. A push has patience with all of its files together;
//! what still waits then is told, and tried again ever less often, so that many of them cost little.

use std::time::Duration;

use git2::Oid;
use tokio::time::Instant;

use super::{
    GitError, PushedFile,
    push::Refused,
    repository::{Content, FileChange},
    session::Session,
};

/// How long after the first look the next comes, while a push is patient. Each waits twice as long as the one before.
const LOOK: Duration = Duration::from_millis(50);
/// What waits is tried again at least so often.
const LONGEST: Duration = Duration::from_secs(60);

/// When what waits is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    first: Duration,
    delay: Duration,
    due: Instant,
}

impl Retry {
    /// After this time, and then ever less often.
    pub(super) fn soon(first: Duration) -> Self {
        Self { first, delay: first, due: Instant::now() + first }
    }

    fn later(self) -> Self {
        let delay = (self.delay * 2).min(LONGEST.max(self.first));
        Self { delay, due: Instant::now() + delay, ..self }
    }
}

impl Session {
    /// Tries for a while what of a push waits, such as for the namespace of an organization in the same push; then tells of
    /// what does so still.
    pub(super) async fn have_patience(&mut self, changes: &[FileChange], target: Oid) -> Result<(), GitError> {
        self.retry = Retry::soon(self.retry.first);
        let deadline = Instant::now() + self.shared.options.patience;
        let mut delay = LOOK;
        loop {
            let paths = changes.iter().map(|change| &change.path);
            let waiting: Vec<String> = paths.filter(|path| self.waits(path)).cloned().collect();
            if waiting.is_empty() {
                return Ok(());
            }
            let is_late = Instant::now() >= deadline;
            let mut refused = Vec::new();
            for path in waiting {
                refused.extend(self.try_again(&path, target).await?.filter(|refused| is_late || !refused.waits));
            }
            self.tell(&mut refused).await?;
            if is_late {
                return Ok(());
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + delay)).await;
            delay *= 2;
        }
    }

    /// Tries what waits once more, when it is time for that.
    pub(super) async fn retry_waiting(&mut self) -> Result<(), GitError> {
        let Some(tip) = self.tip()?.filter(|_| Instant::now() >= self.retry.due) else { return Ok(()) };
        let waiting: Vec<String> =
            self.progress.invalid.iter().filter(|(_, file)| file.waits).map(|(path, _)| path.clone()).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let (mut gets_on, mut refused) = (false, Vec::new());
        for path in waiting {
            let known = self.reason(&path);
            match self.try_again(&path, tip).await {
                Ok(None) => gets_on = true,
                Ok(Some(again)) if again.waits && self.reason(&path) == known => {}
                Ok(Some(again)) => refused.push(again),
                // Nothing else waits for this one.
                Err(GitError::Ingest(error)) => {
                    tracing::warn!(path, error = &error as &dyn std::error::Error, "a pushed file is not applied yet");
                }
                Err(error) => return Err(error),
            }
        }
        self.retry = if gets_on { Retry::soon(self.retry.first) } else { self.retry.later() };
        if !gets_on && refused.is_empty() {
            return Ok(());
        }
        self.tell(&mut refused).await?;
        self.store.save(&self.progress).await?;
        let invalid = self.progress.invalid.clone();
        self.report(|status| status.invalid = invalid);
        Ok(())
    }

    /// Applies a file that waits, as it is in the commit `tip`; returns what is to be told of it when it is refused again.
    async fn try_again(&mut self, path: &str, tip: Oid) -> Result<Option<Refused>, GitError> {
        let Some(file) = self.progress.invalid.get(path) else { return Ok(None) };
        let commit = Oid::from_str(&file.commit)?;
        // The repository may have been replaced since.
        let commit = self.git(move |git| git.commit_info(commit).or_else(|_| git.commit_info(tip))).await?;
        let at_tip = path.to_owned();
        let content = self.git(move |git| git.reader()?.read(tip, &at_tip)).await?;
        let good = self.last_good(path, None, None).await?;
        let outcome = match content {
            Some(Content::Bytes(content)) => {
                let before = good.as_ref().map(|(_, before)| before.as_slice());
                self.apply(PushedFile { path, content: &content, before, commit: &commit }).await?
            }
            // It is another by now, which counts on its own.
            Some(Content::TooLarge(_) | Content::Submodule) | None => Ok(()),
        };
        self.conclude(path, outcome, good.map(|(commit, _)| commit), &commit).await
    }

    fn waits(&self, path: &str) -> bool {
        self.progress.invalid.get(path).is_some_and(|file| file.waits)
    }

    fn reason(&self, path: &str) -> Option<String> {
        Some(self.progress.invalid.get(path)?.reason.clone())
    }
}
