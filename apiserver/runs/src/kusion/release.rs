//! A release of Kusion, as its file has it.
//!
//! ```yaml
//! project: web
//! workspace: dev
//! revision: 2
//! stack: dev
//! spec: {…}                                  # what was wanted; not read
//! state:
//!   resources:
//!   - {id: "v1:ConfigMap:web:a", type: Kubernetes, attributes: {…}, dependsOn: […], extensions: {…}}
//! phase: succeeded
//! createTime: 2025-01-01T00:00:00Z
//! modifiedTime: 2025-01-01T00:00:00Z
//! ```
//!
//! Kusion writes these fields in this order, so that a file which was cut off has no `modifiedTime`, or half of one. Keys
//! are compared without regard to case, as Go's decoders of JSON do.
//!
//! Follows `pkg/apis/api.kusion.io/v1` of Kusion, from 0.12 on.

use std::collections::BTreeSet;

use serde_json::{Map, Value, value::RawValue};
use stoa_engine::{
    ObjectRef, ProviderReference, ResourceId, ResourceType, StoredState,
    import::{ForeignRecord, IMPORT_ID, disagreement},
};
use stoa_machinery::schema::{self, Format};

/// So many characters of an id are told.
const TOLD: usize = 200;

/// What a file has to say of itself. What is absent may be anything.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) project: Option<String>,
    pub(super) workspace: Option<String>,
    pub(super) revision: u64,
}

/// What is taken over.
#[derive(Debug, PartialEq)]
pub(super) struct Release {
    /// `succeeded` or `failed`.
    pub(super) phase: String,
    /// Its resources, without their values.
    pub(super) records: Vec<ForeignRecord>,
}

const RELEASE: &[&str] =
    &["project", "workspace", "revision", "stack", "spec", "state", "phase", "createTime", "modifiedTime"];
const STATE: &[&str] = &["resources"];
const RESOURCE: &[&str] = &["id", "type", "attributes", "dependsOn", "extensions"];
const METADATA: &[&str] = &["latestRevision", "releaseMetaDatas"];

/// The number of the latest release, by `.metadata.yml`.
pub(super) fn latest(bytes: &[u8]) -> Result<u64, String> {
    let fields = Fields::of(document(bytes)?, "the file", METADATA)?;
    match fields.get("latestRevision").and_then(Value::as_u64) {
        Some(0) | None => Err("it names no latest release".to_owned()),
        Some(latest) => Ok(latest),
    }
}

/// Reads a release.
///
/// # Errors
///
/// Why it cannot be taken over and what to do, without any of its values.
pub(super) fn parse(bytes: &[u8], expected: &Expected) -> Result<Release, String> {
    let mut fields = Fields::of(document(bytes)?, "the release", RELEASE)?;
    let modified = fields.text("modifiedTime").unwrap_or_default();
    let (Some(phase), Ok(_)) = (fields.text("phase").map(str::to_owned), modified.parse::<jiff::Timestamp>()) else {
        return Err("it is cut off, or no release of Kusion: it has no phase or no modifiedTime".to_owned());
    };
    for (field, expected) in [("project", &expected.project), ("workspace", &expected.workspace)] {
        let found = fields.text(field).unwrap_or_default();
        if expected.as_ref().is_some_and(|expected| expected != found) {
            return Err(format!("it is of another {field}"));
        }
    }
    if fields.get("revision").and_then(Value::as_u64) != Some(expected.revision) {
        return Err("its revision differs from its name".to_owned());
    }
    match phase.as_str() {
        "succeeded" | "failed" => {}
        "generating" | "previewing" | "applying" | "rollbacking" | "destroying" => {
            return Err(format!(
                "it is {phase}: Kusion is working on it, or was stopped. Wait, or end it with `kusion release \
                 unlock`, or name an earlier revision"
            ));
        }
        _ => return Err("its phase is unknown: a later Kusion wrote it".to_owned()),
    }
    let resources = match fields.take("state") {
        Value::Null => Value::Null,
        state => Fields::of(state, "the state", STATE)?.take("resources"),
    };
    let resources = match resources {
        Value::Null => Vec::new(),
        Value::Array(resources) => resources,
        _ => return Err("state.resources is not a list".to_owned()),
    };
    let mut records = Vec::with_capacity(resources.len());
    let mut ids = BTreeSet::new();
    for (position, resource) in resources.into_iter().enumerate() {
        let record = record(position, resource)?;
        if !ids.insert(record.id.clone()) {
            return Err(format!("it has {} twice", told(&record.id.0)));
        }
        records.push(record);
    }
    for record in &mut records {
        // What it does not have on record cannot be waited for.
        record.depends_on.retain(|id| ids.contains(id));
    }
    Ok(Release { phase, records })
}

