//! Takes one run from whatever phase it is in to its end.
//!
//! Every step writes what it decided before the next one begins: the commit, the digest of the
//! Spec, the digest of the plan, each resource's intent and result. So a run that is taken up again
//! after a crash repeats at most the step that it was in, and each step may be repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_engine::{
    Action, Plan, PlannedAction, ResourceId,
    document::{self, DocumentError},
};
use stoa_machinery::log::{Fence, LogError};
use stoa_storage::documents::{Digest, DocumentStore};
use stoa_types::{
    Release, Run,
    delivery::{Operation, PlanStatus, PlanSummary, RunPhase, RunResource, RunSource, RunStatus},
    reason,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Halt, Services, apply, journal::Journal, release, runner, state, state::State, status, target::Target};
use crate::{events::Kind, kinds::check::set_condition, lease};

/// How long a lease lasts without renewal.
const LEASE: Duration = Duration::from_secs(30);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How long a run waits for a source that is out of reach.
const UNREACHABLE: Duration = Duration::from_secs(30);
/// The shortest and longest wait before a step is tried again.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(5);

/// One run on its way.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) services: Services,
    pub(crate) run: Run,
    pub(crate) journal: Journal,
    /// Fires when somebody cancels the run or its time is up.
    pub(crate) cancel: CancellationToken,
    /// Fires when its time is up.
    pub(crate) overdue: CancellationToken,
}

