//! The planner: compares the Spec, the recorded state and the live objects, and decides the actions.
//!
//! Start at [`plan`]. A caller with access to the infrastructure makes an [`Outline`], then a [`Sketch`] before and
//! after the read of live objects, dry runs of what the sketch would change, and the plan with their results.
//!
//! Elsewhere: `pass` decides about all resources, `decision` about one, `drift` about a refresh. `object_names` checks
//! names, `identities` finds the ids of one object, `order` orders the actions, `provider` decides by the plan of a
//! provider, and `data_source` about what is only read. `diff` compares fields, and [`KindRules`] has the rules of kinds.

mod data_source;
mod decision;
mod drift;
mod identities;
mod object_names;
mod order;
mod pass;
mod provider;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::cluster::{Clusters, Identity};
use crate::dependencies::dependencies;
use crate::forgotten_clusters::ForgottenClusters;
use crate::graph::{Before, Graph};
use crate::import::IMPORT_ID;
use crate::kind_rules::{KindRules, NoRules};
use crate::lookup::Settled;
use crate::object::uid_of;
use crate::owner::Owner;
use crate::path::FieldPath;
use crate::plan::{Live, Plan, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::resolve::{Resolved, refers};
use crate::schema::Schemas;
use crate::secret_digest::DigestKeys;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::stage::{self, Stage};
use crate::state::{State, StateResource};
pub use data_source::is_read_later;
pub use drift::is_recorded_elsewhere;
pub use object_names::{disagreement, is_unnamed};
use order::ordered;
use pass::{Decided, Pass, decide};
pub use provider::{Planned, changes, disagreements};

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The wanted resources.
    pub spec: &'a Spec,
    /// The recorded state, without forgotten clusters.
    pub state: &'a State,
    /// The records of forgotten clusters.
    pub forgotten_clusters: &'a ForgottenClusters,
    /// The live objects of all wanted and recorded resources. A missing entry counts as [`Live::Unverified`]. Contents of
    /// terminating holders are [marked](KindRules::mark_contents).
    pub live: &'a BTreeMap<ResourceId, Live>,
    /// The results of dry runs.
    pub previews: &'a BTreeMap<ResourceId, Preview>,
    /// The paths of wanted resources that are sensitive by the schemas of their providers.
    pub sensitive: &'a BTreeMap<ResourceId, BTreeSet<FieldPath>>,
    /// The merge schemas of wanted resources whose kinds are not built in.
    pub schemas: &'a Schemas,
    /// Whether everything recorded is deleted, whatever the Spec has.
    pub destroy: bool,
    /// Whether the plan only reports drift and changes nothing.
    pub refresh: bool,
    /// The deployment. Objects of others are neither changed nor deleted.
    pub owner: &'a Owner,
    /// The digest of the stored Spec document. A digest of the Spec itself would allow guesses at sensitive values.
    pub spec_digest: &'a str,
    /// The keys of the digests of sensitive values.
    pub keys: &'a DigestKeys,
    /// The clusters of the workspace.
    pub clusters: &'a Clusters,
    /// The rules of kinds.
    pub rules: &'a dyn KindRules,
}

impl<'a> PlanInput<'a> {
    /// Without live objects, clusters and rules of kinds: for the Spec and the state alone.
    pub const fn blind(spec: &'a Spec, state: &'a State, owner: &'a Owner, keys: &'a DigestKeys) -> Self {
        static FORGOTTEN: ForgottenClusters = ForgottenClusters::new();
        static LIVE: BTreeMap<ResourceId, Live> = BTreeMap::new();
        static PREVIEWS: BTreeMap<ResourceId, Preview> = BTreeMap::new();
        static SENSITIVE: BTreeMap<ResourceId, BTreeSet<FieldPath>> = BTreeMap::new();
        static SCHEMAS: Schemas = Schemas::new();
        static CLUSTERS: Clusters = Clusters::NONE;
        Self {
            spec,
            state,
            forgotten_clusters: &FORGOTTEN,
            live: &LIVE,
            previews: &PREVIEWS,
            sensitive: &SENSITIVE,
            schemas: &SCHEMAS,
            destroy: false,
            refresh: false,
            owner,
            spec_digest: "",
            keys,
            clusters: &CLUSTERS,
            rules: &NoRules,
        }
    }
}

