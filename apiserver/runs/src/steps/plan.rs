//! The plan of a run: made once, kept, and the only one that is carried out.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::events::Kind;
use stoa_engine::{FieldChange, HookOperation, Plan, PlannedAction, ResourceId, document::DocumentError};
use stoa_failpoint::reached;
use stoa_kinds::{
    plan_summary, preview_plan,
    run_status::status,
    text::{self, cut},
};
use stoa_proto::{PlanRequest, PlanResponse};
use stoa_types::{
    Run,
    delivery::{Operation, PlanStatus, PreviewedPlan, RunResource},
    reason,
};

use super::{changes, deletion, generator, import, merged, pending_calls, render};
use crate::{
    StepError, documents,
    execution::Execution,
    resources, runner,
    state::State,
    status::{MESSAGE, Planned},
    target::Target,
};

/// The longest table that is in the journal, in bytes: runs/plan has it whole.
const LONGEST: usize = 1 << 20;
/// So many differences, or ids, are in the message that a run ends with.
const NAMED: usize = 10;

/// The plan that the Run has made already.
pub(super) async fn kept(execution: &Execution, target: &Target) -> Result<Option<Bytes>, StepError> {
    let Some(plan) = status(&execution.run).plan.filter(|p| !p.document.is_empty()) else { return Ok(None) };
    let bytes = documents::get(&*target.documents, &target.scope(), &plan.document).await?;
    // The runner carries out what is understood here, too.
    documents::plan(&bytes).await.map_err(|e| unreadable(&execution.run.name_any(), &e))?;
    Ok(Some(bytes))
}

/// Makes the plan and stores it; the status is to name it.
pub(super) async fn make(
    execution: &mut Execution,
    target: &Target,
    spec: &Bytes,
    state: &State,
) -> Result<(Bytes, Planned), StepError> {
    let shown = merged::shown(execution, target).await?;
    let (mut response, plan) = planned(execution, target, spec, state).await?;
    if execution.run.spec.operation == Operation::Refresh {
        resources::tell_found(execution, target, state, std::mem::take(&mut response.found)).await?;
    }
    generator::warn(execution, target, state, &mut response).await?;
    for warning in &response.warnings {
        execution.journal.note("Planning", format!("warning: {warning}"));
    }
    execution.journal.note("Planning", format!("what is to be done\n{}", told(&response.table)));
    if let Some(name) = execution.run.spec.plan.clone() {
        require_same_plan(execution, target, &name, &plan, &response.digest).await?;
    }
    let verdict = merged::verdict(execution, target, shown, (&plan, &response.digest)).await?;
    if let Some(warning) = deletion::told(execution, &plan, state) {
        execution.journal.note("Planning", format!("warning: {warning}"));
        // First, because the condition and the Event have only the first few.
        response.warnings.insert(0, warning);
    }
    let (store, scope, kept) = (&*target.documents, target.scope(), response.plan.clone());
    let document = if execution.run.spec.operation == Operation::Destroy {
        documents::put_owed(store, &scope, kept).await?
    } else {
        documents::put(store, &scope, kept).await?
    };
    reached("plan-kept");
    let time = Some(Time(execution.services.now()));
    let made = PlanStatus { digest: response.digest, document, time, summary: plan_summary::of(plan.summary()) };
    let planned = Planned {
        plan: made,
        changes: changes::lines(&plan, &execution.run),
        resources: changing(&plan, execution.run.spec.operation),
        verdict,
        warnings: render::told(&response.warnings),
    };
    Ok((response.plan, planned))
}

pub(super) async fn announce(execution: &mut Execution, planned: &Planned) {
    if let Some(message) = &planned.warnings {
        execution.services.recorder.record(&execution.run, Kind::Warning, reason::PLANNED_WITH_WARNINGS, message);
    }
    if let Some(verdict) = &planned.verdict {
        merged::tell(execution, verdict);
    }
    execution.journal.flush().await;
}

/// The table of a plan as far as the journal has it, and where the rest is.
fn told(table: &str) -> Cow<'_, str> {
    if table.len() <= LONGEST {
        return table.into();
    }
    let end = table[..table.floor_char_boundary(LONGEST)].rfind('\n').map_or(0, |newline| newline + 1);
    let (shown, rest) = table.split_at(end);
    let summary = table.lines().next_back().unwrap_or_default();
    format!("{shown}… {} lines more, see runs/plan?format=table\n{summary}", rest.lines().count()).into()
}

