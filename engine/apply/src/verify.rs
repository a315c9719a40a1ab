//! Verification: waits until applied resources are healthy.

use std::{pin::pin, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use stoa_engine::{Problem, ResourceId, Sensitive, problem::reason, timeout::timeout};
use stoa_runtime::{Health, Runtime, RuntimeError};
use tokio::{sync::mpsc, time::Instant};

use crate::{observer::Observer, planning::problem, retry::RetryLog, values::Ready};

/// The number of parallel waits.
const WATCHED: usize = 1024;

/// The minimum time for the check of a resource whose turn comes at the end.
const LOOK: Duration = Duration::from_secs(5);

/// The maximum length of a health message, in bytes.
const LONGEST: usize = 2048;

/// The pause before a resource is watched again when that failed.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// Waits for all resources, each until its own timeout or the common one, and returns the problems. All timeouts start
/// now. Resources that wait for their turn are checked at least once. Messages show no text of `secrets`, since objects
/// may quote a Secret.
pub(crate) async fn verify(
    runtime: &dyn Runtime,
    observer: &dyn Observer,
    applied: &[(ResourceId, Ready)],
    secrets: &Sensitive,
    limit: Duration,
) -> Vec<Problem> {
    let start = Instant::now();
    let checks: Vec<BoxFuture<'_, Option<Problem>>> = applied
        .iter()
        .map(|(id, ready)| -> BoxFuture<'_, _> {
            let said = timeout(&ready.desired.extensions, &ready.desired.attributes).ok().flatten();
            let length = said.unwrap_or(limit);
            Box::pin(async move {
                let deadline = (start + length).max(Instant::now() + length.min(LOOK));
                check(runtime, observer, id, (ready, secrets), deadline).await
            })
        })
        .collect();
    stream::iter(checks).buffer_unordered(WATCHED).filter_map(std::future::ready).collect().await
}

async fn check(
    runtime: &dyn Runtime,
    observer: &dyn Observer,
    id: &ResourceId,
    (ready, secrets): (&Ready, &Sensitive),
    deadline: Instant,
) -> Option<Problem> {
    let (reports, mut heard) = mpsc::unbounded_channel::<(Health, String)>();
    let report = move |health: Health, message: &str| {
        // The receiver lives as long as the wait does.
        let _ = reports.send((health, message.to_owned()));
    };
    let told = RetryLog::default();
    let mut wait = pin!(tokio::time::timeout_at(deadline, wait(runtime, ready, &report, &told)));
    let mut last = (None, String::new());
    loop {
        tokio::select! {
            // Reports come before the end.
            biased;
            Some((health, message)) = heard.recv() => {
                let message = shown_message(ready, secrets, &message);
                observer.health(id, health, &message).await;
                last = (Some(health), message);
            }
            ended = &mut wait => {
                while let Ok((health, message)) = heard.try_recv() {
                    let message = shown_message(ready, secrets, &message);
                    observer.health(id, health, &message).await;
                    last = (Some(health), message);
                }
                let (heard, message) = last;
                let because = if message.is_empty() { String::new() } else { format!(": {message}") };
                let problem = match ended {
                    Ok(Ok(Health::Failed)) => {
                        return Some(
                            Problem::new(reason::UNHEALTHY, format!("it was applied but failed{because}")).of(id),
                        );
                    }
                    Ok(Ok(health)) => {
                        if heard != Some(health) {
                            observer.health(id, health, &message).await;
                        }
                        if runtime.kubernetes().has_finished(&ready.desired.id) {
                            observer.finished(id).await;
                        }
                        return None;
                    }
                    Ok(Err(error)) => problem(id, &error, &ready.sensitive),
                    Err(_) => {
                        // A read error counts more than the last report.
                        let because = told.take().map_or(because, |error| format!(": {error}"));
                        let message = format!("it was applied but did not become healthy in time{because}");
                        Problem::new(reason::TIMED_OUT, message).of(id)
                    }
                };
                observer.health_timed_out(id, heard.unwrap_or(Health::InProgress), &problem.message).await;
                return Some(problem);
            }
        }
    }
}

/// A message without sensitive values, cut to its maximum length. It is cut last, since a part of a secret cannot be
/// redacted.
fn shown_message(ready: &Ready, secrets: &Sensitive, message: &str) -> String {
    let mut message = secrets.redact(&ready.sensitive.redact(message));
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST));
        message.push('…');
    }
    message
}

/// Waits until a resource is Current or Failed, and restarts the wait after errors. Records the last error until the
/// next report.
pub(crate) async fn wait(
    runtime: &dyn Runtime,
    ready: &Ready,
    report: &(dyn Fn(Health, &str) + Send + Sync),
    told: &RetryLog,
) -> Result<Health, RuntimeError> {
    let report = |health: Health, message: &str| {
        told.take();
        report(health, message);
    };
    loop {
        match runtime.wait_healthy(&ready.desired, &report).await {
            Err(error) if error.is_retryable() => {
                told.note(&error, &ready.sensitive);
                tokio::time::sleep(AGAIN).await;
            }
            ended => return ended,
        }
    }
}
