//! JSON patch, merge patch and strategic merge patch, as `k8s.io/apiserver/pkg/endpoints/handlers/patch.go` applies them.

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use crate::{
    json,
    managed_fields::Plain,
    object::Object,
    request::FieldValidation,
    schema::{self, Format, TypeError},
    status::{ApiError, FieldError},
    strategic_patch::{self, Lookup, Refusal},
};

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod merging;
mod operations;

pub use self::operations::{Misapplied, apply_operations};

/// The most operations that a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// The media types of patches that are taken.
pub const MEDIA_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A kind of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386, and somewhat more of nulls.
    Merge,
    /// A merge patch that knows of keyed lists.
    Strategic,
}

impl PatchType {
    /// The type that a request says its body has; nothing for a configuration, which is applied. Fails with 415
    /// `UnsupportedMediaType`.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Some(Self::Json)),
            "application/merge-patch+json" => Ok(Some(Self::Merge)),
            "application/strategic-merge-patch+json" => Ok(Some(Self::Strategic)),
            "application/apply-patch+yaml" => Ok(None),
            // It is the route that takes no other, letter by letter, before anything is looked at.
            _ => {
                let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                error.0.details = Some(Default::default());
                Err(error)
            }
        }
    }
}

/// A patch that was read.
#[derive(Clone, Debug)]
pub struct Patch {
    change: Change,
    /// What is wrong with it besides: unknown and duplicate fields, in the words of strict decoding.
    strict: Vec<String>,
}

#[derive(Clone, Debug)]
enum Change {
    /// Operations, still as they were sent: upstream refuses a malformed one only when it comes to it.
    Json(Vec<Value>),
    Merge(Map<String, Value>),
    Strategic(Map<String, Value>),
}

impl Patch {
    /// Reads a patch. Fails with 400 `BadRequest` when it is malformed, 413 `RequestEntityTooLarge` for too many
    /// operations.
    pub fn parse(kind: PatchType, body: &[u8], validation: FieldValidation) -> Result<Self, ApiError> {
        // It is the strict reading of a JSON patch that says so, which comes before the other.
        let prefix = match (kind, validation) {
            (PatchType::Json, FieldValidation::Ignore) => "",
            _ => "error decoding patch: ",
        };
        let malformed = |problem: &dyn std::fmt::Display| ApiError::bad_request(format!("{prefix}{problem}"));
        let parsed = schema::parse(body, Format::Json).map_err(|error| match kind {
            PatchType::Strategic => ApiError::bad_request(error.to_string()),
            PatchType::Json | PatchType::Merge => malformed(&error),
        })?;
        let mut strict = parsed.strict.warnings();
        let change = match (kind, parsed.value) {
            (PatchType::Merge, Value::Object(patch)) => Change::Merge(patch),
            (PatchType::Merge, Value::Null) => return Err(ApiError::bad_request("Invalid JSON Patch")),
            (PatchType::Merge, other) => {
                let given = schema::json_type(&other);
                return Err(malformed(&format_args!(
                    "json: cannot unmarshal {given} into Go value of type map[string]interface {{}}"
                )));
            }
            (PatchType::Json, value) => {
                let operations = operations(value, validation).map_err(|problem| malformed(&problem))?;
                if operations.len() > MAX_OPERATIONS {
                    return Err(ApiError::request_entity_too_large(format_args!(
                        "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                        operations.len()
                    )));
                }
                let room = schema::MAX_STRICT_ERRORS.saturating_sub(strict.len());
                strict.extend(operations.iter().enumerate().flat_map(unknown_fields).take(room));
                strict.iter_mut().for_each(|text| text.insert_str(0, "json patch "));
                Change::Json(operations)
            }
            (PatchType::Strategic, Value::Object(patch)) => Change::Strategic(patch),
            (PatchType::Strategic, Value::Null) => Change::Strategic(Map::new()),
            (PatchType::Strategic, other) => {
                return Err(ApiError::bad_request(format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    schema::json_type(&other)
                )));
            }
        };
        Ok(Self { change, strict })
    }

    /// Applies the patch to an object of a kind with this schema. The result is not checked against it.
    ///
    /// # Errors
    ///
    /// 422 `Invalid` when an operation does not apply, such as a failed test; what upstream answers to a strategic
    /// merge patch that is malformed or does not fit.
    pub fn apply(&self, object: &Object, schema: &Value) -> Result<Object, ApiError> {
        let document = match &self.change {
            Change::Merge(patch) => {
                let mut merged = object.0.clone();
                merging::merge(&mut merged, patch);
                Value::Object(merged)
            }
            Change::Json(operations) => {
                let mut document = Value::Object(object.0.clone());
                apply_operations(&mut document, operations).map_err(|_| ApiError::generic(422))?;
                document
            }
            Change::Strategic(patch) => {
                let merged = strategic_patch::merge(object.0.clone(), patch.clone(), Lookup::of_object(schema));
                let mut merged = merged.map_err(|refusal| match refusal {
                    Refusal::Malformed(text) => ApiError::bad_request(text),
                    Refusal::Unprocessable(_) => ApiError::generic(422),
                    Refusal::Failed(text) => ApiError::new(500, "", text),
                })?;
                // The outcome is read as the kind that it was, whatever the patch says, if it says it in text.
                for field in ["apiVersion", "kind"] {
                    let is_text = merged.get(field).is_none_or(|said| said.is_string() || said.is_null());
                    if let Some(value) = object.0.get(field).filter(|_| is_text) {
                        merged.insert(field.to_owned(), value.clone());
                    }
                }
                let mut document = Value::Object(merged);
                // Where there is to be an integer, whatever is a whole number is one.
                json::settle_numbers(&mut document);
                document
            }
        };
        match document {
            Value::Object(map) => Ok(Object(map)),
            other => Err(invalid(other.to_string(), "an object must be a map")),
        }
    }

    /// Whether what became of an object no longer says which version of its kind it is.
    pub fn takes_version(&self, object: &Object, patched: &Object) -> bool {
        let has_none = |object: &Object| matches!(schema::type_text(&object.0, "apiVersion"), Ok(""));
        has_none(patched) && !has_none(object)
    }

    /// What strict validation says: warnings about the patch and about unknown fields that came of it, or an error,
    /// which shows what the patch `made`. Fails with 422 `Invalid` when unknown and duplicate fields are errors.
    pub fn check_strictly(
        &self,
        made: impl FnOnce() -> Result<Object, ApiError>,
        unknown: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Vec<String>, ApiError> {
        let all: Vec<String> = self.strict.iter().cloned().chain(unknown).collect();
        match validation {
            FieldValidation::Strict if !all.is_empty() => {
                Err(self.refuse(&made()?, &format!("strict decoding error: {}", all.join(", "))))
            }
            FieldValidation::Warn => Ok(all),
            FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        }
    }

    /// 422 about a field that has the wrong type now.
    pub fn refuse_type_error(&self, patched: &Object, type_error: &TypeError) -> ApiError {
        let text = match &self.change {
            Change::Strategic(_) => &type_error.converted,
            Change::Json(_) | Change::Merge(_) => &type_error.decoded,
        };
        self.refuse(patched, text)
    }

    /// 422 about the outcome of the patch, which upstream shows as the value of a field `patch`; for a strategic
    /// merge patch it shows the patch itself.
    fn refuse(&self, patched: &Object, detail: &str) -> ApiError {
        let shown = match &self.change {
            Change::Strategic(patch) => Plain(&Value::Object(patch.clone())).to_string(),
            Change::Json(_) | Change::Merge(_) => Value::Object(patched.0.clone()).to_string(),
        };
        invalid(shown, detail)
    }
}

