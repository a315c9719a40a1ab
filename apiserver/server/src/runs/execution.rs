//! One run on its way: its status and journal, its beginning and its end.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, events::Kind};
use stoa_engine::ResourceId;
use stoa_failpoint::reached;
use stoa_kinds::{deployed, plan_summary, run_status::status, text::cut};
use stoa_machinery::registry::is_undecodable;
use stoa_types::{
    Condition, Run, Stack,
    delivery::{Operation, PlanSummary, RunPhase, RunStatus},
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use super::{
    Services, StepError,
    circuit_breaker::CircuitBreaker,
    deployment, garbage,
    run_log::{self, RunLog},
    runner::{self, Runner},
    state,
    target::Target,
};

/// How long a run that ends waits for the Backend to take its log.
const KEEP: Duration = Duration::from_secs(5);

/// So many ids are named in the message that a run ends with.
const NAMED: usize = 10;
/// So many characters are kept of what a function-runner says that it waits for.
const COMPLAINT: usize = 1024;

/// One run on its way.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) services: Services,
    pub(crate) run: Run,
    pub(crate) journal: RunLog,
    /// Fires when somebody cancels the run or its time is up.
    pub(crate) cancel: CancellationToken,
    /// Fires when its time is up.
    pub(crate) overdue: CancellationToken,
    /// Which function-runner answered last, for the next change of the status.
    pub(crate) runner: Option<String>,
    /// Its calls in whose middle function-runners went away.
    pub(crate) breaks: CircuitBreaker,
    /// The resources that it called for without hearing what became of that, once it is about to end.
    pub(crate) unheard_of: Vec<ResourceId>,
}

/// How a run ends.
#[derive(Clone, Copy)]
struct End<'a> {
    phase: RunPhase,
    reason: &'a str,
    message: &'a str,
    /// Whether it was refused for what it asks for, so that it says nothing about the deployment.
    is_refused: bool,
}

/// What became of a run meanwhile.
enum Now {
    UnderWay,
    /// Another server has ended it, or this one has and did not hear so.
    Ended,
    /// Its object is not there any more; another may have its name.
    Gone,
}

