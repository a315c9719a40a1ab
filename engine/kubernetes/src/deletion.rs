//! Deletion of objects, and the wait until they are deleted.
//!
//! As in `write`, an object is read first, and its uid and version are preconditions of its deletion.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::object::{is_terminating, uid_of};
use stoa_engine::owner::{LeftAlone, MARK};
use stoa_engine::{Sensitive, StateResource};
use stoa_kubernetes_model::Cascade;
use stoa_runtime::{Deleted, DeletionReport, KubernetesObject, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::Cluster;
use crate::error::CallError;
use crate::foreign_contents;
use crate::kinds::{Known, find_in_any_version, forget_defined};
use crate::pending_calls::PendingCall;
use crate::target::{Api, Gvk, Target};
use crate::watch::Followed;
use crate::write::{READS, called};

/// The maximum number of discoveries for a kind that is not served as discovered.
const TURNS: u32 = 3;
/// The pause before the discovery of a kind is repeated that is not served as discovered.
const OUTDATED: Duration = Duration::from_secs(1);

pub(crate) async fn delete(runtime: &KubernetesRuntime, prior: &StateResource) -> Result<Deleted, RuntimeError> {
    let (index, target) = runtime.prior_target(prior)?;
    let cluster = runtime.cluster(index);
    let sensitive = Sensitive::of(&prior.attributes, &BTreeSet::new());
    let (mut versions, mut ours) = (Versions::of(cluster, &target, sensitive, false), None);
    let mut deleted = Deleted::Gone;
    while let Some(served) = versions.next().await? {
        if let Some(here) = delete_served(runtime, prior, &served, &mut ours, &versions).await? {
            deleted = here;
            break;
        }
    }
    if is_definition(&target.gvk) && !matches!(deleted, Deleted::Left(_)) {
        forget_defined(cluster, &prior.attributes);
    }
    Ok(deleted)
}

/// Waits until the object of this uid is deleted, and reports what the deletion waits for.
pub(crate) async fn wait_deleted(
    runtime: &KubernetesRuntime,
    object: &KubernetesObject,
    report: &DeletionReport<'_>,
) -> Result<(), RuntimeError> {
    let (index, target) = runtime.target_called(object)?;
    let cluster = runtime.cluster(index);
    let mut versions = Versions::of(cluster, &target, Sensitive::default(), true);
    while let Some(served) = versions.next().await? {
        match until_deleted(&served, &object.uid, report).await {
            Ok(()) => break,
            // It may be there in another version.
            Err(CallError::Status(failure)) if failure.is_missing_kind() => {}
            Err(err) => return Err(versions.explain(err)),
        }
    }
    // A definition is named `<plural>.<group>`, and may be deleted before it was read.
    if let Some((_, group)) = target.name.split_once('.').filter(|_| is_definition(&target.gvk)) {
        cluster.forget_group(group);
    }
    Ok(())
}

fn is_definition(gvk: &Gvk) -> bool {
    gvk.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// How an object is addressed.
struct Served<'a> {
    cluster: &'a Arc<Cluster>,
    target: Target,
    api: Api,
}

/// The versions that a cluster may serve an object in, one after the other: the discovery may be outdated, or the
/// definition may be deleted with the object.
struct Versions<'a> {
    cluster: &'a Arc<Cluster>,
    target: &'a Target,
    /// No text is redacted.
    sensitive: Sensitive,
    /// Whether a request was sent already.
    has_called: bool,
    last: Option<Gvk>,
    turns: u32,
}

impl<'a> Versions<'a> {
    fn of(cluster: &'a Arc<Cluster>, target: &'a Target, sensitive: Sensitive, has_called: bool) -> Self {
        Self { cluster, target, sensitive, has_called, last: None, turns: 0 }
    }

    /// The next version; `None` without one, so that the object is deleted.
    async fn next(&mut self) -> Result<Option<Served<'a>>, RuntimeError> {
        let Self { cluster, target, .. } = *self;
        if let Some(outdated) = self.last.take() {
            self.has_called = true;
            if self.turns > TURNS {
                let Gvk { kind, .. } = &outdated;
                let version = outdated.api_version();
                let message =
                    format!("cluster {} lists {version} {kind} in discovery but does not serve it", cluster.name);
                return Err(RuntimeError::Unavailable { message });
            }
            if self.turns > 1 {
                // The discovery is recent and still outdated.
                tokio::time::sleep(OUTDATED).await;
            }
            cluster.forget(&outdated);
        }
        let known = find_in_any_version(cluster, &target.gvk).await.map_err(|err| self.unread(self.explain(err)))?;
        self.turns += 1;
        let Known::Served(gvk, api) = known else { return Ok(None) };
        self.last = Some(gvk.clone());
        Ok(Some(Served { cluster, target: Target { gvk, ..target.clone() }, api }))
    }

    fn explain(&self, err: CallError) -> RuntimeError {
        let err = if self.has_called { err.after_a_call() } else { err };
        err.into_runtime(&self.cluster.name, &self.sensitive)
    }

    /// The error of a failed read.
    fn unread(&self, error: RuntimeError) -> RuntimeError {
        if self.has_called { error } else { error.before_a_change() }
    }
}

