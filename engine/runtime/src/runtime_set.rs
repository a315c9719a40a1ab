//! The runtimes of one run, by the type of their resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Map, Value};
use stoa_engine::provider::ProviderLock;
use stoa_engine::{FieldPath, Owner, Resource, ResourceType, StateResource};

use crate::{
    Applied, ApplyRequest, Deleted, DeletionReport, Finished, Found, Grant, Health, HealthReport, KubernetesChecks,
    KubernetesObject, Live, NoKubernetes, Preview, ProviderChecks, ReadRequest, Runtime, RuntimeError,
};

/// The runtimes of one run, by the type of their resources.
#[derive(Debug)]
pub struct RuntimeSet {
    owner: Owner,
    runtimes: BTreeMap<ResourceType, Arc<dyn Runtime>>,
}

impl RuntimeSet {
    /// No runtime for a deployment.
    pub fn new(owner: Owner) -> Self {
        Self { owner, runtimes: BTreeMap::new() }
    }

    /// The same with a runtime for the resources of a type.
    #[must_use]
    pub fn with(mut self, kind: ResourceType, runtime: Arc<dyn Runtime>) -> Self {
        self.runtimes.insert(kind, runtime);
        self
    }

    fn of(&self, kind: ResourceType) -> Result<&dyn Runtime, RuntimeError> {
        self.runtimes.get(&kind).map(AsRef::as_ref).ok_or_else(|| RuntimeError::Invalid {
            message: format!("the workspace has no destination for resources of type {kind}"),
            field: Some("type".to_owned()),
        })
    }

    /// Asks each runtime about the items of its type. The answers have the order of the items.
    async fn by_type<'i, I, A, F>(
        &'i self,
        items: &'i [I],
        kind_of: impl Fn(&I) -> ResourceType,
        ask: impl Fn(&'i dyn Runtime, Vec<I>) -> F,
    ) -> Result<Vec<Result<A, RuntimeError>>, RuntimeError>
    where
        I: Clone,
        F: Future<Output = Result<Vec<Result<A, RuntimeError>>, RuntimeError>>,
    {
        let mut positions: BTreeMap<ResourceType, Vec<usize>> = BTreeMap::new();
        for (position, item) in items.iter().enumerate() {
            positions.entry(kind_of(item)).or_default().push(position);
        }
        let mut answers: Vec<Option<Result<A, RuntimeError>>> = items.iter().map(|_| None).collect();
        let mut asked = Vec::new();
        for (kind, positions) in positions {
            match self.of(kind) {
                Ok(runtime) => {
                    let part = positions.iter().map(|position| items[*position].clone()).collect();
                    let asking = ask(runtime, part);
                    asked.push(async move { (positions, asking.await) });
                }
                Err(_) => positions.iter().for_each(|position| answers[*position] = self.of(kind).err().map(Err)),
            }
        }
        for (positions, answered) in join_all(asked).await {
            for (position, answer) in positions.into_iter().zip(answered?) {
                answers[position] = Some(answer);
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("each item has an answer")).collect())
    }
}

#[async_trait]
impl Runtime for RuntimeSet {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self.runtimes.get(&ResourceType::Kubernetes).map_or(&NoKubernetes, |runtime| runtime.kubernetes())
    }

    fn providers(&self) -> &dyn ProviderChecks {
        self
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        self.runtimes.values().flat_map(|runtime| runtime.destinations()).collect()
    }

    fn is_deferred(&self, kind: ResourceType) -> bool {
        self.runtimes.get(&kind).is_some_and(|runtime| runtime.is_deferred(kind))
    }

    fn accepts_sensitive(&self, kind: ResourceType) -> bool {
        self.runtimes.get(&kind).is_none_or(|runtime| runtime.accepts_sensitive(kind))
    }

    fn awaited(&self) -> Vec<String> {
        self.runtimes.values().flat_map(|runtime| runtime.awaited()).collect()
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let kind_of = |request: &ReadRequest<'_>| {
            let wanted = request.desired.map(|desired| desired.kind);
            wanted.or(request.prior.map(|prior| prior.kind)).unwrap_or_default()
        };
        self.by_type(requests, kind_of, async |runtime, part| runtime.read(&part).await).await
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        self.by_type(resources, |resource| resource.kind, async |runtime, part| runtime.inspect(&part).await).await
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        self.of(request.desired.kind)?.preview(request, live).await
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        self.of(request.desired.kind)?.apply(request).await
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        self.of(prior.kind)?.delete(prior).await
    }

    async fn wait_deleted(&self, object: &KubernetesObject, report: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        self.of(ResourceType::Kubernetes)?.wait_deleted(object, report).await
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.of(desired.kind)?.wait_healthy(desired, report).await
    }

    async fn check_health(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.of(desired.kind)?.check_health(desired, report).await
    }

    async fn wait_completed(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.of(desired.kind)?.wait_completed(desired, report).await
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        let mut all = Finished::default();
        for runtime in self.runtimes.values() {
            let Finished { commit, left, proposal } = runtime.finish(grant).await?;
            all.commit = all.commit.or(commit);
            all.proposal = all.proposal.or(proposal);
            all.left.extend(left);
        }
        Ok(all)
    }

    async fn close(&self) {
        join_all(self.runtimes.values().map(|runtime| runtime.close())).await;
    }
}

#[async_trait]
impl ProviderChecks for RuntimeSet {
    fn decides(&self, kind: ResourceType) -> bool {
        self.runtimes.get(&kind).is_some_and(|runtime| runtime.providers().decides(kind))
    }

    async fn prepare(&self, resources: &[&Resource]) -> Result<Vec<Result<(), RuntimeError>>, RuntimeError> {
        self.by_type(
            resources,
            |resource| resource.kind,
            async |runtime, part| runtime.providers().prepare(&part).await,
        )
        .await
    }

    fn sensitive_paths(&self, resource: &Resource, object: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let runtime = self.runtimes.get(&resource.kind);
        runtime.map(|runtime| runtime.providers().sensitive_paths(resource, object)).unwrap_or_default()
    }

    fn write_only_paths(&self, resource: &Resource, attributes: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let runtime = self.runtimes.get(&resource.kind);
        runtime.map(|runtime| runtime.providers().write_only_paths(resource, attributes)).unwrap_or_default()
    }

    fn lock(&self, resource: &Resource) -> Option<ProviderLock> {
        self.runtimes.get(&resource.kind)?.providers().lock(resource)
    }

    async fn preview_delete(&self, prior: &StateResource) -> Result<Vec<String>, RuntimeError> {
        self.of(prior.kind)?.providers().preview_delete(prior).await
    }
}
