//! How many requests are worked on at once.
//!
//! Follows `WithMaxInFlightLimit` in `k8s.io/apiserver/pkg/server/filters`, and goes further in whom it never turns
//! away: besides `system:masters` also health probes, leader election and the cluster's own controllers, since an
//! overload must not cost a leader its lease or a namespace its deletion.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{health::is_health_path, metrics::Metrics};
use crate::{
    auth::MASTERS,
    http::{Body, RequestInfo, response},
    request::UserInfo,
};

/// There are too many requests for one more.
#[derive(Debug)]
pub(crate) struct TooMany;

/// What a client hears that is turned away: plain text, as upstream's filter writes it, and to come back in a second.
pub(crate) fn turned_away() -> Response<Body> {
    let mut answer = response::text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// The two limits: requests that read, and requests that change something.
#[derive(Debug)]
pub(crate) struct InFlight {
    reading: Arc<Semaphore>,
    mutating: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

/// A request that is being worked on; ends when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gauge: prometheus::IntGauge,
    _limit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl InFlight {
    pub(crate) fn new(reading: usize, mutating: usize, metrics: Arc<Metrics>) -> Self {
        let limit = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { reading: limit(reading), mutating: limit(mutating), metrics }
    }

    /// Begins a request; `None` when it does not count.
    ///
    /// # Errors
    ///
    /// [`TooMany`].
    pub(crate) fn begin(&self, user: &UserInfo, info: &RequestInfo) -> Result<Option<Permit>, TooMany> {
        let reads = matches!(info.verb.as_str(), "get" | "list" | "watch");
        let (limit, kind) = if reads { (&self.reading, "readOnly") } else { (&self.mutating, "mutating") };
        match limit.clone().try_acquire_owned() {
            Ok(permit) => {
                let gauge = self.metrics.current_inflight.with_label_values(&[kind]);
                gauge.inc();
                Ok(Some(Permit { gauge, _limit: permit }))
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
    use http::Method;

    use super::*;

    fn user(name: &str, group: &str) -> UserInfo {
        UserInfo { name: name.to_owned(), groups: vec![group.to_owned()], ..UserInfo::default() }
    }

    fn info(method: Method, target: &str) -> RequestInfo {
        RequestInfo::new(&method, &target.parse().unwrap())
    }

    #[test]
    fn the_limits_are_apart_and_come_free_again() {
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
        let in_flight = InFlight::new(1, 1, metrics.clone());
        let ann = user("ann", "dev");
        let list = info(Method::GET, "/apis/g.io/v1/stacks");
        let create = info(Method::POST, "/apis/g.io/v1/stacks");
        let reading = in_flight.begin(&ann, &list).unwrap();
        let mutating = in_flight.begin(&ann, &create).unwrap();
        assert_eq!(metrics.current_inflight.with_label_values(&["readOnly"]).get(), 1);
        assert!(in_flight.begin(&ann, &list).is_err());
        assert!(in_flight.begin(&ann, &create).is_err());
        drop(reading);
        assert_eq!(metrics.current_inflight.with_label_values(&["readOnly"]).get(), 0);
        assert!(in_flight.begin(&ann, &list).is_ok());
        assert!(in_flight.begin(&ann, &create).is_err());
        drop(mutating);
    }

    #[test]
    fn no_limit_turns_nobody_away() {
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
        let in_flight = InFlight::new(usize::MAX, usize::MAX, metrics);
        let ann = user("ann", "dev");
        for method in [Method::GET, Method::POST] {
            assert!(matches!(in_flight.begin(&ann, &info(method, "/apis/g.io/v1/stacks")), Ok(Some(_))));
        }
    }

    #[test]
    fn probes_leaders_controllers_and_masters_are_never_turned_away() {
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
        let in_flight = InFlight::new(0, 0, metrics);
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
