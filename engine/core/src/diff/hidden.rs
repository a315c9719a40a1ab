//! Hidden values: fields that were sensitive when they were recorded.
//!
//! A value from a sensitive reference is known as sensitive while the Spec has the reference. Afterwards the value is
//! still live, and only the mask in the record says so. Therefore each live value at a masked path is sensitive, even
//! if it has changed.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::lists::{self, Matching};
use crate::path::{FieldPath, Segment};
use crate::schema::{ListKey, Schema};
use crate::secret_digest::{contains_mask, is_masked};
use crate::sensitive::Sensitive;

/// The values of `have` at masked paths of a record, by the paths that a comparison of `have` with `want` shows. With `is_left`
/// only those that do not have their wanted values, by their paths in `have`.
pub(super) fn by_record(
    schema: Option<&Schema>,
    record: &Map<String, Value>,
    want: &Map<String, Value>,
    have: &Map<String, Value>,
    is_left: bool,
) -> Sensitive {
    let mut search = Search { schema, is_left, at: FieldPath::default(), found: Sensitive::default() };
    search.map(record, Some(want), Some(have));
    search.found
}

struct Search<'a> {
    schema: Option<&'a Schema>,
    /// Whether only leftover values are collected, by their live paths.
    is_left: bool,
    at: FieldPath,
    found: Sensitive,
}

impl Search<'_> {
    fn map(
        &mut self,
        record: &Map<String, Value>,
        want: Option<&Map<String, Value>>,
        have: Option<&Map<String, Value>>,
    ) {
        for (key, record) in record {
            let (want, have) = (want.and_then(|want| want.get(key)), have.and_then(|have| have.get(key)));
            self.within(Segment::Key(key.clone()), |search| search.value(record, want, have));
        }
    }

    fn value(&mut self, record: &Value, want: Option<&Value>, have: Option<&Value>) {
        match record {
            _ if is_masked(record) => self.find(want, have),
            Value::Object(record) => {
                self.map(record, want.and_then(Value::as_object), have.and_then(Value::as_object));
            }
            Value::Array(record) if record.iter().any(contains_mask) => self.list(record, items(want), items(have)),
            Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn list(&mut self, record: &[Value], want: &[Value], have: &[Value]) {
        let merge = self.schema.and_then(|schema| schema.list(&self.at));
        match lists::matching(merge, Some(record), want, have) {
            Matching::ByKeys { keys, .. } => self.keyed_list(&keys, record, want, have),
            Matching::Set | Matching::ByPosition => {
                // A live value that equals its record is not the masked one.
                let [recorded, live] = [record, have].map(|items| items.iter().collect::<HashSet<_>>());
                let left = record.iter().filter(|item| !live.contains(item)).collect();
                let others = have.iter().enumerate().filter(|(_, item)| !recorded.contains(item));
                let others = others.map(|(index, had)| Other { index, want: want.get(index), had }).collect();
                self.unnamed(left, others);
            }
        }
    }

    fn keyed_list(&mut self, keys: &[ListKey], record: &[Value], want: &[Value], have: &[Value]) {
        let [in_record, in_want, in_have] = [record, want, have].map(|items| lists::positions(items, keys));
        for (text, at) in &in_record {
            let (wanted, had) = (in_want.get(text).copied(), in_have.get(text).copied());
            let index = match self.is_left {
                true => had,
                // As a comparison counts: what is only live comes behind what is wanted.
                false => wanted.or(had.map(|had| want.len() + had)),
            };
            let Some(index) = index else { continue };
            let (wanted, had) = (wanted.map(|at| &want[at]), had.map(|at| &have[at]));
            self.within(Segment::Index(index), |search| search.value(&record[*at], wanted, had));
        }
        // Items with a sensitive key are recorded without it.
        let left = record.iter().filter(|item| lists::key_of(item, keys).is_none()).collect();
        let is_left = self.is_left;
        let others = have.iter().enumerate().filter_map(|(at, had)| {
            let text = lists::key_of(had, keys)?;
            let wanted = in_want.get(&text).copied();
            let index = if is_left { at } else { wanted.unwrap_or(want.len() + at) };
            (!in_record.contains_key(&text)).then(|| Other { index, want: wanted.map(|at| &want[at]), had })
        });
        self.unnamed(left, others.collect());
    }

    /// Matches items without keys one by one if the lists have equal lengths. Otherwise all of them may be sensitive.
    fn unnamed(&mut self, left: Vec<&Value>, others: Vec<Other<'_>>) {
        let is_one_for_one = left.len() == others.len();
        if !is_one_for_one && left.iter().any(|item| contains_mask(item)) {
            for other in others {
                self.within(Segment::Index(other.index), |search| search.find(other.want, Some(other.had)));
            }
        } else if is_one_for_one {
            for (item, other) in left.into_iter().zip(others) {
                self.within(Segment::Index(other.index), |search| search.value(item, other.want, Some(other.had)));
            }
        }
    }

    fn find(&mut self, want: Option<&Value>, have: Option<&Value>) {
        if !self.is_left || (have.is_some() && want != have) {
            self.found.add(self.at.clone(), have);
        }
    }

    fn within(&mut self, step: Segment, work: impl FnOnce(&mut Self)) {
        self.at.0.push(step);
        work(self);
        self.at.0.pop();
    }
}

/// A live item that is not in the record by what names it, and what is wanted of it.
struct Other<'v> {
    /// Its index in the result.
    index: usize,
    want: Option<&'v Value>,
    had: &'v Value,
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
