//! Moved resources of providers: a new id, and perhaps a new type, for a recorded object.
//!
//! Start at [`Moves::of`]. The objects of providers have no name that Stoa could compare, so only the Spec can say that two
//! ids are of one object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::plan::{Action, Plan, PlannedAction};
use crate::problem::{Problem, reason};
use crate::provider::ResourceMode;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::state::{State, StateResource};

/// The extension with the id that a resource of a provider had before. It has no effect once the record has the new id.
///
/// A record has it as the mark of an incomplete move: its object is recorded under this other id too, as long as that id is
/// recorded. A Run may stop before it drops the other record, whose deletion would delete the object.
pub const MOVED_FROM: &str = "stoa.dev/moved-from";

/// The recorded ids that move or moved, each with the id that has its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Ids whose records move, with their new ids.
    moving: BTreeMap<ResourceId, ResourceId>,
    /// Ids whose objects are recorded under other ids already: what is left of incomplete moves.
    left: BTreeMap<ResourceId, ResourceId>,
    /// Ids without a record that marks still name, each with the id that has the mark.
    freed: Vec<(ResourceId, ResourceId)>,
}

/// The former id that a resource names.
fn former(resource: &Resource) -> Option<&Value> {
    resource.extensions.get(MOVED_FROM).filter(|from| !from.is_null())
}

/// The former id of a resource of a provider.
pub(crate) fn former_id(resource: &Resource) -> Option<ResourceId> {
    let former = former(resource).filter(|_| resource.kind == ResourceType::Terraform);
    former.and_then(Value::as_str).map(ResourceId::from)
}

/// Whether a record is of the object that a resource takes over from its former id.
pub fn is_moving(record: &StateResource, resource: &Resource) -> bool {
    let from = former(resource).and_then(Value::as_str);
    let marked = record.extensions.get(MOVED_FROM).and_then(Value::as_str);
    from.is_some_and(|from| record.id.0 == from || marked == Some(from))
}

/// The record of a resource that has an object of a provider under another id too, until that record is dropped.
#[must_use]
pub fn marked(mut record: StateResource, other: Option<&ResourceId>) -> StateResource {
    if let Some(other) = other.filter(|_| is_of_provider(&record)) {
        record.extensions.insert(MOVED_FROM.to_owned(), other.0.as_str().into());
    }
    record
}

/// A record without the mark of another id, whose record was dropped; `None` if it has no such mark.
pub fn unmarked(mut record: StateResource, other: &ResourceId) -> Option<StateResource> {
    let is_marked = mark(&record).is_some_and(|marked| marked == *other);
    is_marked.then(|| {
        record.extensions.remove(MOVED_FROM);
        record
    })
}

/// The other id that a record of a provider's object is marked with.
fn mark(record: &StateResource) -> Option<ResourceId> {
    let mark = record.extensions.get(MOVED_FROM).filter(|_| is_of_provider(record));
    mark.and_then(Value::as_str).map(ResourceId::from)
}

