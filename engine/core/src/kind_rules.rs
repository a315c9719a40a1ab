//! Rules of kinds: what a plan has to know about the kinds of objects, such as their scope and order.
//!
//! The engine has no such rule of its own. It asks [`KindRules`], which the caller of a plan passes. Nothing in a trait
//! of these waits: a question to a server is a matter of the runtime.
//!
//! Elsewhere: the crate `stoa-kubernetes-model` has the rules of Kubernetes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::{Map, Value};

use crate::cluster::Clusters;
use crate::graph::Before;
use crate::lookup::Settled;
use crate::object::ObjectRef;
use crate::plan::{Action, Live, Plan, PlannedAction};
use crate::planner::PlanInput;
use crate::problem::Problem;
use crate::scope::Scopes;
use crate::spec::{Resource, ResourceId, Spec};
use crate::stage::Stage;
use crate::state::StateResource;

/// The planned changes after which a server may accept a resource that it rejects now.
pub trait MayAccept: fmt::Debug + Send + Sync {
    /// The ids of these changes, by the message of a rejection.
    fn after(&self, rejected: &Resource, message: &str) -> Vec<ResourceId>;
}

/// The rules of kinds. The defaults are those of resources that are no objects of a cluster.
pub trait KindRules: fmt::Debug + Send + Sync {
    /// The cluster-scoped kinds, with those that some of these objects define.
    fn scopes(&self, objects: &[&Map<String, Value>]) -> Scopes {
        let _ = objects;
        Scopes::NONE
    }

    /// Wanted objects that are one object if their kinds, whose scope is unknown, turn out to be cluster-scoped.
    fn of_unknown_scope<'s>(&self, spec: &'s Spec, clusters: &Clusters) -> Vec<&'s Resource> {
        let _ = (spec, clusters);
        Vec::new()
    }

    /// The problems of an object that its kind alone shows. They name no resource yet.
    fn problems(&self, object: &ObjectRef, attributes: &Map<String, Value>) -> Vec<Problem> {
        let _ = (object, attributes);
        Vec::new()
    }

    /// A warning about a Spec for a runtime without a server.
    fn warning(&self, spec: &Spec) -> Option<String> {
        let _ = spec;
        None
    }

    /// Pairs of a resource and another one that has to come first, although nothing in the Spec says so.
    fn implied(&self, resources: &[&Resource], clusters: &Clusters) -> Vec<(ResourceId, ResourceId)> {
        let _ = (resources, clusters);
        Vec::new()
    }

    /// The stage of an action about an object with these attributes.
    fn stage(&self, action: Action, attributes: &Map<String, Value>) -> Stage {
        let _ = attributes;
        Stage::of(action)
    }

    /// The problems of deletions that would also delete resources which the Spec keeps.
    fn lost(&self, decisions: &Decisions<'_, '_>) -> Vec<Problem> {
        let _ = decisions;
        Vec::new()
    }

    /// Pairs of a resource and another one that releases something for it, such as a port, and comes first.
    fn released(&self, decisions: &Decisions<'_, '_>) -> Vec<(ResourceId, ResourceId)> {
        let _ = decisions;
        Vec::new()
    }

    /// Marks live objects as terminating that are deleted with another one. `server_of` returns the server of an id.
    fn mark_contents<'a>(&self, live: &mut BTreeMap<ResourceId, Live>, server_of: &dyn Fn(&ResourceId) -> &'a str) {
        let _ = (live, server_of);
    }

    /// The resources of `lacking`, whose kinds do not exist in their cluster, that the plan does not provide either.
    fn undefined(
        &self,
        plan: &Plan,
        desired: &BTreeMap<&ResourceId, &Resource>,
        clusters: &Clusters,
        lacking: &BTreeSet<&ResourceId>,
    ) -> Vec<ResourceId> {
        let _ = (plan, desired, clusters, lacking);
        Vec::new()
    }

    /// The planned changes that may make a server accept rejected resources.
    fn may_accept<'a>(
        &self,
        actions: &mut dyn Iterator<Item = &'a PlannedAction>,
        wanted: &dyn Fn(&ResourceId) -> Option<&'a Resource>,
        recorded: &dyn Fn(&ResourceId) -> Option<&'a StateResource>,
        clusters: &Clusters,
    ) -> Box<dyn MayAccept> {
        let _ = (actions, wanted, recorded, clusters);
        Box::new(NoRules)
    }
}

/// The rules of resources that are no objects of a cluster: there are none.
#[derive(Clone, Copy, Debug)]
pub struct NoRules;

impl KindRules for NoRules {}

impl MayAccept for NoRules {
    fn after(&self, _: &Resource, _: &str) -> Vec<ResourceId> {
        Vec::new()
    }
}

/// The decided actions, in no order yet.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'d, 's> {
    /// The input of the plan.
    pub input: &'d PlanInput<'d>,
    /// The wanted resources.
    pub wanted: &'d [&'d Resource],
    /// The recorded resources.
    pub recorded: &'d BTreeMap<&'d ResourceId, &'d StateResource>,
    /// The ids that precede each wanted resource.
    pub before: &'d Before,
    /// What references to wanted resources resolve to.
    pub settled: &'d HashMap<&'s ResourceId, Settled<'s>>,
    /// The action of each resource.
    pub actions: &'d BTreeMap<ResourceId, PlannedAction>,
}
