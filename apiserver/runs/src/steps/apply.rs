//! The conversation with the function-runner while changes are made.
//!
//! The runner sends every intent before its call and every result after it, and continues only when the server has
//! acknowledged a durable record. Messages that arrive together are recorded together, so that one sync of the disk serves
//! many resources. Elsewhere: `call_lease` decides which runner may make calls, and for how long.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use serde::de::{DeserializeOwned, IntoDeserializer as _, value::StrDeserializer};
use stoa_controller::lease::HeldLease;
use stoa_engine::{
    Action, Health, KubernetesObject, ProviderState, ResourceId, ResourceOutcome, ResourceType, StateResource, hook,
    record::{CallTarget, Intent, Outcome, Record},
};
use stoa_failpoint::reached;
use stoa_kinds::{run_status::status, text};
use stoa_proto::{
    ApplyRequest, ApplyStart, Cancel, FinishedEvent, Proposal, ResultEvent, apply_event::Event, apply_request::Message,
};
use stoa_types::{
    delivery::{Operation, Progress, RunPhase},
    reason,
};
use tokio::sync::mpsc;

use super::{
    call_lease::{CallLease, RunnerEvent, answered},
    health_record::HealthRecord,
    import,
    pending_calls::PendingCalls,
    waiting_condition::WaitingCondition,
};
use crate::{
    StepError,
    execution::Execution,
    run_log::Line,
    runner::{self, Lent, Opened},
    state::{Head, State},
    status::StatusUpdate,
    target::Target,
};

/// How often progress is shown while it is made.
const SHOW: Duration = Duration::from_millis(400);
/// How many events are recorded at once, at most.
const BATCH: usize = 256;
/// How long a runner may take to finish calls in flight after it was told to stop. Calls of providers have five minutes.
const GRACE: Duration = Duration::from_secs(360);
/// How many causes the message of a failed run names.
const CAUSES: usize = 5;

/// The end of a conversation.
pub(super) struct Applied {
    finished: FinishedEvent,
    is_untouched: bool,
}

/// Carries out a plan, from wherever an earlier try left off.
///
/// # Errors
///
/// Canceled when the run was, Retry when the runner was lost.
pub(super) async fn apply(
    execution: &mut Execution,
    target: &Target,
    lease: &HeldLease,
    [spec, plan]: [&Bytes; 2],
    state: &mut State,
) -> Result<Applied, StepError> {
    state.renew_keys(&*execution.services.log).await?;
    let run_uid = execution.run.uid().unwrap_or_default();
    let total = status(&execution.run).plan.map_or(0, |p| p.summary.changes());
    let done = state.done_by(&run_uid);
    let changed = state.changed_by(&run_uid).try_into().unwrap_or(i64::MAX);
    let is_import = execution.run.spec.operation == Operation::Import;
    let import = if is_import { import::selection(execution, target).await? } else { Bytes::new() };
    let start = ApplyStart {
        target: Some(target.proto_with_secrets(&execution.services, &execution.run, spec).await?),
        spec: spec.clone(),
        plan: plan.clone(),
        state: state.for_run(&execution.run.spec.retry, &run_uid).await?,
        done,
        failed_hooks: state.failed_hooks_of(&run_uid),
        parallelism: 0,
        owed: state.owed().into_iter().map(|id| id.0).collect(),
        import,
    };
    let (client, last) = (execution.runners(), state.head().runner.clone());
    let opened = execution.unless_canceled(client.apply(start, last.as_deref())).await?;
    let opened = opened.map_err(|e| execution.refused(&e, reason::APPLY_FAILED))?;
    let Opened { requests, sequence, instance, events, lent } = opened;
    execution.runner = Some(lent.name().to_owned());
    let grants = CallLease::new(lease);
    grants.admit(execution, state, &instance, total > 0).await?;
    reached("head-dirty");
    let lost = || StepError::Abandoned("the run's lease is lost".to_owned());
    let begin = Message::Ack(grants.answer(sequence).ok_or_else(lost)?);
    if send(&requests, begin).await {
        execution.goes_on().await?;
    }
    let (_answering, events) = answered(grants.clone(), requests.clone(), events);
    let mut conversation = Conversation {
        run_uid,
        requests,
        lent,
        grants,
        has_ended: false,
        progress: Progress { total, done: changed, failed: 0 },
        shown: Vec::new(),
        intended: HashSet::new(),
        verified: state.verified_objects(),
        waits: WaitingCondition::default(),
        verifying: HealthRecord::default(),
    };
    let finished = conversation.hold((&mut *execution, target), state, events.ready_chunks(BATCH)).await;
    // Where all is done, the head of the release says so.
    let is_whole = finished.as_ref().is_ok_and(|finished| finished.succeeded);
    let is_over = conversation.has_ended || conversation.grants.have_lapsed();
    if is_over && !is_whole && state.head().runner.is_some() {
        let head = Head { runner: None, ..state.head().clone() };
        state.set_head(&*execution.services.log, head).await?;
    }
    let finished = finished?;
    execution.goes_on().await?;
    if finished.proposal.is_some() {
        conversation.progress.failed = 0;
    }
    conversation.show(execution).await?;
    Ok(Applied { finished, is_untouched: conversation.progress.done == 0 })
}

