//! Runs whose task panics, by a mistake of ours. Such a run is taken up again a few times, since what it met may pass. Then
//! it is ended: its time would never be over, since only its task ends it for that, and others wait for its turn.

use std::{collections::HashMap, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use kube::ResourceExt as _;
use stoa_runs::{Services, StepError, executor};
use stoa_types::{Run, reason};
use tokio_util::sync::CancellationToken;

/// So many times in a row the task of a run may panic.
const MOST: u32 = 5;
/// How long after its end could not be written it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often in a row the tasks of runs have panicked, by uid.
#[derive(Debug, Default)]
pub(super) struct Panics(HashMap<String, u32>);

impl Panics {
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
    loop {
        let fail = Box::pin(executor::fail(services.clone(), run.clone(), reason::SERVER_FAILED, &message));
        let failed = match AssertUnwindSafe(fail).catch_unwind().await {
            Ok(failed) => failed,
            // The notes in other objects may be what it fails at.
            Err(_) => executor::fail_alone(services.clone(), run.clone(), reason::SERVER_FAILED, &message).await,
        };
        match failed {
            Ok(()) | Err(StepError::Abandoned(_)) => return,
            Err(halt) => tracing::warn!(run = run.name_any(), ?halt, "a run that is given up does not end yet"),
        }
        if end.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}
