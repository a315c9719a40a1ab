//! The limits of requests in flight.
//!
//! Follows `WithMaxInFlightLimit` in `k8s.io/apiserver/pkg/server/filters`, and goes further in whom it never turns
//! away: besides `system:masters` also health probes, leader election and the cluster's own controllers, since an
//! overload must not cost a leader its lease or a namespace its deletion.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use http::{HeaderValue, Response, StatusCode, header};
use stoa_meta::request::UserInfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{health::is_health_path, metrics::Metrics};
use crate::{
    auth::MASTERS,
    http::{Body, RequestInfo, response},
};

#[derive(Debug)]
pub(crate) struct TooMany;

/// What a client hears that is turned away: plain text, as upstream's filter writes it, and to come back in a second.
pub(crate) fn turned_away() -> Response<Body> {
    let mut answer = response::text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[derive(Debug)]
pub(crate) struct InFlight {
    reading: Arc<Usage>,
    mutating: Arc<Usage>,
}

#[derive(Debug)]
struct Usage {
    most: usize,
    free: Arc<Semaphore>,
    began: Instant,
    /// The second and the most that was used in it, which the lower half of the bits is; of this second and the one before.
    peaks: [AtomicU64; 2],
}

/// A request that is being worked on; ends when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _limit: OwnedSemaphorePermit,
}

impl Usage {
    fn new(most: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { most, free: Arc::new(Semaphore::new(most)), began: Instant::now(), peaks: Default::default() })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.most - self.free.available_permits()).unwrap_or(u64::MAX).min(u32::MAX.into())
    }

    fn note(&self, at: Instant) {
        let second = self.second(at);
        // What is of a later second is larger, whatever was used in it.
        self.peaks[usize::from(second % 2 == 1)].fetch_max(second << 32 | self.now(), Ordering::Relaxed);
    }

    fn peak(&self, at: Instant) -> u64 {
        let second = self.second(at);
        let peaks = self.peaks.iter().map(|peak| peak.load(Ordering::Relaxed));
        let recent = peaks.filter(|peak| (peak >> 32) + 1 >= second).map(|peak| peak & u64::from(u32::MAX));
        recent.max().unwrap_or(0).max(self.now())
    }

    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }
}

impl InFlight {
    /// The limits; how much of them is used is told in the metrics.
    pub(crate) fn new(reading: usize, mutating: usize, metrics: &Metrics) -> Self {
        let limits = Self { reading: Usage::new(reading), mutating: Usage::new(mutating) };
        let gauges = metrics.current_inflight.clone();
        let told = [("readOnly", limits.reading.clone()), ("mutating", limits.mutating.clone())];
        metrics.families.on_reading(move || {
            let now = Instant::now();
            for (kind, usage) in &told {
                gauges.with_label_values(&[*kind]).set(usage.peak(now).cast_signed());
            }
        });
        limits
    }

    /// Begins a request; `None` when it does not count.
    pub(crate) fn begin(&self, user: &UserInfo, info: &RequestInfo) -> Result<Option<Permit>, TooMany> {
        let reads = matches!(info.verb.as_str(), "get" | "list" | "watch");
        let usage = if reads { &self.reading } else { &self.mutating };
        match usage.free.clone().try_acquire_owned() {
            Ok(permit) => {
                usage.note(Instant::now());
                Ok(Some(Permit { _limit: permit }))
            }
            Err(_) if never_turned_away(user, info) => Ok(None),
            Err(_) => Err(TooMany),
        }
    }
}

