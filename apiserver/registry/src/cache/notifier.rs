//! The notifier of a watch cache, which wakes all watches on an event.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use slab::Slab;

/// Says that there is something new, to any number of [`Listener`]s.
///
/// Each event wakes all watches of a resource, which then wait anew. So who waits has a place beside the others here,
/// rather than in a list whose neighbours are the other watches' memory, and keeps its waker there.
#[derive(Clone, Debug, Default)]
pub(super) struct Notifier(Arc<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    /// How often there was something.
    told: AtomicU64,
    places: Mutex<Slab<Sleeper>>,
}

#[derive(Debug, Default)]
struct Sleeper {
    /// Whom to wake.
    waker: Option<Waker>,
    /// Whether it waits, and was not woken since.
    waits: bool,
}

/// Hears what is told from when it was made.
#[derive(Debug)]
pub(super) struct Listener {
    notifier: Notifier,
    place: usize,
    /// What was told when it last heard something.
    heard: u64,
}

impl Notifier {
    pub(super) fn notify(&self) {
        // With the lock, since a copy of each waker would touch the memory of whom it wakes. To wake runs nothing of theirs.
        let mut places = self.0.places.lock();
        self.0.told.fetch_add(1, SeqCst);
        for (_, place) in places.iter_mut() {
            if std::mem::take(&mut place.waits)
                && let Some(waker) = &place.waker
            {
                waker.wake_by_ref();
            }
        }
    }

    pub(super) fn listen(&self) -> Listener {
        let mut places = self.0.places.lock();
        Listener { notifier: self.clone(), place: places.insert(Sleeper::default()), heard: self.0.told.load(SeqCst) }
    }
}

impl Listener {
    /// Ready when something was told since it last was.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let listeners = &*self.notifier.0;
        if listeners.told.load(SeqCst) == self.heard {
            let mut places = listeners.places.lock();
            // Nothing is told as long as this has the lock.
            if listeners.told.load(SeqCst) == self.heard {
                let before = places[self.place].wait(context.waker());
                drop(places);
                // Without the lock: it may be the last that keeps another listener.
                drop(before);
                return Poll::Pending;
            }
        }
        self.heard = listeners.told.load(SeqCst);
        Poll::Ready(())
    }
}

impl Sleeper {
    /// Says whom to wake, and returns whom not any more.
    fn wait(&mut self, waker: &Waker) -> Option<Waker> {
        self.waits = true;
        match &self.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => self.waker.replace(waker.clone()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut places = self.notifier.0.places.lock();
        let left = places.remove(self.place);
        if places.is_empty() {
            // Room for as many as ever listened would be looked through with each event.
            *places = Slab::new();
        }
        drop(places);
        // Without the lock, as above.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(listener: &mut Listener, by: &Arc<Counted>) -> Poll<()> {
        listener.poll(&Context::from_waker(&Waker::from(Arc::clone(by))))
    }

    #[test]
    fn notifier_wakes_every_listener_once() {
        let (notifier, woken) = (Notifier::default(), Arc::<Counted>::default());
        notifier.notify();
        let mut listeners = [(); 3].map(|()| notifier.listen());
        assert!(listeners.iter_mut().all(|listener| poll(listener, &woken).is_pending()));
        notifier.notify();
        notifier.notify();
        assert_eq!(woken.0.load(Ordering::SeqCst), 3);
        assert!(listeners.iter_mut().all(|listener| poll(listener, &woken).is_ready()));
        assert!(listeners.iter_mut().all(|listener| poll(listener, &woken).is_pending()));
    }

    #[test]
    fn notifier_wakes_only_latest_live_task() {
        let (notifier, first, last) = (Notifier::default(), Arc::<Counted>::default(), Arc::<Counted>::default());
        let mut listener = notifier.listen();
        assert!(poll(&mut listener, &first).is_pending() && poll(&mut listener, &last).is_pending());
        notifier.notify();
        let mut gone = notifier.listen();
        assert!(poll(&mut gone, &first).is_pending());
        drop(gone);
        notifier.notify();
        assert_eq!([&first, &last].map(|woken| woken.0.load(Ordering::SeqCst)), [0, 1]);
        drop(listener);
        assert!(notifier.0.places.lock().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_missed_whenever_it_is_told() {
        const TOLD: u64 = 10_000;
        let notifier = Notifier::default();
        let listening = [(); 4].map(|()| {
            let mut listener = notifier.listen();
            tokio::spawn(async move {
                while listener.heard < TOLD {
                    poll_fn(|context| listener.poll(context)).await;
                }
            })
        });
        for _ in 0..TOLD {
            notifier.notify();
            tokio::task::yield_now().await;
        }
        for ended in listening {
            ended.await.expect("it heard the last of it");
        }
    }
}
