//! Brings a parsed object to its schema, in place: drops unknown fields, checks types, applies
//! defaults.

use std::{borrow::Cow, fmt};

use serde_json::{Map, Value};

use super::{
    MAX_DEPTH, StrictErrors, binary,
    compile::{CompiledSchema, Field, IntegerType, NodeId, ObjectShape, Rest, Shape, StringFormat},
    path::Path,
    time,
};
use crate::json::{settle_number, settle_numbers};

/// A value of the wrong type, in the words of Go's decoder.
#[derive(Debug, thiserror::Error)]
pub(super) enum TypeMismatch {
    #[error("json: cannot unmarshal {value} into Go struct field {owner}.{path} of type {expected}")]
    Mismatch { value: String, owner: String, path: String, expected: String, converted: String },
    #[error("{0}")]
    Time(String),
    // Upstream does not say where.
    #[error("{path}: {source}")]
    Base64 { path: String, source: binary::Corrupt },
    #[error("exceeded max depth")]
    TooDeep,
}

impl TypeMismatch {
    /// The same in the words of Go's converter from maps, which reads the outcome of strategic merge patches.
    pub(super) fn converted(&self) -> String {
        match self {
            Self::Mismatch { converted, .. } => converted.clone(),
            Self::Time(_) | Self::Base64 { .. } | Self::TooDeep => self.to_string(),
        }
    }
}

/// What Go's converter says of a value of another type than there should be.
fn converted(value: &str, shape: &Shape, expected: &str, is_named: bool) -> String {
    let (json, number) = value.split_once(' ').unwrap_or((value, "0"));
    let kind = match json {
        // One with a point or an exponent, or that is too large, is read as another.
        "number" if number.parse::<i64>().is_ok() => "int64",
        "number" => "float64",
        "array" => "slice",
        "object" => "map",
        other => other,
    };
    match shape {
        // It reads itself, from JSON.
        Shape::String(StringFormat::DateTime) => format!("json: cannot unmarshal {json} into Go value of type string"),
        Shape::Object(ObjectShape { rest, .. }) if is_named || *rest == Rest::Unknown => {
            format!("cannot restore struct from: {kind}")
        }
        Shape::Object(_) => format!("cannot restore map from {kind}"),
        Shape::Array(_) | Shape::String(StringFormat::Byte) => format!("cannot restore slice from {kind}"),
        // Whole numbers and others are converted where Go does it by itself, so a number says more.
        _ if json == "number" => format!("cannot convert {kind} to {expected}"),
        _ => format!("unrecognized type: {expected}"),
    }
}

/// Conforms the object of a kind; unknown fields are added to `strict`.
pub(super) fn conform(
    schema: &CompiledSchema,
    (version, kind): (&str, &str),
    object: &mut Map<String, Value>,
    strict: &mut StrictErrors,
) -> Result<(), TypeMismatch> {
    let mut walk = Walk { schema, version, kind, strict };
    match &schema.node(schema.root()).shape {
        Shape::Object(shape) => walk.object(shape, object, &Path::Root, 0),
        _ => Ok(()),
    }
}

/// The value of a wrong type that Go's decoder tells of among several, which it is shown in the order of the document.
#[derive(Debug)]
pub(super) struct FirstMismatch<'a> {
    schema: &'a CompiledSchema,
    names: (&'a str, &'a str),
    found: Option<TypeMismatch>,
    is_final: bool,
}

impl<'a> FirstMismatch<'a> {
    /// Looks at values of the kind of this version and kind.
    pub(super) fn new(schema: &'a CompiledSchema, names: (&'a str, &'a str)) -> Self {
        Self { schema, names, found: None, is_final: false }
    }

