//! The delay after a failure.

use std::{path::PathBuf, time::Duration};

use git2::Oid;
use stoa_machinery::backoff::{Jitter, Policy};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{GitError, GitOptions, RemoteError, RemoteOptions, remote::Remote, repository};

/// The longest delay before an excess over a limit is retried: each attempt costs as much as the first. A move of main leads
/// to a retry at once.
const LONGEST_RETRY: Duration = Duration::from_secs(3_600);

impl GitOptions {
    /// The delay after so many failures in a row before this one. A remote that is unavailable, or needs a person, gets ever
    /// longer and random delays.
    pub(super) fn delay(&self, failures: u32, error: &GitError) -> Duration {
        let longest = match (&self.remote, error) {
            (_, error) if is_too_much(error) => LONGEST_RETRY,
            (Some(remote), GitError::Remote(_)) => remote.longest_retry,
            _ => return self.retry,
        };
        Policy::new(self.retry, longest.max(self.retry)).with_jitter(Jitter::HALF).after(failures.saturating_add(1))
    }
}

/// Whether an error is an excess over a limit, so that a retry fails again until main moves.
pub(super) fn is_too_much(error: &GitError) -> bool {
    matches!(error, GitError::TooMuch { .. } | GitError::Remote(RemoteError::TooMuch(_)))
}

/// Failures in a row.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u32,
    /// Whether the last one was an excess over a limit.
    is_too_much: bool,
}

impl Failures {
    /// Counts a failure and returns the number before it. `is_first` says that there was progress since the last one.
    /// Failures to reach main do not reset the count of excesses.
    pub(super) fn another(&mut self, error: &GitError, is_first: bool) -> u32 {
        let is_too_much = is_too_much(error);
        let begins = is_first || is_too_much && !self.is_too_much;
        self.count = if begins { 0 } else { self.count.saturating_add(1) };
        self.is_too_much = is_too_much;
        self.count
    }

    /// Notes that main moved, so the next failure counts anew.
    pub(super) fn main_moved(&mut self) {
        self.count = 0;
    }
}

/// The current commit of main, if main exists.
///
/// # Errors
///
/// When main cannot be read, as while the remote is unavailable.
pub(super) async fn main_now(path: PathBuf, remote: Option<RemoteOptions>) -> Result<Option<Oid>, GitError> {
    let look = move || -> Result<_, GitError> {
        let repository = repository::open(&path)?;
        match remote {
            Some(options) => Ok(Remote::new(options, CancellationToken::new()).main(&repository)?),
            None => Ok(repository::tip(&repository)?),
        }
    };
    tokio::task::spawn_blocking(look).await?
}

/// The intervals of checks of main.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    /// The time from one check to the next.
    pub every: Duration,
    /// The longest interval while main cannot be read; the interval doubles with each failure.
    pub longest: Duration,
}

