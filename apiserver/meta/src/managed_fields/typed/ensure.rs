//! Parents of owned fields become members of the set.

use super::super::{
    path::PathElement,
    schema::{Schema, TypeId},
    set::Set,
};

/// The set with every named field that is on the way to a member as a member too. Such fields are there when what is
/// in them is; nobody says so.
pub(in super::super) fn named_fields_as_members(schema: &Schema, set: &Set) -> Set {
    visit(schema, Some(schema.root()), set)
}

fn visit(schema: &Schema, id: Option<TypeId>, set: &Set) -> Set {
    let atom = id.map(|id| schema.atom(id));
    let map = atom.and_then(|atom| atom.map.as_ref());
    let list = atom.and_then(|atom| atom.list.as_ref());
    let mut out = Set::default();
    for member in set.members() {
        out.insert_member(member.clone());
    }
    for (element, below) in set.children() {
        let id = match element {
            PathElement::Field(name) => {
                if map.is_some_and(|map| map.fields.contains_key(name)) {
                    out.insert_member(element.clone());
                }
                map.and_then(|map| map.at(name))
            }
            PathElement::Key(_) => list.map(|list| list.element),
            PathElement::Value(_) | PathElement::Index(_) => None,
        };
        out.insert_child(element.clone(), visit(schema, id, below));
    }
    out
}
