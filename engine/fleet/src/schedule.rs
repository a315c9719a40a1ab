//! The assignments of deployment targets to cluster types.
//!
//! A policy assigns all targets that it selects to all cluster types that it selects. Where it has an external scheduler, each
//! [`Decision`] does so with the objects that it names. Every cluster type and every target has the set of the rules that
//! include it; the two are assigned to each other when the sets meet. So a million assignments take no memory of their own.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Inputs,
    objects::{ClusterType, DeploymentTarget, SchedulingPolicy},
};

/// A decision of an external scheduler: the named deployment targets run on the named cluster types. Objects that the policy
/// does not select do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The names of cluster types.
    pub cluster_types: BTreeSet<String>,
    /// The names of deployment targets; `None` for all that the policy selects.
    #[serde(default)]
    pub deployment_targets: Option<BTreeSet<String>>,
}

/// The decisions in the status of a stored SchedulingPolicy; `None` before the first answer of its scheduler.
pub fn stored_decisions(policy: &Value) -> Option<Vec<Decision>> {
    Vec::deserialize(policy.get("status")?.get("decisions")?).ok()
}

/// A policy, or one decision about it.
struct Rule<'i> {
    policy: &'i SchedulingPolicy,
    decision: Option<&'i Decision>,
}

impl<'i> Rule<'i> {
    /// The rules of a policy: none while its scheduler has not decided.
    fn of(policy: &'i SchedulingPolicy, inputs: &'i Inputs) -> Vec<Self> {
        if policy.spec.scheduler.is_none() {
            return vec![Self { policy, decision: None }];
        }
        let decisions = inputs.decisions.get(&policy.name).map(|it| it.as_slice()).unwrap_or_default();
        decisions.iter().map(|decision| Self { policy, decision: Some(decision) }).collect()
    }

    fn has_cluster_type(&self, cluster_type: &ClusterType) -> bool {
        self.decision.is_none_or(|decision| decision.cluster_types.contains(&cluster_type.name))
            && self.policy.selects_cluster_type(cluster_type)
    }

    fn has_target(&self, target: &DeploymentTarget) -> bool {
        let named = self.decision.and_then(|decision| decision.deployment_targets.as_ref());
        named.is_none_or(|named| named.contains(&target.name)) && self.policy.selects_target(target)
    }
}

/// The assignments of an environment.
#[derive(Debug)]
pub struct Schedule {
    cluster_types: Vec<Arc<ClusterType>>,
    targets: Vec<Arc<DeploymentTarget>>,
    /// The policies of the rules, in their order: those of one policy are neighbours.
    policies: Vec<String>,
    of_cluster_type: Vec<Rules>,
    of_target: Vec<Rules>,
    cluster_type_at: HashMap<String, usize>,
    target_at: HashMap<String, usize>,
}

/// A set of rules by their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules(Box<[u64]>);

impl Rules {
    fn new(count: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut words = vec![0_u64; count.div_ceil(64)];
        (0..count).filter(|at| is_in(*at)).for_each(|at| words[at / 64] |= 1 << (at % 64));
        Self(words.into())
    }

    fn meet(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn common(&self, other: &Self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().zip(&other.0).map(|(a, b)| a & b).enumerate();
        words.flat_map(|(word, bits)| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit))
    }
}

/// A deployment target on a cluster type.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'s> {
    /// The cluster type.
    pub cluster_type: &'s Arc<ClusterType>,
    /// The deployment target.
    pub target: &'s Arc<DeploymentTarget>,
    schedule: &'s Schedule,
    at: (usize, usize),
}

impl Assignment<'_> {
    /// The name of the Assignment object: `<workload>-<target>-<cluster type>`, with the workload in the target once more.
    pub fn name(&self) -> String {
        format!("{}-{}-{}", self.target.workload(), self.target.name, self.cluster_type.name)
    }

    /// The folder of its files: `<cluster type>/<target>`.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.cluster_type.name, self.target.name)
    }

    /// The names of the policies that make it, sorted.
    pub fn policies(&self) -> Vec<String> {
        let Schedule { of_cluster_type, of_target, policies, .. } = self.schedule;
        let common = of_cluster_type[self.at.0].common(&of_target[self.at.1]);
        let mut names: Vec<String> = common.map(|at| policies[at].clone()).collect();
        names.dedup();
        names
    }
}

impl Schedule {
    /// Applies all policies to all cluster types and targets.
    pub fn new(inputs: &Inputs) -> Self {
        let rules: Vec<Rule<'_>> = inputs.policies.values().flat_map(|policy| Rule::of(policy, inputs)).collect();
        let cluster_types: Vec<_> = inputs.cluster_types.values().cloned().collect();
        let targets: Vec<_> = inputs.targets.values().cloned().collect();
        let of_cluster_type =
            cluster_types.iter().map(|it| Rules::new(rules.len(), |at| rules[at].has_cluster_type(it)));
        let of_target = targets.iter().map(|it| Rules::new(rules.len(), |at| rules[at].has_target(it)));
        Self {
            of_cluster_type: of_cluster_type.collect(),
            of_target: of_target.collect(),
            policies: rules.iter().map(|rule| rule.policy.name.clone()).collect(),
            cluster_type_at: positions(cluster_types.iter().map(|it| &it.name)),
            target_at: positions(targets.iter().map(|it| &it.name)),
            cluster_types,
            targets,
        }
    }

