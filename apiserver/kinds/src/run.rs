//! Run: the permission to start one, and the immutability of its spec.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Part, SelectableField},
    object::Object,
    request::UserInfo,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    Release, Run, Stack, Workspace,
    delivery::{Operation, PlanSummary, Requester, RunSpec, RunStatus},
    labels,
};

use super::{
    approval, import,
    lookup::{self, Lookup},
    release,
    stack::live_workspaces,
    values::{self, Conflict, Origin},
    variable_set, workspace,
};
use crate::{
    columns, errors, event_types,
    kind::{Kind, Surroundings},
    plan_summary, preview_plan,
    rights::{APPROVED, DEVELOPED, OBJECTS, OWNED, READ, READERS, Role, right},
    state_records, validation,
};

/// The subresource through which plans are approved and rejected.
const APPROVAL: &str = "approval";

/// So many resources may be retried by one run, and so many clusters forgotten.
const MOST_NAMED: usize = 100;
/// Why a run has no parameters.
pub(super) const RENDERS_NOTHING: &str = "this operation renders nothing";

/// The kind Run.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| builder.register(definition, RunStrategy { lookup }),
    events: &event_types::runs::ALL,
    rights: &[
        right(READERS, OBJECTS, READ),
        right(&[Role::Viewer, Role::Developer, Role::Approver, Role::Owner], &["status"], READ),
        right(READERS, &["log", "plan"], READ),
        DEVELOPED,
        OWNED,
        APPROVED,
    ],
    ..Kind::of::<Run>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Run>()
        .columns(&[
            Column::new("Stack", Cell::Path(&["spec", "stack"]), "The stack."),
            Column::new("Workspace", Cell::Path(&["spec", "workspace"]), "The workspace."),
            Column::new("Operation", Cell::Path(&["spec", "operation"]), "The operation."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The phase."),
            Column::new(
                "Plan",
                Cell::Compute(plan),
                "The number of resources that the plan creates (+), updates (~) and deletes (-); also replaces (±), \
                 adopts (>), imports (=) and forgets (.).",
            ),
            Column::new(
                "Progress",
                Cell::Compute(progress),
                "The number of changed resources, and whether the run waits for something out of reach.",
            ),
            Column::new("Release", Cell::Path(&["status", "release"]), "The release that the run created.")
                .kind("integer"),
            Column::age(),
            columns::requester("The user who requested the run."),
            Column::new(
                "Approver",
                Cell::Path(&["status", "approval", "approver", "username"]),
                "The user who approved or rejected the plan.",
            )
            .wide(),
            Column::new(
                "Commit",
                Cell::Compute(|o| super::source::short(o.get_path(&["status", "source", "commit"]))),
                "The commit of the source.",
            )
            .wide(),
            Column::new(
                "Generator",
                Cell::Path(&["status", "source", "generator", "name"]),
                "The generator that rendered the Spec.",
            )
            .wide(),
            Column::new("Message", Cell::Compute(message), "The cause of a failure or a wait.").wide(),
        ])
        .selectable(&[
            SelectableField { name: "spec.stack", path: &["spec", "stack"] },
            SelectableField { name: "spec.workspace", path: &["spec", "workspace"] },
            SelectableField { name: "spec.operation", path: &["spec", "operation"] },
            SelectableField { name: "status.phase", path: &["status", "phase"] },
        ])
        .part(Part { name: APPROVAL, path: &["status", "approval"] })
}

fn plan(object: &Object) -> Value {
    let summary = object.get_path(&["status", "plan", "summary"]).cloned();
    let summary: Option<PlanSummary> = summary.and_then(|summary| serde_json::from_value(summary).ok());
    summary.map_or(Value::Null, |summary| plan_summary::short(&summary).into())
}

