//! The decisions of Placements, and the cluster types of clusters.

use std::collections::{BTreeSet, HashMap};

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use stoa_proto::scheduler::{Decision, Decisions};

/// The label of a PlacementDecision with its Placement.
const PLACEMENT: &str = "cluster.open-cluster-management.io/placement";
/// The label of a ManagedCluster with its ClusterType. A cluster without it has the ClusterType with its own name.
const CLUSTER_TYPE: &str = "stoa.dev/cluster-type";

/// A kind of Open Cluster Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OcmKind {
    PlacementDecision,
    ManagedCluster,
}

/// The namespace and the name of an object.
type Key = (String, String);

/// A PlacementDecision: some clusters of a Placement.
#[derive(Debug)]
struct Chosen {
    placement: String,
    clusters: Vec<String>,
}

/// The objects of a kind, once they are listed, and why they cannot be.
#[derive(Debug)]
struct Listed<T> {
    objects: Option<HashMap<Key, T>>,
    failure: Option<String>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { objects: None, failure: None }
    }
}

impl<T> Listed<T> {
    fn list(&mut self, objects: HashMap<Key, T>) {
        *self = Self { objects: Some(objects), failure: None };
    }

    /// Sets an object, or removes the one that does not count any more.
    fn set(&mut self, key: Key, object: Option<T>) {
        self.failure = None;
        let Some(objects) = &mut self.objects else { return };
        match object {
            Some(object) => drop(objects.insert(key, object)),
            None => drop(objects.remove(&key)),
        }
    }

    fn fail(&mut self, why: String, is_missing: bool) {
        self.failure = Some(why);
        if is_missing {
            self.objects = None;
        }
    }

    fn is_settled(&self) -> bool {
        self.objects.is_some() || self.failure.is_some()
    }
}

/// The objects of Open Cluster Management in the cluster, as far as they count.
#[derive(Debug, Default)]
pub(super) struct Placements {
    decisions: Listed<Chosen>,
    /// The ClusterTypes of the clusters with a label.
    clusters: Listed<String>,
}

fn key(object: &DynamicObject) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn chosen(object: &DynamicObject) -> Option<Chosen> {
    let placement = object.labels().get(PLACEMENT)?.clone();
    let decisions = object.data["status"]["decisions"].as_array().into_iter().flatten();
    let names = decisions.filter_map(|decision| decision["clusterName"].as_str());
    // An empty name is a cluster that is not chosen yet.
    let clusters = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Some(Chosen { placement, clusters })
}

fn cluster_type(object: &DynamicObject) -> Option<String> {
    object.labels().get(CLUSTER_TYPE).filter(|name| !name.is_empty()).cloned()
}

fn counting<T>(objects: &[DynamicObject], read: fn(&DynamicObject) -> Option<T>) -> HashMap<Key, T> {
    objects.iter().filter_map(|object| Some((key(object), read(object)?))).collect()
}

impl Placements {
    /// Sets all objects of a kind.
    pub(super) fn list(&mut self, kind: OcmKind, objects: &[DynamicObject]) {
        match kind {
            OcmKind::PlacementDecision => self.decisions.list(counting(objects, chosen)),
            OcmKind::ManagedCluster => self.clusters.list(counting(objects, cluster_type)),
        }
    }

