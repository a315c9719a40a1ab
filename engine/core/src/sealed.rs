//! The form in which a Spec is kept and shown: sensitive values replaced, sealed or masked.
//!
//! Start at [`seal`] and [`open`], which are each other's reverse whatever is in the Spec. The cryptography is the
//! caller's: both are given a function that does it for one value, and told where the value stands, so that what was
//! sealed in one place is not taken for what was sealed in another. [`shown`] is for people.
//!
//! What a reference carries elsewhere is known only when the Spec is planned, and the Spec has the reference there. So
//! these are sealed: the values of Secrets that are not themselves a reference and nothing else, whatever else of such a
//! Secret has one of them in it, and the settings of Kusion that may have credentials (`secretStore`, `context`).

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use crate::path::{FieldPath, Segment};
use crate::reference::{Template, parse};
use crate::sensitive::{MASK, Sensitive, of_secret};
use crate::spec::{Resource, ResourceId, Spec};

/// The key of the map that stands in a kept Spec for a value: `{"$sealed": "…"}`.
pub const SEALED_KEY: &str = "$sealed";

/// Where a value stands in a Spec.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The resource in whose attributes it is; none for the Spec's own fields.
    pub resource: Option<&'a ResourceId>,
    /// Its path there.
    pub path: &'a FieldPath,
}

impl Place<'_> {
    /// The place as JSON, in which no two places look alike: `["<id>","data","password"]`, the id null for the Spec's own
    /// fields, and numbers for items of lists.
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

/// The Spec with its sensitive values replaced by `{"$sealed": …}`, with what `seal` makes of each. A value that looks
/// like one of these is sealed, too, so that nobody can pass one off as what was sealed here.
pub fn seal(spec: &Spec, seal: &mut dyn FnMut(Place<'_>, &Value) -> String) -> Spec {
    replaced(spec, &mut |place, value| json!({ SEALED_KEY: seal(place, value) }), Lookalikes::AreSensitive)
}

/// The Spec that was sealed, with what `open` makes of each sealed text. One that was never sealed stays as it is.
///
/// # Errors
///
/// The first of `open`.
pub fn open<E>(spec: &Spec, open: &mut dyn FnMut(Place<'_>, &str) -> Result<Value, E>) -> Result<Spec, E> {
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

/// The Spec as it is shown to people: sensitive values masked, and those that are sealed as they are.
pub fn shown(spec: &Spec) -> Spec {
    replaced(spec, &mut |_, _| Value::from(MASK), Lookalikes::Stay)
}

/// Whether this stands for a sealed value, or looks like it.
fn sealed_text(value: &Value) -> Option<&Value> {
    value.as_object().filter(|map| map.len() == 1)?.get(SEALED_KEY)
}

/// What becomes of values that look sealed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lookalikes {
    AreSensitive,
    Stay,
}

const SECRET_STORE: &str = "secretStore";
const CONTEXT: &str = "context";

fn replaced(spec: &Spec, replace: &mut dyn FnMut(Place<'_>, &Value) -> Value, lookalikes: Lookalikes) -> Spec {
    let ids: HashSet<&str> = spec.resources.iter().map(|resource| resource.id.0.as_str()).collect();
    let mut resources = Vec::with_capacity(spec.resources.len());
    for resource in &spec.resources {
        let known = |id: &str| ids.contains(id);
        let sensitive = sensitive(&resource.attributes, &known);
        let mut replacer =
            Replacer { resource: &resource.id, sensitive, lookalikes, at: FieldPath::default(), replace };
        resources.push(Resource { attributes: replacer.map(&resource.attributes), ..resource.clone() });
    }
    let mut own = |name: &str, value: &Option<Value>| {
        let value = value.as_ref()?;
        let stays = value.is_null() || (lookalikes == Lookalikes::Stay && sealed_text(value).is_some());
        let path = FieldPath::of_keys([name]);
        Some(if stays { value.clone() } else { replace(Place { resource: None, path: &path }, value) })
    };
    let (secret_store, context) = (own(SECRET_STORE, &spec.secret_store), own(CONTEXT, &spec.context));
    Spec { resources, secret_store, context }
}

/// What is sensitive in attributes whose references are not replaced yet.
fn sensitive(attributes: &Map<String, Value>, known: &dyn Fn(&str) -> bool) -> Sensitive {
    if !may_be_secret(attributes) {
        return Sensitive::default();
    }
    let paths: BTreeSet<FieldPath> = of_secret(attributes)
        .into_iter()
        .filter(|path| {
            path.get(attributes).is_some_and(|value| sealed_text(value).is_none() && !is_reference(value, known))
        })
        .collect();
    Sensitive::at(paths, attributes)
}

/// Whether it is a Secret, or might become one: what is wrong with a Spec is told after it is kept, and what kind
/// something is may be a reference.
fn may_be_secret(attributes: &Map<String, Value>) -> bool {
    match attributes.get("kind") {
        Some(Value::String(kind)) => kind == "Secret" || kind.contains("kusion_path."),
        _ => true,
    }
}

/// Whether it is a reference to a resource of the Spec and nothing else.
fn is_reference(value: &Value, known: &dyn Fn(&str) -> bool) -> bool {
    value.as_str().is_some_and(|text| matches!(parse(text, known), Ok(Some(Template::Whole(_)))))
}

struct Replacer<'a> {
    resource: &'a ResourceId,
    sensitive: Sensitive,
    lookalikes: Lookalikes,
    at: FieldPath,
    replace: &'a mut dyn FnMut(Place<'_>, &Value) -> Value,
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
        (self.replace)(Place { resource: Some(self.resource), path: &self.at }, value)
    }
}

struct Opener<'a, E> {
    resource: Option<&'a ResourceId>,
    at: FieldPath,
    open: &'a mut dyn FnMut(Place<'_>, &str) -> Result<Value, E>,
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
            return (self.open)(Place { resource: self.resource, path: &self.at }, text);
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