/// A plan, and what is wanted of each resource with all references replaced that can be.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The plan.
    pub plan: Plan,
    /// Every wanted resource with its references replaced. Holds sensitive values in clear.
    pub desired: BTreeMap<ResourceId, Resolved<'static>>,
}

/// Makes the plan.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, Vec<Problem>> {
    draft(input).map(|draft| draft.plan)
}

/// Makes the plan, with the resolved attributes to apply.
pub fn draft(input: &PlanInput<'_>) -> Result<Draft, Vec<Problem>> {
    let outline = Outline::of(input)?;
    let mut decided = decide(&outline, input, Pass::Whole)?;
    let desired = resolved(std::mem::take(&mut decided.settled));
    let desired = desired.into_iter().map(|(id, resolved)| (id, resolved.into_owned())).collect();
    Ok(Draft { plan: outline.ordered(input, decided), desired })
}

/// The decisions before any dry run.
#[derive(Clone, Debug)]
pub struct Sketch<'s> {
    /// The action of each resource, without dry runs.
    pub actions: BTreeMap<ResourceId, PlannedAction>,
    /// As in a [`Draft`].
    pub desired: BTreeMap<ResourceId, Resolved<'s>>,
}

fn resolved<'s>(settled: HashMap<&ResourceId, Settled<'s>>) -> BTreeMap<ResourceId, Resolved<'s>> {
    settled.into_iter().map(|(id, settled)| (id.clone(), settled.into_resolved())).collect()
}

/// What the Spec and the state alone determine, computed once for all passes of a plan.
#[derive(Debug)]
pub struct Outline<'a> {
    wanted: Vec<&'a Resource>,
    by_id: HashMap<&'a str, &'a Resource>,
    /// The identities of wanted objects, as far as they are known without references.
    objects: HashMap<&'a ResourceId, Identity>,
    recorded: BTreeMap<&'a ResourceId, &'a StateResource>,
    /// Records whose ids are not in the Spec.
    unwanted: Vec<&'a StateResource>,
    /// Records whose ids are in the Spec, but in another cluster or namespace.
    elsewhere: Vec<&'a StateResource>,
    /// The wanted resources that may refer to others.
    referring: HashSet<&'a ResourceId>,
    before: Before,
    /// The ids of the Spec, dependencies first.
    order: Vec<ResourceId>,
}

impl<'a> Outline<'a> {
    /// Checks the Spec and puts it into its order.
    pub fn of(input: &PlanInput<'a>) -> Result<Self, Vec<Problem>> {
        let written = if input.destroy { Before::new() } else { input.spec.checked(input.rules)? };
        let wanted: Vec<&Resource> = if input.destroy { Vec::new() } else { input.spec.resources.iter().collect() };
        let before = dependencies(written, &wanted, input.clusters, input.rules);
        let order = Graph::new(&before).order().unwrap_or_default();
        let object = |resource: &&'a Resource| Some((&resource.id, input.clusters.wanted(resource)?));
        let by_id: HashMap<&str, &Resource> =
            wanted.iter().map(|resource| (resource.id.0.as_str(), *resource)).collect();
        let recorded: BTreeMap<&ResourceId, &StateResource> =
            input.state.resources.iter().map(|resource| (&resource.id, resource)).collect();
        let is_unwanted = |prior: &&StateResource| !by_id.contains_key(prior.id.0.as_str());
        let is_elsewhere = |prior: &&StateResource| {
            let wanted = by_id.get(prior.id.0.as_str());
            wanted.is_some_and(|resource| !input.clusters.is_at_target(prior, resource))
        };
        Ok(Self {
            unwanted: recorded.values().copied().filter(is_unwanted).collect(),
            elsewhere: recorded.values().copied().filter(is_elsewhere).collect(),
            by_id,
            objects: wanted.iter().filter_map(object).collect(),
            recorded,
            referring: wanted.iter().filter(|it| refers(&it.attributes)).map(|resource| &resource.id).collect(),
            wanted,
            before,
            order,
        })
    }

