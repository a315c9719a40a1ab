//! The limit of requests in flight, which does not count those that go on by their nature.
//!
//! Follows `WithMaxInFlightLimit` in `k8s.io/apiserver/pkg/server/filters`; the limits are in `inflight`.

use std::ops::ControlFlow;

use super::{Filtered, Passing};
use crate::serve::inflight::{TooMany, turned_away};

pub(in crate::serve) fn limit(passing: &mut Passing<'_>) -> Filtered {
    if passing.head.long_running {
        return ControlFlow::Continue(());
    }
    match passing.chain.in_flight.begin(&passing.user, &passing.info) {
        Ok(permit) => {
            passing.record.permit = permit;
            ControlFlow::Continue(())
        }
        Err(TooMany) => {
            passing.record.terminated(429);
            ControlFlow::Break(turned_away())
        }
    }
}
