//! A Resource for each piece of infrastructure, as the last run that touched it left it.

use futures_util::{TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stoa_engine::{
    Action, KubernetesObject, ObjectRef, ProviderAddress, ProviderReference, ResourceId, ResourceOutcome, ResourceType,
    StateResource, hook, record::Record,
};
use stoa_machinery::{ApiError, registry::api::Api};
use stoa_proto::FoundResource;
use stoa_types::{
    Resource,
    delivery::{CloudIdentity, KubernetesIdentity, ResourcePhase, ResourceSpec, ResourceStatus},
};

use super::{StepError, execution::Execution, state::State, target::Target};

/// How many Resources are written at a time.
const AT_ONCE: usize = 32;

/// `<stack>.<workspace>.<16 hex digits of the SHA-256 of the id>`: no two ids of a Stack share a name.
fn resource_name(stack: &str, workspace: &str, id: &str) -> String {
    name_by(stack, workspace, id)
}

/// The name where `web` in `eu.prod` and `web.eu` in `prod` would share one: old workspaces may have dots.
fn name_apart(stack: &str, workspace: &str, id: &str) -> String {
    name_by(stack, workspace, &format!("{stack}/{workspace}/{id}"))
}

fn name_by(stack: &str, workspace: &str, hashed: &str) -> String {
    let digest = Sha256::digest(hashed.as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{stack}.{workspace}.{hex}")
}

/// The same as it once was, with 8 digits. A Resource that has such a name keeps it.
fn short_name(name: &str) -> Option<&str> {
    name.get(..name.len() - 8)
}

/// Whether a Resource is of this deployment.
fn is_of(resource: &Resource, stack: &str, workspace: &str) -> bool {
    resource.spec.stack == stack && resource.spec.workspace == workspace
}

/// The Resource of an id that has not the name that it would get today, if there is one.
async fn otherwise_named(
    resources: &Api<Resource>,
    namespace: &str,
    (stack, workspace): (&str, &str),
    id: &str,
) -> Result<Option<Resource>, StepError> {
    let name = resource_name(stack, workspace, id);
    let apart = [stack, workspace].iter().any(|name| name.contains('.')).then(|| name_apart(stack, workspace, id));
    for name in short_name(&name).map(str::to_owned).into_iter().chain(apart) {
        let found = resources.get_opt(namespace, &name).await?;
        if let Some(found) = found.filter(|found| found.spec.id == id && is_of(found, stack, workspace)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) number: i64,
    /// When the release before it was made: what other runs changed since is in no other. Nothing where that is not known.
    pub(super) after: Option<Timestamp>,
}

/// Updates the Resources that this Run changed, and with a Release those that earlier failed Runs changed.
pub(super) async fn record(
    execution: &Execution,
    target: &Target,
    state: &State,
    made: Option<Made>,
) -> Result<(), StepError> {
    // Those that are under way together share one sync of the disk.
    let run = execution.run.uid().unwrap_or_default();
    let of_run =
        |entry: &Record| entry.result.as_ref().is_some_and(|result| result.run == run) || is_unheard_of(entry, &run);
    let is_unreleased = |entry: &Record| {
        let after = made.and_then(|made| made.after);
        let changed = entry.result.as_ref().filter(|result| entry.is_there() && result.action.is_call());
        changed.zip(after).is_some_and(|(result, after)| result.time > after)
    };
    // What earlier runs changed may have been waited for by this one.
    let is_told = |entry: &Record| of_run(entry) || state.was_told(&entry.id) || is_unreleased(entry);
    // A hook is no piece of the deployment.
    let is_shown = |entry: &&Record| is_told(entry) && !hook::is_hook_id(&entry.id);
    let records = state.entries().filter(is_shown).map(|entry| {
        let release = made.filter(|_| of_run(entry) || is_unreleased(entry)).map(|made| made.number);
        Ok(record_resource(execution, target, entry, release))
    });
    stream::iter(records).try_for_each_concurrent(AT_ONCE, |record| record).await
}

/// Brings the Resource of one entry to what the last call made of it.
async fn record_resource(
    execution: &Execution,
    target: &Target,
    entry: &Record,
    release: Option<i64>,
) -> Result<(), StepError> {
    let result = entry.result.as_ref();
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    let mut name = resource_name(&stack, &workspace, &entry.id.0);
    let namespace = target.namespace();
    let resources = execution.services.lookup.api::<Resource>()?;
    let extension = |of: &StateResource, key| of.extensions.get(key).and_then(|v| v.as_str()).map(str::to_owned);
    let is_gone = entry.resource.is_none();
    let is_unheard = is_unheard_of(entry, &execution.run.uid().unwrap_or_default());
    let phase = match result.filter(|_| !is_unheard) {
        None => ResourcePhase::Unknown,
        Some(result) => match result.outcome {
            ResourceOutcome::Done if is_gone && result.left => ResourcePhase::Forgotten,
            ResourceOutcome::Done if is_gone => ResourcePhase::Destroyed,
            ResourceOutcome::Done if result.action == Action::Import => ResourcePhase::Imported,
            ResourceOutcome::Done => ResourcePhase::Applied,
            ResourceOutcome::Unknown => ResourcePhase::Unknown,
            ResourceOutcome::Failed | ResourceOutcome::Skipped => ResourcePhase::Failed,
        },
    };
    let update = |resource: &mut Resource| {
        let spec = &mut resource.spec;
        spec.stack.clone_from(&stack);
        spec.workspace.clone_from(&workspace);
        spec.id.clone_from(&entry.id.0);
        if let Some(kubernetes) = result.and_then(|result| result.kubernetes.as_ref()) {
            spec.kubernetes = Some(identity(kubernetes));
        } else if phase == ResourcePhase::Unknown && spec.kubernetes.is_none() {
            spec.kubernetes = called_for(entry);
        }
        spec.kind = type_of(entry).map_or_else(|| spec.kind.clone(), |kind| kind.to_string());
        if let (Some(recorded), Some(result)) = (&entry.resource, result) {
            spec.cloud = cloud_identity(recorded);
            spec.depends_on = result.depends_on.iter().map(|id| id.0.clone()).collect();
            spec.module = extension(recorded, "kusion.io/module");
            spec.app_configuration = extension(recorded, "kusion.io/app-configuration");
            if result.action.is_call() {
                spec.last_applied_time = Some(Time(result.time));
            }
        }
        spec.release = release.or(spec.release);
        resource.metadata.labels.get_or_insert_default().extend(target.labels());
    };
    let health = result.and_then(|it| it.health).filter(|_| !is_gone).map(|health| health.to_string());
    let is_call = result.is_none_or(|result| result.action.is_call());
    let set_status = |resource: &mut Resource| {
        let before = resource.status.take().filter(|_| !is_gone && !is_call);
        let health = health.clone().or(before.map(|before| before.health)).unwrap_or_default();
        resource.status = Some(ResourceStatus { phase, health });
    };
    let update_own = |resource: &mut Resource| {
        if !is_of(resource, &stack, &workspace) {
            return Err(ApiError::already_exists("delivery.stoa.dev", "resources", &resource.name_any()));
        }
        update(resource);
        Ok(())
    };
    let is_absent = |error: &ApiError| error.code() == 404 || error.is("AlreadyExists");
    let mut updated = resources.update_with(&namespace, &name, update_own).await;
    if let Err(error) = &updated
        && is_absent(error)
    {
        let is_taken = error.is("AlreadyExists");
        match otherwise_named(&resources, &namespace, (&stack, &workspace), &entry.id.0).await? {
            Some(found) => {
                name = found.name_any();
                updated = resources.update_with(&namespace, &name, update_own).await;
            }
            None if is_taken => name = name_apart(&stack, &workspace, &entry.id.0),
            None => {}
        }
    }
    match updated {
        Ok(_) => {}
        Err(error) if is_absent(&error) => {
            // A resource that was gone before it was ever recorded leaves nothing to record; one that may be there does.
            let is_told = match phase {
                ResourcePhase::Unknown => true,
                ResourcePhase::Destroyed | ResourcePhase::Forgotten => {
                    result.is_some_and(|result| result.kubernetes.is_some())
                }
                ResourcePhase::Applied | ResourcePhase::Imported | ResourcePhase::Failed => !is_gone,
            };
            if !is_told {
                return Ok(());
            }
            let kind = ResourceType::default().to_string();
            let mut resource = Resource::new(&name, ResourceSpec { kind, ..ResourceSpec::default() });
            resource.metadata.namespace = Some(namespace.clone());
            update(&mut resource);
            resources.create(&resource).await?;
        }
        Err(error) => return Err(error.into()),
    }
    resources.update_status_with(&namespace, &name, set_status).await?;
    Ok(())
}

/// Says of what calls without a result left behind that it is there, where nobody knew. The calls stay open until a run
/// settles them under its lease, and of what another one called for since the look at `looked` this says nothing.
pub(super) async fn tell_found(
    execution: &Execution,
    target: &Target,
    looked: &State,
    found: Vec<FoundResource>,
) -> Result<(), StepError> {
    let resources = execution.services.lookup.api::<Resource>()?;
    let (namespace, stack, workspace) = (target.namespace(), target.stack.name_any(), target.workspace.name_any());
    let mut unknown = Vec::new();
    for found in found {
        let name = resource_name(&stack, &workspace, &found.id);
        let resource = match resources.get_opt(&namespace, &name).await? {
            Some(resource) if is_of(&resource, &stack, &workspace) => Some(resource),
            _ => otherwise_named(&resources, &namespace, (&stack, &workspace), &found.id).await?,
        };
        let is_unknown = |it: &Resource| it.status.as_ref().is_some_and(|it| it.phase == ResourcePhase::Unknown);
        unknown.extend(resource.filter(is_unknown).map(|resource| (found, resource)));
    }
    if unknown.is_empty() {
        return Ok(());
    }
    // Read after the Resources: whoever has called for something by now writes them later, and this version is refused then.
    let stack_uid = target.stack.uid().unwrap_or_default();
    let now = State::load(&*execution.services.log, &stack_uid, &workspace, None).await?;
    for (FoundResource { id, kubernetes }, mut resource) in unknown {
        let id = ResourceId(id);
        if now.version(&id) == looked.version(&id) {
            resource.spec.kubernetes = kubernetes.map(found_identity).or(resource.spec.kubernetes);
            let health = resource.status.take().map(|status| status.health).unwrap_or_default();
            let status = ResourceStatus { phase: ResourcePhase::Applied, health };
            let written = match resources.replace(&resource).await {
                Ok(resource) => resources.replace_status(&Resource { status: Some(status), ..resource }).await,
                Err(error) => Err(error),
            };
            // Whoever wrote or removed it meanwhile knows better.
            if let Err(error) = written
                && !matches!(error.code(), 404 | 409)
            {
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// Whether a run called for something and nobody heard what became of it.
pub(super) fn is_unheard_of(entry: &Record, run: &str) -> bool {
    entry.intent.as_ref().is_some_and(|intent| intent.run == run && intent.action != Action::Import)
}

/// The type of the resource of an entry, as far as it is recorded.
fn type_of(entry: &Record) -> Option<ResourceType> {
    let recorded = entry.resource.as_ref().map(|resource| resource.kind);
    recorded.or_else(|| entry.intent.as_ref().map(|intent| intent.place.kind))
}

/// The identity of a resource of a Terraform provider. A sensitive attribute is not a text in the record, and stays empty.
fn cloud_identity(recorded: &StateResource) -> Option<CloudIdentity> {
    if recorded.kind != ResourceType::Terraform {
        return None;
    }
    let provider = ProviderReference::of(&recorded.extensions).ok()?;
    let short = provider.address.parse().map(|address: ProviderAddress| address.short());
    let text = |attribute: &str| recorded.live.get(attribute).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(CloudIdentity {
        provider: short.unwrap_or_else(|_| provider.address.to_owned()),
        resource_type: provider.resource_type.to_owned(),
        id: text("id"),
        arn: text("arn"),
    })
}

/// Which object a call was for whose result nobody heard, as far as its id and its intent say.
fn called_for(entry: &Record) -> Option<KubernetesIdentity> {
    if type_of(entry) == Some(ResourceType::Terraform) {
        return None;
    }
    let object = ObjectRef::of(&StateResource::named_by(&entry.id)?.attributes)?;
    let clusters = entry.intent.as_ref().map(|intent| intent.place.clusters.as_slice()).unwrap_or_default();
    Some(KubernetesIdentity {
        cluster: clusters.last().cloned().unwrap_or_default(),
        group: object.group,
        version: object.version,
        kind: object.kind,
        namespace: object.namespace,
        name: object.name,
        uid: String::new(),
    })
}

fn found_identity(object: stoa_proto::KubernetesObject) -> KubernetesIdentity {
    let stoa_proto::KubernetesObject { cluster, group, version, kind, namespace, name, uid } = object;
    KubernetesIdentity { cluster, group, version, kind, namespace, name, uid }
}

fn identity(object: &KubernetesObject) -> KubernetesIdentity {
    let KubernetesObject { cluster, group, version, kind, namespace, name, uid } = object.clone();
    KubernetesIdentity { cluster, group, version, kind, namespace, name, uid }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recorded(kind: &str, extensions: Value, live: Value) -> StateResource {
        let resource = json!({"id": "a", "type": kind, "attributes": {}, "live": live, "extensions": extensions});
        serde_json::from_value(resource).unwrap()
    }

    #[test]
    fn terraform_resource_has_a_cloud_identity() {
        let extensions = |provider: &str| json!({"provider": provider, "resourceType": "aws_db_instance"});
        let live = json!({"id": "db-1", "arn": "arn:aws:rds:db-1", "port": 5432});
        for (provider, shown) in [
            ("aws", "hashicorp/aws"),
            ("hashicorp/aws/5.1.0", "hashicorp/aws"),
            ("example.com/ours/aws", "example.com/ours/aws"),
        ] {
            let identity = cloud_identity(&recorded("Terraform", extensions(provider), live.clone())).unwrap();
            let CloudIdentity { provider, resource_type, id, arn } = &identity;
            let found = [provider, resource_type, id, arn].map(String::as_str);
            assert_eq!(found, [shown, "aws_db_instance", "db-1", "arn:aws:rds:db-1"]);
        }
        assert_eq!(cloud_identity(&recorded("Kubernetes", extensions("aws"), live)), None);
    }

    #[test]
    fn sensitive_or_missing_id_is_not_shown() {
        let extensions = json!({"provider": "random", "resourceType": "random_password"});
        for live in [json!({}), json!({"id": {"$sensitive": "hmac-sha256:00"}}), json!({"id": 7, "arn": null})] {
            let identity = cloud_identity(&recorded("Terraform", extensions.clone(), live)).unwrap();
            assert_eq!((identity.id.as_str(), identity.arn.as_str()), ("", ""));
        }
    }
}
