//! The entries of `metadata.managedFields`: field managers with their fields, encoded and decoded.
//!
//! Follows `k8s.io/apimachinery/pkg/util/managedfields/internal/managedfields.go`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stoa_cel::go::time;

use super::{set::Set, value};
use crate::status::quote;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// By a configuration that was applied.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells one owner from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// The version that the fields are of; empty for `Apply`, where it does not count.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl ManagerId {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// What upstream keeps managers by, and therefore sorts by: an entry without times and fields, as JSON.
    pub(super) fn sort_key(&self) -> String {
        let mut out = String::from("{");
        for (name, text) in [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.name()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ] {
            if !text.is_empty() {
                if out.len() > 1 {
                    out.push(',');
                }
                out.push_str(&format!("\"{name}\":"));
                value::write_json_string(text, true, &mut out);
            }
        }
        out.push('}');
        out
    }

    /// As conflicts name it: `"web" using v1`, and how the fields came to be owned is told by the version being there.
    pub(super) fn describe(&self) -> String {
        let mut out = quote(&self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {}", quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: Set,
    /// The version that the paths are of.
    pub(super) api_version: String,
    /// When the manager last changed something, in seconds since 1970.
    pub(super) time: Option<i64>,
}

pub(super) type Managers = BTreeMap<ManagerId, Owned>;

/// Whether a written `managedFields` asks for nobody to own anything: `[]` or `[{}]`.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => {
            only.values().all(|value| value.is_null() || value.as_str().is_some_and(str::is_empty))
        }
        _ => false,
    }
}

/// Whether a value has the types of an entry, whatever it says.
///
/// Follows `GetManagedFields` in `k8s.io/apimachinery/pkg/apis/meta/v1/unstructured`, which takes any `fieldsV1`.
pub(super) fn is_entry(value: &Value) -> bool {
    let Some(entry) = value.as_object() else { return false };
    let is_text = |name: &str| matches!(entry.get(name), None | Some(Value::Null | Value::String(_)));
    let is_time = match entry.get("time") {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => time::parse(text).is_ok(),
        Some(_) => false,
    };
    is_time && ["manager", "operation", "apiVersion", "fieldsType", "subresource"].into_iter().all(is_text)
}

pub(super) fn decode(entries: Option<&Value>) -> Result<Managers, String> {
    let mut managers = Managers::new();
    for (index, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("");
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                return Err(format!("invalid fieldsType {} in managed fields entry {index}", quote(other)));
            }
        }
        let set = Set::decode(entry.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|error| format!("error decoding versioned set: error decoding set: {error}"))?;
        let id = ManagerId {
            manager: text("manager").to_owned(),
            ..ManagerId::new("", operation, api_version, text("subresource"))
        };
        let time = text("time").parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second);
        managers.insert(id, Owned { set, api_version: api_version.to_owned(), time });
    }
    Ok(managers)
}

/// Writes `managedFields`, in the order that upstream gives them; nothing when nobody owns anything.
pub(super) fn encode(managers: &Managers) -> Option<Value> {
    if managers.is_empty() {
        return None;
    }
    let mut entries: Vec<_> = managers.iter().collect();
    entries.sort_by(|(a, owned_a), (b, owned_b)| {
        let by = |id: &ManagerId, owned: &Owned| (id.operation, owned.time.unwrap_or(0));
        by(a, owned_a)
            .cmp(&by(b, owned_b))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| owned_a.api_version.cmp(&owned_b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    Some(entries.into_iter().map(|(id, owned)| encode_entry(id, owned)).collect())
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let time = owned.time.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    for (name, text) in [
        ("manager", id.manager.clone()),
        ("operation", id.operation.name().to_owned()),
        ("apiVersion", owned.api_version.clone()),
        ("time", time.map(|time| time.to_string()).unwrap_or_default()),
        ("fieldsType", "FieldsV1".to_owned()),
        ("subresource", id.subresource.clone()),
    ] {
        if !text.is_empty() {
            entry.insert(name.to_owned(), text.into());
        }
    }
    entry.insert("fieldsV1".to_owned(), Value::Object(owned.set.encode()));
    Value::Object(entry)
}

/// Whether two written `managedFields` say the same but for the times.
pub fn same_but_for_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    fn list(entries: Option<&Value>) -> &[Value] {
        entries.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
    fn timeless(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
        entry.as_object().into_iter().flatten().filter(|(name, _)| *name != "time")
    }
    let (a, b) = (list(a), list(b));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| timeless(a).eq(timeless(b)))
}