fn progress(object: &Object) -> Value {
    let number = |field| object.get_path(&["status", "progress", field]).and_then(Value::as_i64);
    let done = number("done").zip(number("total")).map(|(done, total)| format!("{done}/{total}"));
    // Nothing moves as long as something is out of reach.
    let waiting = conditions(object).iter().any(|c| c["type"] == "Waiting" && c["reason"] == "Waiting");
    let parts: Vec<String> = done.into_iter().chain(waiting.then(|| "waiting".to_owned())).collect();
    parts.join(", ").into()
}

fn conditions(object: &Object) -> &[Value] {
    let conditions = object.get_path(&["status", "conditions"]).and_then(Value::as_array);
    conditions.map(Vec::as_slice).unwrap_or_default()
}

fn message(object: &Object) -> Value {
    let explains = |c: &&Value| matches!(c["type"].as_str(), Some("Failed" | "Waiting")) && c["status"] == "True";
    let explaining = conditions(object).iter().find(explains);
    explaining.and_then(|c| c.get("message").cloned()).unwrap_or(Value::Null)
}

#[derive(Debug)]
pub(crate) struct RunStrategy {
    pub lookup: Lookup,
}

impl RunStrategy {
    async fn admit_create(&self, context: &RequestContext, run: &Run) -> Result<(), ApiError> {
        let errors = refusals(&self.lookup, context, run).await?;
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors::invalid::<Run>(&run.name_any(), &errors)),
        }
    }
}

/// All that cannot be in the spec of a run as things are, for somebody who may start it.
///
/// # Errors
///
/// 403 that names what they may not do, and whatever keeps the other objects from being read.
pub async fn refusals(lookup: &Lookup, context: &RequestContext, run: &Run) -> Result<Vec<FieldError>, ApiError> {
    let namespace = run.namespace().unwrap_or_default();
    let operation = run.spec.operation.permission();
    // Permission is asked for first, so that who may not start runs learns nothing of stacks.
    lookup::require::<Stack>(context, "create", operation, &namespace, &run.spec.stack).await?;
    let mut errors = Vec::new();
    let Some(stack) = lookup.api::<Stack>()?.get_opt(&namespace, &run.spec.stack).await? else {
        errors.push(FieldError::not_found("spec.stack", &run.spec.stack));
        let name = &run.spec.workspace;
        if !name.is_empty() {
            match workspace::require_use(lookup, context, name).await {
                Ok(Some(_)) => {}
                Ok(None) => errors.push(FieldError::not_found("spec.workspace", name)),
                // It would hide that the stack is missing.
                Err(error) if error.code() == 403 => {}
                Err(error) => return Err(error),
            }
        }
        return Ok(errors);
    };
    let is_going = stack.metadata.deletion_timestamp.is_some();
    if is_going && run.spec.planned() != Operation::Destroy {
        return Ok(vec![FieldError::invalid("spec.stack", &run.spec.stack, "the stack is being deleted")]);
    }
    let name = match target_workspace(run, &stack) {
        Ok(name) => name,
        Err(error) => return Ok(vec![error]),
    };
    match workspace::require_use(lookup, context, &name).await? {
        None => errors.push(FieldError::not_found("spec.workspace", &name)),
        Some(workspace) => {
            errors.extend(forgets_present(run, &workspace));
            errors.extend(overrides_final(lookup, context, run, (&stack, &workspace)).await?);
        }
    }
    let is_deployed = live_workspaces(&stack).any(|workspace| workspace == name);
    if errors.is_empty() && !(stack.spec.workspaces.is_empty() || stack.spec.workspaces.contains(&name) || is_deployed)
    {
        let stack_is_for = format!("the stack is for {}", stack.spec.workspaces.join(", "));
        errors.push(FieldError::invalid("spec.workspace", &name, stack_is_for));
    }
    errors.extend(retries_settled(lookup, run, &stack, &name).await?);
    errors.extend(goes_back_to_none(lookup, run, &stack, &name).await?);
    errors.extend(carries_out_none(lookup, run).await?);
    Ok(errors)
}