/// What the function-runner plans as things are now, and that in the types that are known here.
async fn planned(
    execution: &mut Execution,
    target: &Target,
    spec: &Bytes,
    state: &State,
) -> Result<(PlanResponse, Plan), StepError> {
    require_open(&execution.run.spec.retry, state)?;
    let is_import = execution.run.spec.planned() == Operation::Import;
    let import = if is_import { import::selection(execution, target).await? } else { Bytes::new() };
    let request = PlanRequest {
        target: Some(target.proto_with_secrets(&execution.services, &execution.run, spec).await?),
        spec: spec.clone(),
        state: state.for_run(&execution.run.spec.retry, &execution.run.uid().unwrap_or_default()).await?,
        destroy: execution.run.spec.planned() == Operation::Destroy,
        import,
        forget_clusters: execution.run.spec.forget_clusters.clone(),
        refresh: execution.run.spec.operation == Operation::Refresh,
        hooks: hook_operation(&execution.run, state).map(|operation| operation.to_string()).unwrap_or_default(),
    };
    let runner = execution.runners();
    let response = pending_calls::during(execution, runner.plan(request)).await?;
    let response = response.map_err(|e| match execution.refused(&e, reason::PLAN_FAILED) {
        StepError::Failed { reason, message } if runner::is_mistaken(&e) => StepError::refused(reason, message),
        halt => halt,
    })?;
    execution.runner = runner::answerer(&response);
    let response = response.into_inner();
    let plan = documents::plan(&response.plan).await.map_err(|e| unreadable(&execution.run.name_any(), &e))?;
    if is_import {
        import::check(execution, target, &plan).await?;
    }
    Ok((response, plan))
}

/// The operation whose hooks run; none where the Run has none, or skips them. What was never released is installed, and so is
/// what was removed since.
pub(crate) fn hook_operation(run: &Run, state: &State) -> Option<HookOperation> {
    let is_deployed = state.head().last_release > 0 && state.live() > 0;
    match run.spec.planned() {
        _ if run.spec.skip_hooks => None,
        Operation::Apply if is_deployed => Some(HookOperation::Upgrade),
        Operation::Apply => Some(HookOperation::Install),
        Operation::Rollback => Some(HookOperation::Rollback),
        Operation::Destroy => Some(HookOperation::Delete),
        Operation::Preview | Operation::Import | Operation::Refresh => None,
    }
}

/// Refuses to retry what nobody has to decide about.
///
/// # Errors
///
/// Refused with the ids of which no call is open.
pub(super) fn require_open(retry: &[String], state: &State) -> Result<(), StepError> {
    let open: BTreeSet<&str> = state.open().map(|id| id.0.as_str()).collect();
    let settled = retry.iter().filter(|id| !open.contains(id.as_str())).map(|id| format!("{id:?}"));
    let settled: Vec<String> = settled.collect();
    if settled.is_empty() {
        return Ok(());
    }
    let settled = text::first(&settled, NAMED, ", ");
    let message = format!("spec.retry: the result of the last call is known for {settled}");
    Err(StepError::refused(reason::PLAN_FAILED, message))
}

/// Refuses to go on with a plan whose premises changed since it was made and kept: the same Spec has to give the same
/// plan once more.
///
/// # Errors
///
/// Failed with what changed, and whatever keeps the function-runner from planning.
pub(super) async fn require_unchanged(
    execution: &mut Execution,
    target: &Target,
    [spec, kept]: [&Bytes; 2],
    state: &State,
) -> Result<(), StepError> {
    let (response, now) = planned(execution, target, spec, state).await?;
    if status(&execution.run).plan.is_some_and(|plan| plan.digest == response.digest) {
        return Ok(());
    }
    let then = documents::plan(kept).await.map_err(|e| unreadable(&execution.run.name_any(), &e))?;
    let how = if status(&execution.run).approval.is_some() { "approved" } else { "made" };
    Err(stale(execution, &format!("the plan that was {how} no longer holds, start another run"), &then, &now))
}

/// The end of a run whose plan no longer holds: with the first differences, all of which are in the journal.
fn stale(execution: &mut Execution, what: &str, then: &Plan, now: &Plan) -> StepError {
    StepError::failed(reason::PLAN_STALE, format!("{what}: {}", changed(execution, then, now)))
}

