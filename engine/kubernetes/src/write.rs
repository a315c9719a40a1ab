//! Changes objects: previews and applies by server-side apply, deletes and waits until gone.
//!
//! An object is looked at right before it is changed or deleted, and only what was seen is: its version is a
//! precondition. So nothing is taken from another deployment that came between plan and call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::object::{is_going, without_bookkeeping};
use stoa_engine::owner::taken_from;
use stoa_engine::spec::RECREATE;
use stoa_engine::{FieldConflict, Ignored, Sensitive, StateResource};
use stoa_runtime::{Applied, ApplyRequest, Deleted, KubernetesObject, Preview, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::{ApplyOptions, Cluster, Discovered, FIELD_MANAGER};
use crate::error::{CallError, Failure};
use crate::read::{unknown_kind, unreachable};
use crate::target::{Api, Gvk, Target};
use crate::watch::Followed;

/// How long a kind may take from its definition being there to being served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const SERVED_POLL: Duration = Duration::from_millis(200);
/// A uid that no object has.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// How often an object is looked at again within one call because others keep writing it.
const LOOKS: u32 = 5;

/// Applies an object, and fields of other managers with it where they are to be taken; tells which were.
async fn apply_taking(
    cluster: &Cluster,
    path: &str,
    wanted: &Map<String, Value>,
    request: &ApplyRequest<'_>,
    dry_run: bool,
) -> Result<(Map<String, Value>, Vec<FieldConflict>), CallError> {
    let conflicts = match cluster.apply(path, wanted, ApplyOptions { dry_run, force: false }).await {
        Ok(object) => return Ok((object, Vec::new())),
        Err(CallError::Status(failure))
            if failure.is_ownership_conflict() && request.takes(&failure.field_conflicts()) =>
        {
            failure.field_conflicts()
        }
        Err(err) => return Err(err),
    };
    let object = cluster.apply(path, wanted, ApplyOptions { dry_run, force: true }).await?;
    Ok((object, conflicts))
}

/// Has an object looked at whose namespace is not there yet: whether its kind has such fields, and they are of their types.
/// It is applied with a uid that none has, which is refused once its fields are read and before anything else is looked at
/// (k8s.io/apiserver/pkg/endpoints/handlers/patch.go). Without it, admission waits for 50 ms whether the namespace comes.
async fn check_fields(cluster: &Cluster, path: &str, mut wanted: Map<String, Value>) -> Result<(), Failure> {
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), NOBODY.into());
    }
    match cluster.apply(path, &wanted, ApplyOptions { dry_run: true, force: false }).await {
        Err(CallError::Status(failure)) if failure.is_schema_error() => Err(failure),
        _ => Ok(()),
    }
}

pub(crate) async fn preview(runtime: &KubernetesRuntime, request: &ApplyRequest<'_>) -> Result<Preview, RuntimeError> {
    let (index, target) = runtime.desired_target(request.desired)?;
    let cluster = runtime.cluster(index);
    if cluster.away().is_some() {
        return Ok(Preview::Unverified(unreachable(cluster)));
    }
    let sensitive = Sensitive::of(&request.desired.attributes, &BTreeSet::new());
    let api = match cluster.discover(&target.gvk).await.map_err(|err| err.into_runtime(&cluster.name, &sensitive))? {
        Discovered::Served(api) => api,
        Discovered::NoKind | Discovered::NoVersion => {
            let reason =
                format!("cluster {} does not serve {} {} yet", cluster.name, target.gvk.api_version(), target.gvk.kind);
            return Ok(Preview::Unverified(reason));
        }
    };
    let namespace = target.namespace_in(&api, cluster.default_namespace()).unwrap_or_default();
    let unverified = || Preview::Unverified(format!("namespace {namespace} is not in cluster {} yet", cluster.name));
    let path = cluster.path(&target, &api);
    if runtime.is_missing(index, namespace) {
        let wanted = runtime.owner.marked(&request.desired.attributes);
        return match check_fields(cluster, &path, wanted).await {
            Ok(()) => Ok(unverified()),
            Err(failure) => Err(CallError::Status(failure).into_runtime(&cluster.name, &sensitive)),
        };
    }
    let ignored = ignored(request)?;
    let mut attributes = request.desired.attributes.clone();
    if !ignored.is_empty() {
        // What was read says nothing of who has which field.
        let live = cluster.get(&path).await.map_err(|err| err.into_runtime(&cluster.name, &sensitive))?;
        attributes = live.map_or(attributes.clone(), |live| ignored.applied(attributes, &live, FIELD_MANAGER));
    }
    let wanted = runtime.owner.marked(&attributes);
    match apply_taking(cluster, &path, &wanted, request, true).await {
        Ok((object, conflicts)) if conflicts.is_empty() => Ok(Preview::Changed(without_bookkeeping(object))),
        Ok((object, conflicts)) => Ok(Preview::Contested(without_bookkeeping(object), conflicts)),
        Err(CallError::Status(failure)) if failure.is_immutable() && request.prior.is_some() => {
            if request.desired.is_set(RECREATE) {
                return Ok(Preview::Replaced(None));
            }
            match CallError::Status(failure).into_runtime(&cluster.name, &sensitive) {
                RuntimeError::Rejected { message, field } => {
                    let advice = format!("set {RECREATE}: \"true\" in the resource's extensions or annotations");
                    Err(RuntimeError::Rejected {
                        message: format!(
                            "{message}; to delete the object and make it anew, with what is in it, {advice}"
                        ),
                        field,
                    })
                }
                other => Err(other),
            }
        }
        Err(CallError::Status(failure)) if failure.is_missing_kind() && cluster.forget_older(&target.gvk) => {
            Box::pin(preview(runtime, request)).await
        }
        Err(CallError::Status(failure)) if failure.is_missing_namespace() => {
            runtime.set_missing(index, namespace);
            Ok(unverified())
        }
        Err(CallError::Status(failure)) if failure.is_terminating_namespace() => {
            Ok(Preview::Unverified(format!("namespace {namespace} in cluster {} is being deleted", cluster.name)))
        }
        Err(CallError::Status(failure)) if failure.is_dry_run_unsupported() => {
            Ok(Preview::Unverified(sensitive.redact(&failure.status.message)))
        }
        Err(err) => Err(err.into_runtime(&cluster.name, &sensitive)),
    }
}

