//! The references of a resource: where they stand, and their values put in their place.
//!
//! Start at [`resolve`]. What an unknown or sensitive value flows into is unknown or sensitive too.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::path::{FieldPath, Segment, scalar_text, type_name};
use crate::reference::{Part, Reference, ReferenceError, Template, may_refer, parse};

/// A reference and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Where in the attributes.
    pub field: FieldPath,
    /// What it refers to.
    pub reference: Reference,
}

/// All references in the attributes of a resource, and what is wrong with those that do not parse.
pub fn occurrences(
    attributes: &Map<String, Value>,
    known: &dyn Fn(&str) -> bool,
) -> (Vec<Occurrence>, Vec<(FieldPath, ReferenceError)>) {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    if !refers(attributes) {
        return (found, errors);
    }
    let mut visit = |field: &FieldPath, text: &str| match parse(text, known) {
        Ok(None) => {}
        Ok(Some(template)) => found.extend(
            template.references().map(|reference| Occurrence { field: field.clone(), reference: reference.clone() }),
        ),
        Err(err) => errors.push((field.clone(), err)),
    };
    texts(attributes, &mut visit);
    (found, errors)
}

/// Whether any text may hold a reference: most resources have none, and then no field has to be named.
pub(crate) fn refers(attributes: &Map<String, Value>) -> bool {
    has_text(attributes, &may_refer)
}

/// Whether any text in the attributes, keys of maps among them, is such a one.
pub(crate) fn has_text(attributes: &Map<String, Value>, is_it: &dyn Fn(&str) -> bool) -> bool {
    fn in_value(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
        match value {
            Value::String(text) => is_it(text),
            Value::Array(items) => items.iter().any(|item| in_value(item, is_it)),
            Value::Object(map) => has_text(map, is_it),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    attributes.iter().any(|(key, value)| is_it(key) || in_value(value, is_it))
}

/// Visits every text in the attributes, keys of maps among them, with where it stands.
pub(crate) fn texts(attributes: &Map<String, Value>, visit: &mut dyn FnMut(&FieldPath, &str)) {
    strings_of_map(attributes, &mut FieldPath::default(), visit);
}

fn strings_of_map(map: &Map<String, Value>, at: &mut FieldPath, visit: &mut dyn FnMut(&FieldPath, &str)) {
    for (key, value) in map {
        at.0.push(Segment::Key(key.clone()));
        visit(at, key);
        strings_of(value, at, visit);
        at.0.pop();
    }
}

fn strings_of(value: &Value, at: &mut FieldPath, visit: &mut dyn FnMut(&FieldPath, &str)) {
    match value {
        Value::String(text) => visit(at, text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                at.0.push(Segment::Index(index));
                strings_of(item, at, visit);
                at.0.pop();
            }
        }
        Value::Object(map) => strings_of_map(map, at, visit),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a reference leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// This value, of which these paths (from the value) are sensitive; the empty path is all of it.
    Known {
        /// The value.
        value: Value,
        /// Its sensitive parts.
        sensitive: Vec<FieldPath>,
    },
    /// Nobody knows before it is applied.
    Unknown,
}

/// Attributes with their references replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved<'a> {
    /// The attributes; null stands where a value is unknown. Those of the resource itself where nothing is replaced, since a
    /// plan has thousands.
    pub attributes: Cow<'a, Map<String, Value>>,
    /// Where values are unknown until something else is applied.
    pub unknown: BTreeSet<FieldPath>,
    /// Where values came from sensitive ones.
    pub sensitive: BTreeSet<FieldPath>,
}

impl<'a> Resolved<'a> {
    /// Attributes that have no references.
    pub fn plain(attributes: &'a Map<String, Value>) -> Self {
        Self { attributes: Cow::Borrowed(attributes), ..Self::default() }
    }

    /// The same, for as long as anybody likes.
    pub fn into_owned(self) -> Resolved<'static> {
        let Self { attributes, unknown, sensitive } = self;
        Resolved { attributes: Cow::Owned(attributes.into_owned()), unknown, sensitive }
    }

    /// Whether the value at the path, or a part of it, is unknown.
    pub fn is_unknown(&self, path: &FieldPath) -> bool {
        self.unknown
            .iter()
            .any(|unknown| unknown.strip_prefix(&path.0).is_some() || path.strip_prefix(&unknown.0).is_some())
    }
}

