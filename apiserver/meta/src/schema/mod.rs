//! Strict decoding of request bodies, and everything else that a resource's schema decides about
//! an object: which fields exist, their types, their defaults, and which values they take.
//!
//! Start at [`Decoder`], which is made once per resource and shared by all requests. The
//! behaviour and the texts are those of a typed Go server: `k8s.io/apimachinery`'s JSON and YAML
//! serializers over `sigs.k8s.io/json` for decoding, `kube-openapi/pkg/validation` for values.
//!
//! Elsewhere: `compile` turns the schema into a tree, `json` and `yaml` read documents, `binary`
//! and `time` what is text in them and more than that; `conform` prunes, checks types and applies
//! defaults, `validate` finds refused values.

pub mod binary;
mod compile;
mod conform;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod json;
mod path;
#[cfg(test)]
mod tests;
mod time;
mod validate;
mod yaml;

use std::{cell::RefCell, sync::LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Map, Value};

pub use self::compile::{CompiledSchema, SchemaError};
pub(crate) use self::compile::{alternatives, array, at_reference};
use crate::{
    definition::ResourceDefinition,
    object::Object,
    request::FieldValidation,
    status::{ApiError, FieldError, MAX_TOLD_BYTES, quote},
};

/// The deepest nesting of arrays and objects that is read; deeper bodies are refused, and so are objects that could not be
/// read back. It is what `serde_json` reads, here and in every client in Rust; Go's decoder reads 10,000 levels.
pub const MAX_DEPTH: usize = 127;

/// How many unknown and duplicate fields are reported at most, as upstream.
pub(crate) const MAX_STRICT_ERRORS: usize = 100;

/// How deeply a value is nested; a scalar is not.
pub fn height(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(height).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(height).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// What a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`: one document, YAML 1.1 scalars, as `sigs.k8s.io/yaml` reads it.
    Yaml,
}

/// A body that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object: pruned, its types checked, defaults applied, `apiVersion` and `kind` set.
    pub object: Object,
    /// Texts for `Warning` headers; empty unless [`FieldValidation::Warn`].
    pub warnings: Vec<String>,
}

/// A body that was read with no schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Untyped {
    /// The value; of a key that stands twice, the last one.
    pub value: Value,
    /// What is wrong besides, in the words of strict decoding, such as `duplicate field "spec.x"`.
    pub strict: StrictErrors,
}

/// Unknown and duplicate fields that were met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrictErrors {
    /// `line 4: key "x" already set in map`, found in YAML.
    yaml: Vec<String>,
    /// `unknown field "spec.x"` and `duplicate field "spec.x"`, in the order they were met.
    fields: Vec<String>,
    /// How many bytes of texts about fields were made.
    told: usize,
    /// Whether some field stands twice, told or not.
    has_duplicates: bool,
}

impl StrictErrors {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.yaml.is_empty() && self.fields.is_empty()
    }

    /// One text per field, for `Warning` headers.
    pub fn warnings(self) -> Vec<String> {
        self.yaml.into_iter().chain(self.fields).collect()
    }

    /// `strict decoding error: …`, naming all fields.
    pub fn message(&self) -> String {
        let yaml = (!self.yaml.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", self.yaml.join("\n  ")));
        let texts: Vec<&str> = yaml.iter().chain(&self.fields).map(String::as_str).collect();
        format!("strict decoding error: {}", texts.join(", "))
    }

    /// Notes a field that is `unknown` or `duplicate`.
    fn note_field(&mut self, what: &str, path: &path::Path<'_>) {
        self.has_duplicates |= what == "duplicate";
        // A path may be nearly as long as the body, and met as often as there is room for in the rest.
        if self.fields.len() < MAX_STRICT_ERRORS && self.told < MAX_TOLD_BYTES {
            let text = format!("{what} field {:?}", path.to_string());
            self.told += text.len();
            if !self.fields.contains(&text) {
                self.fields.push(text);
            }
        }
    }

    fn push_yaml(&mut self, text: String) {
        if self.yaml.len() < MAX_STRICT_ERRORS {
            self.yaml.push(text);
        }
    }
}

