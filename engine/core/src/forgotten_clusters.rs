//! Forgotten clusters: a Run drops the records of clusters that no longer exist, without a call to them.
//!
//! A user names these clusters in [`FIELD`]. Start at [`State::forget_clusters`] and [`check`].

use std::collections::BTreeMap;

use crate::cluster::Clusters;
use crate::problem::{Problem, reason};
use crate::spec::ResourceId;
use crate::state::State;

/// The field of a Run that names the clusters to forget.
pub const FIELD: &str = "spec.forgetClusters";

/// The ids of resources that are recorded in forgotten clusters, with these clusters.
pub type ForgottenClusters = BTreeMap<ResourceId, Vec<String>>;

impl State {
    /// Removes the records of these clusters: resources, and open calls. Returns their ids.
    pub fn forget_clusters(&mut self, clusters: &[String]) -> ForgottenClusters {
        let mut forgotten_clusters = ForgottenClusters::new();
        self.resources.retain(|record| {
            let is_kept = !clusters.contains(&record.cluster);
            if !is_kept {
                forgotten_clusters.insert(record.id.clone(), vec![record.cluster.clone()]);
            }
            is_kept
        });
        self.open.retain_mut(|call| {
            let is_named = |cluster: &String| clusters.contains(cluster);
            let (gone, left): (Vec<_>, Vec<_>) = call.place.clusters.drain(..).partition(is_named);
            call.place.clusters = left;
            if gone.is_empty() {
                return true;
            }
            let forgotten = forgotten_clusters.entry(call.id.clone()).or_default();
            forgotten.extend(gone);
            forgotten.sort();
            forgotten.dedup();
            // An open call may have gone to several clusters.
            !call.place.clusters.is_empty()
        });
        forgotten_clusters
    }
}

/// Checks that the workspace has none of these clusters, and that each has a record.
///
/// # Errors
///
/// One problem for each cluster that the workspace has, and for each without a record.
pub fn check(
    names: &[String],
    forgotten_clusters: &ForgottenClusters,
    clusters: &Clusters,
) -> Result<(), Vec<Problem>> {
    let problem = |name: &String| {
        let message = if clusters.has(name) {
            format!("the workspace still has cluster {name}; remove the recorded resources there by a Destroy")
        } else if !forgotten_clusters.values().flatten().any(|gone| gone == name) {
            format!("no resource is recorded in cluster {name}")
        } else {
            return None;
        };
        Some(Problem::new(reason::NO_RUNTIME, message).at(FIELD))
    };
    let problems: Vec<Problem> = names.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The message about a resource whose record is dropped.
pub fn forgotten_message(clusters: &[String]) -> String {
    format!("forgotten in cluster {}, where the object stays as it is", clusters.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Action;
    use crate::record::CallTarget;
    use crate::state::{OpenCall, StateResource};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn state(records: &[(&str, &str)], open: &[(&str, &[&str])]) -> State {
        let record = |(id, cluster): &(&str, &str)| {
            StateResource::named_by(&(*id).into()).unwrap().in_cluster((*cluster).to_owned())
        };
        let call = |(id, clusters): &(&str, &[&str])| OpenCall {
            id: (*id).into(),
            action: Action::Create,
            run: "r".to_owned(),
            place: CallTarget { clusters: names(clusters), ..CallTarget::default() },
            retry: false,
        };
        State { resources: records.iter().map(record).collect(), open: open.iter().map(call).collect() }
    }

    #[test]
    fn records_of_other_clusters_stay() {
        let [a, b, c, d] = ["v1:Namespace:a", "v1:Namespace:b", "v1:Namespace:c", "v1:Namespace:d"];
        let mut given = state(
            &[(a, "old"), (b, "main"), (c, "")],
            &[(a, &["old", "main"]), (b, &["main"]), (c, &[]), (d, &["old", "older"])],
        );
        let forgotten_clusters = given.forget_clusters(&names(&["old", "older"]));
        let expected = state(&[(b, "main"), (c, "")], &[(a, &["main"]), (b, &["main"]), (c, &[])]);
        assert_eq!(given, expected);
        let told: Vec<_> =
            forgotten_clusters.iter().map(|(id, clusters)| (id.0.as_str(), clusters.join(" "))).collect();
        assert_eq!(told, [(a, "old".to_owned()), (d, "old older".to_owned())]);
    }

    #[test]
    fn only_absent_recorded_clusters_are_forgotten() {
        let clusters = Clusters::new(names(&["main", "east"]));
        let all = names(&["old", "main", "odl"]);
        let forgotten_clusters = state(&[("v1:Namespace:a", "old")], &[]).forget_clusters(&all);
        check(&all[..1], &forgotten_clusters, &clusters).unwrap();
        let told: Vec<String> =
            check(&all, &forgotten_clusters, &clusters).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "spec.forgetClusters: the workspace still has cluster main; remove the recorded resources there by a \
                 Destroy",
                "spec.forgetClusters: no resource is recorded in cluster odl"
            ]
        );
    }
}
