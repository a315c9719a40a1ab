//! Lists in strategic merge patches: their items merged by key, and brought into an order.

use serde_json::{Map, Value};

use super::{DIRECTIVE, LIST_OF_LISTS, Lookup, Refusal, SET_ORDER, bad_type, unknown_directive};

/// How many items two lists may have together to be merged, since each is compared with each.
const MAX_ITEMS: usize = 4096;
const TOO_MANY: Refusal = Refusal::Unprocessable("lists of so many items are not merged");

/// What the items of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementKind {
    Map,
    Scalar,
}

/// What came of merging two lists.
pub(super) struct Merged {
    pub(super) merged: Vec<Value>,
    /// The original list as upstream leaves it in memory, whose order counts later: what was deleted is shifted away,
    /// and what was added may stand in its place.
    pub(super) original: Vec<Value>,
}

impl ElementKind {
    /// The kind of all items of these lists.
    pub(super) fn of(lists: &[&[Value]]) -> Result<Self, Refusal> {
        let mut items = lists.iter().flat_map(|list| list.iter());
        let Some(first) = items.next() else {
            return Err(Refusal::Failed("no elements in any of the given slices".to_owned()));
        };
        if first.is_array() {
            return Err(LIST_OF_LISTS);
        }
        if items.any(|item| type_rank(item) != type_rank(first)) {
            return Err(Refusal::Failed("list element types are not identical".to_owned()));
        }
        Ok(if first.is_object() { Self::Map } else { Self::Scalar })
    }
}

fn type_rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(number) if number.is_f64() => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

/// Merges a list of the patch into the object's.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    schema: Lookup<'_>,
    key: &str,
    is_deletion: bool,
) -> Result<Merged, Refusal> {
    if original.is_empty() && patch.is_empty() {
        return Ok(Merged { merged: original, original: patch });
    }
    if original.len() + patch.len() > MAX_ITEMS {
        return Err(TOO_MANY);
    }
    let kind = ElementKind::of(&[&original, &patch])?;
    if kind == ElementKind::Scalar {
        if is_deletion {
            let merged = original.iter().filter(|item| !patch.contains(item)).cloned().collect();
            return Ok(Merged { merged, original });
        }
        let all = distinct(original.iter().chain(&patch).cloned().collect());
        let merged = arrange(all, &patch, &original, key, kind)?;
        return Ok(Merged { merged, original });
    }
    if key.is_empty() {
        return Err(Refusal::Failed("cannot merge lists without merge key for slice".to_owned()));
    }
    let mut list = Slice::of(original);
    let (patch, replaces) = apply_directives(&mut list, patch, key)?;
    if replaces {
        let merged = arrange(patch.clone(), &[], &patch, key, kind)?;
        return Ok(Merged { merged, original: list.backing });
    }
    let before = list.items().to_vec();
    for item in &patch {
        let fields = as_map(item)?;
        let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        match find(list.items(), key, value)? {
            Some(index) => {
                let old = as_map(&list.items()[index])?.clone();
                list.items_mut()[index] = Value::Object(super::merge(old, fields.clone(), schema)?);
            }
            None => list.push(item.clone()),
        }
    }
    let merged = arrange(list.items().to_vec(), &patch, &before, key, kind)?;
    Ok(Merged { merged, original: list.backing })
}

/// Deletes the items that the patch deletes. Returns the patch's other items, and whether they replace all there are.
fn apply_directives(list: &mut Slice, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, bool), Refusal> {
    let mut others = Vec::new();
    let mut replaces = false;
    for item in patch {
        let fields = as_map(&item)?;
        match fields.get(DIRECTIVE) {
            None => others.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                    while let Some(index) = find(list.items(), key, value)? {
                        list.remove(index);
                    }
                }
                Some("replace") => replaces = true,
                Some("merge") => {
                    let message = "merging lists cannot yet be specified in the patch";
                    return Err(Refusal::Failed(message.to_owned()));
                }
                _ => return Err(unknown_directive(fields)),
            },
        }
    }
    Ok((others, replaces))
}

/// Brings a merged list into order: items that the patch's order names follow it; where the others go is decided by
/// the order they had.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    key: &str,
    kind: ElementKind,
) -> Result<Vec<Value>, Refusal> {
    if merged.len().max(before.len()) + order.len() > MAX_ITEMS {
        return Err(TOO_MANY);
    }
    let is_in_order = |item: &Value| -> Result<bool, Refusal> {
        if key.is_empty() {
            return Ok(order.contains(item));
        }
        let fields = as_map(item)?;
        let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        Ok(find(order, key, value)?.is_some())
    };
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        if is_in_order(&item)? { named.push(item) } else { others.push(item) }
    }
    let named = sorted(named, order, key, kind)?;
    let others = sorted(others, before, key, kind)?;
    let position = |item: &Value| position(before, item, key, kind);
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return Ok(all),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                matches!((position(other), position(named)), (Some(other), Some(named)) if other < named)
            }
        };
        all.extend(if other_first { others.next() } else { named.next() });
    }
}

