//! Early records of changed resources while their Run waits for their health.
//!
//! Elsewhere: `waiting_condition` has the condition of the Run.

use std::time::Duration;

use stoa_types::delivery::RunPhase;
use tokio::time::Instant;

use crate::{StepError, deployment, execution::Execution, resources, state::State, target::Target};

/// How long after what was changed could not be recorded that is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// With more resources on record they are written at the end of the run alone: the runner is not heard meanwhile.
const MOST: usize = 300;

/// Whether what a run changed is recorded.
#[derive(Debug, Default)]
pub(super) struct HealthRecord {
    is_recorded: bool,
    /// When that is tried again, where it failed.
    again: Option<Instant>,
}

impl HealthRecord {
    /// Has Resources and the stack's status say what is there, once.
    pub(super) async fn record(&mut self, execution: &Execution, target: &Target, state: &State) {
        if !self.records(state.entries().count()) {
            return;
        }
        match Box::pin(record(execution, target, state)).await {
            Ok(()) => self.is_recorded = true,
            // They are written at the end of the run in any case.
            Err(halt) => {
                tracing::warn!(?halt, "what a run changed cannot be looked at before it has ended");
                self.again = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Whether it is time to record so many resources.
    fn records(&self, resources: usize) -> bool {
        !self.is_recorded && resources <= MOST && self.again.is_none_or(|again| again <= Instant::now())
    }
}

async fn record(execution: &Execution, target: &Target, state: &State) -> Result<(), StepError> {
    resources::record(execution, target, state, None).await?;
    deployment::note(execution, &target.stack, RunPhase::Verifying, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_record_is_tried_again_later() {
        let mut verifying = HealthRecord::default();
        assert!(verifying.records(MOST));
        assert!(!verifying.records(MOST + 1), "the runner would wait for that");
        verifying.again = Some(Instant::now() + AGAIN);
        tokio::time::advance(AGAIN / 2).await;
        assert!(!verifying.records(1));
        tokio::time::advance(AGAIN).await;
        assert!(verifying.records(1));
        verifying.is_recorded = true;
        assert!(!verifying.records(1));
    }
}