impl Moves {
    /// The moves of a Spec that its records do not have yet, and those that an earlier Run did not complete.
    ///
    /// # Errors
    ///
    /// Former ids that are wrong, wanted still, named twice, or have a call without a result.
    pub fn of(spec: &Spec, state: &State) -> Result<Self, Vec<Problem>> {
        let wanted: BTreeSet<&ResourceId> = spec.resources.iter().map(|resource| &resource.id).collect();
        let (mut moves, mut problems) = (Self::default(), Vec::new());
        // The two ids of each object that is recorded twice: the later id, then the former one.
        let mut twice: Vec<(ResourceId, ResourceId)> = Vec::new();
        for resource in &spec.resources {
            let Some(from) = former(resource) else { continue };
            let mut wrong = |message: String| {
                let problem = Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id);
                problems.push(problem.at(format!("extensions[\"{MOVED_FROM}\"]")));
            };
            let Some(from) = from.as_str().map(ResourceId::from) else {
                wrong("must be the former id of the resource".to_owned());
                continue;
            };
            let is_recorded = state.get(&from).is_some_and(is_of_provider);
            if resource.kind != ResourceType::Terraform || resource.mode() != ResourceMode::Managed {
                wrong("only resources of providers move; Kubernetes objects have their names".to_owned());
            } else if wanted.contains(&from) {
                wrong(format!("the Spec still has {from}; remove one of both"));
            } else if is_recorded && state.get(&resource.id).is_some() {
                twice.push((resource.id.clone(), from));
            } else if is_recorded {
                if state.open.iter().any(|call| call.id == from) {
                    wrong(format!("the result of a call for {from} is unknown; resolve it under this id first"));
                } else if let Some(other) = moves.moving.insert(from.clone(), resource.id.clone()) {
                    wrong(format!("{from} moves to {other} already"));
                }
            }
        }
        twice.extend(recorded_twice(state));
        for (later, former) in twice {
            if let Err(problem) = moves.leave(&wanted, &later, &former) {
                problems.push(problem);
            }
        }
        let is_freed = |id: &ResourceId| !state.get(id).is_some_and(is_of_provider);
        let marks = state.resources.iter().filter_map(|record| Some((mark(record)?, record.id.clone())));
        moves.freed = marks.filter(|(former, _)| is_freed(former)).collect();
        problems.dedup();
        if problems.is_empty() { Ok(moves) } else { Err(problems) }
    }

    /// The ids of incomplete moves alone, for a plan that changes nothing.
    pub fn left(spec: &Spec, state: &State) -> Self {
        let wanted: BTreeSet<&ResourceId> = spec.resources.iter().map(|resource| &resource.id).collect();
        let mut moves = Self::default();
        for (later, former) in recorded_twice(state) {
            // An object under two wanted ids is the problem of the next plan that changes something.
            let _ = moves.leave(&wanted, &later, &former);
        }
        moves
    }

    /// Takes one of two ids of an object as left: the one that is neither wanted nor moves on, or else the former one.
    fn leave(
        &mut self,
        wanted: &BTreeSet<&ResourceId>,
        later: &ResourceId,
        former: &ResourceId,
    ) -> Result<(), Problem> {
        let is_alive = |id: &ResourceId| wanted.contains(id) || self.moving.contains_key(id);
        let (left, stays) = match (is_alive(later), is_alive(former)) {
            (true, true) => {
                let message = format!(
                    "its object is also that of {later}, whose move an earlier Run did not complete; remove one of both \
                     from the Spec until an Apply has succeeded"
                );
                return Err(Problem::new(reason::INVALID_RESOURCE, message).of(former));
            }
            (false, true) => (later, former),
            (_, false) => (former, later),
        };
        if !self.left.contains_key(left) && self.stays_as(stays) != left {
            self.left.insert(left.clone(), stays.clone());
        }
        Ok(())
    }

    /// The id that has the object of another id after all moves.
    fn stays_as<'a>(&'a self, mut id: &'a ResourceId) -> &'a ResourceId {
        while let Some(next) = self.left.get(id) {
            id = next;
        }
        self.moving.get(id).unwrap_or(id)
    }

    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.moving.is_empty() && self.left.is_empty()
    }

    /// The state with one id for each object, for a plan.
    #[must_use]
    pub fn moved(&self, state: State) -> State {
        let moved = |record: StateResource| {
            let depends_on = record.depends_on.iter().map(|id| self.stays_as(id).clone()).collect();
            let record = record.depending_on(depends_on);
            let Some(to) = self.moving.get(&record.id) else { return record };
            let from = record.id.clone();
            marked(record.under(to.clone()), Some(&from))
        };
        let records = state.resources.into_iter().filter(|record| !self.left.contains_key(&record.id));
        State { resources: records.map(moved).collect(), ..state }
    }

    /// Completes a plan of the moved state: each action has the other recorded id, whose record is dropped after it. A new
    /// object under a freed id waits until no mark names that id.
    pub fn complete(&self, plan: &mut Plan) {
        // The former records first: each is marked by the next one as long as it is recorded.
        for from in self.left.keys().chain(self.moving.keys()) {
            let to = self.stays_as(from);
            let before = self.left.iter().filter(|(_, stays)| *stays == from).map(|(left, _)| left.clone());
            let mut after: Vec<ResourceId> = before.collect();
            let mut stays = false;
            if let Some(action) = plan.actions.iter_mut().find(|action| action.id == *to) {
                after.push(to.clone());
                stays = action.action.keeps() && !matches!(action.action, Action::Create | Action::Replace);
                if action.action.keeps() && (self.moving.contains_key(from) || action.recorded_as.is_none()) {
                    action.recorded_as = Some(from.clone());
                }
            } else if self.moving.contains_key(from) {
                continue;
            }
            plan.actions.push(PlannedAction {
                kept_as: stays.then(|| to.clone()),
                after,
                ..PlannedAction::new(from.clone(), ResourceType::Terraform, Action::Forget)
            });
        }
        for (former, marked) in &self.freed {
            create_after(&mut plan.actions, former, marked);
        }
    }
}