/// Deletes an object in one version. `None` when it is not served so, or is deleted. `ours` is its uid after the first
/// read.
async fn delete_served(
    runtime: &KubernetesRuntime,
    prior: &StateResource,
    served: &Served<'_>,
    ours: &mut Option<String>,
    versions: &Versions<'_>,
) -> Result<Option<Deleted>, RuntimeError> {
    let Served { cluster, target, api } = served;
    let path = cluster.path(target, api);
    let mut looks = 1;
    loop {
        let object = match cluster.get(&path).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(Some(Deleted::Gone)),
            Err(CallError::Status(failure)) if failure.is_missing_kind() => return Ok(None),
            Err(err) => return Err(versions.unread(versions.explain(err))),
        };
        // The object was deleted since the read, and another one has its name.
        if ours.as_deref().is_some_and(|ours| uid_of(&object) != Some(ours)) {
            return Ok(Some(Deleted::Gone));
        }
        if let Some(other) = runtime.owner.other(&object) {
            return Ok(Some(Deleted::Left(LeftAlone::Owned(other))));
        }
        if runtime.owner.is_recreated(prior, &object) {
            return Ok(Some(Deleted::Left(LeftAlone::Recreated)));
        }
        refuse_another(runtime, cluster, prior, &object)?;
        *ours = uid_of(&object).map(str::to_owned);
        let going = || Deleted::Terminating(Box::new(called(cluster, target.clone(), api, &object)));
        if is_terminating(&object) {
            return Ok(Some(going()));
        }
        reject_foreign_contents(runtime, cluster, prior, &object).await.map_err(|error| versions.unread(error))?;
        match cluster.delete(&path, propagation(&target.gvk), &object).await {
            Ok(()) => {}
            Err(CallError::Status(failure)) if failure.is_stale() && looks < READS => {
                looks += 1;
                continue;
            }
            Err(CallError::Status(failure)) if failure.is_missing_kind() => return Ok(None),
            Err(err) => return Err(versions.explain(err)),
        }
        // Most objects are deleted at once.
        return match cluster.get(&path).await {
            Ok(left) if left.as_ref().and_then(uid_of) == uid_of(&object) => Ok(Some(going())),
            Ok(_) => Ok(Some(Deleted::Gone)),
            Err(CallError::Status(failure)) if failure.is_missing_kind() => Ok(None),
            Err(err) => Err(versions.explain(err.after_a_call())),
        };
    }
}

/// Rejects a deletion with foreign contents. Objects that are created between this check and the deletion are not
/// found.
async fn reject_foreign_contents(
    runtime: &KubernetesRuntime,
    cluster: &Cluster,
    prior: &StateResource,
    object: &Map<String, Value>,
) -> Result<(), RuntimeError> {
    let Some(contents) = Cascade::of(prior, Some(object)) else { return Ok(()) };
    let held = foreign_contents::find_in(runtime, cluster, &contents).await?;
    for warning in held.warnings(&prior.id) {
        tracing::warn!("{warning}");
    }
    held.refusal(prior).map_or(Ok(()), |refusal| Err(RuntimeError::ForeignContents(refusal)))
}

/// Rejects the deletion of an object that is not the recorded one.
fn refuse_another(
    runtime: &KubernetesRuntime,
    cluster: &Cluster,
    prior: &StateResource,
    object: &Map<String, Value>,
) -> Result<(), RuntimeError> {
    match prior.uid() {
        Some(recorded) if uid_of(object) != Some(recorded) => Err(RuntimeError::Conflict(format!(
            "the object in cluster {} has uid {}, not the recorded {recorded}, but this deployment owns it; delete \
             it by hand, or remove its annotation {MARK} to keep it",
            cluster.name,
            uid_of(object).unwrap_or_default(),
        ))),
        // An object that was deployed through Git has no recorded uid.
        None if !runtime.owner.has(object) => Err(RuntimeError::Conflict(format!(
            "the object in cluster {} has no owner annotation and no recorded uid; delete it by hand, or apply to \
             take it over",
            cluster.name,
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Follows an object until it is not there any more, or another has its name.
async fn until_deleted(served: &Served<'_>, deleted: &str, report: &DeletionReport<'_>) -> Result<(), CallError> {
    let Served { cluster, target, api } = served;
    let first = cluster.get(&cluster.path(target, api)).await?;
    let mut followed = Followed::new(cluster, target, api, first);
    let is_it = |object: &Map<String, Value>| uid_of(object).unwrap_or_default() == deleted;
    let mut waited_for: Option<PendingCall> = None;
    while let Some(object) = followed.next().await?.filter(|object| is_it(object)) {
        let message = pending_message(target, &object);
        report(&format!("cluster {}: {message}", cluster.name));
        match &waited_for {
            None => waited_for = Some(cluster.going.begin(message)),
            Some(asked) => asked.update(message),
        }
    }
    Ok(())
}

/// The message about a terminating object.
fn pending_message(target: &Target, object: &Map<String, Value>) -> String {
    let Target { gvk: Gvk { kind, .. }, namespace, name, .. } = target;
    let place = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let finalizers = object.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    let finalizers: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
    match finalizers.as_slice() {
        [] => format!("{kind} {place}{name} is being deleted"),
        [one] => format!("{kind} {place}{name} is being deleted and waits for finalizer {one}"),
        several => format!("{kind} {place}{name} is being deleted and waits for finalizers {}", several.join(", ")),
    }
}

/// Owners of Pods are deleted after their Pods, so that the Pods' dependencies can be deleted next; other objects are
/// deleted at once.
fn propagation(gvk: &Gvk) -> &'static str {
    match gvk.group.as_str() {
        "apps" | "batch" => "Foreground",
        _ => "Background",
    }
}
