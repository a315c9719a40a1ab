//! Stacks with live resources, or with a Run that may create some, and the permission to destroy them.

use std::collections::BTreeSet;

use futures_util::future;
use kube::ResourceExt as _;
use stoa_machinery::{ApiError, RequestContext, registry::ListOptions};
use stoa_types::{
    Backend, Run, Stack, Workspace,
    config::Deployment,
    delivery::{Operation, RunPhase},
};

use super::{
    lookup::{self, Lookup},
    workspace,
};

/// About so many stacks at most it is asked at once who may destroy them.
const AT_ONCE: usize = 32;

/// Whether a run is changing a deployment or is about to, so that more may be live than its status says. Nothing is changed
/// while somebody is waited for, which may take weeks.
pub fn is_changing(deployment: &Deployment) -> bool {
    deployment.phase.is_some_and(|phase| !phase.is_terminal() && !waits(phase))
}

/// Whether a run that is so far waits for somebody.
pub fn waits(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::AwaitingApproval | RunPhase::AwaitingMerge)
}

/// The deployments of a stack of which something is live by its status, or of which a run makes more than that says.
pub(crate) fn seemingly_used(stack: &Stack) -> impl Iterator<Item = &Deployment> {
    let deployments = stack.status.iter().flat_map(|status| &status.deployments);
    deployments.filter(|of| of.resources > 0 || is_changing(of))
}

/// The deployments of a stack of which something is live, or may be by now: what a run makes it tells when it is done.
///
/// # Errors
///
/// When the runs that make them cannot be read.
pub async fn used_by<'a>(lookup: &Lookup, stack: &'a Stack) -> Result<Vec<&'a Deployment>, ApiError> {
    let mut used = Vec::new();
    for of in seemingly_used(stack).collect::<Vec<_>>() {
        if of.resources > 0 || is_being_made(lookup, stack, of).await? {
            used.push(of);
        }
    }
    Ok(used)
}

/// A stack of which something is live, or may be by now.
pub struct Live {
    /// The stack.
    pub stack: Stack,
    /// The workspaces in which that is so.
    workspaces: Vec<String>,
}

/// The stacks of a namespace, of those that these options select, of which anything is still live, or may be by now.
///
/// # Errors
///
/// When they, or the runs that make them, cannot be read.
pub async fn live_of(lookup: &Lookup, namespace: &str, options: &ListOptions) -> Result<Vec<Live>, ApiError> {
    let if_used = |stack: Stack| {
        let is_used = seemingly_used(&stack).next().is_some();
        is_used.then_some(stack)
    };
    let mut live = Vec::new();
    for stack in lookup.api::<Stack>()?.list_of(Some(namespace), options, if_used).await? {
        let workspaces: Vec<String> =
            used_by(lookup, &stack).await?.into_iter().map(|of| of.workspace.clone()).collect();
        if !workspaces.is_empty() {
            live.push(Live { stack, workspaces });
        }
    }
    Ok(live)
}

/// Whether a run that has not ended makes a deployment of which nothing is live by what its status says. Where one ended
/// without telling, which older versions let it, the status says for good that it goes on.
async fn is_being_made(lookup: &Lookup, stack: &Stack, deployment: &Deployment) -> Result<bool, ApiError> {
    let Some(name) = &deployment.last_run else { return Ok(false) };
    let namespace = stack.namespace().unwrap_or_default();
    let run = lookup.api::<Run>()?.get_opt(&namespace, name).await?;
    if run.is_some_and(|run| !run.status.unwrap_or_default().phase.is_terminal()) {
        return Ok(true);
    }
    // It has told before it ended what is there, and that may have been after the stack was read.
    let Some(stack) = lookup.api::<Stack>()?.get_opt(&namespace, &stack.name_any()).await? else { return Ok(false) };
    let mut used = seemingly_used(&stack).filter(|of| of.workspace == deployment.workspace);
    Ok(used.any(|of| of.resources > 0 || of.last_run.as_ref() != Some(name)))
}

/// Requires what it takes to destroy a stack wherever it is deployed, which [`used_by`] told: whoever has that done by a
/// deletion needs no less.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub(crate) async fn require_destroy(
    lookup: &Lookup,
    context: &RequestContext,
    stack: &Stack,
    used: &[&Deployment],
) -> Result<(), ApiError> {
    require_verb(context, &stack.namespace().unwrap_or_default(), &stack.name_any()).await?;
    for deployment in used {
        workspace::require_use(lookup, context, &deployment.workspace).await?;
    }
    Ok(())
}

/// The same for many stacks of a namespace, which [`live_of`] told: whoever may destroy all that there are is asked about once,
/// and every workspace and Backend is.
///
/// # Errors
///
/// As [`require_destroy`].
pub(crate) async fn require_destroy_all(
    lookup: &Lookup,
    context: &RequestContext,
    namespace: &str,
    live: &[Live],
) -> Result<(), ApiError> {
    if live.is_empty() {
        return Ok(());
    }
    match require_verb(context, namespace, "").await {
        Err(error) if error.code() == 403 => {
            let names: Vec<String> = live.iter().map(|of| of.stack.name_any()).collect();
            for some in names.chunks(AT_ONCE) {
                let asked: Vec<_> = some.iter().map(|name| require_verb(context, namespace, name)).collect();
                future::try_join_all(asked).await?;
            }
        }
        asked => asked?,
    }
    let workspaces: BTreeSet<&String> = live.iter().flat_map(|of| &of.workspaces).collect();
    let mut backends = BTreeSet::new();
    for name in workspaces {
        lookup::require_use::<Workspace>(context, name).await?;
        let found = lookup.api::<Workspace>()?.get_opt("", name).await?;
        backends.extend(found.map(|workspace| workspace.spec.backend.name));
    }
    for name in backends {
        lookup::require_use::<Backend>(context, &name).await?;
    }
    Ok(())
}

/// Requires the verb that it takes to destroy a stack of a namespace; without a name, all of them.
async fn require_verb(context: &RequestContext, namespace: &str, name: &str) -> Result<(), ApiError> {
    let operation = Operation::Destroy.permission();
    lookup::require::<Stack>(context, "create", operation, namespace, name).await
}
