//! Runs whose task panics, by a mistake of ours. Such a run is taken up again a few times, since what it met may pass. Then
//! it is ended: its time would never be over, since only its task ends it for that, and others wait for its turn.

use std::{collections::HashMap, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::conditions::set_condition;
use stoa_types::{Run, delivery::RunPhase, reason};
use tokio_util::sync::CancellationToken;

use super::unexecuted;
use crate::runs::{Services, StepError, execution::Execution};

/// So many times in a row the task of a run may panic.
const MOST: u32 = 5;
/// How long after its end could not be written it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often in a row the tasks of runs have panicked, by uid.
#[derive(Debug, Default)]
pub(super) struct Panics(HashMap<String, u32>);

impl Panics {
    /// Notes how the task of a run ended.
    pub(super) fn note(&mut self, uid: &str, has_panicked: bool) {
        if has_panicked {
            *self.0.entry(uid.to_owned()).or_default() += 1;
        } else {
            self.forget(uid);
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Whether the run is to be ended rather than taken up again.
    pub(super) fn are_too_many(&self, uid: &str) -> bool {
        self.0.get(uid).is_some_and(|panics| *panics >= MOST)
    }
}

/// Ends a run that is not taken up again, however often that has to be tried.
pub(super) async fn give_up(services: Services, run: Run, end: CancellationToken) {
    let message = format!(
        "the server failed {MOST} times in a row during this run; its log has the cause. Changes in progress stay as \
         they are, and the next Run checks them"
    );
    let mut execution = unexecuted(services, run);
    loop {
        let finish = Box::pin(execution.finish(RunPhase::Failed, reason::SERVER_FAILED, &message));
        let finished = match AssertUnwindSafe(finish).catch_unwind().await.ok() {
            Some(finished) => finished,
            // What is told besides may be what it fails at.
            None => end_alone(&mut execution, &message).await,
        };
        match finished {
            Ok(()) | Err(StepError::Abandoned(_)) => return,
            Err(halt) => {
                tracing::warn!(run = execution.run.name_any(), ?halt, "a run that is given up does not end yet")
            }
        }
        if end.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

/// Ends a run and tells nobody else.
async fn end_alone(execution: &mut Execution, message: &str) -> Result<(), StepError> {
    let (now, generation) = (Time(execution.services.now()), execution.run.metadata.generation);
    let end = execution.update(|status| {
        status.phase = RunPhase::Failed;
        status.start_time.get_or_insert(now.clone());
        status.completion_time = Some(now.clone());
        status.conditions.retain(|condition| condition.type_ != reason::WAITING);
        set_condition(&mut status.conditions, reason::FAILED, true, reason::SERVER_FAILED, message, generation);
    });
    end.await
}