/// Has the creation of an object wait for the action that rewrites or drops another record, where the order permits that.
fn create_after(actions: &mut Vec<PlannedAction>, created: &ResourceId, other: &ResourceId) {
    let position = |id: &ResourceId| actions.iter().position(|it| it.id == *id);
    let (Some(at), Some(end)) = (position(created), position(other)) else { return };
    let (creation, rewrite) = (&actions[at], &actions[end]);
    // A deletion comes after all creations.
    let is_in_time =
        rewrite.action == Action::Forget || (rewrite.action.keeps() && rewrite.stage() <= creation.stage());
    if !matches!(creation.action, Action::Create | Action::Adopt) || !is_in_time {
        return;
    }
    if at < end {
        // The order of the plan respects `after`.
        let mut later = BTreeSet::from([created.clone()]);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for action in &actions[at..=end] {
            if action.id == *created || action.after.iter().any(|id| later.contains(id)) {
                later.insert(action.id.clone());
                last.push(action.clone());
            } else {
                first.push(action.clone());
            }
        }
        if later.contains(other) {
            return;
        }
        first.append(&mut last);
        actions.splice(at..=end, first);
    }
    if let Some(creation) = actions.iter_mut().find(|it| it.id == *created) {
        creation.after.push(other.clone());
    }
}

/// The ids of objects of providers that are recorded twice: the later id, then the former one.
fn recorded_twice(state: &State) -> impl Iterator<Item = (ResourceId, ResourceId)> {
    state.resources.iter().filter_map(|record| {
        let former = mark(record)?;
        state.get(&former).is_some_and(is_of_provider).then(|| (record.id.clone(), former))
    })
}

