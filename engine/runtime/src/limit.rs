//! How many calls may be under way at once, of all the runs of a process.
//!
//! A run has its own bound; this is for the sum of them, so that what many runs call for does not come down on one cluster
//! at once. Whoever waits for a place does so behind the calls of its own run alone: runs have their turns one after the
//! other, however many calls each has waiting.
//!
//! A cluster that does not answer holds its places for long, and a few of them would hold them all. So a call that is under
//! way for a while gives its place among all calls to others, as long as there are not as many such calls again; and who
//! is slow to answer is called less at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// After how long a call counts as slow.
const SLOW: Duration = Duration::from_secs(10);
/// Which part of the calls to a place may be under way at once while one of them is slow.
const PART: usize = 4;

/// How many calls may be under way, and who waits. Clones share it.
#[derive(Clone, Debug)]
struct Limit(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    most: usize,
    taken: usize,
    /// How many of those that have places are slow.
    slow: usize,
    /// The runs whose calls wait, in the order of their turns.
    runs: VecDeque<Arc<str>>,
    /// Whoever waits, by run; never empty.
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Place>>>,
}

impl Queue {
    fn is_full(&self) -> bool {
        self.taken >= if self.slow == 0 { self.most } else { (self.most / PART).max(1) }
    }

    /// Whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let run = self.runs.pop_front()?;
        let of_run = self.waiting.get_mut(&run).expect("it waits");
        let next = of_run.pop_front();
        if of_run.is_empty() {
            self.waiting.remove(&run);
        } else {
            self.runs.push_back(run);
        }
        next
    }
}

/// A place for one call, given on when it is dropped.
#[derive(Debug)]
struct Place(Option<Limit>);

/// A mark that one of those that have places is slow, until it is dropped.
#[derive(Debug)]
struct Slow(Limit);

