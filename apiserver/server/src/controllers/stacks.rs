//! Stack: knows the commit it would be deployed from, and decides on its infrastructure when it goes.

use std::{collections::BTreeSet, time::Duration};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_machinery::ApiError;
use stoa_types::{
    DeletionPolicy, Organization, Project, Run, Source, Stack, Workspace,
    delivery::{Decision, OnConflict, Operation, RunPhase, RunSpec},
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use super::{
    finalizers::{let_go, update_same},
    groups::{Groups, Member},
    queue::{self, FirstError, ObjectKey, Trigger},
};
use crate::{
    events::Kind,
    kinds::{
        stack::{is_deployed, live_workspaces},
        trigger,
    },
    runs::{
        Services, awaits_approval, awaits_merge,
        readiness::{self, OfSourceStatus},
        state, status,
        target::is_internal,
    },
};

/// How often to look while something is going.
const WAIT: Duration = Duration::from_millis(500);
/// How long after a Refresh was refused the next is started.
const REFUSED: Duration = Duration::from_mins(5);
/// How long after a Destroy that failed the next is started.
const DESTROY_AGAIN: Duration = Duration::from_secs(60);

/// What a stack goes by.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Reference {
    Project(ObjectKey),
    Workspace(String),
}

/// What of a stack's spec names others.
#[derive(Deserialize)]
struct References {
    project: String,
    #[serde(default)]
    workspaces: Vec<String>,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(stacks), Ok(sources), Ok(workspaces)) =
        (services.lookup.api::<Stack>(), services.lookup.api::<Source>(), services.lookup.api::<Workspace>())
    else {
        return;
    };
    let by_reference = Groups::default();
    let (of_source, of_workspace) = (by_reference.clone(), by_reference.clone());
    let changed = by_reference.follow(&stacks, |s: &Member<References, IgnoredAny>| {
        let project = Reference::Project((s.namespace().to_owned(), s.spec.project.clone()));
        s.spec.workspaces.iter().cloned().map(Reference::Workspace).chain([project]).collect()
    });
    let lookup = services.lookup.clone();
    let triggers = vec![
        Trigger::new(changed.map(|moved| moved.objects.iter().map(queue::key_at).collect()).boxed()),
        // Stacks follow the head of their project's source.
        Trigger::on_change(&sources, move |s: &Member<IgnoredAny, OfSourceStatus>| {
            let (namespace, source) = s.key();
            let projects = lookup.cached_keys::<Project>(&namespace, "spec.source.name", &source);
            projects.into_iter().flat_map(|project| of_source.members(&Reference::Project(project))).collect()
        }),
        // Stacks say when a workspace that they name does not exist.
        Trigger::on_change(&workspaces, move |w: &Member<IgnoredAny, IgnoredAny>| {
            of_workspace.members(&Reference::Workspace(w.key().1))
        }),
    ];
    queue::drive("stacks", triggers, end, |key| look(services.clone(), key)).await;
}

