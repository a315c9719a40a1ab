//! Workflow: the permission to start one, the validation of its steps, and the Runs of a step.
//!
//! Elsewhere: `validate` checks a spec by itself, [`approval`] the decisions about steps, [`hook`] the
//! endpoints that steps call. The controller of Workflows executes them.

pub mod approval;
pub mod hook;
pub mod template;
mod validate;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Part, SelectableField},
    object::Object,
    selector::LabelSelector,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    Project, Run, Stack, Workflow, Workspace,
    delivery::{RunSpec, RunStep, Step, WorkflowSpec, WorkflowStatus, WorkflowTemplate},
    labels,
};

use super::{
    lookup::{self, Lookup},
    run::{identity, refusals, target_workspace},
    stack::live_workspaces,
};
use crate::{
    columns, errors, event_types,
    kind::{Kind, Surroundings},
    rights::{APPROVED, DEVELOPED, OWNED, READ, READERS, right},
    validation,
};

/// The subresource through which steps are approved and rejected.
const APPROVAL: &str = "approval";

/// The kind Workflow.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| {
        builder.register(definition, WorkflowStrategy { lookup })
    },
    events: &event_types::workflows::ALL,
    rights: &[right(READERS, &["", "status"], READ), DEVELOPED, OWNED, APPROVED],
    ..Kind::of::<Workflow>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Workflow>()
        .columns(&[
            Column::new("Stack", Cell::Path(&["spec", "stack"]), "The stack of steps that name none."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The phase."),
            Column::new("Progress", Cell::Compute(progress), "The number of completed steps."),
            Column::new("Step", Cell::Compute(current), "The steps in progress."),
            Column::age(),
            Column::new("Version", Cell::Path(&["spec", "version"]), "The version to deploy.").wide(),
            columns::requester("The user who requested the workflow."),
            columns::explanation(),
        ])
        .selectable(&[
            SelectableField { name: "spec.stack", path: &["spec", "stack"] },
            SelectableField { name: "status.phase", path: &["status", "phase"] },
        ])
        .part(Part { name: APPROVAL, path: &["status", "approvals"] })
}

fn progress(object: &Object) -> Value {
    let number = |field| object.get_path(&["status", "progress", field]).and_then(Value::as_i64);
    match (number("done"), number("total")) {
        (Some(done), Some(total)) => format!("{done}/{total}").into(),
        _ => "".into(),
    }
}

fn current(object: &Object) -> Value {
    let steps = object.get_path(&["status", "steps"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_current = |step: &&Value| matches!(step["phase"].as_str(), Some("Running" | "AwaitingApproval"));
    let names: Vec<&str> = steps.iter().filter(is_current).filter_map(|step| step["name"].as_str()).collect();
    names.join(",").into()
}

/// The stack of a step's runs.
pub fn stack_of<'a>(spec: &'a WorkflowSpec, run: &'a RunStep) -> &'a str {
    if run.stack.is_empty() { &spec.stack } else { &run.stack }
}

/// The step whose plans a step carries out, if it names one.
pub fn previewing<'a>(spec: &'a WorkflowSpec, run: &RunStep) -> Option<&'a RunStep> {
    let name = run.plan_of.as_ref()?;
    spec.steps.iter().find(|step| step.name == *name)?.run.as_ref()
}

/// The run of a step in a workspace, without a name: of this commit, or of what was asked for where none was found yet. The
/// Preview that it carries out, if it does, is for the caller to name.
pub fn run_of(workflow: &Workflow, run: &RunStep, workspace: &str, commit: Option<&str>) -> Run {
    let mut made = Run::new("", run_spec(&workflow.spec, run, workspace));
    if let Some(commit) = commit {
        made.spec.version = Some(commit.to_owned());
    }
    made.metadata.name = None;
    made.metadata.namespace = workflow.namespace();
    made.labels_mut().insert(labels::WORKFLOW.to_owned(), workflow.name_any());
    made.metadata.owner_references = workflow.uid().map(|uid| {
        vec![OwnerReference {
            api_version: Workflow::api_version(&()).into_owned(),
            kind: Workflow::kind(&()).into_owned(),
            name: workflow.name_any(),
            uid,
            controller: Some(true),
            block_owner_deletion: None,
        }]
    });
    made
}

fn run_spec(spec: &WorkflowSpec, run: &RunStep, workspace: &str) -> RunSpec {
    let version = run.version.clone().or_else(|| spec.version.clone());
    RunSpec {
        version: version.filter(|_| deploys(run)),
        release: run.release,
        // A workflow from before they were refused may have some where nothing is rendered.
        parameters: if deploys(run) { run.parameters.clone() } else { BTreeMap::new() },
        require_approval: run.require_approval,
        timeout: run.timeout.clone(),
        ..RunSpec::new(stack_of(spec, run), workspace, run.operation)
    }
}

