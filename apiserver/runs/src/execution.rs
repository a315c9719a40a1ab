//! One Run while it is under way: its status and run log, its beginning and its end.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::events::Kind;
use stoa_engine::ResourceId;
use stoa_failpoint::reached;
use stoa_kinds::{deployed, plan_summary, run_status::status, text};
use stoa_machinery::registry::is_undecodable;
use stoa_types::{
    Run, Stack,
    delivery::{Operation, PlanSummary, RunPhase},
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Services, StepError,
    circuit_breaker::CircuitBreaker,
    deployment, garbage,
    run_log::{self, RunLog},
    runner::{self, Runner},
    state,
    status::{self as run_status, StatusUpdate, is_passing, is_trouble},
    target::Target,
};

/// How long a run that ends waits for the Backend to take its log.
const KEEP: Duration = Duration::from_secs(5);

/// So many ids are named in the message that a run ends with.
const NAMED: usize = 10;
/// So many characters are kept of what a function-runner says that it waits for.
const COMPLAINT: usize = 1024;

/// One Run while it is under way.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) services: Services,
    /// The Run as it was last stored.
    pub(crate) run: Run,
    pub(crate) journal: RunLog,
    /// Fires when somebody cancels the Run or its time is up.
    pub(crate) cancel: CancellationToken,
    /// Fires when its time is up.
    pub(crate) overdue: CancellationToken,
    /// The function-runner that answered last, for the next change of the status.
    pub(crate) runner: Option<String>,
    pub(crate) breaks: CircuitBreaker,
    /// The resources whose last call has no known result, once the Run is about to end.
    pub(crate) unheard_of: Vec<ResourceId>,
}

#[derive(Clone, Copy)]
struct End<'a> {
    phase: RunPhase,
    reason: &'a str,
    message: &'a str,
    /// Whether it was refused for what it asks for, so that it says nothing about the deployment.
    is_refused: bool,
}

enum Now {
    UnderWay,
    /// Another server has ended it, or this one has and did not hear so.
    Ended,
    /// Its object is not there any more; another may have its name.
    Gone,
}

impl Execution {
    pub(crate) fn new(services: Services, run: Run, cancel: CancellationToken, overdue: CancellationToken) -> Self {
        let journal = RunLog::new(services.log.clone(), services.clock.clone(), &run.uid().unwrap_or_default());
        let (runner, breaks, unheard_of) = (None, CircuitBreaker::default(), Vec::new());
        Self { services, run, journal, cancel, overdue, runner, breaks, unheard_of }
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.overdue.is_cancelled()
    }

    /// The Release for which all changes are made and that is not recorded yet: the Run may not end before.
    pub(super) async fn owed_release(&self) -> Result<Option<i64>, StepError> {
        let now = status(&self.run);
        let Some(stack_uid) = now.stack_uid.filter(|_| now.phase >= RunPhase::Applying && now.release.is_none()) else {
            return Ok(None);
        };
        let head = state::head(&*self.services.log, &stack_uid, &self.run.spec.workspace).await?;
        Ok((Some(head.last_release_run) == self.run.uid()).then_some(head.last_release))
    }

    /// Whether the stack is gone, as far as that is known: nobody would ask for its releases.
    pub(super) async fn has_lost_its_stack(&self) -> bool {
        let Ok(stacks) = self.services.lookup.api::<Stack>() else { return false };
        let namespace = self.run.namespace().unwrap_or_default();
        match stacks.get_opt(&namespace, &self.run.spec.stack).await {
            Ok(stack) => stack.and_then(|stack| stack.uid()) != status(&self.run).stack_uid,
            Err(_) => false,
        }
    }

