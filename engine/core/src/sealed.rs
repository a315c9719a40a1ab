//! Sealed Specs: the stored form of a Spec, with its sensitive values encrypted.
//!
//! Start at [`seal`] and [`open`], which are inverse to each other for any Spec. The cryptography is the caller's: it
//! gets each value with its location, so that a value that was sealed for one field does not open in another. [`shown`]
//! masks a Spec for people.
//!
//! Values that references carry elsewhere are not known yet: the Spec has the reference there. Therefore only these are
//! sealed: literal values of Secrets, other fields of such a Secret that contain one of them, and settings of Kusion
//! with possible credentials (`secretStore`, `context`), and fields that the Spec [declares](crate::declared).

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use crate::declared::declared;
use crate::path::{FieldPath, Segment};
use crate::reference::{Template, parse};
use crate::sensitive::{MASK, Sensitive, of_secret};
use crate::spec::{Resource, ResourceId, Spec};

/// The key of the map in place of a sealed value: `{"$sealed": "…"}`.
pub const SEALED_KEY: &str = "$sealed";

/// The location of a value in a Spec.
#[derive(Clone, Copy, Debug)]
pub struct FieldLocation<'a> {
    /// The resource with the value in its attributes; `None` for the Spec's own fields.
    pub resource: Option<&'a ResourceId>,
    /// Its path there.
    pub path: &'a FieldPath,
}

impl FieldLocation<'_> {
    /// The location as unambiguous JSON: `["<id>","data","password"]`. The id is null for the Spec's own fields, and list
    /// items are numbers.
    pub fn to_json(&self) -> Value {
        let id = self.resource.map_or(Value::Null, |id| Value::from(id.0.as_str()));
        let segments = self.path.0.iter().map(|segment| match segment {
            Segment::Key(key) => Value::from(key.as_str()),
            Segment::Index(index) => Value::from(*index),
            Segment::Item { key, value } => json!({ key: value }),
        });
        std::iter::once(id).chain(segments).collect()
    }
}

/// The Spec with each sensitive value replaced by `{"$sealed": …}`, with the result of `seal`. A lookalike of a sealed
/// value is sealed too, so that no user can forge one.
pub fn seal(spec: &Spec, seal: &mut dyn FnMut(FieldLocation<'_>, &Value) -> String) -> Spec {
    replaced(spec, &mut |place, value| json!({ SEALED_KEY: seal(place, value) }), Lookalikes::AreSensitive)
}

/// The Spec with each sealed text replaced by the result of `open`. A Spec without sealed values is unchanged.
pub fn open<E>(spec: &Spec, open: &mut dyn FnMut(FieldLocation<'_>, &str) -> Result<Value, E>) -> Result<Spec, E> {
    let mut resources = Vec::with_capacity(spec.resources.len());
    for resource in &spec.resources {
        let mut opener = Opener { resource: Some(&resource.id), at: FieldPath::default(), open };
        resources.push(Resource { attributes: opener.map(&resource.attributes)?, ..resource.clone() });
    }
    let mut own = |name: &str, value: &Option<Value>| {
        let mut opener = Opener { resource: None, at: FieldPath::of_keys([name]), open };
        value.as_ref().map(|value| opener.value(value)).transpose()
    };
    let (secret_store, context) = (own(SECRET_STORE, &spec.secret_store)?, own(CONTEXT, &spec.context)?);
    Ok(Spec { resources, secret_store, context })
}

/// The Spec for people: sensitive values masked, sealed values as they are.
pub fn shown(spec: &Spec) -> Spec {
    replaced(spec, &mut |_, _| Value::from(MASK), Lookalikes::Stay)
}

/// The text of a sealed value or a lookalike.
fn sealed_text(value: &Value) -> Option<&Value> {
    value.as_object().filter(|map| map.len() == 1)?.get(SEALED_KEY)
}

/// How lookalikes of sealed values are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lookalikes {
    AreSensitive,
    Stay,
}

const SECRET_STORE: &str = "secretStore";
const CONTEXT: &str = "context";

fn replaced(spec: &Spec, replace: &mut dyn FnMut(FieldLocation<'_>, &Value) -> Value, lookalikes: Lookalikes) -> Spec {
    let ids: HashSet<&str> = spec.resources.iter().map(|resource| resource.id.0.as_str()).collect();
    let mut resources = Vec::with_capacity(spec.resources.len());
    for resource in &spec.resources {
        let known = |id: &str| ids.contains(id);
        let sensitive = sensitive(resource, &known);
        let mut replacer =
            Replacer { resource: &resource.id, sensitive, lookalikes, at: FieldPath::default(), replace };
        resources.push(Resource { attributes: replacer.map(&resource.attributes), ..resource.clone() });
    }
    let mut own = |name: &str, value: &Option<Value>| {
        let value = value.as_ref()?;
        let stays = value.is_null() || (lookalikes == Lookalikes::Stay && sealed_text(value).is_some());
        let path = FieldPath::of_keys([name]);
        Some(if stays { value.clone() } else { replace(FieldLocation { resource: None, path: &path }, value) })
    };
    let (secret_store, context) = (own(SECRET_STORE, &spec.secret_store), own(CONTEXT, &spec.context));
    Spec { resources, secret_store, context }
}

/// The sensitive paths of attributes with unresolved references.
fn sensitive(resource: &Resource, known: &dyn Fn(&str) -> bool) -> Sensitive {
    let attributes = &resource.attributes;
    let mut paths = declared(resource);
    if may_be_secret(attributes) {
        paths.extend(of_secret(attributes));
    }
    if paths.is_empty() {
        return Sensitive::default();
    }
    let paths: BTreeSet<FieldPath> = paths
        .into_iter()
        .filter(|path| {
            path.get(attributes).is_some_and(|value| sealed_text(value).is_none() && !is_reference(value, known))
        })
        .collect();
    Sensitive::at(paths, attributes)
}

/// Whether an object is a Secret or may become one: a Spec is stored before it is validated, and its kind may be a
/// reference.
fn may_be_secret(attributes: &Map<String, Value>) -> bool {
    match attributes.get("kind") {
        Some(Value::String(kind)) => kind == "Secret" || kind.contains("kusion_path."),
        _ => true,
    }
}

/// Whether a value is a reference to a resource of the Spec and nothing else.
fn is_reference(value: &Value, known: &dyn Fn(&str) -> bool) -> bool {
    value.as_str().is_some_and(|text| matches!(parse(text, known), Ok(Some(Template::Whole(_)))))
}

struct Replacer<'a> {
    resource: &'a ResourceId,
    sensitive: Sensitive,
    lookalikes: Lookalikes,
    at: FieldPath,
    replace: &'a mut dyn FnMut(FieldLocation<'_>, &Value) -> Value,
}

