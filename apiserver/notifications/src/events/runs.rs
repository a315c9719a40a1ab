//! Events of Runs: start, approval, merge and end.

use serde_json::{Value, json};
use stoa_kinds::{
    event_types::runs::{APPROVED, AWAITING_APPROVAL, AWAITING_MERGE, CANCELED, FAILED, REJECTED, STARTED, SUCCEEDED},
    plan_summary,
};
use stoa_types::{
    Run,
    common::condition,
    delivery::{Decision, RunEnd, RunPhase, RunStatus},
    reason,
};

use super::{Mark, ObjectEvents, Scope, get_raw, message};

impl ObjectEvents for Run {
    fn scope(&self) -> Scope {
        Scope::of_stack(self, &self.spec.stack, vec![self.spec.workspace.clone()])
    }

    fn marks(&self) -> Vec<Mark> {
        let Some(status) = &self.status else { return Vec::new() };
        let mut marks = Vec::new();
        if let Some(time) = &status.start_time {
            marks.push(Mark::new(STARTED, Some(time)));
        }
        if let (RunPhase::AwaitingApproval, Some(plan)) = (status.phase, &status.plan) {
            marks.push(Mark::new(AWAITING_APPROVAL, plan.time.as_ref()).which(&plan.digest));
        }
        if let Some(approval) = &status.approval {
            let decided = match approval.decision {
                Decision::Approved => APPROVED,
                Decision::Rejected => REJECTED,
            };
            marks.push(Mark::new(decided, approval.time.as_ref()));
        }
        if let (RunPhase::AwaitingMerge, Some(pull)) = (status.phase, &status.pull_request) {
            marks.push(Mark::new(AWAITING_MERGE, pull.time.as_ref()).which(pull.number.to_string()));
        }
        let ended = status.phase.end().map(|end| match end {
            RunEnd::Succeeded => SUCCEEDED,
            RunEnd::Failed => FAILED,
            RunEnd::Canceled => CANCELED,
        });
        marks.extend(ended.map(|ended| Mark::new(ended, status.completion_time.as_ref())));
        marks
    }

    fn data(&self) -> Value {
        let none = RunStatus::default();
        let status = self.status.as_ref().unwrap_or(&none);
        let ended = [reason::FAILED, reason::COMPLETE].iter().find_map(|type_| condition(&status.conditions, type_));
        let said = ended.or_else(|| condition(&status.conditions, reason::WAITING));
        let (plan, source) = (status.plan.as_ref(), status.source.as_ref());
        let pull_request = status.pull_request.as_ref().map(|pull| &pull.url).filter(|url| !url.is_empty());
        json!({
            "workspace": self.spec.workspace,
            "operation": self.spec.operation,
            "phase": status.phase,
            "reason": ended.map(|condition| &condition.reason),
            "message": said.map(message),
            "requester": status.requester.username,
            "commit": source.map(|source| &source.commit),
            "specDigest": source.and_then(|source| source.spec_digest.as_ref()),
            "planDigest": plan.map(|plan| &plan.digest),
            "plan": plan.map(|plan| plan_summary::short(&plan.summary)),
            "changes": plan.map(|plan| plan.summary.changes()),
            "release": status.release,
            "pullRequest": pull_request,
            "page": pull_request.or_else(|| source.map(|source| &source.commit_url)),
        })
    }

    /// Somebody who decides needs the plan, everybody else the log.
    fn command(&self, path: &str) -> String {
        match self.status.as_ref().map(|status| status.phase) {
            Some(RunPhase::AwaitingApproval) => get_raw(&format!("{path}/plan?format=table")),
            _ => get_raw(&format!("{path}/log")),
        }
    }
}