pub(crate) async fn apply(runtime: &KubernetesRuntime, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
    let (index, target) = runtime.desired_target(request.desired)?;
    let cluster = runtime.cluster(index);
    let sensitive = Sensitive::of(&request.desired.attributes, &BTreeSet::new());
    let (owner, from) = (&runtime.owner, taken_from(request.desired));
    let ignored = ignored(request)?;
    let (mut waited, mut looks) = (false, 1);
    let (api, object) = loop {
        let api = served(cluster, &target, &sensitive).await?;
        let path = cluster.path(&target, &api);
        let failed = match cluster.get(&path).await {
            Ok(live) => {
                if let Some(live) = &live {
                    RuntimeError::unless_owned(owner, from, live)?;
                    if is_going(live) {
                        // It would go with what is applied to it.
                        let gone = until_gone(cluster, &path, &target, &api, uid(live)).await;
                        gone.map_err(|err| err.into_runtime(&cluster.name, &sensitive))?;
                        continue;
                    }
                }
                let attributes = request.desired.attributes.clone();
                let mut wanted = owner.marked(&match &live {
                    Some(live) => ignored.applied(attributes, live, FIELD_MANAGER),
                    None => attributes,
                });
                // Whoever takes it from here on changes its version, and is seen the next time.
                expect(&mut wanted, live.as_ref());
                match apply_taking(cluster, &path, &wanted, request, false).await {
                    Ok((object, _)) => break (api, object),
                    Err(err) => err,
                }
            }
            Err(err) => err,
        };
        match failed {
            // Discovery knows a new kind a moment before its path is served.
            CallError::Status(failure) if failure.is_missing_kind() && !waited => {
                waited = true;
                cluster.forget(&target.gvk);
            }
            CallError::Status(failure) if failure.is_stale() && looks < LOOKS => looks += 1,
            err => return Err(err.into_runtime(&cluster.name, &sensitive)),
        }
    };
    if target.gvk.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        forget_defined(cluster, &object);
    }
    let applied = applied(cluster, target, &api, object);
    runtime.remember(&request.desired.id, &applied.live);
    Ok(applied)
}

/// The fields that are left to others.
fn ignored(request: &ApplyRequest<'_>) -> Result<Ignored, RuntimeError> {
    Ignored::of(request.desired)
        .map_err(|problem| RuntimeError::Invalid { message: problem.to_string(), field: Some(problem.field) })
}

/// Lets the server take an object only in place of what was seen.
fn expect(wanted: &mut Map<String, Value>, seen: Option<&Map<String, Value>>) {
    let version = seen.and_then(|seen| seen.get("metadata")?.get("resourceVersion")).cloned();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version)));
    }
}

/// The object as it is now, and what Kubernetes calls it.
pub(crate) fn applied(cluster: &Cluster, target: Target, api: &Api, object: Map<String, Value>) -> Applied {
    let namespace = target.namespace_in(api, cluster.default_namespace()).unwrap_or_default().to_owned();
    let kubernetes = Some(KubernetesObject {
        cluster: cluster.name.clone(),
        uid: uid(&object).unwrap_or_default().to_owned(),
        group: target.gvk.group,
        version: target.gvk.version,
        kind: target.gvk.kind,
        namespace,
        name: target.name,
    });
    Applied { live: without_bookkeeping(object), kubernetes }
}

