//! How many calls may be under way at once, of all the runs of a process.
//!
//! A run has its own bound; this is for the sum of them, so that what many runs call for does not come down on one cluster
//! at once. Organizations share it ([`Shares`](stoa_shares::Shares)), in all and at each cluster, so that what one of them calls for
//! keeps no other waiting, whatever does not answer. Whoever waits for a place does so behind the calls of its own run alone:
//! organizations have their turns one after the other, those first that have fewest places, and so have the runs of each,
//! however many calls each has waiting.
//!
//! A cluster that does not answer holds its places for long, and a few of them would hold all that an organization may have. So
//! a call that is under way for a while gives its place among all calls to others, as long as there are not as many such calls
//! again; and who is slow to answer is called less at once by the organization for which it is.
//!
//! Start at [`CallLimits`]. Who has a place and who waits for one is in `queue`.

mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoa_shares::Most;
use tokio::task::AbortHandle;

use self::queue::{Limit, Place, Slow};

/// After how long a call counts as slow.
const SLOW: Duration = Duration::from_secs(10);

/// Whose calls are made.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The organization, which shares what may be under way with the others. Empty means none, which has no share to keep to.
    pub organization: Arc<str>,
    /// The run, by its uid, or what else has its turns among the runs of the organization.
    pub run: Arc<str>,
}

/// How many calls of one kind of runtime may be under way at once: in all, and to one place, such as a cluster.
#[derive(Debug)]
pub struct CallLimits {
    all: Limit,
    /// For calls that are slow and so none of `all` any more.
    slow: Limit,
    each: usize,
    most: Most,
    places: Mutex<HashMap<String, Limit>>,
}

impl CallLimits {
    /// So many in all, slow ones aside, of which there may be as many again; and so many to each place, but of an
    /// organization a quarter of that where one of its is slow. Of what is not slow one organization has at most this part, and
    /// of what is slow half: nobody knows how long that lasts.
    pub fn new(all: usize, each: usize, most: Most) -> Self {
        Self { all: Limit::new(all, most), slow: Limit::new(all, Most::Half), each, most, places: Mutex::default() }
    }

    /// Lets calls to a place go ahead. Places with the same name are the same.
    pub fn turns(&self, place: &str, caller: Caller) -> Turns {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody calls any more is not remembered.
        places.retain(|_, limit| limit.is_shared());
        let limit = places.entry(place.to_owned()).or_insert_with(|| Limit::new(self.each, self.most)).clone();
        Turns(Some(Bounds { place: limit, all: self.all.clone(), slow: self.slow.clone(), caller }))
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
    caller: Caller,
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
        let at_place = bounds.place.place(&bounds.caller).await;
        let in_all = bounds.all.place(&bounds.caller).await;
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
            places.slow = Some(self.place.slow(&self.caller.organization));
        }
        let place = self.slow.place(&self.caller).await;
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
    use tokio::task::JoinSet;

    fn of(organization: &str, run: &str) -> Caller {
        Caller { organization: organization.into(), run: run.into() }
    }

    /// A run of no organization, which has all that is free.
    fn run(run: &str) -> Caller {
        of("", run)
    }

