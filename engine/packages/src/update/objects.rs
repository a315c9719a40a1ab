//! Merges the objects of one package.
//!
//! An object is found again by its [identity](matched), whatever its file.

use stoa_engine::FieldPath;

use super::{Side, UpdateConflict, UpdateError};
use crate::identity::{ObjectId, duplicate, is_marked, marked, matched, unmarked};
use crate::merge::{Cause, Conflict, Definitions, Merged, Sides, merge as merge_values, revise};
use crate::resources::Resource;

/// The merged objects and the conflicts.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) resources: Vec<Resource>,
    pub(super) conflicts: Vec<UpdateConflict>,
}

/// Merges the objects of a package, its Kptfile apart.
pub(super) fn merge(sides: Sides<&[&Resource]>, definitions: &mut Definitions) -> Result<Objects, UpdateError> {
    for (side, resources) in
        [(Side::Origin, sides.origin), (Side::Upstream, sides.upstream), (Side::Local, sides.local)]
    {
        if let Some((doubled, remedy)) = duplicate(resources) {
            let object = Box::new(ObjectId::of(doubled));
            return Err(UpdateError::Duplicate { side, object, file: doubled.file(), remedy });
        }
    }
    let mut merged = Objects::default();
    // Local objects stay in their order, and new ones of upstream follow in theirs.
    let (mut local, mut added) = (Vec::new(), Vec::new());
    for [origin, upstream, here] in matched([sides.origin, sides.upstream, sides.local]) {
        let position = here.map(|(position, _)| position);
        let resources = Sides { origin, upstream, local: here }.map(|found| found.map(|(_, resource)| resource));
        let Some(resource) = object(resources, definitions, &mut merged.conflicts) else { continue };
        match (position, upstream) {
            (Some(position), _) => local.push((position, resource)),
            (None, Some((position, _))) => added.push((position, resource)),
            (None, None) => {}
        }
    }
    for objects in [&mut local, &mut added] {
        objects.sort_by_key(|(position, _)| *position);
    }
    merged.resources.extend(local.into_iter().chain(added).map(|(_, resource)| resource));
    Ok(merged)
}

/// The merged object; `None` when there is none afterwards.
fn object(
    sides: Sides<Option<&Resource>>,
    definitions: &mut Definitions,
    conflicts: &mut Vec<UpdateConflict>,
) -> Option<Resource> {
    let whole = |of: &Resource, cause| {
        let Sides { origin, upstream, local } = sides.map(|side| side.map(unmarked));
        let conflict = Conflict { field: FieldPath::default(), cause, origin, upstream, local };
        UpdateConflict::of_object(of, conflict)
    };
    match (sides.origin, sides.upstream, sides.local) {
        (_, None, None) => None,
        (None, None, Some(local)) => Some(local.clone()),
        (None, Some(upstream), None) => {
            let upstream = marked(upstream);
            Some(Resource::new(&upstream.package, &upstream.path, upstream.value.clone(), Some(upstream.text())))
        }
        (Some(origin), Some(upstream), None) => {
            if unmarked(origin) != unmarked(upstream) {
                conflicts.push(whole(upstream, Cause::DeletedHere));
            }
            None
        }
        (Some(origin), None, Some(local)) => {
            if unmarked(origin) == unmarked(local) {
                return None;
            }
            conflicts.push(whole(local, Cause::DeletedUpstream));
            Some(local.clone())
        }
        (origin, Some(upstream), Some(local)) => {
            let (resource, found) = both(origin, upstream, local, definitions);
            conflicts.extend(found.into_iter().map(|conflict| UpdateConflict::of_object(local, conflict)));
            Some(resource)
        }
    }
}

/// Merges an object that upstream and this package have.
fn both(
    origin: Option<&Resource>,
    upstream: &Resource,
    local: &Resource,
    definitions: &mut Definitions,
) -> (Resource, Vec<Conflict>) {
    let is_marked = is_marked(local);
    let as_here = |resource: &Resource| if is_marked { marked(resource) } else { resource.clone() };
    let (origin, upstream) = (origin.map(as_here), as_here(upstream));
    let mut merged = local.clone();
    if origin.as_ref().is_some_and(|origin| origin.path == local.path) && upstream.path != local.path {
        merged.path.clone_from(&upstream.path);
        merged.index = None;
    }
    if origin.as_ref().is_some_and(|origin| origin.text() == local.text()) {
        return (with_text(merged, upstream.text()), Vec::new());
    }
    let lists = definitions.lists(&local.value);
    let sides = Sides {
        origin: origin.as_ref().map(|origin| &origin.value),
        upstream: Some(&upstream.value),
        local: Some(&local.value),
    };
    let Merged { value, conflicts } = merge_values(&lists, sides);
    let value = value.unwrap_or_default();
    if value != local.value {
        let (text, from) = (local.text(), upstream.text());
        let revised = revise(&text, (&local.value, &value), &lists, Some((&from, &upstream.value)));
        merged = with_text(merged, revised);
    }
    (merged, conflicts)
}

/// The object with another text, which reads as an object.
fn with_text(resource: Resource, text: String) -> Resource {
    let mut changed = resource.clone();
    match changed.set_text(text) {
        Ok(()) => changed,
        Err(_) => resource,
    }
}