/// Waits for `delay`, or until `main` differs from the commit that was `seen` before the last attempt; true when it moved.
/// `seen` is `None` while no commit is known.
pub(super) async fn until_main_moves<Look: Future<Output = Result<Option<Oid>, GitError>>>(
    delay: Duration,
    looks: Looks,
    seen: &mut Option<Option<Oid>>,
    main: impl Fn() -> Look,
) -> bool {
    let deadline = Instant::now() + delay;
    let mut pause = looks.every;
    loop {
        let next = match main().await {
            Ok(main) if seen.replace(main).is_some_and(|seen| seen != main) => return true,
            Ok(_) => looks.every,
            Err(_) => (pause * 2).min(looks.longest),
        };
        let now = Instant::now();
        if now >= deadline {
            return false;
        }
        pause = next;
        tokio::time::sleep_until(deadline.min(now + pause)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready};

    use super::*;
    use crate::{Excess, repository::ControlRepository};

    #[test]
    fn what_people_have_to_see_to_is_tried_ever_less_often() {
        let mut options = GitOptions::default();
        let (retry, half) = (options.retry, LONGEST_RETRY / 2);
        let error = GitError::TooMuch { commit: "c".repeat(40), excess: Excess::Entries(1) };
        assert!((retry / 2..=retry).contains(&options.delay(0, &error)));
        for failures in [12, 1_000] {
            assert!((half..=LONGEST_RETRY).contains(&options.delay(failures, &error)), "{failures}");
        }
        assert_eq!(options.delay(1_000, &GitError::Raced), retry);
        // A remote that is away may be back at any time, and what is too much there is not.
        let remote = RemoteOptions::new("file:///nowhere");
        let longest = remote.longest_retry;
        options.remote = Some(remote);
        let away = GitError::Remote(RemoteError::Unavailable(String::new()));
        assert!((longest / 2..=longest).contains(&options.delay(1_000, &away)));
        let too_much = GitError::Remote(RemoteError::TooMuch(String::new()));
        assert!((half..=LONGEST_RETRY).contains(&options.delay(1_000, &too_much)));
    }

    #[test]
    fn what_kept_it_from_looking_counts_for_nothing_of_what_is_too_much() {
        let away = GitError::Remote(RemoteError::Unavailable(String::new()));
        let too_much = GitError::Remote(RemoteError::TooMuch(String::new()));
        let mut failures = Failures::default();
        for (error, is_first, before) in [
            (&away, true, 0),
            (&away, false, 1),
            (&away, false, 2),
            (&too_much, false, 0),
            (&too_much, false, 1),
            (&away, false, 2),
            (&too_much, false, 0),
            (&too_much, true, 0),
            (&too_much, false, 1),
        ] {
            assert_eq!(failures.another(error, is_first), before);
        }
        failures.main_moved();
        assert_eq!(failures.another(&too_much, false), 1);
    }

    #[tokio::test]
    async fn main_that_is_gone_is_told_from_what_is_out_of_reach() {
        let directory = tempfile::TempDir::new().unwrap();
        let [here, there] = ["here", "there"].map(|name| directory.path().join(name));
        let remote = Some(RemoteOptions::new(format!("file://{}", there.display())));
        assert!(main_now(here.clone(), None).await.is_err());
        ControlRepository::open(&here, true).unwrap();
        assert_eq!(main_now(here.clone(), None).await.unwrap(), None);
        assert!(main_now(here.clone(), remote.clone()).await.is_err());
        git2::Repository::init_bare(&there).unwrap();
        assert_eq!(main_now(here, remote).await.unwrap(), None);
    }

    /// Waits an hour, looking every ten seconds, while main is where this says, which is given the seconds since the
    /// beginning; whether it has moved, after how many seconds, and how often it was looked at.
    async fn wait(
        seen: &mut Option<Option<Oid>>,
        main: impl Fn(u64) -> Result<Option<Oid>, GitError>,
    ) -> (bool, u64, usize) {
        let began = Instant::now();
        let count = Cell::new(0);
        let look = || {
            count.set(count.get() + 1);
            ready(main(began.elapsed().as_secs()))
        };
        let looks = Looks { every: Duration::from_secs(10), longest: Duration::from_secs(60) };
        let moved = until_main_moves(Duration::from_secs(3_600), looks, seen, look).await;
        (moved, began.elapsed().as_secs(), count.get())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_tried_again_as_soon_as_main_moves() {
        let [one, two] = [1, 2].map(|byte| Oid::from_bytes(&[byte; 20]).ok());
        let away = || Err(GitError::Remote(RemoteError::Unavailable(String::new())));
        let mut seen = None;
        assert_eq!(wait(&mut seen, |_| Ok(one)).await, (false, 3_600, 361));
        // While the server is away, nothing has moved, and it is asked ever less often: after 30, 50, 90, 150 … seconds.
        let main = |seconds| if (30..630).contains(&seconds) { away() } else { Ok(one) };
        assert_eq!(wait(&mut seen, main).await, (false, 3_600, 3 + 11 + 298));
        assert_eq!(wait(&mut seen, |seconds| Ok(if seconds < 45 { one } else { two })).await, (true, 50, 6));
        // It moved while it was tried.
        assert_eq!(wait(&mut seen, |_| Ok(one)).await, (true, 0, 1));
        // It goes, and is there again.
        assert_eq!(wait(&mut seen, |seconds| Ok(one.filter(|_| seconds < 15))).await, (true, 20, 3));
        assert_eq!(wait(&mut seen, |seconds| Ok(one.filter(|_| seconds >= 15))).await, (true, 20, 3));
        assert_eq!(seen, Some(one));
    }
}
