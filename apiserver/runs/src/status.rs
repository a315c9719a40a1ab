//! The changes of a Run's status while it is under way.
//!
//! A [`StatusUpdate`] is the only way to change the status, and `Execution::write` the only writer. Most steps return one, which
//! the driver writes before the next step begins (`steps::take`). A step that must be durable in its middle, such as the phase
//! before a call, asks for the write itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_controller::conditions::set_condition;
use stoa_engine::ResourceId;
use stoa_kinds::text::cut;
use stoa_types::{
    Condition, Run,
    delivery::{
        PlanStatus, Progress, PullRequestStatus, RunPhase, RunResource, RunSource, RunStatus, RunValues, UsedGenerator,
    },
    reason,
};

use crate::steps::Verdict;

/// The longest message about a resource in the status, in characters.
pub(crate) const MESSAGE: usize = 512;

/// A change of the status.
#[derive(Clone, Debug)]
pub(crate) enum StatusUpdate {
    /// The Run begins, unless somebody has canceled it: then it never does.
    Begun { time: Time, stack_uid: String },
    /// The Run enters a phase.
    Entered(RunPhase),
    /// The commit is known.
    Resolved { source: RunSource, preview_uid: Option<String> },
    /// The Spec is stored under this digest, and was rendered by this generator with these values.
    Rendered { digest: String, generator: Option<UsedGenerator>, values: Option<RunValues> },
    /// The plan is stored.
    Planned(Box<Planned>),
    /// The plan waits for approval, as this sentence says.
    AwaitingApproval(String),
    /// Changes are proposed in a pull request, which waits as this sentence says.
    Proposed { pull: PullRequestStatus, message: String },
    /// The pull request still waits, as this sentence says; the commit of its target branch, if it cannot be merged into that.
    AwaitingMerge { message: String, unmergeable_into: Option<String> },
    /// The pull request is merged or closed.
    ProposalEnded(Time),
    /// Resources changed: their ids, phases and messages.
    Progressed(Progress, Vec<(ResourceId, String, String)>),
    /// The Run waits, with a reason and a sentence.
    Waiting(&'static str, String),
    /// Nothing is out of reach, and no resource is waited for to become healthy.
    Continues,
    /// The Run waits for nothing.
    WaitsNoMore,
    /// The changes are this commit of the GitOps repository.
    Committed(String),
    /// The Release has this number.
    Released(i64),
    /// The Run has ended.
    Ended(End),
}

/// A plan and all that the status says about it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: PlanStatus,
    pub(crate) changes: Vec<String>,
    pub(crate) resources: Vec<RunResource>,
    /// The comparison with the plans that merged pull requests were shown, if there are any.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) warnings: Option<String>,
}

/// The end of a Run.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) phase: RunPhase,
    pub(crate) time: Time,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The digest of the run log, if that is a document.
    pub(crate) log: Option<String>,
    /// The resources whose last call has no known result.
    pub(crate) unheard_of: Vec<ResourceId>,
}

