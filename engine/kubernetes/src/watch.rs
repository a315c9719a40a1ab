//! Follows one object by watching it, and waits for its health.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use http::Request;
use kube::core::WatchEvent;
use serde_json::{Map, Value};
use stoa_engine::{Resource, Sensitive};
use stoa_runtime::{Health, HealthReport, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::{Cluster, Discovered};
use crate::error::CallError;
use crate::kstatus;
use crate::target::{Api, Target, collection_path};

/// How long one watch lasts before it is renewed.
const WATCH: Duration = Duration::from_secs(290);
/// A connection that says nothing for this long past the end of its watch is dead.
const GRACE: Duration = Duration::from_secs(15);
/// Between two tries of a watch that the server ended at once.
const AGAIN: Duration = Duration::from_millis(500);

/// What a watch shows.
pub(crate) enum Seen<'a> {
    Object(&'a Map<String, Value>),
    Gone,
}

/// Shows every state of an object, beginning with `first`, until `judge` gives an answer.
pub(crate) async fn follow<T>(
    cluster: &Cluster,
    target: &Target,
    api: &Api,
    first: Option<Map<String, Value>>,
    mut judge: impl FnMut(Seen<'_>) -> Option<T>,
) -> Result<T, CallError> {
    let mut latest = first;
    loop {
        if let Some(answer) = judge(latest.as_ref().map_or(Seen::Gone, Seen::Object)) {
            return Ok(answer);
        }
        let since = latest.as_ref().and_then(resource_version).unwrap_or_default().to_owned();
        let started = tokio::time::Instant::now();
        if let Some(answer) = watch(cluster, target, api, &since, &mut judge).await? {
            return Ok(answer);
        }
        if started.elapsed() < AGAIN {
            tokio::time::sleep(AGAIN).await;
        }
        // The watch ended, or its version is too old: look again and go on from there.
        latest = cluster.get(&cluster.path(target, api)).await?;
    }
}

/// One watch; `None` when it ends without an answer.
async fn watch<T>(
    cluster: &Cluster,
    target: &Target,
    api: &Api,
    since: &str,
    judge: &mut impl FnMut(Seen<'_>) -> Option<T>,
) -> Result<Option<T>, CallError> {
    let collection = collection_path(&target.gvk, api, target.namespace_in(api, cluster.default_namespace()));
    let path = format!(
        "{collection}?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3D{}&resourceVersion={since}&timeoutSeconds={}",
        target.name,
        WATCH.as_secs()
    );
    let request = Request::get(path).body(Vec::new()).map_err(|err| CallError::Unreachable(err.to_string()))?;
    let events = match cluster.client().request_events::<Map<String, Value>>(request).await {
        Ok(events) => events,
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    let mut events = std::pin::pin!(events);
    loop {
        let Ok(event) = tokio::time::timeout(WATCH + GRACE, events.try_next()).await else { return Ok(None) };
        let answer = match event {
            Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => judge(Seen::Object(&object)),
            Ok(Some(WatchEvent::Deleted(_))) => judge(Seen::Gone),
            Ok(Some(WatchEvent::Bookmark(_))) => None,
            // Whatever ended it, looking again says what is true now.
            Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => return Ok(None),
        };
        if answer.is_some() {
            return Ok(answer);
        }
    }
}

fn resource_version(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("resourceVersion")?.as_str()
}

pub(crate) async fn wait_healthy(
    runtime: &KubernetesRuntime,
    desired: &Resource,
    report: &HealthReport<'_>,
) -> Result<Health, RuntimeError> {
    let (index, target) = runtime.desired_target(desired)?;
    let cluster = runtime.cluster(index);
    let applied = runtime.take_remembered(&desired.id);
    if kstatus::is_current_at_once(&target.gvk) {
        report(Health::Current, "it is there");
        return Ok(Health::Current);
    }
    let sensitive = Sensitive::of(&desired.attributes, &BTreeSet::new());
    let explain = |err: CallError| err.into_runtime(&cluster.name, &sensitive);
    let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? else {
        return Err(crate::read::unknown_kind(&target, &cluster.name));
    };
    let first = match applied {
        Some(object) => Some(object),
        None => cluster.get(&cluster.path(&target, &api)).await.map_err(explain)?,
    };
    if let Some(object) = &first
        && let Some(message) = waits_for_consumer(cluster, &target, object).await
    {
        report(Health::Current, &message);
        return Ok(Health::Current);
    }
    let mut last = None;
    follow(cluster, &target, &api, first, |seen| {
        let verdict = match seen {
            Seen::Object(object) => kstatus::health(&target.gvk, object),
            Seen::Gone => (Health::Failed, "it was deleted meanwhile".to_owned()),
        };
        if last.as_ref() != Some(&verdict) {
            report(verdict.0, &verdict.1);
            last = Some(verdict.clone());
        }
        matches!(verdict.0, Health::Current | Health::Failed).then_some(verdict.0)
    })
    .await
    .map_err(explain)
}

/// A claim of a class that binds on first use stays pending until something uses it. Waiting for
/// it before its users start would be waiting for ever.
async fn waits_for_consumer(cluster: &Cluster, target: &Target, claim: &Map<String, Value>) -> Option<String> {
    if !target.gvk.is("", "PersistentVolumeClaim") {
        return None;
    }
    let class = claim.get("spec")?.get("storageClassName")?.as_str().filter(|class| !class.is_empty())?;
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    // Whoever may not read the class waits for the claim to be bound.
    let object = cluster.get(&path).await.ok()??;
    let mode = object.get("volumeBindingMode")?.as_str()?;
    (mode == "WaitForFirstConsumer").then(|| format!("storage class {class} binds it on first use"))
}
