//! Timers of a stream: its deadline, and its next bookmark.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;

/// Futures that are asked only after they woke the task.
///
/// A watch is woken by every event, and a timer or a token takes part in a queue that all watches share.
pub struct StreamTimers<T> {
    timers: FuturesUnordered<BoxFuture<'static, T>>,
    bell: Arc<Bell>,
    /// Rings it.
    ring: Waker,
    /// Whom that wakes.
    task: Option<Waker>,
}

/// What all of them ring, so that one look tells that none did.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    /// Whom it wakes, each time.
    task: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, SeqCst);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<T> Default for StreamTimers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> StreamTimers<T> {
    /// No timers yet.
    pub fn new() -> Self {
        let bell = Arc::<Bell>::default();
        Self { timers: FuturesUnordered::new(), ring: Waker::from(Arc::clone(&bell)), bell, task: None }
    }

    /// Waits for one more.
    pub fn set(&self, alarm: impl Future<Output = T> + Send + 'static) {
        self.timers.push(alarm.boxed());
        self.bell.rung.store(true, SeqCst);
    }

    /// What the next of them says; each says it once.
    pub fn poll_next(&mut self, context: &Context<'_>) -> Poll<T> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
            *self.bell.task.lock() = Some(context.waker().clone());
        }
        // Whoever rings from here on wakes the task.
        if !self.bell.rung.load(SeqCst) {
            return Poll::Pending;
        }
        self.bell.rung.store(false, SeqCst);
        match self.timers.poll_next_unpin(&mut Context::from_waker(&self.ring)) {
            Poll::Ready(Some(said)) => {
                // Another may have rung before.
                self.bell.rung.store(true, SeqCst);
                Poll::Ready(said)
            }
            // With none left, there is nothing more to hear.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures_util::future;
    use tokio::sync::oneshot;

    use super::*;

    async fn next(timers: &mut StreamTimers<u8>) -> u8 {
        poll_fn(|context| timers.poll_next(context)).await
    }

    /// Whether nobody says anything now.
    fn silent(timers: &mut StreamTimers<u8>) -> bool {
        future::poll_immediate(poll_fn(|context| timers.poll_next(context))).now_or_never() == Some(None)
    }

    #[tokio::test]
    async fn stream_timers_yield_in_completion_order() {
        let mut timers = StreamTimers::new();
        let [first, second] = [(); 2].map(|()| {
            let (say, said) = oneshot::channel();
            timers.set(said.map(|said| said.expect("it is said")));
            say
        });
        assert!(silent(&mut timers));
        second.send(2).expect("somebody waits");
        assert_eq!(next(&mut timers).await, 2);
        assert!(silent(&mut timers));
        // One that is set later speaks before one that was there.
        timers.set(future::ready(3));
        assert_eq!(next(&mut timers).await, 3);
        first.send(1).expect("somebody waits");
        assert_eq!(next(&mut timers).await, 1);
        assert!(silent(&mut timers));
    }

    #[tokio::test]
    async fn the_task_is_woken_when_one_speaks() {
        let mut timers = StreamTimers::new();
        let (say, said) = oneshot::channel();
        timers.set(said.map(|said| said.expect("it is said")));
        let waiting = tokio::spawn(async move { next(&mut timers).await });
        tokio::task::yield_now().await;
        say.send(7).expect("somebody waits");
        assert_eq!(waiting.await.expect("it ends"), 7);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whenever_they_speak_they_are_heard() {
        let mut timers = StreamTimers::new();
        for _ in 0..2_000 {
            let said = [(); 4].map(|()| {
                let (say, said) = oneshot::channel();
                timers.set(said.map(|said| said.expect("it is said")));
                say
            });
            let speaking = tokio::spawn(async move {
                for say in said {
                    say.send(1).expect("somebody waits");
                    tokio::task::yield_now().await;
                }
            });
            for _ in 0..4 {
                assert_eq!(next(&mut timers).await, 1);
            }
            speaking.await.expect("it ends");
        }
    }

    #[test]
    fn one_that_has_nothing_to_say_is_asked_once() {
        let (mut timers, asked) = (StreamTimers::new(), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        timers.set(poll_fn(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Poll::<u8>::Pending
        }));
        assert!((0..100).all(|_| silent(&mut timers)));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