/// Why bytes are no JSON or YAML; the text is the one Go's parsers would give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(String);

/// Reads bytes with no schema, such as a patch or delete options. Fails with [`SyntaxError`] for malformed, too deeply
/// nested or too much aliased input.
pub fn parse(body: &[u8], format: Format) -> Result<Untyped, SyntaxError> {
    let (value, strict) = match format {
        Format::Json => json::parse(None, body)?,
        Format::Yaml => yaml::parse(body)?,
    };
    Ok(Untyped { value, strict })
}

/// What Go's registry of kinds calls itself in messages.
pub const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// Why a kind cannot be read, in the words of Go's registry of kinds.
pub fn unregistered(kind: &str, api_version: &str) -> String {
    let (kind, api_version) = (quote(kind), quote(api_version));
    format!("no kind {kind} is registered for version {api_version} in scheme {}", quote(SCHEME))
}

/// The fields that tell which kind an object is of.
pub const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// Drops all fields of an object but those of its type, as unknown ones.
pub fn empty(object: &mut Object) -> StrictErrors {
    let mut strict = StrictErrors::default();
    object.0.retain(|name, _| {
        let is_type = TYPE_FIELDS.contains(&name.as_str());
        if !is_type {
            strict.note_field("unknown", &path::Path::Root.key(name));
        }
        is_type
    });
    strict
}

/// The text at `apiVersion` or `kind`, empty where it is missing, or what Go's decoder says of anything else.
///
/// Letters may be of either case, as for Go's decoder that looks for the kind; that which then reads the object takes no
/// other than the field's own.
pub fn type_text<'a>(object: &'a Map<String, Value>, field: &str) -> Result<&'a str, String> {
    let in_any_case = || object.iter().find_map(|(name, value)| name.eq_ignore_ascii_case(field).then_some(value));
    match object.get(field).or_else(in_any_case) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let found = conform::json_type(other);
            Err(format!("json: cannot unmarshal {found} into Go struct field .{field} of type string"))
        }
    }
}

/// Why a value that is no object has no kind, in the words of Go's decoder.
pub fn no_type(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
         Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        conform::json_type(value)
    )
}

/// Reads `DeleteOptions`; unknown fields are ignored. Fails with 400 when a field has the wrong type.
pub fn delete_options(value: Value) -> Result<DeleteOptions, ApiError> {
    static SCHEMA: LazyLock<CompiledSchema> = LazyLock::new(|| {
        let schema = schemars::schema_for!(DeleteOptions).to_value();
        CompiledSchema::of_object(&schema).expect("a derived schema is complete")
    });
    let Value::Object(mut object) = value else { return Ok(DeleteOptions::default()) };
    object.remove("metadata");
    conform::conform(&SCHEMA, ("v1", "DeleteOptions"), &mut object, &mut StrictErrors::default()).map_err(|error| {
        // The one text among these that has a type of its own in Go.
        let own = "propagationPolicy of type v1.DeletionPropagation";
        ApiError::bad_request(error.to_string().replace("propagationPolicy of type string", own))
    })?;
    serde_json::from_value(Value::Object(object)).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// A field of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// In the words of Go's JSON decoder.
    pub decoded: String,
    /// In the words of Go's converter from maps.
    pub converted: String,
}

/// Decodes and checks the objects of one resource.
#[derive(Debug)]
pub struct Decoder {
    group: String,
    version: String,
    kind: String,
    schema: CompiledSchema,
}

impl Decoder {
    /// The decoder of a resource, its schema compiled. Fails when the schema refers to what it does not define, or has
    /// a pattern that is none.
    pub fn new(definition: &ResourceDefinition) -> Result<Self, SchemaError> {
        Ok(Self {
            group: definition.group.clone(),
            version: definition.version.clone(),
            kind: definition.kind.clone(),
            schema: CompiledSchema::of_object(&definition.schema)?,
        })
    }