/// Replaces every reference in the attributes by what `lookup` finds.
///
/// # Errors
///
/// All that is wrong, with the place in the attributes.
pub fn resolve<'a>(
    attributes: &'a Map<String, Value>,
    known: &dyn Fn(&str) -> bool,
    lookup: &mut dyn FnMut(&Reference) -> Result<Looked, ReferenceError>,
) -> Result<Resolved<'a>, Vec<(FieldPath, ReferenceError)>> {
    if !refers(attributes) {
        return Ok(Resolved::plain(attributes));
    }
    let mut resolver =
        Resolver { known, lookup, at: FieldPath::default(), out: Resolved::default(), errors: Vec::new() };
    let attributes = Cow::Owned(resolver.map(attributes));
    if resolver.errors.is_empty() { Ok(Resolved { attributes, ..resolver.out }) } else { Err(resolver.errors) }
}

struct Resolver<'a> {
    known: &'a dyn Fn(&str) -> bool,
    lookup: &'a mut dyn FnMut(&Reference) -> Result<Looked, ReferenceError>,
    at: FieldPath,
    out: Resolved<'static>,
    errors: Vec<(FieldPath, ReferenceError)>,
}

/// A string after its references were replaced.
enum Text {
    Unchanged,
    Value(Value),
    Unknown,
}

impl Resolver<'_> {
    fn map(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in map {
            let Some(key) = self.key(key) else { continue };
            if out.contains_key(&key) {
                let message = format!("two keys of this map become `{key}`");
                self.errors.push((self.at.clone(), ReferenceError::Unfit(message)));
                continue;
            }
            self.at.0.push(Segment::Key(key.clone()));
            let value = self.value(value);
            self.at.0.pop();
            out.insert(key, value);
        }
        out
    }

    /// The key with its references replaced; `None` when it is unknown or wrong.
    fn key(&mut self, key: &str) -> Option<String> {
        let place = self.at.key(key);
        let mut sensitive = Vec::new();
        let value = match self.text(key, &place, &mut sensitive) {
            Text::Unchanged => return Some(key.to_owned()),
            Text::Value(value) => value,
            Text::Unknown => {
                self.out.unknown.insert(self.at.clone());
                return None;
            }
        };
        let error = if sensitive.is_empty() {
            match scalar_text(&value) {
                Some(text) => return Some(text),
                None => format!("{} cannot be a key", type_name(&value)),
            }
        } else {
            "a sensitive value cannot be a key".to_owned()
        };
        self.errors.push((place, ReferenceError::Unfit(error)));
        None
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let place = self.at.clone();
                let mut sensitive = Vec::new();
                match self.text(text, &place, &mut sensitive) {
                    Text::Unchanged => value.clone(),
                    Text::Value(value) => {
                        self.out.sensitive.extend(sensitive.iter().map(|below| self.at.concat(&below.0)));
                        value
                    }
                    Text::Unknown => {
                        self.out.unknown.insert(place);
                        Value::Null
                    }
                }
            }
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| {
                        self.at.0.push(Segment::Index(index));
                        let item = self.value(item);
                        self.at.0.pop();
                        item
                    })
                    .collect(),
            ),
            Value::Object(map) => Value::Object(self.map(map)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&mut self, text: &str, place: &FieldPath, sensitive: &mut Vec<FieldPath>) -> Text {
        let template = match parse(text, self.known) {
            Ok(None) => return Text::Unchanged,
            Ok(Some(template)) => template,
            Err(err) => {
                self.errors.push((place.clone(), err));
                return Text::Unknown;
            }
        };
        let parts = match template {
            Template::Whole(reference) => {
                return match (self.lookup)(&reference) {
                    Ok(Looked::Known { value, sensitive: paths }) => {
                        sensitive.extend(paths);
                        Text::Value(value)
                    }
                    Ok(Looked::Unknown) => Text::Unknown,
                    Err(err) => {
                        self.errors.push((place.clone(), err));
                        Text::Unknown
                    }
                };
            }
            Template::Text(parts) => parts,
        };
        let mut out = Some(String::new());
        for part in parts {
            let piece = match part {
                Part::Text(text) => Ok(Some(text)),
                Part::Reference(reference) => (self.lookup)(&reference).and_then(|looked| match looked {
                    Looked::Unknown => Ok(None),
                    Looked::Known { value, sensitive: paths } => {
                        if !paths.is_empty() {
                            *sensitive = vec![FieldPath::default()];
                        }
                        let unfit =
                            || format!("{reference} is {}, which does not fit inside a string", type_name(&value));
                        scalar_text(&value).map(Some).ok_or_else(|| ReferenceError::Unfit(unfit()))
                    }
                }),
            };
            match piece {
                Ok(Some(piece)) => {
                    if let Some(out) = &mut out {
                        out.push_str(&piece);
                    }
                }
                Ok(None) => out = None,
                Err(err) => {
                    self.errors.push((place.clone(), err));
                    out = None;
                }
            }
        }
        out.map_or(Text::Unknown, |text| Text::Value(Value::String(text)))
    }
}
