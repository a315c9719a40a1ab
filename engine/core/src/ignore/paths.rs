//! Paths to ignored fields: their syntax, and the values that they lead to.

use serde_json::{Map, Value};

use crate::path::{FieldPath, Segment, scalar_text};

/// Keys by which a plain step into a list may name an item.
const NAMES: [&str; 3] = ["name", "key", "id"];

/// Reads a path as [`IGNORE_FIELDS`](super::IGNORE_FIELDS) has it.
pub(crate) fn parse(text: &str) -> Result<FieldPath, String> {
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
        Some(Segment::Index(_) | Segment::Item { .. }) => Err("it must begin with the name of a field".to_owned()),
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
pub(super) fn may_be_same(a: &Segment, b: &Segment) -> bool {
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
pub(super) fn by_index(path: &FieldPath, root: &Map<String, Value>) -> FieldPath {
    located(path, root, &|_, index, _| Segment::Index(index))
}

/// A path with the steps into the lists of an object by the names of their items, where they have one: lists in another
/// order have them, too.
pub(super) fn by_name(path: &FieldPath, root: &Map<String, Value>) -> FieldPath {
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

/// The path with list items replaced by their index or name.
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

/// The path after the removal of a list item; `None` if it led into that item.
pub(super) fn without(mut path: FieldPath, gone: &FieldPath) -> Option<FieldPath> {
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

/// Whether a field is in a list item that does not exist.
pub(super) fn is_in_missing_item(path: &FieldPath, live: &Map<String, Value>) -> bool {
    let above = |depth: usize| match get(live, &path.up_to(depth)) {
        Some(Value::Array(items)) => index(items, &path.0[depth]).is_none(),
        _ => false,
    };
    (1..path.0.len().saturating_sub(1)).any(above)
}

/// The index of the item that a step into a list means.
pub(super) fn index(items: &[Value], segment: &Segment) -> Option<usize> {
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

pub(super) fn step<'v>(value: &'v Value, segment: &Segment) -> Option<&'v Value> {
    match (value, segment) {
        (Value::Object(map), Segment::Key(key)) => map.get(key),
        (Value::Array(items), segment) => items.get(index(items, segment)?),
        _ => None,
    }
}

pub(super) fn get<'v>(root: &'v Map<String, Value>, path: &FieldPath) -> Option<&'v Value> {
    let first = root.get(path.first_key()?)?;
    path.0[1..].iter().try_fold(first, step)
}

/// Sets a field of an object to its live value, or removes it if it `is_left_out` or not live. Missing maps are created,
/// missing list items are not.
pub(super) fn put(root: &mut Map<String, Value>, path: &FieldPath, live: &Map<String, Value>, is_left_out: bool) {
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
