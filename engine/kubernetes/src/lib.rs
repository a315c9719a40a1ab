//! The Kubernetes runtime: applies objects to clusters by server-side apply.
//!
//! Start at [`KubernetesRuntime`]. Reads are one LIST for each kind and namespace (`read`). Changes are server-side
//! applies under the field manager `stoa` with the owner annotation (`write`), or recreations (`replace`). Health
//! follows kstatus, or the resource's own policy, by watches (`health`, `watch`, `kstatus`, `policy`). Served kinds
//! (`discovery`) may change meanwhile (`kinds`). Objects of other owners are listed before a deletion
//! (`foreign_contents`). Calls wait for [limits](KubernetesRuntime::limited), and for the `Retry-After` of a 429
//! answer.
//!
//! **Invariant:** no message holds a value of a Secret, nor one of a kubeconfig but the address of its server.

mod absent_jobs;
mod body;
mod capabilities;
mod cluster;
mod connect;
mod connections;
mod deletion;
mod diagnosis;
mod discovery;
mod error;
mod field_ownership;
mod field_step;
mod foreign_contents;
mod health;
mod kinds;
mod kstatus;
mod lists;
mod namespaces;
mod object;
mod pending_calls;
mod policy;
mod read;
mod replace;
mod served;
mod target;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transport;
mod verdict;
mod watch;
mod webhooks;
mod write;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::is_terminating;
use stoa_engine::{Clusters, KindRules, Owner, Resource, ResourceId, Schemas, StateResource};
use stoa_kubernetes_model::{Cascade, KubernetesRules, UnlistedContents, scopes};
use stoa_runtime::{
    Applied, ApplyRequest, CallLimits, Caller, Deleted, DeletionReport, DeletionVerdict, Finished, Found, Grant,
    Health, HealthReport, JobEnd, KubernetesChecks, KubernetesObject, Live, Preview, ReadRequest, Runtime,
    RuntimeError, TERMINATING,
};

pub use crate::capabilities::Capabilities;
use crate::cluster::Cluster;
pub use crate::connect::{Access, ClusterConfig};
pub use crate::connections::Connections;
use crate::namespaces::Namespaces;
pub use crate::object::ObjectName;
use crate::policy::KindPolicies;
#[cfg(feature = "fuzzing")]
pub use crate::policy::fuzzing;
pub use crate::policy::{KindHealth, check_health_policies};
use crate::target::{Target, invalid};

/// Drives the objects of one workspace's clusters.
///
/// The extension `cluster` of a resource (or Kusion's `kubeConfig`) names its target cluster. Without it, the resource
/// goes to the first one.
#[derive(Debug)]
pub struct KubernetesRuntime {
    clusters: Vec<Arc<Cluster>>,
    names: Clusters,
    owner: Owner,
    /// Objects as an apply left them, until their health is waited for: saves reading them again.
    applied: Mutex<HashMap<ResourceId, Map<String, Value>>>,
    /// Jobs that were seen to finish, and that Kubernetes deletes then.
    finished: Mutex<HashSet<ResourceId>>,
    namespaces: Namespaces,
    /// Health policies for objects whose resources have none.
    policies: KindPolicies,
    /// The policy for foreign contents that cannot be listed.
    unlisted: UnlistedContents,
}

impl KubernetesRuntime {
    /// Creates the clients of the clusters for a run of the deployment `owner`, without a connection. The first cluster
    /// is the default.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Invalid`] when there is no cluster, two have one name, or a kubeconfig cannot be used.
    pub async fn new(configs: &[ClusterConfig], owner: Owner) -> Result<Self, RuntimeError> {
        Self::over(&Connections::default(), configs, owner).await
    }

    /// The same with pooled connections.
    pub async fn over(
        connections: &Connections,
        configs: &[ClusterConfig],
        owner: Owner,
    ) -> Result<Self, RuntimeError> {
        if configs.is_empty() {
            return Err(invalid("must have at least one cluster", "spec.kubernetes.clusters"));
        }
        let mut clusters: Vec<Arc<Cluster>> = Vec::with_capacity(configs.len());
        for config in configs {
            if clusters.iter().any(|cluster| cluster.name == config.name) {
                return Err(invalid(
                    &format!("two clusters have the name {:?}", config.name),
                    "spec.kubernetes.clusters",
                ));
            }
            clusters.push(Arc::new(config.connect(connections).await?));
        }
        Ok(Self::of(clusters, owner))
    }

    fn of(clusters: Vec<Arc<Cluster>>, owner: Owner) -> Self {
        let names = Clusters::at(clusters.iter().map(|it| (it.name.clone(), it.address().to_owned())))
            .with_default_namespaces(clusters.iter().map(|it| it.default_namespace().to_owned()))
            .with_scopes(scopes([]));
        let (applied, finished, namespaces, policies, unlisted) = Default::default();
        Self { clusters, names, owner, applied, finished, namespaces, policies, unlisted }
    }

    /// The same with health policies for objects whose resources have none.
    pub fn with_health_policies(self, policies: &[KindHealth]) -> Result<Self, RuntimeError> {
        Ok(Self { policies: KindPolicies::new(policies)?, ..self })
    }

    /// The same with a policy for foreign contents that cannot be listed.
    #[must_use]
    pub fn with_unlisted_contents(self, unlisted: UnlistedContents) -> Self {
        Self { unlisted, ..self }
    }

    /// Makes the calls of `run`, which is of the owner's organization, to each cluster within these limits.
    #[must_use]
    pub fn limited(mut self, limits: &CallLimits, run: &str) -> Self {
        let caller = Caller { organization: self.owner.organization.as_str().into(), run: run.into() };
        for cluster in &mut self.clusters {
            let cluster = Arc::get_mut(cluster).expect("no cluster is watched before the first call");
            cluster.turns = limits.turns(&cluster.url, caller.clone());
        }
        self
    }

