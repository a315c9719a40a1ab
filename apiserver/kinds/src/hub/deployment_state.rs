//! DeploymentState: the version of a workload on a host, computed from a reconciler and the descriptor of its commit.
//!
//! A reconciler and a descriptor belong together by the endpoint of the manifests. Of several descriptors with one endpoint, those
//! count that have the reported commit; where none has it, the newest one. Nothing of this kind is stored.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt as _;
use stoa_controller::object::Kind as AnyKind;
use stoa_machinery::{
    ApiError, Object, ResourceDefinition, Version,
    definition::{Cell, Column, SelectableField},
    registry::{Computed, ListOptions, Stored},
    strategy::DefaultStrategy,
};
use stoa_types::{
    hub::{
        DeploymentDescriptor, DeploymentState, DeploymentStateSpec, DeploymentStateStatus, Reconciler, normal_endpoint,
    },
    names,
};

use super::{deployment_query::namespaces, memory::Hub};
use crate::{
    computed::page,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    rights::{OBJECTS, READ, READERS, right},
    scheduler::assignment::uid,
};

/// The most namespaces whose pairs stay in memory.
const MOST: usize = 64;
/// The state of a deployment without a report.
const UNKNOWN: &str = "unknown";

/// The kind DeploymentState.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, hub, .. }| {
        let states = States { lookup, hub, known: Mutex::default() };
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

/// The states of a namespace.
#[derive(Debug, Default)]
struct OfNamespace {
    /// With their versions, by name: those that do not change are decoded once.
    reconcilers: HashMap<String, (Version, Arc<Reconciler>)>,
    /// In the order of the names of the states.
    pairs: Vec<Pair>,
}

/// A reconciler and a descriptor.
#[derive(Debug)]
struct Pair {
    name: String,
    reconciler: Arc<Reconciler>,
    descriptor: Arc<DeploymentDescriptor>,
}

impl Pair {
    fn state(&self, hub: &Hub, namespace: &str) -> DeploymentState {
        let (reconciler, descriptor) = (self.reconciler.name_any(), self.descriptor.name_any());
        let of = &self.descriptor.spec;
        let mut status = DeploymentStateStatus {
            described_version: of.workload_version.version.clone(),
            state: UNKNOWN.to_owned(),
            last_report_time: hub.last_report(namespace, &reconciler).map(MicroTime),
            ..DeploymentStateStatus::default()
        };
        if let Some(deployment) = self.reconciler.status.as_ref().and_then(|status| status.deployment.as_ref()) {
            let assigned = self.descriptor.status.iter().flat_map(|status| &status.assigned_versions);
            let mut assigned = assigned.filter(|it| it.git_ops_commit_id == deployment.git_ops_commit_id);
            status.version = assigned.next().map(|it| it.version.clone()).unwrap_or_default();
            status.git_ops_commit_id.clone_from(&deployment.git_ops_commit_id);
            status.state = deployment.status.name().to_owned();
            status.message.clone_from(&deployment.status_message);
            status.since = Some(deployment.since.clone());
        }
        let spec = DeploymentStateSpec {
            reconciler,
            descriptor,
            host: self.reconciler.spec.host_name.clone(),
            workspace: of.workload.application.workspace.name.clone(),
            application: of.workload.application.name.clone(),
            workload: of.workload.name.clone(),
            deployment_target: of.deployment_target.name.clone(),
            environment: of.deployment_target.environment.clone(),
        };
        let kind = names::kind::<DeploymentState>();
        let instance = self.reconciler.uid().unwrap_or_default();
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(uid(&[kind, namespace, &self.name, &instance])),
            creation_timestamp: self.reconciler.metadata.creation_timestamp.clone(),
            ..ObjectMeta::default()
        };
        DeploymentState { metadata, spec, status: Some(status) }
    }
}

impl OfNamespace {
    /// Pairs stored objects. One that does not decode takes no part.
    fn new(reconcilers: &[Arc<Stored>], descriptors: &[Arc<Stored>], before: Option<&Self>) -> Self {
        let mut by_endpoint = HashMap::<String, Vec<Arc<DeploymentDescriptor>>>::new();
        for stored in descriptors {
            if let Ok(descriptor) = stored.decode::<DeploymentDescriptor>() {
                by_endpoint.entry(descriptor.spec.endpoint()).or_default().push(Arc::new(descriptor));
            }
        }
        let mut of = Self::default();
        for stored in reconcilers {
            let known = before.and_then(|before| before.reconcilers.get(stored.name()));
            let known = known.filter(|(version, _)| *version == stored.version).map(|(_, known)| known.clone());
            let Some(reconciler) = known.or_else(|| stored.decode().ok().map(Arc::new)) else { continue };
            of.pair(&reconciler, &by_endpoint);
            of.reconcilers.insert(stored.name().to_owned(), (stored.version, reconciler));
        }
        of.pairs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        of
    }

