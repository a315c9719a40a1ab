//! Cascade check: rejects plans whose deletions would also delete resources that the Spec keeps.
//!
//! Start at [`check`]. Kubernetes deletes all objects in a namespace, and all objects of a CustomResourceDefinition, without
//! asking. A plan would show these objects as Unchanged. Therefore such a plan is rejected, as kpt's `cli-utils` does.
//!
//! Elsewhere: `terminating` has the objects whose namespace or definition is being deleted already; a plan recreates them.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};
use stoa_engine::import::IMPORT_ID;
use stoa_engine::kind_rules::Decisions;
use stoa_engine::lookup::Settled;
use stoa_engine::object::{ObjectRef, is_terminating, uid_of};
use stoa_engine::owner::MARK;
use stoa_engine::plan::{Action, Live, PlannedAction};
use stoa_engine::planner::{PlanInput, live_uid};
use stoa_engine::problem::{Problem, reason};
use stoa_engine::spec::{Resource, ResourceId, ResourceType};
use stoa_engine::state::StateResource;

use crate::definitions::{Definition, Definitions};

/// An object whose deletion deletes other objects.
enum Holder<'a> {
    Namespace(String),
    Definition(Definition<'a>),
}

/// Why a holder is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Unwanted,
    /// It moves to another cluster.
    Moved,
    /// It is recreated in its cluster.
    Recreated,
    /// Another client deleted it.
    Terminating,
}

/// A holder that an action deletes, or that is being deleted already, and its cluster.
struct Deleted<'a> {
    id: &'a ResourceId,
    cluster: &'a str,
    holder: Holder<'a>,
    becomes: Becomes<'a>,
}

/// What follows the deletion.
enum Becomes<'a> {
    /// Nothing: the Spec does not have it.
    Nothing,
    /// The Spec has it in this cluster.
    Wanted(&'a str),
    /// Another client deletes it, whatever is planned; the plan recreates it if the Spec has it.
    Terminating,
}

/// Groups of cluster names that are known to lead to one server.
struct Servers<'a>(Vec<HashSet<&'a str>>);

impl<'a> Servers<'a> {
    /// Groups names by their server address and by the uids of recorded and live objects: a uid exists on one server only.
    fn of(input: &PlanInput<'a>, wanted: &[&'a Resource], recorded: &BTreeMap<&ResourceId, &'a StateResource>) -> Self {
        // A resource of the Spec is read in its target cluster, any other one in its recorded cluster.
        let ids: HashSet<&ResourceId> = wanted.iter().map(|resource| &resource.id).collect();
        let found = |resource: &&'a Resource| (live_uid(input, &resource.id), input.clusters.of_wanted(resource));
        let mut seen: Vec<(Option<&str>, &str)> = wanted.iter().map(found).collect();
        for record in recorded.values() {
            let cluster = input.clusters.of_recorded(record);
            seen.push((record.uid(), cluster));
            seen.push((live_uid(input, &record.id).filter(|_| !ids.contains(&record.id)), cluster));
        }
        let mut by_uid: HashMap<&str, HashSet<&str>> = HashMap::new();
        for (uid, cluster) in seen {
            if let Some(uid) = uid {
                by_uid.entry(uid).or_default().insert(cluster);
            }
        }
        let mut servers = Self(Vec::new());
        for name in input.clusters.names() {
            servers.join(HashSet::from([name.as_str(), input.clusters.server(name)]));
        }
        for names in by_uid.into_values().filter(|names| names.len() > 1) {
            servers.join(names);
        }
        servers
    }

    fn join(&mut self, mut names: HashSet<&'a str>) {
        self.0.retain(|others| {
            let is_other = others.is_disjoint(&names);
            if !is_other {
                names.extend(others);
            }
            is_other
        });
        self.0.push(names);
    }

    fn are_one(&self, a: &'a str, b: &str) -> bool {
        self.names(a).any(|name| name == b)
    }

    /// A cluster name and all other names of its server.
    fn names(&self, cluster: &'a str) -> impl Iterator<Item = &'a str> {
        let of_server = self.0.iter().find(|names| names.contains(cluster)).into_iter().flatten().copied();
        std::iter::once(cluster).chain(of_server)
    }
}

