//! Lists in strategic merge patches: their items merged by key, and brought into an order.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

use serde_json::{Map, Value};

use super::{DIRECTIVE, LIST_OF_LISTS, Lookup, Refusal, SET_ORDER, Spent, bad_type, unknown_directive};
use crate::managed_fields::Plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementKind {
    Map,
    Scalar,
}

pub(super) struct Merged {
    pub(super) merged: Vec<Value>,
    /// The original list as upstream leaves it in memory, whose order counts later: what was deleted is shifted away,
    /// and what was added may stand in its place.
    pub(super) original: Vec<Value>,
}

impl ElementKind {
    pub(super) fn of(lists: &[&[Value]]) -> Result<Self, Refusal> {
        let mut items = lists.iter().flat_map(|list| list.iter());
        let Some(first) = items.next() else {
            return Err(Refusal::Failed("no elements in any of the given slices".to_owned()));
        };
        if first.is_array() {
            return Err(LIST_OF_LISTS);
        }
        if items.any(|item| type_rank(item) != type_rank(first)) {
            let lists = Value::from_iter(lists.iter().map(|list| list.to_vec()));
            return Err(Refusal::Failed(format!("list element types are not identical: {}", Plain(&lists))));
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

pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    schema: Lookup<'_>,
    key: &str,
    is_deletion: bool,
    spent: &mut Spent,
) -> Result<Merged, Refusal> {
    if original.is_empty() && patch.is_empty() {
        return Ok(Merged { merged: original, original: patch });
    }
    spent.lists(&[&original, &patch])?;
    let kind = ElementKind::of(&[&original, &patch])?;
    if kind == ElementKind::Scalar {
        if is_deletion {
            let gone: HashSet<String> = patch.iter().map(|item| text_of(Some(item))).collect();
            let merged = original.iter().filter(|item| !gone.contains(&text_of(Some(item)))).cloned().collect();
            return Ok(Merged { merged, original });
        }
        let all = distinct(original.iter().chain(&patch).cloned().collect());
        let merged = arrange(all, &patch, &original, key, kind, spent)?;
        return Ok(Merged { merged, original });
    }
    if key.is_empty() {
        return Err(Refusal::Failed("cannot merge lists without merge key for slice".to_owned()));
    }
    let mut list = Slice::of(original);
    let (patch, replaces) = apply_directives(&mut list, patch, key)?;
    if replaces {
        let merged = arrange(patch.clone(), &[], &patch, key, kind, spent)?;
        return Ok(Merged { merged, original: list.backing });
    }
    let before = list.items().to_vec();
    let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (index, item) in before.iter().enumerate() {
        places.entry(text_of(item.get(key))).or_default().push_back(index);
    }
    for item in &patch {
        let fields = as_map(item)?;
        let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        let same = places.entry(text_of(Some(value))).or_default();
        match same.front().copied() {
            Some(index) => {
                let place = &mut list.items_mut()[index];
                let old = match place.take() {
                    Value::Object(old) => old,
                    other => return Err(bad_type("map[string]interface {}", &other)),
                };
                let merged = super::merge_maps(old, fields.clone(), schema, spent)?;
                // A patch can take the key away, by null.
                if merged.get(key) != Some(value) {
                    same.pop_front();
                }
                *place = Value::Object(merged);
            }
            None => {
                same.push_back(list.items().len());
                list.push(item.clone());
            }
        }
    }
    let merged = arrange(list.items().to_vec(), &patch, &before, key, kind, spent)?;
    Ok(Merged { merged, original: list.backing })
}

/// Deletes the items that the patch deletes. Returns the patch's other items, and whether they replace all there are.
fn apply_directives(list: &mut Slice, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, bool), Refusal> {
    let mut others = Vec::new();
    let mut deleted = Vec::new();
    let mut replaces = false;
    for item in patch {
        let fields = as_map(&item)?;
        match fields.get(DIRECTIVE) {
            None => others.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                    deleted.push(text_of(Some(value)));
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
    list.remove_all(&deleted, key);
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
    spent: &mut Spent,
) -> Result<Vec<Value>, Refusal> {
    spent.lists(&[&merged, order, before])?;
    let ordered = Named::of(order, key);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        if ordered.has(&item)? { named.push(item) } else { others.push(item) }
    }
    let named = sorted(named, order, key, kind)?;
    let others = sorted(others, before, key, kind)?;
    let places = Places::of(before, key, kind);
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return Ok(all),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                matches!((places.get(other), places.get(named)), (Some(other), Some(named)) if other < named)
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
    let places = Places::of(order, key, kind);
    let sorted = insertion_order(rest.iter().map(|item| places.get(item)));
    let mut rest: Vec<_> = rest.into_iter().map(Some).collect();
    Ok(sorted.into_iter().filter_map(|index| rest[index].take()).chain(deleted).collect())
}

/// The order that insertion sort brings items into, one of which comes before another when its place does, or when one
/// of them has no place: that is no order, so that upstream's way of sorting shows.
///
/// An item with a place goes behind the last that comes before it, past all that have none; one without goes to the
/// very front. So those without a place stay behind whatever was at the front when they came.
fn insertion_order(places: impl Iterator<Item = Option<usize>>) -> Vec<usize> {
    // The latest first.
    let mut front: VecDeque<usize> = VecDeque::new();
    // By place and then by when they came, with those without a place that follow.
    let mut placed: BTreeMap<(usize, usize), VecDeque<usize>> = BTreeMap::new();
    for (index, place) in places.enumerate() {
        match place {
            None => front.push_front(index),
            Some(place) => {
                let last = placed.range_mut(..(place, index)).next_back();
                let follow = last.map_or_else(|| std::mem::take(&mut front), |(_, follow)| std::mem::take(follow));
                placed.insert((place, index), follow);
            }
        }
    }
    let placed = placed.into_iter().flat_map(|((_, index), follow)| std::iter::once(index).chain(follow));
    front.into_iter().chain(placed).collect()
}

/// A text for a key or an item, which is the same for those that are equal; empty for what is missing.
fn text_of(value: Option<&Value>) -> String {
    match value {
        // The mark tells it from the JSON of what is no text; to escape what may be long would take far longer.
        Some(Value::String(text)) => format!("\"{text}"),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// Where the items of a list stand that are like others: the first of those that are alike counts.
struct Places<'k> {
    by_text: HashMap<String, usize>,
    /// The key by which they are alike; nothing for scalars.
    key: Option<&'k str>,
}

impl<'k> Places<'k> {
    fn of(list: &[Value], key: &'k str, kind: ElementKind) -> Self {
        let mut places = Self { by_text: HashMap::new(), key: (kind == ElementKind::Map).then_some(key) };
        for (index, item) in list.iter().enumerate() {
            places.by_text.entry(places.text(item)).or_insert(index);
        }
        places
    }

    fn text(&self, item: &Value) -> String {
        text_of(self.key.map_or(Some(item), |key| item.get(key)))
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.by_text.get(&self.text(item)).copied()
    }
}

struct Named<'k> {
    places: Places<'k>,
    /// The first that is no map where all should be.
    first_no_map: Option<usize>,
}

impl<'k> Named<'k> {
    fn of(order: &[Value], key: &'k str) -> Self {
        let kind = if key.is_empty() { ElementKind::Scalar } else { ElementKind::Map };
        let no_map = |item: &Value| kind == ElementKind::Map && !item.is_object();
        Self { places: Places::of(order, key, kind), first_no_map: order.iter().position(no_map) }
    }

    fn has(&self, item: &Value) -> Result<bool, Refusal> {
        if let Some(key) = self.places.key {
            let fields = as_map(item)?;
            if !fields.contains_key(key) {
                return Err(no_merge_key(fields, key));
            }
        }
        let place = self.places.get(item);
        match self.first_no_map {
            // They are looked at one after the other until one is the same.
            Some(index) if place.is_none_or(|place| index < place) => {
                Err(Refusal::Failed(format!("value for key {index} is not a map")))
            }
            _ => Ok(place.is_some()),
        }
    }
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
                Plain(&Value::from(patch)),
                Plain(&Value::from(order))
            )));
        }
    }
    Ok(())
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, Refusal> {
    let fields = as_map(item)?;
    fields.get(key).ok_or_else(|| no_merge_key(fields, key))
}

