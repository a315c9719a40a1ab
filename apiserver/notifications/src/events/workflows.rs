//! Events of Workflows: start, approval of steps, and end. Their Runs have events as any Run has.

use serde_json::{Value, json};
use stoa_kinds::event_types::workflows::{APPROVED, AWAITING_APPROVAL, CANCELED, FAILED, REJECTED, STARTED, SUCCEEDED};
use stoa_types::{
    Workflow,
    common::condition,
    delivery::{Decision, StepPhase, StepStatus, WorkflowPhase, WorkflowStatus},
    reason,
};

use super::{Mark, ObjectEvents, Scope, message};

/// Whether a step waits for an approval itself. A step with Runs has counts, and its Runs have events of their own.
fn awaits_approval(step: &&StepStatus) -> bool {
    step.phase == StepPhase::AwaitingApproval && step.counts.is_none()
}

impl ObjectEvents for Workflow {
    fn scope(&self) -> Scope {
        Scope::of_stack(self, &self.spec.stack, Vec::new())
    }

    fn marks(&self) -> Vec<Mark> {
        let Some(status) = &self.status else { return Vec::new() };
        let mut marks = Vec::new();
        if let Some(time) = &status.start_time {
            marks.push(Mark::new(STARTED, Some(time)));
        }
        let waiting = status.steps.iter().filter(awaits_approval);
        marks.extend(waiting.map(|step| Mark::new(AWAITING_APPROVAL, step.start_time.as_ref()).which(&step.name)));
        marks.extend(status.approvals.iter().map(|approval| {
            let decided = match approval.decision {
                Decision::Approved => APPROVED,
                Decision::Rejected => REJECTED,
            };
            Mark::new(decided, approval.time.as_ref()).which(&approval.step)
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
        marks.extend(ended.map(|ended| Mark::new(ended, status.completion_time.as_ref())));
        marks
    }

    fn data(&self) -> Value {
        let none = WorkflowStatus::default();
        let status = self.status.as_ref().unwrap_or(&none);
        let ended = [reason::FAILED, reason::COMPLETE].iter().find_map(|type_| condition(&status.conditions, type_));
        let said = ended.or_else(|| condition(&status.conditions, reason::AWAITING_APPROVAL));
        let waiting = status.steps.iter().filter(awaits_approval);
        let waiting: Vec<&str> = waiting.map(|step| step.name.as_str()).collect();
        json!({
            "phase": status.phase,
            "reason": ended.map(|condition| &condition.reason),
            "message": said.map(message),
            "requester": status.requester.username,
            "awaitingSteps": (!waiting.is_empty()).then_some(waiting),
            "progress": status.progress,
        })
    }
}