/// A release that a run is to go back to, and cannot.
async fn goes_back_to_none(
    lookup: &Lookup,
    run: &Run,
    stack: &Stack,
    workspace: &str,
) -> Result<Option<FieldError>, ApiError> {
    let Some(number) = run.spec.release.filter(|_| run.spec.planned() == Operation::Rollback) else { return Ok(None) };
    let release = release::name(&run.spec.stack, workspace, number);
    let found = lookup.api::<Release>()?.get_opt(&run.namespace().unwrap_or_default(), &release).await?;
    let is_going = found.as_ref().is_some_and(|release| release.metadata.deletion_timestamp.is_some());
    let going = || is_going.then(|| format!("release {release} is being deleted"));
    let obstacle = release::obstacle(found.as_ref(), &release, stack).or_else(going);
    Ok(obstacle.map(|obstacle| FieldError::invalid("spec.release", number, obstacle)))
}

/// A Preview whose plan a run is to carry out, and cannot.
async fn carries_out_none(lookup: &Lookup, run: &Run) -> Result<Option<FieldError>, ApiError> {
    let Some(plan) = &run.spec.plan else { return Ok(None) };
    let Some(preview) = lookup.api::<Run>()?.get_opt(&run.namespace().unwrap_or_default(), plan).await? else {
        return Ok(Some(FieldError::not_found("spec.plan", plan)));
    };
    if preview.metadata.deletion_timestamp.is_some() {
        return Ok(Some(FieldError::invalid("spec.plan", plan, "the run is being deleted")));
    }
    // What the run keeps of it was taken from the watch cache.
    let kept = run.status.as_ref().and_then(|status| status.preview_uid.as_ref());
    if kept.is_some() && kept != preview.metadata.uid.as_ref() {
        let message = format!("this server has not read the new run {plan} yet; retry");
        return Err(ApiError::service_unavailable(message).with_retry_after(1));
    }
    if let Some(import) = &run.spec.import
        && preview.spec.planned() == Operation::Import
        && !import::is_same(import, &preview.spec.import.unwrap_or_default())
    {
        let why = format!("differs from the import of {plan}; omit the field to carry out the plan of {plan}");
        return Ok(Some(FieldError::forbidden("spec.import", why)));
    }
    Ok(None)
}

/// A cluster that a run is to forget, and that its workspace has: what is on record there is looked at.
fn forgets_present(run: &Run, workspace: &Workspace) -> Option<FieldError> {
    let clusters = workspace.spec.kubernetes.as_ref().map_or(&[][..], |target| target.clusters.as_slice());
    let has = |name: &String| clusters.iter().any(|cluster| cluster.name == *name);
    let (position, name) = run.spec.forget_clusters.iter().enumerate().find(|(_, name)| has(name))?;
    let why = "the workspace still has this cluster; a Destroy removes the recorded resources there";
    Some(FieldError::invalid(format!("spec.forgetClusters[{position}]"), name, why))
}

/// The parameters of a run that a final value admits not. The run itself fails for conflicts that it is no part of.
///
/// # Errors
///
/// 403 that names a VariableSet that the requester may not use.
async fn overrides_final(
    lookup: &Lookup,
    context: &RequestContext,
    run: &Run,
    (stack, workspace): (&Stack, &Workspace),
) -> Result<Vec<FieldError>, ApiError> {
    if !renders(&run.spec) {
        return Ok(Vec::new());
    }
    let conflicts = match variable_set::values(lookup, (stack, workspace), &run.spec.parameters).await? {
        Ok(chosen) => {
            variable_set::require_use(context, values::variable_sets(&chosen)).await?;
            return Ok(Vec::new());
        }
        Err(conflicts) => conflicts,
    };
    let error = |conflict: Conflict| match conflict {
        Conflict::Final { name, decided, overriding: Origin::Run } => {
            let path = format!("spec.parameters[{name}]");
            Some(FieldError::forbidden(path, format_args!("the value is final in {decided}")))
        }
        Conflict::Final { .. } | Conflict::Tie { .. } => None,
    };
    Ok(conflicts.into_iter().filter_map(error).collect())
}

