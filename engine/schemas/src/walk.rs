//! Walk through an object beside the definition of its kind.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use stoa_engine::FieldPath;
use stoa_engine::path::Segment;
use stoa_engine::suggest::suggestion;
use stoa_engine::types::{misfit, wanted};

use crate::document::{Fields, Type};
use crate::formats::{self, Format};
use crate::{Fault, Finding, MOST, UNKNOWN_FIELD};

/// One walk through an object.
pub(crate) struct Walk<'w> {
    definitions: &'w [Fields],
    unknown: &'w BTreeSet<FieldPath>,
    at: FieldPath,
    pub(crate) found: Vec<Finding>,
}

impl<'w> Walk<'w> {
    pub(crate) fn new(definitions: &'w [Fields], unknown: &'w BTreeSet<FieldPath>) -> Self {
        Self { definitions, unknown, at: FieldPath::default(), found: Vec::new() }
    }

    /// Walks through an object of a kind with this definition. Its `status` is not deployed.
    pub(crate) fn root(&mut self, definition: usize, object: &Map<String, Value>) {
        self.map(definition, object, |key| key == "status");
    }

    /// Walks through the `metadata` of an object of any kind.
    pub(crate) fn meta(&mut self, definition: usize, object: &Map<String, Value>) {
        if let Some(metadata) = object.get("metadata") {
            self.step(Segment::Key("metadata".to_owned()), |walk| walk.value(&Type::Definition(definition), metadata));
        }
    }

    /// Compares the name of an object with the format that its kind has.
    pub(crate) fn name(&mut self, format: Option<Format>, object: &Map<String, Value>) {
        let name = object.get("metadata").and_then(|metadata| metadata.get("name"));
        let complaint = || format?.complaint(name?);
        self.at = FieldPath::of_keys(["metadata", "name"]);
        if let Some(complaint) = complaint().filter(|_| !self.unknown.contains(&self.at)) {
            self.report(Fault::Invalid, complaint);
        }
        self.at = FieldPath::default();
    }

