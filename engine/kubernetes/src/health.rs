//! Waits for the health of an object, by following it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use stoa_engine::{Problem, Resource, Sensitive};
use stoa_runtime::{Health, HealthReport, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::{Cluster, Discovered};
use crate::error::CallError;
use crate::kstatus;
use crate::policy::HealthPolicy;
use crate::target::Target;
use crate::watch::Followed;

pub(crate) async fn wait_healthy(
    runtime: &KubernetesRuntime,
    desired: &Resource,
    report: &HealthReport<'_>,
) -> Result<Health, RuntimeError> {
    let (index, target) = runtime.desired_target(desired)?;
    let cluster = runtime.cluster(index);
    let applied = runtime.take_remembered(&desired.id);
    let own = HealthPolicy::of(desired).map_err(refused)?;
    let policy = own.as_ref().or_else(|| runtime.policies.of(&target.gvk));
    if policy.is_none() && kstatus::is_current_at_once(&target.gvk) {
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
        && policy.is_none()
        && let Some(message) = waits_for_consumer(cluster, &target, object).await
    {
        report(Health::Current, &message);
        return Ok(Health::Current);
    }
    let mut followed = Followed::new(cluster, &target, &api, first);
    let mut last = None;
    loop {
        let (health, message) = match followed.next().await.map_err(explain)? {
            Some(object) => match policy {
                Some(policy) => policy.health(&target.gvk, &object).await,
                None => kstatus::health(&target.gvk, &object),
            },
            None => (Health::Failed, "it was deleted meanwhile".to_owned()),
        };
        if last.as_ref() != Some(&(health, message.clone())) {
            report(health, &message);
            last = Some((health, message));
        }
        if matches!(health, Health::Current | Health::Failed) {
            return Ok(health);
        }
    }
}

/// A policy that could be read when the Spec was, and cannot be now.
fn refused(problems: Vec<Problem>) -> RuntimeError {
    let first = problems.into_iter().next();
    let (message, field) = first.map(|problem| (problem.message, problem.field)).unwrap_or_default();
    RuntimeError::Invalid { message, field: Some(field) }
}

/// A claim of a class that binds on first use stays pending until something uses it. Waiting for
/// it before its users start would be waiting for ever.
async fn waits_for_consumer(cluster: &Arc<Cluster>, target: &Target, claim: &Map<String, Value>) -> Option<String> {
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
