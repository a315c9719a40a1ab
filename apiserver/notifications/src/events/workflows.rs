//! Events of Workflows: start, approval of steps, and end. Their Runs have events as any Run has.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_kinds::event_types::workflows::{APPROVED, AWAITING_APPROVAL, CANCELED, FAILED, REJECTED, STARTED, SUCCEEDED};
use stoa_types::{
    delivery::{Decision, StepPhase, StepProgress, WorkflowPhase},
    reason,
};

use super::{Condition, Mark, Metadata, ObjectEvents, Parts, Requester, Scope, condition};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Workflow(Parts<Spec, Status>);

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    stack: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: WorkflowPhase,
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
    requester: Requester,
    approvals: Vec<Approval>,
    steps: Vec<Step>,
    progress: Option<StepProgress>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Approval {
    step: String,
    decision: Decision,
    #[serde(default)]
    time: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    name: String,
    #[serde(default)]
    phase: StepPhase,
    #[serde(default)]
    start_time: Option<Timestamp>,
    /// Of its runs; a step that only waits for somebody has none.
    #[serde(default)]
    counts: Option<Value>,
}

impl Step {
    /// Whether it waits for somebody itself. Where one of its runs does, that is told of the run.
    fn awaits_approval(&self) -> bool {
        self.phase == StepPhase::AwaitingApproval && self.counts.is_none()
    }
}

impl ObjectEvents for Workflow {
    type Kind = stoa_types::Workflow;

    fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    fn scope(&self) -> Scope {
        Scope::of_stack(&self.0.metadata, &self.0.spec.stack, Vec::new())
    }

    fn marks(&self) -> Vec<Mark> {
        let status = &self.0.status;
        let mut marks = Vec::new();
        if status.start_time.is_some() {
            marks.push(Mark::new(STARTED, status.start_time));
        }
        let waiting = status.steps.iter().filter(|step| step.awaits_approval());
        marks.extend(waiting.map(|step| Mark::new(AWAITING_APPROVAL, step.start_time).which(&step.name)));
        marks.extend(status.approvals.iter().map(|approval| {
            let decided = match approval.decision {
                Decision::Approved => APPROVED,
                Decision::Rejected => REJECTED,
            };
            Mark::new(decided, approval.time).which(&approval.step)
        }));
        let ended = match status.phase {
            WorkflowPhase::Succeeded => Some(SUCCEEDED),
            WorkflowPhase::Failed => Some(FAILED),
            WorkflowPhase::Canceled => Some(CANCELED),
            WorkflowPhase::Pending
            | WorkflowPhase::Running
            | WorkflowPhase::AwaitingApproval
            | WorkflowPhase::Paused => None,
        };
        marks.extend(ended.map(|ended| Mark::new(ended, status.completion_time)));
        marks
    }

    fn data(&self) -> Value {
        let status = &self.0.status;
        let ended = [reason::FAILED, reason::COMPLETE].iter().find_map(|type_| condition(&status.conditions, type_));
        let said = ended.or_else(|| condition(&status.conditions, reason::AWAITING_APPROVAL));
        let waiting: Vec<&str> =
            status.steps.iter().filter(|step| step.awaits_approval()).map(|step| step.name.as_str()).collect();
        json!({
            "phase": status.phase,
            "reason": ended.map(|condition| &condition.reason),
            "message": said.map(Condition::message),
            "requester": status.requester.username,
            "awaitingSteps": (!waiting.is_empty()).then_some(waiting),
            "progress": status.progress,
        })
    }
}
