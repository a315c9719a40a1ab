//! What a successful run leaves behind: one Release, a Resource for each piece of infrastructure,
//! and the stack's status.
//!
//! Each step may be repeated: the number of the release is decided in the state head before the
//! Release is created, and the head says which run it was for.

use futures_util::{TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};
use stoa_engine::{KubernetesObject, ResourceOutcome, StateResource, state::Record};
use stoa_machinery::ApiError;
use stoa_types::{
    Release, Resource, Stack,
    config::Deployment,
    delivery::{KubernetesIdentity, Operation, ReleaseSpec, ResourcePhase, ResourceSpec, ResourceStatus, RunPhase},
    labels, reason,
};

use super::{
    Halt,
    execute::{Execution, put},
    readiness,
    state::{Head, State},
    status,
    target::Target,
};

/// How many Resources are written at a time.
const AT_ONCE: usize = 32;

/// The name of a Release: `<stack>.<workspace>.<number>`.
pub(crate) fn name(stack: &str, workspace: &str, number: i64) -> String {
    format!("{stack}.{workspace}.{number}")
}

/// The name of a Resource: `<stack>.<workspace>.<8 hex digits of the SHA-256 of the id>`.
fn resource_name(stack: &str, workspace: &str, id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{stack}.{workspace}.{hex}")
}

/// Records a successful run; the number of its release, or nothing when it changed nothing.
pub(super) async fn finish(
    execution: &mut Execution,
    target: &Target,
    state: &mut State,
    spec_digest: &str,
) -> Result<Option<i64>, Halt> {
    let run_uid = execution.run.uid().unwrap_or_default();
    let log = execution.services.log.clone();
    let head = state.head().clone();
    if !head.dirty && head.last_release_run != run_uid {
        return Ok(None);
    }
    let state_digest = put(&*target.documents, &target.scope(), state.document()).await?;
    let number = if head.last_release_run == run_uid { head.last_release } else { head.last_release + 1 };
    let released = Head { run: run_uid.clone(), dirty: false, last_release: number, last_release_run: run_uid.clone() };
    state.set_head(&*log, released).await?;
    create_release(execution, target, number, spec_digest, &state_digest).await?;
    record_resources(execution, target, state, Some(number)).await?;
    state.forget_removed(&*log, &run_uid).await?;
    execution.update(|status| status.release = Some(number)).await?;
    Ok(Some(number))
}

/// Brings the Resources to what this run made of them; `release` is the number of the one that it made.
pub(super) async fn record_resources(
    execution: &Execution,
    target: &Target,
    state: &State,
    release: Option<i64>,
) -> Result<(), Halt> {
    // Those that are under way together share one sync of the disk.
    let records = state.entries().map(|entry| Ok(record_resource(execution, target, entry, release)));
    stream::iter(records).try_for_each_concurrent(AT_ONCE, |record| record).await
}