fn never_turned_away(user: &UserInfo, info: &RequestInfo) -> bool {
    let of_the_cluster = user.name.starts_with("system:kube-")
        || user.name.starts_with("system:serviceaccount:kube-system:")
        || user.in_group(MASTERS);
    let probes = !info.is_resource_request && is_health_path(&info.path);
    let elects = info.group == "coordination.k8s.io" && info.resource == "leases";
    of_the_cluster || probes || elects
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;

    use super::*;
    use stoa_registry::metrics::Families;

    fn user(name: &str, group: &str) -> UserInfo {
        UserInfo { name: name.to_owned(), groups: vec![group.to_owned()], ..UserInfo::default() }
    }

    fn info(method: Method, target: &str) -> RequestInfo {
        RequestInfo::new(&method, &target.parse().unwrap())
    }

    fn limited(reading: usize, mutating: usize) -> (InFlight, Families) {
        let families = Families::default();
        (InFlight::new(reading, mutating, &Metrics::new(&families).unwrap()), families)
    }

    /// What the metrics say of both kinds.
    fn told(families: &Families) -> Vec<(String, f64)> {
        let families = families.gather();
        let family = families.iter().find(|family| family.name() == "apiserver_current_inflight_requests").unwrap();
        let metrics = family.get_metric().iter();
        metrics.map(|metric| (metric.get_label()[0].value().to_owned(), metric.get_gauge().get_value())).collect()
    }

    #[test]
    fn usage_reports_peak_of_last_second() {
        let usage = Usage::new(9);
        let at = |ms| usage.began + Duration::from_millis(ms);
        assert_eq!(usage.peak(at(0)), 0);
        let begin = |ms| {
            let permit = usage.free.clone().try_acquire_owned().unwrap();
            usage.note(at(ms));
            permit
        };
        let (one, two, three) = (begin(100), begin(200), begin(1_900));
        assert_eq!(usage.peak(at(1_950)), 3);
        drop((two, three));
        assert_eq!([2_500, 3_100, 90_000].map(|ms| usage.peak(at(ms))), [3, 1, 1]);
        let _two = begin(3_200);
        drop(one);
        assert_eq!([3_300, 4_900, 5_000].map(|ms| usage.peak(at(ms))), [2, 2, 1]);
    }

    #[test]
    fn the_limits_are_apart_and_come_free_again() {
        let (in_flight, families) = limited(1, 1);
        let ann = user("ann", "dev");
        let list = info(Method::GET, "/apis/g.io/v1/stacks");
        let create = info(Method::POST, "/apis/g.io/v1/stacks");
        let reading = in_flight.begin(&ann, &list).unwrap();
        let mutating = in_flight.begin(&ann, &create).unwrap();
        assert_eq!(told(&families), [("mutating".to_owned(), 1.0), ("readOnly".to_owned(), 1.0)]);
        assert!(in_flight.begin(&ann, &list).is_err());
        assert!(in_flight.begin(&ann, &create).is_err());
        drop(reading);
        assert_eq!(told(&families)[1].1, 1.0, "it is the most of the last second");
        assert!(in_flight.begin(&ann, &list).is_ok());
        assert!(in_flight.begin(&ann, &create).is_err());
        drop(mutating);
        assert_eq!(in_flight.mutating.now(), 0);
    }

    #[test]
    fn no_limit_turns_nobody_away() {
        let (in_flight, _) = limited(usize::MAX, usize::MAX);
        let ann = user("ann", "dev");
        for method in [Method::GET, Method::POST] {
            assert!(matches!(in_flight.begin(&ann, &info(method, "/apis/g.io/v1/stacks")), Ok(Some(_))));
        }
    }

    #[test]
    fn probes_leaders_controllers_and_masters_are_never_turned_away() {
        let (in_flight, _) = limited(0, 0);
        let ann = user("ann", "dev");
        let list = info(Method::GET, "/apis/g.io/v1/stacks");
        let lease = info(Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l");
        let goes_through = |user: &UserInfo, info: &RequestInfo| matches!(in_flight.begin(user, info), Ok(None));
        assert!(!goes_through(&ann, &list));
        assert!(!goes_through(&ann, &info(Method::GET, "/metrics")));
        assert!(goes_through(&ann, &info(Method::GET, "/readyz/log")));
        assert!(goes_through(&ann, &lease));
        assert!(goes_through(&user("root", MASTERS), &list));
        assert!(goes_through(&user("system:kube-controller-manager", ""), &list));
        assert!(goes_through(&user("system:serviceaccount:kube-system:namespace-controller", ""), &list));
    }
}