fn as_map(item: &Value) -> Result<&Map<String, Value>, Refusal> {
    item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))
}

fn no_merge_key(fields: &Map<String, Value>, key: &str) -> Refusal {
    let fields = Value::Object(fields.clone());
    Refusal::Failed(format!("map: {} does not contain declared merge key: {key}", Plain(&fields)))
}

/// Each value once. What stood twice makes room for the last one, as upstream does it.
fn distinct(mut items: Vec<Value>) -> Vec<Value> {
    let mut kinds: HashMap<String, usize> = HashMap::new();
    // Which items are equal, and where those of each kind stand.
    let mut kind_of: Vec<usize> = Vec::with_capacity(items.len());
    let mut places: Vec<BTreeSet<usize>> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let kind = *kinds.entry(text_of(Some(item))).or_insert_with(|| {
            places.push(BTreeSet::new());
            places.len() - 1
        });
        kind_of.push(kind);
        places[kind].insert(index);
    }
    let mut first = 0;
    while first < items.len() {
        let kind = kind_of[first];
        while let Some(&again) = places[kind].range((Excluded(first), Unbounded)).next() {
            let last = items.len() - 1;
            items.swap_remove(again);
            kind_of.swap_remove(again);
            places[kind].remove(&again);
            // What was the last stands there now, unless it was what is gone.
            if again < last {
                let moved = kind_of[again];
                places[moved].remove(&last);
                places[moved].insert(again);
            }
        }
        first += 1;
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

    /// Removes all items with these keys, in the order of the keys, from a list that has not grown: each that goes
    /// lets those after it move up, and leaves a copy of what is the last by then at the end.
    fn remove_all(&mut self, keys: &[String], key: &str) {
        if keys.is_empty() {
            return;
        }
        let mut turns: HashMap<&str, usize> = HashMap::new();
        for (turn, text) in keys.iter().enumerate() {
            turns.entry(text).or_insert(turn);
        }
        let items = self.items();
        // When each item goes, if it does.
        let goes: Vec<Option<usize>> =
            items.iter().map(|item| turns.get(text_of(item.get(key)).as_str()).copied()).collect();
        let mut gone: Vec<usize> = goes.iter().flatten().copied().collect();
        gone.sort_unstable();
        let kept = items.iter().zip(&goes).filter(|(_, goes)| goes.is_none()).map(|(item, _)| item.clone());
        let mut backing: Vec<Value> = kept.collect();
        let length = backing.len();
        // The end is filled from behind.
        let mut left = Vec::with_capacity(gone.len());
        let mut last = items.len();
        for turn in gone {
            while last > 0 && goes[last - 1].is_some_and(|goes| goes < turn) {
                last -= 1;
            }
            left.extend(items.get(last.wrapping_sub(1)).cloned());
        }
        left.reverse();
        backing.append(&mut left);
        self.backing = backing;
        self.length = length;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As upstream does it, step by step.
    fn distinct_by_comparing(mut items: Vec<Value>) -> Vec<Value> {
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

    fn insertion_sort(places: &[Option<usize>]) -> Vec<usize> {
        let comes_first = |a: usize, b: usize| match (places[a], places[b]) {
            (Some(a), Some(b)) => a < b,
            _ => true,
        };
        let mut sorted: Vec<usize> = (0..places.len()).collect();
        for end in 1..sorted.len() {
            let mut at = end;
            while at > 0 && comes_first(sorted[at], sorted[at - 1]) {
                sorted.swap(at, at - 1);
                at -= 1;
            }
        }
        sorted
    }

    /// Removes items one by one, each found anew.
    fn remove_one_by_one(list: &mut Slice, keys: &[String]) {
        for key in keys {
            while let Some(index) = list.items().iter().position(|item| text_of(item.get("k")) == *key) {
                for at in index..list.length - 1 {
                    list.backing[at] = list.backing[at + 1].clone();
                }
                list.length -= 1;
            }
        }
    }

    proptest! {
        #[test]
        fn what_stands_twice_is_found_as_by_comparing(items in prop::collection::vec(0..6_u8, 0..24)) {
            let items: Vec<Value> = items.into_iter().map(Value::from).collect();
            prop_assert_eq!(distinct(items.clone()), distinct_by_comparing(items));
        }

        #[test]
        fn items_are_sorted_as_by_insertion(places in prop::collection::vec(prop::option::of(0..8_usize), 0..24)) {
            prop_assert_eq!(insertion_order(places.iter().copied()), insertion_sort(&places));
        }

        #[test]
        fn items_are_removed_as_one_by_one(
            items in prop::collection::vec(0..5_u8, 0..16), keys in prop::collection::vec(0..5_u8, 0..5),
        ) {
            let items = || Slice::of(items.iter().map(|k| serde_json::json!({ "k": k })).collect());
            let keys: Vec<String> = keys.iter().map(u8::to_string).collect();
            let (mut at_once, mut one_by_one) = (items(), items());
            at_once.remove_all(&keys, "k");
            remove_one_by_one(&mut one_by_one, &keys);
            prop_assert_eq!(at_once.items(), one_by_one.items());
            prop_assert_eq!(at_once.backing, one_by_one.backing);
        }
    }
}
