//! DeploymentState: the version of a workload on a host, computed from a reconciler and the descriptor of its commit.
//!
//! A reconciler and a descriptor belong together by the endpoint of the manifests. Of several descriptors with one endpoint, those
//! count that have the reported commit; where none has it, the newest one. Nothing of this kind is stored.
//!
//! - `pairs`: the reconcilers and descriptors of a namespace, paired. A change of one costs no more than its own pairs.

mod pairs;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt as _;
use stoa_controller::blocking::on_own_thread;
use stoa_machinery::{
    ApiError, Object, ResourceDefinition, Version,
    definition::{Cell, Column, SelectableField},
    registry::{Changes, Computed, ListOptions, PageRequest},
    strategy::DefaultStrategy,
};
use stoa_types::{
    hub::{DeploymentDescriptor, DeploymentState, DeploymentStateSpec, DeploymentStateStatus, Reconciler},
    names,
};

use self::pairs::{OfNamespace, Pair};
use super::{deployment_query::namespaces, descriptors::of_namespace, memory::Hub};
use crate::{
    computed::page,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    rights::{OBJECTS, READ, READERS, right},
    scheduler::assignment::uid,
};

/// The most namespaces whose pairs stay in memory.
const MOST: usize = 64;
/// The most lists whose pairs stay in memory for their further pages. They share all pairs that did not change.
const LISTS: usize = 64;
/// The state of a deployment without a report.
const UNKNOWN: &str = "unknown";

/// The kind DeploymentState.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, hub, .. }| {
        let states = States { lookup, hub, lists: Mutex::default() };
        builder.register_computed(definition, DefaultStrategy::<DeploymentState>::default(), Arc::new(states))
    },
    rights: &[right(READERS, OBJECTS, READ)],
    ..Kind::of::<DeploymentState>()
};

fn definition() -> ResourceDefinition {
    let mut definition = ResourceDefinition::of::<DeploymentState>()
        .columns(&[
            Column::new("Workload", Cell::Path(&["spec", "workload"]), "The workload."),
            Column::new("Target", Cell::Path(&["spec", "deploymentTarget"]), "The deployment target."),
            Column::new("Environment", Cell::Path(&["spec", "environment"]), "The environment."),
            Column::new("Host", Cell::Path(&["spec", "host"]), "The host."),
            Column::new("Version", Cell::Path(&["status", "version"]), "The version on the host."),
            Column::new("State", Cell::Path(&["status", "state"]), "The state of the version."),
            Column::new("Since", Cell::Age(&["status", "since"]), "The time since the state changed.").kind("date"),
            Column::new("Reported", Cell::Age(&["status", "lastReportTime"]), "The time since the last report.")
                .kind("date")
                .wide(),
            Column::new("Described", Cell::Path(&["status", "describedVersion"]), "The version of the descriptor.")
                .wide(),
            Column::new("Commit", Cell::Path(&["status", "gitOpsCommitId"]), "The reported commit.").wide(),
            Column::new("Message", Cell::Path(&["status", "message"]), "The message of the report.").wide(),
        ])
        .selectable(&[
            SelectableField { name: "spec.reconciler", path: &["spec", "reconciler"] },
            SelectableField { name: "spec.descriptor", path: &["spec", "descriptor"] },
            SelectableField { name: "spec.host", path: &["spec", "host"] },
            SelectableField { name: "spec.workspace", path: &["spec", "workspace"] },
            SelectableField { name: "spec.application", path: &["spec", "application"] },
            SelectableField { name: "spec.workload", path: &["spec", "workload"] },
            SelectableField { name: "spec.deploymentTarget", path: &["spec", "deploymentTarget"] },
            SelectableField { name: "spec.environment", path: &["spec", "environment"] },
            SelectableField { name: "status.state", path: &["status", "state"] },
            SelectableField { name: "status.version", path: &["status", "version"] },
        ]);
    definition.has_status = false;
    definition.verbs = READ.to_vec();
    definition
}

