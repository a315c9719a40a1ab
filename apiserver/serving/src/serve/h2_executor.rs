//! The executor of an HTTP/2 connection's streams, which the connection's own task drives.
//!
//! With a task for each, an event of a watch would wake the stream's task, and that the connection's, on another
//! processor as a rule, with a lock between the two. Here one wake-up takes what all streams of a connection have to say
//! into the connection's buffer and out of it. What computes runs elsewhere: see [`apart`].
//!
//! An event wakes every watch of a resource, each from the thread that had the event, so that a wake-up is one bit in a word
//! that a group of streams shares, and touches no memory of the stream.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use futures_util::{FutureExt as _, task::AtomicWaker};
use http::Response;
use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::time::{Sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a connection puts the streams that its client opens.
#[derive(Clone, Default)]
pub(super) struct Opened(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Opened {
    fn execute(&self, stream: F) {
        // One that panics ends for itself alone, as a task would.
        let stream = AssertUnwindSafe(stream).catch_unwind().map(drop);
        self.0.lock().push(Box::pin(DUE.scope(Cell::new(None), InTime { stream, reset: None })));
    }
}

/// When an answer must have been taken, whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due(pub(super) Instant);

tokio::task_local! {
    static DUE: Cell<Option<Due>>;
}

/// Has the stream that this is asked in end when the answer is due.
pub(super) fn in_time<B>(answer: Response<B>) -> Response<B> {
    if let Some(due) = answer.extensions().get::<Due>() {
        // Outside a stream of ours there is nothing to end.
        let _ = DUE.try_with(|cell| cell.set(Some(*due)));
    }
    answer
}

pin_project! {
    /// A stream that is reset when its answer is due.
    ///
    /// The answer itself cannot see to that: nobody asks it for more, or for its time, while the client takes nothing.
    struct InTime<F> {
        #[pin]
        stream: F,
        reset: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ()>> Future for InTime<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(context).is_ready() {
            return Poll::Ready(());
        }
        if let Some(Due(due)) = DUE.with(Cell::take) {
            *this.reset = Some(Box::pin(sleep_until(due.into())));
        }
        match this.reset {
            Some(reset) => reset.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

/// How often in a turn the streams are asked whether there is more.
const ROUNDS: usize = 4;

/// A connection and its streams, driven as one.
pub(super) struct Streams {
    opened: Opened,
    open: Slab<Stream>,
    /// Whom a stream in that place wakes. Who has the place of one that ended may be woken once for nothing.
    wakers: Vec<Waker>,
    groups: Vec<Arc<Group>>,
    bell: Arc<Bell>,
    waker: Waker,
}

const GROUP: usize = u64::BITS as usize;

struct Group {
    woken: AtomicU64,
    bell: Arc<Bell>,
}

impl Group {
    fn wake(&self, bit: u64) {
        // The first has rung, or is about to, and all are looked at together.
        if self.woken.fetch_or(bit, SeqCst) == 0 {
            self.bell.wake_by_ref();
        }
    }
}

struct GroupWaker {
    group: Arc<Group>,
    bit: u64,
}

impl Wake for GroupWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.group.wake(self.bit);
    }
}

/// Wakes the task. What happens in the task's own turn, and is seen to in it, needs no other.
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
        let bell = Arc::<Bell>::default();
        let waker = Waker::from(Arc::clone(&bell));
        Self { opened, open: Slab::new(), wakers: Vec::new(), groups: Vec::new(), bell, waker }
    }

    /// Goes on with the streams that something happened to, and with the connection, which says what they have to say.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        connection: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.task.register(context.waker());
        self.bell.turn.store(true, SeqCst);
        for _ in 0..ROUNDS {
            self.bell.rung.store(false, SeqCst);
            self.take_opened();
            self.poll_streams();
            if !self.bell.rung.load(SeqCst) {
                break;
            }
        }
        let ended = connection(&mut Context::from_waker(&self.waker));
        self.bell.turn.store(false, SeqCst);
        // Whoever rang meanwhile either saw that the turn is over or is seen here.
        if self.bell.rung.load(SeqCst) || !self.opened.0.lock().is_empty() {
            context.waker().wake_by_ref();
        }
        ended
    }

    fn take_opened(&mut self) {
        for stream in self.opened.0.lock().drain(..) {
            let place = self.open.insert(stream);
            if place == self.groups.len() * GROUP {
                self.groups.push(Arc::new(Group { woken: AtomicU64::new(0), bell: Arc::clone(&self.bell) }));
            }
            let (group, bit) = (&self.groups[place / GROUP], 1 << (place % GROUP));
            if place == self.wakers.len() {
                self.wakers.push(Waker::from(Arc::new(GroupWaker { group: Arc::clone(group), bit })));
            }
            group.woken.fetch_or(bit, SeqCst);
        }
    }

    fn poll_streams(&mut self) {
        for (number, group) in self.groups.iter().enumerate() {
            let mut woken = group.woken.swap(0, SeqCst);
            while woken != 0 {
                let place = number * GROUP + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                let mut context = Context::from_waker(&self.wakers[place]);
                if self.open.get_mut(place).is_some_and(|stream| stream.as_mut().poll(&mut context).is_ready()) {
                    drop(self.open.remove(place));
                }
            }
        }
    }
}

