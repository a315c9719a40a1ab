//! What goes with what is deleted, though it is wanted: all that is in a namespace, and all objects of a kind that nothing
//! defines any more.
//!
//! Start at [`check`]. Kubernetes asks nobody before it removes these, and a plan would call them unchanged; so there is no
//! such plan, as with `cli-utils` of kpt.
//!
//! Elsewhere: what goes with what is being deleted already is made anew after that where it can be, by `going`.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::definitions::{Definition, Definitions};
use crate::dependencies::Before;
use crate::import::IMPORT_ID;
use crate::lookup::Settled;
use crate::object::{ObjectRef, is_going, uid_of};
use crate::owner::MARK;
use crate::plan::{Action, Live, PlannedAction};
use crate::planner::{PlanInput, live_uid};
use crate::problem::{Problem, reason};
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;

/// What has others go with it.
enum Holder<'a> {
    Namespace(String),
    Definition(Definition<'a>),
}

/// Why it is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Unwanted,
    /// It goes to another cluster.
    Moved,
    /// It is made anew where it is.
    Recreated,
    /// Somebody deleted it.
    Going,
}

/// What an action deletes, or somebody did already, and from which cluster.
struct Deleted<'a> {
    id: &'a ResourceId,
    cluster: &'a str,
    holder: Holder<'a>,
    becomes: Becomes<'a>,
}

/// What becomes of what is deleted.
enum Becomes<'a> {
    /// It is not wanted any more.
    Nothing,
    /// It is wanted in this cluster.
    Wanted(&'a str),
    /// It goes whatever is planned, and is made anew after that if it is wanted.
    Going,
}

/// Names of clusters that lead to one server, as far as that is known: an object is in one alone.
struct Servers<'a>(Vec<HashSet<&'a str>>);

impl<'a> Servers<'a> {
    /// By where they are, by the objects that are recorded, and by those that were found.
    fn of(input: &PlanInput<'a>, wanted: &[&'a Resource], recorded: &BTreeMap<&ResourceId, &'a StateResource>) -> Self {
        // What is wanted is looked for where it goes, and the rest where it is recorded.
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

    /// A name of a cluster and all others of its server.
    fn names(&self, cluster: &'a str) -> impl Iterator<Item = &'a str> {
        let of_server = self.0.iter().find(|names| names.contains(cluster)).into_iter().flatten().copied();
        std::iter::once(cluster).chain(of_server)
    }
}

/// A wanted object.
struct Wanted<'a> {
    id: &'a ResourceId,
    cluster: &'a str,
    object: ObjectRef,
    /// Whether the plan keeps what is there.
    is_kept: bool,
}

/// One problem for each namespace, definition and API service that the actions delete, or somebody did already, and something
/// wanted needs. `before` says what each wanted resource comes after.
pub(crate) fn check(
    input: &PlanInput<'_>,
    wanted: &[&Resource],
    settled: &HashMap<&ResourceId, Settled<'_>>,
    actions: &BTreeMap<ResourceId, PlannedAction>,
    (recorded, before): (&BTreeMap<&ResourceId, &StateResource>, &Before),
) -> Vec<Problem> {
    let both = |action| [deleted(input, wanted, action, recorded), going(input, wanted, action, recorded)];
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
                Becomes::Going => Why::Going,
            };
            let needs_it = |it: &&Wanted<'_>| {
                let is_lost = match why {
                    Why::Unwanted | Why::Moved => true,
                    Why::Recreated => it.is_kept,
                    // What comes after it is made anew with it.
                    Why::Going => !before.get(it.id).is_some_and(|before| before.contains(id)),
                };
                servers.are_one(it.cluster, cluster) && is_lost && holder.has(it, &definitions, &servers)
            };
            let mut needing = objects.iter().filter(needs_it);
            let first = needing.next()?;
            let more = Some(needing.count()).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
            let message = format!(
                "{}, and {} {}{}; {}",
                why.told(),
                holder.contents(),
                first.id,
                more.unwrap_or_default(),
                why.advice()
            );
            Some(Problem::new(reason::STILL_NEEDED, message).of(id))
        })
        .collect()
}

