//! The streams of an HTTP/2 connection, which the connection's own task drives.
//!
//! With a task for each, an event of a watch would wake the stream's task, and that the connection's, on another
//! processor as a rule, with a lock between the two. Here one wake-up takes what all streams of a connection have to say
//! into the connection's buffer and out of it. What computes runs elsewhere: see [`apart`].

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered, task::AtomicWaker};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a connection puts the streams that its client opens.
#[derive(Clone, Default)]
pub(super) struct Opened(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Opened {
    fn execute(&self, stream: F) {
        // One that panics ends for itself alone, as a task would.
        self.0.lock().push(Box::pin(AssertUnwindSafe(stream).catch_unwind().map(drop)));
    }
}

/// A connection and its streams, driven as one.
pub(super) struct Streams {
    opened: Opened,
    open: FuturesUnordered<Stream>,
    bell: Arc<Bell>,
}

/// Wakes the task for the connection. What a stream says in the task's own turn needs no other turn.
#[derive(Default)]
struct Bell {
    task: AtomicWaker,
    /// Whether the task has its turn.
    turn: AtomicBool,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, SeqCst);
        if !self.turn.load(SeqCst) {
            self.task.wake();
        }
    }
}

impl Streams {
    pub(super) fn new(opened: Opened) -> Self {
        Self { opened, open: FuturesUnordered::new(), bell: Arc::default() }
    }

    /// Goes on with the streams that something happened to, and with the connection, which says what they have to say.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        connection: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.task.register(context.waker());
        self.bell.turn.store(true, SeqCst);
        self.poll_streams(context);
        self.bell.rung.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&self.bell));
        let ended = connection(&mut Context::from_waker(&waker));
        self.bell.turn.store(false, SeqCst);
        // Whoever rang meanwhile either saw that the turn is over or is seen here.
        if self.bell.rung.load(SeqCst) || !self.opened.0.lock().is_empty() {
            context.waker().wake_by_ref();
        }
        ended
    }

    fn poll_streams(&mut self, context: &mut Context<'_>) {
        loop {
            self.open.extend(self.opened.0.lock().drain(..));
            match self.open.poll_next_unpin(context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }
}

/// Runs a request's handler in a task of its own, so that the requests of one connection are worked on side by side.
/// It is dropped with the stream.
///
/// # Panics
///
/// When the handler does.
pub(super) async fn apart<T: Send + 'static>(handler: impl Future<Output = T> + Send + 'static) -> T {
    match AbortOnDropHandle::new(tokio::spawn(handler)).await {
        Ok(answer) => answer,
        Err(ended) => resume_unwind(ended.into_panic()),
    }
}