/// Takes a run to its end, however often it has to be tried. `cancel` stops it, as when its time is
/// up and `overdue` says so; `end` puts it down where it is, for a later life of this server to take up.
pub(crate) async fn execute(
    services: Services,
    run: Run,
    cancel: CancellationToken,
    overdue: CancellationToken,
    end: CancellationToken,
) {
    let uid = run.uid().unwrap_or_default();
    let journal = Journal::new(services.log.clone(), &uid);
    let mut execution = Execution { services, run, journal, cancel, overdue };
    let mut wait = *BACKOFF.start();
    let mut last_complaint = String::new();
    let mut unreachable_since: Option<tokio::time::Instant> = None;
    loop {
        let outcome = match end.run_until_cancelled(Box::pin(execution.attempt())).await {
            None => return,
            Some(outcome) => outcome,
        };
        let ended = match outcome {
            Ok(()) => return,
            Err(Halt::Abandoned(why)) => {
                tracing::info!(run = execution.run.name_any(), why, "the run is left to others");
                return;
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if execution.is_overdue() => {
                execution.finish_timed_out(&last_complaint).await
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if execution.cancel.is_cancelled() => {
                execution.finish_canceled().await
            }
            Err(Halt::SourceUnreachable(complaint))
                if unreachable_since.is_some_and(|since| since.elapsed() >= UNREACHABLE) =>
            {
                execution.finish(RunPhase::Failed, reason::SOURCE_UNREACHABLE, &complaint).await
            }
            Err(halt @ (Halt::Retry(_) | Halt::SourceUnreachable(_))) => {
                unreachable_since = match halt {
                    Halt::SourceUnreachable(_) => unreachable_since.or_else(|| Some(tokio::time::Instant::now())),
                    _ => None,
                };
                let (Halt::Retry(complaint) | Halt::SourceUnreachable(complaint)) = &halt else { return };
                if *complaint != last_complaint {
                    execution.tell_waiting(complaint).await;
                    last_complaint.clone_from(complaint);
                }
                Err(halt)
            }
            Err(Halt::Canceled) if execution.is_overdue() => execution.finish_timed_out(&last_complaint).await,
            Err(Halt::Canceled) => execution.finish_canceled().await,
            Err(Halt::Failed { reason, message }) => execution.finish(RunPhase::Failed, reason, &message).await,
        };
        if ended.is_ok() {
            return;
        }
        if end.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
        wait = (wait * 2).min(*BACKOFF.end());
    }
}

impl Execution {
    async fn attempt(&mut self) -> Result<(), Halt> {
        if self.cancel.is_cancelled() && status(&self.run).start_time.is_none() {
            return Err(Halt::Canceled);
        }
        let target = Target::of_run(&self.services, &self.run).await?;
        if !self.run.spec.operation.is_mutating() {
            return self.phases(&target, None).await;
        }
        let holder = format!("{}/{}", self.services.identity, self.run.uid().unwrap_or_default());
        let lease = self.services.log.acquire(&target.lease(), &holder, LEASE).await.map_err(|e| match e {
            LogError::Held { .. } => Halt::Retry("another run of the stack in the workspace is under way".to_owned()),
            other => state::halt(&other),
        })?;
        let lost = CancellationToken::new();
        let renewal = AbortOnDropHandle::new(tokio::spawn({
            let (log, lease, lost) = (self.services.log.clone(), lease.clone(), lost.clone());
            async move {
                // Past half its time nothing may be begun under it any more.
                lease::keep(&*log, &lease, RENEW, LEASE / 2).await;
                lost.cancel();
            }
        }));
        let outcome = match lost.run_until_cancelled(Box::pin(self.phases(&target, Some(lease.fence())))).await {
            Some(outcome) => outcome,
            None => Err(Halt::Abandoned("the run's lease is lost".to_owned())),
        };
        drop(renewal);
        if !matches!(outcome, Err(Halt::Abandoned(_)))
            && let Err(error) = self.services.log.release(&lease).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "a lease is not given up; it will expire");
        }
        outcome
    }

    async fn phases(&mut self, target: &Target, fence: Option<Fence>) -> Result<(), Halt> {
        if self.run.spec.operation == Operation::Rollback && status(&self.run).start_time.is_none() {
            // Looked for before it begins: with nothing to go back to, it says nothing about what is deployed.
            self.rollback_release(target).await?;
        }
        self.begin(target).await?;
        let commit = self.commit(target).await?;
        let (spec, spec_digest) = self.spec(target, &commit).await?;
        let stack_uid = target.stack.uid().unwrap_or_default();
        let workspace = target.workspace.name_any();
        let log = self.services.log.clone();
        let mut state = State::load(&*log, &stack_uid, &workspace, fence).await?;
        let plan = self.plan(target, &spec, &state).await?;
        if self.run.spec.operation == Operation::Preview {
            return self.finish(RunPhase::Succeeded, reason::SUCCEEDED, "the plan is made; nothing was changed").await;
        }
        if self.cancel.is_cancelled() && status(&self.run).phase < RunPhase::Applying {
            return Err(Halt::Canceled);
        }
        // Once the release has its number, all changes are made and recorded.
        if Some(&state.head().last_release_run) != self.run.metadata.uid.as_ref() {
            target.check_permissions(&self.services, &self.run).await?;
            if let Err(halt) = apply::apply(self, target, &spec, &plan, &mut state).await {
                // What was changed until then is there, and people look for it.
                if matches!(halt, Halt::Failed { .. } | Halt::Canceled) {
                    release::record_resources(self, target, &state, None).await?;
                }
                return Err(halt);
            }
        }
        let release = release::finish(self, target, &mut state, &spec_digest).await?;
        let message = match (release, self.run.spec.operation) {
            (None, _) => "nothing had to be changed".to_owned(),
            (Some(n), Operation::Destroy) => format!("everything was removed; release {n} records it"),
            (Some(n), _) => format!("release {n} is deployed"),
        };
        self.finish(RunPhase::Succeeded, reason::SUCCEEDED, &message).await
    }

    /// Whether the run's time is up.
    fn is_overdue(&self) -> bool {
        self.overdue.is_cancelled()
    }

    /// Waits for a call that changes nothing, until the run is cancelled.
    async fn unless_canceled<T>(&self, call: impl Future<Output = T>) -> Result<T, Halt> {
        self.cancel.run_until_cancelled(call).await.ok_or(Halt::Canceled)
    }

    /// Changes the run's status; what is kept in `self.run` is what was stored.
    pub(crate) async fn update(&mut self, mut change: impl FnMut(&mut RunStatus) + Send) -> Result<(), Halt> {
        let (namespace, name, uid) = (self.run.namespace().unwrap_or_default(), self.run.name_any(), self.run.uid());
        let runs = self.services.lookup.api::<Run>()?;
        self.run = runs
            .update_status_with(&namespace, &name, |run: &mut Run| {
                if run.uid() == uid {
                    change(run.status.get_or_insert_default());
                }
            })
            .await?;
        if self.run.uid() != uid {
            return Err(Halt::Abandoned("the run was replaced by another of its name".to_owned()));
        }
        Ok(())
    }

    /// Tells why the run does not go on for now.
    async fn tell_waiting(&mut self, complaint: &str) {
        tracing::warn!(run = self.run.name_any(), complaint, "the run waits");
        let phase = format!("{:?}", status(&self.run).phase);
        self.journal.note(&phase, format!("waiting: {complaint}"));
        self.journal.flush().await;
        let generation = self.run.metadata.generation;
        let told = self.update(|status| {
            set_condition(&mut status.conditions, reason::WAITING, true, reason::WAITING, complaint, generation);
        });
        if let Err(halt) = told.await {
            tracing::warn!(run = self.run.name_any(), ?halt, "the run's status does not show why it waits");
        }
    }

    /// Moves the run to a phase that it has not reached yet.
    pub(crate) async fn enter(&mut self, phase: RunPhase) -> Result<(), Halt> {
        if status(&self.run).phase >= phase {
            return Ok(());
        }
        self.update(|status| {
            status.phase = phase;
            no_longer_waits(status);
        })
        .await?;
        self.journal.note(&format!("{phase:?}"), "");
        Ok(())
    }

    async fn begin(&mut self, target: &Target) -> Result<(), Halt> {
        let runner = self.services.runner.address().to_owned();
        if status(&self.run).start_time.is_none() {
            let now = Time(Timestamp::now());
            self.update(|status| {
                status.phase = RunPhase::Generating;
                no_longer_waits(status);
                status.start_time = Some(now.clone());
                status.runner = Some(runner.clone());
            })
            .await?;
            let requester = status(&self.run).requester.username;
            let what = format!(
                "{:?} of stack {} in workspace {}",
                self.run.spec.operation,
                target.stack.name_any(),
                target.workspace.name_any()
            );
            self.journal.note("Pending", format!("{what}, asked for by {requester}"));
            self.journal.note("Generating", "");
            self.services.recorder.record(&self.run, Kind::Normal, "Started", &what);
            release::note_deployment(self, target, RunPhase::Generating, None).await?;
        }
        Ok(())
    }

    /// The commit that the run is for; decided once.
    async fn commit(&mut self, target: &Target) -> Result<String, Halt> {
        if let Some(source) = status(&self.run).source {
            return Ok(source.commit);
        }
        let commit = match (self.run.spec.operation, self.run.spec.plan.clone()) {
            (Operation::Destroy, _) => String::new(),
            (Operation::Rollback, _) => self.rollback_release(target).await?.spec.commit,
            (_, Some(plan)) => self.previewed(target, &plan).await?.0.commit,
            (_, None) => self.resolve(target).await?,
        };
        let path = target.path();
        let source = RunSource { commit: commit.clone(), path, spec_digest: None };
        self.update(|status| status.source = Some(source.clone())).await?;
        Ok(commit)
    }

    async fn resolve(&mut self, target: &Target) -> Result<String, Halt> {
        let version = self.run.spec.version.clone().unwrap_or_else(|| target.stack.spec.desired_version.clone());
        let request = stoa_proto::ResolveRequest {
            source: Some(target.proto_source(&self.services).await?),
            version: version.clone(),
            r#ref: target.source()?.spec.reference.clone(),
        };
        let mut runner = self.services.runner.client();
        let response = self.unless_canceled(runner.resolve(request)).await?;
        let response = response.map_err(|e| runner::halt(&e, reason::SOURCE_UNREACHABLE))?.into_inner();
        self.journal.note("Generating", format!("{version} is commit {} ({})", response.commit, response.subject));
        Ok(response.commit)
    }

    /// The Spec, which is rendered once and then kept.
    async fn spec(&mut self, target: &Target, commit: &str) -> Result<(Bytes, String), Halt> {
        if let Some(digest) = status(&self.run).source.and_then(|s| s.spec_digest) {
            let spec = self.document(&*target.documents, &target.scope(), &digest).await?;
            return Ok((spec, digest));
        }
        let spec = match (self.run.spec.operation, self.run.spec.plan.clone()) {
            (Operation::Destroy, _) => Bytes::from_static(b"{\"resources\":[]}"),
            (Operation::Rollback, _) => {
                let release = self.rollback_release(target).await?;
                self.document(&*target.documents, &target.scope(), &release.spec.spec_digest).await?
            }
            (_, Some(plan)) => {
                let (source, _) = self.previewed(target, &plan).await?;
                let digest = source.spec_digest.unwrap_or_default();
                self.document(&*target.documents, &target.scope(), &digest).await?
            }
            (_, None) => self.generate(target, commit).await?,
        };
        let digest = put(&*target.documents, &target.scope(), spec.clone()).await?;
        self.update(|status| status.source.get_or_insert_default().spec_digest = Some(digest.clone())).await?;
        Ok((spec, digest))
    }

    async fn generate(&mut self, target: &Target, commit: &str) -> Result<Bytes, Halt> {
        let request = target.generate_request(&self.services, commit, &self.run.spec.parameters).await?;
        let mut runner = self.services.runner.client();
        let response = self.unless_canceled(runner.generate(request)).await?;
        let response = response.map_err(|e| runner::halt(&e, reason::GENERATE_FAILED))?.into_inner();
        for warning in &response.warnings {
            self.journal.note("Generating", format!("warning: {warning}"));
        }
        self.journal
            .note("Generating", format!("the {} generator made the Spec {}", response.generator, response.spec_digest));
        Ok(response.spec)
    }

    /// The plan, which is made once and then kept.
    async fn plan(&mut self, target: &Target, spec: &Bytes, state: &State) -> Result<Bytes, Halt> {
        if let Some(plan) = status(&self.run).plan.filter(|p| !p.document.is_empty()) {
            let bytes = self.document(&*target.documents, &target.scope(), &plan.document).await?;
            // The runner carries out what is understood here, too.
            document::decode::<Plan>(&bytes).map_err(|e| unreadable(&self.run.name_any(), &e))?;
            return Ok(bytes);
        }
        self.enter(RunPhase::Planning).await?;
        let request = stoa_proto::PlanRequest {
            target: Some(target.proto(&self.services, &self.run).await?),
            spec: spec.clone(),
            state: state.for_runner(),
            destroy: self.run.spec.operation == Operation::Destroy,
        };
        let mut runner = self.services.runner.client();
        let response = self.unless_canceled(runner.plan(request)).await?;
        let response = response.map_err(|e| runner::halt(&e, reason::PLAN_FAILED))?.into_inner();
        let plan: Plan = document::decode(&response.plan).map_err(|e| unreadable(&self.run.name_any(), &e))?;
        for warning in &response.warnings {
            self.journal.note("Planning", format!("warning: {warning}"));
        }
        self.journal.note("Planning", response.table.clone());
        if let Some(name) = self.run.spec.plan.clone() {
            self.require_same_plan(target, &name, &plan, &response.digest).await?;
        }
        let document = put(&*target.documents, &target.scope(), response.plan.clone()).await?;
        let planned = PlanStatus { digest: response.digest, document, summary: summary(plan.summary()) };
        let resources = changing(&plan, self.run.spec.operation);
        self.update(|status| {
            status.plan = Some(planned.clone());
            status.resources.clone_from(&resources);
        })
        .await?;
        self.journal.flush().await;
        Ok(response.plan)
    }

    /// The source and plan of the Preview whose plan is to be applied.
    async fn previewed(&self, target: &Target, name: &str) -> Result<(RunSource, PlanStatus), Halt> {
        let stale = |what: &str| Err(Halt::failed(reason::PLAN_STALE, format!("run {name:?} {what}")));
        let runs = self.services.lookup.api::<Run>()?;
        let Some(preview) = runs.get_opt(&target.namespace(), name).await? else {
            return stale("does not exist");
        };
        let is_same = preview.spec.stack == self.run.spec.stack && preview.spec.workspace == self.run.spec.workspace;
        let done = status(&preview);
        if preview.spec.operation != Operation::Preview || !is_same {
            return stale("is not a Preview of this stack in this workspace");
        }
        match (done.phase, done.source, done.plan) {
            (RunPhase::Succeeded, Some(source), Some(plan)) => Ok((source, plan)),
            _ => stale("has no plan"),
        }
    }

    /// Refuses to apply anything but the plan that was previewed.
    async fn require_same_plan(&mut self, target: &Target, name: &str, now: &Plan, digest: &str) -> Result<(), Halt> {
        let (_, previewed) = self.previewed(target, name).await?;
        if previewed.digest == digest {
            return Ok(());
        }
        let then = self.document(&*target.documents, &target.scope(), &previewed.document).await?;
        let then: Plan = document::decode(&then).map_err(|e| unreadable(name, &e))?;
        let changed = differences(&then, now);
        let list = changed.iter().take(10).cloned().collect::<Vec<_>>().join("; ");
        let message = format!("the plan of {name} no longer holds, preview again: {list}");
        Err(Halt::failed(reason::PLAN_STALE, message))
    }

    async fn rollback_release(&self, target: &Target) -> Result<Release, Halt> {
        let number = self.run.spec.release.unwrap_or_default();
        let name = release::name(&target.stack.name_any(), &target.workspace.name_any(), number);
        let found = self.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
        let failed = |message| Err(Halt::failed(reason::REFERENCE_NOT_FOUND, message));
        match found {
            Some(release) if Some(&release.spec.stack_uid) != target.stack.uid().as_ref() => {
                failed(format!("release {name} is of an earlier stack of the same name"))
            }
            Some(release) if release.spec.tombstone => {
                failed(format!("release {name} records that everything was removed; there is nothing to go back to"))
            }
            Some(release) => Ok(release),
            None => failed(format!("release {name} does not exist")),
        }
    }

    async fn document(&self, store: &dyn DocumentStore, scope: &str, digest: &str) -> Result<Bytes, Halt> {
        let lost = |what: String| Halt::failed(reason::BACKEND_UNAVAILABLE, what);
        let parsed: Digest = digest.parse().map_err(|e| lost(format!("{e}")))?;
        match store.get(scope, &parsed).await {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(lost(format!("document {digest} is not in the backend"))),
            Err(error) => Err(Halt::Retry(format!("the backend cannot be read: {error}"))),
        }
    }

    async fn finish_timed_out(&mut self, complaint: &str) -> Result<(), Halt> {
        let mut message = format!("the run took longer than {}", self.run.spec.timeout);
        if !complaint.is_empty() {
            message.push_str(&format!("; it was waiting: {complaint}"));
        }
        self.finish(RunPhase::Failed, reason::TIMED_OUT, &message).await
    }

    async fn finish_canceled(&mut self) -> Result<(), Halt> {
        self.finish(RunPhase::Canceled, reason::CANCELED, "the run was cancelled").await
    }

    /// Ends the run. That it has ended is written last, so that whoever sees it sees the rest too,
    /// and a crash before leaves a run that is taken up again.
    pub(crate) async fn finish(&mut self, phase: RunPhase, reason: &str, message: &str) -> Result<(), Halt> {
        self.journal.note(&format!("{phase:?}"), message);
        self.journal.flush().await;
        let kind = if phase == RunPhase::Succeeded { Kind::Normal } else { Kind::Warning };
        // A run that never began says nothing about the deployment, which may be another's work right now.
        let has_begun = status(&self.run).start_time.is_some();
        if self.run.spec.operation.is_mutating()
            && has_begun
            && let Ok(target) = Target::of_run(&self.services, &self.run).await
        {
            release::note_deployment(self, &target, phase, Some((reason, message))).await?;
            self.services.recorder.record(
                &target.stack,
                kind,
                &format!("{:?}{phase:?}", self.run.spec.operation),
                format!("run {}: {message}", self.run.name_any()),
            );
        }
        let now = Time(Timestamp::now());
        let generation = self.run.metadata.generation;
        self.update(|status| {
            status.phase = phase;
            status.start_time.get_or_insert(now.clone());
            status.completion_time = Some(now.clone());
            no_longer_waits(status);
            let type_ = if phase == RunPhase::Succeeded { reason::COMPLETE } else { reason::FAILED };
            set_condition(&mut status.conditions, type_, true, reason, message, generation);
        })
        .await?;
        self.services.recorder.record(&self.run, kind, reason, message);
        Ok(())
    }
}