    /// Looks at a value whose parts, if any, were looked at before.
    pub(super) fn look(&mut self, node: NodeId, value: &Value, path: &Path<'_>) {
        let schema = self.schema;
        let shape = &schema.node(node).shape;
        let fits = matches!(
            (shape, value),
            (Shape::Any, _) | (Shape::Array(_), Value::Array(_)) | (Shape::Object(_), Value::Object(_))
        );
        // Types of Go's that read themselves end the decoding; after others it goes on, and tells of the first in the end.
        let ends = matches!(shape, Shape::IntOrString | Shape::String(StringFormat::DateTime));
        if self.is_final || fits || (self.found.is_some() && !ends) {
            return;
        }
        let (version, kind) = self.names;
        let mut strict = StrictErrors::default();
        let mut walk = Walk { schema, version, kind, strict: &mut strict };
        let Err(error) = walk.value(node, &mut value.clone(), path, 0) else { return };
        self.is_final = ends;
        self.found = Some(error);
    }

    /// What is wrong, if anything is.
    pub(super) fn found(self) -> Option<TypeMismatch> {
        self.found
    }
}

/// What Go's decoder calls a value's type.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Walk<'a> {
    schema: &'a CompiledSchema,
    version: &'a str,
    kind: &'a str,
    strict: &'a mut StrictErrors,
}

impl<'a> Walk<'a> {
    fn object(
        &mut self,
        shape: &'a ObjectShape,
        map: &mut Map<String, Value>,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), TypeMismatch> {
        let mut failure = None;
        map.retain(|key, value| {
            if failure.is_some() {
                return true;
            }
            let (id, known) = match shape.field(key) {
                Field::Known(id) => (id, true),
                Field::Element(id) => (id, false),
                Field::Free => {
                    settle_numbers(value);
                    return true;
                }
                Field::Unknown => {
                    self.strict.note_field("unknown", &path.key(key));
                    return false;
                }
            };
            // Null leaves a field unset, but stands for a map's zero value.
            if value.is_null() && known && !matches!(self.schema.node(id).shape, Shape::Any) {
                return false;
            }
            let path = if known { path.key(key) } else { path.element(key) };
            if let Err(error) = self.value(id, value, &path, depth + 1) {
                failure = Some(error);
            }
            true
        });
        if let Some(error) = failure {
            return Err(error);
        }
        for (name, default) in &shape.defaults {
            if !map.contains_key(&**name) {
                map.insert(name.to_string(), default.clone());
            }
        }
        Ok(())
    }