/// An object of the Spec.
struct Wanted<'a> {
    id: &'a ResourceId,
    cluster: &'a str,
    object: ObjectRef,
    /// Whether the plan keeps the live object.
    is_kept: bool,
}

/// One problem for each Namespace, CustomResourceDefinition or APIService that is deleted although a resource of the Spec needs
/// it.
pub(crate) fn check(decisions: &Decisions<'_, '_>) -> Vec<Problem> {
    let Decisions { input, wanted, recorded, before, settled, actions } = *decisions;
    let both = |action| [deleted(input, wanted, action, recorded), terminating(input, wanted, action, recorded)];
    let mut deleted = actions.values().flat_map(both).flatten().peekable();
    if deleted.peek().is_none() {
        return Vec::new();
    }
    let objects: Vec<Wanted<'_>> =
        wanted.iter().filter_map(|resource| object(input, resource, settled, actions)).collect();
    let definitions = Definitions::of(wanted.iter().copied(), input.clusters);
    let servers = Servers::of(input, wanted, recorded);
    deleted
        .filter_map(|Deleted { id, cluster, holder, becomes }| {
            let why = match becomes {
                Becomes::Nothing => Why::Unwanted,
                Becomes::Wanted(to) if servers.are_one(to, cluster) => Why::Recreated,
                Becomes::Wanted(_) => Why::Moved,
                Becomes::Terminating => Why::Terminating,
            };
            let needs_it = |it: &&Wanted<'_>| {
                // A resource that follows it is created with it. An explicit dependency may reverse that order.
                let follows = before.get(it.id).is_some_and(|before| before.contains(id));
                let is_lost = match why {
                    Why::Unwanted | Why::Moved => true,
                    Why::Recreated => it.is_kept || !follows,
                    Why::Terminating => !follows,
                };
                servers.are_one(it.cluster, cluster) && is_lost && holder.has(it, &definitions, &servers)
            };
            let mut needing = objects.iter().filter(needs_it);
            let first = needing.next()?;
            let more = Some(needing.count()).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
            let (reason, effect, more) = (why.reason(), holder.effect(), more.unwrap_or_default());
            let message = format!("{reason}; {effect}, but the Spec keeps {}{more}; {}", first.id, why.advice());
            Some(Problem::new(reason::STILL_NEEDED, message).of(id))
        })
        .collect()
}

/// The holder that an action deletes.
fn deleted<'a>(
    input: &PlanInput<'a>,
    wanted: &[&'a Resource],
    action: &'a PlannedAction,
    recorded: &BTreeMap<&ResourceId, &'a StateResource>,
) -> Option<Deleted<'a>> {
    if !matches!(action.action, Action::Delete | Action::Replace) {
        return None;
    }
    let record = *recorded.get(action.recorded_id())?;
    if record.kind != ResourceType::Kubernetes {
        return None;
    }
    let live = match input.live.get(&action.id) {
        Some(Live::Present(live)) => Some(live),
        Some(Live::Absent | Live::Unverified(_)) => None,
        // Without a read, each recorded resource outside the Spec seems to be deleted.
        None => return None,
    };
    // The record of an imported object has only its name.
    let holder = Holder::of(&record.attributes).or_else(|| Holder::of(live?))?;
    let cluster = input.clusters.of_recorded(record);
    let again = wanted.iter().find(|resource| resource.id == action.id);
    let becomes = again.map_or(Becomes::Nothing, |resource| Becomes::Wanted(input.clusters.of_wanted(resource)));
    Some(Deleted { id: &action.id, cluster, holder, becomes })
}