    /// Adds what is too large.
    pub(crate) fn sizes(&mut self, sizes: Vec<(&'static [&'static str], String)>) {
        for (keys, message) in sizes {
            let field = FieldPath(keys.iter().map(|key| Segment::Key((*key).to_owned())).collect());
            self.found.push(Finding { fault: Fault::Invalid, field, message });
        }
    }

    fn report(&mut self, fault: Fault, message: String) {
        if self.found.len() < MOST {
            self.found.push(Finding { fault, field: self.at.clone(), message });
        }
    }

    fn step(&mut self, segment: Segment, walk: impl FnOnce(&mut Self)) {
        self.at.0.push(segment);
        walk(self);
        self.at.0.pop();
    }

    fn map(&mut self, definition: usize, map: &Map<String, Value>, is_skipped: impl Fn(&str) -> bool) {
        let definitions = self.definitions;
        let Fields { name, fields, required } = &definitions[definition];
        for (key, value) in map.iter().filter(|(key, _)| !is_skipped(key)) {
            self.step(Segment::Key(key.clone()), |walk| match fields.get(key.as_str()) {
                Some(of) => {
                    walk.value(of, value);
                    walk.format(name, key, value);
                }
                None => {
                    let known: Vec<&str> = fields.keys().map(|field| &**field).collect();
                    let near =
                        suggestion(key, &known).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                    walk.report(Fault::Invalid, format!("{UNKNOWN_FIELD}{near}"));
                }
            });
        }
        // A null counts as a field that is not there.
        let lacks = |field: &&str| map.get(*field).is_none_or(Value::is_null) && !is_skipped(field);
        for field in required.iter().map(|field| &**field).filter(lacks) {
            self.step(Segment::Key(field.to_owned()), |walk| {
                if !walk.unknown.contains(&walk.at) {
                    walk.report(Fault::Missing, "its kind requires this field".to_owned());
                }
            });
        }
    }

    fn value(&mut self, of: &Type, value: &Value) {
        if value.is_null() || self.unknown.contains(&self.at) {
            return;
        }
        let mistyped = match (of, value) {
            (Type::Definition(definition), Value::Object(map)) => return self.map(*definition, map, |_| false),
            (Type::Map(of), Value::Object(map)) => {
                for (key, value) in map {
                    self.step(Segment::Key(key.clone()), |walk| walk.value(of, value));
                }
                return;
            }
            (Type::List(of), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.step(Segment::Index(index), |walk| walk.value(of, item));
                }
                return;
            }
            (Type::Any, _) => return,
            (Type::Definition(_) | Type::Map(_), _) => misfit("object", value),
            (Type::List(_), _) => misfit("array", value),
            (Type::Text, _) => misfit("string", value),
            (Type::Boolean, _) => misfit("boolean", value),
            (Type::Number, _) => misfit("number", value),
            (Type::Int32, _) => misfit("integer", value).or_else(|| range(value, i32::MIN.into(), i32::MAX.into())),
            (Type::Int64, _) => misfit("integer", value).or_else(|| range(value, i64::MIN.into(), i64::MAX.into())),
            (Type::Bytes, Value::String(text)) => (!is_base64(text)).then(|| "must be base64".to_owned()),
            (Type::Bytes, _) => misfit("string", value),
            (Type::Quantity, Value::String(text)) => {
                (!is_quantity(text)).then(|| "must be a quantity, such as 500m, 1.5 or 2Gi".to_owned())
            }
            (Type::Quantity, _) => (!value.is_number()).then(|| wanted("a quantity", value)),
            (Type::IntOrString, Value::String(_)) => None,
            (Type::IntOrString, _) => misfit("integer", value).map(|_| wanted("a whole number or text", value)),
        };
        if let Some(message) = mistyped {
            self.report(Fault::Invalid, message);
        }
    }

    /// Compares the value of a field with the format that the field has.
    fn format(&mut self, definition: &str, field: &str, value: &Value) {
        if self.unknown.contains(&self.at) {
            return;
        }
        // Nothing counts as not set.
        let is_empty = value.as_str().is_some_and(str::is_empty);
        let complaint = formats::of_field(definition, field).filter(|_| !is_empty).and_then(|of| of.complaint(value));
        if let Some(complaint) = complaint {
            self.report(Fault::Invalid, complaint);
        }
        let complaint_of: fn(&str, &Value) -> Option<String> = match (definition, field) {
            _ if formats::has_labels(definition, field) => formats::label_complaint,
            ("meta.ObjectMeta", "annotations") => |key, _| formats::annotation_complaint(key),
            ("core.ConfigMap", "data" | "binaryData") | ("core.Secret", "data" | "stringData") => {
                |key, _| formats::data_key_complaint(key)
            }
            _ => return,
        };
        for (key, value) in value.as_object().into_iter().flatten() {
            self.step(Segment::Key(key.clone()), |walk| {
                if let Some(complaint) = complaint_of(key, value).filter(|_| !walk.unknown.contains(&walk.at)) {
                    walk.report(Fault::Invalid, complaint);
                }
            });
        }
    }
}

fn range(value: &Value, least: i128, most: i128) -> Option<String> {
    let Value::Number(number) = value else { return None };
    let whole = number.as_i128().or_else(|| number.as_f64().map(|number| number as i128))?;
    (!(least..=most).contains(&whole)).then(|| format!("must be a number from {least} to {most}"))
}

/// Whether a text is base64 for Go's decoder, with line breaks.
fn is_base64(text: &str) -> bool {
    let mut digits = 0_usize;
    let mut padding = 0_usize;
    for byte in text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')) {
        match byte {
            b'=' => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => digits += 1,
            _ => return false,
        }
    }
    padding <= 2 && (digits + padding).is_multiple_of(4)
}

/// Whether a text is a quantity (`resource.Quantity`): a number, and a suffix or an exponent.
fn is_quantity(text: &str) -> bool {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (number, suffix) = number.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let is_exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E']).map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
        exponent.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    is_number && (SUFFIXES.contains(&suffix) || is_exponent())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_has_suffix_or_exponent() {
        for text in ["1", "1.5", ".5", "1.", "500m", "2Gi", "-3k", "1e3", "1E-3", "1E", "+1Ei"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", ".", "1.2.3", "1Gb", "1 Gi", "Gi", "1e", "1gi", "--1", "1e+"] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn base64_is_checked_with_its_padding() {
        for text in ["", "YQ==", "YWI=", "YWJj", "YWJj\nYQ=="] {
            assert!(is_base64(text), "{text}");
        }
        for text in ["a", "YQ=", "Y Q=", "YQ==YQ==", "ä", "a-b_"] {
            assert!(!is_base64(text), "{text}");
        }
    }
}
