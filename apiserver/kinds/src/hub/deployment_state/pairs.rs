//! The reconcilers of a namespace with the descriptors of their endpoints.
//!
//! Maps share what did not change, so that the pairs of an earlier list take little memory beside those of now.

use std::{ops::Bound, sync::Arc};

use imbl::OrdMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Deserialize;
use stoa_machinery::registry::Stored;
use stoa_types::hub::{DeploymentDescriptor, ObservedDeployment, normal_endpoint};

use crate::hub::descriptors::Descriptors;

/// The part of a Reconciler that states follow from. It takes a fraction of the memory of the whole.
#[derive(Debug, Deserialize)]
pub(super) struct ReconcilerPart {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    creation_timestamp: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    host_name: String,
    manifests_endpoint: String,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    deployment: Option<ObservedDeployment>,
}

impl ReconcilerPart {
    /// Reads a stored object; `None` for one that does not decode.
    fn read(stored: &Stored) -> Option<Arc<Self>> {
        let mut part: Self = stored.decode_part().ok()?;
        part.spec.manifests_endpoint = normal_endpoint(&part.spec.manifests_endpoint);
        Some(Arc::new(part))
    }

    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub(super) fn created(&self) -> Option<&Time> {
        self.metadata.creation_timestamp.as_ref()
    }

    pub(super) fn host(&self) -> &str {
        &self.spec.host_name
    }

    pub(super) fn deployment(&self) -> Option<&ObservedDeployment> {
        self.status.as_ref()?.deployment.as_ref()
    }

    fn endpoint(&self) -> &str {
        &self.spec.manifests_endpoint
    }

    /// The descriptors of its state, each with the name of the state.
    fn pairs(self: &Arc<Self>, descriptors: &Descriptors) -> Vec<(String, Pair)> {
        let candidates = descriptors.of(self.endpoint());
        let has_commit = |descriptor: &&Arc<DeploymentDescriptor>| {
            let mut assigned = descriptor.status.iter().flat_map(|status| &status.assigned_versions);
            self.deployment().is_some_and(|of| assigned.any(|it| it.git_ops_commit_id == of.git_ops_commit_id))
        };
        let mut found: Vec<&Arc<DeploymentDescriptor>> = candidates.iter().filter(has_commit).collect();
        if found.is_empty() {
            // Of objects of the same second, the last by name.
            let created = |it: &&Arc<DeploymentDescriptor>| (it.metadata.creation_timestamp.clone(), it.name_any());
            found.extend(candidates.iter().max_by_key(created));
        }
        let pair = |descriptor: &Arc<DeploymentDescriptor>| {
            let name = format!("{}.{}", self.name(), descriptor.name_any());
            (name, Pair { reconciler: Arc::clone(self), descriptor: descriptor.clone() })
        };
        found.into_iter().map(pair).collect()
    }
}

/// A reconciler and a descriptor.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) reconciler: Arc<ReconcilerPart>,
    pub(super) descriptor: Arc<DeploymentDescriptor>,
}

/// The pairs of a namespace. A copy shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct OfNamespace {
    descriptors: Arc<Descriptors>,
    /// By name.
    reconcilers: OrdMap<String, Arc<ReconcilerPart>>,
    /// By the names of their states.
    pairs: OrdMap<String, Pair>,
}

impl OfNamespace {
    /// Whether the pairs are made of these descriptors.
    pub(super) fn is_of(&self, descriptors: &Arc<Descriptors>) -> bool {
        Arc::ptr_eq(&self.descriptors, descriptors)
    }

    /// The pairs after changes of stored reconcilers and of descriptors.
    pub(super) fn next(&self, changed: &[Arc<Stored>], deleted: &[Arc<Stored>], descriptors: Arc<Descriptors>) -> Self {
        let mut next = self.clone();
        if !self.is_of(&descriptors) {
            let endpoints = self.descriptors.different(&descriptors);
            let is_affected = |reconciler: &&Arc<ReconcilerPart>| endpoints.contains(reconciler.endpoint());
            for reconciler in self.reconcilers.values().filter(is_affected) {
                next.remove_pairs(&reconciler.pairs(&self.descriptors));
                next.pairs.extend(reconciler.pairs(&descriptors));
            }
        }
        next.descriptors = descriptors;
        for stored in changed {
            next.replace(stored.name(), ReconcilerPart::read(stored));
        }
        for stored in deleted {
            next.replace(stored.name(), None);
        }
        next
    }

    fn replace(&mut self, name: &str, new: Option<Arc<ReconcilerPart>>) {
        if let Some(old) = self.reconcilers.remove(name) {
            let pairs = old.pairs(&self.descriptors);
            self.remove_pairs(&pairs);
        }
        if let Some(new) = new {
            self.pairs.extend(new.pairs(&self.descriptors));
            self.reconcilers.insert(name.to_owned(), new);
        }
    }

    fn remove_pairs(&mut self, pairs: &[(String, Pair)]) {
        for (name, pair) in pairs {
            // Names with dots may give two pairs one name.
            let is_own = |known: &Pair| known.reconciler.name() == pair.reconciler.name();
            if self.pairs.get(name).is_some_and(is_own) {
                self.pairs.remove(name);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pair of a state.
    pub(super) fn get(&self, name: &str) -> Option<&Pair> {
        self.pairs.get(name)
    }

    /// The pairs of the states after a name, or all.
    pub(super) fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&String, &Pair)> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.pairs.range::<_, str>((start, Bound::Unbounded))
    }
}