impl StatusUpdate {
    pub(crate) fn apply(&self, run: &mut Run) {
        let generation = run.metadata.generation;
        if matches!(self, Self::Begun { .. }) && run.spec.cancel {
            return;
        }
        let status = run.status.get_or_insert_default();
        // The Run continues. While it applies, a change may be recorded and another waited for.
        if status.phase < RunPhase::Applying && !matches!(self, Self::Waiting(..)) {
            status.conditions.retain(|condition| !is_trouble(condition));
        }
        let wait = |status: &mut RunStatus, why: &str, message: &str| {
            set_condition(&mut status.conditions, reason::WAITING, true, why, message, generation);
        };
        match self.clone() {
            Self::Begun { time, stack_uid } => {
                status.phase = RunPhase::Generating;
                waits_no_more(status);
                (status.start_time, status.stack_uid) = (Some(time), Some(stack_uid));
            }
            Self::Entered(phase) => {
                status.phase = phase;
                waits_no_more(status);
            }
            Self::Resolved { source, preview_uid } => {
                status.source = Some(source);
                // Named when the Run was created, unless that server did not know of the Preview yet.
                status.preview_uid = status.preview_uid.take().or(preview_uid);
            }
            Self::Rendered { digest, generator, values } => {
                let source = status.source.get_or_insert_default();
                (source.spec_digest, source.generator) = (Some(digest), generator);
                status.values = values;
            }
            Self::Planned(planned) => {
                let Planned { plan, changes, resources, verdict, warnings } = *planned;
                (status.plan, status.changes, status.resources) = (Some(plan), changes, resources);
                if let Some(verdict) = verdict {
                    let (holds, why) = (verdict.holds(), verdict.reason);
                    status.merged_plans = verdict.plans;
                    let of = reason::MERGED_PLAN_HOLDS;
                    set_condition(&mut status.conditions, of, holds, why, verdict.message, generation);
                }
                set_warnings(&mut status.conditions, warnings.as_deref(), generation);
            }
            Self::AwaitingApproval(message) => {
                status.phase = status.phase.max(RunPhase::AwaitingApproval);
                wait(status, reason::AWAITING_APPROVAL, &message);
            }
            Self::Proposed { pull, message } => {
                status.phase = status.phase.max(RunPhase::AwaitingMerge);
                status.pull_request = Some(pull);
                for resource in
                    status.resources.iter_mut().filter(|of| of.phase == "Skipped" || of.phase == "InProgress")
                {
                    resource.phase = "Pending".to_owned();
                }
                wait(status, reason::AWAITING_MERGE, &message);
            }
            Self::AwaitingMerge { message, unmergeable_into } => {
                if let Some(pull) = &mut status.pull_request {
                    pull.unmergeable_into = unmergeable_into;
                }
                wait(status, reason::AWAITING_MERGE, &message);
            }
            Self::ProposalEnded(time) => {
                if let Some(pull) = &mut status.pull_request {
                    pull.end_time.get_or_insert(time);
                }
            }
            Self::Progressed(progress, resources) => {
                status.progress = Some(progress);
                for (id, phase, message) in resources {
                    if let Some(resource) = status.resources.iter_mut().find(|resource| resource.id == id.0) {
                        (resource.phase, resource.message) = (phase, cut(&message, MESSAGE));
                    }
                }
            }
            Self::Waiting(why, message) => wait(status, why, &message),
            Self::Continues => status.conditions.retain(|condition| !is_passing(condition)),
            Self::WaitsNoMore => waits_no_more(status),
            Self::Committed(commit) => status.gitops_commit = Some(commit),
            Self::Released(number) => status.release = Some(number),
            Self::Ended(End { phase, time, reason, message, log, unheard_of }) => {
                status.phase = phase;
                status.start_time.get_or_insert_with(|| time.clone());
                (status.completion_time, status.log) = (Some(time), log);
                for resource in status.resources.iter_mut().filter(|of| unheard_of.iter().any(|id| id.0 == of.id)) {
                    resource.phase = "Unknown".to_owned();
                }
                waits_no_more(status);
                let is_success = phase == RunPhase::Succeeded;
                let of = if is_success { stoa_types::reason::COMPLETE } else { stoa_types::reason::FAILED };
                set_condition(&mut status.conditions, of, true, &reason, message, generation);
            }
        }
    }
}

/// Whether a condition says that something is out of reach, rather than whose turn it is or who decides.
pub(crate) fn is_trouble(condition: &Condition) -> bool {
    condition.type_ == reason::WAITING && condition.reason == reason::WAITING
}

/// Whether a condition names something out of reach, or a resource that is not healthy yet.
pub(crate) fn is_passing(condition: &Condition) -> bool {
    is_trouble(condition) || (condition.type_ == reason::WAITING && condition.reason == reason::VERIFYING)
}

fn waits_no_more(status: &mut RunStatus) {
    status.conditions.retain(|condition| condition.type_ != reason::WAITING);
}

/// Sets the condition `PlannedWithWarnings`, or removes that of an earlier plan where this one has no warnings.
fn set_warnings(conditions: &mut Vec<Condition>, warnings: Option<&str>, generation: Option<i64>) {
    let of = reason::PLANNED_WITH_WARNINGS;
    match warnings {
        Some(message) => {
            set_condition(conditions, of, true, of, message, generation);
        }
        None => conditions.retain(|condition| condition.type_ != of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_without_warnings_removes_earlier_ones() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, reason::WAITING, true, reason::WAITING, "", None);
        set_warnings(&mut conditions, Some("a has no schema"), Some(1));
        let messages = |conditions: &[Condition]| -> Vec<String> {
            conditions.iter().map(|condition| condition.message.clone()).collect()
        };
        assert_eq!(messages(&conditions), ["", "a has no schema"]);
        set_warnings(&mut conditions, None, Some(1));
        assert_eq!(messages(&conditions), [""], "other conditions stay");
    }
}