    /// All assignments, by cluster type and then by target.
    pub fn assignments(&self) -> impl Iterator<Item = Assignment<'_>> {
        (0..self.cluster_types.len()).flat_map(move |at| self.on(at))
    }

    /// The assignments on a cluster type, by target.
    pub fn on_cluster_type(&self, name: &str) -> impl Iterator<Item = Assignment<'_>> {
        self.cluster_type_at.get(name).into_iter().flat_map(move |at| self.on(*at))
    }

    /// The assignments of a target, by cluster type.
    pub fn of_target(&self, name: &str) -> impl Iterator<Item = Assignment<'_>> {
        let target = self.target_at.get(name).copied();
        let cluster_types = 0..self.cluster_types.len();
        target.into_iter().flat_map(move |target| cluster_types.clone().filter_map(move |at| self.at(at, target)))
    }

    /// The assignment of a target to a cluster type, if there is one.
    pub fn assignment(&self, cluster_type: &str, target: &str) -> Option<Assignment<'_>> {
        self.at(*self.cluster_type_at.get(cluster_type)?, *self.target_at.get(target)?)
    }

    /// The number of cluster types, and that of targets.
    pub fn size(&self) -> (usize, usize) {
        (self.cluster_types.len(), self.targets.len())
    }

    fn on(&self, cluster_type: usize) -> impl Iterator<Item = Assignment<'_>> {
        (0..self.targets.len()).filter_map(move |target| self.at(cluster_type, target))
    }

    fn at(&self, cluster_type: usize, target: usize) -> Option<Assignment<'_>> {
        let is_assigned = self.of_cluster_type[cluster_type].meet(&self.of_target[target]);
        is_assigned.then(|| Assignment {
            cluster_type: &self.cluster_types[cluster_type],
            target: &self.targets[target],
            schedule: self,
            at: (cluster_type, target),
        })
    }
}

fn positions<'n>(names: impl Iterator<Item = &'n String>) -> HashMap<String, usize> {
    names.enumerate().map(|(at, name)| (name.clone(), at)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{decided, decision, externally, inputs, named, policy, target};

    /// The cluster type and the target of each assignment, with its policies.
    fn assigned(inputs: &Inputs) -> Vec<String> {
        let schedule = Schedule::new(inputs);
        schedule.assignments().map(|it| format!("{} by {}", it.folder(), it.policies().join(", "))).collect()
    }

    #[test]
    fn external_scheduler_decides_within_the_selectors() {
        let mut inputs = inputs();
        inputs.targets.extend(named([target("core-edge", &[("workload", "core")])]));
        let east = json!({"matchLabels": {"region": "east"}});
        inputs.policies =
            named([externally(policy("east", json!({}), east)), externally(policy("split", json!({}), json!({})))]);
        assert_eq!(assigned(&inputs), [] as [&str; 0], "nothing is decided");
        assert!(inputs.keeps_files(), "files stay until the first answers");

        decided(&mut inputs, "east", &[decision(&["drone", "large", "gone"], None)]);
        assert!(inputs.keeps_files(), "one scheduler has not answered");
        assert_eq!(assigned(&inputs), ["drone/core-edge by east", "drone/hello-edge by east"]);

        let split = [
            decision(&["large"], Some(&["core-edge"])),
            decision(&["large", "drone"], Some(&["hello-edge", "gone"])),
            decision(&["drone"], Some(&["hello-edge"])),
        ];
        decided(&mut inputs, "split", &split);
        assert!(!inputs.keeps_files());
        assert_eq!(
            assigned(&inputs),
            [
                "drone/core-edge by east",
                "drone/hello-edge by east, split",
                "large/core-edge by split",
                "large/hello-edge by split",
            ]
        );
        decided(&mut inputs, "split", &[]);
        decided(&mut inputs, "east", &[]);
        assert!(!inputs.keeps_files(), "an empty answer is a decision");
        assert_eq!(assigned(&inputs), [] as [&str; 0]);
    }

    #[test]
    fn policy_without_a_scheduler_ignores_decisions() {
        let mut inputs = inputs();
        decided(&mut inputs, "all", &[]);
        assert_eq!(assigned(&inputs), ["drone/hello-edge by all", "large/hello-edge by all"]);
        assert!(!inputs.keeps_files());
    }

    #[test]
    fn no_decision_differs_from_an_empty_one() {
        assert_eq!(stored_decisions(&json!({"status": {"conditions": []}})), None);
        assert_eq!(stored_decisions(&json!({})), None);
        assert_eq!(stored_decisions(&json!({"status": {"decisions": []}})), Some(Vec::new()));
        let written = json!({"status": {"decisions": [
            {"clusterTypes": ["drone"]}, {"clusterTypes": ["large"], "deploymentTargets": []},
        ]}});
        let expected = vec![decision(&["drone"], None), decision(&["large"], Some(&[]))];
        assert_eq!(stored_decisions(&written), Some(expected));
    }
}
