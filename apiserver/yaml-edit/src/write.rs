//! Writes values as YAML, with their keys in the order of a text.

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, Serializer, de::IgnoredAny};
use serde_json::{Map, Value};

use super::{
    outline::{Kind, Node},
    pairs,
};

/// A value whose keys are written in the order of what it takes the place of, new ones behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered<'v> {
    value: &'v Value,
    was: Option<(&'v Node, &'v Value)>,
}

impl<'v> Ordered<'v> {
    /// A value that takes the place of nothing.
    pub(super) fn new(value: &'v Value) -> Self {
        Self { value, was: None }
    }

    /// A value that takes the place of `old`, which is at a node of the text.
    pub(super) fn like(value: &'v Value, node: &'v Node, old: &'v Value) -> Self {
        Self { value, was: Some((node, old)) }
    }

    fn fields(self, fields: &'v Map<String, Value>) -> Vec<(&'v String, Self)> {
        let Some((Node { kind: Kind::Mapping(entries), .. }, old)) = self.was else {
            return fields.iter().map(|(key, value)| (key, Self::new(value))).collect();
        };
        let places: HashMap<&String, (usize, &Node)> =
            entries.iter().enumerate().map(|(place, entry)| (&entry.key, (place, &entry.value))).collect();
        let field = |(key, value): (&'v String, &'v Value)| {
            let was = places.get(key).and_then(|(_, node)| Some((*node, old.get(key)?)));
            (key, Self { value, was })
        };
        let mut fields: Vec<_> = fields.iter().map(field).collect();
        fields.sort_by_key(|(key, _)| places.get(key).map_or(usize::MAX, |(place, _)| *place));
        fields
    }

    fn items(self, items: &'v [Value]) -> Vec<Self> {
        let (nodes, old) = match self.was {
            Some((Node { kind: Kind::Sequence(nodes), .. }, Value::Array(old))) if nodes.len() == old.len() => {
                (nodes, old)
            }
            _ => return items.iter().map(Self::new).collect(),
        };
        let was = |index: usize| (&nodes[index], &old[index]);
        items.iter().zip(pairs(old, items)).map(|(value, pair)| Self { value, was: pair.map(was) }).collect()
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(fields) => serializer.collect_map(self.fields(fields)),
            Value::Array(items) => serializer.collect_seq(self.items(items)),
            scalar => scalar.serialize(serializer),
        }
    }
}

/// The keys that come first in a document that has them.
const FIRST_KEYS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// A value as a document, with the [first keys](FIRST_KEYS) first.
pub(super) fn document(value: &Value) -> Option<String> {
    struct Document<'v>(&'v Map<String, Value>);
    impl Serialize for Document<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut fields: Vec<_> = self.0.iter().collect();
            fields.sort_by_key(|(key, _)| FIRST_KEYS.iter().position(|first| key == first).unwrap_or(FIRST_KEYS.len()));
            serializer.collect_map(fields)
        }
    }
    match value {
        Value::Object(fields) => serde_saphyr::to_string(&Document(fields)).ok(),
        other => serde_saphyr::to_string(other).ok(),
    }
}

/// How values in brackets and braces are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With quotes where they are needed.
    Plain,
    /// So that what is JSON stays JSON.
    Json,
}

impl Style {
    /// The style of a text in brackets or braces.
    pub(super) fn of(text: &str) -> Self {
        // Numbers alone are JSON wherever they are.
        let is_json = text.contains('"') && serde_json::from_str::<IgnoredAny>(text).is_ok();
        if is_json { Self::Json } else { Self::Plain }
    }

    /// A value on one line that may be inside brackets or braces, where more characters mean something.
    pub(super) fn item(self, value: Ordered<'_>) -> Option<String> {
        match value.value {
            Value::Array(items) => {
                let items: Option<Vec<_>> = value.items(items).into_iter().map(|item| self.item(item)).collect();
                Some(format!("[{}]", items?.join(", ")))
            }
            Value::Object(fields) => {
                let fields = value.fields(fields).into_iter().map(|(key, value)| self.field(key, value));
                Some(format!("{{{}}}", fields.collect::<Option<Vec<_>>>()?.join(", ")))
            }
            Value::String(text) => self.text(text),
            scalar => line(scalar),
        }
    }

    /// A key and its value on one line.
    pub(super) fn field(self, key: &str, value: Ordered<'_>) -> Option<String> {
        Some(format!("{}: {}", self.text(key)?, self.item(value)?))
    }

    fn text(self, text: &str) -> Option<String> {
        match self {
            Self::Plain if !text.contains([',', '[', ']', '{', '}', ':', '#']) => line(&text.into()),
            _ => quoted(text),
        }
    }
}

/// A scalar on one line.
pub(super) fn line(scalar: &Value) -> Option<String> {
    let text = serde_saphyr::to_string(scalar).ok()?;
    let text = text.trim_end_matches('\n');
    match scalar {
        // A text of many lines has a way to be on one.
        Value::String(scalar) if text.contains('\n') => quoted(scalar),
        _ => Some(text.to_owned()),
    }
}

/// A text in quotes, as JSON and YAML have it.
fn quoted(text: &str) -> Option<String> {
    let quoted = serde_json::to_string(text).ok()?;
    // YAML has these in no text, or takes them for what they are not.
    let is_special =
        |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if !quoted.contains(is_special) {
        return Some(quoted);
    }
    Some(
        quoted
            .chars()
            .map(|c| if is_special(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() })
            .collect(),
    )
}

/// The lines of a key and its value, this far to the right.
pub(super) fn block(column: usize, key: &str, value: Ordered<'_>) -> Option<String> {
    Some(indented(column, &serde_saphyr::to_string(&BTreeMap::from([(key, value)])).ok()?))
}

/// The lines of an item of a list, this far to the right.
pub(super) fn block_item(column: usize, value: Ordered<'_>) -> Option<String> {
    Some(indented(column, &serde_saphyr::to_string(&[value]).ok()?))
}

fn indented(column: usize, lines: &str) -> String {
    let indent = " ".repeat(column);
    lines.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") }).collect()
}
