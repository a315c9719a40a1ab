//! Scripts of the model test: a random list of operations, printed when one of them breaks a rule.

use std::fmt;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stoa_engine::conflict::FORCE;
use stoa_engine::owner::TAKE_OVER_FROM;
use stoa_engine::spec::RECREATE;
use stoa_engine::{ResourceId, Spec};
use stoa_runtime::fake_provider::RESOURCE_TYPE;

/// Another deployment by its name, and its mark.
pub(crate) const OTHER: &str = "fake/other/workspace";
pub(crate) const OTHERS_MARK: &str = "fake/other/workspace/uid-of-other";

/// The field that cannot be changed in place.
pub(crate) const FIXED: &str = "type";

/// An object that may be there. Everything is about these, so that operations meet.
#[derive(Debug)]
pub(crate) struct Slot {
    api_version: &'static str,
    kind: &'static str,
    namespace: Option<&'static str>,
    pub(crate) name: &'static str,
    /// The field in which its values are.
    pub(crate) values: &'static str,
    /// Whether it is an object of the provider.
    pub(crate) is_provided: bool,
}

const fn slot(
    api_version: &'static str,
    kind: &'static str,
    namespace: Option<&'static str>,
    name: &'static str,
) -> Slot {
    Slot { api_version, kind, namespace, name, values: "data", is_provided: false }
}

const fn provided(name: &'static str) -> Slot {
    Slot { values: "tags", is_provided: true, ..slot("", RESOURCE_TYPE, None, name) }
}

/// Names with dots and colons, one the beginning of another; a namespace, a Secret, one that is served in two versions;
/// objects of a provider.
pub(crate) const SLOTS: [Slot; 8] = [
    slot("v1", "ConfigMap", Some("shop"), "a"),
    slot("v1", "ConfigMap", Some("shop"), "a.b"),
    slot("rbac.authorization.k8s.io/v1", "ClusterRole", None, "system:c"),
    slot("apps/v1", "Deployment", Some("shop"), "d"),
    Slot { values: "stringData", ..slot("v1", "Secret", Some("shop"), "e") },
    slot("v1", "Namespace", None, "shop"),
    provided("f"),
    provided("g"),
];

/// The slot of the namespace that others are in.
pub(crate) const NAMESPACE: usize = 5;

impl Slot {
    pub(crate) fn is_in_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// Its id; `earlier` in the version before.
    pub(crate) fn id(&self, earlier: bool) -> ResourceId {
        if self.is_provided {
            return ResourceId(format!("stoa:fake:{}:{}", self.kind, self.name));
        }
        let namespace = self.namespace.map(|namespace| format!("{namespace}:")).unwrap_or_default();
        ResourceId(format!("{}:{}:{namespace}{}", self.version(earlier), self.kind, self.name))
    }

    fn version(&self, earlier: bool) -> String {
        if earlier { format!("{}beta1", self.api_version) } else { self.api_version.to_owned() }
    }

    /// The name of its object, as the provider has it.
    pub(crate) fn provided_name(&self) -> String {
        self.name.to_uppercase()
    }

    /// The path of a value.
    fn path(&self, key: &str) -> String {
        match (key, self.is_provided) {
            ("v", true) => "note".to_owned(),
            ("v", false) => format!("{}.v", self.values),
            (key, _) => format!("{}[{key:?}]", self.values),
        }
    }

    /// The resource of the Spec, without its dependencies.
    fn resource(&self, want: &Want, values: Map<String, Value>) -> Value {
        if self.is_provided {
            let mut tags = values;
            let note = tags.remove("v");
            let mut attributes = json!({"name": self.name, "note": note, "tags": tags});
            attributes["fixed"] = json!(want.fixed.map(|fixed| fixed.to_string()));
            return json!({"id": self.id(false), "type": "Terraform", "attributes": attributes,
                "extensions": {"provider": "stoa/fake", "resourceType": self.kind}});
        }
        let mut attributes = self.object(want.earlier, values.into());
        attributes.extend(want.fixed.map(|fixed| (FIXED.to_owned(), json!(fixed.to_string()))));
        let mut extensions = json!({RECREATE: "true"});
        if want.take_over {
            extensions[TAKE_OVER_FROM] = json!(OTHER);
        }
        if want.force {
            extensions[FORCE] = json!("true");
        }
        json!({"id": self.id(want.earlier), "type": "Kubernetes", "attributes": attributes, "extensions": extensions})
    }