/// The state of a pair.
fn state(pair: &Pair, hub: &Hub, (namespace, name): (&str, &str)) -> DeploymentState {
    let (reconciler, descriptor) = (pair.reconciler.name(), pair.descriptor.name_any());
    let of = &pair.descriptor.spec;
    let mut status = DeploymentStateStatus {
        described_version: of.workload_version.version.clone(),
        state: UNKNOWN.to_owned(),
        last_report_time: hub.last_report(namespace, reconciler).map(MicroTime),
        ..DeploymentStateStatus::default()
    };
    if let Some(deployment) = pair.reconciler.deployment() {
        let assigned = pair.descriptor.status.iter().flat_map(|status| &status.assigned_versions);
        let mut assigned = assigned.filter(|it| it.git_ops_commit_id == deployment.git_ops_commit_id);
        status.version = assigned.next().map(|it| it.version.clone()).unwrap_or_default();
        status.git_ops_commit_id.clone_from(&deployment.git_ops_commit_id);
        status.state = deployment.status.name().to_owned();
        status.message.clone_from(&deployment.status_message);
        status.since = Some(deployment.since.clone());
    }
    let spec = DeploymentStateSpec {
        reconciler: reconciler.to_owned(),
        descriptor,
        host: pair.reconciler.host().to_owned(),
        workspace: of.workload.application.workspace.name.clone(),
        application: of.workload.application.name.clone(),
        workload: of.workload.name.clone(),
        deployment_target: of.deployment_target.name.clone(),
        environment: of.deployment_target.environment.clone(),
    };
    let kind = names::kind::<DeploymentState>();
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        uid: Some(uid(&[kind, namespace, name, pair.reconciler.uid()])),
        creation_timestamp: pair.reconciler.created().cloned(),
        ..ObjectMeta::default()
    };
    DeploymentState { metadata, spec, status: Some(status) }
}

/// The pairs of the namespaces that somebody asked for, with the versions to which they are known.
#[derive(Debug, Default)]
pub(super) struct KnownPairs(Mutex<BTreeMap<String, (Version, Arc<OfNamespace>)>>);

impl KnownPairs {
    /// The pairs of a namespace, as the watch cache has them.
    async fn of(&self, hub: &Hub, lookup: &Lookup, namespace: &str) -> Result<Arc<OfNamespace>, ApiError> {
        let store = lookup.api::<Reconciler>()?.store().clone();
        let descriptors = hub.descriptors(lookup, namespace).await?;
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        let changes = before.as_ref().and_then(|(version, _)| store.changes_after(*version));
        let (version, before, changed, deleted) = match (before, changes) {
            (Some((_, before)), Some(Changes { version, changed, deleted })) => {
                (version, before, of_namespace(changed, namespace), of_namespace(deleted, namespace))
            }
            _ => {
                let options = ListOptions { resource_version: Some("0".to_owned()), ..ListOptions::default() };
                let list = store.list(Some(namespace), &options).await?;
                (list.version, Arc::default(), list.items, Vec::new())
            }
        };
        let pairs = match changed.is_empty() && deleted.is_empty() && before.is_of(&descriptors) {
            true => before,
            false => Arc::new(on_own_thread(move || before.next(&changed, &deleted, descriptors)).await),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(namespace) {
            known.pop_first();
        }
        known.insert(namespace.to_owned(), (version, pairs.clone()));
        Ok(pairs)
    }
}

impl Hub {
    /// Hands all states of a namespace, as the watch cache has them, to a function, in the order of their names.
    ///
    /// # Errors
    ///
    /// 503 while the server has not loaded them yet.
    pub async fn fold_states<T: Send + 'static>(
        &self,
        lookup: &Lookup,
        namespace: &str,
        mut folded: T,
        add: fn(&mut T, DeploymentState),
    ) -> Result<T, ApiError> {
        let pairs = self.pairs().of(self, lookup, namespace).await?;
        let (hub, namespace) = (self.clone(), namespace.to_owned());
        let fold = move || {
            for (name, pair) in pairs.after(None) {
                add(&mut folded, state(pair, &hub, (namespace.as_str(), name.as_str())));
            }
            folded
        };
        Ok(on_own_thread(fold).await)
    }
}

