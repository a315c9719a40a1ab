//! The rules of Kubernetes' kinds: scopes, order, definitions, cascading deletes, and what servers write.
//!
//! Start at [`KubernetesRules`], which answers the engine's questions ([`KindRules`]).
//!
//! **Invariant:** nothing here waits, and nothing reads a clock, file or socket, as in `stoa-engine`.
//!
//! Elsewhere: `stoa-runtime-kubernetes` asks clusters, and `stoa-schemas` has the schemas of built-in kinds.

mod admission_dependencies;
pub mod cascade;
mod cascade_check;
mod claims;
pub mod default_namespace;
pub mod definitions;
mod dependencies;
pub mod kinds;
pub mod normalize;
mod prerequisites;
pub mod pruned;
mod released_claims;
mod scope;
mod stages;
mod terminating;
mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};
use stoa_engine::kind_rules::{Decisions, KindRules, MayAccept};
use stoa_engine::{
    Action, Clusters, Live, ObjectRef, Plan, PlannedAction, Problem, Resource, ResourceId, Scopes, Spec, Stage,
    StateResource,
};

use crate::admission_dependencies::AdmissionDependencies;
pub use crate::cascade::{Cascade, ForeignContents, ForeignObject, UnlistedContents};
pub use crate::scope::scopes;

/// A single destination, such as a Git repository: no clusters, and the scopes of built-in kinds.
pub fn no_clusters() -> &'static Clusters {
    static NONE: LazyLock<Clusters> = LazyLock::new(|| Clusters::NONE.with_scopes(scopes([])));
    &NONE
}

/// The rules of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct KubernetesRules;

impl KindRules for KubernetesRules {
    fn scopes(&self, objects: &[&Map<String, Value>]) -> Scopes {
        scopes(objects.iter().copied())
    }

    fn of_unknown_scope<'s>(&self, spec: &'s Spec, clusters: &Clusters) -> Vec<&'s Resource> {
        scope::of_unknown_scope(spec, clusters)
    }

    fn problems(&self, object: &ObjectRef, attributes: &Map<String, Value>) -> Vec<Problem> {
        validation::problems(object, attributes)
    }

    fn warning(&self, spec: &Spec) -> Option<String> {
        default_namespace::warning(spec)
    }

    fn implied(&self, resources: &[&Resource], clusters: &Clusters) -> Vec<(ResourceId, ResourceId)> {
        dependencies::implied(resources, clusters)
    }

    fn stage(&self, action: Action, attributes: &Map<String, Value>) -> Stage {
        stages::of(action, attributes)
    }

    fn lost(&self, decisions: &Decisions<'_, '_>) -> Vec<Problem> {
        cascade_check::check(decisions)
    }

    fn released(&self, decisions: &Decisions<'_, '_>) -> Vec<(ResourceId, ResourceId)> {
        released_claims::released_claims(decisions)
    }

    fn mark_contents<'a>(&self, live: &mut BTreeMap<ResourceId, Live>, server_of: &dyn Fn(&ResourceId) -> &'a str) {
        terminating::mark_contents(live, server_of);
    }

    fn undefined(
        &self,
        plan: &Plan,
        desired: &BTreeMap<&ResourceId, &Resource>,
        clusters: &Clusters,
        lacking: &BTreeSet<&ResourceId>,
    ) -> Vec<ResourceId> {
        definitions::undefined(plan, desired, clusters, lacking)
    }

    fn may_accept<'a>(
        &self,
        actions: &mut dyn Iterator<Item = &'a PlannedAction>,
        wanted: &dyn Fn(&ResourceId) -> Option<&'a Resource>,
        recorded: &dyn Fn(&ResourceId) -> Option<&'a StateResource>,
        clusters: &Clusters,
    ) -> Box<dyn MayAccept> {
        let changes = AdmissionDependencies::of(actions, wanted, recorded, clusters);
        Box::new(Admitting { changes, clusters: clusters.clone() })
    }
}

/// The admission dependencies of a plan.
#[derive(Debug)]
struct Admitting {
    changes: AdmissionDependencies,
    clusters: Clusters,
}

impl MayAccept for Admitting {
    fn after(&self, rejected: &Resource, message: &str) -> Vec<ResourceId> {
        self.changes.by(rejected, message, &self.clusters)
    }
}
