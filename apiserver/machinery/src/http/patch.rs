//! JSON patch, merge patch and strategic merge patch, as `k8s.io/apiserver/pkg/endpoints/handlers/patch.go` applies them.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use json_patch::{AddOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf};
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
    pub(crate) fn parse(kind: PatchType, body: &[u8], validation: FieldValidation) -> Result<Self, ApiError> {
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
            (PatchType::Merge, value @ Value::Object(_)) => Change::Merge(value),
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
        let misfit = fields.iter().find(|(name, value)| is_text(name) && !value.is_string() && !value.is_null());
        if let (true, Some((name, value))) = (is_typed, misfit) {
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

impl Spent {
    /// Counts the items of the list, if it is one, that something is put into or taken out of at this place.
    fn shift(&mut self, document: &Value, place: &str) {
        let list = place.rsplit_once('/').and_then(|(parent, _)| document.pointer(parent)?.as_array());
        self.shifted += list.map_or(0, Vec::len);
    }
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
    if let Some(fields) = operation.as_object_mut() {
        let places: &[(&str, Sought)] = match text("op") {
            "add" => &[("path", Sought::NewMember)],
            "remove" => &[("path", Sought::Member)],
            "replace" | "test" => &[("path", Sought::Value)],
            "copy" => &[("from", Sought::Member), ("path", Sought::NewMember)],
            // Where it goes to is looked for once it is taken away.
            "move" => &[("from", Sought::Member)],
            _ => &[],
        };
        for (field, sought) in places {
            if let Some(Value::String(pointer)) = fields.get_mut(*field) {
                *pointer = resolve(document, pointer, *sought).ok_or_else(missing)?;
            }
        }
        if let ("move", Some(Value::String(pointer))) = (text("op"), fields.get_mut("path")) {
            *pointer = pointer.split('/').map(escaped).collect::<Vec<_>>().join("/");
        }
        if matches!(text("op"), "add" | "replace" | "test") {
            fields.entry("value").or_insert(Value::Null);
        }
    }
    let operation: PatchOperation = serde_json::from_value(operation).map_err(|_| match text("op") {
        "add" | "remove" | "replace" | "move" | "copy" | "test" => missing(),
        other => Misapplied::Other(format!("Unexpected kind: {other}")),
    })?;
    match &operation {
        PatchOperation::Move(moved) => spent.shift(document, moved.from.as_str()),
        PatchOperation::Add(_) | PatchOperation::Copy(_) | PatchOperation::Remove(_) => {
            spent.shift(document, operation.path().as_str());
        }
        // What is replaced or tested stays where it is, and so does all that stands beside it.
        PatchOperation::Replace(_) | PatchOperation::Test(_) => {}
    }
    let placed = match &operation {
        PatchOperation::Add(AddOperation { value, .. }) | PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            Some(value)
        }
        PatchOperation::Move(moved) => Some(document.pointer(moved.from.as_str()).ok_or_else(missing)?),
        PatchOperation::Copy(copy) => Some(at(document, copy.from.as_str()).ok_or_else(missing)?),
        PatchOperation::Test(_) | PatchOperation::Remove(_) => None,
    };
    let nesting = operation.path().as_str().matches('/').count() + placed.map_or(0, |value| height(value, spent));
    if nesting > MAX_NESTING || spent.measured > MAX_MEASURED_VALUES || spent.shifted > MAX_SHIFTED_ITEMS {
        return Err(Misapplied::Other("The patch nests or moves too much".to_owned()));
    }
    match &operation {
        PatchOperation::Replace(replace)
            if replace.path.is_root()
                && (replace.value.is_string() || replace.value.is_number() || replace.value.is_boolean()) =>
        {
            // The whole has parts.
            return Err(missing());
        }
        // Upstream replaces what an object does not have yet.
        PatchOperation::Replace(replace) if document.pointer(replace.path.as_str()).is_none() => {
            let (parent, _) = replace.path.as_str().rsplit_once('/').ok_or_else(missing)?;
            document.pointer(parent).filter(|parent| parent.is_object()).ok_or_else(missing)?;
            let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
            return json_patch::patch(document, &[PatchOperation::Add(add)]).map_err(|_| missing());
        }
        PatchOperation::Test(test) if test.value.is_null() => {
            return match at(document, test.path.as_str()).ok_or_else(missing)? {
                Value::Null => Ok(()),
                _ => Err(Misapplied::TestFailed),
            };
        }
        PatchOperation::Copy(copy) => {
            let value = at(document, copy.from.as_str()).ok_or_else(missing)?;
            spent.copied += serde_json::to_vec(value).map_err(|_| missing())?.len();
            if spent.copied > MAX_COPIED_BYTES {
                return Err(Misapplied::Other("Unable to copy, the accumulated size is too large".to_owned()));
            }
            if value.is_null() {
                let add = AddOperation { path: copy.path.clone(), value: Value::Null };
                return json_patch::patch(document, &[PatchOperation::Add(add)]).map_err(|_| missing());
            }
        }
        PatchOperation::Move(moved) => return relocate(document, moved, spent).ok_or_else(missing),
        _ => {}
    }
    json_patch::patch(document, std::slice::from_ref(&operation)).map_err(|_| match operation {
        PatchOperation::Test(_) => Misapplied::TestFailed,
        _ => missing(),
    })
}

/// What is at a place; null for what a map does not have, as upstream holds.
fn at<'d>(document: &'d Value, place: &str) -> Option<&'d Value> {
    document.pointer(place).or_else(|| {
        let (parent, _) = place.rsplit_once('/')?;
        document.pointer(parent)?.is_object().then_some(&Value::Null)
    })
}