/// Sorts items by where they stand in another list; those that are to be deleted come last.
fn sorted(items: Vec<Value>, order: &[Value], key: &str, kind: ElementKind) -> Result<Vec<Value>, Refusal> {
    let mut deleted = Vec::new();
    let mut rest = items;
    if kind == ElementKind::Map {
        for item in rest.iter().chain(order) {
            let fields = as_map(item)?;
            if !fields.contains_key(key) {
                return Err(no_merge_key(fields, key));
            }
        }
        (deleted, rest) = rest.into_iter().partition(|item| item[DIRECTIVE] == "delete");
    }
    // Upstream's comparison is no order for items that do not stand there, so its way of sorting shows.
    let places: Vec<_> = rest.iter().map(|item| position(order, item, key, kind)).collect();
    let comes_first = |a: usize, b: usize| match (places[a], places[b]) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    let mut sorted: Vec<usize> = (0..rest.len()).collect();
    for end in 1..sorted.len() {
        let mut at = end;
        while at > 0 && comes_first(sorted[at], sorted[at - 1]) {
            sorted.swap(at, at - 1);
            at -= 1;
        }
    }
    let mut rest: Vec<_> = rest.into_iter().map(Some).collect();
    Ok(sorted.into_iter().filter_map(|index| rest[index].take()).chain(deleted).collect())
}

fn position(list: &[Value], item: &Value, key: &str, kind: ElementKind) -> Option<usize> {
    list.iter().position(|other| match kind {
        ElementKind::Map => other.get(key) == item.get(key),
        ElementKind::Scalar => other == item,
    })
}

/// Checks that a list of the patch is in the order that the patch asks for.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), Refusal> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch {
        if !key.is_empty() {
            let fields = as_map(item)?;
            if fields.contains_key(DIRECTIVE) {
                continue;
            }
        }
        let mut found = false;
        for other in rest.by_ref() {
            found = if key.is_empty() { item == other } else { key_of(item, key)? == key_of(other, key)? };
            if found {
                break;
            }
        }
        if !found {
            return Err(Refusal::Failed(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                Value::from(patch),
                Value::from(order)
            )));
        }
    }
    Ok(())
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, Refusal> {
    let fields = as_map(item)?;
    fields.get(key).ok_or_else(|| no_merge_key(fields, key))
}

fn find(list: &[Value], key: &str, value: &Value) -> Result<Option<usize>, Refusal> {
    for (index, item) in list.iter().enumerate() {
        let Value::Object(fields) = item else {
            return Err(Refusal::Failed(format!("value for key {index} is not a map")));
        };
        if fields.get(key) == Some(value) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn as_map(item: &Value) -> Result<&Map<String, Value>, Refusal> {
    item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))
}

fn no_merge_key(fields: &Map<String, Value>, key: &str) -> Refusal {
    let fields = Value::Object(fields.clone());
    Refusal::Failed(format!(
        "map: {} does not contain declared merge key: {key}",
        crate::managed_fields::Plain(&fields)
    ))
}

/// Each value once. What stood twice makes room for the last one, as upstream does it.
fn distinct(mut items: Vec<Value>) -> Vec<Value> {
    let mut i = 0;
    while i < items.len() {
        let mut j = i + 1;
        while j < items.len() {
            if items[i] == items[j] {
                items.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    items
}

/// A list that changes in the place of the one it was made from until it outgrows it, as slices in Go do.
struct Slice {
    backing: Vec<Value>,
    length: usize,
    outgrown: Option<Vec<Value>>,
}

impl Slice {
    fn of(items: Vec<Value>) -> Self {
        Self { length: items.len(), backing: items, outgrown: None }
    }

    fn items(&self) -> &[Value] {
        self.outgrown.as_deref().unwrap_or(&self.backing[..self.length])
    }

    fn items_mut(&mut self) -> &mut [Value] {
        self.outgrown.as_deref_mut().unwrap_or(&mut self.backing[..self.length])
    }

    fn remove(&mut self, index: usize) {
        if let Some(items) = &mut self.outgrown {
            items.remove(index);
            return;
        }
        for at in index..self.length - 1 {
            self.backing[at] = self.backing[at + 1].clone();
        }
        self.length -= 1;
    }

    fn push(&mut self, item: Value) {
        match &mut self.outgrown {
            Some(items) => items.push(item),
            None if self.length < self.backing.len() => {
                self.backing[self.length] = item;
                self.length += 1;
            }
            None => {
                let mut items = self.backing[..self.length].to_vec();
                items.push(item);
                self.outgrown = Some(items);
            }
        }
    }
}