    /// The run's stack; none where it is gone or cannot be decoded: nothing can be noted there.
    async fn stack(&self) -> Result<Option<Stack>, StepError> {
        let namespace = self.run.namespace().unwrap_or_default();
        match self.services.lookup.api::<Stack>()?.get_opt(&namespace, &self.run.spec.stack).await {
            // Another of its name is none of the run's.
            Ok(stack) => {
                let of = status(&self.run).stack_uid;
                Ok(stack.filter(|stack| of.is_none() || stack.uid() == of))
            }
            Err(error) if is_undecodable(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a call that changes nothing, until the run is cancelled.
    pub(super) async fn unless_canceled<T>(&self, call: impl Future<Output = T>) -> Result<T, StepError> {
        self.cancel.run_until_cancelled(call).await.ok_or(StepError::Canceled)
    }

    /// The function-runners, for a call of the run: it has only so many to lose.
    pub(super) fn runners(&self) -> Runner {
        self.services.runner.ending(self.breaks.left())
    }

    /// What a call that failed means for the run. `otherwise` is the reason when the function-runner gives none.
    pub(super) fn refused(&mut self, error: &tonic::Status, otherwise: &'static str) -> StepError {
        match runner::broken_calls(error) {
            0 => runner::halt(error, otherwise),
            calls => self.breaks.note(&status(&self.run), calls, error.message()),
        }
    }

    /// Changes the status of the Run; durable when this returns. A Run that has ended stays as it is: a server that was suspended
    /// may continue after another one has ended the Run.
    ///
    /// # Errors
    ///
    /// Abandoned when the Run has ended or was replaced.
    pub(crate) async fn write(&mut self, update: StatusUpdate) -> Result<(), StepError> {
        let (namespace, name, uid) = (self.run.namespace().unwrap_or_default(), self.run.name_any(), self.run.uid());
        let runs = self.services.lookup.api::<Run>()?;
        let runner = &self.runner;
        let mut had_ended = false;
        let change = |run: &mut Run| {
            had_ended = has_ended(run);
            if run.uid() == uid && !had_ended {
                if runner.is_some() {
                    run.status.get_or_insert_default().runner.clone_from(runner);
                }
                update.apply(run);
            }
        };
        let stored = runs.update_status_with(&namespace, &name, change).await?;
        // Its end still depends on knowing that its own object is deleted.
        if stored.uid() != uid {
            return Err(StepError::Abandoned("the run was replaced by another of its name".to_owned()));
        }
        self.run = stored;
        if had_ended {
            return Err(StepError::Abandoned("the run has ended already".to_owned()));
        }
        Ok(())
    }

    /// Writes what a step found, if that is not recorded yet.
    pub(crate) async fn record(&mut self, found: Option<StatusUpdate>) -> Result<(), StepError> {
        match found {
            Some(update) => self.write(update).await,
            None => Ok(()),
        }
    }

    /// What became of the run meanwhile.
    async fn now(&mut self) -> Result<Now, StepError> {
        let (namespace, name) = (self.run.namespace().unwrap_or_default(), self.run.name_any());
        let found = self.services.lookup.api::<Run>()?.get_opt(&namespace, &name).await?;
        Ok(match found.filter(|now| now.uid() == self.run.uid()) {
            None => Now::Gone,
            Some(now) if has_ended(&now) => {
                self.run = now;
                Now::Ended
            }
            Some(_) => Now::UnderWay,
        })
    }

    pub(super) async fn is_gone(&mut self) -> bool {
        matches!(self.now().await, Ok(Now::Gone))
    }

    pub(super) fn note(&mut self, message: String) {
        let phase = format!("{:?}", status(&self.run).phase);
        self.journal.note(&phase, message);
    }

    /// Whether the run says that something is out of reach.
    pub(super) fn tells_trouble(&self) -> bool {
        status(&self.run).conditions.iter().any(is_trouble)
    }

    /// Whether the run says that this keeps it from going on.
    pub(super) fn tells_waiting(&self, complaint: &str) -> bool {
        status(&self.run).conditions.iter().any(|it| is_trouble(it) && it.message == complaint)
    }

    /// Tells that nothing is out of reach any more, and nothing waited for that is not healthy, where the run says so.
    pub(super) async fn goes_on(&mut self) -> Result<(), StepError> {
        if !status(&self.run).conditions.iter().any(is_passing) {
            return Ok(());
        }
        self.write(StatusUpdate::Continues).await
    }

    /// Tells what the function-runner waits for that works for the run.
    pub(super) async fn tell_awaited(&mut self, awaited: &[String]) -> Result<(), StepError> {
        if awaited.is_empty() {
            return self.goes_on().await;
        }
        let complaint = complaint(awaited);
        if !self.tells_waiting(&complaint) {
            self.tell_waiting(&complaint).await;
        }
        Ok(())
    }

    /// Tells why the run does not go on for now.
    pub(super) async fn tell_waiting(&mut self, complaint: &str) {
        self.note_waiting(complaint).await;
        if self.tells_waiting(complaint) {
            return;
        }
        if let Err(halt) = self.write(StatusUpdate::Waiting(reason::WAITING, complaint.to_owned())).await {
            tracing::warn!(run = self.run.name_any(), ?halt, "the run's status does not show why it waits");
        }
    }

    /// The same in the journal alone.
    pub(super) async fn note_waiting(&mut self, complaint: &str) {
        tracing::warn!(run = self.run.name_any(), complaint, "the run waits");
        self.note(format!("waiting: {complaint}"));
        self.journal.flush().await;
    }

    /// Moves the Run to a phase that it has not reached yet.
    pub(crate) async fn enter(&mut self, phase: RunPhase) -> Result<(), StepError> {
        if status(&self.run).phase < phase {
            self.write(StatusUpdate::Entered(phase)).await?;
            self.journal.note(&format!("{phase:?}"), "");
        }
        Ok(())
    }

    pub(super) async fn begin(&mut self, target: &Target) -> Result<(), StepError> {
        if status(&self.run).start_time.is_none() {
            let (uid, backend) = (target.stack.uid().unwrap_or_default(), &target.workspace.spec.backend.name);
            garbage::note_scope(&*self.services.log, &target.namespace(), &uid, backend).await?;
            self.write(StatusUpdate::Begun { time: Time(self.services.now()), stack_uid: uid }).await?;
            if status(&self.run).start_time.is_none() {
                return Err(StepError::Canceled);
            }
            let requester = status(&self.run).requester.username;
            let what = format!(
                "{:?} of stack {} in workspace {}",
                self.run.spec.operation,
                target.stack.name_any(),
                target.workspace.name_any()
            );
            self.journal.note("Pending", format!("{what}, requested by {requester}"));
            self.journal.note("Generating", "");
            self.services.recorder.record(&self.run, Kind::Normal, "Started", &what);
        }
        // An earlier attempt may have ended before it was noted. While somebody is waited for, another run may have the turn.
        let now = status(&self.run);
        let is_its = now.stack_uid == target.stack.uid();
        if is_its && !deployed::waits(now.phase) && !deployment::is_noted(&target.stack, &self.run) {
            deployment::note(self, &target.stack, now.phase, None).await?;
        }
        Ok(())
    }

    pub(super) async fn finish_timed_out(&mut self, complaint: &str) -> Result<(), StepError> {
        let mut message = format!("the run took longer than {}", self.run.spec.timeout);
        if !complaint.is_empty() {
            message.push_str(&format!("; it was waiting: {complaint}"));
        }
        self.finish(RunPhase::Failed, reason::TIMED_OUT, &message).await
    }

    pub(super) async fn finish_canceled(&mut self) -> Result<(), StepError> {
        let superseded_by = self.run.annotations().get(labels::SUPERSEDED_BY).cloned();
        match superseded_by.filter(|_| status(&self.run).start_time.is_none()) {
            Some(by) => {
                let message = format!("run {by} replaced it before it began");
                self.finish(RunPhase::Canceled, reason::SUPERSEDED, &message).await
            }
            None => {
                let pull = status(&self.run).pull_request;
                let message = match pull.filter(|pull| pull.end_time.is_none()) {
                    Some(pull) => format!("the run was cancelled; pull request {} stays as it is", pull.number),
                    None => "the run was cancelled".to_owned(),
                };
                self.finish(RunPhase::Canceled, reason::CANCELED, &message).await
            }
        }
    }

    /// Ends the run. That it has ended is written last, so that whoever sees it sees the rest too,
    /// and a crash before leaves a run that is taken up again. One that has ended stays as it is, and so does its stack.
    pub(crate) async fn finish(&mut self, phase: RunPhase, reason: &str, message: &str) -> Result<(), StepError> {
        self.end(End { phase, reason, message, is_refused: false }).await
    }

    /// Ends a run that is refused for what it asks for. The deployment is told as it was before.
    pub(super) async fn refuse(&mut self, reason: &str, message: &str) -> Result<(), StepError> {
        self.end(End { phase: RunPhase::Failed, reason, message, is_refused: true }).await
    }

    async fn end(&mut self, end: End<'_>) -> Result<(), StepError> {
        let message = with_plan(end.message, &self.run);
        let message = with_unheard_of(&message, &self.unheard_of);
        let end = End { message: &message, ..end };
        match self.now().await? {
            Now::UnderWay => {}
            Now::Ended => return Ok(()),
            Now::Gone => return self.end_gone(end).await,
        }
        let End { phase, reason, message, .. } = end;
        self.journal.note(&format!("{phase:?}"), message);
        self.journal.flush().await;
        // Whatever else is missing: what the stack's status says decides about who is deleted.
        if let Some(stack) = self.stack_to_tell(reason).await? {
            self.tell_stack(&stack, end).await?;
        }
        let mut log = None;
        if status(&self.run).start_time.is_some()
            && let Ok(target) = Target::of_run(&self.services, &self.run).await
        {
            log = self.kept_log(&target).await;
        }
        self.write_end(phase, reason, message, log.clone()).await?;
        reached("end-noted");
        self.services.recorder.record(&self.run, kind(phase), reason, message);
        if log.is_some() {
            // Those that stay go with the run.
            self.remove_journal().await;
        }
        Ok(())
    }

    pub(super) async fn write_end(
        &mut self,
        phase: RunPhase,
        reason: &str,
        message: &str,
        log: Option<String>,
    ) -> Result<(), StepError> {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let (time, unheard_of) = (Time(self.services.now()), self.unheard_of.clone());
        self.write(StatusUpdate::Ended(run_status::End { phase, time, reason, message, log, unheard_of })).await
    }

    /// Ends a Run without an object in the status of its Stack, if that still says that the Run is under way.
    async fn end_gone(&mut self, end: End<'_>) -> Result<(), StepError> {
        if let Some(stack) = self.stack_to_tell(end.reason).await?
            && deployment::is_noted_still(&self.services.lookup, &stack, &self.run).await?
        {
            self.tell_stack(&stack, end).await?;
        }
        self.remove_journal().await;
        Ok(())
    }

    /// The Stack to note the end in; none where the Run never began or was superseded.
    async fn stack_to_tell(&self, reason: &str) -> Result<Option<Stack>, StepError> {
        let has_begun = status(&self.run).start_time.is_some();
        let is_superseded = reason == stoa_types::reason::SUPERSEDED;
        if !has_begun || is_superseded || !self.run.spec.operation.is_mutating() {
            return Ok(None);
        }
        self.stack().await
    }

    /// Notes the end in the Stack's status; a refused Run that changed nothing restores the earlier status.
    async fn tell_stack(&self, stack: &Stack, end: End<'_>) -> Result<(), StepError> {
        let End { phase, reason, message, is_refused } = end;
        let may_have_changed = status(&self.run).phase >= RunPhase::Applying;
        if is_refused && !may_have_changed && deployment::take_back(self, stack).await? {
            return Ok(());
        }
        deployment::note(self, stack, phase, Some((reason, message))).await?;
        self.services.recorder.record(
            stack,
            kind(phase),
            &format!("{:?}{phase:?}", self.run.spec.operation),
            format!("run {}: {message}", self.run.name_any()),
        );
        Ok(())
    }

    /// Removes the records of the journal, as far as the log lets them be removed.
    async fn remove_journal(&self) {
        if let Err(error) = run_log::remove(&*self.services.log, &self.run.uid().unwrap_or_default()).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, run = self.run.name_any(), "records of a journal that nobody needs any more stay");
        }
    }

    /// Stores the run log as a document; its digest, or nothing where that fails: the Run ends all the same.
    async fn kept_log(&self, target: &Target) -> Option<String> {
        // A stack by the same name would have its documents elsewhere.
        if target.stack.uid() != status(&self.run).stack_uid || !self.journal.is_written() {
            return None;
        }
        let uid = self.run.uid().unwrap_or_default();
        let scope = target.scope();
        let kept = run_log::keep(&*self.services.log, &uid, &*target.documents, &scope);
        match tokio::time::timeout(KEEP, kept).await {
            Ok(Ok(digest)) => Some(digest),
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, run = self.run.name_any(), "the journal stays in the server's log");
                None
            }
            Err(_) => {
                tracing::warn!(run = self.run.name_any(), "the backend is slow: the journal stays in the server's log");
                None
            }
        }
    }
}

