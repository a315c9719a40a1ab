//! How long to wait after a failure.

use std::{path::PathBuf, time::Duration};

use git2::Oid;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    GitError, GitOptions, RemoteError, RemoteOptions,
    remote::Remote,
    repository::{self, MAIN},
};

/// How long to wait at most before what is more than is looked at or fetched is tried again where it is: each try costs as
/// much as the first. It is tried at once when main moves.
const LONGEST_RETRY: Duration = Duration::from_secs(3_600);

impl GitOptions {
    /// How long to wait after so many failures in a row before this one. A remote that is away, and what has to be seen to
    /// by people, is asked ever less often, and by no two at the same time.
    pub(super) fn delay(&self, failures: u32, error: &GitError) -> Duration {
        let longest = match (&self.remote, error) {
            (_, error) if is_too_much(error) => LONGEST_RETRY,
            (Some(remote), GitError::Remote(_)) => remote.longest_retry,
            _ => return self.retry,
        };
        let delay = self.retry.saturating_mul(1 << failures.min(16)).min(longest.max(self.retry));
        delay.mul_f64(rand::random_range(0.5..=1.0))
    }
}

/// Whether there is more than is looked at or fetched, so that another try ends like the last one as long as main is where
/// it is.
pub(super) fn is_too_much(error: &GitError) -> bool {
    matches!(error, GitError::TooMuch { .. } | GitError::Remote(RemoteError::TooMuch(_)))
}

/// Where main is now, if that can be told.
pub(super) async fn main_now(path: PathBuf, remote: Option<RemoteOptions>) -> Option<Oid> {
    let look = move || {
        let repository = repository::open(&path).ok()?;
        match remote {
            Some(options) => Remote::new(options, CancellationToken::new()).main(&repository).ok()?,
            None => repository.refname_to_id(MAIN).ok(),
        }
    };
    tokio::task::spawn_blocking(look).await.ok()?
}

/// Waits so long, or until `main` is elsewhere than it was `seen` before the last try; true when it is. It is looked at each
/// time that so much has passed.
pub(super) async fn until_main_moves<Look: Future<Output = Option<Oid>>>(
    delay: Duration,
    every: Duration,
    seen: &mut Option<Oid>,
    main: impl Fn() -> Look,
) -> bool {
    let deadline = Instant::now() + delay;
    loop {
        if let Some(main) = main().await
            && seen.replace(main).is_some_and(|seen| seen != main)
        {
            return true;
        }
        let now = Instant::now();
        if now >= deadline {
            return false;
        }
        tokio::time::sleep_until(deadline.min(now + every)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready};

    use super::*;
    use crate::git::Excess;

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

    /// Waits an hour, looking every ten seconds, while main is where this says, which is given the seconds since the
    /// beginning; whether it has moved, and after how many seconds.
    async fn wait(seen: &mut Option<Oid>, main: impl Fn(u64) -> Option<Oid>) -> (bool, u64) {
        let began = Instant::now();
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            ready(main(began.elapsed().as_secs()))
        };
        let moved = until_main_moves(Duration::from_secs(3_600), Duration::from_secs(10), seen, look).await;
        let seconds = began.elapsed().as_secs();
        assert_eq!(looks.get(), 1 + seconds / 10);
        (moved, seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_tried_again_as_soon_as_main_moves() {
        let [one, two] = [1, 2].map(|byte| Oid::from_bytes(&[byte; 20]).unwrap());
        let mut seen = None;
        assert_eq!(wait(&mut seen, |_| Some(one)).await, (false, 3_600));
        // While the server is away, nothing has moved.
        let main = |seconds| if (30..60).contains(&seconds) { None } else { Some(one) };
        assert_eq!(wait(&mut seen, main).await, (false, 3_600));
        assert_eq!(wait(&mut seen, |seconds| Some(if seconds < 45 { one } else { two })).await, (true, 50));
        // It moved while it was tried.
        assert_eq!(wait(&mut seen, |_| Some(one)).await, (true, 0));
        assert_eq!(seen, Some(one));
    }
}