    /// The object with these values.
    pub(crate) fn object(&self, earlier: bool, values: Value) -> Map<String, Value> {
        let mut metadata = json!({"name": self.name});
        if let Some(namespace) = self.namespace {
            metadata["namespace"] = json!(namespace);
        }
        let object = json!({"apiVersion": self.version(earlier), "kind": self.kind, "metadata": metadata});
        let mut object = object.as_object().cloned().expect("it is a map");
        object.insert(self.values.to_owned(), values);
        object
    }
}

/// Which slot an id is of.
pub(crate) fn slot_of(id: &ResourceId) -> usize {
    let found = SLOTS.iter().position(|slot| [false, true].iter().any(|earlier| slot.id(*earlier) == *id));
    found.unwrap_or_else(|| panic!("{id} is of no slot"))
}

/// The field of another resource that a reference reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Look {
    /// A value that is known before.
    Value,
    /// The same inside a text.
    Text,
    /// A field that the infrastructure chose.
    Uid,
    /// The same inside a text.
    UidText,
    /// A sensitive field that the provider chose; a uid of other objects.
    Password,
    /// The field that itself is a reference, or a value; unknown while that is.
    Passed,
}

/// One wanted resource.
#[derive(Clone, PartialEq)]
pub(crate) struct Want {
    pub(crate) slot: usize,
    pub(crate) value: u8,
    pub(crate) fixed: Option<u8>,
    pub(crate) after: Vec<usize>,
    pub(crate) refers: Vec<(usize, Look)>,
    pub(crate) take_over: bool,
    /// Whether fields of other managers are taken.
    pub(crate) force: bool,
    /// Whether it is in the former version.
    pub(crate) earlier: bool,
}

impl fmt::Debug for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}", SLOTS[self.slot].name, self.value)?;
        self.fixed.iter().try_for_each(|fixed| write!(f, " type {fixed}"))?;
        self.after.iter().try_for_each(|after| write!(f, " after {}", SLOTS[*after].name))?;
        for (to, look) in &self.refers {
            let what = match look {
                Look::Value => "value",
                Look::Text => "text",
                Look::Uid => "uid",
                Look::UidText => "uid text",
                Look::Password => "password",
                Look::Passed => "what is passed",
            };
            write!(f, " {what} of {}", SLOTS[*to].name)?;
        }
        f.write_str(if self.earlier { " earlier" } else { "" })?;
        f.write_str(if self.force { " force" } else { "" })?;
        f.write_str(if self.take_over { " take over}" } else { "}" })
    }
}

/// The goal of a run.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Apply(Vec<Want>),
    /// Records existing ones of these.
    Import(Vec<Want>),
    Destroy,
}

impl Goal {
    pub(crate) fn wants(&self) -> &[Want] {
        match self {
            Self::Apply(wants) | Self::Import(wants) => wants,
            Self::Destroy => &[],
        }
    }

    pub(crate) fn want(&self, slot: usize) -> Option<&Want> {
        self.wants().iter().find(|want| want.slot == slot)
    }

    pub(crate) fn id(&self, slot: usize) -> Option<ResourceId> {
        self.want(slot).map(|want| SLOTS[slot].id(want.earlier))
    }

    /// As a generator would write it.
    pub(crate) fn spec(&self) -> Spec {
        let resources = self.wants().iter().map(|want| {
            let mut values = Map::from_iter([("v".to_owned(), json!(value_of(want)))]);
            for (to, look) in &want.refers {
                let id = self.id(*to).expect("what is referred to is wanted");
                let slot = &SLOTS[*to];
                let uid = if slot.is_provided { "id" } else { "metadata.uid" };
                let text = match look {
                    Look::Value => format!("$kusion_path.{id}.{}", slot.path("v")),
                    Look::Text => format!("x-${{kusion_path.{id}.{}}}", slot.path("v")),
                    Look::Password if slot.is_provided => format!("$kusion_path.{id}.password"),
                    Look::Uid | Look::Password => format!("$kusion_path.{id}.{uid}"),
                    Look::UidText => format!("x-${{kusion_path.{id}.{uid}}}"),
                    Look::Passed => {
                        let first = self.want(*to).and_then(|want| want.refers.first());
                        let key = first.map_or("v".to_owned(), |(to, _)| reference_key(*to));
                        format!("$kusion_path.{id}.{}", slot.path(&key))
                    }
                };
                values.insert(reference_key(*to), json!(text));
            }
            let mut resource = SLOTS[want.slot].resource(want, values);
            resource["dependsOn"] = want.after.iter().filter_map(|slot| self.id(*slot)).map(|id| json!(id)).collect();
            resource
        });
        let resources: Vec<Value> = resources.collect();
        serde_json::from_value(json!({ "resources": resources })).expect("it is a Spec")
    }
}

