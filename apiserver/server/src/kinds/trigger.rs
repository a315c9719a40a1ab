//! What is started by itself: who may have that done.
//!
//! A trigger acts later, and for whatever the source says then. So whoever decides about it needs, at that time, what it takes to
//! start the run: who sets the trigger, who changes what a stack with a trigger deploys or where to, and who changes where
//! its project and source lead. Pushing to the repository is up to the repository.

use std::collections::HashSet;

use kube::ResourceExt;
use stoa_machinery::{ApiError, RequestContext, registry::ListOptions};
use stoa_types::{
    Project, Source, Stack,
    config::{StackSpec, Trigger},
    delivery::Operation,
};

use super::{
    check,
    lookup::{self, Lookup},
    stack, workspace,
};

/// What the requester of a run says besides that Stoa started by itself: who had it do so, and so may not approve it alone.
pub(crate) const CAUSED_BY: &str = "stoa.dev/caused-by";

/// What a trigger starts; nothing when people start runs.
pub(crate) fn operation(trigger: Trigger) -> Option<Operation> {
    match trigger {
        Trigger::Manual => None,
        Trigger::Preview => Some(Operation::Preview),
        Trigger::Apply => Some(Operation::Apply),
    }
}

/// Whether a change of a stack decides about what its trigger starts.
pub(crate) fn is_decided(new: &Stack, old: Option<&Stack>) -> bool {
    let deploys = |stack: &Stack| StackSpec {
        description: None,
        owners: Vec::new(),
        drift_interval: "0s".into(),
        deletion_policy: Default::default(),
        ..stack.spec.clone()
    };
    operation(new.spec.trigger).is_some() && old.is_none_or(|old| deploys(new) != deploys(old))
}

/// Keeps who decided about what is started by itself, with the write that did.
pub(crate) fn note(context: &RequestContext, new: &mut Stack, old: Option<&Stack>) {
    if is_decided(new, old) && !context.is_internal() {
        let trigger = new.status.get_or_insert_default().trigger.get_or_insert_default();
        check::note_who(context, &mut trigger.set_by);
    }
}

/// Who decided about what a stack's trigger starts: who set it, or last changed what the stack deploys, and who last had
/// its project or source lead elsewhere.
///
/// # Errors
///
/// When those cannot be read.
pub(crate) async fn set_by(lookup: &Lookup, stack: &Stack) -> Result<Vec<String>, ApiError> {
    let namespace = stack.namespace().unwrap_or_default();
    let of_stack = stack.status.as_ref().and_then(|status| status.trigger.as_ref()).map(|trigger| &trigger.set_by);
    let mut names: Vec<String> = of_stack.into_iter().cloned().collect();
    if let Some(project) = lookup.api::<Project>()?.get_opt(&namespace, &stack.spec.project).await? {
        let source = lookup.api::<Source>()?.get_opt(&namespace, &project.spec.source.name).await?;
        names.extend(project.status.map(|status| status.set_by));
        names.extend(source.and_then(|source| source.status).map(|status| status.set_by));
    }
    Ok(names)
}

/// The server itself, on behalf of these people, as far as they are known.
pub(crate) fn on_behalf_of(component: &str, people: Vec<String>) -> RequestContext {
    let mut context = RequestContext::internal(component);
    let mut names: Vec<String> = Vec::new();
    for name in people {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
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
pub(crate) async fn require(lookup: &Lookup, context: &RequestContext, stack: &Stack) -> Result<(), ApiError> {
    let Some(operation) = operation(stack.spec.trigger).filter(|_| !context.is_internal()) else { return Ok(()) };
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    lookup::require(context, "create", "delivery.stoa.dev", "runs", "", &namespace, "").await?;
    let permission = operation.permission();
    lookup::require(context, "create", "config.stoa.dev", "stacks", permission, &namespace, &name).await?;
    for workspace in &stack.spec.workspaces {
        workspace::require_use(lookup, context, workspace).await?;
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
        require(lookup, context, &stack).await?;
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