/// The pairs that a list began with, and the versions between which they did not change.
#[derive(Debug)]
struct Remembered {
    namespace: String,
    versions: (Version, Version),
    pairs: Arc<OfNamespace>,
}

impl Remembered {
    fn is_at(&self, version: Version) -> bool {
        self.versions.0 <= version && version <= self.versions.1
    }
}

/// The states of all namespaces.
#[derive(Debug)]
struct States {
    lookup: Lookup,
    hub: Hub,
    /// The last lists, the newest last.
    lists: Mutex<VecDeque<Remembered>>,
}

impl States {
    fn lists(&self) -> MutexGuard<'_, VecDeque<Remembered>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pairs that a list at a version began with; where it begins now, those of now.
    async fn of_list(&self, namespace: &str, version: Version) -> Result<Arc<OfNamespace>, ApiError> {
        let is_of = |list: &&Remembered| list.namespace == namespace && list.is_at(version);
        let remembered = self.lists().iter().find(is_of).map(|list| list.pairs.clone());
        if let Some(pairs) = remembered {
            return Ok(pairs);
        }
        let pairs = self.hub.pairs().of(&self.hub, &self.lookup, namespace).await?;
        let mut lists = self.lists();
        // Another reader of the same version may have been faster, and both show the same states.
        if let Some(list) = lists.iter().find(is_of) {
            return Ok(list.pairs.clone());
        }
        let newest = lists.iter_mut().rev().find(|list| list.namespace == namespace);
        match newest.filter(|newest| Arc::ptr_eq(&newest.pairs, &pairs)) {
            Some(newest) => {
                let (from, to) = newest.versions;
                newest.versions = (from.min(version), to.max(version));
            }
            None => {
                if lists.len() >= LISTS {
                    lists.pop_front();
                }
                let namespace = namespace.to_owned();
                lists.push_back(Remembered { namespace, versions: (version, version), pairs: pairs.clone() });
            }
        }
        Ok(pairs)
    }

    fn object(&self, namespace: &str, name: &str, pair: &Pair) -> Result<Object, ApiError> {
        Object::from_typed(&state(pair, &self.hub, (namespace, name))).map_err(ApiError::internal)
    }
}

#[async_trait]
impl Computed for States {
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let group = names::group::<Reconciler>();
        let version = names::version::<Reconciler>();
        vec![(group, version, names::plural::<Reconciler>()), (group, version, names::plural::<DeploymentDescriptor>())]
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        let states = self.hub.pairs().of(&self.hub, &self.lookup, namespace).await?;
        states.get(name).map(|pair| self.object(namespace, name, pair)).transpose()
    }

    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError> {
        let version = request.version;
        let of_namespace = move |namespace: String, after: Option<String>, most: usize| async move {
            let states = self.of_list(&namespace, version).await?;
            states.after(after.as_deref()).take(most).map(|(name, pair)| self.object(&namespace, name, pair)).collect()
        };
        page(|| namespaces(&self.lookup), request, of_namespace).await
    }

    async fn remembers(&self, namespace: Option<&str>, version: Version) -> bool {
        let is_wanted = |list: &Remembered| namespace.is_none_or(|of| of.is_empty() || of == list.namespace);
        self.lists().iter().any(|list| is_wanted(list) && list.is_at(version))
    }

    async fn remembers_all(&self, namespace: Option<&str>, version: Version) -> bool {
        if namespace.is_some_and(|of| !of.is_empty()) {
            return self.remembers(namespace, version).await;
        }
        // A namespace that is new, or that has no states any more, would be passed over without an event.
        let Ok(now) = namespaces(&self.lookup) else { return false };
        let lists = self.lists();
        let at_version: Vec<&Remembered> = lists.iter().filter(|list| list.is_at(version)).collect();
        let is_listed = |namespace: &String| at_version.iter().any(|list| list.namespace == *namespace);
        let is_current = |list: &&Remembered| list.pairs.is_empty() || now.contains(&list.namespace);
        now.iter().all(is_listed) && at_version.iter().all(is_current)
    }
}

#[cfg(test)]
mod tests;
