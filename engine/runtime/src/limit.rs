//! Bounds how many calls of all runs of a process are under way at once.
//!
//! Start at [`CallLimits`]. A run has its own bound; these limits hold for the sum of all runs, so that many runs do not overload one
//! cluster. Organizations share the calls fairly ([`stoa_fairness`]), in all and at each cluster. So do the runs of an
//! organization: a call waits behind the calls of its own run alone, however many calls each run has waiting.
//!
//! A cluster that does not answer holds its calls for long. After [`SLOW`] such a call moves to a limit of its own, so that others can
//! be called, and its organization sends fewer calls to that cluster at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoa_fairness::{FairSemaphore, MaxShare, Permit, Throttle};
use tokio::task::AbortHandle;

/// After how long a call counts as slow.
const SLOW: Duration = Duration::from_secs(10);

/// Whose calls are made.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The organization, which shares the calls with others. Empty for API servers of earlier versions, whose calls have no
    /// bound of their own.
    pub organization: Arc<str>,
    /// The uid of the run, or another name that takes turns with the runs of the organization.
    pub run: Arc<str>,
}

/// How many calls of one kind of runtime may be under way at once: in all, and to one endpoint, such as a cluster.
#[derive(Debug)]
pub struct CallLimits {
    all: FairSemaphore,
    /// For calls that are slow, which count in `all` no more.
    slow: FairSemaphore,
    each: usize,
    endpoints: Mutex<HashMap<String, FairSemaphore>>,
}

impl CallLimits {
    /// Limits for `all` calls, and for `each` call to one endpoint.
    ///
    /// As many calls again may be slow. An organization with a slow call to an endpoint has at most a quarter of `each` there.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all: semaphore(all), slow: semaphore(all), each, endpoints: Mutex::default() }
    }

    /// The turns of a caller at an endpoint. Endpoints with the same name are the same.
    pub fn turns(&self, endpoint: &str, caller: Caller) -> Turns {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody calls the others any more.
        endpoints.retain(|_, limit| limit.is_shared());
        let limit = endpoints.entry(endpoint.to_owned()).or_insert_with(|| semaphore(self.each)).clone();
        Turns(Some(Bounds { endpoint: limit, all: self.all.clone(), slow: self.slow.clone(), caller }))
    }
}

fn semaphore(permits: usize) -> FairSemaphore {
    FairSemaphore::new(permits, MaxShare::ThreeQuarters)
}

/// Lets the calls of one run to one endpoint begin.
#[derive(Clone, Debug)]
pub struct Turns(Option<Bounds>);

#[derive(Clone, Debug)]
struct Bounds {
    endpoint: FairSemaphore,
    all: FairSemaphore,
    slow: FairSemaphore,
    caller: Caller,
}

/// The right to make one call, until it is dropped.
#[derive(Debug)]
pub struct Turn(Option<(Shared, AbortHandle)>);

/// The permits of a call, until it is over.
type Shared = Arc<Mutex<Option<Permits>>>;

#[derive(Debug)]
struct Permits {
    throttle: Option<Throttle>,
    in_all: Permit,
    #[expect(dead_code, reason = "returns when it is dropped")]
    at_endpoint: Permit,
}

fn lock(permits: &Shared) -> MutexGuard<'_, Option<Permits>> {
    permits.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    /// Turns that nobody waits for.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Waits for the run's turn. Dropping the future leaves nothing behind. Needs a Tokio runtime.
    pub async fn next(&self) -> Turn {
        let Some(bounds) = &self.0 else { return Turn(None) };
        // In this order: a call that waits for its endpoint keeps no other endpoint from being called.
        let at_endpoint = bounds.acquire(&bounds.endpoint).await;
        let in_all = bounds.acquire(&bounds.all).await;
        let permits = Arc::new(Mutex::new(Some(Permits { throttle: None, in_all, at_endpoint })));
        let watch = tokio::spawn(bounds.clone().give_way(Arc::clone(&permits)));
        Turn(Some((permits, watch.abort_handle())))
    }
}

impl Bounds {
    async fn acquire(&self, semaphore: &FairSemaphore) -> Permit {
        semaphore.acquire_in_lane(&self.caller.organization, &self.caller.run, 1).await
    }

    /// Once a call is slow, throttles its organization at the endpoint, and lets another call begin.
    async fn give_way(self, permits: Shared) {
        tokio::time::sleep(SLOW).await;
        if let Some(permits) = lock(&permits).as_mut() {
            permits.throttle = Some(self.endpoint.throttle(&self.caller.organization));
        }
        let permit = self.acquire(&self.slow).await;
        if let Some(permits) = lock(&permits).as_mut() {
            permits.in_all = permit;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((permits, watch)) = &self.0 {
            watch.abort();
            // The task may exist a little longer.
            drop(lock(permits).take());
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
        let limits = CallLimits::new(3, 2);
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
        let limits = CallLimits::new(10, 1);
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
    async fn unresponsive_targets_block_no_other_calls() {
        let limits = CallLimits::new(8, 4);
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
    async fn unresponsive_clusters_block_only_their_organization() {
        let limits = CallLimits::new(32, 4);
        let clusters: Vec<String> = (0..40).map(|cluster| cluster.to_string()).collect();
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let mut hang = hanging(&limits, "a", &clusters, 4);
        for _ in 0..10 {
            tokio::time::sleep(SLOW / 2).await;
            let others = ["b", "c"].map(|other| limits.turns("another", of(other, "run")).next().now_or_never());
            assert!(others.iter().all(Option::is_some));
        }
        assert_eq!((limits.all.held_by("a"), limits.slow.held_by("a")), (24, 24), "three quarters of each");
        // What it calls for itself does not wait for ever.
        let mut own = Box::pin(async { limits.turns("another", of("a", "run")).next().await });
        assert!((&mut own).now_or_never().is_none());
        hang.shutdown().await;
        drop(own.await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(limits.all.is_idle() && limits.slow.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_cluster_of_one_organization_serves_others() {
        let limits = CallLimits::new(64, 32);
        let _hang = hanging(&limits, "a", &["1"], 100);
        let most = || {
            let mut turns = Vec::new();
            while let Some(turn) = limits.turns("1", of("b", "run")).next().now_or_never() {
                turns.push(turn);
            }
            turns.len()
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(most(), 4, "a has 24, and half of the rest is left for others");
        tokio::time::sleep(SLOW * 3).await;
        assert_eq!(most(), 4, "what is slow for one is not for the other");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_organizations_leave_slots_to_others() {
        let limits = CallLimits::new(16, 16);
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
        let limits = CallLimits::new(1, 1);
        let turns = limits.turns("a", run("run"));
        let first = turns.next().await;
        let (mut gone, mut given) = (Box::pin(turns.next()), Box::pin(turns.next()));
        assert!((&mut gone).now_or_never().is_none() && (&mut given).now_or_never().is_none());
        drop(gone);
        drop(first);
        // It was given a place that it never took.
        drop(given);
        assert!(turns.next().now_or_never().is_some());
        assert_eq!(limits.endpoints.lock().unwrap().len(), 1);
        drop(turns);
        // What watches over its calls has ended, too.
        tokio::task::yield_now().await;
        let _other = limits.turns("b", run("run"));
        assert_eq!(limits.endpoints.lock().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    }
}
