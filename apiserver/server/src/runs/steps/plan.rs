//! The plan of a run: made once, kept, and the only one that is carried out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_engine::{
    Action, Plan, PlannedAction, ResourceId,
    document::{self, DocumentError},
};
use stoa_failpoint::reached;
use stoa_types::{
    Run,
    delivery::{Operation, PlanStatus, PlanSummary, RunPhase, RunResource, RunSource},
    reason,
};

use crate::runs::{Halt, documents, execution::Execution, runner, state::State, status, target::Target};

/// The plan, which is made once and then kept.
pub(super) async fn plan(
    execution: &mut Execution,
    target: &Target,
    spec: &Bytes,
    state: &State,
) -> Result<Bytes, Halt> {
    if let Some(plan) = status(&execution.run).plan.filter(|p| !p.document.is_empty()) {
        let bytes = documents::get(&*target.documents, &target.scope(), &plan.document).await?;
        // The runner carries out what is understood here, too.
        document::decode::<Plan>(&bytes).map_err(|e| unreadable(&execution.run.name_any(), &e))?;
        return Ok(bytes);
    }
    execution.enter(RunPhase::Planning).await?;
    let request = stoa_proto::PlanRequest {
        target: Some(target.proto(&execution.services, &execution.run).await?),
        spec: spec.clone(),
        state: state.for_runner(),
        destroy: execution.run.spec.operation == Operation::Destroy,
    };
    let mut runner = execution.services.runner.client();
    let response = execution.unless_canceled(runner.plan(request)).await?;
    let response = response.map_err(|e| runner::halt(&e, reason::PLAN_FAILED))?.into_inner();
    let plan: Plan = document::decode(&response.plan).map_err(|e| unreadable(&execution.run.name_any(), &e))?;
    for warning in &response.warnings {
        execution.journal.note("Planning", format!("warning: {warning}"));
    }
    execution.journal.note("Planning", response.table.clone());
    if let Some(name) = execution.run.spec.plan.clone() {
        require_same_plan(execution, target, &name, &plan, &response.digest).await?;
    }
    let document = documents::put(&*target.documents, &target.scope(), response.plan.clone()).await?;
    reached("plan-kept");
    let planned = PlanStatus { digest: response.digest, document, summary: summary(plan.summary()) };
    let resources = changing(&plan, execution.run.spec.operation);
    execution
        .update(|status| {
            status.plan = Some(planned.clone());
            status.resources.clone_from(&resources);
        })
        .await?;
    execution.journal.flush().await;
    Ok(response.plan)
}

/// The source and plan of the Preview whose plan is to be applied.
pub(super) async fn previewed(
    execution: &Execution,
    target: &Target,
    name: &str,
) -> Result<(RunSource, PlanStatus), Halt> {
    let stale = |what: &str| Err(Halt::failed(reason::PLAN_STALE, format!("run {name:?} {what}")));
    let runs = execution.services.lookup.api::<Run>()?;
    let Some(preview) = runs.get_opt(&target.namespace(), name).await? else {
        return stale("does not exist");
    };
    let is_same =
        preview.spec.stack == execution.run.spec.stack && preview.spec.workspace == execution.run.spec.workspace;
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
async fn require_same_plan(
    execution: &mut Execution,
    target: &Target,
    name: &str,
    now: &Plan,
    digest: &str,
) -> Result<(), Halt> {
    let (_, previewed) = previewed(execution, target, name).await?;
    if previewed.digest == digest {
        return Ok(());
    }
    let then = documents::get(&*target.documents, &target.scope(), &previewed.document).await?;
    let then: Plan = document::decode(&then).map_err(|e| unreadable(name, &e))?;
    let changed = differences(&then, now);
    let list = changed.iter().take(10).cloned().collect::<Vec<_>>().join("; ");
    let message = format!("the plan of {name} no longer holds, preview again: {list}");
    Err(Halt::failed(reason::PLAN_STALE, message))
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
pub(super) fn unreadable(run: &str, error: &DocumentError) -> Halt {
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