/// Sends a message; whether that was possible. How the runner went away otherwise, its events tell, by which that counts.
async fn send(requests: &mpsc::Sender<ApplyRequest>, message: Message) -> bool {
    requests.send(ApplyRequest { message: Some(message) }).await.is_ok()
}

impl Applied {
    /// The changes that wait in a pull request.
    pub(super) fn proposal(&self) -> Option<&Proposal> {
        self.finished.proposal.as_ref()
    }

    pub(super) fn commit(&self) -> Option<&str> {
        Some(self.finished.gitops_commit.as_str()).filter(|commit| !commit.is_empty())
    }
}

/// What the end of the conversation means for the run.
///
/// # Errors
///
/// Failed when resources failed, Canceled when the run was.
pub(super) fn outcome(Applied { finished, is_untouched }: &Applied) -> Result<(), StepError> {
    if finished.canceled {
        return Err(StepError::Canceled);
    }
    if finished.succeeded {
        return Ok(());
    }
    let unknown = |problem: &&stoa_proto::Problem| problem.reason == stoa_engine::problem::reason::UNKNOWN_STATE;
    if let Some(problem) = finished.problems.iter().find(unknown) {
        return Err(StepError::failed(reason::UNKNOWN_STATE, runner::describe(problem)));
    }
    let (message, causes) = explained(&finished.problems);
    let stale = |problem: &&stoa_proto::Problem| problem.reason == stoa_engine::problem::reason::STALE_PLAN;
    let is_stale = *is_untouched && !causes.is_empty() && causes.iter().all(stale);
    Err(StepError::failed(if is_stale { reason::PLAN_STALE } else { reason::APPLY_FAILED }, message))
}

/// The message of a run that failed: the first causes, and after them the deletions that were left. The causes, too.
fn explained(problems: &[stoa_proto::Problem]) -> (String, Vec<&stoa_proto::Problem>) {
    let is_left = |problem: &&stoa_proto::Problem| problem.reason == stoa_engine::problem::reason::DELETIONS_LEFT;
    let (left, causes): (Vec<_>, Vec<_>) = problems.iter().partition(is_left);
    let see = if causes.len() > CAUSES { ", see runs/log" } else { "" };
    let described: Vec<String> = causes.iter().map(|problem| runner::describe(problem)).collect();
    let causes_told = Some(text::first(&described, CAUSES, "; ") + see).filter(|told| !told.is_empty());
    let left = left.iter().map(|problem| runner::describe(problem));
    (causes_told.into_iter().chain(left).collect::<Vec<_>>().join("; "), causes)
}

/// One of the engine's words for actions, outcomes and healths.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, StepError> {
    let text: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(text).map_err(|e| not_understood(&e.to_string()))
}

/// Whether an action is on record as done by a run, without another call since. Its result is then only reported again to
/// change the record.
fn is_done_by(run: &str, action: Action, entry: &Record) -> bool {
    let is_it =
        |result: &Outcome| result.run == run && result.action == action && result.outcome == ResourceOutcome::Done;
    entry.intent.is_none() && entry.result.as_ref().is_some_and(is_it)
}

/// The resource that a runner reports, with its provider state in clear: only the API server encrypts.
fn resource(bytes: &Bytes) -> Result<StateResource, StepError> {
    let resource: StateResource = serde_json::from_slice(bytes).map_err(|_| {
        // The words of a parser may quote a part of a secret.
        not_understood("the record of a resource does not decode")
    })?;
    match resource.provider_state {
        Some(ProviderState::Sealed(_)) => {
            Err(not_understood(&format!("it encrypted the provider state of {}", resource.id)))
        }
        Some(ProviderState::Open(_)) | None => Ok(resource),
    }
}