async fn look(services: Services, (namespace, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let stacks = services.lookup.api::<Stack>()?;
    let Some(stack) = stacks.get_opt(&namespace, &name).await? else { return Ok(None) };
    if stack.metadata.deletion_timestamp.is_some() {
        return remove(&services, &stack).await;
    }
    let mut observed = stack.clone();
    readiness::observe(&services.lookup, &mut observed);
    // Most looks find what the write itself has noted.
    if observed.status != stack.status {
        let observe = |s: &mut Stack| readiness::observe(&services.lookup, s);
        stacks.update_status_with(&namespace, &name, observe).await?;
    }
    look_for_drift(&services, &stack).await
}

/// Starts a Refresh wherever the stack is deployed and was not looked at for its `driftInterval`; how long until the
/// next is due.
async fn look_for_drift(services: &Services, stack: &Stack) -> Result<Option<Duration>, ApiError> {
    let every = stack.spec.drift_interval.parse().unwrap_or_default();
    if every == Duration::ZERO {
        return Ok(None);
    }
    let runs = runs_of(services, stack).await?;
    let now = services.now();
    let mut next = every;
    let deployments = stack.status.iter().flat_map(|status| &status.deployments);
    for deployment in deployments.filter(|d| d.release.is_some() && d.resources > 0) {
        let of_workspace = runs.iter().filter(|run| run.spec.workspace == deployment.workspace);
        let last = of_workspace.filter(|run| may_look(run, stack)).filter_map(|run| looked_ago(run, now)).min();
        match last.and_then(|ago| every.checked_sub(ago)).filter(|left| *left > Duration::ZERO) {
            Some(left) => next = next.min(left),
            None => {
                let mut run = run_of(stack, &deployment.workspace, Operation::Refresh);
                // Longer than until the next, which has to find it.
                run.spec.ttl_seconds_after_finished = i64::try_from((every * 2).as_secs() + 600).ok();
                // One that is refused, as without its workspace, keeps no other waiting.
                if let Err(error) = services.lookup.api::<Run>()?.create(&run).await {
                    let workspace = &deployment.workspace;
                    tracing::warn!(stack = stack.name_any(), workspace, %error, "drift is not looked for");
                    next = next.min(REFUSED);
                }
            }
        }
    }
    Ok(Some(next))
}

/// Whether no other stack of the same name is known to be what a run was for.
fn is_of(run: &Run, stack: &Stack) -> bool {
    status(run).stack_uid.is_none_or(|of| Some(of) == stack.metadata.uid)
}

/// Whether a run looks at what is live, or did: what is being changed is looked at afterwards, and what was changed was
/// looked at then. One that ended without a plan has seen nothing, but that a Refresh ended says that there was one.
fn may_look(run: &Run, stack: &Stack) -> bool {
    let (status, operation) = (status(run), run.spec.operation);
    let has_seen = !status.phase.is_terminal() || status.plan.is_some() || operation == Operation::Refresh;
    is_of(run, stack) && has_seen && operation != Operation::Preview
}

/// How long ago a run looked at what is live: no time if it is under way, and nothing if nobody knows: it waits for
/// somebody or behind one that does, which may take weeks, or the clock was set back.
fn looked_ago(run: &Run, now: Timestamp) -> Option<Duration> {
    let waits_behind_others = status(run).phase == RunPhase::Pending && run.spec.operation != Operation::Refresh;
    if awaits_approval(run) || awaits_merge(run) || waits_behind_others {
        return None;
    }
    if !status(run).phase.is_terminal() {
        return Some(Duration::ZERO);
    }
    let Time(at) = status(run).completion_time?;
    Duration::try_from(now.duration_since(at)).ok()
}

/// A run of a stack that nobody asked for.
pub(super) fn run_of(stack: &Stack, workspace: &str, operation: Operation) -> Run {
    let mut run = Run::new(
        "",
        RunSpec {
            description: None,
            owners: Vec::new(),
            stack: stack.name_any(),
            workspace: workspace.to_owned(),
            operation,
            of: None,
            version: None,
            plan: None,
            release: None,
            import: None,
            parameters: Default::default(),
            require_approval: false,
            allow_mass_deletion: false,
            retry: Vec::new(),
            forget_clusters: Vec::new(),
            on_conflict: OnConflict::Queue,
            cancel: false,
            timeout: "1h".into(),
            ttl_seconds_after_finished: None,
        },
    );
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{}-", stack.name_any()));
    run.metadata.namespace = stack.namespace();
    run
}

async fn remove(services: &Services, stack: &Stack) -> Result<Option<Duration>, ApiError> {
    if !stack.finalizers().iter().any(|f| f == labels::INFRASTRUCTURE_FINALIZER) {
        return Ok(None);
    }
    // The status may be older than what is recorded: a run that was put down has not told of its last calls.
    let is_live = is_deployed(stack) || !recorded_in(services, stack).await?.is_empty();
    if is_live && stack.spec.deletion_policy == DeletionPolicy::Destroy {
        destroy(services, stack).await?;
        return Ok(Some(WAIT));
    }
    if is_live && stack.spec.deletion_policy == DeletionPolicy::Refuse {
        // It was deployed after its deletion was admitted.
        services.recorder.record(
            stack,
            Kind::Warning,
            reason::TERMINATING,
            "the stack waits to be destroyed: its infrastructure is live and its deletionPolicy is Refuse",
        );
        return Ok(Some(Duration::from_secs(5)));
    }
    let mut is_busy = false;
    for run in active_runs(services, stack).await? {
        is_busy = true;
        // Merged after its run has ended, what it proposes would be deployed and nobody would know of it.
        if awaits_merge(&run) && stack.spec.deletion_policy != DeletionPolicy::Orphan {
            let pull = status(&run).pull_request.map(|pull| pull.number).unwrap_or_default();
            let run = run.name_any();
            let message = format!("the stack waits until pull request {pull} of run {run} is merged or closed");
            services.recorder.record(stack, Kind::Warning, reason::TERMINATING, message);
            return Ok(Some(Duration::from_secs(5)));
        }
        if !run.spec.cancel {
            update_same(&services.lookup.api::<Run>()?, &run, |r| r.spec.cancel = true).await?;
        }
    }
    if is_busy {
        return Ok(Some(WAIT));
    }
    let uid = stack.uid().unwrap_or_default();
    state::forget_stack(&*services.log, &uid).await.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            stack = stack.name_any(),
            "the state of a stack cannot be removed"
        );
        ApiError::internal("the storage failed")
    })?;
    let_go(&services.lookup.api::<Stack>()?, stack, labels::INFRASTRUCTURE_FINALIZER).await?;
    Ok(None)
}