    /// Takes an object that was created or updated.
    pub(super) fn apply(&mut self, kind: OcmKind, object: &DynamicObject) {
        match kind {
            OcmKind::PlacementDecision => self.decisions.set(key(object), chosen(object)),
            OcmKind::ManagedCluster => self.clusters.set(key(object), cluster_type(object)),
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, kind: OcmKind, object: &DynamicObject) {
        match kind {
            OcmKind::PlacementDecision => self.decisions.set(key(object), None),
            OcmKind::ManagedCluster => self.clusters.set(key(object), None),
        }
    }

    /// Notes that a kind cannot be watched. The last objects stay, unless the cluster has the kind no more.
    pub(super) fn fail(&mut self, kind: OcmKind, why: String, is_missing: bool) {
        match kind {
            OcmKind::PlacementDecision => self.decisions.fail(why, is_missing),
            OcmKind::ManagedCluster => self.clusters.fail(why, is_missing),
        }
    }

    /// Whether all kinds are listed, or one cannot be.
    pub(super) fn is_settled(&self) -> bool {
        self.decisions.is_settled() && self.clusters.is_settled()
    }

    /// The decisions of a Placement: all deployment targets run on the ClusterTypes of its clusters.
    ///
    /// A Placement without any PlacementDecision is undecided: it may have been deleted by mistake.
    pub(super) fn decide(&self, namespace: &str, placement: &str) -> Decisions {
        let undecided = |why: String| Decisions { decisions: Vec::new(), undecided: why };
        let (Some(decisions), Some(types)) = (&self.decisions.objects, &self.clusters.objects) else {
            let failure = self.decisions.failure.as_ref().or(self.clusters.failure.as_ref());
            return undecided(
                failure.cloned().unwrap_or_else(|| "the cluster has not listed its Placements yet".to_owned()),
            );
        };
        let of = |((of, _), chosen): &(&Key, &Chosen)| of == namespace && chosen.placement == placement;
        let mut chosen = decisions.iter().filter(of).peekable();
        if chosen.peek().is_none() {
            return undecided(format!(
                "Placement {namespace}/{placement} has no PlacementDecision; create the Placement, or correct its name"
            ));
        }
        let cluster_types: BTreeSet<String> = chosen
            .flat_map(|(_, chosen)| &chosen.clusters)
            .map(|cluster| types.get(&(String::new(), cluster.clone())).unwrap_or(cluster).clone())
            .collect();
        let decision = Decision { cluster_types: cluster_types.into_iter().collect(), deployment_targets: Vec::new() };
        let decisions = if decision.cluster_types.is_empty() { Vec::new() } else { vec![decision] };
        Decisions { decisions, undecided: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decision(name: &str, placement: &str, clusters: &[&str]) -> DynamicObject {
        let decisions: Vec<Value> = clusters.iter().map(|name| json!({"clusterName": name, "reason": ""})).collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "dev", "name": name, "labels": {PLACEMENT: placement}},
            "status": {"decisions": decisions},
        }))
        .unwrap()
    }

    fn cluster(name: &str, labels: Value) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn decided(placements: &Placements, namespace: &str, placement: &str) -> Result<Vec<String>, String> {
        let Decisions { decisions, undecided } = placements.decide(namespace, placement);
        if !undecided.is_empty() {
            return Err(undecided);
        }
        assert!(decisions.iter().all(|it| it.deployment_targets.is_empty()));
        Ok(decisions.into_iter().flat_map(|it| it.cluster_types).collect())
    }

    fn owned(names: &[&str]) -> Result<Vec<String>, String> {
        Ok(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn clusters_of_a_placement_become_cluster_types() {
        use OcmKind::{ManagedCluster, PlacementDecision};
        let mut placements = Placements::default();
        assert!(!placements.is_settled());
        placements.list(
            PlacementDecision,
            &[
                decision("a-1", "a", &["c1", "c2", ""]),
                decision("a-2", "a", &["drone"]),
                decision("b-1", "b", &["c3"]),
                decision("none-1", "none", &[]),
            ],
        );
        assert!(decided(&placements, "dev", "a").unwrap_err().contains("not listed"));
        let label = json!({CLUSTER_TYPE: "large"});
        placements
            .list(ManagedCluster, &[cluster("c1", label.clone()), cluster("c2", label), cluster("c3", json!({}))]);
        assert!(placements.is_settled());
        assert_eq!(decided(&placements, "dev", "a"), owned(&["drone", "large"]));
        assert_eq!(decided(&placements, "dev", "b"), owned(&["c3"]));
        assert_eq!(decided(&placements, "dev", "none"), owned(&[]), "no cluster is a decision");
        assert!(decided(&placements, "prod", "a").unwrap_err().contains("prod/a has no PlacementDecision"));

        placements.apply(ManagedCluster, &cluster("c1", json!({CLUSTER_TYPE: ""})));
        placements.remove(ManagedCluster, &cluster("c2", json!({})));
        assert_eq!(decided(&placements, "dev", "a"), owned(&["c1", "c2", "drone"]));
        placements.apply(PlacementDecision, &decision("a-1", "a", &["c1"]));
        assert_eq!(decided(&placements, "dev", "a"), owned(&["c1", "drone"]));
        placements.remove(PlacementDecision, &decision("a-1", "a", &[]));
        placements.remove(PlacementDecision, &decision("a-2", "a", &[]));
        assert!(decided(&placements, "dev", "a").is_err(), "the Placement was deleted");
    }

    #[test]
    fn outage_keeps_the_last_objects() {
        let mut placements = Placements::default();
        placements.list(OcmKind::PlacementDecision, &[decision("a-1", "a", &["drone"])]);
        placements.fail(OcmKind::ManagedCluster, "forbidden".to_owned(), false);
        assert_eq!((decided(&placements, "dev", "a"), placements.is_settled()), (Err("forbidden".to_owned()), true));
        placements.list(OcmKind::ManagedCluster, &[]);
        placements.fail(OcmKind::PlacementDecision, "away".to_owned(), false);
        assert_eq!(decided(&placements, "dev", "a"), owned(&["drone"]));
        placements.fail(OcmKind::PlacementDecision, "no such kind".to_owned(), true);
        assert_eq!(decided(&placements, "dev", "a"), Err("no such kind".to_owned()));
    }
}
