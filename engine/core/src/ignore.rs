//! Fields that are somebody else's once the object is there: what an autoscaler sets, or a tool that puts in images.
//!
//! A resource names them by [`IGNORE_FIELDS`]. They are written when the object is made, and never again: no plan shows
//! them, what others make of them is no drift, and what is applied leaves them to who has them.
//!
//! The `rules` of a ClusterRole beside an `aggregationRule` are among them always, and are not even written when it is made.
//!
//! Kusion has `--ignore-fields`, which hides differences of a whole operation and applies the fields all the same. The paths
//! are written as there.
//!
//! Elsewhere: `paths` reads paths and follows them, and `held` knows who has a field.

mod held;
mod paths;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::object::{ObjectRef, is_aggregated_role};
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, place};
use held::{Hold, held, is_held_alone};
use paths::{by_index, by_name, get, is_in_missing_item, may_be_same, parse, put, without};

/// The extension, or annotation, of a resource that names fields which are somebody else's: a list of paths such as
/// `spec.replicas`, or a text with commas in between. Items of lists are named by their index or name: `containers.web.image`,
/// `containers[0].image`, `containers[name=web].image`, and keys with dots in quotes: `metadata.labels["a.b/c"]`.
///
/// A number means one thing in each place: `[0]` is an item of a list and never a key, and `.0` the key of a map, and where
/// there is a list the item with this index, as in references, whatever the items are called. An item whose name is a
/// number is `[name=8080]`, and one of a list of values can be named by its index alone. Indexes count in the list that the
/// Spec has: what is live of an item with a name is looked for by that name.
pub const IGNORE_FIELDS: &str = "stoa.dev/ignore-fields";

/// The fields of a resource that are somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Vec<FieldPath>);