/// Whether the runs of a step render a version of the source.
pub fn deploys(run: &RunStep) -> bool {
    use stoa_types::delivery::Operation::{Apply, Destroy, Import, Preview, Refresh, Rollback};
    match run.operation {
        // The Preview rendered it.
        Apply if run.plan_of.is_some() => false,
        Preview | Apply => true,
        Destroy | Rollback | Import | Refresh => false,
    }
}

/// The workspaces of a step, wave by wave: those that are listed, and those that are selected as things are now.
///
/// # Errors
///
/// When the workspaces cannot be read.
pub async fn waves(lookup: &Lookup, run: &RunStep, stack: &Stack) -> Result<Vec<Vec<String>>, ApiError> {
    if run.waves.is_empty() {
        return Ok(vec![run.workspaces.clone()]);
    }
    let mut taken: HashSet<String> = run.waves.iter().flat_map(|wave| wave.workspaces.iter().cloned()).collect();
    let mut all: Option<Vec<Workspace>> = None;
    let mut waves = Vec::new();
    for wave in &run.waves {
        let Some(selector) = &wave.workspace_selector else {
            waves.push(wave.workspaces.clone());
            continue;
        };
        if all.is_none() {
            all = Some(lookup.api::<Workspace>()?.list(None, "").await?);
        }
        // What does not parse was refused.
        let selector = LabelSelector::structured(selector).map_err(ApiError::bad_request)?;
        let is_for = |name: &String| {
            stack.spec.workspaces.is_empty()
                || stack.spec.workspaces.contains(name)
                || live_workspaces(stack).any(|live| live == name)
        };
        let selected: BTreeSet<String> = all
            .iter()
            .flatten()
            .filter(|workspace| selector.matches(|key| workspace.labels().get(key).map(String::as_str)))
            .map(|workspace| workspace.name_any())
            .filter(|name| is_for(name) && !taken.contains(name))
            .collect();
        taken.extend(selected.iter().cloned());
        waves.push(selected.into_iter().collect());
    }
    Ok(waves)
}

#[derive(Debug)]
pub(crate) struct WorkflowStrategy {
    pub lookup: Lookup,
}

/// What a workflow does: what its spec says, or what its template did when it was read.
pub fn effective(workflow: &Workflow) -> WorkflowSpec {
    let mut spec = workflow.spec.clone();
    if let Some(template) = workflow.status.as_ref().and_then(|status| status.template.as_ref()) {
        spec.stack.clone_from(&template.stack);
        spec.steps.clone_from(&template.steps);
    }
    spec
}

/// Names the workspace of steps that name none, where their stack names one: the stacks may change later, and the workflow
/// stays what it was asked for. A step that carries out the plans of another has the stack and workspaces of that one.
pub fn fill_workspaces(lookup: &Lookup, namespace: &str, spec: &mut WorkflowSpec) {
    fill_from_stacks(lookup, namespace, spec);
    let before = spec.clone();
    for run in spec.steps.iter_mut().filter_map(|step: &mut Step| step.run.as_mut()) {
        let Some(preview) = previewing(&before, run) else { continue };
        if run.stack.is_empty() {
            run.stack.clone_from(&preview.stack);
        }
        if run.workspaces.is_empty() && run.waves.is_empty() {
            run.workspaces.clone_from(&preview.workspaces);
            run.waves.clone_from(&preview.waves);
        }
    }
}

fn fill_from_stacks(lookup: &Lookup, namespace: &str, spec: &mut WorkflowSpec) {
    let before = spec.clone();
    for run in spec.steps.iter_mut().filter_map(|step: &mut Step| step.run.as_mut()) {
        if !run.workspaces.is_empty() || !run.waves.is_empty() || run.plan_of.is_some() {
            continue;
        }
        let stack = lookup.cached::<Stack>(namespace, stack_of(&before, run));
        let target = stack.and_then(|stack| target_workspace(&Run::new("", run_spec(&before, run, "")), &stack).ok());
        run.workspaces.extend(target);
    }
}

/// Requires what it takes to have a file read: whoever may see a project may have its source read.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub async fn require_template(
    context: &RequestContext,
    workflow: &Workflow,
    template: &WorkflowTemplate,
) -> Result<(), ApiError> {
    let namespace = workflow.namespace().unwrap_or_default();
    lookup::require::<Project>(context, "get", "", &namespace, &template.project).await
}

