//! A `terraform.tfstate` of version 4, read from a Backend for an import, and written for users who leave Stoa.
//!
//! Start at `read` and `write`. The values of a state are secrets: no message quotes any.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use stoa_engine::import::ForeignRecord;
use stoa_engine::provider::{PROVIDER, RESOURCE_TYPE};
use stoa_engine::secret_digest::is_masked;
use stoa_engine::{
    ProviderReference, ProviderState, ResourceId, ResourceType, StateResource, StoredIdentity, StoredState,
};
use stoa_storage::documents::DocumentStore;
use stoa_types::{delivery::TerraformState, reason};

use super::StepError;
use crate::kusion::file_of;

/// The version of the form.
const VERSION: u64 = 4;

/// The namespace and host of providers without one.
const HOST: &str = "registry.terraform.io";

/// A state that was read.
#[derive(Debug)]
pub(super) struct Found {
    file: String,
    pub(super) records: Vec<ForeignRecord>,
}

impl Found {
    /// What was found, for the log of the run.
    pub(super) fn summary(&self) -> String {
        format!("{}: a state of Terraform with {} resources", self.file, self.records.len())
    }
}

/// Reads the state from a Backend.
///
/// # Errors
///
/// Failed with the file, the resource and the remedy when it does not exist or cannot be used; Retry when the Backend
/// cannot be reached.
pub(super) async fn read(store: &dyn DocumentStore, asked: &TerraformState) -> Result<Found, StepError> {
    let file = asked.path.clone();
    let failed = |why: String| StepError::failed(reason::IMPORT_FAILED, format!("{file}: {why}. Nothing was recorded"));
    let Some(bytes) = file_of(store, &file).await? else {
        return Err(failed("the Backend has no such file; copy the state there".to_owned()));
    };
    let parsed = tokio::task::spawn_blocking(move || parse(&bytes)).await;
    let records = parsed.map_err(|_| failed("it cannot be read".to_owned()))?.map_err(failed)?;
    Ok(Found { file, records })
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u64,
    #[serde(default)]
    terraform_version: String,
    #[serde(default)]
    serial: u64,
    #[serde(default)]
    lineage: String,
    #[serde(default)]
    outputs: Map<String, Value>,
    #[serde(default)]
    resources: Vec<ResourceEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ResourceEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    provider: String,
    instances: Vec<Instance>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Instance {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_key: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deposed: Option<String>,
    #[serde(default)]
    schema_version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sensitive_attributes: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity_schema_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    private: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<String>,
}

/// The records of a file. The errors name resources and no values.
fn parse(bytes: &[u8]) -> Result<Vec<ForeignRecord>, String> {
    let file: File = serde_json::from_slice(bytes)
        .map_err(|error| format!("line {} is not that of a Terraform state in JSON", error.line()))?;
    if file.version != VERSION {
        return Err(format!(
            "its version is {}, and {VERSION} is required; run `terraform refresh` with Terraform 0.12 or later",
            file.version
        ));
    }
    let managed = file.resources.into_iter().filter(|resource| resource.mode == "managed");
    let mut records = BTreeMap::new();
    let mut ids_of: BTreeMap<String, Vec<ResourceId>> = BTreeMap::new();
    for resource in managed {
        let address = address(&resource);
        let provider = provider(&resource.provider).ok_or_else(|| format!("{address} has no readable provider"))?;
        for instance in resource.instances {
            let id = id(&provider, &resource.kind, &name(resource.module.as_deref(), &resource.name, &instance));
            if instance.deposed.is_some() {
                return Err(format!("{address} has a deposed object; apply it with Terraform first"));
            }
            let Some(attributes) = instance.attributes else {
                return Err(format!("{address} has no attributes; run `terraform refresh` with a later Terraform"));
            };
            let identity = instance.identity.map(|attributes| StoredIdentity {
                schema_version: instance.identity_schema_version.unwrap_or_default(),
                attributes,
            });
            let stored = StoredState {
                private: instance.private,
                identity,
                tainted: instance.status.as_deref() == Some("tainted"),
                ..StoredState::new(Some(instance.schema_version), attributes)
            };
            let extensions = [(PROVIDER, provider.as_str()), (RESOURCE_TYPE, resource.kind.as_str())];
            let extensions = extensions.map(|(name, value)| (name.to_owned(), Value::from(value)));
            let record = ForeignRecord {
                id: id.clone(),
                kind: ResourceType::Terraform,
                extensions: extensions.into_iter().collect(),
                provider_state: Some(stored.to_recorded()),
                ..ForeignRecord::default()
            };
            ids_of.entry(address.clone()).or_default().push(id.clone());
            if records.insert(id.clone(), (record, instance.dependencies)).is_some() {
                return Err(format!("two resources have the id {id}"));
            }
        }
    }
    let records = records.into_values().map(|(record, dependencies)| {
        let depends_on = dependencies.iter().filter_map(|address| ids_of.get(address)).flatten().cloned().collect();
        ForeignRecord { depends_on, ..record }
    });
    Ok(records.collect())
}

/// The address without an index, as dependencies name it.
fn address(resource: &ResourceEntry) -> String {
    let own = format!("{}.{}", resource.kind, resource.name);
    resource.module.as_ref().map_or(own.clone(), |module| format!("{module}.{own}"))
}

/// The address in `module.a.provider["host/namespace/type"].alias`.
fn provider(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("provider[\"")?;
    let (address, _) = rest.split_once('"')?;
    (address.split('/').count() == 3).then(|| address.to_owned())
}

/// The name in the id: that of the resource, after its module and before its index.
fn name(module: Option<&str>, name: &str, instance: &Instance) -> String {
    let module = module.map(|module| format!("{module}.")).unwrap_or_default();
    let index = instance.index_key.as_ref().map(|index| format!("[{index}]")).unwrap_or_default();
    format!("{module}{name}{index}")
}

/// The id of a resource, as Kusion forms it.
fn id(provider: &str, kind: &str, name: &str) -> ResourceId {
    let mut parts = provider.rsplit('/');
    let (provider, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    ResourceId(format!("{namespace}:{provider}:{kind}:{name}"))
}

/// The records of resources of providers as a state of Terraform. Their states are in clear.
///
/// # Errors
///
/// The id of a record whose state or provider cannot be read.
pub fn write<'r>(
    records: impl IntoIterator<Item = &'r StateResource>,
    serial: u64,
    lineage: &str,
) -> Result<String, ResourceId> {
    let of_terraform: Vec<&StateResource> =
        records.into_iter().filter(|record| record.kind == ResourceType::Terraform).collect();
    let mut resources = Vec::new();
    for record in &of_terraform {
        let failed = || record.id.clone();
        let text = record.provider_state.as_ref().and_then(ProviderState::open).ok_or_else(failed)?;
        let stored = StoredState::parse(text).map_err(|_| failed())?;
        let reference = ProviderReference::of(&record.extensions).map_err(|_| failed())?;
        let (module, name, index_key) = parts_of(&record.id);
        let (identity_schema_version, identity) =
            stored.identity.map(|identity| (identity.schema_version, identity.attributes)).unzip();
        let instance = Instance {
            index_key,
            status: stored.tainted.then(|| "tainted".to_owned()),
            deposed: None,
            schema_version: stored.schema_version.unwrap_or_default(),
            attributes: Some(stored.attributes),
            sensitive_attributes: sensitive_attributes(record),
            identity_schema_version,
            identity,
            private: stored.private,
            dependencies: record.depends_on.iter().filter_map(|id| dependency(&of_terraform, id)).collect(),
        };
        resources.push(ResourceEntry {
            module,
            mode: "managed".to_owned(),
            kind: reference.resource_type.to_owned(),
            name,
            provider: format!("provider[\"{}\"]", whole_address(reference.address)),
            instances: vec![instance],
        });
    }
    let file = File {
        version: VERSION,
        terraform_version: "1.11.4".to_owned(),
        serial,
        lineage: lineage.to_owned(),
        outputs: Map::new(),
        resources: merged(resources),
    };
    // A text, because a value would round numbers.
    Ok(serde_json::to_string(&file).expect("a state is JSON"))
}

/// The paths of sensitive attributes, by the masks in the record. A state without them shows changes of sensitivity in a plan
/// without a refresh. A member of an attribute has both forms, that of an object and that of a map: the record does not tell
/// which one it is, and Terraform ignores a path that leads nowhere.
fn sensitive_attributes(record: &StateResource) -> Vec<Value> {
    let attribute = |name: &str| json!({"type": "get_attr", "value": name});
    let key = |name: &str| json!({"type": "index", "value": {"value": name, "type": "string"}});
    let mut paths = Vec::new();
    for (name, value) in &record.live {
        match value {
            value if is_masked(value) => paths.push(json!([attribute(name)])),
            Value::Object(members) => {
                for (member, _) in members.iter().filter(|(_, value)| is_masked(value)) {
                    paths.extend([attribute(member), key(member)].map(|step| json!([attribute(name), step])));
                }
            }
            _ => {}
        }
    }
    paths
}

/// One entry for each resource, with all its instances.
fn merged(entries: Vec<ResourceEntry>) -> Vec<ResourceEntry> {
    let mut all: Vec<ResourceEntry> = Vec::new();
    for entry in entries {
        let is_it = |other: &&mut ResourceEntry| address(other) == address(&entry) && other.provider == entry.provider;
        match all.iter_mut().find(is_it) {
            Some(other) => other.instances.extend(entry.instances),
            None => all.push(entry),
        }
    }
    all
}

fn whole_address(address: &str) -> String {
    match address.split('/').count() {
        1 => format!("{HOST}/hashicorp/{address}"),
        2 => format!("{HOST}/{address}"),
        _ => address.to_owned(),
    }
}

/// The module, the name and the index that an id has.
fn parts_of(id: &ResourceId) -> (Option<String>, String, Option<Value>) {
    let name = id.0.splitn(4, ':').nth(3).unwrap_or(&id.0);
    let (name, index) = match name.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
        Some((name, index)) => (name, serde_json::from_str(index).ok()),
        None => (name, None),
    };
    match name.rsplit_once('.') {
        Some((module, name)) if module.starts_with("module.") => (Some(module.to_owned()), name.to_owned(), index),
        Some(_) | None => (None, name.to_owned(), index),
    }
}