pub(crate) fn value_of(want: &Want) -> String {
    format!("value-{}", want.value)
}

pub(crate) fn reference_key(to: usize) -> String {
    format!("of-{}", SLOTS[to].name)
}

/// An edit of others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit {
    /// Change a value, if it is there.
    Change,
    /// Change a value, if it is there, and go on applying it.
    Claim,
    /// Add a value, if it is there.
    Extend,
    /// Delete it, whosever it is.
    Delete,
    /// Delete it, and have it held for a while: what is in a namespace stays as long, and goes with that.
    DeleteSlowly,
    /// Make it, if it is not there.
    Make,
    /// The same as another deployment.
    MakeMarked,
    /// Make it another deployment's, if it is there.
    Take,
    /// Let go of it, if a deletion of it is stuck.
    LetGo,
    /// Have it fail from now on, or once it is there.
    Sicken,
    /// And be well again.
    Heal,
    /// A user searches the object of a lost call of the provider, deletes it, and permits another call.
    Decide,
}

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is refused.
    Refused,
    /// It cannot be made, and can when it is tried again.
    Passing,
    /// It is made, its answer is lost, and it is tried again.
    Lost,
    /// It is not made, and never answered.
    HangsBefore,
    /// It is made, and never answered.
    HangsAfter,
    /// The deleted object has a finalizer for a while. A change of the provider fails halfway.
    Lingers,
    /// The deleted object has a finalizer until others remove it. A change of the provider fails halfway.
    Stuck,
}

/// How a try is interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interrupt {
    /// The process ends.
    Crash,
    /// The run is to stop.
    Cancel,
    /// The process is suspended for so long that its grant is over.
    Suspend,
}

/// One try to carry out the plan of a run. The next begins where it crashed or was suspended.
#[derive(Clone, Default)]
pub(crate) struct Try {
    /// The faults of calls for a slot, after a number of good ones.
    pub(crate) faults: Vec<(usize, usize, Fault)>,
    /// At which step; every intent, call and result is two, one before and one after.
    pub(crate) interrupt: Option<(usize, Interrupt)>,
}

#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) goal: Goal,
    /// Edits of others between the plan and the first try.
    pub(crate) meanwhile: Vec<(usize, Edit)>,
    pub(crate) tries: Vec<Try>,
}

#[derive(Clone)]
pub(crate) enum Operation {
    Edit(usize, Edit),
    Preview(Goal),
    Run(Run),
}

/// On one line, however it is asked for.
impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit(slot, edit) => write!(f, "others {edit:?} {}", SLOTS[*slot].name),
            Self::Preview(goal) => write!(f, "preview {goal:?}"),
            Self::Run(run) => write!(f, "run {run:?}"),
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.goal)?;
        for (slot, edit) in &self.meanwhile {
            write!(f, ", meanwhile others {edit:?} {}", SLOTS[*slot].name)?;
        }
        self.tries.iter().try_for_each(|one| write!(f, ", {one:?}"))
    }
}

impl fmt::Debug for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("try(")?;
        for (slot, skip, fault) in &self.faults {
            write!(f, "{} {fault:?} call {skip} ", SLOTS[*slot].name)?;
        }
        self.interrupt.iter().try_for_each(|(at, how)| write!(f, "{how:?} at {at}"))?;
        f.write_str(")")
    }
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        5 => run().prop_map(Operation::Run),
        3 => (0..SLOTS.len(), edit()).prop_map(|(slot, edit)| Operation::Edit(slot, edit)),
        1 => goal().prop_map(Operation::Preview),
    ];
    prop::collection::vec(operation, 1..7)
}

