//! How many calls may be under way at once, of all the runs of a process.
//!
//! A run has its own bound; this is for the sum of them, so that what many runs call for does not come down on one cluster
//! at once. Whoever waits for a place does so behind the calls of its own run alone: runs have their turns one after the
//! other, however many calls each has waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How many calls may be under way, and who waits. Clones share it.
#[derive(Clone, Debug)]
struct Limit(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    /// The runs whose calls wait, in the order of their turns.
    runs: VecDeque<Arc<str>>,
    /// Whoever waits, by run; never empty.
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Place>>>,
}

/// A place for one call, given on when it is dropped.
#[derive(Debug)]
struct Place(Option<Limit>);

impl Limit {
    fn new(calls: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: calls, runs: VecDeque::new(), waiting: HashMap::new() })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn place(&self, run: &Arc<str>) -> Place {
        let turn = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Place(Some(self.clone()));
            }
            let (given, turn) = oneshot::channel();
            if !queue.waiting.contains_key(run) {
                queue.runs.push_back(Arc::clone(run));
            }
            queue.waiting.entry(Arc::clone(run)).or_default().push_back(given);
            turn
        };
        turn.await.expect("whoever has a place gives it on")
    }

    /// Whose turn it is; if nobody's, there is a free place more.
    fn next(&self) -> Option<oneshot::Sender<Place>> {
        let mut queue = self.queue();
        let Some(run) = queue.runs.pop_front() else {
            queue.free += 1;
            return None;
        };
        let of_run = queue.waiting.get_mut(&run).expect("it waits");
        let next = of_run.pop_front();
        if of_run.is_empty() {
            queue.waiting.remove(&run);
        } else {
            queue.runs.push_back(run);
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(limit) = self.0.take() else { return };
        while let Some(next) = limit.next() {
            match next.send(Place(Some(limit.clone()))) {
                Ok(()) => return,
                // Whoever waited went away.
                Err(mut unwanted) => unwanted.0 = None,
            }
        }
    }
}

/// How many calls of one kind of runtime may be under way at once: in all, and to one place, such as a cluster.
#[derive(Debug)]
pub struct CallLimits {
    all: Limit,
    each: usize,
    places: Mutex<HashMap<String, Limit>>,
}

impl CallLimits {
    /// So many in all, and so many to each place.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all: Limit::new(all), each, places: Mutex::default() }
    }

    /// The calls of a run to a place. Places with the same name are the same.
    pub fn turns(&self, place: &str, run: &str) -> Turns {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody calls any more is not remembered.
        places.retain(|_, limit| Arc::strong_count(&limit.0) > 1);
        let limit = places.entry(place.to_owned()).or_insert_with(|| Limit::new(self.each)).clone();
        Turns(Some(Bounds { place: limit, all: self.all.clone(), run: run.into() }))
    }
}

/// What lets the calls of one run to one place go ahead.
#[derive(Clone, Debug)]
pub struct Turns(Option<Bounds>);

#[derive(Clone, Debug)]
struct Bounds {
    place: Limit,
    all: Limit,
    run: Arc<str>,
}

/// Leave to make one call, until it is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "held, and given on when it is dropped")] Option<[Place; 2]>);

impl Turns {
    /// Nobody has to wait.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Waits for the run's turn. Nothing is left behind when this is dropped.
    pub async fn next(&self) -> Turn {
        let Some(Bounds { place, all, run }) = &self.0 else { return Turn(None) };
        // In this order: what waits for one place keeps no other from being called.
        let at_place = place.place(run).await;
        Turn(Some([at_place, all.place(run).await]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn no_more_calls_are_under_way_than_may_be() {
        let limits = CallLimits::new(3, 2);
        let under_way = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let calls = (0..40).map(|number| {
            let turns = limits.turns(if number % 2 == 0 { "a" } else { "b" }, &format!("run-{}", number % 5));
            let (under_way, most) = (Arc::clone(&under_way), Arc::clone(&most));
            tokio::spawn(async move {
                let _turn = turns.next().await;
                most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        let (one, two) = (limits.turns("a", "x"), limits.turns("a", "y"));
        let _held = (one.next().await, two.next().await);
        assert!(limits.turns("a", "z").next().now_or_never().is_none(), "there are two at this place");
        assert!(limits.turns("c", "z").next().now_or_never().is_some(), "another place is free");
    }

    #[tokio::test]
    async fn runs_have_their_turns_however_many_calls_each_has() {
        let limits = CallLimits::new(10, 1);
        let first = limits.turns("a", "many").next().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for run in ["many", "many", "many", "few", "one", "few"] {
            let (turns, order) = (limits.turns("a", run), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _turn = turns.next().await;
                order.lock().unwrap().push(run);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for waiting in waiting {
            waiting.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["many", "few", "one", "many", "few", "many"]);
    }

    #[tokio::test]
    async fn whoever_goes_away_takes_no_place_along() {
        let limits = CallLimits::new(1, 1);
        let turns = limits.turns("a", "run");
        let first = turns.next().await;
        let (mut gone, mut given) = (Box::pin(turns.next()), Box::pin(turns.next()));
        assert!((&mut gone).now_or_never().is_none() && (&mut given).now_or_never().is_none());
        drop(gone);
        drop(first);
        // It was given a place that it never took.
        drop(given);
        assert!(turns.next().now_or_never().is_some());
        assert_eq!(limits.places.lock().unwrap().len(), 1);
        drop(turns);
        let _other = limits.turns("b", "run");
        assert_eq!(limits.places.lock().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    }
}