    /// The compiled schema.
    pub fn schema(&self) -> &CompiledSchema {
        &self.schema
    }

    /// Reads the body of a create or update.
    ///
    /// A missing `apiVersion` or `kind` is this resource's. Fields that are null count as unset.
    ///
    /// # Errors
    ///
    /// 400 `BadRequest` when the body is malformed, of another kind or version, when a field has
    /// the wrong type, and under [`FieldValidation::Strict`] for unknown and duplicate fields.
    pub fn decode(&self, body: &[u8], format: Format, validation: FieldValidation) -> Result<Decoded, ApiError> {
        let (value, mut strict) = match format {
            Format::Json => json::parse(Some(&self.schema), body).map_err(|e| {
                self.unrecognized(format_args!("couldn't get version/kind; json parse error: {e}"), body)
            })?,
            Format::Yaml => yaml::parse(body).map_err(|e| self.unrecognized(e, body))?,
        };
        let mut object = self.root(value, body)?;
        self.check_type(&mut object, body)?;
        let conformed = conform::conform(&self.schema, (&self.version, &self.kind), &mut object, &mut strict);
        // An object knows no order of its fields, and of what stands twice only what came of both.
        let type_error = match format {
            Format::Json if conformed.is_err() || strict.has_duplicates => self.first_mismatch(body),
            Format::Json | Format::Yaml => None,
        };
        type_error.map_or(conformed, Err).map_err(|e| self.unhandled(e))?;
        let warnings = match validation {
            FieldValidation::Strict if !strict.is_empty() => return Err(self.unhandled(strict.message())),
            FieldValidation::Warn => strict.warnings(),
            FieldValidation::Strict | FieldValidation::Ignore => Vec::new(),
        };
        Ok(Decoded { object: Object(object), warnings })
    }

    /// The value of a wrong type in a body of JSON, which was read before, that Go's decoder tells of.
    fn first_mismatch(&self, body: &[u8]) -> Option<conform::TypeMismatch> {
        let first = RefCell::new(conform::FirstMismatch::new(&self.schema, (&self.version, &self.kind)));
        json::look_through(&self.schema, body, &|node, value, path| first.borrow_mut().look(node, value, path)).ok()?;
        first.into_inner().found()
    }

    /// Brings an object that was changed in place, by a patch, back to the schema: drops unknown
    /// fields, checks types, applies defaults. Returns the warnings.
    ///
    /// # Errors
    ///
    /// 422 `Invalid` naming `patch`, as upstream, when a field has the wrong type, and under
    /// [`FieldValidation::Strict`] for unknown fields.
    pub fn conform(&self, object: &mut Object, validation: FieldValidation) -> Result<Vec<String>, ApiError> {
        let refuse = |object: &Object, text: String| {
            let json = serde_json::to_string(&object.0).unwrap_or_default();
            ApiError::invalid("", "", "", &[FieldError::invalid("patch", json, text)])
        };
        let strict = self.settle(object).map_err(|type_error| refuse(object, type_error.decoded))?;
        match validation {
            FieldValidation::Strict if !strict.is_empty() => Err(refuse(object, strict.message())),
            FieldValidation::Warn => Ok(strict.warnings()),
            FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        }
    }

