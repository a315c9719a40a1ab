//! Strategic merge patches: merge patches with directives, and with lists that are merged by a key.
//!
//! Start at [`merge`]. The behaviour is that of `k8s.io/apimachinery/pkg/util/strategicpatch`; what lists are merged
//! by is in the schema's `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key` (see `lookup`). Where Go has
//! no type to look into, as in maps of maps, upstream fails; here such maps are merged key by key.

mod lists;
mod lookup;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub use self::lookup::Lookup;
use self::lookup::Strategy;
use crate::managed_fields::{Plain, type_name};

/// What is done with a map or an item: `replace`, `delete` or `merge`.
const DIRECTIVE: &str = "$patch";
/// The keys that stay; all others go.
const RETAIN_KEYS: &str = "$retainKeys";
/// Followed by `/` and a list's field: the items that go.
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
/// Followed by `/` and a list's field: the order that its items are to have.
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no such patch: 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// It asks for what is not possible: 422.
    #[error("{0}")]
    Unprocessable(&'static str),
    /// It does not fit the object; upstream answers 500.
    #[error("{0}")]
    Failed(String),
}

const BAD_DELETE_LIST: Refusal = Refusal::Malformed("invalid patch format of primitive list");
const BAD_RETAIN_KEYS: Refusal = Refusal::Malformed("invalid patch format of retainKeys");
const BAD_ORDER: Refusal = Refusal::Malformed("invalid patch format of setElementOrder list");
const LIST_OF_LISTS: Refusal = Refusal::Unprocessable("lists of lists are not supported");
const TOO_MUCH: Refusal = Refusal::Unprocessable("the patch merges too many items of lists");

/// The object after a patch was merged into it.
pub fn merge(
    original: Map<String, Value>,
    patch: Map<String, Value>,
    schema: Lookup<'_>,
) -> Result<Map<String, Value>, Refusal> {
    merge_maps(original, patch, schema, &mut Spent::default())
}

/// How many items of lists a patch may have merged and ordered in all. Each item of one may name the same item of the
/// object again, whose own lists are merged anew each time.
const MAX_ITEMS: usize = 2 << 20;
/// How many bytes of text there may be in these items, with what is in them: a few of them may be long.
const MAX_BYTES: usize = 256 << 20;

/// What a patch has cost so far.
#[derive(Debug, Default)]
struct Spent {
    items: usize,
    bytes: usize,
}

impl Spent {
    /// Notes that these lists are looked at.
    fn lists(&mut self, lists: &[&[Value]]) -> Result<(), Refusal> {
        for list in lists {
            self.items += list.len();
            self.bytes += list.iter().map(bytes_in).sum::<usize>();
            if self.items > MAX_ITEMS || self.bytes > MAX_BYTES {
                return Err(TOO_MUCH);
            }
        }
        Ok(())
    }
}

/// How much text is in a value; what is no text counts as a byte.
fn bytes_in(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len(),
        Value::Array(items) => 1 + items.iter().map(bytes_in).sum::<usize>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| key.len() + bytes_in(value)).sum::<usize>(),
    }
}

fn merge_maps(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Lookup<'_>,
    spent: &mut Spent,
) -> Result<Map<String, Value>, Refusal> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Some("delete")) => return Ok(Map::new()),
        Some(_) => return Err(unknown_directive(&patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema, spent)?;
    for (key, value) in patch {
        let (key, is_deletion) = match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => (rest.strip_prefix('/').ok_or(BAD_DELETE_LIST)?.to_owned(), true),
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(value)) => {
                let (below, strategy) = schema.field(&key)?;
                Some(Value::Object(if strategy.is("replace") { value } else { merge_maps(old, value, below, spent)? }))
            }
            (Some(Value::Array(old)), Value::Array(value)) => {
                let (below, strategy) = schema.items(&key)?;
                let merged = if is_deletion || strategy.is("merge") {
                    lists::merge(old, value, below, strategy.merge_key, is_deletion, spent)?.merged
                } else {
                    value
                };
                Some(Value::Array(merged))
            }
            (old, _) if is_deletion => old,
            (_, mut value) => {
                discard_nulls(&mut value);
                without_directives(value)
            }
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// Removes from the object what a `$retainKeys` of the patch does not name.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Refusal> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(BAD_RETAIN_KEYS) };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_own = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_own(key) && !keys.contains(key.as_str())) {
        return Err(BAD_RETAIN_KEYS);
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the lists for which the patch has an order, and takes them out of the patch.
fn merge_ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Lookup<'_>,
    spent: &mut Spent,
) -> Result<(), Refusal> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let order = list(order)?;
        let key = directive.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/')).ok_or(BAD_ORDER)?;
        let old = original.remove(key).map(list).transpose()?;
        let new = patch.remove(key).map(list).transpose()?;
        let (below, strategy) = schema.items(key)?;
        let key = key.to_owned();
        lists::check_order(new.as_deref().unwrap_or_default(), &order, strategy.merge_key)?;
        let element = lists::ElementKind::of(&[old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default()]);
        let (merged, old) = match (old, new) {
            (Some(old), None) => (old.clone(), old),
            (None, Some(new)) => match without_directives(Value::Array(new)) {
                Some(Value::Array(new)) => (new, Vec::new()),
                _ => continue,
            },
            (Some(old), Some(new)) if strategy.is("merge") => {
                let result = lists::merge(old, new, below, strategy.merge_key, false, spent)?;
                (result.merged, result.original)
            }
            (Some(old), Some(new)) => (new, old),
            (None, None) => continue,
        };
        let arranged = lists::arrange(merged, &order, &old, strategy.merge_key, element?, spent)?;
        original.insert(key, arranged.into());
    }
    Ok(())
}

fn list(value: Value) -> Result<Vec<Value>, Refusal> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

/// A value of another type than there should be.
fn bad_type(expected: &str, actual: &Value) -> Refusal {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        other => type_name(other),
    };
    Refusal::Failed(format!("expected a {expected}, but received a {actual}"))
}

fn unknown_directive(patch: &Map<String, Value>) -> Refusal {
    let directive = patch.get(DIRECTIVE).unwrap_or(&Value::Null);
    // Printed as a text whatever it is, as upstream does.
    let text = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(_) | Value::Object(_) => Plain(directive).to_string(),
        other => format!("%!s({}={})", type_name(other), Plain(other)),
    };
    Refusal::Failed(format!("unknown patch type: {text} in map: {}", Plain(&Value::Object(patch.clone()))))
}

/// A value that is new to the object, without what only a patch has; nothing for what is a directive as a whole.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let rest = map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(rest.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// Takes out of a new value what the patch would remove from an old one.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Strategy<'_> {
    fn is(&self, name: &str) -> bool {
        self.name == name
    }
}