/// Takes a value from its place and puts it where the path leads in what is left.
fn relocate(document: &mut Value, moved: &MoveOperation, spent: &mut Spent) -> Option<()> {
    let value = document.pointer_mut(moved.from.as_str())?.take();
    let remove = PatchOperation::Remove(RemoveOperation { path: moved.from.clone() });
    json_patch::patch(document, &[remove]).ok()?;
    let path = resolve(document, moved.path.as_str(), Sought::NewMember)?;
    spent.shift(document, &path);
    let place = AddOperation { path: PointerBuf::parse(path.clone()).ok()?, value: Value::Null };
    json_patch::patch(document, &[PatchOperation::Add(place)]).ok()?;
    // An operation would copy it.
    *document.pointer_mut(&path)? = value;
    Some(())
}

/// What a pointer is to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// Any value, also the whole document.
    Value,
    /// What is in a map or list.
    Member,
    /// A place in a map or list for something new.
    NewMember,
}

/// The pointer that leads to the same with indices as RFC 6902 has them: upstream takes whatever Go's `Atoi` does, and
/// counts negative ones from the end of the list; and it takes a `~` that escapes nothing for itself.
///
/// Nothing when it leads to an item that a list does not have, or to what is not sought.
fn resolve(document: &Value, pointer: &str, sought: Sought) -> Option<String> {
    if pointer.is_empty() && sought != Sought::Value {
        return None;
    }
    let mut resolved = String::with_capacity(pointer.len());
    let mut tokens = pointer.split('/').peekable();
    // Before the first slash there is nothing, or it is no pointer.
    resolved.push_str(tokens.next()?);
    let mut current = Some(document);
    while let Some(token) = tokens.next() {
        resolved.push('/');
        let Some(Value::Array(items)) = current else {
            resolved.push_str(&escaped(token));
            let key = token.replace("~1", "/").replace("~0", "~");
            current = current.and_then(|map| map.get(key));
            continue;
        };
        let is_new = tokens.peek().is_none() && sought == Sought::NewMember;
        let index = item_index(token, items.len(), is_new)?;
        resolved.push_str(&index.to_string());
        current = items.get(index);
    }
    Some(resolved)
}

/// The token as RFC 6901 has it.
fn escaped(token: &str) -> Cow<'_, str> {
    if !token.contains('~') {
        return Cow::Borrowed(token);
    }
    Cow::Owned(token.replace("~1", "/").replace("~0", "~").replace('~', "~0").replace('/', "~1"))
}