/// The message of the end, with the short form of the plan where that is news.
fn with_plan(message: &str, run: &Run) -> String {
    let is_news = |summary: &PlanSummary| match run.spec.operation {
        Operation::Preview => true,
        Operation::Refresh => false,
        Operation::Apply | Operation::Destroy | Operation::Rollback | Operation::Import => summary.changes() > 0,
    };
    let summary = status(run).plan.map(|plan| plan.summary).filter(is_news);
    match summary.map(|summary| plan_summary::short(&summary)) {
        Some(short) if !message.contains(&short) => format!("{message} (plan: {short})"),
        _ => message.to_owned(),
    }
}

/// How a run ended, with what to do about calls of which nobody heard what became of them.
fn with_unheard_of(message: &str, ids: &[ResourceId]) -> String {
    if ids.is_empty() {
        return message.to_owned();
    }
    let ids: Vec<String> = ids.iter().map(|id| format!("{id:?}", id = id.0)).collect();
    format!(
        "{message}; the result of the call is unknown for {}. The next Run checks it before it plans, and reports \
         resources that it cannot resolve. Import such a resource if it exists; otherwise name its id in spec.retry of a \
         Run",
        text::first(&ids, NAMED, ", ")
    )
}

/// What a function-runner says that it waits for, in a sentence.
pub(super) fn complaint(awaited: &[String]) -> String {
    text::cut(&awaited.join("; "), COMPLAINT)
}