pub(crate) async fn delete(runtime: &KubernetesRuntime, prior: &StateResource) -> Result<Deleted, RuntimeError> {
    let (index, target) = runtime.prior_target(prior)?;
    let cluster = runtime.cluster(index);
    let sensitive = Sensitive::of(&prior.attributes, &BTreeSet::new());
    let explain = |err: CallError| err.into_runtime(&cluster.name, &sensitive);
    // What an earlier run saw may be gone by now.
    let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? else {
        return Ok(Deleted::Gone);
    };
    let path = cluster.path(&target, &api);
    let mut looks = 1;
    let seen = loop {
        let object = match cluster.get(&path).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(Deleted::Gone),
            Err(CallError::Status(failure)) if failure.is_missing_kind() && !cluster.forget_older(&target.gvk) => {
                return Ok(Deleted::Gone);
            }
            Err(CallError::Status(failure)) if failure.is_missing_kind() => {
                return Box::pin(delete(runtime, prior)).await;
            }
            Err(err) => return Err(explain(err)),
        };
        if let Some(other) = runtime.owner.other(&object) {
            return Ok(Deleted::Left(other));
        }
        refuse_another(runtime, cluster, prior, &object)?;
        if is_going(&object) {
            break object;
        }
        match cluster.delete(&path, propagation(&target.gvk), &object).await {
            Ok(()) => break object,
            Err(CallError::Status(failure)) if failure.is_stale() && looks < LOOKS => looks += 1,
            Err(err) => return Err(explain(err)),
        }
    };
    match until_gone(cluster, &path, &target, &api, uid(&seen)).await {
        // Its kind went with it.
        Err(CallError::Status(failure)) if failure.is_missing_kind() => {}
        gone => gone.map_err(|err| explain(err.after_a_call()))?,
    }
    if target.gvk.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        forget_defined(cluster, &prior.attributes);
    }
    Ok(Deleted::Gone)
}

/// Refuses to delete an object that is not the one that is recorded, or that nothing says to be.
fn refuse_another(
    runtime: &KubernetesRuntime,
    cluster: &Cluster,
    prior: &StateResource,
    object: &Map<String, Value>,
) -> Result<(), RuntimeError> {
    match prior.uid() {
        Some(recorded) if uid(object) != Some(recorded) => Err(RuntimeError::Conflict(format!(
            "the object in cluster {} is not the one that was applied (uid {}, recorded {recorded}); delete it by hand, or apply to take it over",
            cluster.name,
            uid(object).unwrap_or_default(),
        ))),
        // Of what went to a repository no uid is known.
        None if !runtime.owner.has(object) => Err(RuntimeError::Conflict(format!(
            "the object in cluster {} has no mark of this deployment, and no uid of it is recorded; delete it by hand, or apply to take it over",
            cluster.name,
        ))),
        Some(_) | None => Ok(()),
    }
}

async fn until_gone(
    cluster: &Arc<Cluster>,
    path: &str,
    target: &Target,
    api: &Api,
    deleted: Option<&str>,
) -> Result<(), CallError> {
    let first = cluster.get(path).await?;
    let mut followed = Followed::new(cluster, target, api, first);
    // Another object of the same name is not the one that was deleted.
    while followed.next().await?.is_some_and(|object| uid(&object) == deleted) {}
    Ok(())
}

/// How a cluster serves a kind that is about to be applied. A kind whose definition is there
/// already is waited for.
async fn served(cluster: &Cluster, target: &Target, sensitive: &Sensitive) -> Result<Api, RuntimeError> {
    let explain = |err: CallError| err.into_runtime(&cluster.name, sensitive);
    if let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? {
        return Ok(api);
    }
    let deadline = tokio::time::Instant::now() + SERVED_WITHIN;
    loop {
        cluster.forget(&target.gvk);
        if let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? {
            return Ok(api);
        }
        if tokio::time::Instant::now() > deadline || !is_defined(cluster, &target.gvk).await.map_err(explain)? {
            return Err(unknown_kind(target, &cluster.name));
        }
        tokio::time::sleep(SERVED_POLL).await;
    }
}

/// Whether a CustomResourceDefinition of the kind is in the cluster.
async fn is_defined(cluster: &Cluster, gvk: &Gvk) -> Result<bool, CallError> {
    let crd = Gvk {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
    };
    let suffix = format!(".{}", gvk.group);
    let found = cluster
        .list(&crd, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &|name| name.ends_with(&suffix))
        .await;
    match found {
        Ok(found) => Ok(found.objects.values().any(|object| {
            let spec = object.get("spec");
            let is = |pointer: &str, wanted: &str| {
                spec.and_then(|s| s.pointer(pointer)).and_then(Value::as_str) == Some(wanted)
            };
            is("/group", &gvk.group) && is("/names/kind", &gvk.kind)
        })),
        // Who may not read definitions hears at once that the kind is not there.
        Err(CallError::Status(failure)) if failure.code == 403 => Ok(false),
        Err(err) => Err(err),
    }
}

fn forget_defined(cluster: &Cluster, crd: &Map<String, Value>) {
    let Some(spec) = crd.get("spec") else { return };
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    for version in spec.get("versions").and_then(Value::as_array).into_iter().flatten() {
        let version = version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        cluster.forget(&Gvk { group: text("/group"), version, kind: text("/names/kind") });
    }
}

/// Owners of pods go after their pods, so that what the pods use can be deleted next; the rest
/// goes at once.
fn propagation(gvk: &Gvk) -> &'static str {
    match gvk.group.as_str() {
        "apps" | "batch" => "Foreground",
        _ => "Background",
    }
}

pub(crate) fn uid(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("uid")?.as_str()
}