/// A runner of another version says what nobody here understands. What it did stays as an intent.
fn not_understood(why: &str) -> StepError {
    let message = format!("incompatible function-runner version: {why}; use the version of the API server");
    StepError::failed(reason::APPLY_FAILED, message)
}

#[derive(Debug)]
struct Conversation {
    run_uid: String,
    requests: mpsc::Sender<ApplyRequest>,
    lent: Lent,
    grants: CallLease,
    /// The runner said that it is over: it has no calls under way any more.
    has_ended: bool,
    progress: Progress,
    /// Phases of resources that the status does not show yet: id, phase, message.
    shown: Vec<(ResourceId, String, String)>,
    /// The ids for which the first intent that is not settled was recorded here: if no call follows, none was made.
    intended: HashSet<ResourceId>,
    /// The uids of the objects that were seen healthy after their last changes when it began.
    verified: BTreeSet<String>,
    /// What is waited for.
    waits: WaitingCondition,
    /// Whether what was changed is on record while that is so.
    verifying: HealthRecord,
}

impl Conversation {
    async fn hold(
        &mut self,
        (execution, target): (&mut Execution, &Target),
        state: &mut State,
        mut events: impl futures_util::Stream<Item = Vec<RunnerEvent>> + Unpin,
    ) -> Result<FinishedEvent, StepError> {
        let cancel = execution.cancel.clone();
        let mut is_canceled = false;
        let mut deadline = Box::pin(tokio::time::sleep(Duration::MAX / 4));
        let mut ticks = tokio::time::interval(SHOW);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut awaited = PendingCalls::of(execution);
        loop {
            tokio::select! {
                () = cancel.cancelled(), if !is_canceled => {
                    is_canceled = true;
                    send(&self.requests, Message::Cancel(Cancel {})).await;
                    deadline = Box::pin(tokio::time::sleep(GRACE));
                }
                () = &mut deadline => return Err(StepError::Canceled),
                _ = ticks.tick() => {
                    self.show(execution).await?;
                    let Progress { total, done, failed } = self.progress;
                    if done + failed >= total && self.waits.is_long() {
                        self.verifying.record(execution, target, state).await;
                    }
                    self.waits.tell(execution).await?;
                }
                said = awaited.next() => self.waits.hear_awaited(&said, is_canceled),
                batch = events.next() => {
                    let Some(batch) = batch else {
                        let status = self.lent.broke(tonic::Status::unavailable("it did not report an end"));
                        return Err(execution.refused(&status, reason::APPLY_FAILED));
                    };
                    if let Some(finished) = self.hear(execution, state, batch).await? {
                        return Ok(finished);
                    }
                }
            }
        }
    }