fn run() -> impl Strategy<Value = Run> {
    let edits = prop::collection::vec((0..SLOTS.len(), edit()), 1..3);
    let meanwhile = prop::option::weighted(0.2, edits).prop_map(Option::unwrap_or_default);
    let tries = prop::collection::vec(one_try(), 1..3);
    (goal(), meanwhile, tries).prop_map(|(goal, meanwhile, tries)| Run { goal, meanwhile, tries })
}

fn one_try() -> impl Strategy<Value = Try> {
    let fault = prop::sample::select(vec![
        Fault::Refused,
        Fault::Passing,
        Fault::Lost,
        Fault::HangsBefore,
        Fault::HangsAfter,
        Fault::Lingers,
        Fault::Stuck,
    ]);
    let faults = prop::collection::vec((0..SLOTS.len(), 0..2_usize, fault), 0..3);
    let interrupt = prop::sample::select(vec![Interrupt::Crash, Interrupt::Cancel, Interrupt::Suspend]);
    let interrupt = prop::option::weighted(0.6, (0..40_usize, interrupt));
    (faults, interrupt).prop_map(|(faults, interrupt)| Try { faults, interrupt })
}

fn edit() -> impl Strategy<Value = Edit> {
    prop::sample::select(vec![
        Edit::Change,
        Edit::Claim,
        Edit::Extend,
        Edit::Delete,
        Edit::DeleteSlowly,
        Edit::Make,
        Edit::MakeMarked,
        Edit::Take,
        Edit::LetGo,
        Edit::Sicken,
        Edit::Heal,
        Edit::Decide,
        Edit::Decide,
    ])
}

fn goal() -> impl Strategy<Value = Goal> {
    prop_oneof![6 => wants().prop_map(Goal::Apply), 2 => wants().prop_map(Goal::Import), 1 => Just(Goal::Destroy)]
}

#[derive(Clone, Debug)]
struct Drawn {
    value: u8,
    fixed: Option<u8>,
    after: Vec<usize>,
    refers: Vec<(usize, Look)>,
    take_over: bool,
    force: bool,
    earlier: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let look =
        prop::sample::select(vec![Look::Value, Look::Text, Look::Uid, Look::UidText, Look::Password, Look::Passed]);
    (
        0..3_u8,
        prop::option::weighted(0.3, 0..2_u8),
        prop::collection::vec(0..SLOTS.len(), 0..3),
        prop::collection::vec((0..SLOTS.len(), look), 0..3),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        any::<bool>(),
    )
        .prop_map(|(value, fixed, after, refers, take_over, force, earlier)| Drawn {
            value,
            fixed,
            after,
            refers,
            take_over,
            force,
            earlier,
        })
}

/// Resources without circles: each depends on what is wanted and comes before it, in an order that differs from Spec to
/// Spec.
fn wants() -> impl Strategy<Value = Vec<Want>> {
    let all: [_; SLOTS.len()] = std::array::from_fn(|_| prop::option::weighted(0.6, drawn()));
    (all, 0..SLOTS.len(), any::<bool>()).prop_map(|(all, turn, reverse)| {
        let rank = |slot: usize| {
            let rank = (slot + turn) % SLOTS.len();
            if reverse { SLOTS.len() - rank } else { rank }
        };
        let is_there: Vec<bool> = all.iter().map(Option::is_some).collect();
        let drawn = all.into_iter().enumerate().filter_map(|(slot, drawn)| Some((slot, drawn?)));
        drawn
            .map(|(slot, drawn)| {
                let may = |to: usize| is_there[to] && rank(to) < rank(slot);
                let mut after: Vec<usize> = drawn.after.into_iter().filter(|to| may(*to)).collect();
                after.sort_unstable();
                after.dedup();
                let mut refers: Vec<(usize, Look)> = drawn.refers.into_iter().filter(|(to, _)| may(*to)).collect();
                refers.sort_by_key(|(to, _)| *to);
                refers.dedup_by_key(|(to, _)| *to);
                let earlier = drawn.earlier && SLOTS[slot].kind == "Deployment";
                Want {
                    slot,
                    value: drawn.value,
                    fixed: drawn.fixed,
                    after,
                    refers,
                    take_over: drawn.take_over,
                    force: drawn.force,
                    earlier,
                }
            })
            .collect()
    })
}