/// What an action deletes that has others go with it.
fn deleted<'a>(
    input: &PlanInput<'a>,
    wanted: &[&'a Resource],
    action: &'a PlannedAction,
    recorded: &BTreeMap<&ResourceId, &'a StateResource>,
) -> Option<Deleted<'a>> {
    if !matches!(action.action, Action::Delete | Action::Replace) {
        return None;
    }
    let record = *recorded.get(action.recorded_id()?)?;
    if record.kind != ResourceType::Kubernetes {
        return None;
    }
    let live = match input.live.get(&action.id) {
        Some(Live::Present(live)) => Some(live),
        Some(Live::Absent | Live::Unverified(_)) => None,
        // Before anybody has looked, everything that is recorded and not wanted seems to be deleted.
        None => return None,
    };
    // Of what was only found the record says no more than its name.
    let holder = Holder::of(&record.attributes).or_else(|| Holder::of(live?))?;
    let cluster = input.clusters.of_recorded(record);
    let again = wanted.iter().find(|resource| resource.id == action.id);
    let becomes = again.map_or(Becomes::Nothing, |resource| Becomes::Wanted(input.clusters.of_wanted(resource)));
    Some(Deleted { id: &action.id, cluster, holder, becomes })
}

/// What is being deleted already that has others go with it, and that no action deletes.
fn going<'a>(
    input: &PlanInput<'a>,
    wanted: &[&'a Resource],
    action: &'a PlannedAction,
    recorded: &BTreeMap<&ResourceId, &'a StateResource>,
) -> Option<Deleted<'a>> {
    let id = &action.id;
    let live = match input.live.get(id)? {
        Live::Present(live) if is_going(live) && action.action != Action::Delete => live,
        Live::Present(_) | Live::Absent | Live::Unverified(_) => return None,
    };
    let holder = Holder::of(live).filter(Holder::holds_objects)?;
    let cluster = match wanted.iter().find(|resource| resource.id == *id) {
        Some(resource) => input.clusters.of_wanted(resource),
        // It may be wanted under another id.
        None if wanted.iter().any(|it| live_uid(input, &it.id).is_some_and(|uid| uid_of(live) == Some(uid))) => {
            return None;
        }
        None => input.clusters.of_recorded(recorded.get(id).copied()?),
    };
    Some(Deleted { id, cluster, holder, becomes: Becomes::Going })
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
        // What names no namespace is in the cluster's default, and what names one need not be in any.
        let namespace = live.get("metadata").and_then(|metadata| metadata.get("namespace"));
        object.namespace = namespace.and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    }
    let is_kept = !matches!(actions.get(id)?.action, Action::Create | Action::Replace);
    Some(Wanted { id, cluster: input.clusters.of_wanted(resource), object, is_kept })
}

impl<'a> Holder<'a> {
    /// Reads it from a Namespace, a CustomResourceDefinition or an APIService; `None` of anything else.
    fn of(object: &'a Map<String, Value>) -> Option<Self> {
        let called = ObjectRef::of(object)?;
        if called.is_namespace() {
            return Some(Self::Namespace(called.name));
        }
        Definition::of(object).map(Self::Definition)
    }

    /// Whether objects are gone without it.
    fn holds_objects(&self) -> bool {
        match self {
            Self::Namespace(_) => true,
            Self::Definition(it) => it.holds_objects(),
        }
    }

    /// Whether a wanted object cannot be without it.
    fn has(&self, wanted: &Wanted<'_>, definitions: &Definitions<'_>, servers: &Servers<'_>) -> bool {
        // Whatever else serves the kind may serve these objects.
        let is_served = || servers.names(wanted.cluster).any(|cluster| definitions.has(cluster, &wanted.object));
        match self {
            Self::Namespace(name) => wanted.object.namespace == *name,
            Self::Definition(it) => it.is_of(&wanted.object) && (it.holds_objects() || !is_served()),
        }
    }

    /// What goes with it.
    fn contents(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "deleting it deletes all that is in it, of which the Spec keeps",
            Self::Definition(it) if it.holds_objects() => {
                "deleting it deletes all objects of its kind, of which the Spec keeps"
            }
            Self::Definition(_) => "nothing else serves these kinds, of which the Spec keeps",
        }
    }
}

impl Why {
    fn told(self) -> &'static str {
        match self {
            Self::Unwanted => "it is not wanted any more",
            Self::Moved => "it is to go to another cluster",
            Self::Recreated => "it is to be made anew",
            Self::Going => "it is being deleted",
        }
    }

    fn advice(self) -> String {
        match self {
            Self::Unwanted => format!(
                "keep it in the Spec, or drop what needs it, too; to have it left alone, apply it once more with the \
                 extension {IMPORT_ID}, or annotate it with another {MARK}"
            ),
            Self::Moved => "let what needs it go there, too, or leave it where it is".to_owned(),
            Self::Recreated => "drop what needs it for one Apply, or leave it as it is".to_owned(),
            Self::Going => "plan again once it is gone".to_owned(),
        }
    }
}
