//! Reads a file of the control repository as the object that it stands for.
//!
//! A file is read as strictly as a request with `fieldValidation=Strict`. What people do not write
//! (status, uid, finalizers and so on) may be in it, as in a copy of what kubectl prints, and is
//! left out.

use serde_json::{Map, Value};
use stoa_machinery::{
    ApiError, Object,
    http::body::MAX_REQUEST_BYTES,
    request::FieldValidation,
    schema::{self, Decoder, Format},
};

use super::{
    layout::is_authored_annotation,
    lines,
    place::{Authored, Place},
};

const NO_OBJECT: &str = "the file holds no object";
const MORE: &str = "a file stands for one object, and this comes after its first document";

/// What is wrong with a file, on one line and with the line of the file where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint(pub(crate) String);

/// How many fields of a file are named that something is wrong with; the others are counted.
const NAMED: usize = 10;

/// Reads the file of a place: `apiVersion`, `kind`, names, labels, annotations and spec, as the file has them and
/// without defaults.
pub(super) fn read(decoder: &Decoder, place: &Place, content: &[u8]) -> Result<Object, Complaint> {
    if content.len() > MAX_REQUEST_BYTES {
        return Err(Complaint(format!("the file is larger than {MAX_REQUEST_BYTES} bytes")));
    }
    let parsed = schema::parse(content, Format::Yaml).map_err(|error| Complaint(one_line(&error.to_string())))?;
    if !parsed.value.is_object() {
        return Err(Complaint(NO_OBJECT.to_owned()));
    }
    if let Some(line) = std::str::from_utf8(content).ok().and_then(lines::after_first_document) {
        return Err(Complaint(format!("line {line}: {MORE}")));
    }
    agree(place, &parsed.value).map_err(|(field, message)| complaint(content, field, &message))?;
    let decoded = decoder
        .decode(content, Format::Yaml, FieldValidation::Strict)
        .map_err(|error| explain(place.identity.kind.kind(), &error, content))?;
    // With defaults, since it may have to be created.
    let errors = decoder.structural_errors(&authored(place, decoded.object));
    if !errors.is_empty() {
        let fields: Vec<_> = errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
        return Err(complaints(content, &fields));
    }
    match parsed.value {
        Value::Object(fields) => Ok(authored(place, Object(set_fields(fields)))),
        _ => Err(Complaint(NO_OBJECT.to_owned())),
    }
}

/// Checks that the file says what its path says. What disagrees is the field, and both are named.
fn agree(place: &Place, file: &Value) -> Result<(), (&'static str, String)> {
    let identity = &place.identity;
    let api_version = identity.kind.api_version();
    let stack = identity.kind == Authored::Stack;
    for (field, pointer, expected, required) in [
        ("apiVersion", "/apiVersion", api_version.as_str(), true),
        ("kind", "/kind", identity.kind.kind(), true),
        ("metadata.name", "/metadata/name", identity.name.as_str(), true),
        ("metadata.namespace", "/metadata/namespace", identity.namespace.as_str(), false),
        ("spec.project", "/spec/project", place.project.as_str(), stack),
    ] {
        if field == "spec.project" && !stack {
            continue;
        }
        match file.pointer(pointer) {
            None | Some(Value::Null) if required => {
                return Err((field, format!("{field} is missing; by the path of the file it is {expected:?}")));
            }
            None | Some(Value::Null) => {}
            Some(Value::String(found)) if found == expected => {}
            Some(_) if expected.is_empty() => {
                return Err((
                    field,
                    format!("{field} may not be set, since a {} is in no namespace", identity.kind.kind()),
                ));
            }
            Some(found) => {
                return Err((field, format!("{field} is {found}, but by the path of the file it is {expected:?}")));
            }
        }
    }
    Ok(())
}

/// What people write of an object, and nothing else.
fn authored(place: &Place, mut object: Object) -> Object {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), place.identity.name.as_str().into());
    if !place.identity.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), place.identity.namespace.as_str().into());
    }
    if let Some(labels) = object.metadata_mut().remove("labels") {
        metadata.insert("labels".to_owned(), labels);
    }
    if let Some(Value::Object(mut annotations)) = object.metadata_mut().remove("annotations") {
        annotations.retain(|name, _| is_authored_annotation(name));
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    object.0.retain(|field, _| ["apiVersion", "kind", "spec"].contains(&field.as_str()));
    object.0.insert("metadata".to_owned(), metadata.into());
    object
}

/// What a file says of what people write, if it says anything that makes sense.
pub(super) fn said(place: &Place, content: &[u8]) -> Option<Object> {
    match schema::parse(content, Format::Yaml).ok()?.value {
        Value::Object(fields) => Some(authored(place, Object(set_fields(fields)))),
        _ => None,
    }
}

/// Without the fields that are null, which count as left out.
fn set_fields(fields: Map<String, Value>) -> Map<String, Value> {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields
        .map(|(name, value)| match value {
            Value::Object(inner) => (name, Value::Object(set_fields(inner))),
            value => (name, value),
        })
        .collect()
}

/// What the server answered, as a complaint about the file.
pub(crate) fn explain(kind: &str, error: &ApiError, content: &[u8]) -> Complaint {
    let causes = error.0.details.iter().flat_map(|d| d.causes.iter().flatten());
    let fields: Vec<(&str, &str)> = causes
        .filter_map(|cause| Some((cause.field.as_deref()?, cause.message.as_deref().unwrap_or_default())))
        .collect();
    if !fields.is_empty() {
        return complaints(content, &fields);
    }
    // What a client hears begins with the kind it sent, which the path says already.
    let name = kind;
    let prefix = format!("{name} in version \"{}\" cannot be handled as a {name}: ", super::place::VERSION);
    let message = error.message().strip_prefix(&prefix).unwrap_or(error.message());
    match named_field(message) {
        Some(field) => complaint(content, field, message),
        None => Complaint(one_line(message)),
    }
}

/// The first field that a message about a file names, in the words of strict decoding.
fn named_field(message: &str) -> Option<&str> {
    let between = |start: &str, end: &str| {
        let rest = &message[message.find(start)? + start.len()..];
        rest.find(end).map(|end| &rest[..end])
    };
    between("unknown field \"", "\"")
        .or_else(|| between("duplicate field \"", "\""))
        .or_else(|| between("Go struct field ", " of type")?.split_once('.').map(|(_, field)| field))
}

/// Messages about fields, as one.
pub(crate) fn complaints(content: &[u8], fields: &[(&str, &str)]) -> Complaint {
    let named = fields.iter().take(NAMED);
    let mut told: Vec<String> =
        named.map(|(field, message)| complaint(content, field, &format!("{field}: {message}")).0).collect();
    if let Some(more) = fields.len().checked_sub(NAMED).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    Complaint(told.join("; "))
}

/// A message that begins with the line of the field, where there is one.
fn complaint(content: &[u8], field: &str, message: &str) -> Complaint {
    let line = std::str::from_utf8(content).ok().and_then(|text| lines::line_of(text, field));
    let message = one_line(message);
    Complaint(line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}")))
}

/// Conditions and Events are read in lines.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("yaml: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
