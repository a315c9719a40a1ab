//! The guard against mass deletion: a push that empties a folder does not empty a cluster.
//!
//! [`stoa_engine::deletion`] says what is much. Looked at before anything of a plan is carried out, and never after that:
//! what is recorded gets less while the plan is.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_engine::{MassDeletion, Plan};
use stoa_kinds::run_status::status;
use stoa_types::{
    delivery::{Operation, RunPhase},
    reason,
};

use super::plan::unreadable;
use crate::{StepError, documents, execution::Execution, state::State};

/// What to write where that is meant.
const ADVICE: &str = "to delete them, start a run with spec.allowMassDeletion: true, or a Destroy";

/// Fails a run before its plan is carried out that would remove most of what is deployed and does not say that it may.
pub(super) async fn require_allowed(execution: &Execution, plan: &Bytes, state: &State) -> Result<(), StepError> {
    let run = &execution.run;
    let is_asked = matches!(run.spec.operation, Operation::Apply | Operation::Rollback);
    if !is_asked || run.spec.allow_mass_deletion || status(run).phase >= RunPhase::Applying {
        return Ok(());
    }
    match decoded(execution, plan).await?.mass_deletion(owned(state)) {
        Some(found) => Err(StepError::failed(reason::MASS_DELETION, sentence(found))),
        None => Ok(()),
    }
}

/// What a run says of a plan that is hardly what anybody wants, and is carried out all the same, if it is to be.
pub(super) async fn warning(execution: &Execution, plan: &Bytes, state: &State) -> Result<String, StepError> {
    let told = told(execution, &decoded(execution, plan).await?, state);
    Ok(told.map(|told| format!("; {told}")).unwrap_or_default())
}

/// The same of a plan that is decoded.
pub(super) fn told(execution: &Execution, plan: &Plan, state: &State) -> Option<String> {
    let spec = &execution.run.spec;
    remark(spec.planned(), spec.operation == Operation::Preview, plan, owned(state))
}

fn remark(operation: Operation, is_preview: bool, plan: &Plan, owned: usize) -> Option<String> {
    let much =
        || plan.mass_deletion(owned).map(|found| format!("{} would fail: {}", operation.named(), sentence(found)));
    match operation {
        Operation::Apply | Operation::Rollback if plan.actions.is_empty() && plan.hooks.is_empty() => {
            Some("the Spec has no resources, and nothing is on record".to_owned())
        }
        Operation::Apply | Operation::Rollback if is_preview => much(),
        Operation::Preview
        | Operation::Apply
        | Operation::Rollback
        | Operation::Destroy
        | Operation::Import
        | Operation::Refresh => None,
    }
}

async fn decoded(execution: &Execution, plan: &Bytes) -> Result<Plan, StepError> {
    documents::plan(plan).await.map_err(|error| unreadable(&execution.run.name_any(), &error))
}

fn owned(state: &State) -> usize {
    state.entries().filter(|entry| entry.is_there()).count()
}

fn sentence(found: MassDeletion) -> String {
    format!("the plan {found}; {ADVICE}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_plan_of_a_deployment_has_a_remark() {
        let plan = |actions: serde_json::Value| -> Plan {
            serde_json::from_value(json!({"schemaVersion": 1, "specDigest": "", "actions": actions})).unwrap()
        };
        let nothing = "the Spec has no resources, and nothing is on record";
        for is_preview in [false, true] {
            for operation in [Operation::Apply, Operation::Rollback] {
                assert_eq!(remark(operation, is_preview, &plan(json!([])), 0).as_deref(), Some(nothing));
            }
            for operation in [Operation::Destroy, Operation::Import, Operation::Refresh] {
                assert_eq!(remark(operation, is_preview, &plan(json!([])), 0), None);
            }
        }
        let action = |action| plan(json!([{"id": "v1:Namespace:a", "type": "Kubernetes", "action": action}]));
        for (operation, what) in [(Operation::Apply, "an Apply"), (Operation::Rollback, "a Rollback")] {
            let told = remark(operation, true, &action("Delete"), 1).unwrap();
            let expected = format!("{what} would fail: the plan deletes 1 of 1 resources and keeps none");
            assert!(told.starts_with(&expected), "{told}");
            assert_eq!(remark(operation, false, &action("Delete"), 1), None, "that fails in other words");
        }
        assert_eq!(remark(Operation::Destroy, true, &action("Delete"), 1), None, "that is what it is for");
        assert_eq!(remark(Operation::Apply, true, &action("Unchanged"), 1), None);
    }
}
