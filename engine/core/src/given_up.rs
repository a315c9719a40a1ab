//! Clusters that left the workspace and are gone for good: nobody can look at what is on record there, nor remove it. Whoever
//! says so by name has it forgotten, and nothing there is touched.

use std::collections::BTreeMap;

use crate::cluster::Clusters;
use crate::problem::{Problem, reason};
use crate::spec::ResourceId;
use crate::state::State;

/// The field of a Run that names them.
pub const FIELD: &str = "spec.forgetClusters";

/// What of a state is in clusters that are given up: these clusters by id.
pub type GivenUp = BTreeMap<ResourceId, Vec<String>>;

impl State {
    /// Takes out what is on record in these clusters: resources, and calls there that nobody knows the result of.
    pub fn give_up(&mut self, clusters: &[String]) -> GivenUp {
        let mut given_up = GivenUp::new();
        self.resources.retain(|record| {
            let is_kept = !clusters.contains(&record.cluster);
            if !is_kept {
                given_up.insert(record.id.clone(), vec![record.cluster.clone()]);
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
            let told = given_up.entry(call.id.clone()).or_default();
            told.extend(gone);
            told.sort();
            told.dedup();
            // It went nowhere else.
            !call.place.clusters.is_empty()
        });
        given_up
    }
}

/// Checks that clusters are gone, and that something is on record in each.
///
/// # Errors
///
/// Each that the workspace has, and each where nothing is on record.
pub fn check(names: &[String], given_up: &GivenUp, clusters: &Clusters) -> Result<(), Vec<Problem>> {
    let problem = |name: &String| {
        let message = if clusters.has(name) {
            format!(
                "the workspace has cluster {name}, so that what is on record there is looked at, and removed by a Destroy"
            )
        } else if !given_up.values().flatten().any(|gone| gone == name) {
            format!("nothing is on record in cluster {name}")
        } else {
            return None;
        };
        Some(Problem::new(reason::NO_RUNTIME, message).at(FIELD))
    };
    let problems: Vec<Problem> = names.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// What is said of a resource whose record is forgotten.
pub fn left_in(clusters: &[String]) -> String {
    format!("forgotten in cluster {}, where it is left as it is", clusters.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Action;
    use crate::record::Place;
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
            place: Place { clusters: names(clusters), ..Place::default() },
            retry: false,
        };
        State { resources: records.iter().map(record).collect(), open: open.iter().map(call).collect() }
    }

    #[test]
    fn what_is_elsewhere_stays_on_record() {
        let [a, b, c, d] = ["v1:Namespace:a", "v1:Namespace:b", "v1:Namespace:c", "v1:Namespace:d"];
        let mut given = state(
            &[(a, "old"), (b, "main"), (c, "")],
            &[(a, &["old", "main"]), (b, &["main"]), (c, &[]), (d, &["old", "older"])],
        );
        let given_up = given.give_up(&names(&["old", "older"]));
        let expected = state(&[(b, "main"), (c, "")], &[(a, &["main"]), (b, &["main"]), (c, &[])]);
        assert_eq!(given, expected);
        let told: Vec<_> = given_up.iter().map(|(id, clusters)| (id.0.as_str(), clusters.join(" "))).collect();
        assert_eq!(told, [(a, "old".to_owned()), (d, "old older".to_owned())]);
    }

    #[test]
    fn only_what_is_gone_and_has_something_on_record_is_given_up() {
        let clusters = Clusters::new(names(&["main", "east"]));
        let all = names(&["old", "main", "odl"]);
        let given_up = state(&[("v1:Namespace:a", "old")], &[]).give_up(&all);
        check(&all[..1], &given_up, &clusters).unwrap();
        let told: Vec<String> =
            check(&all, &given_up, &clusters).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "spec.forgetClusters: the workspace has cluster main, so that what is on record there is looked at, and \
                 removed by a Destroy",
                "spec.forgetClusters: nothing is on record in cluster odl"
            ]
        );
    }
}