    /// The ids of the Spec, dependencies first.
    pub fn order(&self) -> &[ResourceId] {
        &self.order
    }

    /// The direct dependencies of a resource of the Spec.
    pub fn before(&self, id: &ResourceId) -> impl Iterator<Item = &ResourceId> {
        self.before.get(id).into_iter().flatten()
    }

    /// Decides without dry runs, and resolves the attributes to apply. `input` is that of the outline, with all that is
    /// known by then.
    pub fn sketch<'s>(&'s self, input: &PlanInput<'s>) -> Result<Sketch<'s>, Vec<Problem>> {
        let Decided { actions, settled, .. } = decide(self, input, Pass::Sketch)?;
        Ok(Sketch { actions, desired: resolved(settled) })
    }

    /// The attributes to apply, as far as they are known with the results of dry runs.
    pub fn resolved<'s>(&'s self, input: &PlanInput<'s>) -> Result<BTreeMap<ResourceId, Resolved<'s>>, Vec<Problem>> {
        decide(self, input, Pass::Whole).map(|decided| resolved(decided.settled))
    }

    /// The plan with the results of dry runs: `sketch` has the same `input`, apart from the previews.
    pub fn plan(&self, input: &PlanInput<'_>, sketch: Sketch<'_>) -> Result<Plan, Vec<Problem>> {
        let Sketch { actions, desired } = sketch;
        let decided = decide(self, input, Pass::Sketched(actions, &desired))?;
        Ok(self.ordered(input, decided))
    }

    fn ordered(&self, input: &PlanInput<'_>, decided: Decided<'_>) -> Plan {
        let Decided { actions, moved, superseded, later, .. } = decided;
        let mut actions = ordered(self.before.clone(), actions, &self.recorded, &moved, &superseded, &later);
        stage::assign(&mut actions, |planned| {
            let wanted = self.by_id.get(planned.id.0.as_str()).map(|wanted| (wanted.kind, &wanted.attributes));
            let recorded = || self.recorded.get(&planned.id).map(|record| (record.kind, &record.attributes));
            match wanted.or_else(recorded) {
                Some((ResourceType::Kubernetes, attributes)) => input.rules.stage(planned.action, attributes),
                Some(_) | None => Stage::of(planned.action),
            }
        });
        Plan { actions, ..Plan::of(input.spec_digest) }
    }
}

/// The problem of a lost call that may have created a resource which Stoa cannot find, so that a repeated call might create
/// a second one.
pub fn unknown_state(id: &ResourceId) -> Problem {
    let message = format!(
        "an earlier call may have created it, and Stoa cannot find out; if it exists, set its extension {IMPORT_ID} or \
         import it by a Run; otherwise name its id in spec.retry of a Run"
    );
    Problem::new(reason::UNKNOWN_STATE, message).of(id)
}

/// The uid of the live object of a resource.
pub fn live_uid<'a>(input: &PlanInput<'a>, id: &ResourceId) -> Option<&'a str> {
    match input.live.get(id)? {
        Live::Present(live) => uid_of(live),
        Live::Absent | Live::Unverified(_) => None,
    }
}

/// The attributes that a preview or an apply would send: those wanted, with references replaced.
pub fn with_attributes(resource: &Resource, attributes: Map<String, Value>) -> Resource {
    let Resource { id, kind, attributes: _, depends_on, extensions } = resource;
    let (id, depends_on, extensions) = (id.clone(), depends_on.clone(), extensions.clone());
    Resource { id, kind: *kind, attributes, depends_on, extensions }
}
