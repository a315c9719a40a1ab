//! Fields that are somebody else's once the object is there: what an autoscaler sets, or a tool that puts in images.
//!
//! A resource names them by [`IGNORE_FIELDS`]. They are written when the object is made, and never again: no plan shows
//! them, what others make of them is no drift, and what is applied leaves them to who has them.
//!
//! Kusion has `--ignore-fields`, which hides differences of a whole operation and applies the fields all the same. The paths
//! are written as there.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::object::ObjectRef;
use crate::path::{FieldPath, Segment, scalar_text};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, place};

/// The extension, or annotation, of a resource that names fields which are somebody else's: a list of paths such as
/// `spec.replicas`, or a text with commas in between. Items of lists are named by their index or name: `containers.web.image`,
/// `containers[0].image`, `containers[name=web].image`, and keys with dots in quotes: `metadata.labels["a.b/c"]`.
///
/// A number means one thing in each place: `[0]` is an item of a list and never a key, and `.0` the key of a map, and where
/// there is a list the item with this index, as in references, whatever the items are called. An item whose name is a
/// number is `[name=8080]`, and one of a list of values can be named by its index alone. Indexes count in the list that the
/// Spec has: what is live of an item with a name is looked for by that name.
pub const IGNORE_FIELDS: &str = "stoa.dev/ignore-fields";

/// Keys by which a plain step into a list may name an item.
const NAMES: [&str; 3] = ["name", "key", "id"];

/// The fields of a resource that are somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Vec<FieldPath>);