/// What sort of Event tells of a run's end.
fn kind(phase: RunPhase) -> Kind {
    if phase == RunPhase::Succeeded { Kind::Normal } else { Kind::Warning }
}

fn has_ended(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_terminal())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use stoa_machinery::{log::MemoryLog, registry::DeleteOptions};

    use super::*;
    use crate::testing::{TestServices, unreachable_runner};

    #[tokio::test]
    async fn ended_run_and_its_successor_stay_unchanged() {
        let log = Arc::new(MemoryLog::new());
        let world =
            TestServices::over(log, unreachable_runner(), |builder| builder, |_| |_, definition| definition).await;
        let create = async || {
            world.create("Run", "first", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await
        };
        create().await;
        let runs = world.registry.api::<Run>();
        let run = runs.get("shop", "first").await.unwrap();
        let execution = || Execution::new(world.services.clone(), run.clone(), Default::default(), Default::default());
        execution().write_end(RunPhase::Canceled, reason::CANCELED, "cancelled", None).await.unwrap();
        let mut suspended = execution();
        let mut phase_after_a_write = async || {
            let written = suspended.write(StatusUpdate::Entered(RunPhase::Planning)).await;
            assert!(matches!(written, Err(StepError::Abandoned(_))), "{written:?}");
            status(&runs.get("shop", "first").await.unwrap()).phase
        };
        assert_eq!(phase_after_a_write().await, RunPhase::Canceled);
        runs.delete("shop", "first", &DeleteOptions::default()).await.unwrap();
        runs.update_with("shop", "first", |run: &mut Run| run.metadata.finalizers = None).await.unwrap();
        create().await;
        assert_eq!(phase_after_a_write().await, RunPhase::Pending);
    }
}
