//! JSON patch, merge patch and strategic merge patch, as `k8s.io/apiserver/pkg/endpoints/handlers/patch.go` applies them.

use http::{HeaderMap, StatusCode, header};
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use super::{body, response};
use crate::{
    managed_fields::Plain,
    object::Object,
    request::FieldValidation,
    schema::{self, Format, Misfit},
    status::{ApiError, FieldError},
    strategic_patch::{self, Lookup, Refusal},
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// The most operations that a JSON patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// The most bytes, encoded, that all `copy` operations of a patch may make: a few of them that
/// double a value each time would otherwise fill the memory.
const MAX_COPIED_BYTES: usize = body::MAX_REQUEST_BYTES;

/// How deeply a document may be nested between two operations. More than any object may be in the end, so that such
/// patches fail in words of their own; and little enough for everything that walks a document.
const MAX_NESTING: usize = 4 * schema::MAX_DEPTH;

/// The most values that are looked at to see how deeply `copy` and `move` would nest the document.
const MAX_MEASURED_VALUES: usize = 8 << 20;

/// The most items that all operations together may have to make room in lists for what they add, or close ranks.
const MAX_SHIFTED_ITEMS: usize = 256 << 20;

/// The media types of patches that are taken.
pub(crate) const MEDIA_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A kind of patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// A merge patch that knows of keyed lists.
    Strategic,
}