impl Replacer<'_> {
    fn map(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        map.iter()
            .map(|(key, value)| {
                self.at.0.push(Segment::Key(key.clone()));
                let value = self.value(value);
                self.at.0.pop();
                (key.clone(), value)
            })
            .collect()
    }

    fn value(&mut self, value: &Value) -> Value {
        if sealed_text(value).is_some() {
            return match self.lookalikes {
                Lookalikes::Stay => value.clone(),
                Lookalikes::AreSensitive => self.replace(value),
            };
        }
        if self.sensitive.is_sensitive(&self.at, value) {
            return self.replace(value);
        }
        match value {
            Value::Object(map) => Value::Object(self.map(map)),
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    self.at.0.push(Segment::Index(index));
                    let item = self.value(item);
                    self.at.0.pop();
                    item
                });
                Value::Array(items.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    fn replace(&mut self, value: &Value) -> Value {
        (self.replace)(FieldLocation { resource: Some(self.resource), path: &self.at }, value)
    }
}

struct Opener<'a, E> {
    resource: Option<&'a ResourceId>,
    at: FieldPath,
    open: &'a mut dyn FnMut(FieldLocation<'_>, &str) -> Result<Value, E>,
}

impl<E> Opener<'_, E> {
    fn map(&mut self, map: &Map<String, Value>) -> Result<Map<String, Value>, E> {
        let mut opened = Map::new();
        for (key, value) in map {
            self.at.0.push(Segment::Key(key.clone()));
            let value = self.value(value);
            self.at.0.pop();
            opened.insert(key.clone(), value?);
        }
        Ok(opened)
    }

    fn value(&mut self, value: &Value) -> Result<Value, E> {
        if let Some(Value::String(text)) = sealed_text(value) {
            return (self.open)(FieldLocation { resource: self.resource, path: &self.at }, text);
        }
        match value {
            Value::Object(map) => Ok(Value::Object(self.map(map)?)),
            Value::Array(items) => {
                let mut opened = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    self.at.0.push(Segment::Index(index));
                    let item = self.value(item);
                    self.at.0.pop();
                    opened.push(item?);
                }
                Ok(Value::Array(opened))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