fn dependency(records: &[&StateResource], id: &ResourceId) -> Option<String> {
    let record = records.iter().find(|record| record.id == *id)?;
    let reference = ProviderReference::of(&record.extensions).ok()?;
    let (module, name, _) = parts_of(id);
    let own = format!("{}.{name}", reference.resource_type);
    Some(module.map_or(own.clone(), |module| format!("{module}.{own}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{
      "version": 4, "terraform_version": "1.11.4", "serial": 3, "lineage": "l", "outputs": {},
      "resources": [
        {"mode": "data", "type": "local_file", "name": "x", "provider": "provider[\"registry.terraform.io/hashicorp/local\"]", "instances": []},
        {"mode": "managed", "type": "random_pet", "name": "name", "provider": "provider[\"registry.terraform.io/hashicorp/random\"]",
         "instances": [{"schema_version": 0, "attributes": {"id": "a", "length": 100000000000000000000001}, "private": "bnVsbA=="}]},
        {"module": "module.db", "mode": "managed", "type": "random_password", "name": "db", "provider": "module.db.provider[\"registry.terraform.io/hashicorp/random\"].eu",
         "instances": [
           {"index_key": "a", "schema_version": 3, "status": "tainted", "attributes": {"result": "hunter2"}, "dependencies": ["random_pet.name"]},
           {"index_key": 1, "schema_version": 3, "attributes": {"result": "hunter3"}}]}
      ]}"#;

    #[test]
    fn managed_resources_become_records() {
        let records = parse(STATE.as_bytes()).unwrap();
        let ids: Vec<&str> = records.iter().map(|record| record.id.0.as_str()).collect();
        let db = "hashicorp:random:random_password:module.db.db";
        let pet = "hashicorp:random:random_pet:name";
        assert_eq!(ids, [&format!("{db}[\"a\"]"), &format!("{db}[1]"), pet]);
        assert_eq!(records[0].depends_on, [ResourceId::from(pet)]);
        let stored = StoredState::parse(records[0].provider_state.as_ref().unwrap().open().unwrap()).unwrap();
        assert!(stored.tainted && stored.schema_version == Some(3));
        let pet = StoredState::parse(records[2].provider_state.as_ref().unwrap().open().unwrap()).unwrap();
        assert!(pet.attributes.get().contains("100000000000000000000001") && pet.private == "bnVsbA==");
    }

    #[test]
    fn written_state_reads_as_before() {
        let records = parse(STATE.as_bytes()).unwrap();
        let recorded: Vec<StateResource> = records
            .iter()
            .map(|record| StateResource {
                id: record.id.clone(),
                kind: record.kind,
                extensions: record.extensions.clone(),
                depends_on: record.depends_on.clone(),
                provider_state: record.provider_state.clone(),
                ..StateResource::default()
            })
            .collect();
        let written = write(&recorded, 4, "l").unwrap();
        let file: File = serde_json::from_str(&written).unwrap();
        assert_eq!((file.resources.len(), file.serial), (2, 4));
        assert_eq!(parse(written.as_bytes()).unwrap(), records);
    }

    #[test]
    fn written_state_names_sensitive_attributes() {
        let mask = json!({"$sensitive": "hmac-sha256:00"});
        let live = json!({"id": "a", "keepers": {"a": "b", "secret": mask}, "result": mask, "list": [mask]});
        let record = StateResource { live: live.as_object().unwrap().clone(), ..StateResource::default() };
        let attribute = |name: &str| json!({"type": "get_attr", "value": name});
        let key = json!({"type": "index", "value": {"value": "secret", "type": "string"}});
        let expected = [
            json!([attribute("keepers"), attribute("secret")]),
            json!([attribute("keepers"), key]),
            json!([attribute("result")]),
        ];
        assert_eq!(sensitive_attributes(&record), expected);
    }

    #[test]
    fn unusable_states_are_refused_without_values() {
        for (from, to, told) in [
            ("\"version\": 4", "\"version\": 3", "version is 3"),
            ("\"status\": \"tainted\"", "\"deposed\": \"x\"", "module.db.random_password.db has a deposed object"),
            ("\"attributes\": {\"result\": \"hunter2\"}", "\"attributes_flat\": {}", "has no attributes"),
            ("provider[\\\"registry.terraform.io/hashicorp/random\\\"].eu", "x", "no readable provider"),
            ("\"index_key\": 1", "\"index_key\": \"a\"", "two resources have the id"),
            ("\"resources\": [", "\"resources\": [,", "line"),
        ] {
            assert!(STATE.contains(from), "{from}");
            let why = parse(STATE.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(why.contains(told) && !why.contains("hunter"), "{why}");
        }
    }
}