fn labels_of(target: &Target) -> std::collections::BTreeMap<String, String> {
    [
        (labels::STACK, target.stack.name_any()),
        (labels::WORKSPACE, target.workspace.name_any()),
        (labels::PROJECT, target.project.name_any()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

async fn create_release(
    execution: &Execution,
    target: &Target,
    number: i64,
    spec_digest: &str,
    state_digest: &str,
) -> Result<(), Halt> {
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    let run = &execution.run;
    let status = status(run);
    let operation = run.spec.operation;
    let mut release = Release::new(
        &name(&stack, &workspace, number),
        ReleaseSpec {
            stack,
            stack_uid: target.stack.uid().unwrap_or_default(),
            workspace,
            revision: number,
            run: run.name_any(),
            commit: status.source.map(|s| s.commit).unwrap_or_default(),
            plan_digest: status.plan.map(|p| p.digest).unwrap_or_default(),
            spec_digest: spec_digest.to_owned(),
            state_digest: state_digest.to_owned(),
            rollback_of: run.spec.release.filter(|_| operation == Operation::Rollback),
            tombstone: operation == Operation::Destroy,
        },
    );
    release.metadata.namespace = Some(target.namespace());
    release.metadata.labels = Some(labels_of(target));
    let releases = execution.services.lookup.api::<Release>()?;
    match releases.create(&release).await {
        Ok(_) => Ok(()),
        Err(error) if error.is("AlreadyExists") => {
            let there = releases.get(&target.namespace(), &release.name_any()).await?;
            // An earlier try of this run made it. A stack of the same name may have left one too,
            // whose number is then taken: its record is older than this stack and stays.
            if there.spec.run == release.spec.run && there.spec.stack_uid == release.spec.stack_uid {
                return Ok(());
            }
            Err(Halt::failed(
                reason::CONFLICTING_RUN,
                format!("release {} exists and is of another run; delete it and apply again", release.name_any()),
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// Brings the Resource of one entry to what this run made of it.
async fn record_resource(
    execution: &Execution,
    target: &Target,
    entry: &Record,
    release: Option<i64>,
) -> Result<(), Halt> {
    let run_uid = execution.run.uid().unwrap_or_default();
    let Some(result) = entry.result.as_ref().filter(|r| r.run == run_uid) else { return Ok(()) };
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    let name = resource_name(&stack, &workspace, &entry.id.0);
    let namespace = target.namespace();
    let resources = execution.services.lookup.api::<Resource>()?;
    let extension = |of: &StateResource, key| of.extensions.get(key).and_then(|v| v.as_str()).map(str::to_owned);
    let is_gone = entry.resource.is_none();
    let phase = match result.outcome {
        ResourceOutcome::Done if is_gone => ResourcePhase::Destroyed,
        ResourceOutcome::Done => ResourcePhase::Applied,
        ResourceOutcome::Unknown => ResourcePhase::Unknown,
        ResourceOutcome::Failed | ResourceOutcome::Skipped => ResourcePhase::Failed,
    };
    let update = |resource: &mut Resource| {
        let spec = &mut resource.spec;
        spec.stack.clone_from(&stack);
        spec.workspace.clone_from(&workspace);
        spec.id.clone_from(&entry.id.0);
        if let Some(kubernetes) = &result.kubernetes {
            spec.kubernetes = Some(identity(kubernetes));
        }
        if let Some(recorded) = &entry.resource {
            spec.kind = recorded.kind.to_string();
            spec.depends_on = result.depends_on.iter().map(|id| id.0.clone()).collect();
            spec.module = extension(recorded, "kusion.io/module");
            spec.app_configuration = extension(recorded, "kusion.io/app-configuration");
            spec.last_applied_time = Some(Time(result.time));
        }
        spec.release = release.or(spec.release);
        resource.metadata.labels.get_or_insert_default().extend(labels_of(target));
    };
    let health = result.health.filter(|_| !is_gone).map(|health| health.to_string()).unwrap_or_default();
    let state = ResourceStatus { phase, health };
    match resources.update_with(&namespace, &name, |r: &mut Resource| update(r)).await {
        Ok(_) => {}
        Err(error) if error.code() == 404 => {
            // A resource that was gone before it was ever recorded leaves nothing to record.
            if is_gone && (result.kubernetes.is_none() || phase != ResourcePhase::Destroyed) {
                return Ok(());
            }
            let mut resource =
                Resource::new(&name, ResourceSpec { kind: "Kubernetes".to_owned(), ..ResourceSpec::default() });
            resource.metadata.namespace = Some(namespace.clone());
            update(&mut resource);
            resources.create(&resource).await?;
        }
        Err(error) => return Err(error.into()),
    }
    resources.update_status_with(&namespace, &name, |r: &mut Resource| r.status = Some(state.clone())).await?;
    Ok(())
}

fn identity(object: &KubernetesObject) -> KubernetesIdentity {
    let KubernetesObject { cluster, group, version, kind, namespace, name, uid } = object.clone();
    KubernetesIdentity { cluster, group, version, kind, namespace, name, uid }
}

/// Notes in the stack's status how its deployment to the run's workspace fares. `phase` is the
/// one that the run is in or about to be in, `ended` the reason and message that it ends with.
pub(super) async fn note_deployment(
    execution: &Execution,
    target: &Target,
    phase: RunPhase,
    ended: Option<(&str, &str)>,
) -> Result<(), Halt> {
    if !execution.run.spec.operation.is_mutating() {
        return Ok(());
    }
    let run = &execution.run;
    let run_status = status(run);
    let workspace = target.workspace.name_any();
    let uid = target.stack.uid();
    let state = match State::load(&*execution.services.log, uid.as_deref().unwrap_or_default(), &workspace, None).await
    {
        Ok(state) => Some(state),
        // What cannot be read says nothing about what is there. The run fails for it, and this is how it ends.
        Err(Halt::Failed { .. }) => None,
        Err(halt) => return Err(halt),
    };
    let stacks = execution.services.lookup.api::<Stack>()?;
    let update = |stack: &mut Stack| {
        if stack.uid() != uid {
            return;
        }
        let status = stack.status.get_or_insert_default();
        if !status.deployments.iter().any(|d| d.workspace == workspace) {
            status.deployments.push(Deployment { workspace: workspace.clone(), ..Deployment::default() });
            status.deployments.sort_by(|a, b| a.workspace.cmp(&b.workspace));
        }
        let Some(deployment) = status.deployments.iter_mut().find(|d| d.workspace == workspace) else { return };
        deployment.last_run = Some(run.name_any());
        deployment.phase = Some(phase);
        if let Some(state) = &state {
            deployment.resources = i64::try_from(state.live()).unwrap_or(i64::MAX);
            if state.head().last_release > 0 {
                deployment.release = Some(state.head().last_release);
            }
        }
        if phase == RunPhase::Succeeded {
            deployment.drifted = false;
            if let Some(source) = run_status.source.as_ref().filter(|s| !s.commit.is_empty()) {
                deployment.commit = Some(source.commit.clone());
            }
        }
        let ended = ended.map(|(_, message)| (run.name_any(), message));
        readiness::set(
            &execution.services.lookup,
            stack,
            ended.as_ref().map(|(run, message)| (run.as_str(), *message)),
        );
    };
    match stacks.update_status_with(&target.namespace(), &target.stack.name_any(), update).await {
        Ok(_) => Ok(()),
        // The stack may go while its last run ends.
        Err(error) if error.code() == 404 => Ok(()),
        Err(error) => Err(ApiError::into(error)),
    }
}