fn is_of_provider(record: &StateResource) -> bool {
    record.kind == ResourceType::Terraform
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::OpenCall;

    fn spec(resources: &[(&str, &str)]) -> Spec {
        let resource = |(id, from): &(&str, &str)| {
            let extensions = if from.is_empty() { json!({}) } else { json!({MOVED_FROM: from}) };
            json!({"id": id, "type": "Terraform", "attributes": {}, "extensions": extensions})
        };
        let resources: Vec<Value> = resources.iter().map(resource).collect();
        serde_json::from_value(json!({"resources": resources})).unwrap()
    }

    fn state(ids: &[&str]) -> State {
        let record = |id: &&str| StateResource {
            id: (*id).into(),
            kind: ResourceType::Terraform,
            depends_on: vec!["old".into()],
            ..StateResource::default()
        };
        State { resources: ids.iter().map(record).collect(), open: Vec::new() }
    }

    #[test]
    fn record_moves_once() {
        let wanted = spec(&[("new", "old"), ("other", "")]);
        let moves = Moves::of(&wanted, &state(&["old", "other"])).unwrap();
        let moved = moves.moved(state(&["old", "other"]));
        let ids: Vec<&str> = moved.resources.iter().map(|it| it.id.0.as_str()).collect();
        assert_eq!(ids, ["new", "other"]);
        assert_eq!(moved.resources[1].depends_on, ["new".into()]);
        assert!(is_moving(&moved.resources[0], &wanted.resources[0]));
        assert!(is_moving(&state(&["old"]).resources[0], &wanted.resources[0]));
        assert!(!is_moving(&state(&["new"]).resources[0], &wanted.resources[0]));
        for recorded in [&["new"][..], &["other"]] {
            assert!(Moves::of(&wanted, &state(recorded)).unwrap().is_empty(), "{recorded:?}");
        }
        let new = PlannedAction::new("new".into(), ResourceType::Terraform, Action::Unchanged);
        let mut plan = Plan { actions: vec![new], ..Plan::of("") };
        moves.complete(&mut plan);
        assert_eq!(plan.actions[0].recorded_as, Some("old".into()));
        assert_eq!((plan.actions[1].action, &*plan.actions[1].after), (Action::Forget, &["new".into()][..]));
    }

    /// The recorded ids after a plan, and the dropped ones with what each comes after.
    fn completed(spec: &Spec, state: &State) -> (Vec<String>, Vec<(String, Vec<String>)>) {
        let texts = |ids: &[ResourceId]| ids.iter().map(|id| id.0.clone()).collect::<Vec<_>>();
        let moves = Moves::of(spec, state).unwrap();
        let moved = moves.moved(state.clone());
        let left: Vec<ResourceId> = moved.resources.iter().map(|it| it.id.clone()).collect();
        let of_record = |id: &ResourceId| PlannedAction::new(id.clone(), ResourceType::Terraform, Action::Update);
        let mut plan = Plan { actions: left.iter().map(of_record).collect(), ..Plan::of("") };
        moves.complete(&mut plan);
        let forgotten = plan.actions.iter().filter(|it| it.action == Action::Forget);
        (texts(&left), forgotten.map(|it| (it.id.0.clone(), texts(&it.after))).collect())
    }

    fn mark(state: &mut State, id: &str, former: &str) {
        let record = state.resources.iter_mut().find(|record| record.id.0 == id).unwrap();
        *record = marked(record.clone(), Some(&former.into()));
    }

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn incomplete_move_drops_unwanted_id() {
        let mut both = state(&["new", "old"]);
        // An import records the new id without a mark.
        let new = spec(&[("new", "old")]);
        let old_is_left = (owned(&["new"]), vec![("old".to_owned(), owned(&["new"]))]);
        assert_eq!(completed(&new, &both), old_is_left);
        mark(&mut both, "new", "old");
        for wanted in [new, spec(&[("new", "")]), Spec::default()] {
            assert_eq!(completed(&wanted, &both), old_is_left);
        }
        let back = (owned(&["old"]), vec![("new".to_owned(), owned(&["old"]))]);
        assert_eq!(completed(&spec(&[("old", "")]), &both), back);
        // The record of the id that stays has the mark then.
        mark(&mut both, "old", "new");
        assert_eq!(completed(&Spec::default(), &both).1.len(), 1);
        assert_eq!(Moves::left(&Spec::default(), &both).moved(both.clone()).resources.len(), 1);
        let problems = Moves::of(&spec(&[("new", ""), ("old", "")]), &both).unwrap_err();
        assert!(problems[0].message.contains("remove one of both"), "{problems:?}");
        assert!(Moves::of(&Spec::default(), &state(&["new", "old"])).unwrap().is_empty());
    }

    #[test]
    fn moves_in_a_row_drop_oldest_record_first() {
        let mut both = state(&["b", "a"]);
        mark(&mut both, "b", "a");
        let dropped = vec![("a".to_owned(), owned(&["c"])), ("b".to_owned(), owned(&["a", "c"]))];
        assert_eq!(completed(&spec(&[("c", "b")]), &both), (owned(&["c"]), dropped));
        let dropped = vec![("b".to_owned(), owned(&["c"])), ("a".to_owned(), owned(&["b", "c"]))];
        assert_eq!(completed(&spec(&[("c", "a")]), &both), (owned(&["c"]), dropped));
    }

    #[test]
    fn freed_id_waits_for_rewrite_of_mark() {
        let mut moved = state(&["new", "x"]);
        mark(&mut moved, "new", "old");
        let order = |moves: &Moves, new: Action, after: &[(&str, &str)]| {
            let of = |id: &str, action: Action| PlannedAction {
                after: after.iter().filter(|(it, _)| *it == id).map(|(_, before)| (*before).into()).collect(),
                ..PlannedAction::new(id.into(), ResourceType::Terraform, action)
            };
            let actions = [of("old", Action::Create), of("x", Action::Update), of("new", new)];
            let mut plan = Plan { actions: actions.into(), ..Plan::of("") };
            moves.complete(&mut plan);
            let shown =
                |it: &PlannedAction| format!("{}:{}", it.id, it.after.iter().map(|id| &*id.0).collect::<String>());
            plan.actions.iter().map(shown).collect::<Vec<_>>().join(" ")
        };
        let moves = Moves::of(&spec(&[("new", ""), ("old", ""), ("x", "")]), &moved).unwrap();
        assert_eq!(order(&moves, Action::Unchanged, &[]), "x: new: old:new");
        assert_eq!(order(&moves, Action::Update, &[("x", "old")]), "new: old:new x:old");
        // Other orders stay.
        assert_eq!(order(&moves, Action::Update, &[("new", "x"), ("x", "old")]), "old: x:old new:x");
        assert_eq!(order(&moves, Action::Delete, &[]), "old: x: new:");
        // The marked record itself moves on.
        let moves = Moves::of(&spec(&[("next", "new"), ("old", "")]), &moved).unwrap();
        let actions = ["old", "next"].map(|id| PlannedAction::new(id.into(), ResourceType::Terraform, Action::Create));
        let mut plan = Plan { actions: actions.into(), ..Plan::of("") };
        moves.complete(&mut plan);
        let ids: Vec<&str> = plan.actions.iter().map(|it| &*it.id.0).collect();
        assert_eq!(ids, ["next", "new", "old"]);
        let unmarked = |record: &StateResource, id: &str| super::unmarked(record.clone(), &id.into());
        assert!(unmarked(&moved.resources[0], "x").is_none() && unmarked(&moved.resources[1], "old").is_none());
        assert!(super::mark(&unmarked(&moved.resources[0], "old").unwrap()).is_none());
    }

    #[test]
    fn wrong_moves_are_problems() {
        let problems = |spec: &Spec, state: &State| {
            let problems = Moves::of(spec, state).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems[0].message.clone()
        };
        let recorded = state(&["old"]);
        assert!(problems(&spec(&[("a", "old"), ("b", "old")]), &recorded).contains("moves to a already"));
        assert!(problems(&spec(&[("a", "old"), ("old", "")]), &recorded).contains("still has old"));
        let mut number = spec(&[("a", "old")]);
        number.resources[0].extensions[MOVED_FROM] = 1.into();
        assert!(problems(&number, &recorded).contains("must be the former id"));
        let mut object = spec(&[("a", "old")]);
        object.resources[0].kind = ResourceType::Kubernetes;
        assert!(problems(&object, &recorded).contains("Kubernetes objects have their names"));
        let call = OpenCall {
            id: "old".into(),
            action: Action::Update,
            run: String::new(),
            place: crate::record::CallTarget::default(),
            retry: false,
        };
        let open = State { open: vec![call], ..recorded };
        assert!(problems(&spec(&[("a", "old")]), &open).contains("resolve it under this id first"));
    }
}