    fn value(&mut self, id: NodeId, value: &mut Value, path: &Path<'_>, depth: usize) -> Result<(), TypeMismatch> {
        if depth >= MAX_DEPTH && (value.is_array() || value.is_object()) {
            return Err(TypeMismatch::TooDeep);
        }
        let node = self.schema.node(id);
        if value.is_null() {
            if !node.nullable {
                *value = zero(&node.shape);
            }
            if value.is_null() {
                return Ok(());
            }
        }
        match (&node.shape, &mut *value) {
            (Shape::Any, value) => {
                settle_numbers(value);
                Ok(())
            }
            (Shape::Number, Value::Number(number)) => {
                settle_number(number);
                Ok(())
            }
            (Shape::Boolean, Value::Bool(_))
            | (Shape::IntOrString | Shape::String(StringFormat::Plain), Value::String(_)) => Ok(()),
            (Shape::IntOrString, Value::Number(number)) if number.is_i64() => Ok(()),
            (Shape::Integer(range), Value::Number(number)) if range.contains(number) => Ok(()),
            (Shape::Integer(_) | Shape::IntOrString, Value::Number(number)) => {
                let given = format!("number {number}");
                Err(self.mismatch(given, &node.shape, path))
            }
            (Shape::String(StringFormat::DateTime), Value::String(text)) => {
                if let Cow::Owned(whole) = time::parse(text).map_err(TypeMismatch::Time)? {
                    *text = whole;
                }
                Ok(())
            }
            (Shape::String(StringFormat::Byte), Value::String(text)) => {
                let plain = binary::plain(text);
                let plain = plain.map_err(|source| TypeMismatch::Base64 { path: path.to_string(), source })?;
                if let Cow::Owned(plain) = plain {
                    *text = plain;
                }
                Ok(())
            }
            (shape @ Shape::String(StringFormat::Byte), Value::Array(items)) => match binary::encoded(items) {
                Some(text) => {
                    *value = text.into();
                    Ok(())
                }
                None => Err(self.mismatch("array".to_owned(), shape, path)),
            },
            (Shape::Array(items), Value::Array(values)) => values
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, value)| self.value(*items, value, &path.index(index), depth + 1)),
            (Shape::Object(shape), Value::Object(map)) => self.object(shape, map, path, depth),
            (shape, other) => Err(self.mismatch(json_type(other).to_owned(), shape, path)),
        }
    }

    fn mismatch(&self, value: String, shape: &Shape, path: &Path<'_>) -> TypeMismatch {
        let fields = path.fields();
        let own = GoType(self.schema, shape).to_string();
        let named = self.named_type(&fields, shape);
        // A name that is another's stands for that, unless it is told what the value cannot become.
        let becomes = if value.starts_with("number") { named.as_ref().unwrap_or(&own) } else { &own };
        let converted = converted(&value, shape, becomes, named.is_some());
        let expected = named.unwrap_or(own);
        TypeMismatch::Mismatch { value, owner: self.owner(&fields), path: fields.join("."), expected, converted }
    }

    /// What Go calls the struct that has a field; by custom, a kind's are named after it.
    fn owner(&self, fields: &[&str]) -> String {
        match fields {
            ["metadata", "ownerReferences", _, ..] => "OwnerReference".to_owned(),
            ["metadata", "managedFields", _, ..] => "ManagedFieldsEntry".to_owned(),
            ["metadata", _, ..] => "ObjectMeta".to_owned(),
            ["spec", _, ..] => format!("{}Spec", self.kind),
            ["status", _, ..] => format!("{}Status", self.kind),
            _ => self.kind.to_owned(),
        }
    }

    /// What Go calls the type of a field, where that says more than its shape.
    fn named_type(&self, fields: &[&str], shape: &Shape) -> Option<String> {
        let element =
            |name: &str| Some(if matches!(shape, Shape::Array(_)) { format!("[]{name}") } else { name.to_owned() });
        match fields {
            ["metadata"] => Some("v1.ObjectMeta".to_owned()),
            ["metadata", "uid"] => Some("types.UID".to_owned()),
            ["metadata", "ownerReferences"] => element("v1.OwnerReference"),
            ["metadata", "managedFields"] => element("v1.ManagedFieldsEntry"),
            ["spec"] => Some(format!("{}.{}Spec", self.version, self.kind)),
            ["status"] => Some(format!("{}.{}Status", self.version, self.kind)),
            _ => None,
        }
    }
}

impl IntegerType {
    fn contains(self, number: &serde_json::Number) -> bool {
        number.as_i128().is_some_and(|n| (self.min..=self.max).contains(&n))
    }
}

/// What null stands for where there has to be a value: in arrays and maps.
fn zero(shape: &Shape) -> Value {
    match shape {
        // Go writes a time that is none as null.
        Shape::Any | Shape::String(StringFormat::DateTime) => Value::Null,
        Shape::Boolean => false.into(),
        Shape::Integer(_) | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::String(_) => "".into(),
        Shape::Array(_) => Value::Array(Vec::new()),
        Shape::Object(_) => Value::Object(Map::new()),
    }
}

/// What Go would call the type.
struct GoType<'a>(&'a CompiledSchema, &'a Shape);

impl fmt::Display for GoType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Shape::Any => f.write_str("interface {}"),
            Shape::Boolean => f.write_str("bool"),
            Shape::Integer(range) => f.write_str(range.name),
            Shape::Number => f.write_str("float64"),
            // A time is first read as the text that it is.
            Shape::String(StringFormat::Plain | StringFormat::DateTime) => f.write_str("string"),
            Shape::String(StringFormat::Byte) => f.write_str("[]uint8"),
            Shape::IntOrString => f.write_str("intstr.IntOrString"),
            Shape::Array(items) => write!(f, "[]{}", GoType(self.0, &self.0.node(*items).shape)),
            Shape::Object(ObjectShape { rest: Rest::Map(id), .. }) => {
                write!(f, "map[string]{}", GoType(self.0, &self.0.node(*id).shape))
            }
            Shape::Object(_) => f.write_str("map[string]interface {}"),
        }
    }
}