/// Whether a run renders its source, rather than taking what was rendered before.
fn renders(spec: &RunSpec) -> bool {
    spec.plan.is_none()
        && match spec.planned() {
            Operation::Preview | Operation::Apply | Operation::Import => true,
            Operation::Destroy | Operation::Rollback | Operation::Refresh => false,
        }
}

/// A resource that a run is to call for once more, and of which it is known what became of the last call, or there was none. What
/// cannot be read now the run looks at itself, as it does at what is settled before its turn.
async fn retries_settled(
    lookup: &Lookup,
    run: &Run,
    stack: &Stack,
    workspace: &str,
) -> Result<Option<FieldError>, ApiError> {
    if run.spec.retry.is_empty() {
        return Ok(None);
    }
    let (log, uid) = (lookup.log()?, stack.uid().unwrap_or_default());
    let found = state_records::first_settled(&*log, &uid, workspace, &run.spec.retry).await.ok().flatten();
    let why = format!("no unresolved call for this resource in workspace {workspace}");
    Ok(found.map(|(position, id)| FieldError::invalid(format!("spec.retry[{position}]"), id, why)))
}

/// Somebody, as it is recorded.
pub fn identity(user: &UserInfo) -> Requester {
    Requester {
        username: user.name.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
    }
}

/// The workspace that a run is for: the one it names, or the only one of its stack.
pub fn target_workspace(run: &Run, stack: &Stack) -> Result<String, FieldError> {
    if !run.spec.workspace.is_empty() {
        return Ok(run.spec.workspace.clone());
    }
    match stack.spec.workspaces.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(FieldError::required("spec.workspace", "the stack names no workspace")),
        many => Err(FieldError::required(
            "spec.workspace",
            format_args!("the stack names several workspaces: {}", many.join(", ")),
        )),
    }
}

/// Finds what nothing would come of, in a spec that is new: an earlier version took it.
fn validate_new(spec: &RunSpec) -> Vec<FieldError> {
    let is_made_anew = match spec.planned() {
        Operation::Preview | Operation::Apply | Operation::Import => true,
        Operation::Destroy | Operation::Rollback | Operation::Refresh => false,
    };
    let mut errors = values::parameter_names("spec.parameters", spec.parameters.keys());
    // What else has no version is told by `validate_spec`.
    if spec.version.is_some() && !is_made_anew && spec.plan.is_none() && spec.operation != Operation::Refresh {
        errors.push(FieldError::forbidden("spec.version", "this operation deploys no version"));
    }
    if !spec.parameters.is_empty() && spec.plan.is_some() {
        let message = "may not be set together with plan, whose Spec is rendered already";
        errors.push(FieldError::forbidden("spec.parameters", message));
    } else if !spec.parameters.is_empty() && !is_made_anew {
        errors.push(FieldError::forbidden("spec.parameters", RENDERS_NOTHING));
    }
    errors
}

