//! What a run waits for once all changes are made, until it is healthy. Where that takes a while the run says so, in its
//! condition `Waiting`, and what it changed can be looked at before it has ended.

use std::{collections::BTreeMap, time::Duration};

use stoa_engine::{Health, ResourceId};
use stoa_types::{delivery::RunPhase, reason};
use tokio::time::Instant;

use crate::{
    kinds::check::set_condition,
    runs::{Halt, deployment, execution::Execution, resources, state::State, status, target::Target},
};

/// How soon it is told first, and how often from then on: much is healthy before.
const EVERY: Duration = Duration::from_secs(3);
/// How long after what was changed could not be recorded that is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// With more resources on record they are written at the end of the run alone: the runner is not heard meanwhile.
const MOST: usize = 300;
/// So many are named.
const NAMED: usize = 3;

/// What is not healthy yet, as far as the function-runner has said.
#[derive(Debug, Default)]
pub(super) struct Verifying {
    /// What it said of each, by id.
    unhealthy: BTreeMap<String, String>,
    /// When it is to be told; never before anything was heard.
    next: Option<Instant>,
    is_recorded: bool,
    /// When that is tried again, where it failed.
    again: Option<Instant>,
}

impl Verifying {
    /// Takes in how a resource fares.
    pub(super) fn hear(&mut self, id: &ResourceId, health: Health, message: &str) {
        self.next.get_or_insert_with(|| Instant::now() + EVERY);
        if health.is_settled() {
            self.unhealthy.remove(&id.0);
            return;
        }
        let message = if message.is_empty() { health.to_string() } else { message.to_owned() };
        self.unhealthy.insert(id.0.clone(), message);
    }

    /// Tells what is waited for, if it is time for that. `is_applied`: nothing is left to change.
    ///
    /// # Errors
    ///
    /// Whatever keeps the run's status from being written.
    pub(super) async fn tell(
        &mut self,
        execution: &mut Execution,
        target: &Target,
        state: &State,
        is_applied: bool,
    ) -> Result<(), Halt> {
        let now = Instant::now();
        if self.next.is_none_or(|next| next > now) {
            return Ok(());
        }
        self.next = Some(now + EVERY);
        if is_applied && self.records(state.entries().count()) {
            match Box::pin(record(execution, target, state)).await {
                Ok(()) => self.is_recorded = true,
                // They are written at the end of the run in any case.
                Err(halt) => {
                    tracing::warn!(?halt, "what a run changed cannot be looked at before it has ended");
                    self.again = Some(Instant::now() + AGAIN);
                }
            }
        }
        // What is out of reach counts for more.
        if execution.tells_trouble() {
            return Ok(());
        }
        let message = self.message();
        let status = status(&execution.run);
        let told = status.conditions.iter().find(|of| of.type_ == reason::WAITING).map(|of| &of.message);
        if told == message.as_ref() {
            return Ok(());
        }
        let generation = execution.run.metadata.generation;
        execution
            .update(|status| match &message {
                Some(message) => {
                    let why = reason::VERIFYING;
                    set_condition(&mut status.conditions, reason::WAITING, true, why, message, generation);
                }
                None => status.conditions.retain(|condition| condition.type_ != reason::WAITING),
            })
            .await
    }

    /// Whether it is time to record so many resources.
    fn records(&self, resources: usize) -> bool {
        !self.is_recorded && resources <= MOST && self.again.is_none_or(|again| again <= Instant::now())
    }

    /// What is waited for, in a sentence.
    fn message(&self) -> Option<String> {
        let named = self.unhealthy.iter().take(NAMED).map(|(id, message)| format!("{id}: {message}"));
        let more = self.unhealthy.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("and {more} more"));
        let told: Vec<String> = named.chain(more).collect();
        (!told.is_empty()).then(|| format!("not healthy yet: {}", told.join("; ")))
    }
}

/// Has Resources and the stack's status say what is there.
async fn record(execution: &Execution, target: &Target, state: &State) -> Result<(), Halt> {
    resources::record(execution, target, state, None).await?;
    deployment::note(execution, &target.stack, RunPhase::Verifying, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_healthy_is_named_as_far_as_there_is_room() {
        let mut verifying = Verifying::default();
        assert_eq!((verifying.message(), verifying.next), (None, None));
        let id = |name: &str| ResourceId(format!("v1:Pod:shop:{name}"));
        verifying.hear(&id("a"), Health::InProgress, "it is being pulled");
        verifying.hear(&id("b"), Health::InProgress, "");
        assert_eq!(verifying.next, Some(Instant::now() + EVERY));
        let expected = "not healthy yet: v1:Pod:shop:a: it is being pulled; v1:Pod:shop:b: InProgress";
        assert_eq!(verifying.message().as_deref(), Some(expected));
        for name in ["c", "d", "e"] {
            verifying.hear(&id(name), Health::InProgress, "");
        }
        assert!(verifying.message().unwrap().ends_with("v1:Pod:shop:c: InProgress; and 2 more"));
        for name in ["a", "b", "c", "d", "e"] {
            verifying.hear(&id(name), Health::Current, "");
        }
        assert_eq!(verifying.message(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn few_resources_are_recorded_once_and_again_only_a_while_after_that_failed() {
        let mut verifying = Verifying::default();
        assert!(verifying.records(MOST));
        assert!(!verifying.records(MOST + 1), "the runner would wait for that");
        verifying.again = Some(Instant::now() + AGAIN);
        tokio::time::advance(EVERY).await;
        assert!(!verifying.records(1));
        tokio::time::advance(AGAIN).await;
        assert!(verifying.records(1));
        verifying.is_recorded = true;
        assert!(!verifying.records(1));
    }
}
