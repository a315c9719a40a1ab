//! Events of Runs: start, approval, merge and end.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_kinds::{
    event_types::runs::{APPROVED, AWAITING_APPROVAL, AWAITING_MERGE, CANCELED, FAILED, REJECTED, STARTED, SUCCEEDED},
    plan_summary,
};
use stoa_types::{
    delivery::{Decision, Operation, PlanSummary, RunEnd, RunPhase},
    reason,
};

use super::{Condition, Mark, Metadata, ObjectEvents, Parts, Requester, Scope, condition, get_raw};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Run(Parts<Spec, Status>);

#[derive(Deserialize)]
struct Spec {
    stack: String,
    #[serde(default)]
    workspace: String,
    operation: Operation,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: RunPhase,
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
    plan: Option<Plan>,
    approval: Option<Approval>,
    pull_request: Option<PullRequest>,
    source: Option<Source>,
    requester: Requester,
    release: Option<i64>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Plan {
    digest: String,
    #[serde(default)]
    time: Option<Timestamp>,
    #[serde(default)]
    summary: PlanSummary,
}

#[derive(Deserialize)]
struct Approval {
    decision: Decision,
    #[serde(default)]
    time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct PullRequest {
    number: i64,
    #[serde(default)]
    url: String,
    #[serde(default)]
    time: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    commit: String,
    #[serde(default)]
    spec_digest: Option<String>,
    #[serde(default, rename = "commitURL")]
    commit_url: String,
}

impl ObjectEvents for Run {
    type Kind = stoa_types::Run;

    fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    fn scope(&self) -> Scope {
        Scope::of_stack(&self.0.metadata, &self.0.spec.stack, vec![self.0.spec.workspace.clone()])
    }

    fn marks(&self) -> Vec<Mark> {
        let status = &self.0.status;
        let mut marks = Vec::new();
        if status.start_time.is_some() {
            marks.push(Mark::new(STARTED, status.start_time));
        }
        if let (RunPhase::AwaitingApproval, Some(plan)) = (status.phase, &status.plan) {
            marks.push(Mark::new(AWAITING_APPROVAL, plan.time).which(&plan.digest));
        }
        if let Some(approval) = &status.approval {
            let decided = match approval.decision {
                Decision::Approved => APPROVED,
                Decision::Rejected => REJECTED,
            };
            marks.push(Mark::new(decided, approval.time));
        }
        if let (RunPhase::AwaitingMerge, Some(pull)) = (status.phase, &status.pull_request) {
            marks.push(Mark::new(AWAITING_MERGE, pull.time).which(pull.number.to_string()));
        }
        let ended = status.phase.end().map(|end| match end {
            RunEnd::Succeeded => SUCCEEDED,
            RunEnd::Failed => FAILED,
            RunEnd::Canceled => CANCELED,
        });
        marks.extend(ended.map(|ended| Mark::new(ended, status.completion_time)));
        marks
    }

    fn data(&self) -> Value {
        let status = &self.0.status;
        let ended = [reason::FAILED, reason::COMPLETE].iter().find_map(|type_| condition(&status.conditions, type_));
        let said = ended.or_else(|| condition(&status.conditions, reason::WAITING));
        let (plan, source) = (status.plan.as_ref(), status.source.as_ref());
        let pull_request = status.pull_request.as_ref().map(|pull| &pull.url).filter(|url| !url.is_empty());
        json!({
            "workspace": self.0.spec.workspace,
            "operation": self.0.spec.operation,
            "phase": status.phase,
            "reason": ended.map(|condition| &condition.reason),
            "message": said.map(Condition::message),
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
        match self.0.status.phase {
            RunPhase::AwaitingApproval => get_raw(&format!("{path}/plan?format=table")),
            _ => get_raw(&format!("{path}/log")),
        }
    }
}