    fn pair(&mut self, reconciler: &Arc<Reconciler>, by_endpoint: &HashMap<String, Vec<Arc<DeploymentDescriptor>>>) {
        let endpoint = normal_endpoint(&reconciler.spec.manifests_endpoint);
        let Some(candidates) = by_endpoint.get(&endpoint) else { return };
        let deployment = reconciler.status.as_ref().and_then(|status| status.deployment.as_ref());
        let has_commit = |descriptor: &&Arc<DeploymentDescriptor>| {
            let assigned = descriptor.status.iter().flat_map(|status| &status.assigned_versions);
            deployment.is_some_and(|of| assigned.into_iter().any(|it| it.git_ops_commit_id == of.git_ops_commit_id))
        };
        let mut found: Vec<&Arc<DeploymentDescriptor>> = candidates.iter().filter(has_commit).collect();
        if found.is_empty() {
            // Of objects of the same second, the last by name.
            let created = |it: &&Arc<DeploymentDescriptor>| (it.metadata.creation_timestamp.clone(), it.name_any());
            found.extend(candidates.iter().max_by_key(created));
        }
        self.pairs.extend(found.into_iter().map(|descriptor| Pair {
            name: format!("{}.{}", reconciler.name_any(), descriptor.name_any()),
            reconciler: reconciler.clone(),
            descriptor: descriptor.clone(),
        }));
    }

    /// A limited number of states after a name.
    fn after(&self, after: Option<&str>, most: usize) -> impl Iterator<Item = &Pair> {
        let start = after.map_or(0, |after| self.pairs.partition_point(|pair| pair.name.as_str() <= after));
        self.pairs[start..].iter().take(most)
    }
}

/// The states of all namespaces.
#[derive(Debug)]
struct States {
    lookup: Lookup,
    hub: Hub,
    /// With the digest of their objects, by namespace.
    known: Mutex<BTreeMap<String, (u64, Arc<OfNamespace>)>>,
}

impl States {
    async fn stored<K: AnyKind>(&self, namespace: Option<&str>) -> Result<Vec<Arc<Stored>>, ApiError> {
        let options = ListOptions { resource_version: Some("0".to_owned()), ..ListOptions::default() };
        Ok(self.lookup.api::<K>()?.store().list(namespace, &options).await?.items)
    }

    async fn of(&self, namespace: &str) -> Result<Arc<OfNamespace>, ApiError> {
        let reconcilers = self.stored::<Reconciler>(Some(namespace)).await?;
        let descriptors = self.stored::<DeploymentDescriptor>(Some(namespace)).await?;
        let mut hasher = DefaultHasher::new();
        for stored in reconcilers.iter().chain(&descriptors) {
            (stored.uid(), stored.version.0).hash(&mut hasher);
        }
        let digest = hasher.finish();
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        if let Some((of, states)) = &before
            && *of == digest
        {
            return Ok(states.clone());
        }
        let before = before.map(|(_, states)| states);
        let computed =
            tokio::task::spawn_blocking(move || OfNamespace::new(&reconcilers, &descriptors, before.as_deref()));
        let computed = computed.await.map_err(|error| ApiError::internal(format_args!("states: {error}")))?;
        let computed = Arc::new(computed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(namespace) {
            known.pop_first();
        }
        known.insert(namespace.to_owned(), (digest, computed.clone()));
        Ok(computed)
    }

    fn object(&self, namespace: &str, pair: &Pair) -> Result<Object, ApiError> {
        Object::from_typed(&pair.state(&self.hub, namespace)).map_err(ApiError::internal)
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
        let states = self.of(namespace).await?;
        let found = states.pairs.binary_search_by(|pair| pair.name.as_str().cmp(name)).ok();
        found.map(|position| self.object(namespace, &states.pairs[position])).transpose()
    }

    async fn page(
        &self,
        namespace: Option<&str>,
        after: Option<(&str, &str)>,
        most: usize,
    ) -> Result<Vec<Object>, ApiError> {
        let of_namespace = move |namespace: String, after: Option<String>, most: usize| async move {
            let states = self.of(&namespace).await?;
            states.after(after.as_deref(), most).map(|pair| self.object(&namespace, pair)).collect()
        };
        page(namespaces(&self.lookup), namespace, after, most, of_namespace).await
    }
}