impl WorkflowStrategy {
    /// What creating its runs needs is needed here.
    async fn admit_create(&self, context: &RequestContext, workflow: &Workflow) -> Result<(), ApiError> {
        let mut errors = admissible(&self.lookup, context, workflow).await?;
        if let Some(template) = &workflow.spec.template {
            require_template(context, workflow, template).await?;
            let namespace = workflow.namespace().unwrap_or_default();
            if self.lookup.api::<Project>()?.get_opt(&namespace, &template.project).await?.is_none() {
                errors.push(FieldError::not_found("spec.template.project", &template.project));
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(errors::invalid::<Workflow>(&workflow.name_any(), &errors))
    }
}

/// What of a workflow's steps cannot be as things are, for somebody who may create each of its runs.
///
/// # Errors
///
/// 403 that names what they may not do, and whatever keeps other objects from being read.
pub async fn admissible(
    lookup: &Lookup,
    context: &RequestContext,
    workflow: &Workflow,
) -> Result<Vec<FieldError>, ApiError> {
    let namespace = workflow.namespace().unwrap_or_default();
    lookup::require::<Run>(context, "create", "", &namespace, "").await?;
    let mut errors = Vec::new();
    for (i, step) in workflow.spec.steps.iter().enumerate() {
        if let Some(run) = &step.run {
            admit_step(lookup, context, workflow, run, &format!("spec.steps[{i}].run"), &mut errors).await?;
        }
    }
    hook::require_all(context, &namespace, &workflow.spec).await?;
    Ok(errors)
}

async fn admit_step(
    lookup: &Lookup,
    context: &RequestContext,
    workflow: &Workflow,
    run: &RunStep,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Result<(), ApiError> {
    let mut targets: Vec<(String, String)> = Vec::new();
    let listed = |at: String, names: &[String]| -> Vec<(String, String)> {
        names.iter().enumerate().map(|(i, name)| (format!("{at}.workspaces[{i}]"), name.clone())).collect()
    };
    targets.extend(listed(path.to_owned(), &run.workspaces));
    for (i, wave) in run.waves.iter().enumerate() {
        targets.extend(listed(format!("{path}.waves[{i}]"), &wave.workspaces));
    }
    if run.waves.iter().any(|wave| wave.workspace_selector.is_some()) {
        // Before anything is told of the stack, its first run is asked for.
        let namespace = workflow.namespace().unwrap_or_default();
        let (stack, operation) = (stack_of(&workflow.spec, run), run.operation.permission());
        lookup::require::<Stack>(context, "create", operation, &namespace, stack).await?;
        let stack = lookup.api::<Stack>()?.get_opt(&namespace, stack).await?;
        if stack.is_none() {
            // Which is what any run of it is refused for.
            targets.push((path.to_owned(), String::new()));
        }
        if let Some(stack) = stack {
            for (i, names) in waves(lookup, run, &stack).await?.into_iter().enumerate() {
                if run.waves[i].workspace_selector.is_some() {
                    let at = format!("{path}.waves[{i}].workspaceSelector");
                    targets.extend(names.into_iter().map(|name| (at.clone(), name)));
                }
            }
        }
    }
    if targets.is_empty() && run.waves.is_empty() {
        targets.push((format!("{path}.workspaces"), String::new()));
    }
    for (at, workspace) in targets {
        for mut error in refusals(lookup, context, &run_of(workflow, run, &workspace, None)).await? {
            let is_of_step = !run.stack.is_empty();
            error.field = match error.field.as_str() {
                "spec.stack" if !is_of_step => error.field,
                "spec.workspace" => at.clone(),
                field => field.replacen("spec", path, 1),
            };
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
    }
    Ok(())
}

#[async_trait]
impl Strategy for WorkflowStrategy {
    type Object = Workflow;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Workflow) {
        object.status = Some(WorkflowStatus { requester: identity(&context.user), ..WorkflowStatus::default() });
        let namespace = object.namespace().unwrap_or_default();
        fill_workspaces(&self.lookup, &namespace, &mut object.spec);
        if !object.spec.stack.is_empty() {
            let stack = object.spec.stack.clone();
            object.labels_mut().insert(labels::STACK.to_owned(), stack);
        }
        validation::keep_finalizer(object, labels::WORKFLOW_FINALIZER);
    }

    fn prepare_for_update(&self, _: &RequestContext, new: &mut Workflow, _: &Workflow) {
        validation::keep_finalizer(new, labels::WORKFLOW_FINALIZER);
    }

    fn prepare_for_part(&self, context: &RequestContext, part: &str, new: &mut Workflow, old: &Workflow) {
        if part == APPROVAL {
            approval::prepare(context, new, old);
        }
    }

    fn validate(&self, object: &Workflow) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        validation::subjects("spec.owners", &object.spec.owners, &mut errors);
        validate::spec(&object.spec, &mut errors);
        errors
    }

    fn validate_create(&self, _: &RequestContext, object: &Workflow) -> Vec<FieldError> {
        validate::new(&object.spec)
    }

    fn validate_update(&self, new: &Workflow, old: &Workflow) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let comparable = WorkflowSpec { paused: old.spec.paused, cancel: old.spec.cancel, ..new.spec.clone() };
        if comparable != old.spec {
            let detail = "a workflow is immutable, except that paused may change and cancel may become true";
            errors.push(FieldError::forbidden("spec", detail));
        }
        validation::cancel_is_final(new.spec.cancel, old.spec.cancel, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Workflow>) -> Result<(), ApiError> {
        match change {
            Admission::Create(workflow) => self.admit_create(context, workflow).await,
            Admission::Update { subresource: "status", new, .. } => {
                validation::written_by_server::<Workflow>(context, &new.name_any())
            }
            Admission::Update { subresource: APPROVAL, new, old } => approval::admit(context, new, old).await,
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}