impl Ignored {
    /// Reads what a resource says.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the resource's id.
    pub fn of(resource: &Resource) -> Result<Self, Problem> {
        let texts: Vec<&str> = match resource.setting(IGNORE_FIELDS) {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => return Err(invalid(resource, "a list of paths such as spec.replicas is wanted here")),
        };
        let mut paths = Vec::new();
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

fn parse(text: &str) -> Result<FieldPath, String> {
    let mut segments = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let end = match bracket.starts_with('"') {
                true => bracket.find("\"]").map(|end| end + 1),
                false => bracket.find(']'),
            };
            let end = end.ok_or("a bracket is not closed")?;
            segments.push(bracketed(&bracket[..end])?);
            rest = &bracket[end + 1..];
        } else {
            let name = if segments.is_empty() { rest } else { rest.strip_prefix('.').ok_or("a dot is missing")? };
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err("a name is missing".to_owned());
            }
            segments.push(Segment::Key(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    match segments.first() {
        Some(Segment::Key(_)) => Ok(FieldPath(segments)),
        Some(Segment::Index(_) | Segment::Item { .. }) => Err("it begins with the name of a field".to_owned()),
        None => Err("it is empty".to_owned()),
    }
}

fn bracketed(text: &str) -> Result<Segment, String> {
    if text.starts_with('"') {
        return serde_json::from_str(text).map(Segment::Key).map_err(|_| format!("{text} is no quoted key"));
    }
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Segment::Item { key: key.to_owned(), value: value.to_owned() }),
        _ => text.parse().map(Segment::Index).map_err(|_| format!("[{text}] is neither [0] nor [name=web]")),
    }
}

/// Whether two steps may lead to the same value.
fn may_be_same(a: &Segment, b: &Segment) -> bool {
    use Segment::{Index, Item, Key};
    match (a, b) {
        (Key(a), Key(b)) if a == b => true,
        // Two keys of a map, or an index and the name of an item.
        (Key(a), Key(b)) => is_index(a) != is_index(b),
        (Index(index), Key(key)) | (Key(key), Index(index)) => !is_index(key) || key.parse() == Ok(*index),
        (Index(a), Index(b)) => a == b,
        (Item { key: a, value: x }, Item { key: b, value: y }) => a != b || x == y,
        (Item { .. }, Index(_)) | (Index(_), Item { .. }) => true,
        (Item { value, .. }, Key(key)) | (Key(key), Item { value, .. }) => is_index(key) || value == key,
    }
}

fn is_index(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

/// A path with the steps into the lists of an object as indexes, as far as they lead to something.
fn by_index(path: &FieldPath, root: &Map<String, Value>) -> FieldPath {
    located(path, root, &|_, index, _| Segment::Index(index))
}

/// A path with the steps into the lists of an object by the names of their items, where they have one: lists in another
/// order have them, too.
fn by_name(path: &FieldPath, root: &Map<String, Value>) -> FieldPath {
    located(path, root, &|items, index, step| {
        if matches!(step, Segment::Item { .. }) {
            return step.clone();
        }
        let name = |key: &str| {
            let value = items[index].get(key).and_then(scalar_text)?;
            let has_it = |item: &&Value| item.get(key).and_then(scalar_text).as_ref() == Some(&value);
            let is_only = items.iter().filter(has_it).count() == 1;
            is_only.then(|| Segment::Item { key: key.to_owned(), value })
        };
        NAMES.iter().find_map(|key| name(key)).unwrap_or(Segment::Index(index))
    })
}

/// A path with the steps that lead to an item of a list, by its index, written anew.
fn located(
    path: &FieldPath,
    root: &Map<String, Value>,
    write: &dyn Fn(&[Value], usize, &Segment) -> Segment,
) -> FieldPath {
    let mut at = path.first_key().and_then(|key| root.get(key));
    let mut located = path.up_to(1);
    for segment in path.0.iter().skip(1) {
        let found = match at {
            Some(Value::Array(items)) => index(items, segment).map(|index| write(items, index, segment)),
            _ => None,
        };
        at = at.and_then(|value| step(value, segment));
        located.0.push(found.unwrap_or_else(|| segment.clone()));
    }
    located
}

/// Where a path leads once an item of a list is taken away, if that is what the other path leads to; nowhere when it led into
/// that.
fn without(mut path: FieldPath, gone: &FieldPath) -> Option<FieldPath> {
    let Some((Segment::Index(gone), list)) = gone.0.split_last() else { return Some(path) };
    if path.0.starts_with(list)
        && let Some(Segment::Index(at)) = path.0.get_mut(list.len())
    {
        if at == gone {
            return None;
        }
        *at -= usize::from(*at > *gone);
    }
    Some(path)
}

/// Whether a field is in an item of a list that is not there, so that nobody can have it.
fn is_in_missing_item(path: &FieldPath, live: &Map<String, Value>) -> bool {
    let above = |depth: usize| match get(live, &path.up_to(depth)) {
        Some(Value::Array(items)) => index(items, &path.0[depth]).is_none(),
        _ => false,
    };
    (1..path.0.len().saturating_sub(1)).any(above)
}

/// The index of the item that a step into a list means.
fn index(items: &[Value], segment: &Segment) -> Option<usize> {
    let named = |key: &str, value: &str| {
        items.iter().position(|item| item.get(key).and_then(scalar_text).as_deref() == Some(value))
    };
    match segment {
        Segment::Index(index) => Some(*index),
        Segment::Item { key, value } => named(key, value),
        Segment::Key(text) => text.parse().ok().or_else(|| NAMES.iter().find_map(|key| named(key, text))),
    }
    .filter(|index| *index < items.len())
}

fn step<'v>(value: &'v Value, segment: &Segment) -> Option<&'v Value> {
    match (value, segment) {
        (Value::Object(map), Segment::Key(key)) => map.get(key),
        (Value::Array(items), segment) => items.get(index(items, segment)?),
        _ => None,
    }
}

fn get<'v>(root: &'v Map<String, Value>, path: &FieldPath) -> Option<&'v Value> {
    let first = root.get(path.first_key()?)?;
    path.0[1..].iter().try_fold(first, step)
}

/// Makes the field of an object what it is live, or takes it away where it `is_left_out` or not live. Maps on the way are
/// made, items of lists are not.
fn put(root: &mut Map<String, Value>, path: &FieldPath, live: &Map<String, Value>, is_left_out: bool) {
    let value = get(live, path).filter(|_| !is_left_out);
    if value.is_none() && get(root, path).is_none() {
        return;
    }
    let Some((Segment::Key(first), below)) = path.0.split_first() else { return };
    let Some((last, between)) = below.split_last() else {
        match value {
            Some(value) => drop(root.insert(first.clone(), value.clone())),
            None => drop(root.remove(first)),
        }
        return;
    };
    let is_map = |depth: usize| get(live, &path.up_to(depth)).is_some_and(Value::is_object);
    if !root.contains_key(first) && !is_map(1) {
        return;
    }
    let mut at = root.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
    for (depth, segment) in between.iter().enumerate() {
        at = match (at, segment) {
            (Value::Object(map), Segment::Key(key)) => {
                if !map.contains_key(key) && !is_map(depth + 2) {
                    return;
                }
                map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()))
            }
            (Value::Array(items), segment) => match index(items, segment) {
                Some(found) => &mut items[found],
                None => return,
            },
            _ => return,
        };
    }
    match (at, last, value) {
        (Value::Object(map), Segment::Key(key), Some(value)) => drop(map.insert(key.clone(), value.clone())),
        (Value::Object(map), Segment::Key(key), None) => drop(map.remove(key)),
        (Value::Array(items), segment, value) => match (index(items, segment), value) {
            (Some(found), Some(value)) => items[found] = value.clone(),
            (Some(found), None) => drop(items.remove(found)),
            (None, _) => {}
        },
        _ => {}
    }
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