    #[tokio::test]
    async fn no_more_calls_are_under_way_than_may_be() {
        let limits = CallLimits::new(3, 2, Most::SevenEighths);
        let under_way = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let calls = (0..40).map(|number| {
            let turns = limits.turns(if number % 2 == 0 { "a" } else { "b" }, run(&format!("run-{}", number % 5)));
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
        let (one, two) = (limits.turns("a", run("x")), limits.turns("a", run("y")));
        let _held = (one.next().await, two.next().await);
        assert!(limits.turns("a", run("z")).next().now_or_never().is_none(), "there are two at this place");
        assert!(limits.turns("c", run("z")).next().now_or_never().is_some(), "another place is free");
    }

    #[tokio::test]
    async fn runs_have_their_turns_however_many_calls_each_has() {
        let limits = CallLimits::new(10, 1, Most::SevenEighths);
        let first = limits.turns("a", run("many")).next().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for name in ["many", "many", "many", "few", "one", "few"] {
            let (turns, order) = (limits.turns("a", run(name)), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _turn = turns.next().await;
                order.lock().unwrap().push(name);
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
        let limits = CallLimits::new(8, 4, Most::SevenEighths);
        let call = async |place: &str| {
            let start = tokio::time::Instant::now();
            let turn = tokio::time::timeout(Duration::from_secs(60), limits.turns(place, run("run")).next()).await;
            (turn, start.elapsed())
        };
        let calls = async |place: &str| {
            let calls = (0..4).map(|_| limits.turns(place, run("run"))).collect::<Vec<_>>();
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
        assert!(limits.all.is_idle() && limits.slow.is_idle());
    }

    /// Calls of an organization to clusters, so many to each, which never end.
    fn hanging(limits: &CallLimits, organization: &str, clusters: &[&str], calls: usize) -> JoinSet<()> {
        let calls = clusters.iter().flat_map(|cluster| std::iter::repeat_n(*cluster, calls));
        let calls = calls.map(|cluster| limits.turns(cluster, of(organization, "run")));
        calls
            .map(|turns| async move {
                let _turn = turns.next().await;
                std::future::pending::<()>().await;
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn organization_whose_clusters_do_not_answer_keeps_no_other_waiting() {
        let limits = CallLimits::new(32, 4, Most::SevenEighths);
        let clusters: Vec<String> = (0..40).map(|cluster| cluster.to_string()).collect();
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let mut hang = hanging(&limits, "a", &clusters, 4);
        for _ in 0..10 {
            tokio::time::sleep(SLOW / 2).await;
            let others = ["b", "c"].map(|other| limits.turns("another", of(other, "run")).next().now_or_never());
            assert!(others.iter().all(Option::is_some));
        }
        assert_eq!((limits.all.taken("a"), limits.slow.taken("a")), (28, 16), "what is slow is at most half");
        // What it calls for itself does not wait for ever.
        let mut own = Box::pin(async { limits.turns("another", of("a", "run")).next().await });
        assert!((&mut own).now_or_never().is_none());
        hang.shutdown().await;
        drop(own.await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(limits.all.is_idle() && limits.slow.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_that_does_not_answer_one_organization_is_called_for_others() {
        let limits = CallLimits::new(64, 32, Most::SevenEighths);
        let _hang = hanging(&limits, "a", &["1"], 100);
        let most = || {
            let mut turns = Vec::new();
            while let Some(turn) = limits.turns("1", of("b", "run")).next().now_or_never() {
                turns.push(turn);
            }
            turns.len()
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(most(), 2, "a has 28, and half of the rest is left for others");
        tokio::time::sleep(SLOW * 3).await;
        assert_eq!(most(), 2, "what is slow for one is not for the other");
    }

    #[tokio::test(start_paused = true)]
    async fn several_organizations_whose_clusters_do_not_answer_leave_turns_to_others() {
        let limits = CallLimits::new(16, 16, Most::SevenEighths);
        let clusters = ["1", "2", "3", "4"];
        let mut hang: Vec<JoinSet<()>> = Vec::new();
        for organization in clusters {
            hang.push(hanging(&limits, organization, &[organization], 100));
            tokio::time::sleep(SLOW * 3).await;
            assert!(limits.turns("5", of("5", "run")).next().now_or_never().is_some(), "{organization}");
        }
    }

    #[tokio::test]
    async fn whoever_goes_away_takes_no_place_along() {
        let limits = CallLimits::new(1, 1, Most::SevenEighths);
        let turns = limits.turns("a", run("run"));
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
        let _other = limits.turns("b", run("run"));
        assert_eq!(limits.places.lock().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    }
}