impl PatchType {
    /// The type that a request says its body has; nothing for a configuration, which is applied.
    ///
    /// # Errors
    ///
    /// 415 `UnsupportedMediaType`.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
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
pub(crate) struct Patch {
    change: Change,
    /// What is wrong with it besides: unknown and duplicate fields, in the words of strict decoding.
    strict: Vec<String>,
}

#[derive(Clone, Debug)]
enum Change {
    /// Operations, still as they were sent: upstream refuses a malformed one only when it comes to it.
    Json(Vec<Value>),
    Merge(Value),
    Strategic(Map<String, Value>),
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    ///
    /// 400 `BadRequest` when it is malformed, 413 `RequestEntityTooLarge` for too many operations.
    pub(crate) fn parse(kind: PatchType, body: &[u8]) -> Result<Self, ApiError> {
        let malformed =
            |problem: &dyn std::fmt::Display| ApiError::bad_request(format!("error decoding patch: {problem}"));
        let parsed = schema::parse(body, Format::Json).map_err(|error| match kind {
            PatchType::Strategic => ApiError::bad_request(error.to_string()),
            PatchType::Json | PatchType::Merge => malformed(&error),
        })?;
        let mut strict = parsed.strict.warnings();
        let change = match (kind, parsed.value) {
            (PatchType::Merge, value @ Value::Object(_)) => Change::Merge(value),
            (PatchType::Merge, Value::Null) => return Err(ApiError::bad_request("Invalid JSON Patch")),
            (PatchType::Merge, other) => {
                let given = schema::json_type(&other);
                return Err(malformed(&format_args!(
                    "json: cannot unmarshal {given} into Go value of type map[string]interface {{}}"
                )));
            }
            (PatchType::Json, Value::Null) => Change::Json(Vec::new()),
            (PatchType::Json, Value::Array(operations)) if operations.iter().all(Value::is_object) => {
                if operations.len() > MAX_OPERATIONS {
                    return Err(body::too_large(&format!(
                        "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                        operations.len()
                    )));
                }
                let room = schema::MAX_STRICT_ERRORS.saturating_sub(strict.len());
                strict.extend(operations.iter().enumerate().flat_map(unknown_fields).take(room));
                strict.iter_mut().for_each(|text| text.insert_str(0, "json patch "));
                Change::Json(operations)
            }
            (PatchType::Json, other) => {
                let (wrong, list) = match &other {
                    Value::Array(operations) => (operations.iter().find(|operation| !operation.is_object()), ""),
                    other => (Some(other), "[]"),
                };
                let given = wrong.map_or("null", schema::json_type);
                return Err(malformed(&format_args!(
                    "json: cannot unmarshal {given} into Go value of type {list}handlers.jsonPatchOp"
                )));
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
    pub(crate) fn apply(&self, object: &Object, schema: &Value) -> Result<Object, ApiError> {
        let mut document = Value::Object(object.0.clone());
        match &self.change {
            Change::Merge(patch) => json_patch::merge(&mut document, patch),
            Change::Json(operations) => {
                apply_operations(&mut document, operations)
                    .map_err(|_| response::generic(StatusCode::UNPROCESSABLE_ENTITY))?;
            }
            Change::Strategic(patch) => {
                let merged = strategic_patch::merge(object.0.clone(), patch.clone(), Lookup::of_object(schema));
                let mut merged = merged.map_err(|refusal| match refusal {
                    Refusal::Malformed(text) => ApiError::bad_request(text),
                    Refusal::Unprocessable(_) => response::generic(StatusCode::UNPROCESSABLE_ENTITY),
                    Refusal::Failed(text) => ApiError::new(500, "", text),
                })?;
                // The outcome is read as the kind that it was, whatever the patch says, if it says it in text.
                for field in ["apiVersion", "kind"] {
                    let is_text = merged.get(field).is_none_or(|said| said.is_string() || said.is_null());
                    if let Some(value) = object.0.get(field).filter(|_| is_text) {
                        merged.insert(field.to_owned(), value.clone());
                    }
                }
                document = Value::Object(merged);
            }
        }
        match document {
            Value::Object(map) => Ok(Object(map)),
            other => Err(invalid(other.to_string(), "an object must be a map")),
        }
    }

    /// What strict validation says: warnings about the patch and about unknown fields that came of it, or an error.
    ///
    /// # Errors
    ///
    /// 422 `Invalid` when unknown and duplicate fields are errors.
    pub(crate) fn check_strictly(
        &self,
        patched: &Object,
        unknown: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Vec<String>, ApiError> {
        let all: Vec<String> = self.strict.iter().cloned().chain(unknown).collect();
        match validation {
            FieldValidation::Strict if !all.is_empty() => {
                Err(self.refuse(patched, &format!("strict decoding error: {}", all.join(", "))))
            }
            FieldValidation::Warn => Ok(all),
            FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        }
    }

    /// 422 about a field that has the wrong type now.
    pub(crate) fn refuse_misfit(&self, patched: &Object, misfit: &Misfit) -> ApiError {
        let text = match &self.change {
            Change::Strategic(_) => &misfit.converted,
            Change::Json(_) | Change::Merge(_) => &misfit.decoded,
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

fn unknown_fields((index, operation): (usize, &Value)) -> impl Iterator<Item = String> {
    let unknown = |field: &&String| !matches!(field.as_str(), "op" | "path" | "from" | "value");
    let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
    fields.filter(unknown).map(move |field| format!("unknown field \"[{index}].{field}\""))
}

/// Why an operation does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misapplied {
    /// It was a test.
    TestFailed,
    /// What is wrong, in the words of the library that upstream has.
    Other(String),
}

/// What operations have cost so far.
#[derive(Debug, Default)]
struct Spent {
    copied: usize,
    measured: usize,
    shifted: usize,
}

/// Applies operations in order.
///
/// # Errors
///
/// Why the first that does not apply does not; the document is of no use then.
pub(crate) fn apply_operations(document: &mut Value, operations: &[Value]) -> Result<(), Misapplied> {
    let mut spent = Spent::default();
    operations.iter().try_for_each(|operation| apply_operation(document, operation, &mut spent))
}

fn apply_operation(document: &mut Value, operation: &Value, spent: &mut Spent) -> Result<(), Misapplied> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or("");
    let missing = || {
        let (op, path) = (text("op"), text(if text("op") == "copy" { "from" } else { "path" }));
        Misapplied::Other(format!("{op} operation does not apply: doc is missing path: {path:?}: missing value"))
    };
    let mut operation = operation.clone();
    if let Some(fields) = operation.as_object_mut()
        && matches!(fields.get("op").and_then(Value::as_str), Some("add" | "replace" | "test"))
    {
        fields.entry("value").or_insert(Value::Null);
    }
    let operation: PatchOperation = serde_json::from_value(operation).map_err(|_| match text("op") {
        "add" | "remove" | "replace" | "move" | "copy" | "test" => missing(),
        other => Misapplied::Other(format!("Unexpected kind: {other}")),
    })?;
    // What is replaced or tested stays where it is, and so does all that stands beside it.
    let (from, to) = match &operation {
        PatchOperation::Move(moved) => (Some(moved.from.as_str()), Some(moved.path.as_str())),
        PatchOperation::Add(_) | PatchOperation::Copy(_) | PatchOperation::Remove(_) => {
            (None, Some(operation.path().as_str()))
        }
        PatchOperation::Replace(_) | PatchOperation::Test(_) => (None, None),
    };
    for place in from.into_iter().chain(to) {
        let list = place.rsplit_once('/').and_then(|(parent, _)| document.pointer(parent)?.as_array());
        spent.shifted += list.map_or(0, Vec::len);
    }
    let placed = match &operation {
        PatchOperation::Add(AddOperation { value, .. }) | PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            Some(value)
        }
        PatchOperation::Move(moved) => Some(document.pointer(moved.from.as_str()).ok_or_else(missing)?),
        PatchOperation::Copy(copy) => Some(document.pointer(copy.from.as_str()).ok_or_else(missing)?),
        PatchOperation::Test(_) | PatchOperation::Remove(_) => None,
    };
    let nesting = operation.path().as_str().matches('/').count() + placed.map_or(0, |value| height(value, spent));
    if nesting > MAX_NESTING || spent.measured > MAX_MEASURED_VALUES || spent.shifted > MAX_SHIFTED_ITEMS {
        return Err(Misapplied::Other("The patch nests or moves too much".to_owned()));
    }
    match &operation {
        // Upstream replaces what an object does not have yet.
        PatchOperation::Replace(replace) if document.pointer(replace.path.as_str()).is_none() => {
            let (parent, _) = replace.path.as_str().rsplit_once('/').ok_or_else(missing)?;
            document.pointer(parent).filter(|parent| parent.is_object()).ok_or_else(missing)?;
            let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
            return json_patch::patch(document, &[PatchOperation::Add(add)]).map_err(|_| missing());
        }
        // Upstream holds that what is missing is null.
        PatchOperation::Test(test) if test.value.is_null() && document.pointer(test.path.as_str()).is_none() => {
            return Ok(());
        }
        PatchOperation::Copy(copy) => {
            let value = document.pointer(copy.from.as_str()).ok_or_else(missing)?;
            spent.copied += serde_json::to_vec(value).map_err(|_| missing())?.len();
            if spent.copied > MAX_COPIED_BYTES {
                return Err(Misapplied::Other("Unable to copy, the accumulated size is too large".to_owned()));
            }
        }
        _ => {}
    }
    json_patch::patch(document, std::slice::from_ref(&operation)).map_err(|_| match operation {
        PatchOperation::Test(_) => Misapplied::TestFailed,
        _ => missing(),
    })
}

/// How deeply a value is nested. Values in a document are never nested too deeply for this.
fn height(value: &Value, spent: &mut Spent) -> usize {
    spent.measured += 1;
    match value {
        Value::Array(items) => 1 + items.iter().map(|item| height(item, spent)).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(|value| height(value, spent)).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Object {
        Object(json!({"metadata": {"name": "a"}, "spec": {"n": 1, "list": [1, 2]}}).as_object().unwrap().clone())
    }

    /// Applies a patch and compares what `spec` is then, or the code of the error.
    #[track_caller]
    fn check(kind: PatchType, patch: &Value, expected: Result<Value, u16>) {
        let result =
            Patch::parse(kind, patch.to_string().as_bytes()).and_then(|patch| patch.apply(&object(), &Value::Null));
        let got = result.map(|object| object.0.get("spec").cloned().unwrap_or_default()).map_err(|error| error.code());
        assert_eq!(got, expected, "{patch}");
    }

    #[test]
    fn json_patches_apply_or_say_invalid() {
        use PatchType::Json;
        check(Json, &json!([{"op": "replace", "path": "/spec/n", "value": 2}]), Ok(json!({"n": 2, "list": [1, 2]})));
        check(
            Json,
            &json!([{"op": "add", "path": "/spec/list/-", "value": 3}]),
            Ok(json!({"n": 1, "list": [1, 2, 3]})),
        );
        check(Json, &json!([{"op": "test", "path": "/spec/x", "value": null}]), Ok(json!({"n": 1, "list": [1, 2]})));
        check(Json, &json!([{"op": "test", "path": "/spec/n", "value": 2}]), Err(422));
        check(Json, &json!([{"op": "remove", "path": "/spec/x"}]), Err(422));
        check(
            Json,
            &json!([{"op": "replace", "path": "/spec/x", "value": 1}]),
            Ok(json!({"n": 1, "list": [1, 2], "x": 1})),
        );
        check(Json, &json!([{"op": "replace", "path": "/spec/x/y", "value": 1}]), Err(422));
        check(Json, &json!([{"op": "replace", "path": "/spec/list/7", "value": 1}]), Err(422));
        check(Json, &json!([{"op": "replace", "path": "/spec/n"}]), Ok(json!({"n": null, "list": [1, 2]})));
        check(Json, &json!([{"op": "multiply", "path": "/spec/n", "value": 1}]), Err(422));
        check(Json, &json!([{"op": "replace", "path": "", "value": []}]), Err(422));
        check(Json, &json!({"op": "replace"}), Err(400));
        check(Json, &json!(["replace"]), Err(400));
    }

    #[test]
    fn merge_patches_apply() {
        use PatchType::Merge;
        check(Merge, &json!({"spec": {"n": null, "m": {"k": null}}}), Ok(json!({"list": [1, 2], "m": {}})));
        check(Merge, &json!([1]), Err(400));
        assert_eq!(Patch::parse(Merge, b"{").unwrap_err().code(), 400);
    }

    #[test]
    fn operations_are_limited() {
        let operation = json!({"op": "test", "path": "/spec/n", "value": 1});
        check(
            PatchType::Json,
            &Value::Array(vec![operation.clone(); MAX_OPERATIONS]),
            Ok(json!({"n": 1, "list": [1, 2]})),
        );
        let error =
            Patch::parse(PatchType::Json, Value::Array(vec![operation; 10_001]).to_string().as_bytes()).unwrap_err();
        assert_eq!((error.code(), error.reason()), (413, "RequestEntityTooLarge"));
        assert_eq!(
            error.message(),
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    #[test]
    fn copies_that_double_are_stopped() {
        let double = json!({"op": "copy", "from": "/spec", "path": "/spec/again"});
        let nest: Vec<_> = (0..64)
            .flat_map(|n| [json!({"op": "copy", "from": "/spec", "path": format!("/spec/{n}")}), double.clone()])
            .collect();
        check(PatchType::Json, &Value::Array(nest), Err(422));
    }

    /// What is nested without end would end the process when it is walked.
    #[test]
    fn nesting_without_end_is_stopped() {
        let chain = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
        let double = (1..30).map(|n| {
            let below = "/a".repeat(1 << n.min(17));
            json!({"op": "copy", "from": "/spec/c", "path": format!("/spec/c{below}")})
        });
        let copies = [json!({"op": "add", "path": "/spec/c", "value": chain(2)})].into_iter().chain(double);
        let grow = |op: &'static str| {
            let value = chain(100);
            (0..100).map(move |n| {
                let path = format!("/spec/free{}", "/a".repeat(n * 100));
                match op {
                    "add" => json!([{"op": "add", "path": path, "value": value}]),
                    _ => json!([
                        {"op": "add", "path": "/spec/spare", "value": value},
                        {"op": "move", "from": "/spec/spare", "path": path},
                    ]),
                }
            })
        };
        let flat = |lists: Vec<Value>| -> Vec<Value> {
            lists.into_iter().flat_map(|list| list.as_array().cloned().unwrap_or_default()).collect()
        };
        for patch in [copies.collect(), flat(grow("add").collect()), flat(grow("move").collect())] {
            check(PatchType::Json, &Value::Array(patch), Err(422));
        }
        // What is deeper than an object may be, and no deeper, is left to whoever checks objects.
        let patch = json!([{"op": "add", "path": "/spec", "value": chain(100)}]);
        check(PatchType::Json, &patch, Ok(chain(100)));
    }

    #[test]
    fn lists_are_not_shifted_without_end() {
        let mut object = object();
        object.0.insert("spec".to_owned(), json!({ "list": vec![1; 500_000] }));
        let apply = |op: &str, count: usize| {
            let operation = json!({"op": op, "path": "/spec/list/0", "value": 1});
            let patch = Value::Array(vec![operation; count]).to_string();
            let patch = Patch::parse(PatchType::Json, patch.as_bytes()).unwrap();
            patch.apply(&object, &Value::Null).map(drop).map_err(|error| error.code())
        };
        assert_eq!((apply("add", 100), apply("add", MAX_OPERATIONS)), (Ok(()), Err(422)));
        // What stays in its place shifts nothing.
        assert_eq!((apply("replace", MAX_OPERATIONS), apply("test", MAX_OPERATIONS)), (Ok(()), Ok(())));
    }

    #[test]
    fn unknown_fields_of_operations_are_told() {
        let patch = Patch::parse(PatchType::Json, br#"[{"op":"test","path":"/spec/n","value":1,"why":"x"}]"#).unwrap();
        let warnings = patch.check_strictly(&object(), Vec::new(), FieldValidation::Warn).unwrap();
        assert_eq!(warnings, [r#"json patch unknown field "[0].why""#]);
        let error = patch.check_strictly(&Object::default(), Vec::new(), FieldValidation::Strict).unwrap_err();
        assert_eq!(
            error.message(),
            r#" "" is invalid: patch: Invalid value: "{}": strict decoding error: json patch unknown field "[0].why""#
        );
        assert!(patch.check_strictly(&object(), Vec::new(), FieldValidation::Ignore).unwrap().is_empty());
    }

    #[test]
    fn a_hundred_unknown_fields_are_told() {
        let fields: String = (0..350_000).map(|n| format!(r#","x{n}":1"#)).collect();
        let patch =
            format!(r#"[{{"op":"test","path":"/spec/n","value":1{fields}}},{{"op":"test","path":"","why":1}}]"#);
        let patch = Patch::parse(PatchType::Json, patch.as_bytes()).unwrap();
        assert_eq!(patch.check_strictly(&object(), Vec::new(), FieldValidation::Warn).unwrap().len(), 100);
    }
}