    /// Records a batch of events and acknowledges those that wait for it.
    async fn hear(
        &mut self,
        execution: &mut Execution,
        state: &mut State,
        batch: Vec<RunnerEvent>,
    ) -> Result<Option<FinishedEvent>, StepError> {
        let mut entries = Vec::new();
        let mut acks = Vec::new();
        let mut finished = None;
        let mut broken = None;
        let (mut has_intents, mut has_results) = (false, false);
        for event in batch {
            let event = match event {
                Ok(event) => event,
                Err(status) => {
                    self.has_ended = runner::is_of_runner(&status);
                    broken = Some(self.lent.broke(status));
                    break;
                }
            };
            match event.event {
                // Heartbeats are answered elsewhere.
                None | Some(Event::Heartbeat(_)) => {}
                Some(Event::Intent(intent)) => {
                    has_intents = true;
                    let action: Action = word(&intent.action)?;
                    let mut places = intent.places.into_iter();
                    for id in intent.ids.into_iter().map(ResourceId) {
                        let place = places.next().unwrap_or_default();
                        let mut entry = state.entry(&id);
                        if entry.intent.is_none() {
                            self.intended.insert(id.clone());
                        }
                        // An import calls for nothing: what an earlier call made, only its result tells.
                        if action != Action::Import || entry.intent.is_none() {
                            let stoa_proto::Place { clusters, import_id, r#type } = place;
                            let kind = if r#type.is_empty() { ResourceType::default() } else { word(&r#type)? };
                            let place = CallTarget { clusters, import_id, kind };
                            entry.intent = Some(Intent { action, run: self.run_uid.clone(), place });
                        }
                        entries.push(entry);
                        self.shown.push((id, "InProgress".to_owned(), String::new()));
                    }
                    acks.push(event.sequence);
                }
                Some(Event::Result(result)) => {
                    has_results = true;
                    if let Some(entry) = self.result(execution, state, result)? {
                        entries.push(entry);
                    }
                    acks.push(event.sequence);
                }
                Some(Event::Health(health)) => {
                    reached("health-heard");
                    let id = ResourceId(health.id);
                    let found: Health = word(&health.health)?;
                    state.set_health(&id, found);
                    let mut entry = state.entry(&id);
                    if let Some(result) = entry.result.as_mut().filter(|_| health.finished) {
                        result.finished = true;
                        entries.push(entry);
                    }
                    self.waits.hear(&id, found, health.over, &health.message);
                    // A hook may come before the changes.
                    let is_hook = hook::is_hook_id(&id);
                    if !is_hook {
                        execution.enter(RunPhase::Verifying).await?;
                    }
                    execution.journal.add(Line {
                        time: execution.services.now(),
                        phase: if is_hook { "Applying" } else { "Verifying" }.to_owned(),
                        id: id.0,
                        action: String::new(),
                        outcome: health.health,
                        message: health.message,
                        continued: false,
                    });
                }
                Some(Event::Finished(event)) => {
                    self.has_ended = true;
                    self.lent.answered();
                    finished = Some(event);
                }
            }
        }
        let boundary = |intent: &str, result: &str, finish: Option<&str>| {
            if has_intents {
                reached(intent);
            }
            if has_results {
                reached(result);
            }
            if let Some(finish) = finish.filter(|_| finished.is_some()) {
                reached(finish);
            }
        };
        boundary("intent-heard", "result-heard", Some("finish-heard"));
        state.record(&*execution.services.log, entries).await?;
        boundary("intent-recorded", "result-recorded", None);
        for sequence in acks {
            if !send(&self.requests, Message::Ack(self.grants.ack(sequence))).await {
                break;
            }
        }
        match broken {
            Some(status) => Err(execution.refused(&status, reason::APPLY_FAILED)),
            None => Ok(finished),
        }
    }

    /// Takes one result in; what is to be recorded of it, if anything.
    fn result(
        &mut self,
        execution: &mut Execution,
        state: &State,
        event: ResultEvent,
    ) -> Result<Option<Record>, StepError> {
        let (action, outcome): (Action, ResourceOutcome) = (word(&event.action)?, word(&event.outcome)?);
        let id = ResourceId(event.id);
        let is_change = !matches!(action, Action::Read | Action::Unchanged);
        let is_again = outcome == ResourceOutcome::Done
            && event.message.is_empty()
            && is_done_by(&self.run_uid, action, &state.entry(&id));
        match outcome {
            ResourceOutcome::Done if is_change && !is_again => self.progress.done += 1,
            ResourceOutcome::Done => {}
            ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown => self.progress.failed += 1,
        }
        let is_shown = is_change && !is_again;
        if is_shown || action == Action::Read || outcome != ResourceOutcome::Done || !event.message.is_empty() {
            self.shown.push((id.clone(), event.outcome.clone(), event.message.clone()));
            execution.journal.add(Line {
                time: execution.services.now(),
                phase: "Applying".to_owned(),
                id: id.0.clone(),
                action: event.action,
                outcome: event.outcome,
                message: event.message,
                continued: false,
            });
        }
        if action == Action::Read {
            return Ok(None);
        }
        let mut entry = state.entry(&id);
        if outcome == ResourceOutcome::Skipped {
            let was_not_called = self.intended.remove(&id) && entry.intent.take().is_some();
            return Ok(was_not_called.then_some(entry));
        }
        let resource = Some(&event.resource).filter(|bytes| !bytes.is_empty()).map(resource).transpose()?;
        match outcome {
            ResourceOutcome::Done => (entry.resource, entry.document) = (resource, None),
            // What failed now may be there since an earlier call, whose result nobody had.
            ResourceOutcome::Failed if resource.is_some() => (entry.resource, entry.document) = (resource, None),
            ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown => {}
        }
        // It found nothing: what became of an earlier call is as unknown as it was.
        let is_of_another_call = entry.intent.as_ref().is_some_and(|intent| intent.action != Action::Import);
        if action == Action::Import && outcome != ResourceOutcome::Done && is_of_another_call {
            return Ok(Some(entry));
        }
        let before = entry.result.take();
        let was_verified = before.as_ref().is_some_and(|before| before.verified);
        let had_finished = before.as_ref().is_some_and(|before| before.finished);
        let finished =
            had_finished && !(outcome == ResourceOutcome::Unknown || outcome == ResourceOutcome::Done && is_change);
        let (health, verified) = match outcome {
            // Whatever is open was an earlier call, and may have changed it.
            ResourceOutcome::Done if !is_change => {
                // That its object has another id by now is no change of it, and nothing to wait for when the run goes on.
                let uid = entry.resource.as_ref().and_then(StateResource::uid);
                let is_renamed = before.is_none() && uid.is_some_and(|uid| self.verified.contains(uid));
                let is_verified = (was_verified || is_renamed) && entry.intent.is_none();
                (before.and_then(|b| b.health), is_verified)
            }
            ResourceOutcome::Done | ResourceOutcome::Unknown => (None, false),
            ResourceOutcome::Failed | ResourceOutcome::Skipped => (before.and_then(|b| b.health), was_verified),
        };
        if outcome != ResourceOutcome::Unknown {
            entry.intent = None;
        }
        let is_failed_hook = outcome == ResourceOutcome::Failed && hook::is_hook_id(&id);
        entry.result = Some(Outcome {
            run: self.run_uid.clone(),
            action,
            outcome,
            time: execution.services.now(),
            kubernetes: event.kubernetes.map(|k| KubernetesObject {
                cluster: k.cluster,
                group: k.group,
                version: k.version,
                kind: k.kind,
                namespace: k.namespace,
                name: k.name,
                uid: k.uid,
            }),
            left: event.left,
            depends_on: event.depends_on.into_iter().map(ResourceId).collect(),
            health,
            verified,
            finished,
            message: event.problem.filter(|_| is_failed_hook).map(|problem| problem.message).unwrap_or_default(),
        });
        Ok(Some(entry))
    }

    /// Puts what happened since into the run's status and journal.
    async fn show(&mut self, execution: &mut Execution) -> Result<(), StepError> {
        execution.journal.flush().await;
        let progress = self.progress;
        let shown = std::mem::take(&mut self.shown);
        if shown.is_empty() && status(&execution.run).progress == Some(progress) {
            return Ok(());
        }
        execution.write(StatusUpdate::Progressed(progress, shown)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_reported_again_is_no_other_change() {
        let result = Outcome {
            run: "r".to_owned(),
            action: Action::Update,
            outcome: ResourceOutcome::Done,
            time: jiff::Timestamp::UNIX_EPOCH,
            kubernetes: None,
            left: false,
            depends_on: Vec::new(),
            health: None,
            verified: false,
            finished: false,
            message: String::new(),
        };
        let entry = Record { result: Some(result), ..Record::new("a".into()) };
        assert!(is_done_by("r", Action::Update, &entry));
        assert!(!is_done_by("another", Action::Update, &entry) && !is_done_by("r", Action::Create, &entry));
        let intent = Intent { action: Action::Update, run: "r".to_owned(), place: CallTarget::default() };
        assert!(!is_done_by("r", Action::Update, &Record { intent: Some(intent), ..entry }), "it is called again");
    }

    #[test]
    fn failed_run_names_causes_before_skipped_deletions() {
        let problem = |reason: &str, message: &str| stoa_proto::Problem {
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..stoa_proto::Problem::default()
        };
        let left = problem("DeletionsLeft", "deletions are left: a");
        let rejected: Vec<_> = (1..=7).map(|n| problem("Rejected", &format!("no {n}"))).collect();
        let all: Vec<_> = std::iter::once(left.clone()).chain(rejected).collect();
        let (message, causes) = explained(&all);
        assert_eq!(message, "no 1; no 2; no 3; no 4; no 5; and 2 more, see runs/log; deletions are left: a");
        assert_eq!(causes.len(), 7);
        assert_eq!(explained(&[left, problem("Rejected", "no")]).0, "no; deletions are left: a");
    }
}