/// A holder that another client deletes, and that no action deletes.
fn terminating<'a>(
    input: &PlanInput<'a>,
    wanted: &[&'a Resource],
    action: &'a PlannedAction,
    recorded: &BTreeMap<&ResourceId, &'a StateResource>,
) -> Option<Deleted<'a>> {
    let id = &action.id;
    let live = match input.live.get(id)? {
        Live::Present(live) if is_terminating(live) && action.action != Action::Delete => live,
        Live::Present(_) | Live::Absent | Live::Unverified(_) => return None,
    };
    let holder = Holder::of(live).filter(Holder::deletes_objects)?;
    let cluster = match wanted.iter().find(|resource| resource.id == *id) {
        Some(resource) => input.clusters.of_wanted(resource),
        // The Spec may have it under another id.
        None if wanted.iter().any(|it| live_uid(input, &it.id).is_some_and(|uid| uid_of(live) == Some(uid))) => {
            return None;
        }
        None => input.clusters.of_recorded(recorded.get(id).copied()?),
    };
    Some(Deleted { id, cluster, holder, becomes: Becomes::Terminating })
}

fn object<'a>(
    input: &PlanInput<'a>,
    resource: &'a Resource,
    settled: &HashMap<&ResourceId, Settled<'_>>,
    actions: &BTreeMap<ResourceId, PlannedAction>,
) -> Option<Wanted<'a>> {
    let id = &resource.id;
    let attributes = &settled.get(id).filter(|_| resource.kind == ResourceType::Kubernetes)?.resolved().attributes;
    let mut object = ObjectRef::of(attributes)?;
    if let Some(Live::Present(live)) = input.live.get(id) {
        // The live object has the actual namespace: the default one, or none for a cluster-scoped kind.
        let namespace = live.get("metadata").and_then(|metadata| metadata.get("namespace"));
        object.namespace = namespace.and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    }
    let is_kept = !matches!(actions.get(id)?.action, Action::Create | Action::Replace);
    Some(Wanted { id, cluster: input.clusters.of_wanted(resource), object, is_kept })
}

impl<'a> Holder<'a> {
    /// The holder in a Namespace, CustomResourceDefinition or APIService; `None` for any other object.
    fn of(object: &'a Map<String, Value>) -> Option<Self> {
        let called = ObjectRef::of(object)?;
        if called.is_namespace() {
            return Some(Self::Namespace(called.name));
        }
        Definition::of(object).map(Self::Definition)
    }

    /// Whether its deletion deletes objects.
    fn deletes_objects(&self) -> bool {
        match self {
            Self::Namespace(_) => true,
            Self::Definition(it) => it.deletes_objects(),
        }
    }

    /// Whether an object of the Spec needs it.
    fn has(&self, wanted: &Wanted<'_>, definitions: &Definitions<'_>, servers: &Servers<'_>) -> bool {
        // Another definition may serve the kind.
        let is_served = || servers.names(wanted.cluster).any(|cluster| definitions.has(cluster, &wanted.object));
        match self {
            Self::Namespace(name) => wanted.object.namespace == *name,
            Self::Definition(it) => it.is_of(&wanted.object) && (it.deletes_objects() || !is_served()),
        }
    }

    /// The effect of its deletion.
    fn effect(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "deleting it deletes all objects in it",
            Self::Definition(it) if it.deletes_objects() => "deleting it deletes all objects of its kind",
            Self::Definition(_) => "nothing else serves its kinds",
        }
    }
}

impl Why {
    fn reason(self) -> &'static str {
        match self {
            Self::Unwanted => "it is no longer in the Spec",
            Self::Moved => "it moves to another cluster",
            Self::Recreated => "it is to be recreated",
            Self::Terminating => "it is being deleted",
        }
    }

    fn advice(self) -> String {
        match self {
            Self::Unwanted => format!(
                "keep it in the Spec, or remove these too; to keep it outside of the Spec, apply it once more with the \
                 extension {IMPORT_ID}, or annotate it with another {MARK}"
            ),
            Self::Moved => "move these too, or keep it in its cluster".to_owned(),
            Self::Recreated => "remove these for one Apply, or undo its change".to_owned(),
            Self::Terminating => "plan again after it is deleted".to_owned(),
        }
    }
}