fn invalid(shown: String, detail: &str) -> ApiError {
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, detail)])
}

/// The operations of a JSON patch that is no request: there may be any number of them.
///
/// # Errors
///
/// What Go's decoder says of one that is malformed.
pub fn json_operations(patch: &[u8]) -> Result<Vec<Value>, String> {
    let parsed = schema::parse(patch, Format::Json).map_err(|error| error.to_string())?;
    operations(parsed.value, FieldValidation::Ignore)
}

/// The operations of a JSON patch, which may be null. Where fields are not ignored they are read with their types first.
fn operations(patch: Value, validation: FieldValidation) -> Result<Vec<Value>, String> {
    let (is_typed, list, one) = match validation {
        FieldValidation::Ignore => (false, "jsonpatch.Patch", "jsonpatch.Operation"),
        FieldValidation::Warn | FieldValidation::Strict => (true, "[]handlers.jsonPatchOp", "handlers.jsonPatchOp"),
    };
    let unread = |value: &Value, place: &str| {
        Err(format!("json: cannot unmarshal {} into Go {place}", schema::json_type(value)))
    };
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => return unread(&other, &format!("value of type {list}")),
    };
    for operation in &operations {
        let fields = match operation {
            Value::Object(fields) => fields,
            Value::Null => continue,
            other => return unread(other, &format!("value of type {one}")),
        };
        let is_text = |name: &str| matches!(name, "op" | "path" | "from");
        let type_error = fields.iter().find(|(name, value)| is_text(name) && !value.is_string() && !value.is_null());
        if let (true, Some((name, value))) = (is_typed, type_error) {
            return unread(value, &format!("struct field jsonPatchOp.{name} of type string"));
        }
    }
    Ok(operations)
}

fn unknown_fields((index, operation): (usize, &Value)) -> impl Iterator<Item = String> {
    let unknown = |field: &&String| !matches!(field.as_str(), "op" | "path" | "from" | "value");
    let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
    fields.filter(unknown).map(move |field| format!("unknown field \"[{index}].{field}\""))
}

#[cfg(test)]
mod tests;