/// The workspaces in which something of a stack is there or may be, by what is recorded.
async fn recorded_in(services: &Services, stack: &Stack) -> Result<BTreeSet<String>, ApiError> {
    let recorded = state::workspaces_of(&*services.log, &stack.uid().unwrap_or_default()).await;
    recorded.map_err(|error| {
        let name = stack.name_any();
        tracing::error!(error = &error as &dyn std::error::Error, stack = name, "the state of a stack cannot be read");
        ApiError::internal("the storage failed")
    })
}

pub(super) async fn runs_of(services: &Services, stack: &Stack) -> Result<Vec<Run>, ApiError> {
    let selector = format!("{}={}", labels::STACK, stack.name_any());
    services.lookup.api::<Run>()?.list(stack.namespace().as_deref(), &selector).await
}

async fn active_runs(services: &Services, stack: &Stack) -> Result<Vec<Run>, ApiError> {
    Ok(runs_of(services, stack).await?.into_iter().filter(|r| !status(r).phase.is_terminal()).collect())
}

/// Whether a Destroy is under way, or ended so lately that another would fail in the same way.
fn is_too_soon(run: &Run, now: Timestamp) -> bool {
    let ended = status(run).completion_time.filter(|_| status(run).phase.is_terminal());
    // What ended in the future did so before the clock was set back, nobody knows when.
    ended.is_none_or(|Time(at)| Duration::try_from(now.duration_since(at)).is_ok_and(|ago| ago < DESTROY_AGAIN))
}

/// Whether it is a Destroy that the server started for a deletion and somebody rejected. It is not started again, or else
/// they would be asked every minute: whoever wants it all the same starts a Destroy, or deletes the one that was rejected.
fn is_rejected(run: &Run) -> bool {
    let status = status(run);
    is_internal(&status.requester) && status.approval.is_some_and(|approval| approval.decision == Decision::Rejected)
}

/// Starts a Destroy in every workspace where the stack is deployed and none is under way, has just failed, or was
/// rejected. What waits there to be approved to change it otherwise is cancelled, since it would have its turn first.
///
/// # Errors
///
/// When runs cannot be read or created.
pub(crate) async fn destroy(services: &Services, stack: &Stack) -> Result<(), ApiError> {
    let mut runs = runs_of(services, stack).await?;
    // What was decided about an earlier stack of the same name says nothing of this one.
    runs.retain(|run| is_of(run, stack));
    let mut workspaces = recorded_in(services, stack).await?;
    workspaces.extend(live_workspaces(stack).map(str::to_owned));
    // Where it is refused it keeps no other workspace waiting.
    let mut failed = FirstError::default();
    for workspace in workspaces {
        failed.note(destroy_in(services, stack, &runs, &workspace).await);
    }
    failed.told()
}