/// One resource of the state. Its attributes go no further than this.
fn record(position: usize, resource: Value) -> Result<ForeignRecord, String> {
    let at = format!("state.resources[{position}]");
    let mut fields = Fields::of(resource, &at, RESOURCE)?;
    let Some(id) = fields.text("id").filter(|id| !id.trim().is_empty() && id.len() <= 1024) else {
        return Err(format!("{at} has no id"));
    };
    let id = ResourceId(id.to_owned());
    let name = told(&id.0);
    match fields.text("type") {
        Some("Kubernetes") => {}
        Some("Terraform") => return of_provider(id, &name, fields),
        Some(_) => return Err(format!("{name} has an unknown type: a later Kusion wrote it")),
        None => return Err(format!("{name} has no type")),
    }
    let Value::Object(attributes) = fields.take("attributes") else {
        return Err(format!("{name} has no attributes"));
    };
    if let Some(why) = disagreement(&id, &attributes) {
        return Err(format!("{name} is not the object that it says: {}", why.field));
    }
    let depends_on = depends_on(&name, &mut fields)?;
    let extensions = match fields.take("extensions") {
        Value::Null => Map::new(),
        Value::Object(mut extensions) => {
            // Others say how Kusion reaches it, which may be anything.
            let import_id = extensions.remove(IMPORT_ID).filter(Value::is_string);
            import_id.into_iter().map(|import_id| (IMPORT_ID.to_owned(), import_id)).collect()
        }
        _ => return Err(format!("{name}: extensions is not a map")),
    };
    let unplaced = ObjectRef::of(&attributes).is_some_and(|object| object.namespace.is_empty());
    Ok(ForeignRecord { id, depends_on, extensions, unplaced, ..ForeignRecord::default() })
}

/// A resource of a provider. Its attributes are the state that the provider needs back: Kusion keeps neither private
/// data nor the version of the schema, which is that of the provider.
fn of_provider(id: ResourceId, name: &str, mut fields: Fields) -> Result<ForeignRecord, String> {
    let attributes = match fields.take("attributes") {
        attributes @ Value::Object(_) => RawValue::from_string(attributes.to_string()),
        _ => return Err(format!("{name} has no attributes")),
    };
    let attributes = attributes.map_err(|_| format!("{name} has no readable attributes"))?;
    let depends_on = depends_on(name, &mut fields)?;
    let extensions = match fields.take("extensions") {
        Value::Object(extensions) => extensions,
        _ => return Err(format!("{name} has no extensions")),
    };
    ProviderReference::of(&extensions).map_err(|error| format!("{name}: {} {error}", error.field))?;
    Ok(ForeignRecord {
        id,
        depends_on,
        extensions,
        kind: ResourceType::Terraform,
        provider_state: Some(StoredState::new(None, attributes).to_recorded()),
        ..ForeignRecord::default()
    })
}

fn depends_on(name: &str, fields: &mut Fields) -> Result<Vec<ResourceId>, String> {
    match fields.take("dependsOn") {
        Value::Null => Ok(Vec::new()),
        Value::Array(ids) => Ok(ids.iter().filter_map(Value::as_str).map(ResourceId::from).collect()),
        _ => Err(format!("{name}: dependsOn is not a list")),
    }
}

fn document(bytes: &[u8]) -> Result<Value, String> {
    // The words of a parser may quote what is there.
    let parsed = schema::parse(bytes, Format::Yaml).map_err(|error| match line_in(&error.to_string()) {
        Some(line) => format!("it cannot be read from line {line} on, or expands beyond the size limit"),
        None => "it cannot be read: it is not YAML in UTF-8, or expands beyond the size limit".to_owned(),
    })?;
    if !parsed.strict.is_empty() {
        return Err("it has a key twice, so Kusion did not write it".to_owned());
    }
    Ok(parsed.value)
}

struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of a value by the names that are known.
    fn of(value: Value, of: &str, known: &[&str]) -> Result<Self, String> {
        let Value::Object(map) = value else { return Err(format!("{of} is not a map")) };
        let mut fields = Map::new();
        for (key, value) in map {
            // Where a file is damaged, a key may be anything, too.
            let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(&key)) else {
                let known = known.join(", ");
                return Err(format!("{of} has a field that is none of {known}: it is damaged, or of a later Kusion"));
            };
            if fields.insert((*name).to_owned(), value).is_some() {
                return Err(format!("{of} has the field {name} twice"));
            }
        }
        Ok(Self(fields))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    fn take(&mut self, name: &str) -> Value {
        self.0.remove(name).unwrap_or_default()
    }
}

/// The beginning of an id, without what could be taken for something else.
fn told(id: &str) -> String {
    id.chars().filter(|c| !c.is_control()).take(TOLD).collect()
}

fn line_in(error: &str) -> Option<u64> {
    let (_, rest) = error.split_once("line ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests;
