//! Ignored fields: fields that others set once the object exists, such as an autoscaler or a tool that updates images.
//!
//! A resource lists them in [`IGNORE_FIELDS`]. Stoa writes them on creation and never again. Plans do not show them,
//! their changes are not drift, and an apply leaves them to their managers.
//!
//! The `rules` of a ClusterRole with an `aggregationRule` are always ignored, and are not even written on creation.
//!
//! Kusion's `--ignore-fields` only hides differences and still applies the fields. The paths have the same syntax.
//!
//! Elsewhere: `paths` parses and follows paths, and `field_managers` finds the managers of a field.

mod field_managers;
mod paths;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::object::{ObjectRef, is_aggregated_role};
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, setting_field};
use field_managers::{Managed, is_managed_alone, managed};
use paths::{by_index, by_name, get, is_in_missing_item, may_be_same, parse, put, without};

pub(crate) use paths::parse as parse_path;

/// The extension or annotation of a resource that lists its ignored fields: a list of paths such as `spec.replicas`, or a
/// text with commas. Items are named by index or name: `containers.web.image`, `containers[0].image`,
/// `containers[name=web].image`. Keys with dots are quoted: `metadata.labels["a.b/c"]`.
///
/// `[0]` is always a list item, and never a key. `.0` is a map key, or the index of a list. An item whose name is a number
/// is `[name=8080]`. Items of a list of values are named by index alone. Indexes count in the list of the Spec: the live
/// item is then found by its name.
pub const IGNORE_FIELDS: &str = "stoa.dev/ignore-fields";

/// The ignored fields of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Vec<FieldPath>);

impl Ignored {
    /// Reads the ignored fields of a resource. The `rules` of an aggregated ClusterRole are added, since the control plane
    /// writes them.
    pub fn of(resource: &Resource) -> Result<Self, Problem> {
        let rules = is_aggregated_role(&resource.attributes).then(|| FieldPath::of_keys(["rules"]));
        let texts: Vec<&str> = match resource.setting(IGNORE_FIELDS) {
            None | Some(Value::Null) => return Ok(Self(rules.into_iter().collect())),
            Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => return Err(invalid(resource, "must be a list of paths such as spec.replicas")),
        };
        let mut paths: Vec<FieldPath> = rules.into_iter().collect();
        let is_secret = ObjectRef::of(&resource.attributes).is_some_and(|object| object.is_secret());
        for text in texts {
            let path = parse(text).map_err(|why| invalid(resource, &format!("`{text}` is not a path: {why}")))?;
            if is_needed(&path) {
                return Err(invalid(resource, &format!("`{text}` identifies the object and cannot be ignored")));
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

    /// Whether no field is ignored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a path is in an ignored field, or around one. Without the list, a step may match several items.
    pub fn touches(&self, path: &FieldPath) -> bool {
        self.0.iter().any(|ignored| path.0.iter().zip(&ignored.0).all(|(a, b)| may_be_same(a, b)))
    }

    /// The ignored fields of an object, each once, without those of items that do not exist yet. Later list items come
    /// first, so that the removal of one does not move the others.
    fn resolved_paths(&self, object: &Map<String, Value>, live: &Map<String, Value>) -> Vec<FieldPath> {
        let places: BTreeMap<FieldPath, &FieldPath> =
            self.0.iter().map(|path| (by_index(path, object), path)).collect();
        let paths = places.into_values().rev().map(|path| by_name(path, object));
        paths.filter(|path| !is_in_missing_item(path, live)).collect()
    }

    /// An object with these fields as they are live, those that are not live left out.
    #[must_use]
    pub fn as_live(&self, mut object: Map<String, Value>, live: &Map<String, Value>) -> Map<String, Value> {
        for path in self.resolved_paths(&object, live) {
            put(&mut object, &path, live, false);
        }
        object
    }

    /// The wanted object with live values of ignored fields.
    #[must_use]
    pub fn resolved<'r>(&self, resolved: Resolved<'r>, live: &Map<String, Value>) -> Resolved<'r> {
        if self.is_empty() {
            return resolved;
        }
        let Resolved { attributes, mut unknown, sensitive } = resolved;
        let left = self.resolved_paths(&attributes, live);
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

    /// The object that a field manager applies over a live object with `managedFields`, without ignored fields.
    ///
    /// A field that the manager alone has would be removed by that. It keeps its live value instead, until another manager
    /// sets it. In maps this is decided for each field.
    #[must_use]
    pub fn applied(
        &self,
        mut wanted: Map<String, Value>,
        live: &Map<String, Value>,
        manager: &str,
    ) -> Map<String, Value> {
        let entries = live.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
        for path in &self.resolved_paths(&wanted, live) {
            let mut leaves = Vec::new();
            leaves_of(get(&wanted, path), get(live, path), path.clone(), &mut leaves);
            let is_map = leaves.first() != Some(path);
            // Without `managedFields`, nothing may be left out, and neither may parts of atomic values. An empty
            // applied map looks alike.
            let all_stay = entries.is_none_or(|entries| {
                let holds: Vec<Managed> = entries.iter().map(|entry| managed(&entry["fieldsV1"], live, path)).collect();
                holds.contains(&Managed::ByParent) && !holds.contains(&Managed::Exact)
            });
            for leaf in &leaves {
                let stays = all_stay || entries.is_some_and(|entries| is_managed_alone(entries, live, leaf, manager));
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
    Problem::new(reason::INVALID_RESOURCE, message).at(setting_field(&resource.extensions, IGNORE_FIELDS))
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

/// Whether a map contains only maps.
fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(is_hollow))
}

#[cfg(test)]
mod tests;