/// How an entry of `managedFields` has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    No,
    /// The field itself, or something in it.
    Exact,
    /// Something around it that has one owner.
    Around,
}

/// Whether a manager has a field that nobody else has, by what it applied.
fn is_held_alone(entries: &[Value], live: &Map<String, Value>, path: &FieldPath, manager: &str) -> bool {
    let is_ours = |entry: &&Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none()
    };
    let hold = |entry: &Value| held(&entry["fieldsV1"], live, path);
    match entries.iter().find(is_ours).map_or(Hold::No, hold) {
        Hold::No => false,
        Hold::Around => true,
        // Of a list, others may have other items than we, which would go.
        Hold::Exact if get(live, path).is_some_and(Value::is_array) => true,
        Hold::Exact => !entries.iter().filter(|entry| !is_ours(entry)).any(|entry| hold(entry) == Hold::Exact),
    }
}

/// Follows a path into a set of fields, `f:<key>`, `k:<keys of an item>`, `v:<value>`, `i:<index>`, along what is live.
fn held(fields: &Value, live: &Map<String, Value>, path: &FieldPath) -> Hold {
    let (mut fields, mut at): (&Value, Option<&Value>) = (fields, None);
    for (depth, segment) in path.0.iter().enumerate() {
        let Some(set) = fields.as_object() else { return Hold::No };
        if set.is_empty() && depth > 0 {
            return Hold::Around;
        }
        let next = match (at, segment) {
            (Some(Value::Array(items)), segment) => {
                let Some(index) = index(items, segment) else { return Hold::No };
                set.iter().find(|(step, _)| is_item(step, index, &items[index])).map(|(_, below)| below)
            }
            (_, Segment::Key(key)) => set.get(&format!("f:{key}")),
            (_, Segment::Index(_) | Segment::Item { .. }) => None,
        };
        match next {
            Some(next) => fields = next,
            None => return Hold::No,
        }
        at = match segment {
            Segment::Key(key) if depth == 0 => live.get(key),
            segment => at.and_then(|value| step(value, segment)),
        };
    }
    Hold::Exact
}

