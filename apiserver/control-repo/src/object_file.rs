//! Reads a file of the control repository as the object that it stands for.
//!
//! A file is read as strictly as a request with `fieldValidation=Strict`. Fields that people do not write (status, uid,
//! finalizers and so on) may be in it, as in a copy of the output of kubectl, and are left out.

use serde_json::{Map, Value};
use stoa_git_path::{ObjectPath, is_authored_annotation};
use stoa_machinery::{
    Object,
    http::body::MAX_REQUEST_BYTES,
    request::FieldValidation,
    schema::{self, Decoder, Format},
};
use stoa_yaml::lines;

use crate::complaint::{Complaint, complaint, complaints, explain, one_line};

const NO_OBJECT: &str = "the file holds no object";
const MORE: &str = "a file stands for one object, and this comes after its first document";

/// Reads the file at a path: `apiVersion`, `kind`, names, labels, annotations and spec, as the file has them and
/// without defaults.
///
/// # Errors
///
/// The problems of the file.
pub fn read_file(decoder: &Decoder, path: &ObjectPath, content: &[u8]) -> Result<Object, Complaint> {
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
    agree(path, &parsed.value).map_err(|(field, message)| complaint(content, &field, &message))?;
    let decoded = decoder
        .decode(content, Format::Yaml, FieldValidation::Strict)
        .map_err(|error| explain(path.identity.kind.kind, &error, content))?;
    // With defaults, since it may have to be created.
    let errors = decoder.structural_errors(&authored(path, decoded.object));
    if !errors.is_empty() {
        let fields: Vec<_> = errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
        return Err(complaints(content, &fields));
    }
    match parsed.value {
        Value::Object(fields) => Ok(authored(path, Object(set_fields(fields)))),
        _ => Err(Complaint(NO_OBJECT.to_owned())),
    }
}

/// Checks that the file agrees with its path. A disagreement is the field, and a message that names both.
fn agree(path: &ObjectPath, file: &Value) -> Result<(), (String, String)> {
    let identity = &path.identity;
    let kind = identity.kind;
    let api_version = kind.api_version();
    let mut fields = vec![
        ("apiVersion".to_owned(), api_version.as_str(), true),
        ("kind".to_owned(), kind.kind, true),
        ("metadata.name".to_owned(), identity.name.as_str(), true),
        ("metadata.namespace".to_owned(), identity.namespace.as_str(), false),
    ];
    fields.extend(kind.spec_field().map(|field| (format!("spec.{field}"), path.spec_field.as_str(), true)));
    for (field, expected, required) in fields {
        let message = match file.pointer(&format!("/{}", field.replace('.', "/"))) {
            None | Some(Value::Null) if required => {
                format!("{field} is missing; by the path of the file it is {expected:?}")
            }
            None | Some(Value::Null) => continue,
            Some(Value::String(found)) if found == expected => continue,
            Some(_) if expected.is_empty() => {
                format!("{field} may not be set, since a {} is in no namespace", kind.kind)
            }
            Some(found) => format!("{field} is {found}, but by the path of the file it is {expected:?}"),
        };
        return Err((field, message));
    }
    Ok(())
}

/// The fields of an object that people write, and no others.
fn authored(path: &ObjectPath, mut object: Object) -> Object {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), path.identity.name.as_str().into());
    if !path.identity.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), path.identity.namespace.as_str().into());
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

/// The authored fields of a file that need not be valid; `None` where it is no YAML object.
pub fn read_leniently(path: &ObjectPath, content: &[u8]) -> Option<Object> {
    match schema::parse(content, Format::Yaml).ok()?.value {
        Value::Object(fields) => Some(authored(path, Object(set_fields(fields)))),
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
