//! Events of a standalone server: they go an hour after they last happened, as kube-apiserver has it by default.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::MicroTime};
use stoa_controller::queue;
use stoa_kinds::lookup::Lookup;
use stoa_machinery::{
    ApiError,
    registry::{Api, ListOptions},
};
use tokio_util::sync::CancellationToken;

/// How long an Event is kept after it last happened.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How often to look for those whose time is up.
const LOOK: Duration = Duration::from_secs(300);

pub(crate) async fn run(lookup: Lookup, end: CancellationToken) {
    let Ok(events) = lookup.api::<Event>() else { return };
    while end.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        if let Err(error) = expire(&events, Timestamp::now()).await {
            tracing::warn!(%error, "Events whose time is up are not removed");
        }
    }
}

/// Removes the Events that are too old by `now`.
async fn expire(events: &Api<Event>, now: Timestamp) -> Result<(), ApiError> {
    // What the clock was set back from counts as new.
    let if_old = |event: Event| last_time(&event).is_some_and(|at| now.duration_since(at) > KEPT).then_some(event);
    for event in events.list_of(None, &ListOptions::default(), if_old).await? {
        queue::delete(events, &event).await?;
    }
    Ok(())
}

/// When an Event happened last, by whichever of its fields says so.
fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let precise = series.or(event.event_time.as_ref()).map(|MicroTime(at)| *at);
    let coarse = event.last_timestamp.as_ref().map(|time| time.0);
    precise.max(coarse).or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn events_go_an_hour_after_they_last_happened() {
        let world = TestServer::with_secrets().await;
        let events = world.registry.api::<Event>();
        let make = async |name: &str, last: Option<&str>| {
            let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "shop"},
                "involvedObject": {"namespace": "shop"}, "lastTimestamp": last});
            events.create(&serde_json::from_value(event).unwrap()).await.unwrap();
        };
        make("old", Some("2026-01-01T00:00:00Z")).await;
        make("newer", Some("2026-01-01T00:30:00Z")).await;
        make("of-now", None).await;
        // They were all made now, and say when it happened.
        let left = async |now: &str| {
            expire(&events, now.parse().unwrap()).await.unwrap();
            let left = events.list(Some("shop"), "").await.unwrap();
            left.into_iter().filter_map(|event| event.metadata.name).collect::<Vec<_>>()
        };
        assert_eq!(left("2026-01-01T00:59:59Z").await, ["newer", "of-now", "old"]);
        assert_eq!(left("2026-01-01T01:00:01Z").await, ["newer", "of-now"]);
        assert_eq!(left("2026-01-01T01:30:01Z").await, ["of-now"]);
    }
}
