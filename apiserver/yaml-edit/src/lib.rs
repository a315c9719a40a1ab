//! Edits YAML files of people: changes values, and preserves comments, order and quotes.
//!
//! Start at [`updated`], or at [`revised`] when the values of the text are known. A changed value is edited in the text
//! (`edit`), at its position by `outline`; the result is read again. When the result differs from the wanted value, as where an
//! anchored value changes, the whole file is written anew. New parts may be copied from another text (`source`).
//!
//! All of these take one document. [`documents`] splits a file with several.

mod documents;
mod edit;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod nodes;
mod outline;
mod source;
mod write;

pub use documents::{appended, documents, rewritten};
pub use nodes::{Form, SourceNode, Step, nodes, with_comments};

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use serde_json::{Map, Value};

/// The fields that tell the items of a list apart, in the order in which they are looked at.
const IDENTITIES: [&str; 4] = ["name", "id", "key", "path"];

/// Whether two files say the same, whatever their comments and order. A file that does not parse
/// says nothing, so it equals none but itself.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || parse(one).is_some_and(|value| Some(value) == parse(other))
}

/// What a file says.
pub fn parse(text: &[u8]) -> Option<Value> {
    // With comments it would read only so many in a row.
    let options = serde_saphyr::options! { emit_comments: false };
    serde_saphyr::from_str_with_options(std::str::from_utf8(text).ok()?, options).ok()
}

/// What becomes of the file `current` when its object rendered as `before` and now as `after`; `None`
/// when it may stay as it is.
pub fn updated(current: Option<&[u8]>, before: Option<&str>, after: &str) -> Option<String> {
    let Some(current) = current else { return Some(after.to_owned()) };
    // Nobody has edited it.
    if before.is_some_and(|before| before.as_bytes() == current) {
        return (before != Some(after)).then(|| after.to_owned());
    }
    if same(current, after.as_bytes()) {
        return None;
    }
    match before.and_then(|before| edited(current, before, after)) {
        Some(text) if text.as_bytes() == current => None,
        Some(text) => Some(text),
        None => Some(after.to_owned()),
    }
}

/// What becomes of the file `current` for it to say `after`, whatever its object was before; `None` when it may stay as it
/// is.
pub fn made_to_say(current: &[u8], after: &str) -> Option<String> {
    if same(current, after.as_bytes()) {
        return None;
    }
    let text = std::str::from_utf8(current).ok().filter(|_| parse(current).is_some_and(|value| value.is_object()));
    Some(text.and_then(|text| edited(current, text, after)).unwrap_or_else(|| after.to_owned()))
}

fn edited(current: &[u8], before: &str, after: &str) -> Option<String> {
    let (before, after) = (parse(before.as_bytes())?, parse(after.as_bytes())?);
    changed(std::str::from_utf8(current).ok()?, |text| parse(text.as_bytes()), &before, &after)
}

/// The text after the leaves that differ between `before` and `after` have changed in it, with the values that `read` reads.
///
/// A text whose lines end with CRLF still has such lines afterwards. `None` when the text is not read, when something else is
/// at a changed leaf, or when the result is not read as it should be.
pub fn changed(text: &str, read: impl Fn(&str) -> Option<Value>, before: &Value, after: &Value) -> Option<String> {
    if text.contains("\r\n") && !text.replace("\r\n", "").contains('\n') {
        let changed = changed(&text.replace("\r\n", "\n"), read, before, after)?;
        return Some(changed.replace('\n', "\r\n"));
    }
    let old = read(text)?;
    let mut new = old.clone();
    for change in changes(before, after) {
        set(&mut new, &change.path, change.before, change.value)?;
    }
    if new == old {
        return Some(text.to_owned());
    }
    let says = |text: &String| read(text).as_ref() == Some(&new);
    let pairs = |_: &[String], old: &[Value], new: &[Value]| pairs(old, new);
    edit::edited(text, &old, &new, &pairs, None).filter(says).or_else(|| edit::rewritten(text, &old, &new).filter(says))
}

/// A value as a YAML text of its own, with the keys that every object has first: `apiVersion`, `kind`, `metadata`.
pub fn written(value: &Value) -> Option<String> {
    write::document(value)
}

/// Which item of an old list each item of a new one was. The path has the keys to the list, and `*` for an item of a list.
pub type Pairs<'p> = dyn Fn(&[String], &[Value], &[Value]) -> Vec<Option<usize>> + 'p;

/// A change of a document whose values are known.
pub struct Revision<'r> {
    /// The value of the text.
    pub old: &'r Value,
    /// The wanted value.
    pub new: &'r Value,
    /// Finds items of lists again, whose comments move with them.
    pub pairs: &'r Pairs<'r>,
    /// Another text and its value. Parts that are new are copied from it, with their comments, where it has them.
    pub source: Option<(&'r str, &'r Value)>,
    /// Whether a text has the wanted value.
    pub says: &'r dyn Fn(&str) -> bool,
}

