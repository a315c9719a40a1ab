//! Paths into JSON values: the addresses of references, and the names of changed fields.

use std::borrow::{Borrow, Cow};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;

use serde_json::{Map, Value};

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// The value under a key of a map.
    Key(String),
    /// An item of a list, counted from 0.
    Index(usize),
    /// The item of a list of maps that has this value under this key.
    Item {
        /// The key, such as `name`, or several with commas in between.
        key: String,
        /// The value as text, such as `web`; as many as there are keys.
        value: String,
    },
}

/// A path from the root of a value. Shown as `spec.containers[name=web].ports[0]["odd key"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(pub Vec<Segment>);

/// The result of a path lookup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'v> {
    /// This value.
    Value(&'v Value),
    /// Nothing, but something could be.
    Missing,
    /// Nothing, and nothing can be: a value on the way is neither map nor list, or the wrong one.
    Impossible {
        /// The number of segments up to the value that ends the path.
        depth: usize,
        /// The type of that value, such as `a string`.
        found: &'static str,
    },
}

impl FieldPath {
    /// A path of keys.
    pub fn of_keys<const N: usize>(keys: [&str; N]) -> Self {
        Self(keys.into_iter().map(|key| Segment::Key(key.to_owned())).collect())
    }

    /// This path and one segment more.
    #[must_use]
    pub fn join(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// This path and a key more.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.join(Segment::Key(key.to_owned()))
    }

    /// This path and an index more.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.join(Segment::Index(index))
    }

    /// This path with the other behind it.
    #[must_use]
    pub fn concat(&self, rest: &[Segment]) -> Self {
        let mut segments = self.0.clone();
        segments.extend_from_slice(rest);
        Self(segments)
    }

    /// The rest of the path after `prefix`, if it starts with it.
    pub fn strip_prefix(&self, prefix: &[Segment]) -> Option<&[Segment]> {
        self.0.strip_prefix(prefix)
    }

    /// The keys on the way; items of lists are left out.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Index(_) | Segment::Item { .. } => None,
        })
    }

    /// The key at the beginning.
    pub fn first_key(&self) -> Option<&str> {
        match self.0.first() {
            Some(Segment::Key(key)) => Some(key),
            _ => None,
        }
    }

    /// Follows the path into a map.
    pub fn find<'v>(&self, root: &'v Map<String, Value>) -> Found<'v> {
        let Some(Segment::Key(first)) = self.0.first() else {
            return Found::Impossible { depth: 0, found: "a map" };
        };
        let Some(mut value) = root.get(first) else { return Found::Missing };
        for (depth, segment) in self.0.iter().enumerate().skip(1) {
            match step(value, segment) {
                Found::Value(next) => value = next,
                Found::Missing => return Found::Missing,
                Found::Impossible { found, .. } => return Found::Impossible { depth, found },
            }
        }
        Found::Value(value)
    }

    /// The value at the path, if there is one.
    pub fn get<'v>(&self, root: &'v Map<String, Value>) -> Option<&'v Value> {
        match self.find(root) {
            Found::Value(value) => Some(value),
            Found::Missing | Found::Impossible { .. } => None,
        }
    }

    /// The first `depth` segments.
    #[must_use]
    pub fn up_to(&self, depth: usize) -> Self {
        Self(self.0[..depth.min(self.0.len())].to_vec())
    }
}

/// Sets of paths are searched by segments, without a path being made for that.
impl Borrow<[Segment]> for FieldPath {
    fn borrow(&self) -> &[Segment] {
        &self.0
    }
}

/// The paths at or below one, relative to it.
pub fn below<'p>(paths: &'p BTreeSet<FieldPath>, path: &[Segment]) -> impl Iterator<Item = &'p [Segment]> {
    // Sorted paths that begin alike are next to each other.
    let from = paths.range::<[Segment], _>((Bound::Included(path), Bound::Unbounded));
    from.map_while(|it| it.strip_prefix(path))
}

/// Finds values in objects that do not change meanwhile.
///
/// The keys of each list are indexed once: a search for each item would take quadratic time.
#[derive(Debug, Default)]
pub(crate) struct Finder<'v> {
    /// By where a list is in memory, and by the key.
    items: RefCell<HashMap<*const Value, HashMap<String, ByText<'v>>>>,
}

/// The first item of a list that has each text under a key.
type ByText<'v> = HashMap<String, &'v Value>;

impl<'v> Finder<'v> {
    /// The value at the path, as [`FieldPath::get`] finds it.
    pub(crate) fn get(&self, root: &'v Map<String, Value>, path: &FieldPath) -> Option<&'v Value> {
        let first = root.get(path.first_key()?)?;
        path.0[1..].iter().try_fold(first, |value, segment| match (value, segment) {
            (Value::Array(items), Segment::Item { key, value }) => self.item(items, key, value),
            _ => match step(value, segment) {
                Found::Value(next) => Some(next),
                Found::Missing | Found::Impossible { .. } => None,
            },
        })
    }

    fn item(&self, items: &'v [Value], key: &str, text: &str) -> Option<&'v Value> {
        let mut lists = self.items.borrow_mut();
        let list = lists.entry(items.as_ptr()).or_default();
        if !list.contains_key(key) {
            let mut by_text = HashMap::with_capacity(items.len());
            for item in items {
                if let Some(text) = text_under(item, key) {
                    by_text.entry(text).or_insert(item);
                }
            }
            list.insert(key.to_owned(), by_text);
        }
        list[key].get(text).copied()
    }
}

fn step<'v>(value: &'v Value, segment: &Segment) -> Found<'v> {
    let next = match (value, segment) {
        (Value::Object(map), Segment::Key(key)) => map.get(key),
        (Value::Array(items), Segment::Index(index)) => items.get(*index),
        // Dotted paths have no other way to say which item: `ports.0.port`.
        (Value::Array(items), Segment::Key(key)) if key.bytes().all(|b| b.is_ascii_digit()) => {
            key.parse().ok().and_then(|index: usize| items.get(index))
        }
        (Value::Array(items), Segment::Item { key, value }) => {
            items.iter().find(|item| text_under(item, key).as_deref() == Some(value))
        }
        // Null is an unset field.
        (Value::Null, _) => None,
        _ => return Found::Impossible { depth: 0, found: type_name(value) },
    };
    next.map_or(Found::Missing, Found::Value)
}

