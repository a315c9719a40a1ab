//! Changes objects: previews and applies by server-side apply, deletes and waits until gone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::object::without_bookkeeping;
use stoa_engine::{Sensitive, StateResource};
use stoa_runtime::{Applied, ApplyRequest, KubernetesObject, Preview, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::{ApplyOptions, Cluster, Discovered};
use crate::error::CallError;
use crate::read::unknown_kind;
use crate::target::{Api, Gvk, Target};
use crate::watch::{Seen, follow};

/// How long a kind may take from its definition being there to being served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const SERVED_POLL: Duration = Duration::from_millis(200);

/// Fields of other managers are taken only for what is recorded as ours. What is created or taken
/// over says whom it would take them from.
fn force(request: &ApplyRequest<'_>) -> bool {
    request.prior.is_some() && !request.adopt
}

pub(crate) async fn preview(runtime: &KubernetesRuntime, request: &ApplyRequest<'_>) -> Result<Preview, RuntimeError> {
    let (index, target) = runtime.desired_target(request.desired)?;
    let cluster = runtime.cluster(index);
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
    if runtime.is_missing(index, namespace) {
        return Ok(unverified());
    }
    let options = ApplyOptions { dry_run: true, force: force(request) };
    match cluster.apply(&cluster.path(&target, &api), &request.desired.attributes, options).await {
        Ok(object) => Ok(Preview::Changed(without_bookkeeping(object))),
        Err(CallError::Status(failure)) if failure.is_missing_namespace() => {
            runtime.set_missing(index, namespace);
            Ok(unverified())
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
    let options = ApplyOptions { dry_run: false, force: force(request) };
    let mut waited = false;
    let (api, object) = loop {
        let api = served(cluster, &target, &sensitive).await?;
        match cluster.apply(&cluster.path(&target, &api), &request.desired.attributes, options).await {
            Ok(object) => break (api, object),
            // Discovery knows a new kind a moment before its path is served.
            Err(CallError::Status(failure)) if failure.is_missing_kind() && !waited => {
                waited = true;
                cluster.forget(&target.gvk);
            }
            Err(err) => return Err(err.into_runtime(&cluster.name, &sensitive)),
        }
    };
    if target.gvk.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        forget_defined(cluster, &object);
    }
    let applied = applied(cluster, target, &api, object);
    runtime.remember(&request.desired.id, &applied.live);
    Ok(applied)
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

pub(crate) async fn delete(runtime: &KubernetesRuntime, prior: &StateResource) -> Result<(), RuntimeError> {
    let (index, target) = runtime.prior_target(prior)?;
    let cluster = runtime.cluster(index);
    let sensitive = Sensitive::of(&prior.attributes, &BTreeSet::new());
    let explain = |err: CallError| err.into_runtime(&cluster.name, &sensitive);
    // What an earlier run saw may be gone by now.
    let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? else { return Ok(()) };
    let path = cluster.path(&target, &api);
    let recorded = prior.uid();
    match cluster.delete(&path, propagation(&target.gvk), recorded).await {
        Ok(()) => {}
        Err(CallError::Status(failure)) if failure.is_missing_kind() => return Ok(()),
        Err(CallError::Status(failure)) if failure.code == 409 && recorded.is_some() => {
            return resolve_conflict(cluster, &path, recorded).await.map_err(explain)?.map_or(Ok(()), Err);
        }
        Err(err) => return Err(explain(err)),
    }
    until_gone(cluster, &path, &target, &api, recorded).await.map_err(explain)?;
    if target.gvk.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        forget_defined(cluster, &prior.attributes);
    }
    Ok(())
}

/// Why a deletion with a precondition was refused; `None` when the object went meanwhile.
async fn resolve_conflict(
    cluster: &Cluster,
    path: &str,
    recorded: Option<&str>,
) -> Result<Option<RuntimeError>, CallError> {
    let Some(object) = cluster.get(path).await? else { return Ok(None) };
    Ok(Some(if uid(&object) == recorded {
        RuntimeError::Unavailable {
            message: format!("cluster {}: the object changed while it was deleted", cluster.name),
        }
    } else {
        RuntimeError::Conflict(format!(
            "the object in cluster {} is not the one that was applied (uid {}, recorded {}); delete it by hand, or apply to take it over",
            cluster.name,
            uid(&object).unwrap_or_default(),
            recorded.unwrap_or_default()
        ))
    }))
}

async fn until_gone(
    cluster: &Cluster,
    path: &str,
    target: &Target,
    api: &Api,
    recorded: Option<&str>,
) -> Result<(), CallError> {
    let first = cluster.get(path).await?;
    let mut deleted = recorded.map(str::to_owned);
    follow(cluster, target, api, first, |seen| match seen {
        Seen::Gone => Some(()),
        Seen::Object(object) => {
            let uid = uid(object).map(str::to_owned);
            let known = deleted.get_or_insert_with(|| uid.clone().unwrap_or_default());
            // Another object of the same name is not the one that was deleted.
            (uid.as_ref() != Some(known)).then_some(())
        }
    })
    .await
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
        Ok(found) => Ok(found.values().any(|object| {
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