fn no_longer_waits(status: &mut RunStatus) {
    status.conditions.retain(|condition| condition.type_ != reason::WAITING);
}

/// Keeps a document; the text of its digest.
pub(crate) async fn put(store: &dyn DocumentStore, scope: &str, bytes: Bytes) -> Result<String, Halt> {
    let digest = store.put(scope, bytes).await;
    digest.map(|d| d.to_string()).map_err(|error| Halt::Retry(format!("the backend cannot be written: {error}")))
}

fn summary(summary: stoa_engine::Summary) -> PlanSummary {
    PlanSummary {
        create: summary.create.into(),
        update: summary.update.into(),
        delete: summary.delete.into(),
        replace: summary.replace.into(),
        adopt: summary.adopt.into(),
        forget: summary.forget.into(),
        unchanged: summary.unchanged.into(),
        unverified: summary.unverified.into(),
    }
}

/// What it means that the plan of a run cannot be understood.
fn unreadable(run: &str, error: &DocumentError) -> Halt {
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = format!("the plan of {run} cannot be read: {error}{cause}; {}, or plan again", error.advice());
    Halt::failed(reason::PLAN_FAILED, message)
}

/// The resources that are to change, as far as the status shows them.
fn changing(plan: &Plan, operation: Operation) -> Vec<RunResource> {
    let phase = if operation.is_mutating() { "Pending" } else { "Planned" };
    let changing = plan.actions.iter().filter(|planned| planned.action != Action::Unchanged).take(100);
    changing
        .map(|planned| RunResource {
            id: planned.id.0.clone(),
            action: planned.action.to_string(),
            phase: phase.to_owned(),
            message: String::new(),
        })
        .collect()
}

