//! The assignments of deployment targets to cluster types.
//!
//! A policy assigns all targets that it selects to all cluster types that it selects. Every cluster type and every target has
//! the set of the policies that select it; the two are assigned to each other when the sets meet. So a million assignments
//! take no memory of their own.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Inputs,
    objects::{ClusterType, DeploymentTarget, SchedulingPolicy},
};

/// The assignments of an environment.
#[derive(Debug)]
pub struct Schedule {
    cluster_types: Vec<Arc<ClusterType>>,
    targets: Vec<Arc<DeploymentTarget>>,
    policies: Vec<String>,
    of_cluster_type: Vec<Policies>,
    of_target: Vec<Policies>,
    cluster_type_at: HashMap<String, usize>,
    target_at: HashMap<String, usize>,
}

/// A set of policies by their positions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Policies(Box<[u64]>);

impl Policies {
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
        common.map(|at| policies[at].clone()).collect()
    }
}

impl Schedule {
    /// Applies all policies to all cluster types and targets.
    pub fn new(inputs: &Inputs) -> Self {
        let policies: Vec<&SchedulingPolicy> = inputs.policies.values().map(AsRef::as_ref).collect();
        let cluster_types: Vec<_> = inputs.cluster_types.values().cloned().collect();
        let targets: Vec<_> = inputs.targets.values().cloned().collect();
        let of_cluster_type = cluster_types.iter().map(|cluster_type| {
            Policies::new(policies.len(), |at| {
                policies[at].spec.cluster_type_selector.label_selector.matches(&cluster_type.labels)
            })
        });
        let of_target = targets.iter().map(|target| {
            Policies::new(policies.len(), |at| {
                let selector = &policies[at].spec.deployment_target_selector;
                (selector.workspace.is_empty() || selector.workspace == target.workspace())
                    && selector.label_selector.matches(&target.labels)
            })
        });
        Self {
            of_cluster_type: of_cluster_type.collect(),
            of_target: of_target.collect(),
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
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