impl Execution {
    /// Whether the run's time is up.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue.is_cancelled()
    }

    /// The number of the release that the run has made all changes for and not put on record yet: it does not end before
    /// it has, as no other run would.
    ///
    /// # Errors
    ///
    /// Retry when that is not known for now.
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

    /// Changes the run's status; what is kept in `self.run` is what was stored. Whoever has something to note does not wait
    /// for anything that is out of reach any more; while changes are made, one may be noted and another waited for.
    pub(crate) async fn update(&mut self, mut change: impl FnMut(&mut RunStatus) + Send) -> Result<(), StepError> {
        self.change(|run| {
            let status = run.status.get_or_insert_default();
            if status.phase < RunPhase::Applying {
                status.conditions.retain(|condition| !is_trouble(condition));
            }
            change(status);
        })
        .await
    }

    /// The same with a look at the run that is changed, of which only the status is stored. A run that has ended stays as it
    /// is: a server that was suspended may come back after another one has ended it.
    async fn change(&mut self, mut change: impl FnMut(&mut Run) + Send) -> Result<(), StepError> {
        let (namespace, name, uid) = (self.run.namespace().unwrap_or_default(), self.run.name_any(), self.run.uid());
        let runs = self.services.lookup.api::<Run>()?;
        let runner = &self.runner;
        let mut had_ended = false;
        let stored = runs
            .update_status_with(&namespace, &name, |run: &mut Run| {
                had_ended = has_ended(run);
                if run.uid() == uid && !had_ended {
                    if runner.is_some() {
                        run.status.get_or_insert_default().runner.clone_from(runner);
                    }
                    change(run);
                }
            })
            .await?;
        // Whoever ends the run then has to know that its object is gone.
        if stored.uid() != uid {
            return Err(StepError::Abandoned("the run was replaced by another of its name".to_owned()));
        }
        self.run = stored;
        if had_ended {
            return Err(StepError::Abandoned("the run has ended already".to_owned()));
        }
        Ok(())
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

    /// Whether the run's object is known to be gone.
    pub(super) async fn is_gone(&mut self) -> bool {
        matches!(self.now().await, Ok(Now::Gone))
    }

    /// Adds a line about the run, as of the phase that it is in.
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
        let says_so =
            |it: &Condition| is_trouble(it) || (it.type_ == reason::WAITING && it.reason == reason::VERIFYING);
        if !status(&self.run).conditions.iter().any(says_so) {
            return Ok(());
        }
        self.update(|status| status.conditions.retain(|condition| !says_so(condition))).await
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
        if let Err(halt) = self.say_waiting(reason::WAITING, complaint).await {
            tracing::warn!(run = self.run.name_any(), ?halt, "the run's status does not show why it waits");
        }
    }

    /// The same in the journal alone.
    pub(super) async fn note_waiting(&mut self, complaint: &str) {
        tracing::warn!(run = self.run.name_any(), complaint, "the run waits");
        self.note(format!("waiting: {complaint}"));
        self.journal.flush().await;
    }

    /// The same in the status alone, with a reason.
    pub(super) async fn say_waiting(&mut self, why: &'static str, message: &str) -> Result<(), StepError> {
        let generation = self.run.metadata.generation;
        self.change(|run| {
            let conditions = &mut run.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::WAITING, true, why, message, generation);
        })
        .await
    }

    /// Moves the run to a phase that it has not reached yet.
    pub(crate) async fn enter(&mut self, phase: RunPhase) -> Result<(), StepError> {
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

    pub(super) async fn begin(&mut self, target: &Target) -> Result<(), StepError> {
        if status(&self.run).start_time.is_none() {
            let (uid, backend) = (target.stack.uid().unwrap_or_default(), &target.workspace.spec.backend.name);
            garbage::note_scope(&*self.services.log, &target.namespace(), &uid, backend).await?;
            let now = Time(self.services.now());
            self.change(|run| {
                // Whoever cancels a run that has not begun may count on it that it never does.
                if !run.spec.cancel {
                    let status = run.status.get_or_insert_default();
                    status.phase = RunPhase::Generating;
                    no_longer_waits(status);
                    status.start_time = Some(now.clone());
                    status.stack_uid = Some(uid.clone());
                }
            })
            .await?;
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
        let unheard_of = self.unheard_of.clone();
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
        let now = Time(self.services.now());
        let generation = self.run.metadata.generation;
        self.update(|status| {
            status.phase = phase;
            status.start_time.get_or_insert(now.clone());
            status.completion_time = Some(now.clone());
            status.log.clone_from(&log);
            let is_unheard_of = |id: &str| unheard_of.iter().any(|unheard_of| unheard_of.0 == id);
            for resource in status.resources.iter_mut().filter(|resource| is_unheard_of(&resource.id)) {
                "Unknown".clone_into(&mut resource.phase);
            }
            no_longer_waits(status);
            let type_ = if phase == RunPhase::Succeeded { reason::COMPLETE } else { reason::FAILED };
            set_condition(&mut status.conditions, type_, true, reason, message, generation);
        })
        .await?;
        reached("end-noted");
        self.services.recorder.record(&self.run, kind(phase), reason, message);
        if log.is_some() {
            // Those that stay go with the run.
            self.remove_journal().await;
        }
        Ok(())
    }

    /// Ends a run whose object is gone, as where somebody took its finalizer away: only what its stack says of it is left.
    /// That stays where it does not say that the run is under way, since another server may have ended it before it went, or
    /// another of its name may be what is under way.
    async fn end_gone(&mut self, end: End<'_>) -> Result<(), StepError> {
        if let Some(stack) = self.stack_to_tell(end.reason).await?
            && deployment::is_noted_still(&self.services.lookup, &stack, &self.run).await?
        {
            self.tell_stack(&stack, end).await?;
        }
        self.remove_journal().await;
        Ok(())
    }

    /// The stack that is told of the run's end. A run that never began says nothing about the deployment, which may be
    /// another's work right now; nor does one whose place another one took.
    async fn stack_to_tell(&self, reason: &str) -> Result<Option<Stack>, StepError> {
        let has_begun = status(&self.run).start_time.is_some();
        let is_superseded = reason == stoa_types::reason::SUPERSEDED;
        if !has_begun || is_superseded || !self.run.spec.operation.is_mutating() {
            return Ok(None);
        }
        self.stack().await
    }

    /// Tells the stack how the run ends; or nothing of it, where it was refused before it may have changed anything, and it is
    /// known what the stack said before.
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

    /// Keeps the journal as a document of the Backend; its digest. Without one the journal stays where it is, as does that
    /// of a run which has no Backend: how a run ends is not to depend on its tale.
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

/// How a run ended, with the short form of its plan, unless the message has it: that of a Refresh says what drifted, and that of
/// a run which had nothing to do says so.
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
    let named: Vec<String> = ids.iter().take(NAMED).map(|id| format!("{id:?}", id = id.0)).collect();
    let more = ids.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "{message}; the result of the call is unknown for {}{more}. The next Run checks it before it plans, and \
         reports resources that it cannot resolve. Import such a resource if it exists; otherwise name its id in \
         spec.retry of a Run",
        named.join(", ")
    )
}

/// What a function-runner says that it waits for, in a sentence.
pub(super) fn complaint(awaited: &[String]) -> String {
    cut(&awaited.join("; "), COMPLAINT)
}

/// Whether a condition says that something is out of reach, rather than whose turn it is or who has to decide.
fn is_trouble(condition: &Condition) -> bool {
    condition.type_ == reason::WAITING && condition.reason == reason::WAITING
}

/// What sort of Event tells of a run's end.
fn kind(phase: RunPhase) -> Kind {
    if phase == RunPhase::Succeeded { Kind::Normal } else { Kind::Warning }
}

fn has_ended(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_terminal())
}

fn no_longer_waits(status: &mut RunStatus) {
    status.conditions.retain(|condition| condition.type_ != reason::WAITING);
}
