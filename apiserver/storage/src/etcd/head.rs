//! The head, read by many at once with few calls.
//!
//! Every consistent read of every client asks for it. Whoever asks while a call is under way cannot
//! use that one, since a write may have been acknowledged after the call began; but all who wait
//! share the next.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use stoa_machinery::log::{LogError, Version};
use tokio::sync::Mutex;

/// The last call, and how many there were.
#[derive(Debug, Default)]
pub(super) struct SharedHead {
    begun: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    number: u64,
    /// What it answered, or why it did not.
    answer: Option<Result<Version, String>>,
}

impl SharedHead {
    /// The answer of a call that began after this one; `read` makes it.
    pub(super) async fn get<F>(&self, read: impl FnOnce() -> F) -> Result<Version, LogError>
    where
        F: Future<Output = Result<Version, LogError>>,
    {
        let before = self.begun.load(SeqCst);
        let mut last = self.last.lock().await;
        if last.number > before
            && let Some(answer) = &last.answer
        {
            return answer.clone().map_err(|why| LogError::Unavailable(why.into()));
        }
        // Counted before it is made: who asks from now on waits for the next.
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let answer = read().await;
        let told = answer.as_ref().copied().map_err(|error| error.to_string());
        *last = Last { number, answer: Some(told) };
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn who_asks_meanwhile_shares_the_next_call() {
        let head = Arc::new(SharedHead::default());
        let calls = Arc::new(AtomicU64::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let ask = || {
            let (head, calls, gate) = (head.clone(), calls.clone(), gate.clone());
            tokio::spawn(async move {
                let read = || async move {
                    let number = calls.fetch_add(1, SeqCst) + 1;
                    gate.acquire().await.unwrap().forget();
                    Ok(Version(number))
                };
                head.get(read).await.unwrap()
            })
        };
        let first = ask();
        while calls.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (0..10).map(|_| ask()).collect();
        // All of them have looked at the number of calls once they wait for the lock.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Version(1));
        for other in others {
            assert_eq!(other.await.unwrap(), Version(2));
        }
        assert_eq!(calls.load(SeqCst), 2);
    }
}