/// The same in one workspace, beside these runs of the stack.
async fn destroy_in(services: &Services, stack: &Stack, runs: &[Run], workspace: &str) -> Result<(), ApiError> {
    let is_destroy = |r: &&Run| r.spec.operation == Operation::Destroy && r.spec.workspace == workspace;
    let waiting = runs.iter().filter(|r| !is_destroy(r) && r.spec.workspace == workspace && awaits_approval(r));
    for run in waiting.filter(|r| !r.spec.cancel) {
        update_same(&services.lookup.api::<Run>()?, run, |r| r.spec.cancel = true).await?;
    }
    if runs.iter().filter(is_destroy).any(|r| is_rejected(r) || is_too_soon(r, services.now())) {
        return Ok(());
    }
    let run = run_of(stack, workspace, Operation::Destroy);
    let context = trigger::on_behalf_of("stacks", deleted_by(services, stack).await?);
    let run = services.lookup.api::<Run>()?.with_context(context).create(&run).await?;
    let message = format!("run {} destroys it in workspace {workspace}", run.name_any());
    services.recorder.record(stack, Kind::Normal, "Destroying", message);
    Ok(())
}

/// Who deleted a stack, or what takes it along. Of its namespace nobody tells.
///
/// # Errors
///
/// When that cannot be read.
async fn deleted_by(services: &Services, stack: &Stack) -> Result<Vec<String>, ApiError> {
    let namespace = stack.namespace().unwrap_or_default();
    let project = services.lookup.api::<Project>()?.get_opt(&namespace, &stack.spec.project).await?;
    let organization = services.lookup.api::<Organization>()?.get_opt("", &namespace).await?;
    let of_stack = stack.status.as_ref().map(|status| status.deleted_by.clone());
    let of_project = project.and_then(|project| project.status).map(|status| status.deleted_by);
    let of_organization = organization.and_then(|organization| organization.status).map(|status| status.deleted_by);
    Ok([of_stack, of_project, of_organization].into_iter().flatten().collect())
}

/// Makes a stack follow the policy of what takes it along.
///
/// # Errors
///
/// When the stack cannot be written.
pub(crate) async fn set_policy(services: &Services, stack: &Stack, policy: DeletionPolicy) -> Result<(), ApiError> {
    if stack.spec.deletion_policy == policy {
        return Ok(());
    }
    update_same(&services.lookup.api::<Stack>()?, stack, |s| s.spec.deletion_policy = policy).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn run_that_saw_nothing_is_no_look_for_drift() {
        let stack = json!({"metadata": {"name": "web", "uid": "this"}, "spec": {"project": "shop", "path": "web"}});
        let stack: Stack = serde_json::from_value(stack).unwrap();
        let plan = json!({"digest": "d"});
        for (operation, status, looks) in [
            ("Apply", json!({"phase": "Succeeded", "plan": plan, "stackUID": "this"}), true),
            ("Apply", json!({"phase": "Failed", "plan": plan}), true),
            ("Apply", json!({"phase": "Planning"}), true),
            ("Apply", json!({"phase": "Canceled"}), false),
            ("Apply", json!({"phase": "Failed", "stackUID": "this"}), false),
            ("Apply", json!({"phase": "Succeeded", "plan": plan, "stackUID": "that"}), false),
            ("Refresh", json!({"phase": "Failed"}), true),
            ("Refresh", json!({"phase": "Failed", "stackUID": "that"}), false),
            ("Preview", json!({"phase": "Succeeded", "plan": plan}), false),
        ] {
            let spec = json!({"stack": "web", "workspace": "dev", "operation": operation});
            let run: Run = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
            assert_eq!(may_look(&run, &stack), looks, "{operation} {status}");
        }
    }
}
