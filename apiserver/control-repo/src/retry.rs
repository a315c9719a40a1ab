//! The delay after a failure.

use std::time::Duration;

use stoa_machinery::backoff::{Jitter, Policy};

use super::{GitError, GitOptions, RemoteError};

/// The longest delay before an excess over a limit is retried: each attempt costs as much as the first.
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// The same where an attempt receives as much from the remote as the limit permits.
const LONGEST_RETRY_OF_REMOTE: Duration = Duration::from_secs(3_600);

impl GitOptions {
    /// The delay after so many failures in a row before this one. A remote that is unavailable, or needs a person, gets ever
    /// longer and random delays.
    pub(super) fn delay(&self, failures: u32, error: &GitError) -> Duration {
        let longest = match (&self.remote, error) {
            (_, GitError::TooMuch { .. }) => LONGEST_RETRY,
            (_, GitError::Remote(RemoteError::TooMuch(_))) => LONGEST_RETRY_OF_REMOTE,
            (Some(remote), GitError::Remote(_)) => remote.longest_retry,
            _ => return self.retry,
        };
        Policy::new(self.retry, longest.max(self.retry)).with_jitter(Jitter::HALF).after(failures.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Excess, RemoteOptions};

    #[test]
    fn retry_delay_grows_for_errors_people_fix() {
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
        let hour = LONGEST_RETRY_OF_REMOTE;
        assert!((hour / 2..=hour).contains(&options.delay(1_000, &too_much)));
    }
}
