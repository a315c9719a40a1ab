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
                next.remove_pairs(&reconciler.pairs(&self.descriptors), &descriptors);
                next.add_pairs(reconciler.pairs(&descriptors));
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
            let (pairs, descriptors) = (old.pairs(&self.descriptors), self.descriptors.clone());
            self.remove_pairs(&pairs, &descriptors);
        }
        if let Some(new) = new {
            self.add_pairs(new.pairs(&self.descriptors));
            self.reconcilers.insert(name.to_owned(), new);
        }
    }

    /// Names with dots may give two pairs one name. The first by the name of the reconciler counts.
    fn add_pairs(&mut self, pairs: Vec<(String, Pair)>) {
        for (name, pair) in pairs {
            let is_first = |known: &Pair| pair.reconciler.name() <= known.reconciler.name();
            if self.pairs.get(&name).is_none_or(is_first) {
                self.pairs.insert(name, pair);
            }
        }
    }

    fn remove_pairs(&mut self, pairs: &[(String, Pair)], descriptors: &Descriptors) {
        for (name, pair) in pairs {
            let own = pair.reconciler.name();
            if self.pairs.get(name).is_none_or(|known| known.reconciler.name() != own) {
                continue;
            }
            self.pairs.remove(name);
            if let Some(other) = self.other(name, own, descriptors) {
                self.pairs.insert(name.clone(), other);
            }
        }
    }

    /// The first pair of another reconciler with the same name.
    fn other(&self, name: &str, own: &str, descriptors: &Descriptors) -> Option<Pair> {
        name.match_indices('.').find_map(|(end, _)| {
            let reconciler = self.reconcilers.get(&name[..end]).filter(|reconciler| reconciler.name() != own)?;
            reconciler.pairs(descriptors).into_iter().find(|(of, _)| of == name).map(|(_, pair)| pair)
        })
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use serde_json::json;
    use stoa_types::{hub::AssignedVersion, scheduler::Repository};

    use super::*;

    fn descriptor(name: &str, commit: &str) -> DeploymentDescriptor {
        let mut descriptor = DeploymentDescriptor::default();
        descriptor.metadata.name = Some(name.to_owned());
        let (repo, branch) = ("https://git.example.com/web".to_owned(), "dev".to_owned());
        descriptor.spec.deployment_target.manifests = Repository { repo, branch, path: "east".to_owned() };
        let assigned = AssignedVersion {
            git_ops_commit_id: commit.to_owned(),
            version: "1.0".to_owned(),
            build: String::new(),
            commit: String::new(),
            time: MicroTime(Timestamp::UNIX_EPOCH),
        };
        descriptor.status.get_or_insert_default().assigned_versions = vec![assigned];
        descriptor
    }

    fn reconciler(name: &str, commit: &str) -> Arc<ReconcilerPart> {
        let deployment = ObservedDeployment { git_ops_commit_id: commit.to_owned(), ..observed() };
        let part = json!({
            "metadata": {"name": name},
            "spec": {"hostName": "drone", "manifestsEndpoint": "https://git.example.com/web/dev/east"},
            "status": {"deployment": deployment},
        });
        Arc::new(serde_json::from_value(part).unwrap())
    }

    fn observed() -> ObservedDeployment {
        ObservedDeployment {
            git_ops_commit_id: String::new(),
            status: stoa_types::hub::DeploymentStatus::Success,
            status_message: String::new(),
            since: MicroTime(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn pairs_with_one_name_follow_from_objects_and_not_from_their_order() {
        let mut descriptors = Descriptors::default();
        descriptors.put(descriptor("b.c", "one"));
        descriptors.put(descriptor("c", "two"));
        let mut pairs = OfNamespace { descriptors: Arc::new(descriptors), ..OfNamespace::default() };
        let owner = |pairs: &OfNamespace| pairs.get("a.b.c").map(|pair| pair.reconciler.name().to_owned());
        // Both have the state a.b.c.
        let (short, long) = (reconciler("a", "one"), reconciler("a.b", "two"));
        for order in [[&short, &long], [&long, &short]] {
            for reconciler in order {
                pairs.replace(reconciler.name(), Some(reconciler.clone()));
            }
            assert_eq!(owner(&pairs).as_deref(), Some("a"));
            pairs.replace("a", None);
            assert_eq!(owner(&pairs).as_deref(), Some("a.b"), "the other one is there");
            pairs.replace("a.b", None);
            assert_eq!(owner(&pairs), None);
        }
    }

    #[test]
    fn report_of_one_cluster_in_100_000_touches_no_other() {
        let mut descriptors = Descriptors::default();
        descriptors.put(descriptor("web", "one"));
        let mut pairs = OfNamespace { descriptors: Arc::new(descriptors), ..OfNamespace::default() };
        let name = |number: usize| format!("cluster-{number:06}");
        for number in 0..100_000 {
            pairs.replace(&name(number), Some(reconciler(&name(number), "one")));
        }
        // A list that began earlier goes on with what it saw.
        let earlier = pairs.clone();
        pairs.replace(&name(70_000), Some(reconciler(&name(70_000), "two")));
        let commit = |pairs: &OfNamespace, name: &str| {
            let pair = pairs.get(&format!("{name}.web")).unwrap();
            pair.reconciler.deployment().unwrap().git_ops_commit_id.clone()
        };
        assert_eq!((commit(&earlier, &name(70_000)), commit(&pairs, &name(70_000))), ("one".into(), "two".into()));
        let is_shared = |((a, old), (b, new)): ((&String, &Pair), (&String, &Pair))| {
            assert_eq!(a, b);
            Arc::ptr_eq(&old.reconciler, &new.reconciler)
        };
        assert_eq!(earlier.after(None).zip(pairs.after(None)).filter(|both| is_shared(*both)).count(), 99_999);
        // A page begins where the last one ended.
        let next: Vec<&String> = pairs.after(Some("cluster-069999.web")).take(2).map(|(name, _)| name).collect();
        assert_eq!(next, ["cluster-070000.web", "cluster-070001.web"]);
    }
}