/// Which item of a list of this length a token stands for, or where it puts a new one.
fn item_index(token: &str, length: usize, is_new: bool) -> Option<usize> {
    if is_new && token == "-" {
        return Some(length);
    }
    let places = length + usize::from(is_new);
    let index: isize = token.parse().ok()?;
    let index = if index < 0 { places.checked_add_signed(index)? } else { index.unsigned_abs() };
    (index < places).then_some(index)
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

    fn parse(kind: PatchType, body: &[u8]) -> Result<Patch, ApiError> {
        Patch::parse(kind, body, FieldValidation::Warn)
    }

    /// Applies a patch and compares what `spec` is then, or the code of the error.
    #[track_caller]
    fn check(kind: PatchType, patch: &Value, expected: Result<Value, u16>) {
        let result = parse(kind, patch.to_string().as_bytes()).and_then(|patch| patch.apply(&object(), &Value::Null));
        let got = result.map(|object| object.0.get("spec").cloned().unwrap_or_default()).map_err(|error| error.code());
        assert_eq!(got, expected, "{patch}");
    }

    #[test]
    fn the_whole_is_replaced_by_what_has_parts() {
        let is_judged = |value: Value| {
            let patch = json!([{"op": "replace", "path": "", "value": value}]).to_string();
            let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
            let error = patch.apply(&object(), &Value::Null).expect_err("no object");
            error.0.details.as_ref().is_some_and(|details| details.causes.is_some())
        };
        assert_eq!([json!("x"), json!(1), json!(true), json!([])].map(is_judged), [false, false, false, true]);
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
        check(Json, &json!([{"op": "test", "path": "/spec/n", "value": null}]), Err(422));
        check(Json, &json!([{"op": "test", "path": "/spec/x/y", "value": null}]), Err(422));
        check(Json, &json!([{"op": "test", "path": "/spec/n/y", "value": null}]), Err(422));
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
        check(
            Json,
            &json!([{"op": "copy", "from": "/spec/x", "path": "/spec/list"}]),
            Ok(json!({"n": 1, "list": null})),
        );
        check(Json, &json!([{"op": "copy", "from": "/spec/x/y", "path": "/spec/list"}]), Err(422));
        check(Json, &json!([{"op": "move", "from": "/spec/x", "path": "/spec/list"}]), Err(422));
        check(Json, &json!([null]), Err(422));
        check(Json, &json!({"op": "replace"}), Err(400));
        check(Json, &json!(["replace"]), Err(400));
    }

    #[test]
    fn a_tilde_that_escapes_nothing_is_one() {
        let add = |key: &str| json!([{"op": "add", "path": format!("/spec/{key}"), "value": {}}]);
        for (key, name) in [("~2", "~2"), ("a~", "a~"), ("~01", "~1"), ("~0~1~", "~/~")] {
            check(PatchType::Json, &add(key), Ok(json!({"n": 1, "list": [1, 2], name: {}})));
            let moved = json!([{"op": "move", "from": "/spec/n", "path": format!("/spec/{key}")}]);
            check(PatchType::Json, &moved, Ok(json!({"list": [1, 2], name: 1})));
        }
    }

    #[test]
    fn operations_are_read_with_their_types_unless_fields_are_ignored() {
        let says = |patch: Value, validation: FieldValidation| {
            let parsed = Patch::parse(PatchType::Json, patch.to_string().as_bytes(), validation);
            parsed.map(drop).map_err(|error| error.message().to_owned())
        };
        for (patch, typed, untyped) in [
            (json!([{"op": 1}]), Some("struct field jsonPatchOp.op of type string"), None),
            (
                json!([{"op": "test", "path": "/a"}, {"from": 1}]),
                Some("struct field jsonPatchOp.from of type string"),
                None,
            ),
            (json!([1]), Some("value of type handlers.jsonPatchOp"), Some("value of type jsonpatch.Operation")),
            (json!(1), Some("value of type []handlers.jsonPatchOp"), Some("value of type jsonpatch.Patch")),
            (json!([{"op": null}, null]), None, None),
        ] {
            let said = |prefix: &str, place: Option<&str>| {
                place.map_or(Ok(()), |place| Err(format!("{prefix}json: cannot unmarshal number into Go {place}")))
            };
            assert_eq!(says(patch.clone(), FieldValidation::Warn), said("error decoding patch: ", typed));
            assert_eq!(says(patch, FieldValidation::Ignore), said("", untyped));
        }
    }

    /// As `json-patch.v4` does it, with which upstream patches.
    #[test]
    fn negative_indices_count_from_the_end() {
        let list = |operations: Value, expected: Value| {
            let expected = if expected.is_null() { Err(422) } else { Ok(json!({"n": 1, "list": expected})) };
            check(PatchType::Json, &operations, expected);
        };
        let one = |op: &str, index: &str, expected: Value| {
            let operation = json!({"op": op, "path": format!("/spec/list/{index}"), "value": 3});
            list(json!([operation]), expected);
        };
        for (op, index, expected) in [
            ("remove", "-1", json!([1])),
            ("remove", "-2", json!([2])),
            ("remove", "-3", Value::Null),
            ("remove", "-", Value::Null),
            ("remove", "2", Value::Null),
            ("add", "-1", json!([1, 2, 3])),
            ("add", "-3", json!([3, 1, 2])),
            ("add", "-4", Value::Null),
            ("add", "2", json!([1, 2, 3])),
            ("add", "3", Value::Null),
            ("add", "x", Value::Null),
            ("replace", "-1", json!([1, 3])),
            ("replace", "01", json!([1, 3])),
            ("replace", "-3", Value::Null),
            ("replace", "-", Value::Null),
            ("test", "-1", Value::Null),
        ] {
            one(op, index, expected);
        }
        list(json!([{"op": "test", "path": "/spec/list/-1", "value": 2}]), json!([1, 2]));
        list(json!([{"op": "test", "path": "/spec/list/-3", "value": null}]), Value::Null);
        list(json!([{"op": "copy", "from": "/spec/list/-1", "path": "/spec/list/0"}]), json!([2, 1, 2]));
        // The place is one in what is left.
        list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/-1"}]), json!([2, 1]));
        list(json!([{"op": "move", "from": "/spec/list/-1", "path": "/spec/list/-2"}]), json!([2, 1]));
        list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/-"}]), json!([2, 1]));
        list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/2"}]), Value::Null);
        list(json!([{"op": "move", "from": "/spec/list", "path": "/spec/list/0"}]), Value::Null);
        // On the way to something, too.
        list(
            json!([
                {"op": "add", "path": "/spec/list/-", "value": {"-1": [{}]}},
                {"op": "add", "path": "/spec/list/-1/-1/-1/a~1b", "value": 7},
            ]),
            json!([1, 2, {"-1": [{"a/b": 7}]}]),
        );
    }

    #[test]
    fn the_whole_document_is_replaced_and_nothing_else() {
        let whole = json!({"spec": {"n": 9}});
        check(PatchType::Json, &json!([{"op": "replace", "path": "", "value": whole}]), Ok(json!({"n": 9})));
        for operation in [
            json!({"op": "add", "path": "", "value": whole}),
            json!({"op": "copy", "from": "/spec", "path": ""}),
            json!({"op": "copy", "from": "", "path": "/spec"}),
            json!({"op": "move", "from": "/spec", "path": ""}),
            json!({"op": "move", "from": "", "path": "/spec"}),
            json!({"op": "remove", "path": ""}),
        ] {
            check(PatchType::Json, &json!([operation]), Err(422));
        }
    }

    #[test]
    fn merge_patches_apply() {
        use PatchType::Merge;
        check(Merge, &json!({"spec": {"n": null, "m": {"k": null}}}), Ok(json!({"list": [1, 2], "m": {}})));
        check(Merge, &json!([1]), Err(400));
        assert_eq!(parse(Merge, b"{").unwrap_err().code(), 400);
    }

    #[test]
    fn operations_are_limited() {
        let operation = json!({"op": "test", "path": "/spec/n", "value": 1});
        check(
            PatchType::Json,
            &Value::Array(vec![operation.clone(); MAX_OPERATIONS]),
            Ok(json!({"n": 1, "list": [1, 2]})),
        );
        let error = parse(PatchType::Json, Value::Array(vec![operation; 10_001]).to_string().as_bytes()).unwrap_err();
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
            let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
            patch.apply(&object, &Value::Null).map(drop).map_err(|error| error.code())
        };
        assert_eq!((apply("add", 100), apply("add", MAX_OPERATIONS)), (Ok(()), Err(422)));
        // What stays in its place shifts nothing.
        assert_eq!((apply("replace", MAX_OPERATIONS), apply("test", MAX_OPERATIONS)), (Ok(()), Ok(())));
    }

    #[test]
    fn unknown_fields_of_operations_are_told() {
        let patch = parse(PatchType::Json, br#"[{"op":"test","path":"/spec/n","value":1,"why":"x"}]"#).unwrap();
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
        let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
        assert_eq!(patch.check_strictly(&object(), Vec::new(), FieldValidation::Warn).unwrap().len(), 100);
    }
}