/// Finds what is wrong with a run's spec by itself, which is at this path of an object.
pub(super) fn validate_spec(spec: &RunSpec, path: &str) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let mut errors = Vec::new();
    validation::subjects(&at("owners"), &spec.owners, &mut errors);
    if spec.stack.is_empty() {
        errors.push(FieldError::required(at("stack"), ""));
    }
    match (spec.of, spec.operation) {
        (None, _) => {}
        (Some(Operation::Apply | Operation::Destroy | Operation::Rollback | Operation::Import), Operation::Preview) => {
        }
        (Some(of), Operation::Preview) => {
            let known = ["Apply", "Destroy", "Rollback", "Import"];
            errors.push(FieldError::not_supported(at("of"), format!("{of:?}"), &known));
        }
        (Some(_), _) => errors.push(FieldError::forbidden(at("of"), "may only be set for a Preview")),
    }
    match &spec.import {
        Some(_) if spec.planned() != Operation::Import => {
            errors.push(FieldError::forbidden(at("import"), "may only be set for an Import"));
        }
        Some(import) => import::validate(import, &mut errors),
        None => {}
    }
    match (spec.planned(), spec.release) {
        (Operation::Rollback, None) => {
            errors.push(FieldError::required(at("release"), "the number of the release to restore"));
        }
        (Operation::Rollback, Some(n)) if n < 1 => {
            errors.push(FieldError::invalid(at("release"), n, "must be at least 1"));
        }
        (Operation::Rollback, Some(_)) | (_, None) => {}
        (_, Some(_)) => errors.push(FieldError::forbidden(at("release"), "may only be set for a Rollback")),
    }
    if spec.plan.is_some() && !spec.operation.is_mutating() {
        errors.push(FieldError::forbidden(at("plan"), "this operation carries out no plan"));
    }
    if spec.version.is_some() && spec.operation == Operation::Refresh {
        errors.push(FieldError::forbidden(at("version"), "a Refresh always compares with the last release"));
    }
    if spec.plan.is_some() && spec.version.is_some() {
        errors.push(FieldError::forbidden(
            at("version"),
            "may not be set together with plan, which was made for a version",
        ));
    }
    if spec.require_approval && !spec.operation.is_mutating() {
        errors.push(FieldError::forbidden(at("requireApproval"), "this operation changes nothing"));
    }
    if spec.allow_mass_deletion && !matches!(spec.operation, Operation::Apply | Operation::Rollback) {
        errors.push(FieldError::forbidden(at("allowMassDeletion"), "may only be set for an Apply or a Rollback"));
    }
    if spec.skip_hooks && matches!(spec.planned(), Operation::Import | Operation::Refresh) {
        errors.push(FieldError::forbidden(at("skipHooks"), "an Import and a Refresh run no hooks"));
    }
    for (field, named) in [("retry", &spec.retry), ("forgetClusters", &spec.forget_clusters)] {
        if !named.is_empty() && matches!(spec.planned(), Operation::Import | Operation::Refresh) {
            errors.push(FieldError::forbidden(at(field), "may not be set for an Import or a Refresh"));
        }
        if named.len() > MOST_NAMED {
            let message = format!("must have at most {MOST_NAMED} items");
            errors.push(FieldError::invalid(at(field), named.len(), message));
        }
        for (position, name) in named.iter().enumerate() {
            let path = format!("{}[{position}]", at(field));
            if name.trim().is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if name.len() > import::LONGEST {
                let message = format!("may not be longer than {} bytes", import::LONGEST);
                errors.push(FieldError::invalid(path, "<value omitted>", message));
            }
        }
    }
    let day = Duration::from_secs(24 * 3600);
    validation::duration(&at("timeout"), &spec.timeout, Duration::from_secs(1)..=day, &mut errors);
    if let Some(seconds) = spec.ttl_seconds_after_finished.filter(|s| *s < 0) {
        errors.push(FieldError::invalid(at("ttlSecondsAfterFinished"), seconds, "must be greater than or equal to 0"));
    }
    errors
}