    /// The same for whoever has words of their own for what is wrong: returns the unknown fields, which are dropped.
    ///
    /// # Errors
    ///
    /// [`TypeError`] about a field of the wrong type.
    pub fn settle(&self, object: &mut Object) -> Result<StrictErrors, TypeError> {
        let text = |field: &str| object.0.get(field).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let same = |given: &str, own: &str| given.is_empty() || given == own;
        if !same(kind, &self.kind) || !same(api_version, &group_version(&self.group, &self.version)) {
            let text = unregistered(kind, api_version);
            return Err(TypeError { decoded: text.clone(), converted: text });
        }
        let mut strict = StrictErrors::default();
        conform::conform(&self.schema, (&self.version, &self.kind), &mut object.0, &mut strict).map_err(|error| {
            // Whoever decodes asks what kind it is first.
            let no_type = TYPE_FIELDS.iter().find_map(|field| type_text(&object.0, field).err());
            let no_type = no_type.map(|problem| format!("couldn't get version/kind; json parse error: {problem}"));
            TypeError { decoded: no_type.unwrap_or_else(|| error.to_string()), converted: error.converted() }
        })?;
        Ok(strict)
    }

    /// Finds the values that the schema refuses: missing required fields, values outside of
    /// enums, ranges, lengths and patterns, duplicates in sets and keyed lists. For 422 `Invalid`.
    ///
    /// Expects an object that was decoded or conformed; rules in CEL are not evaluated.
    pub fn structural_errors(&self, object: &Object) -> Vec<FieldError> {
        validate::errors(&self.schema, &object.0)
    }

    fn root(&self, value: Value, body: &[u8]) -> Result<Map<String, Value>, ApiError> {
        match value {
            Value::Object(map) => Ok(map),
            Value::Null => Ok(Map::new()),
            other => {
                let problem = format!("couldn't get version/kind; json parse error: {}", no_type(&other));
                Err(self.unrecognized(problem, body))
            }
        }
    }

    /// Checks `apiVersion` and `kind`, and sets them where they are missing.
    fn check_type(&self, object: &mut Map<String, Value>, body: &[u8]) -> Result<(), ApiError> {
        let text = |field| {
            type_text(object, field).map_err(|problem| {
                self.unrecognized(format_args!("couldn't get version/kind; json parse error: {problem}"), body)
            })
        };
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Err(self.unrecognized(format_args!("unexpected GroupVersion string: {api_version}"), body));
        }
        let (group, version) =
            if group.is_empty() && version.is_empty() { (&*self.group, &*self.version) } else { (group, version) };
        if (group, version) != (&*self.group, &*self.version) {
            return Err(self.unregistered(kind, group, version));
        }
        if !kind.is_empty() && kind != self.kind {
            return Err(self.unregistered(kind, group, version));
        }
        object.insert("apiVersion".to_owned(), group_version(&self.group, &self.version).into());
        object.insert("kind".to_owned(), self.kind.clone().into());
        Ok(())
    }

    /// 400 for a body of another kind.
    fn unregistered(&self, kind: &str, group: &str, version: &str) -> ApiError {
        let kind = if kind.is_empty() { &self.kind } else { kind };
        ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {}",
            quote(version),
            self.kind,
            unregistered(kind, &group_version(group, version))
        ))
    }

    fn unrecognized(&self, error: impl std::fmt::Display, body: &[u8]) -> ApiError {
        let summary = summarize(body);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({summary})",
            self.kind
        ))
    }

    fn unhandled(&self, error: impl std::fmt::Display) -> ApiError {
        let kind = &self.kind;
        ApiError::bad_request(format!("{kind} in version {:?} cannot be handled as a {kind}: {error}", self.version))
    }
}

/// What Go's decoder calls a value's type.
pub fn json_type(value: &Value) -> &'static str {
    conform::json_type(value)
}

/// The schema that stands alone in `allOf`, or beside nothing but null in `anyOf` or `oneOf`.
pub(crate) fn only_alternative(schema: &Value) -> Option<&Value> {
    compile::only_alternative(schema).map(|alternative| alternative.schema)
}

/// What `apiVersion` says of a group and version.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The beginning of a body, as text if it may be JSON and else in hexadecimal.
fn summarize(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let start = &body[..body.len().min(LENGTH)];
    let dots = if body.len() > LENGTH { " ..." } else { "" };
    match start.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}