/// What two plans differ in, one sentence per resource.
fn differences(then: &Plan, now: &Plan) -> Vec<String> {
    let by_id = |plan: &'_ Plan| -> BTreeMap<ResourceId, PlannedAction> {
        plan.actions.iter().map(|planned| (planned.id.clone(), planned.clone())).collect()
    };
    let (then, now) = (by_id(then), by_id(now));
    let action = |planned: Option<&PlannedAction>| planned.map_or("nothing".to_owned(), |p| p.action.to_string());
    let ids: BTreeSet<&ResourceId> = then.keys().chain(now.keys()).collect();
    ids.into_iter()
        .filter(|id| then.get(*id) != now.get(*id))
        .map(|id| match (action(then.get(id)), action(now.get(id))) {
            (a, b) if a == b => format!("{id}: other fields change"),
            (a, b) => format!("{id}: {a} was planned, now {b}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(actions: &[(&str, &str, Value)]) -> Plan {
        let actions: Vec<Value> = actions
            .iter()
            .map(|(id, action, changes)| json!({"id": id, "type": "Kubernetes", "action": action, "changes": changes}))
            .collect();
        let plan = json!({"schemaVersion": 1, "specDigest": "", "actions": actions});
        document::decode(plan.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_made_a_plan_stale_is_named() {
        let (same, one, two) = (json!([]), json!([{"path": "a", "after": 1}]), json!([{"path": "a", "after": 2}]));
        let then = plan(&[("a", "Create", same.clone()), ("b", "Update", one), ("c", "Unchanged", same.clone())]);
        let now = plan(&[("a", "Adopt", same.clone()), ("b", "Update", two), ("c", "Unchanged", same)]);
        assert_eq!(differences(&then, &now), ["a: Create was planned, now Adopt", "b: other fields change"]);
        assert!(differences(&then, &then).is_empty());
    }
}