#[async_trait]
impl Strategy for RunStrategy {
    type Object = Run;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Run) {
        let namespace = object.namespace().unwrap_or_default();
        let preview = object.spec.plan.as_ref().and_then(|name| self.lookup.cached::<Run>(&namespace, name));
        object.status = Some(RunStatus {
            requester: identity(&context.user),
            preview_uid: preview.as_ref().and_then(|preview| preview.metadata.uid.clone()),
            queued_time: Some(MicroTime(Timestamp::now())),
            ..RunStatus::default()
        });
        // The stack may change later; the run stays what it was asked for.
        let stack = self.lookup.cached::<Stack>(&namespace, &object.spec.stack);
        if let Some(name) = stack.as_ref().and_then(|stack| target_workspace(object, stack).ok()) {
            object.spec.workspace = name;
        }
        // Nothing binds two objects in one write: whatever removes the Preview from now on, the run has what it carries out.
        let previewed = preview.and_then(|preview| preview_plan::kept(&preview, &object.spec));
        object.status.get_or_insert_default().previewed = previewed.map(Box::new);
        let (name, workspace) = (object.spec.stack.clone(), object.spec.workspace.clone());
        let labels = object.labels_mut();
        labels.insert(labels::STACK.to_owned(), name);
        if let Some(stack) = stack {
            labels.insert(labels::PROJECT.to_owned(), stack.spec.project);
        }
        if !workspace.is_empty() {
            labels.insert(labels::WORKSPACE.to_owned(), workspace);
        }
        validation::keep_finalizer(object, labels::RUN_FINALIZER);
    }

    fn prepare_for_update(&self, _: &RequestContext, new: &mut Run, old: &Run) {
        validation::keep_finalizer(new, labels::RUN_FINALIZER);
        // Whoever started it finds it by them, and so does the stack.
        let kept =
            [labels::STACK, labels::PROJECT, labels::WORKSPACE, labels::WORKFLOW, labels::SOURCE, labels::PULL_REQUEST];
        for label in kept {
            if let Some(value) = old.labels().get(label) {
                new.labels_mut().insert(label.to_owned(), value.clone());
            }
        }
    }

    fn prepare_for_part(&self, context: &RequestContext, part: &str, new: &mut Run, old: &Run) {
        if part == APPROVAL {
            approval::prepare(context, new, old);
        }
    }

    fn validate(&self, object: &Run) -> Vec<FieldError> {
        validate_spec(&object.spec, "spec")
    }

    fn validate_create(&self, _: &RequestContext, object: &Run) -> Vec<FieldError> {
        validate_new(&object.spec)
    }

    fn validate_update(&self, new: &Run, old: &Run) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut comparable = new.spec.clone();
        comparable.cancel = old.spec.cancel;
        if comparable != old.spec {
            errors.push(FieldError::forbidden("spec", "a run is immutable, except that cancel may become true"));
        }
        validation::cancel_is_final(new.spec.cancel, old.spec.cancel, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Run>) -> Result<(), ApiError> {
        match change {
            Admission::Create(run) => self.admit_create(context, run).await,
            Admission::Update { subresource: "status", new, .. } => {
                validation::written_by_server::<Run>(context, &new.name_any())
            }
            Admission::Update { subresource: APPROVAL, new, old } => approval::admit(context, new, old).await,
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plan_column_shows_the_short_form() {
        let shown = |status: Value| {
            let Value::Object(object) = json!({"status": status}) else { unreachable!("a map") };
            plan(&Object(object))
        };
        assert_eq!(shown(json!({"plan": {"summary": {"create": 12, "update": 3, "replace": 1}}})), "+12 ~3 -0 ±1");
        assert_eq!(shown(json!({"plan": {"summary": {"unchanged": 3}}})), "no changes");
        assert_eq!(shown(json!({"phase": "Planning"})), Value::Null, "no plan is made yet");
    }

    #[test]
    fn progress_column_reports_stalled_run() {
        let shown = |reason: Option<&str>, numbers: Value| {
            let conditions = reason.map(|reason| json!([{"type": "Waiting", "status": "True", "reason": reason}]));
            let status = json!({"conditions": conditions.unwrap_or_default(), "progress": numbers});
            let Value::Object(object) = json!({"status": status}) else { unreachable!("a map") };
            progress(&Object(object))
        };
        let numbers = || json!({"total": 7, "done": 3, "failed": 0});
        assert_eq!(shown(None, numbers()), "3/7");
        assert_eq!(shown(Some("Waiting"), numbers()), "3/7, waiting");
        assert_eq!(shown(Some("Waiting"), Value::Null), "waiting");
        assert_eq!(shown(Some("AwaitingApproval"), Value::Null), "", "its phase says so");
    }
}