impl Drop for Streams {
    /// What was opened in the last turn and never polled goes, too. It holds where it was put, as hyper's streams have
    /// their executor, so that neither would ever be freed.
    fn drop(&mut self) {
        let opened = std::mem::take(&mut *self.opened.0.lock());
        // Without the lock, since what ends with a stream may open another.
        drop(opened);
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

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        sync::atomic::AtomicUsize,
    };

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Polls once with a connection that does this, and says how often the task was woken by then.
    fn turn(streams: &mut Streams, counted: &Arc<Counted>, connection: impl FnOnce(&mut Context<'_>)) -> usize {
        let waker = Waker::from(Arc::clone(counted));
        let polled = streams.poll(&mut Context::from_waker(&waker), |context| {
            connection(context);
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        counted.0.load(SeqCst)
    }

    #[test]
    fn task_wakes_only_for_unseen_events() {
        let opened = Opened::default();
        let (mut streams, counted) = (Streams::new(opened.clone()), Arc::<Counted>::default());
        let bell = Arc::new(Mutex::new(None::<Waker>));
        let (say, said) = oneshot::channel::<()>();
        let rings = Arc::clone(&bell);
        // A stream that rings for the connection when it has heard something, as one with a frame to send does.
        opened.execute(async move {
            let _ = said.await;
            rings.lock().take().expect("the connection was polled").wake();
        });
        assert_eq!(turn(&mut streams, &counted, |context| *bell.lock() = Some(context.waker().clone())), 0);
        say.send(()).expect("it is heard");
        assert_eq!(counted.0.load(SeqCst), 1);
        // The connection follows in the same turn.
        assert_eq!(turn(&mut streams, &counted, |context| *bell.lock() = Some(context.waker().clone())), 1);
        // What rings between turns, or while the connection is polled, and what it opens are seen to in another.
        bell.lock().take().expect("it was put there").wake();
        assert_eq!(counted.0.load(SeqCst), 2);
        assert_eq!(turn(&mut streams, &counted, |context| context.waker().wake_by_ref()), 3);
        assert_eq!(turn(&mut streams, &counted, |_| opened.execute(pending())), 4);
        assert_eq!(turn(&mut streams, &counted, |_| ()), 4);
    }

    #[test]
    fn one_that_panics_ends_for_itself_alone() {
        let opened = Opened::default();
        let (mut streams, counted) = (Streams::new(opened.clone()), Arc::<Counted>::default());
        let polled = Arc::new(AtomicUsize::new(0));
        let (say, said) = oneshot::channel::<()>();
        opened.execute(async move {
            let _ = said.await;
            panic!("on purpose");
        });
        let other = Arc::clone(&polled);
        opened.execute(poll_fn(move |_| {
            other.fetch_add(1, SeqCst);
            Poll::<()>::Pending
        }));
        turn(&mut streams, &counted, |_| ());
        say.send(()).expect("it is heard");
        turn(&mut streams, &counted, |_| ());
        assert_eq!((streams.open.len(), polled.load(SeqCst)), (1, 1));
    }

    #[test]
    fn what_was_opened_last_ends_with_the_others() {
        let opened = Opened::default();
        let streams = Streams::new(opened.clone());
        let (held, alive) = (opened.clone(), Arc::new(()));
        let ended = Arc::downgrade(&alive);
        opened.execute(async move {
            let _held = (held, alive);
            pending::<()>().await;
        });
        drop((streams, opened));
        assert!(ended.upgrade().is_none());
    }

    #[tokio::test]
    async fn handler_ends_with_its_stream() {
        let (alive, ended) = oneshot::channel::<()>();
        let handler = apart(async move {
            let _alive = alive;
            pending::<()>().await;
        });
        assert!(futures_util::poll!(Box::pin(handler)).is_pending());
        assert!(ended.await.is_err());
    }
}