impl Ignored {
    /// Reads what a resource says, and adds what the control plane writes whatever it says: the `rules` of an aggregated
    /// ClusterRole.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the resource's id.
    pub fn of(resource: &Resource) -> Result<Self, Problem> {
        let rules = is_aggregated_role(&resource.attributes).then(|| FieldPath::of_keys(["rules"]));
        let texts: Vec<&str> = match resource.setting(IGNORE_FIELDS) {
            None | Some(Value::Null) => return Ok(Self(rules.into_iter().collect())),
            Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => return Err(invalid(resource, "a list of paths such as spec.replicas is wanted here")),
        };
        let mut paths: Vec<FieldPath> = rules.into_iter().collect();
        let is_secret = ObjectRef::of(&resource.attributes).is_some_and(|object| object.is_secret());
        for text in texts {
            let path = parse(text).map_err(|why| invalid(resource, &format!("`{text}` is no path: {why}")))?;
            if is_needed(&path) {
                return Err(invalid(
                    resource,
                    &format!("`{text}` says which object it is, and cannot be left to others"),
                ));
            }
            // A value of a Secret has two names.
            let other = match path.first_key() {
                Some("data") if is_secret => Some("stringData"),
                Some("stringData") if is_secret => Some("data"),
                _ => None,
            };
            paths.extend(other.map(|other| FieldPath::of_keys([other]).concat(&path.0[1..])));
            paths.push(path);
        }
        Ok(Self(paths))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a path is, or may be, in one of these fields or around one: which item of a list a step means may not be
    /// known without the list.
    pub fn touches(&self, path: &FieldPath) -> bool {
        self.0.iter().any(|ignored| path.0.iter().zip(&ignored.0).all(|(a, b)| may_be_same(a, b)))
    }

    /// The fields of an object that are somebody else's now, each once: not those of an item that is yet to be made. What is
    /// further behind in a list comes first, so that taking an item away leaves the others of these where they are.
    fn left(&self, object: &Map<String, Value>, live: &Map<String, Value>) -> Vec<FieldPath> {
        let places: BTreeMap<FieldPath, &FieldPath> =
            self.0.iter().map(|path| (by_index(path, object), path)).collect();
        let paths = places.into_values().rev().map(|path| by_name(path, object));
        paths.filter(|path| !is_in_missing_item(path, live)).collect()
    }

    /// An object with these fields as they are live, those that are not live left out.
    #[must_use]
    pub fn as_live(&self, mut object: Map<String, Value>, live: &Map<String, Value>) -> Map<String, Value> {
        for path in self.left(&object, live) {
            put(&mut object, &path, live, false);
        }
        object
    }

    /// What is wanted, these fields as they are live.
    #[must_use]
    pub fn resolved<'r>(&self, resolved: Resolved<'r>, live: &Map<String, Value>) -> Resolved<'r> {
        if self.is_empty() {
            return resolved;
        }
        let Resolved { attributes, mut unknown, sensitive } = resolved;
        let left = self.left(&attributes, live);
        let ignored = left.iter().map(|path| by_index(path, &attributes)).collect::<Vec<_>>();
        unknown.retain(|path| !ignored.iter().any(|ignored| path.0.starts_with(&ignored.0)));
        let gone: Vec<&FieldPath> =
            left.iter().zip(&ignored).filter(|(path, _)| get(live, path).is_none()).map(|(_, at)| at).collect();
        let moved = |paths: BTreeSet<FieldPath>| {
            paths.into_iter().filter_map(|path| gone.iter().try_fold(path, |path, gone| without(path, gone))).collect()
        };
        let attributes = Cow::Owned(self.as_live(attributes.into_owned(), live));
        Resolved { unknown: moved(unknown), sensitive: moved(sensitive), attributes }
    }

    /// What a field manager applies over an object that is live with its `managedFields`: these fields left out. One that the
    /// manager alone has would be removed by that, and stays as it is instead, until somebody else sets it; in a map that
    /// is for each field, since several may have some of it.
    #[must_use]
    pub fn applied(
        &self,
        mut wanted: Map<String, Value>,
        live: &Map<String, Value>,
        manager: &str,
    ) -> Map<String, Value> {
        let entries = live.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
        for path in &self.left(&wanted, live) {
            let mut leaves = Vec::new();
            leaves_of(get(&wanted, path), get(live, path), path.clone(), &mut leaves);
            let is_map = leaves.first() != Some(path);
            // Where nobody keeps who has what, nothing may be left out, nor of what is applied as one value. An empty map
            // that somebody applied looks like that, too; of one value nobody has a part.
            let all_stay = entries.is_none_or(|entries| {
                let holds: Vec<Hold> = entries.iter().map(|entry| held(&entry["fieldsV1"], live, path)).collect();
                holds.contains(&Hold::Around) && !holds.contains(&Hold::Exact)
            });
            for leaf in &leaves {
                let stays = all_stay || entries.is_some_and(|entries| is_held_alone(entries, live, leaf, manager));
                put(&mut wanted, leaf, live, !stays);
            }
            if is_map && get(&wanted, path).is_some_and(is_hollow) {
                put(&mut wanted, path, live, true);
            }
        }
        wanted
    }
}

fn invalid(resource: &Resource, message: &str) -> Problem {
    Problem::new(reason::INVALID_RESOURCE, message).at(place(&resource.extensions, IGNORE_FIELDS))
}

/// Whether an object cannot be applied without the field.
fn is_needed(path: &FieldPath) -> bool {
    let keys: Vec<&str> = path.keys().take(2).collect();
    matches!(keys.as_slice(), ["apiVersion" | "kind", ..] | ["metadata"] | ["metadata", "name" | "namespace"])
}

/// The fields without fields of their own at and below a path, of what is wanted and what is live.
fn leaves_of(wanted: Option<&Value>, live: Option<&Value>, path: FieldPath, leaves: &mut Vec<FieldPath>) {
    let maps: Vec<&Map<String, Value>> = [wanted, live].into_iter().flatten().filter_map(Value::as_object).collect();
    let is_map = maps.len() == [wanted, live].into_iter().flatten().count();
    let keys: BTreeSet<&String> = maps.iter().flat_map(|map| map.keys()).collect();
    if !is_map || keys.is_empty() {
        leaves.push(path);
        return;
    }
    for key in keys {
        let below = path.concat(&[Segment::Key(key.clone())]);
        leaves_of(wanted.and_then(|it| it.get(key)), live.and_then(|it| it.get(key)), below, leaves);
    }
}

/// Whether a map has nothing but maps in it.
fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(is_hollow))
}

#[cfg(test)]
mod tests;
