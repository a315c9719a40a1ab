//! The values of an object that selectors and the registry read without a parse.
//!
//! There is one of these for each object and each state in the history, so it is kept small: all its texts are in one.

use std::cmp::Ordering;

use serde_json::Value;
use stoa_meta::{definition::SelectableField, object::Object};

/// What selectors and the registry ask of an object.
#[derive(Debug)]
pub(super) struct Selectable {
    generation: i64,
    deleting: bool,
    /// How many labels there are.
    labels: u32,
    /// Namespace, name and uid, each label's key and value by key, and the selectable fields as they are declared, with
    /// nothing between them.
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[u32]>,
}

/// What comes before the labels.
const NAMESPACE: usize = 0;
const NAME: usize = 1;
const UID: usize = 2;
const LABELS: usize = 3;

impl Selectable {
    pub(super) fn of(object: &Object, fields: &[SelectableField]) -> Self {
        let metadata = object.metadata();
        let labels = metadata.and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
        let mut labels: Vec<(&str, &str)> =
            labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
        labels.sort_unstable();
        let mut texts = Texts::default();
        for text in [object.namespace(), object.name(), object.uid()] {
            texts.push(text);
        }
        for (key, value) in &labels {
            texts.push(key);
            texts.push(value);
        }
        for field in fields {
            let value = object.get_path(field.path);
            match value {
                Some(value @ Value::Object(_)) if field.is_map() => texts.push(&value.to_string()),
                value => texts.push_field(value),
            }
        }
        Self {
            generation: metadata.and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0),
            deleting: metadata.is_some_and(|m| m.get("deletionTimestamp").is_some_and(|t| !t.is_null())),
            labels: short(labels.len()),
            text: texts.text.into(),
            ends: texts.ends.into(),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        self.text(NAMESPACE)
    }

    pub(super) fn name(&self) -> &str {
        self.text(NAME)
    }

    pub(super) fn uid(&self) -> &str {
        self.text(UID)
    }

    pub(super) fn generation(&self) -> i64 {
        self.generation
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deleting
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.labels as usize).map(|index| self.label_at(index))
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        // Searched by halves: an object may have as many labels as a selector has terms.
        let (mut from, mut to) = (0, self.labels as usize);
        while from < to {
            let middle = usize::midpoint(from, to);
            let (label, value) = self.label_at(middle);
            match label.cmp(key) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return Some(value),
                Ordering::Greater => to = middle,
            }
        }
        None
    }

    fn label_at(&self, index: usize) -> (&str, &str) {
        let key = LABELS + 2 * index;
        (self.text(key), self.text(key + 1))
    }

    /// The value of a selectable field; empty where there is none.
    pub(super) fn field(&self, index: usize) -> &str {
        self.text(self.fields() + index)
    }

    /// Where the selectable fields begin.
    fn fields(&self) -> usize {
        LABELS + 2 * self.labels as usize
    }

    fn text(&self, index: usize) -> &str {
        let Some(end) = self.ends.get(index) else { return "" };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..*end as usize]
    }
}

#[derive(Default)]
struct Texts {
    text: String,
    ends: Vec<u32>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(short(self.text.len()));
    }

    fn push_field(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::String(text)) => self.push(text),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => self.push(&value.to_string()),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => self.push(""),
        }
    }
}

/// A length in an object, in less memory.
pub(super) fn short(length: usize) -> u32 {
    u32::try_from(length).expect("no object is as long as 4 GiB")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FIELDS: &[SelectableField] = &[SelectableField { name: "spec.a", path: &["spec", "a"] }];

    proptest! {
        #[test]
        fn labels_are_found_by_their_keys(labels: BTreeMap<String, String>, other: String, field: String) {
            let object = json!({"metadata": {"name": "web", "labels": labels}, "spec": {"a": field}});
            let selectable = Selectable::of(&Object(object.as_object().expect("a map").clone()), FIELDS);
            for key in labels.keys().chain([&other]) {
                prop_assert_eq!(selectable.label(key), labels.get(key).map(String::as_str));
            }
            prop_assert!(selectable.labels().eq(labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))));
            prop_assert_eq!([selectable.namespace(), selectable.name(), selectable.field(0), selectable.field(1)], ["", "web", &field, ""]);
        }
    }
}