/// What becomes of a text with one document. Where it cannot be edited, it is written anew and loses its comments; `None`
/// when that does not say the wanted value either.
pub fn revised(text: &str, revision: &Revision<'_>) -> Option<String> {
    let Revision { old, new, pairs, source, says } = *revision;
    if old == new {
        return Some(text.to_owned());
    }
    let says = |text: &String| says(text);
    let outlined = source.and_then(|(text, value)| Some((text, outline::outline(text)?, value)));
    let copied = outlined.as_ref().and_then(|(other, node, value)| {
        edit::edited(text, old, new, pairs, Some(source::Source { text: other, node, value }))
    });
    copied
        .filter(says)
        .or_else(|| edit::edited(text, old, new, pairs, None).filter(says))
        .or_else(|| edit::rewritten(text, old, new).filter(says))
}

/// A leaf that has another value, or none any more.
struct Change<'v> {
    path: Vec<String>,
    before: Option<&'v Value>,
    value: Option<&'v Value>,
}

fn changes<'v>(before: &'v Value, after: &'v Value) -> Vec<Change<'v>> {
    fn compare<'v>(path: &mut Vec<String>, before: &'v Value, after: &'v Value, changes: &mut Vec<Change<'v>>) {
        let (Value::Object(old), Value::Object(new)) = (before, after) else {
            if before != after {
                changes.push(Change { path: path.clone(), before: Some(before), value: Some(after) });
            }
            return;
        };
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            path.push(key.clone());
            match (old.get(key), new.get(key)) {
                (Some(before), Some(after)) => compare(path, before, after, changes),
                (before, value) => changes.push(Change { path: path.clone(), before, value }),
            }
            path.pop();
        }
    }
    let mut found = Vec::new();
    compare(&mut Vec::new(), before, after, &mut found);
    found
}

/// Sets or removes a leaf of a value, making the mappings on the way. `None` when something
/// else is in the way.
fn set(value: &mut Value, path: &[String], before: Option<&Value>, new: Option<&Value>) -> Option<()> {
    let Some((key, rest)) = path.split_first() else {
        *value = replaced(value, before, new?);
        return Some(());
    };
    let fields = value.as_object_mut()?;
    match (fields.get_mut(key), new) {
        (Some(_), None) if rest.is_empty() => drop(fields.remove(key)),
        (Some(field), _) => set(field, rest, before, new)?,
        (None, Some(new)) => drop(fields.insert(key.clone(), nested(rest, new))),
        (None, None) => {}
    }
    Some(())
}

/// What `current` becomes when what it was written for changed from `before` to `after`: the items of a list that are
/// as they were stay as the file has them.
fn replaced(current: &Value, before: Option<&Value>, after: &Value) -> Value {
    let (Value::Array(current), Some(Value::Array(before)), Value::Array(after)) = (current, before, after) else {
        return after.clone();
    };
    if current.len() != before.len() {
        return after.clone().into();
    }
    let item = |(new, old): (&Value, Option<usize>)| {
        let Some(old) = old else { return new.clone() };
        let mut item = current[old].clone();
        let changed = changes(&before[old], new);
        let done = changed.iter().try_for_each(|change| set(&mut item, &change.path, change.before, change.value));
        if done.is_some() { item } else { new.clone() }
    };
    after.iter().zip(pairs(before, after)).map(item).collect()
}

/// Which item of an old list each item of a new one was: the same, or else one with the same name, or else, of things
/// without a name, one at the same place.
fn pairs(old: &[Value], new: &[Value]) -> Vec<Option<usize>> {
    let mut taken = vec![false; old.len()];
    let mut pairs = vec![None; new.len()];
    pair_by(Some, old, new, &mut taken, &mut pairs);
    let identity = |item| IDENTITIES.iter().find_map(|field| Some((*field, Value::get(item, field)?)));
    pair_by(identity, old, new, &mut taken, &mut pairs);
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        let is_same = [old, new].iter().all(|item| item.is_object() && identity(item).is_none());
        if is_same && !taken[index] {
            pairs[index].get_or_insert(index);
        }
    }
    pairs
}

/// Pairs items that have the same of something, the first with the first.
fn pair_by<'v, K: Hash + Eq>(
    key: impl Fn(&'v Value) -> Option<K>,
    old: &'v [Value],
    new: &'v [Value],
    taken: &mut [bool],
    pairs: &mut [Option<usize>],
) {
    let mut left: HashMap<K, VecDeque<usize>> = HashMap::new();
    for (index, item) in old.iter().enumerate().filter(|(index, _)| !taken[*index]) {
        if let Some(key) = key(item) {
            left.entry(key).or_default().push_back(index);
        }
    }
    for (pair, item) in pairs.iter_mut().zip(new).filter(|(pair, _)| pair.is_none()) {
        *pair = key(item).and_then(|key| left.get_mut(&key)?.pop_front());
        if let Some(index) = *pair {
            taken[index] = true;
        }
    }
}

/// The value inside a mapping for each step of the path.
fn nested(path: &[String], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| Value::Object(Map::from_iter([(key.clone(), inner)])))
}

#[cfg(test)]
mod tests;
