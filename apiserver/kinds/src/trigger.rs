//! The permission to have Stoa start Runs by itself.
//!
//! A trigger starts Runs later, for whatever the Source contains then. Three changes therefore take the
//! permission to start the Run: setting the trigger, changing what such a Stack deploys or where to, or its labels
//! or those of its Project, and changing where its Project or Source points. The Git server decides who may push.

use std::collections::HashSet;

use kube::ResourceExt;
use stoa_machinery::{ApiError, RequestContext, registry::ListOptions};
use stoa_types::{
    Project, Run, Source, Stack, Workflow,
    common::ChangedBy,
    config::{SeenChanges, StackSpec, Trigger},
    delivery::Operation,
};

use super::{
    changes,
    lookup::{self, Lookup},
    run_status::status,
    stack, variable_set, workspace,
};

/// What the requester of a run says besides that Stoa started by itself: who had it do so, and so may not approve it alone.
pub const CAUSED_BY: &str = "stoa.dev/caused-by";

/// The user as whom the trigger controller starts Runs.
pub const USER: &str = "system:stoa:trigger";

/// Whether a trigger started a run.
pub fn is_triggered(run: &Run) -> bool {
    status(run).requester.username == USER
}

/// What a trigger starts; nothing when people start runs.
pub fn operation(trigger: Trigger) -> Option<Operation> {
    match trigger {
        Trigger::Manual => None,
        Trigger::Preview => Some(Operation::Preview),
        Trigger::Apply | Trigger::Workflow => Some(Operation::Apply),
    }
}

/// Whether a change of a stack decides about what its trigger starts. VariableSets select by labels.
pub(crate) fn is_decided(new: &Stack, old: Option<&Stack>) -> bool {
    let deploys = |stack: &Stack| StackSpec {
        description: None,
        owners: Vec::new(),
        drift_interval: "0s".into(),
        deletion_policy: Default::default(),
        ..stack.spec.clone()
    };
    operation(new.spec.trigger).is_some()
        && old.is_none_or(|old| deploys(new) != deploys(old) || new.labels() != old.labels())
}

/// Keeps who decided about what is started by itself, with the write that did.
pub fn note(context: &RequestContext, new: &mut Stack, old: Option<&Stack>) {
    if is_decided(new, old) && !context.is_internal() {
        let trigger = new.status.get_or_insert_default().trigger.get_or_insert_default();
        changes::note(context, &mut trigger.set_by, &mut trigger.changed_by);
        if old.is_none_or(|old| operation(old.spec.trigger).is_none()) {
            trigger.since = changes::latest(&trigger.changed_by);
        }
    }
}

/// Who decided about what a stack's trigger starts.
#[derive(Debug, Default)]
pub struct Deciders {
    /// Who set it, or last changed what the stack deploys, and who last had its project or source lead elsewhere.
    pub last: Vec<String>,
    of_stack: Vec<ChangedBy>,
    of_project: Vec<ChangedBy>,
    of_source: Vec<ChangedBy>,
}

impl Deciders {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// When those cannot be read.
    pub async fn of(lookup: &Lookup, stack: &Stack) -> Result<Self, ApiError> {
        let mut deciders = Self::default();
        if let Some(trigger) = stack.status.as_ref().and_then(|status| status.trigger.as_ref()) {
            deciders.last.push(trigger.set_by.clone());
            deciders.of_stack.clone_from(&trigger.changed_by);
        }
        let namespace = stack.namespace().unwrap_or_default();
        let Some(project) = lookup.api::<Project>()?.get_opt(&namespace, &stack.spec.project).await? else {
            return Ok(deciders);
        };
        let source = lookup.api::<Source>()?.get_opt(&namespace, &project.spec.source.name).await?;
        if let Some(status) = project.status {
            deciders.last.push(status.set_by);
            deciders.of_project = status.changed_by;
        }
        if let Some(status) = source.and_then(|source| source.status) {
            deciders.last.push(status.set_by);
            deciders.of_source = status.changed_by;
        }
        Ok(deciders)
    }

