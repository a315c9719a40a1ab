//! Owned fields follow a schema in which a field became atomic.

use super::super::{
    path::PathElement,
    schema::{ListRelationship, ListType, MapType, Reading, Schema, TypeId, View},
    set::Set,
};

/// The set with paths into what is atomic by now cut short; nothing when there are none.
pub(in super::super) fn reconcile(schema: &Schema, set: &Set) -> Option<Set> {
    let mut walk = Walk { schema, path: Vec::new(), atomic: Set::default() };
    walk.visit(schema.root(), Some(set), false);
    (!walk.atomic.is_empty()).then(|| set.recursive_difference(&walk.atomic).union(&walk.atomic))
}

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    /// What is owned in parts and should be owned as a whole.
    atomic: Set,
}

impl Walk<'_> {
    /// `whole` says that a path ends here and none leads on.
    fn visit(&mut self, id: TypeId, set: Option<&Set>, whole: bool) {
        match self.schema.atom(id).view(Reading::Open) {
            View::Map(map) if map.is_deduced() => {}
            View::Map(map) if map.atomic && !whole => {
                if set.is_some_and(|set| !set.is_empty()) {
                    self.atomic.insert(&self.path);
                }
            }
            View::Map(map) => self.entries(map, set),
            View::List(list) if list.relationship == ListRelationship::Atomic && !whole => {
                self.atomic.insert(&self.path);
            }
            View::List(list) => self.items(list, set),
            View::Scalar(_) | View::Nothing => {}
        }
    }

    fn entries(&mut self, map: &MapType, set: Option<&Set>) {
        for (element, below, whole) in steps(set) {
            let id = match element {
                PathElement::Field(name) => map.at(name),
                PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => map.element,
            };
            if let Some(id) = id {
                self.descend(element, id, below, whole);
            }
        }
    }

    fn items(&mut self, list: &ListType, set: Option<&Set>) {
        for (element, below, whole) in steps(set) {
            self.descend(element, list.element, below, whole);
        }
    }

    fn descend(&mut self, element: &PathElement, id: TypeId, below: Option<&Set>, whole: bool) {
        self.path.push(element.clone());
        self.visit(id, below, whole);
        self.path.pop();
    }
}

/// Every element of a set, what it leads to, and whether that is nothing.
fn steps(set: Option<&Set>) -> impl Iterator<Item = (&PathElement, Option<&Set>, bool)> {
    set.into_iter().flat_map(|set| {
        let children = set.children().iter().map(|(element, below)| (element, Some(below), false));
        let members = set.members().iter().filter(|member| set.child(member).is_none());
        children.chain(members.map(|member| (member, None, true)))
    })
}