fn is_item(step: &str, position: usize, item: &Value) -> bool {
    let (kind, text) = step.split_once(':').unwrap_or_default();
    match (kind, serde_json::from_str::<Value>(text)) {
        ("k", Ok(Value::Object(keys))) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
        ("v", Ok(value)) => *item == value,
        ("i", _) => text == position.to_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(fields: Value) -> Resource {
        serde_json::from_value(
            json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "extensions": {IGNORE_FIELDS: fields},
            "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}),
        )
        .unwrap()
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn fields_are_as_they_are_live_and_others_stay() {
        let wanted = map(json!({"spec": {"replicas": 1, "paused": true, "containers": [
            {"name": "log", "image": "l1"}, {"name": "web", "image": "w1"}]}, "labels": {"a.b/c": "1"}}));
        let live = map(json!({"spec": {"replicas": 5, "extra": {"deep": 1}, "others": [{"name": "web", "image": "x"}],
            "containers": [{"name": "web", "image": "w2"}, {"name": "log", "image": "l2"}]}, "labels": {"a.b/c": "2"}}));
        let check = |fields: Value, changed: Value| {
            let mut expected = Value::Object(wanted.clone());
            for (pointer, value) in changed.as_object().unwrap() {
                *expected.pointer_mut(pointer).unwrap() = value.clone();
            }
            let ignored = Ignored::of(&resource(fields.clone())).unwrap();
            assert_eq!(Value::Object(ignored.as_live(wanted.clone(), &live)), expected, "{fields}");
        };
        check(json!(["spec.replicas"]), json!({"/spec/replicas": 5}));
        check(json!("spec.replicas, labels[\"a.b/c\"]"), json!({"/spec/replicas": 5, "/labels/a.b~1c": "2"}));
        check(json!(["spec.containers[name=web].image"]), json!({"/spec/containers/1/image": "w2"}));
        check(json!(["spec.containers.web.image"]), json!({"/spec/containers/1/image": "w2"}));
        // An index counts in what is wanted.
        check(json!(["spec.containers[0].image"]), json!({"/spec/containers/0/image": "l2"}));
        check(json!(["spec.containers.1.image"]), json!({"/spec/containers/1/image": "w2"}));
        check(json!([]), json!({}));
        check(json!(["spec.others.web.image", "spec.containers.gone.image"]), json!({}));
        let ignored = Ignored::of(&resource(json!(["spec.paused", "spec.extra.deep"]))).unwrap();
        let made = Value::Object(ignored.as_live(wanted.clone(), &live));
        assert_eq!((made["spec"].get("paused"), &made["spec"]["extra"]), (None, &json!({"deep": 1})));
    }

    #[test]
    fn a_number_is_an_index_in_lists_and_a_key_in_maps() {
        let object = |value: &str| {
            map(json!({"data": {"0": value, "1": value}, "args": [value, value], "ports": [
                {"name": "a", "x": value}, {"name": "0", "x": value}, {"name": "8080", "x": value}]}))
        };
        let check = |field: &str, changed: &[&str]| {
            let mut expected = Value::Object(object("wanted"));
            changed.iter().for_each(|pointer| *expected.pointer_mut(pointer).unwrap() = "live".into());
            let ignored = Ignored::of(&resource(json!([field]))).unwrap();
            assert_eq!(Value::Object(ignored.as_live(object("wanted"), &object("live"))), expected, "{field}");
        };
        check("data.0", &["/data/0"]);
        check("data[\"1\"]", &["/data/1"]);
        check("data[0]", &[]);
        check("args.1", &["/args/1"]);
        check("args[1]", &["/args/1"]);
        check("ports.0.x", &["/ports/0/x"]);
        check("ports[1].x", &["/ports/1/x"]);
        check("ports[name=0].x", &["/ports/1/x"]);
        check("ports[name=8080].x", &["/ports/2/x"]);
        check("ports.8080.x", &[]);
        check("ports.a.x", &["/ports/0/x"]);
    }

    #[test]
    fn a_field_is_touched_however_its_path_is_written() {
        let check = |field: &str, path: &str| {
            let ignored = Ignored::of(&resource(json!([field]))).unwrap();
            ignored.touches(&parse(path).unwrap())
        };
        for same in ["a.0.x", "a[0].x", "a[name=web].x", "a.web.x"] {
            for path in ["a", "a.0", "a[0].x", "a.web.x.y", "a[name=web].x", "a[name=web]"] {
                assert!(check(same, path), "{same} and {path}");
            }
        }
        for (one, other) in [
            ("a.0.x", "a.1.x"),
            ("a[0].x", "a.1.x"),
            ("a.web.x", "a.log.x"),
            ("a[name=web]", "a[name=log]"),
            ("a", "b"),
        ] {
            assert!(!check(one, other) && !check(other, one), "{one} and {other}");
        }
    }

    #[test]
    fn unknown_values_of_ignored_items_are_known_once_they_are_live() {
        let containers = |image: Value| map(json!({"spec": {"containers": [{"name": "web", "image": image}]}}));
        let image = FieldPath::of_keys(["spec", "containers"]).index(0).key("image");
        for field in ["spec.containers[0].image", "spec.containers.0.image", "spec.containers[name=web].image"] {
            let resolved = Resolved {
                attributes: Cow::Owned(containers(Value::Null)),
                unknown: BTreeSet::from([image.clone()]),
                sensitive: BTreeSet::new(),
            };
            let live = containers("live".into());
            let known = Ignored::of(&resource(json!([field]))).unwrap().resolved(resolved, &live);
            assert_eq!((known.unknown.len(), &*known.attributes), (0, &live), "{field}");
        }
    }

    #[test]
    fn items_of_one_list_that_are_not_live_go_without_others() {
        let args = |args: &[&str]| map(json!({"args": args, "deep": [{"x": ["0", "1", "2"]}, {"x": ["0", "1", "2"]}]}));
        let (wanted, live) = (args(&["a", "b", "c", "d"]), map(json!({"args": ["x"], "deep": [{"x": []}, {"x": []}]})));
        let check = |fields: Value, expected: &[&str]| {
            let ignored = Ignored::of(&resource(fields.clone())).unwrap();
            assert_eq!(ignored.as_live(wanted.clone(), &live), args(expected), "{fields}");
            assert_eq!(ignored.applied(wanted.clone(), &live, "stoa"), args(expected), "{fields}");
        };
        check(json!(["args[1]", "args[2]"]), &["a", "d"]);
        check(json!(["args[2]", "args[1]"]), &["a", "d"]);
        check(json!(["args[3]", "args[0]", "args[1]"]), &["x", "c"]);
        check(json!(["args[1]", "args.1", "args[1]"]), &["a", "c", "d"]);
        let ignored = Ignored::of(&resource(json!(["deep[0].x[0]", "deep[0].x[1]", "deep[1].x[2]"]))).unwrap();
        let deep = ignored.as_live(wanted.clone(), &live)["deep"].clone();
        assert_eq!(deep, json!([{"x": ["2"]}, {"x": ["0", "1"]}]));

        // What is known of the others is known of where they are then.
        let at = |index: usize| FieldPath::of_keys(["args"]).index(index);
        let resolved = Resolved {
            attributes: Cow::Owned(wanted),
            unknown: [at(0), at(3)].into(),
            sensitive: [at(1), at(3)].into(),
        };
        let resolved = Ignored::of(&resource(json!(["args[1]", "args[2]"]))).unwrap().resolved(resolved, &live);
        assert_eq!((resolved.unknown, resolved.sensitive), ([at(0), at(1)].into(), [at(1)].into()));
    }

    #[test]
    fn an_item_that_is_yet_to_be_made_has_all_its_fields() {
        let containers = |names: &[&str]| {
            let items: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": "wanted"})).collect();
            map(json!({"spec": {"containers": items}}))
        };
        let (wanted, live) = (containers(&["web", "new"]), containers(&["web"]));
        for field in ["spec.containers[name=new].image", "spec.containers.new.image", "spec.containers[1].image"] {
            let ignored = Ignored::of(&resource(json!([field]))).unwrap();
            assert_eq!(ignored.as_live(wanted.clone(), &live), wanted, "{field}");
            assert_eq!(ignored.applied(wanted.clone(), &live, "stoa"), wanted, "{field}");
        }
    }

    #[test]
    fn what_cannot_be_ignored_is_told_with_its_place() {
        for (fields, message) in [
            (json!(["spec..x"]), "`spec..x` is no path: a name is missing"),
            (json!(["spec.x[a]"]), "`spec.x[a]` is no path: [a] is neither [0] nor [name=web]"),
            (json!(["spec.x[0"]), "`spec.x[0` is no path: a bracket is not closed"),
            (json!([""]), "`` is no path: it is empty"),
            (json!("metadata.name"), "`metadata.name` says which object it is, and cannot be left to others"),
            (json!(["metadata"]), "`metadata` says which object it is, and cannot be left to others"),
            (json!({"spec": 1}), "a list of paths such as spec.replicas is wanted here"),
            (json!([1]), "a list of paths such as spec.replicas is wanted here"),
        ] {
            let problem = Ignored::of(&resource(fields)).unwrap_err();
            assert_eq!(problem.to_string(), format!("extensions[\"{IGNORE_FIELDS}\"]: {message}"));
        }
    }

    /// What is applied of `spec.containers[name=web].image` and `spec.replicas`, by who has them.
    fn applied(entries: Value) -> Value {
        let object = |replicas: u32, image: &str| {
            map(json!({"spec": {"replicas": replicas, "containers": [{"name": "web", "image": image}]}}))
        };
        let mut live = object(5, "live");
        live.insert("metadata".to_owned(), json!({"managedFields": entries}));
        let fields = json!(["spec.replicas", "spec.containers.web.image"]);
        Value::Object(Ignored::of(&resource(fields)).unwrap().applied(object(1, "wanted"), &live, "stoa"))
    }

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": if manager == "stoa" { "Apply" } else { "Update" }, "fieldsV1": fields})
    }

    #[test]
    fn what_is_applied_leaves_a_field_to_who_has_it() {
        let containers = |fields: Value| json!({"f:containers": {"k:{\"name\":\"web\"}": fields}});
        let image = json!({".": {}, "f:name": {}, "f:image": {}});
        let ours = json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": image}}});
        let spec = |fields: Value| json!({"f:spec": fields});
        let left_out = json!({"spec": {"containers": [{"name": "web"}]}});
        let both = json!({"spec": {"replicas": 5, "containers": [{"name": "web", "image": "live"}]}});
        // Nobody else has them yet: left out, they would go.
        assert_eq!(applied(json!([entry("stoa", ours.clone())])), both);
        // The autoscaler does, with us or without.
        let theirs = spec(json!({"f:replicas": {}}));
        let one = json!({"spec": {"containers": [{"name": "web", "image": "live"}]}});
        assert_eq!(applied(json!([entry("stoa", ours.clone()), entry("hpa", theirs.clone())])), one);
        let without = spec(containers(json!({"f:name": {}})));
        assert_eq!(applied(json!([entry("stoa", without.clone()), entry("hpa", theirs)])), left_out);
        assert_eq!(applied(json!([entry("stoa", without)])), left_out, "what nobody has is not taken");
        // A list with one owner is taken whole.
        assert_eq!(applied(json!([entry("stoa", spec(json!({"f:containers": {}})))])), one);
    }

    #[test]
    fn a_part_of_what_is_applied_as_one_value_is_applied_as_it_is_live() {
        let service = |selector: Value| json!({"spec": {"selector": selector}}).as_object().unwrap().clone();
        let wanted = service(json!({"app": "web"}));
        let mut live = service(json!({"app": "web", "track": "canary"}));
        let entries = json!([entry("rollouts", json!({"f:spec": {"f:selector": {}}}))]);
        live.insert("metadata".to_owned(), json!({ "managedFields": entries }));
        let applied = |field: &str| {
            let ignored = Ignored(vec![parse(field).unwrap()]);
            Value::Object(ignored.applied(wanted.clone(), &live, "stoa"))
        };
        assert_eq!(applied("spec.selector.track")["spec"], live["spec"]);
        assert_eq!(applied("spec.selector"), json!({"spec": {}}), "all of it is left to who has it");

        // A map that is shared was empty when the first manager applied it.
        let part = entry("canary", json!({"f:spec": {"f:selector": {"f:track": {}}}}));
        live["metadata"]["managedFields"].as_array_mut().unwrap().push(part);
        let ignored = Ignored(vec![parse("spec.selector.track").unwrap()]);
        assert_eq!(ignored.applied(wanted.clone(), &live, "stoa")["spec"], wanted["spec"]);
    }

    #[test]
    fn what_several_have_of_a_map_is_left_to_each() {
        let fields = json!(["metadata.annotations", "data"]);
        let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let wanted = map(annotations(json!({"scrape": "true", "theirs": "1", "new": "1"})));
        let mut live = map(annotations(json!({"scrape": "live", "theirs": "2", "restartedAt": "now"})));
        let ours = json!({"f:metadata": {"f:annotations": {"f:scrape": {}, "f:theirs": {}}}});
        let theirs = json!({"f:metadata": {"f:annotations": {"f:theirs": {}, "f:restartedAt": {}}}});
        let entries = json!([entry("stoa", ours), entry("kubectl", theirs.clone())]);
        live["metadata"].as_object_mut().unwrap().insert("managedFields".to_owned(), entries);
        let ignored = Ignored::of(&resource(fields)).unwrap();
        // Ours stays as it is, or it would go; theirs is left to them; what nobody has is not taken.
        let applied = Value::Object(ignored.applied(wanted.clone(), &live, "stoa"));
        assert_eq!(applied, annotations(json!({"scrape": "live"})));
        live["metadata"]["managedFields"] = json!([entry("kubectl", theirs)]);
        assert_eq!(Value::Object(ignored.applied(wanted, &live, "stoa")), json!({"metadata": {}}));
    }

    #[test]
    fn a_value_of_a_secret_has_two_names() {
        let mut secret = resource(json!(["stringData.password"]));
        secret.attributes.insert("kind".to_owned(), "Secret".into());
        let ignored = Ignored::of(&secret).unwrap();
        let wanted = map(json!({"stringData": {"password": "a", "user": "u"}}));
        let live = map(json!({"data": {"password": "Yg==", "user": "dQ=="}}));
        let made = json!({"stringData": {"user": "u"}, "data": {"password": "Yg=="}});
        assert_eq!(Value::Object(ignored.as_live(wanted, &live)), made);
    }
}
