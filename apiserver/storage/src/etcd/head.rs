//! The head, which many read at once with few calls.
//!
//! Every consistent read of every client asks for the head. A read cannot share a call that is under way, since a write may have
//! been acknowledged after the call began; but all waiting reads share the next call.
//!
//! A task of its own makes the calls, and a waiting read has no lock: a suspended future, such as another branch of a `select`,
//! must not block the rest.

use std::{mem, sync::Arc};

use parking_lot::Mutex;
use stoa_machinery::log::{LogError, Version};
use tokio::sync::oneshot;

use super::client::unavailable;

/// One who waits for the answer of a call, or why there is none.
type Asker = oneshot::Sender<Result<Version, String>>;

/// Who waits for the head.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedHead(Arc<Mutex<HeadQueue>>);

#[derive(Debug, Default)]
struct HeadQueue {
    /// Those who want the answer of the next call.
    next: Vec<Asker>,
    /// Whether a task makes calls for them.
    is_served: bool,
}

/// When the task panics, its waiting readers get an error, and the next reader starts another.
struct Serving {
    head: SharedHead,
    is_over: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            *self.head.0.lock() = HeadQueue::default();
        }
    }
}

impl SharedHead {
    /// The answer of a call that began after this request; `read` makes the call unless another reader's does.
    pub(super) async fn get<F>(&self, read: impl Fn() -> F + Send + 'static) -> Result<Version, LogError>
    where
        F: Future<Output = Result<Version, LogError>> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut waiting = self.0.lock();
            waiting.next.push(sender);
            !mem::replace(&mut waiting.is_served, true)
        };
        if is_first {
            tokio::spawn(self.clone().serve(read));
        }
        match answer.await {
            Ok(answer) => answer.map_err(unavailable),
            Err(_) => Err(unavailable("the head is not read any more")),
        }
    }

    /// Makes one call after the other until no reader waits.
    async fn serve<F>(self, read: impl Fn() -> F + Send)
    where
        F: Future<Output = Result<Version, LogError>> + Send,
    {
        let mut serving = Serving { head: self, is_over: false };
        while let Some(asking) = serving.head.who_asks() {
            let answer = read().await.map_err(|error| error.to_string());
            for asker in asking {
                // One that no longer waits has dropped its end.
                let _ = asker.send(answer.clone());
            }
        }
        serving.is_over = true;
    }

    /// Those that the next call is for; none when the task is to end.
    fn who_asks(&self) -> Option<Vec<Asker>> {
        let mut waiting = self.0.lock();
        waiting.next.retain(|asker| !asker.is_closed());
        // Under the same lock, so that a later reader starts another task.
        waiting.is_served = !waiting.next.is_empty();
        waiting.is_served.then(|| mem::take(&mut waiting.next))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicU64, Ordering::SeqCst},
    };

    use futures_util::poll;
    use tokio::sync::Semaphore;

    use super::*;

    /// A head that grows with each call, and calls that end when they are let.
    #[derive(Clone)]
    struct Gated {
        head: SharedHead,
        calls: Arc<AtomicU64>,
        gate: Arc<Semaphore>,
    }

    impl Gated {
        fn new() -> Self {
            Self { head: SharedHead::default(), calls: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
        }

        async fn ask(&self) -> Result<Version, LogError> {
            let Self { head, calls, gate } = self.clone();
            let read = move || {
                let (calls, gate) = (calls.clone(), gate.clone());
                async move {
                    let number = calls.fetch_add(1, SeqCst) + 1;
                    gate.acquire().await.unwrap().forget();
                    Ok(Version(number))
                }
            };
            head.get(read).await
        }

        async fn calls_are(&self, count: u64) {
            while self.calls.load(SeqCst) != count {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn who_asks_meanwhile_shares_the_next_call() {
        let gated = Gated::new();
        let mut first = pin!(gated.ask());
        assert!(poll!(&mut first).is_pending());
        gated.calls_are(1).await;
        let mut others: Vec<_> = (0..10).map(|_| Box::pin(gated.ask())).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        gated.gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Version(1));
        for other in others {
            assert_eq!(other.await.unwrap(), Version(2));
        }
        assert_eq!(gated.calls.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn who_is_put_aside_keeps_nobody_waiting() {
        let gated = Gated::new();
        let (mut maker, mut waiter) = (Box::pin(gated.ask()), Box::pin(gated.ask()));
        assert!(poll!(&mut maker).is_pending());
        gated.calls_are(1).await;
        assert!(poll!(&mut waiter).is_pending());
        gated.gate.add_permits(3);
        // Neither of the two is looked at again before this one has its answer.
        assert_eq!(gated.ask().await.unwrap(), Version(2));
        assert_eq!((maker.await.unwrap(), waiter.await.unwrap()), (Version(1), Version(2)));
    }

    #[tokio::test]
    async fn panicked_shared_call_returns_error_to_waiters() {
        let head = SharedHead::default();
        let bad = || async { panic!("a call that ends badly") };
        assert!(matches!(head.get(bad).await, Err(LogError::Unavailable(_))));
        assert_eq!(head.get(|| async { Ok(Version(7)) }).await.unwrap(), Version(7));
    }
}