    fn cluster(&self, index: usize) -> &Arc<Cluster> {
        &self.clusters[index]
    }

    fn find(&self, target: &Target) -> Result<usize, RuntimeError> {
        if target.cluster.is_empty() {
            return Ok(0);
        }
        self.clusters.iter().position(|cluster| cluster.name == target.cluster).ok_or_else(|| {
            let known: Vec<&str> = self.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
            let message = format!("the workspace has no cluster {:?}, it has {}", target.cluster, known.join(", "));
            invalid(&message, "extensions.cluster")
        })
    }

    fn desired_target(&self, desired: &Resource) -> Result<(usize, Target), RuntimeError> {
        let target = Target::of_desired(desired)?;
        let index = self.find(&target).map_err(|error| {
            let advice = "name one of these in the Spec, or none for the first; spec.forgetClusters of a Run forgets \
                          records there without moving anything";
            advised(error, advice)
        })?;
        Ok((index, target))
    }

    fn prior_target(&self, prior: &StateResource) -> Result<(usize, Target), RuntimeError> {
        let target = Target::of_prior(prior)?;
        let index = self.find(&target).map_err(|error| {
            let advice = "it is recorded there; add the cluster again until the resource is removed or moved; if the \
                          cluster no longer exists, name it in spec.forgetClusters of a Run";
            advised(error, advice)
        })?;
        Ok((index, target))
    }

    fn target_called(&self, object: &KubernetesObject) -> Result<(usize, Target), RuntimeError> {
        let target = Target::called(object);
        Ok((self.find(&target)?, target))
    }

    fn target_of(&self, request: &ReadRequest<'_>) -> Result<(usize, Target), RuntimeError> {
        match (request.desired, request.prior) {
            (Some(desired), _) => self.desired_target(desired),
            (None, Some(prior)) => self.prior_target(prior),
            (None, None) => Err(invalid("a read names a resource", "id")),
        }
    }

    fn remember(&self, id: &ResourceId, live: &Map<String, Value>) {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), live.clone());
    }

    fn note_finished(&self, id: &ResourceId) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    }

    fn take_applied(&self, id: &ResourceId) -> Option<Map<String, Value>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

/// A refusal with what to do about it behind.
fn advised(error: RuntimeError, advice: &str) -> RuntimeError {
    match error {
        RuntimeError::Invalid { message, field } => {
            RuntimeError::Invalid { message: format!("{message}; {advice}"), field }
        }
        other => other,
    }
}

#[async_trait]
impl Runtime for KubernetesRuntime {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        self.clusters.iter().map(|cluster| (cluster.name.clone(), cluster.destination().to_owned())).collect()
    }

    fn awaited(&self) -> Vec<String> {
        self.clusters.iter().filter_map(|cluster| cluster.awaited()).collect()
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        read::read(self, requests).await
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        read::inspect(self, resources).await
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        if live.is_some_and(is_terminating) {
            return Ok(Preview::Unverified(TERMINATING.to_owned()));
        }
        write::preview(self, request, live.is_none()).await
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        write::apply(self, request).await
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        deletion::delete(self, prior).await
    }

    async fn wait_deleted(&self, object: &KubernetesObject, report: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        deletion::wait_deleted(self, object, report).await
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        health::wait_healthy(self, desired, health::Jobs::ToTheEnd, report).await
    }

    async fn check_health(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        health::wait_healthy(self, desired, health::Jobs::AsTheyAre, report).await
    }

    async fn wait_completed(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        health::wait_healthy(self, desired, health::Jobs::Completed, report).await
    }

    /// Changes are made at once, so that nothing is left to write.
    async fn finish(&self, _: &Grant) -> Result<Finished, RuntimeError> {
        Ok(Finished::default())
    }
}

#[async_trait]
impl KubernetesChecks for KubernetesRuntime {
    fn rules(&self) -> &'static dyn KindRules {
        &KubernetesRules
    }

    fn clusters(&self) -> &Clusters {
        &self.names
    }

    fn missing_namespaces(&self) -> Vec<(String, String)> {
        let missing = self.namespaces.missing().into_iter();
        missing.map(|(index, name)| (self.cluster(index).name.clone(), name)).collect()
    }

    async fn schemas(&self, desired: &[&Resource]) -> Result<Schemas, RuntimeError> {
        read::schemas(self, desired).await
    }

    async fn cluster_scoped(&self, desired: &[&Resource]) -> Result<Vec<(String, String)>, RuntimeError> {
        read::cluster_scoped(self, desired).await
    }

    async fn foreign_contents(
        &self,
        holder: &StateResource,
        live: Option<&Map<String, Value>>,
        own: &HashSet<&str>,
    ) -> Result<DeletionVerdict, RuntimeError> {
        let Some(contents) = Cascade::of(holder, live) else { return Ok(DeletionVerdict::default()) };
        let foreign = foreign_contents::find(self, holder, &contents).await?;
        let (refusal, warnings) = foreign.verdict(holder, own);
        Ok(DeletionVerdict { refusal, warnings })
    }

    fn is_deleted_when_finished(&self, recorded: &StateResource) -> bool {
        Target::of_prior(recorded)
            .is_ok_and(|target| kstatus::is_deleted_when_finished(&target.gvk, &recorded.attributes))
    }

    fn has_finished(&self, id: &ResourceId) -> bool {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    async fn job_ends(&self, absent: &[&StateResource]) -> Result<Vec<JobEnd>, RuntimeError> {
        absent_jobs::ends(self, absent).await
    }
}