/// One mutable step into a value, by key or index.
pub(crate) fn step_mut<'v>(value: &'v mut Value, segment: &Segment) -> Option<&'v mut Value> {
    match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
        Segment::Item { .. } => None,
    }
}

/// The type of a value, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// The text of an item under a key, or under several with commas in between.
fn text_under(item: &Value, key: &str) -> Option<String> {
    let values: Option<Vec<String>> = key.split(',').map(|key| item.get(key).and_then(scalar_text)).collect();
    values.map(|values| values.join(","))
}

/// A string, number or boolean as text.
pub(crate) fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(flag) => Some(flag.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The same, by value.
pub fn scalar_text(value: &Value) -> Option<String> {
    scalar(value).map(Cow::into_owned)
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if is_plain(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(key)?;
                }
                Segment::Key(key) => write!(f, "[{}]", Value::String(key.clone()))?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Item { key, value } => write!(f, "[{key}={value}]")?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$' | b'/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Map<String, Value> {
        let Value::Object(map) = json!({
            "spec": {"containers": [{"name": "web", "ports": [{"port": 80}]}], "replicas": 1, "selector": null},
        }) else {
            unreachable!()
        };
        map
    }

    #[test]
    fn paths_are_shown_as_written() {
        let path = FieldPath::of_keys(["metadata", "annotations", "stoa.dev/x"])
            .index(2)
            .join(Segment::Item { key: "name".into(), value: "web".into() });
        assert_eq!(path.to_string(), r#"metadata.annotations["stoa.dev/x"][2][name=web]"#);
    }

    #[test]
    fn path_finds_items_by_index_or_key() {
        let containers = FieldPath::of_keys(["spec", "containers"]);
        let by_index = containers.index(0).key("name");
        let dotted = containers.key("0").key("name");
        let by_key = containers.join(Segment::Item { key: "name".into(), value: "web".into() }).key("name");
        for path in [by_index, dotted, by_key] {
            assert_eq!(path.get(&object()), Some(&json!("web")), "{path}");
        }
    }

    #[test]
    fn finder_finds_same_as_path() {
        let item = |key: &str, value: &str| Segment::Item { key: key.into(), value: value.into() };
        let root = json!({
            "list": [{"name": "a", "at": 1}, 7, {"name": "b", "port": 80}, {"name": "a", "at": 2}, {"name": true}],
            "empty": [], "other": [{"name": "b"}], "text": "x", "map": {"0": {"name": "a"}},
        });
        let (root, finder) = (root.as_object().unwrap(), Finder::default());
        let lists = ["list", "empty", "other", "text", "map", "missing"].map(|key| FieldPath::of_keys([key]));
        let steps =
            [item("name", "a"), item("name", "b"), item("name,port", "b,80"), item("name", "true"), item("at", "2")];
        let steps = steps.into_iter().chain([Segment::Index(1), Segment::Key("0".into())]);
        for path in steps.flat_map(|step| lists.each_ref().map(|list| list.join(step.clone()))) {
            for path in [path.key("name"), path] {
                assert_eq!(finder.get(root, &path), path.get(root), "{path}");
            }
        }
        assert_eq!(finder.get(root, &FieldPath::default()), None);
    }

    #[test]
    fn paths_below_one_are_found_among_others() {
        let path = |keys: &[&str]| FieldPath(keys.iter().map(|key| Segment::Key((*key).to_owned())).collect());
        let paths =
            BTreeSet::from([path(&["a"]), path(&["a", "b", "c"]), path(&["a", "c"]), path(&["ab"]), path(&["b"])]);
        let found =
            |at: &[&str]| below(&paths, &path(at).0).map(|it| FieldPath(it.to_vec()).to_string()).collect::<Vec<_>>();
        assert_eq!(found(&["a"]), ["", "b.c", "c"]);
        assert_eq!(found(&["a", "b"]), ["c"]);
        assert_eq!(found(&["a", "bb"]), [""; 0]);
        assert_eq!(found(&[]).len(), paths.len());
    }

    #[test]
    fn path_through_scalar_is_impossible() {
        let through = FieldPath::of_keys(["spec", "replicas", "x"]);
        assert_eq!(through.find(&object()), Found::Impossible { depth: 2, found: "a number" });
        assert_eq!(FieldPath::of_keys(["spec", "containers"]).index(7).find(&object()), Found::Missing);
        assert_eq!(FieldPath::of_keys(["spec", "selector", "app"]).find(&object()), Found::Missing);
        assert_eq!(FieldPath::of_keys(["status", "x"]).find(&object()), Found::Missing);
    }
}
