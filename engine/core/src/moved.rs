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
pub const MOVED_FROM: &str = "stoa.dev/moved-from";

/// The recorded ids that move, each with its new id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves(BTreeMap<ResourceId, ResourceId>);

/// The former id that a resource names.
fn former(resource: &Resource) -> Option<&Value> {
    resource.extensions.get(MOVED_FROM).filter(|from| !from.is_null())
}

/// Whether a record is of the object that a resource takes over from its former id.
pub fn is_moving(record: &StateResource, resource: &Resource) -> bool {
    let from = former(resource).and_then(Value::as_str);
    let marked = record.extensions.get(MOVED_FROM).and_then(Value::as_str);
    from.is_some_and(|from| record.id.0 == from || marked == Some(from))
}

impl Moves {
    /// The moves of a Spec that its records do not have yet.
    ///
    /// # Errors
    ///
    /// Former ids that are wrong, wanted still, named twice, or have a call without a result.
    pub fn of(spec: &Spec, state: &State) -> Result<Self, Vec<Problem>> {
        let wanted: BTreeSet<&ResourceId> = spec.resources.iter().map(|resource| &resource.id).collect();
        let (mut moves, mut problems) = (Self::default(), Vec::new());
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
            if resource.kind != ResourceType::Terraform || resource.mode() != ResourceMode::Managed {
                wrong("only resources of providers move; Kubernetes objects have their names".to_owned());
            } else if wanted.contains(&from) {
                wrong(format!("the Spec still has {from}; remove one of both"));
            } else if state.get(&resource.id).is_none() && state.get(&from).is_some_and(is_of_provider) {
                if state.open.iter().any(|call| call.id == from) {
                    wrong(format!("the result of a call for {from} is unknown; resolve it under this id first"));
                } else if let Some(other) = moves.0.insert(from.clone(), resource.id.clone()) {
                    wrong(format!("{from} moves to {other} already"));
                }
            }
        }
        if problems.is_empty() { Ok(moves) } else { Err(problems) }
    }

    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The state with the new ids, for a plan.
    #[must_use]
    pub fn moved(&self, state: State) -> State {
        let moved = |record: StateResource| {
            let depends_on = record.depends_on.iter().map(|id| self.0.get(id).unwrap_or(id).clone()).collect();
            let record = record.depending_on(depends_on);
            let Some(to) = self.0.get(&record.id) else { return record };
            let from = record.id.0.clone();
            let mut record = record.under(to.clone());
            record.extensions.insert(MOVED_FROM.to_owned(), from.into());
            record
        };
        State { resources: state.resources.into_iter().map(moved).collect(), ..state }
    }

    /// Completes a plan of the moved state: each action has the recorded id, whose record is dropped after it.
    pub fn complete(&self, plan: &mut Plan) {
        for (from, to) in &self.0 {
            let Some(action) = plan.actions.iter_mut().find(|action| action.id == *to) else { continue };
            action.recorded_as = Some(from.clone());
            let stays = !matches!(action.action, Action::Create | Action::Replace);
            plan.actions.push(PlannedAction {
                kept_as: stays.then(|| to.clone()),
                after: vec![to.clone()],
                ..PlannedAction::new(from.clone(), ResourceType::Terraform, Action::Forget)
            });
        }
    }
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
        for recorded in [&["new"][..], &["new", "old"], &["other"]] {
            assert!(Moves::of(&wanted, &state(recorded)).unwrap().is_empty(), "{recorded:?}");
        }
        let new = PlannedAction::new("new".into(), ResourceType::Terraform, Action::Unchanged);
        let mut plan = Plan { actions: vec![new], ..Plan::of("") };
        moves.complete(&mut plan);
        assert_eq!(plan.actions[0].recorded_as, Some("old".into()));
        assert_eq!((plan.actions[1].action, &*plan.actions[1].after), (Action::Forget, &["new".into()][..]));
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