impl Limit {
    fn new(calls: usize) -> Self {
        let (runs, waiting) = (VecDeque::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Queue { most: calls, taken: 0, slow: 0, runs, waiting })))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn place(&self, run: &Arc<str>) -> Place {
        let turn = {
            let mut queue = self.queue();
            if !queue.is_full() {
                queue.taken += 1;
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

    fn slow(&self) -> Slow {
        self.queue().slow += 1;
        Slow(self.clone())
    }

    /// Gives places to those that wait, as long as there are any.
    fn fill(&self) {
        loop {
            let next = {
                let mut queue = self.queue();
                if queue.is_full() {
                    return;
                }
                let Some(next) = queue.next() else { return };
                queue.taken += 1;
                next
            };
            if let Err(mut unwanted) = next.send(Place(Some(self.clone()))) {
                // Whoever waited went away.
                unwanted.0 = None;
                self.queue().taken -= 1;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(limit) = self.0.take() else { return };
        limit.queue().taken -= 1;
        limit.fill();
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.queue().slow -= 1;
        self.0.fill();
    }
}

/// How many calls of one kind of runtime may be under way at once: in all, and to one place, such as a cluster.
#[derive(Debug)]
pub struct CallLimits {
    all: Limit,
    /// For calls that are slow and so none of `all` any more.
    slow: Limit,
    each: usize,
    places: Mutex<HashMap<String, Limit>>,
}

impl CallLimits {
    /// So many in all, slow ones aside, of which there may be as many again; and so many to each place, but a quarter
    /// where one is slow.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all: Limit::new(all), slow: Limit::new(all), each, places: Mutex::default() }
    }

    /// The calls of a run to a place. Places with the same name are the same.
    pub fn turns(&self, place: &str, run: &str) -> Turns {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody calls any more is not remembered.
        places.retain(|_, limit| Arc::strong_count(&limit.0) > 1);
        let limit = places.entry(place.to_owned()).or_insert_with(|| Limit::new(self.each)).clone();
        Turns(Some(Bounds { place: limit, all: self.all.clone(), slow: self.slow.clone(), run: run.into() }))
    }
}

/// What lets the calls of one run to one place go ahead.
#[derive(Clone, Debug)]
pub struct Turns(Option<Bounds>);

#[derive(Clone, Debug)]
struct Bounds {
    place: Limit,
    all: Limit,
    slow: Limit,
    run: Arc<str>,
}

/// Leave to make one call, until it is dropped.
#[derive(Debug)]
pub struct Turn(Option<(Held, AbortHandle)>);

/// What a call has, until it is over.
type Held = Arc<Mutex<Option<Places>>>;

#[derive(Debug)]
struct Places {
    slow: Option<Slow>,
    in_all: Place,
    #[expect(dead_code, reason = "held, and given on when it is dropped")]
    at_place: Place,
}

fn lock(held: &Held) -> MutexGuard<'_, Option<Places>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    /// Nobody has to wait.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Waits for the run's turn. Nothing is left behind when this is dropped. Has to be called in a runtime of Tokio.
    pub async fn next(&self) -> Turn {
        let Some(bounds) = &self.0 else { return Turn(None) };
        // In this order: what waits for one place keeps no other from being called.
        let at_place = bounds.place.place(&bounds.run).await;
        let in_all = bounds.all.place(&bounds.run).await;
        let held = Arc::new(Mutex::new(Some(Places { slow: None, in_all, at_place })));
        let watch = tokio::spawn(bounds.clone().give_way(Arc::clone(&held)));
        Turn(Some((held, watch.abort_handle())))
    }
}

impl Bounds {
    /// Once a call is slow, lets fewer others to its place, and others in where all are counted.
    async fn give_way(self, held: Held) {
        tokio::time::sleep(SLOW).await;
        if let Some(places) = lock(&held).as_mut() {
            places.slow = Some(self.place.slow());
        }
        let place = self.slow.place(&self.run).await;
        if let Some(places) = lock(&held).as_mut() {
            places.in_all = place;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((held, watch)) = &self.0 {
            watch.abort();
            // The task may be there a little longer.
            drop(lock(held).take());
        }
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

    #[tokio::test(start_paused = true)]
    async fn places_that_do_not_answer_keep_no_others_from_being_called() {
        let limits = CallLimits::new(8, 4);
        let call = async |place: &str| {
            let start = tokio::time::Instant::now();
            let turn = tokio::time::timeout(Duration::from_secs(60), limits.turns(place, "run").next()).await;
            (turn, start.elapsed())
        };
        let calls = async |place: &str| {
            let calls = (0..4).map(|_| limits.turns(place, "run")).collect::<Vec<_>>();
            let mut turns = Vec::new();
            for call in calls {
                turns.push(call.next().await);
            }
            turns
        };
        let mut a = calls("a").await;
        let b = calls("b").await;
        let (c, waited) = call("c").await;
        assert!(c.is_ok() && waited == SLOW, "{waited:?}");
        // One that answers now and then is called less at once until it has answered all.
        a.pop();
        assert!(call("a").await.0.is_err(), "three are slow");
        a.truncate(1);
        assert!(call("a").await.0.is_err(), "one is slow");
        a.clear();
        drop(c);
        let a = calls("a").await;
        assert_eq!(a.len(), 4, "none is slow");
        // As many again may be slow, and no more.
        let c = calls("c").await;
        tokio::time::sleep(SLOW * 2).await;
        let d = calls("d").await;
        assert!(call("e").await.0.is_err());
        drop(b);
        assert!(call("e").await.0.is_ok());
        drop((a, c, d));
        tokio::time::sleep(Duration::from_millis(1)).await;
        for limit in [&limits.all, &limits.slow] {
            let queue = limit.queue();
            assert_eq!((queue.taken, queue.slow, queue.runs.len(), queue.waiting.len()), (0, 0, 0, 0));
        }
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
        // What watches over its calls has ended, too.
        tokio::task::yield_now().await;
        let _other = limits.turns("b", "run");
        assert_eq!(limits.places.lock().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    }
}
