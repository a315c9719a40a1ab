//! Reports the progress of an apply to the caller, and waits until the caller has recorded it.

use std::sync::Arc;

use stoa_apply::{Abandoned, Intended, Observer, ResourceResult};
use stoa_engine::{Action, ResourceId, Spec};
use stoa_failpoint::reached;
use stoa_proto::apply_event::Event;
use stoa_proto::{HealthEvent, IntentEvent, ResultEvent};
use stoa_runtime::Health;

use super::{Broken, Conversation};
use crate::convert;
use crate::failure::sentence;
use crate::metrics::Metrics;

/// The observer of a walk.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) conversation: Arc<Conversation>,
    pub(super) spec: Arc<Spec>,
    pub(super) metrics: Metrics,
}

impl Relay {
    async fn tell_health(&self, id: &ResourceId, health: Health, message: &str, over: bool) {
        let (id, finished) = (id.0.clone(), false);
        let event = HealthEvent { id, health: health.to_string(), message: message.to_owned(), over, finished };
        self.tell(event).await;
    }

    async fn tell(&self, event: HealthEvent) {
        // The next wait for an ack notices a caller that left.
        let _ = self.conversation.tell(Event::Health(event)).await;
    }
}

impl From<Broken> for Abandoned {
    fn from(_: Broken) -> Self {
        Self
    }
}

#[tonic::async_trait]
impl Observer for Relay {
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned> {
        let ids = calls.iter().map(|call| call.id.0.clone()).collect();
        let places = calls.iter().map(|Intended { place, .. }| stoa_proto::Place {
            clusters: place.clusters.clone(),
            import_id: place.import_id.clone(),
            r#type: place.kind.to_string(),
        });
        let event = IntentEvent { ids, action: action.to_string(), places: places.collect() };
        self.conversation.ask(Event::Intent(event)).await?;
        reached("call-allowed");
        Ok(())
    }

    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned> {
        let problem = result.problem.map(|problem| convert::problem_in(&self.spec, problem));
        let event = ResultEvent {
            id: result.id.0,
            action: result.action.to_string(),
            outcome: result.outcome.to_string(),
            message: problem.as_ref().map_or(result.message, sentence),
            resource: result
                .resource
                .map(|resource| serde_json::to_vec(&resource).expect("a record is JSON"))
                .unwrap_or_default()
                .into(),
            kubernetes: result.kubernetes.map(convert::kubernetes_object),
            depends_on: result.depends_on.into_iter().map(|id| id.0).collect(),
            problem,
            left: result.left,
        };
        tracing::debug!(resource = event.id, action = event.action, outcome = event.outcome, message = event.message);
        self.metrics.finished(&event.action, &event.outcome);
        reached("call-made");
        self.conversation.ask(Event::Result(event)).await?;
        reached("result-kept");
        Ok(())
    }

    async fn health(&self, id: &ResourceId, health: Health, message: &str) {
        reached("health-told");
        self.tell_health(id, health, message, false).await;
    }

    async fn finished(&self, id: &ResourceId) {
        let (id, health, message) = (id.0.clone(), Health::Current.to_string(), "it has finished".to_owned());
        self.tell(HealthEvent { id, health, message, over: false, finished: true }).await;
    }

    async fn health_timed_out(&self, id: &ResourceId, health: Health, message: &str) {
        self.tell_health(id, health, message, true).await;
    }
}
