//! The status of a sink: the condition `Ready`, and counts of dead letters and gaps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::conditions::set_condition;
use stoa_types::{NotificationSink, common::condition, platform, reason};

use super::records::Gap;
use crate::Services;

/// Why deliveries do not get on: a reason for machines and a message for people.
pub(super) type Problem = (&'static str, String);

/// What a sink's status says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SinkStatus {
    pub(super) problem: Option<Problem>,
    pub(super) dead: i64,
    pub(super) dropped: i64,
    pub(super) gaps: i64,
    pub(super) last_gap: Option<Gap>,
}

/// Writes the status of a sink, if it still is the same one.
pub(super) async fn tell(services: &Services, sink: &NotificationSink, standing: &SinkStatus) {
    let (name, generation) = (sink.name_any(), sink.metadata.generation);
    let (ready, why, message) = match &standing.problem {
        None => (true, reason::AVAILABLE, "events are delivered"),
        Some((why, message)) => (false, *why, message.as_str()),
    };
    let change = |there: &mut NotificationSink| {
        if there.metadata.uid != sink.metadata.uid {
            return;
        }
        let status = there.status.get_or_insert_default();
        set_condition(&mut status.conditions, reason::READY, ready, why, message, generation);
        status.dead_letters = standing.dead;
        status.dropped_dead_letters = standing.dropped;
        status.gaps = standing.gaps;
        let shown =
            |gap: &Gap| platform::Gap { from: gap.from.to_string(), to: gap.to.to_string(), time: Time(gap.time) };
        status.last_gap = standing.last_gap.as_ref().map(shown);
    };
    let Ok(sinks) = services.lookup.api::<NotificationSink>() else { return };
    match sinks.update_status_with("", &name, change).await {
        Err(error) if error.code() != 404 => tracing::warn!(sink = name, %error, "a status is not written"),
        Ok(_) | Err(_) => {}
    }
}

/// What a sink's status said of its deliveries before, if the sink is the same since.
pub(super) fn earlier(sink: &NotificationSink) -> Option<Problem> {
    let ready = condition(&sink.status.as_ref()?.conditions, reason::READY)?;
    let is_same = ready.observed_generation == sink.metadata.generation && ready.reason == reason::DELIVERY_FAILED;
    is_same.then(|| (reason::DELIVERY_FAILED, ready.message.clone()))
}
