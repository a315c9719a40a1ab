//! Calls that the function-runner waits for, such as to a cluster that does not answer, in the condition `Waiting`.

use std::time::Duration;

use kube::ResourceExt as _;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{StepError, execution::Execution};

/// How soon the runner is asked first, and how often from then on.
const FIRST: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(3);

/// What is awaited for a run, as its function-runner says every now and then.
#[derive(Debug)]
pub(super) struct PendingCalls {
    said: mpsc::Receiver<Vec<String>>,
    _asking: AbortOnDropHandle<()>,
}

impl PendingCalls {
    /// Asks until this is dropped.
    pub(super) fn of(execution: &Execution) -> Self {
        let (runner, run) = (execution.services.runner.clone(), execution.run.uid().unwrap_or_default());
        let (tell, said) = mpsc::channel(1);
        let asking = tokio::spawn(async move {
            let mut looks = tokio::time::interval_at(Instant::now() + FIRST, AGAIN);
            looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                looks.tick().await;
                if let Some(awaited) = runner.awaited(&run).await
                    && tell.send(awaited).await.is_err()
                {
                    return;
                }
            }
        });
        Self { said, _asking: AbortOnDropHandle::new(asking) }
    }

    /// What is awaited now, once that is known again.
    pub(super) async fn next(&mut self) -> Vec<String> {
        match self.said.recv().await {
            Some(said) => said,
            // Nobody asks any more.
            None => std::future::pending().await,
        }
    }
}

/// WaitingCondition for the answer to a call that changes nothing, and says meanwhile what that waits for.
///
/// # Errors
///
/// Canceled when the run is, and whatever keeps its status from being written.
pub(super) async fn during<T>(execution: &mut Execution, call: impl Future<Output = T>) -> Result<T, StepError> {
    let (cancel, mut awaited) = (execution.cancel.clone(), PendingCalls::of(execution));
    let mut call = Box::pin(cancel.run_until_cancelled(call));
    loop {
        tokio::select! {
            biased;
            answer = &mut call => return answer.ok_or(StepError::Canceled),
            said = awaited.next() => execution.tell_awaited(&said).await?,
        }
    }
}