/// The first differences of two plans as words; all of them are in the journal then.
pub(super) fn changed(execution: &mut Execution, then: &Plan, now: &Plan) -> String {
    let changed = differences(then, now);
    execution.note(format!("the plan changed:\n{}", changed.join("\n")));
    let see = if changed.len() > NAMED { ", see runs/log" } else { "" };
    text::first(&changed, NAMED, "; ") + see
}

/// A Preview whose plan is to be carried out.
pub(super) struct Previewed {
    pub(super) uid: String,
    pub(super) plan: PreviewedPlan,
}

/// The Preview whose plan is to be carried out: the one that had the name when the run was made, as that has kept it, or else as
/// it is.
///
/// # Errors
///
/// Refused when there is none, or it is of something else.
pub(super) async fn previewed(execution: &Execution, target: &Target, name: &str) -> Result<Previewed, StepError> {
    let now = status(&execution.run);
    if let Some(plan) = now.previewed {
        return Ok(Previewed { uid: now.preview_uid.unwrap_or_default(), plan: *plan });
    }
    let stale = |what: &str| StepError::refused(reason::PLAN_STALE, format!("run {name:?} {what}"));
    let runs = execution.services.lookup.api::<Run>()?;
    let Some(preview) = runs.get_opt(&target.namespace(), name).await? else {
        return Err(stale("does not exist"));
    };
    let uid = preview.uid().unwrap_or_default();
    if now.preview_uid.is_some_and(|named| named != uid) {
        return Err(stale("is no longer the Preview to carry out; that Preview was deleted"));
    }
    let plan = preview_plan::plan_of(&preview, &execution.run.spec).map_err(|why| stale(&why))?;
    Ok(Previewed { uid, plan })
}

/// Refuses to apply anything but the plan that was previewed.
async fn require_same_plan(
    execution: &mut Execution,
    target: &Target,
    name: &str,
    now: &Plan,
    digest: &str,
) -> Result<(), StepError> {
    let previewed = previewed(execution, target, name).await?.plan;
    if previewed.digest == digest {
        return Ok(());
    }
    let then = documents::get(&*target.documents, &target.scope(), &previewed.document).await?;
    let then = documents::plan(&then).await.map_err(|e| unreadable(name, &e))?;
    Err(stale(execution, &format!("the plan of {name} no longer holds, preview again"), &then, now))
}

/// What it means that the plan of a run cannot be understood.
pub(crate) fn unreadable(run: &str, error: &DocumentError) -> StepError {
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = format!("the plan of {run} cannot be read: {error}{cause}; {}, or plan again", error.advice());
    StepError::failed(reason::PLAN_FAILED, message)
}

/// The resources that are to change, as far as the status shows them.
fn changing(plan: &Plan, operation: Operation) -> Vec<RunResource> {
    let phase = if operation.is_mutating() { "Pending" } else { "Planned" };
    let changing = plan.actions.iter().filter(|planned| planned.is_shown()).take(100);
    // Whose it is by now is what moved where nothing is to be changed.
    let owned = |planned: &PlannedAction| {
        let owner = planned.owned_by.as_ref().filter(|_| planned.drift && !operation.is_mutating())?;
        Some(format!("{owner} owns it now"))
    };
    let hooks = plan.hooks.iter().take(100).map(|hook| RunResource {
        id: hook.id().0,
        action: "Hook".to_owned(),
        phase: phase.to_owned(),
        message: String::new(),
    });
    changing
        .map(|planned| RunResource {
            id: planned.id.0.clone(),
            action: planned.action.to_string(),
            phase: phase.to_owned(),
            message: {
                let told = planned.refused.clone().or_else(|| owned(planned)).unwrap_or_default();
                cut(&told, MESSAGE)
            },
        })
        .chain(hooks)
        .collect()
}