    /// All who did after what was seen.
    pub fn after(&self, seen: &SeenChanges) -> Vec<String> {
        let SeenChanges { stack, project, source } = seen;
        let of_stack = changes::after(&self.of_stack, stack.as_ref());
        let of_project = changes::after(&self.of_project, project.as_ref());
        let of_source = changes::after(&self.of_source, source.as_ref());
        of_stack.chain(of_project).chain(of_source).collect()
    }

    /// What was seen with them.
    pub fn seen(&self) -> SeenChanges {
        SeenChanges {
            stack: changes::latest(&self.of_stack),
            project: changes::latest(&self.of_project),
            source: changes::latest(&self.of_source),
        }
    }
}

/// The server itself, on behalf of these people, as far as they are known.
pub fn on_behalf_of(component: &str, people: Vec<String>) -> RequestContext {
    let mut context = RequestContext::internal(component);
    let names = changes::kept(people);
    if !names.is_empty() {
        context.user.extra.insert(CAUSED_BY.to_owned(), names);
    }
    context
}

/// Requires what it takes to start what a stack's trigger starts, in every workspace of the stack.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub async fn require(lookup: &Lookup, context: &RequestContext, stack: &Stack) -> Result<(), ApiError> {
    require_in(lookup, context, stack, None).await
}

/// The same in a project as it is to be, if it changes.
async fn require_in(
    lookup: &Lookup,
    context: &RequestContext,
    stack: &Stack,
    project: Option<&Project>,
) -> Result<(), ApiError> {
    let Some(operation) = operation(stack.spec.trigger).filter(|_| !context.is_internal()) else { return Ok(()) };
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    lookup::require::<Run>(context, "create", "", &namespace, "").await?;
    if stack.spec.trigger == Trigger::Workflow {
        lookup::require::<Workflow>(context, "create", "", &namespace, "").await?;
    }
    let permission = operation.permission();
    lookup::require::<Stack>(context, "create", permission, &namespace, &name).await?;
    for name in &stack.spec.workspaces {
        let Some(workspace) = workspace::require_use(lookup, context, name).await? else { continue };
        let sets = variable_set::deciding(lookup, (stack, &workspace), project).await?;
        variable_set::require_use(context, sets.iter().map(String::as_str)).await?;
    }
    Ok(())
}

/// The same for all stacks of a project that leads elsewhere.
///
/// # Errors
///
/// As [`require`], and when the stacks cannot be read.
pub(crate) async fn require_of_project(
    lookup: &Lookup,
    context: &RequestContext,
    project: &Project,
) -> Result<(), ApiError> {
    let namespace = project.namespace().unwrap_or_default();
    for stack in stack::of_project(lookup, &namespace, &project.name_any()).await? {
        require_in(lookup, context, &stack, Some(project)).await?;
    }
    Ok(())
}

/// The same for all stacks of a source that leads elsewhere.
///
/// # Errors
///
/// As [`require`], and when the projects and stacks cannot be read.
pub(crate) async fn require_of_source(
    lookup: &Lookup,
    context: &RequestContext,
    source: &Source,
) -> Result<(), ApiError> {
    if context.is_internal() {
        return Ok(());
    }
    let of_source = format!("spec.source.name={}", source.name_any());
    let options = ListOptions { field_selector: Some(of_source), ..ListOptions::default() };
    let namespace = source.namespace().unwrap_or_default();
    // Two reads, however many projects there are.
    let projects = lookup.api::<Project>()?.list_with(Some(&namespace), &options).await?;
    let projects: HashSet<String> = projects.iter().map(ResourceExt::name_any).collect();
    if projects.is_empty() {
        return Ok(());
    }
    let of_projects = |stack: Stack| projects.contains(&stack.spec.project).then_some(stack);
    for stack in lookup.api::<Stack>()?.list_of(Some(&namespace), &ListOptions::default(), of_projects).await? {
        require(lookup, context, &stack).await?;
    }
    Ok(())
}
