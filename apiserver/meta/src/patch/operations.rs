//! The operations of a JSON patch, applied one after the other in bounds of time and memory.
//!
//! RFC 6902 is `json_patch`'s; where upstream's `json-patch.v4` takes more or less than it says is here. But a test compares
//! values, as the RFC has it, and not how they are written.

use std::borrow::Cow;

use json_patch::{AddOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf};
use serde_json::Value;

use crate::{request::MAX_REQUEST_BYTES, schema};

/// The most bytes, encoded, that all `copy` operations of a patch may make: a few of them that
/// double a value each time would otherwise fill the memory.
const MAX_COPIED_BYTES: usize = MAX_REQUEST_BYTES;

/// How deeply a document may be nested between two operations. More than any object may be in the end, so that such
/// patches fail in words of their own; and little enough for everything that walks a document.
const MAX_NESTING: usize = 4 * schema::MAX_DEPTH;

/// The most values that are looked at to see how deeply `copy` and `move` would nest the document.
const MAX_MEASURED_VALUES: usize = 8 << 20;

/// The most items that all operations together may have to make room in lists for what they add, or close ranks.
const MAX_SHIFTED_ITEMS: usize = 256 << 20;

/// Why an operation does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misapplied {
    /// It was a test, of what is at this path.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    /// What is wrong, in the words of the library that upstream has.
    #[error("{0}")]
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
pub fn apply_operations(document: &mut Value, operations: &[Value]) -> Result<(), Misapplied> {
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
            *pointer = pointer.split('/').skip(1).fold(String::new(), |path, token| path + "/" + &escaped(token));
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
                _ => Err(Misapplied::TestFailed(test.path.as_str().to_owned())),
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
        PatchOperation::Test(test) => Misapplied::TestFailed(test.path.as_str().to_owned()),
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
    // Before the first slash there should be nothing. Upstream looks at nothing there, but wants the slash.
    tokens.next()?;
    if tokens.peek().is_none() && !pointer.is_empty() {
        return None;
    }
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