/// What two plans differ in, one sentence per resource with the fields that change otherwise.
fn differences(then: &Plan, now: &Plan) -> Vec<String> {
    let leads = |plan: &Plan, name: &str| plan.destinations.get(name).cloned();
    let named: BTreeSet<&String> = then.destinations.keys().chain(now.destinations.keys()).collect();
    let moved =
        named.into_iter().filter(|name| leads(then, name) != leads(now, name)).map(|name| match name.as_str() {
            "" => "the workspace has another target".to_owned(),
            name => format!("cluster {name} has another target"),
        });
    let other_hooks = (then.hooks != now.hooks).then(|| "other hooks run".to_owned());
    let moved: Vec<String> = moved.chain(other_hooks).collect();
    let by_id = |plan: &'_ Plan| -> BTreeMap<ResourceId, PlannedAction> {
        plan.actions.iter().map(|planned| (planned.id.clone(), planned.clone())).collect()
    };
    let (then, now) = (by_id(then), by_id(now));
    let action = |planned: Option<&PlannedAction>| planned.map_or("nothing".to_owned(), |p| p.action.to_string());
    let ids: BTreeSet<&ResourceId> = then.keys().chain(now.keys()).collect();
    let changed = ids.into_iter().filter(|id| then.get(*id) != now.get(*id)).map(|id| {
        match (action(then.get(id)), action(now.get(id))) {
            (a, b) if a == b => format!("{id}: {}", fields(then.get(id), now.get(id))),
            (a, b) => match fields(then.get(id), now.get(id)) {
                fields if fields == OTHERWISE => format!("{id}: {a} was planned, now {b}"),
                fields => format!("{id}: {a} was planned, now {b} ({fields})"),
            },
        }
    });
    moved.into_iter().chain(changed).collect()
}

/// What is said where no field says it.
const OTHERWISE: &str = "its plan differs";

/// The fields that a resource was planned to change otherwise than now.
fn fields(then: Option<&PlannedAction>, now: Option<&PlannedAction>) -> String {
    let by_path = |planned: Option<&PlannedAction>| -> BTreeMap<String, FieldChange> {
        let changes = planned.into_iter().flat_map(|planned| planned.changes.clone());
        changes.map(|change| (change.path.clone(), change)).collect()
    };
    let (then, now) = (by_path(then), by_path(now));
    let paths: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let told: Vec<String> = paths
        .into_iter()
        .filter_map(|path| match (then.get(path), now.get(path)) {
            (Some(before), Some(after)) if before == after => None,
            (Some(_), Some(_)) => Some(format!("{path} changes differently")),
            (Some(_), None) => Some(format!("{path} no longer changes")),
            (None, _) => Some(format!("{path} changes too")),
        })
        .collect();
    if told.is_empty() { OTHERWISE.to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_engine::document;

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
    fn unexecuted_actions_are_planned_not_pending() {
        let plan = plan(&[("a", "Create", json!([])), ("b", "Unchanged", json!([])), ("c", "Delete", json!([]))]);
        let phases = |operation| -> Vec<(String, String)> {
            changing(&plan, operation).into_iter().map(|resource| (resource.id, resource.phase)).collect()
        };
        let all = |phase: &str| ["a", "c"].map(|id| (id.to_owned(), phase.to_owned()));
        for operation in [Operation::Preview, Operation::Refresh] {
            assert_eq!(phases(operation), all("Planned"), "{operation:?}");
        }
        for operation in [Operation::Apply, Operation::Destroy, Operation::Rollback, Operation::Import] {
            assert_eq!(phases(operation), all("Pending"), "{operation:?}");
        }
    }

    #[test]
    fn what_made_a_plan_stale_is_named() {
        let none = json!([]);
        let change = |path: &str, after: i64| json!({"path": path, "after": after});
        let (one, two) = (change("a", 1), change("a", 2));
        let then = plan(&[
            ("a", "Create", none.clone()),
            ("b", "Update", json!([one, change("same", 1), change("gone", 1)])),
            ("c", "Unchanged", none.clone()),
            ("d", "Update", json!([one])),
        ]);
        let now = plan(&[
            ("a", "Adopt", none.clone()),
            ("b", "Update", json!([two, change("same", 1), change("new", 1)])),
            ("c", "Unchanged", none.clone()),
            ("d", "Unchanged", none),
        ]);
        let expected = [
            "a: Create was planned, now Adopt",
            "b: a changes differently, gone no longer changes, new changes too",
            "d: Update was planned, now Unchanged (a no longer changes)",
        ];
        assert_eq!(differences(&then, &now), expected);
        let at = |place: &str| Plan { destinations: [("main".to_owned(), place.to_owned())].into(), ..then.clone() };
        assert_eq!(differences(&at("a"), &at("b")), ["cluster main has another target"]);
        assert!(differences(&then, &then).is_empty());
    }
}
