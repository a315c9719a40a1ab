//! The provider of a resource, as Kusion's extensions name it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::spec::{Resource, ResourceId, Spec};
use crate::state::{State, StateResource};

/// The extension with the provider: `[[HOST/]NAMESPACE/]TYPE[/VERSION]`.
pub const PROVIDER: &str = "provider";
/// The extension with the provider's type of the resource, such as `random_password`.
pub const RESOURCE_TYPE: &str = "resourceType";
/// The extension with the [mode](ResourceMode) of a resource, by the word of Terraform's states and JSON plans.
pub const MODE: &str = "mode";
/// The extension with the configuration of the provider for this resource.
pub const PROVIDER_META: &str = "providerMeta";

/// The extension with the [lock of the source](SourceLock), which the function-runner sets when it renders the Spec.
pub const SOURCE_LOCK: &str = "stoa.dev/provider-lock";

/// The lock of a provider by a lock file in the source. It is recorded with the resource, so that the provider can delete
/// the object after the source has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLock {
    /// The lock file, from the root of the source.
    pub file: String,
    /// The version; empty if the file does not have the provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The permitted checksums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<String>,
}

/// The version of a provider that a lock decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLock {
    /// The version.
    pub version: String,
    /// The lock, for people.
    pub by: String,
}

/// The providers that are locked to other versions than the recorded objects were applied with, for people. `lock` has the
/// lock that counts for a resource.
pub fn upgrades(spec: &Spec, state: &State, lock: impl Fn(&Resource) -> Option<ProviderLock>) -> Vec<String> {
    let recorded: HashMap<&ResourceId, &StateResource> = state.resources.iter().map(|it| (&it.id, it)).collect();
    let address = |extensions| ProviderReference::of(extensions).ok().map(|it| it.address.to_owned());
    let mut counts: BTreeMap<(String, String, String, String), usize> = BTreeMap::new();
    for resource in &spec.resources {
        let Some(record) = recorded.get(&resource.id) else { continue };
        let (Some(before), Some(now)) = (&record.provider_version, lock(resource)) else { continue };
        let Some(address) = address(&resource.extensions).filter(|it| address(&record.extensions).as_ref() == Some(it))
        else {
            continue;
        };
        if *before != now.version {
            *counts.entry((address, before.clone(), now.version, now.by)).or_default() += 1;
        }
    }
    let line = |((address, before, now, by), count): ((String, String, String, String), usize)| {
        let resources = if count == 1 { "1 resource".to_owned() } else { format!("{count} resources") };
        format!("provider {address} changes from {before} to {now} for {resources}, by {by}")
    };
    counts.into_iter().map(line).collect()
}

/// Which of a provider's types of that name a resource is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResourceMode {
    /// A resource, whose object the deployment has: `managed`, or no mode.
    #[default]
    Managed,
    /// A data source, whose object is only read: `data`.
    Data,
    /// An ephemeral resource, whose values exist during an apply alone: `ephemeral`.
    Ephemeral,
}

impl ResourceMode {
    const ALL: [(Self, &str); 3] = [(Self::Managed, "managed"), (Self::Data, "data"), (Self::Ephemeral, "ephemeral")];

    /// The mode by its word.
    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == word).map(|(mode, _)| mode)
    }

    /// The mode that extensions name; `None` of a wrong one.
    pub(crate) fn named(extensions: &Map<String, Value>) -> Option<Self> {
        match extensions.get(MODE) {
            None | Some(Value::Null) => Some(Self::Managed),
            Some(Value::String(word)) => Self::of(word),
            Some(_) => None,
        }
    }
}

/// The provider of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderReference<'a> {
    /// Its address, without the version.
    pub address: &'a str,
    /// The version, if the resource names one.
    pub version: Option<&'a str>,
    /// The provider's type of the resource.
    pub resource_type: &'a str,
    /// Whether the type is that of a resource, a data source or an ephemeral resource.
    pub mode: ResourceMode,
    /// The configuration for this resource, which takes precedence over that of the workspace.
    pub configuration: Option<&'a Map<String, Value>>,
    /// The lock of the source, for workspaces without one.
    pub lock: Option<SourceLock>,
}

/// Extensions that name no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderReferenceError {
    /// The field, such as `extensions.provider`.
    pub field: &'static str,
    /// What is wrong, and what to write.
    pub message: String,
}

impl<'a> ProviderReference<'a> {
    /// Reads the extensions of a resource.
    ///
    /// # Errors
    ///
    /// When one of them is missing or has another type.
    pub fn of(extensions: &'a Map<String, Value>) -> Result<Self, ProviderReferenceError> {
        let text = |key: &str, field: &'static str, example: &str| match extensions.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
            Some(_) => Err(ProviderReferenceError { field, message: format!("must be a text, such as {example}") }),
            None => Err(ProviderReferenceError { field, message: format!("is missing; set it, such as to {example}") }),
        };
        let provider = text(PROVIDER, "extensions.provider", "hashicorp/random/3.6.0")?;
        let resource_type = text(RESOURCE_TYPE, "extensions.resourceType", "random_password")?;
        let configuration = match extensions.get(PROVIDER_META) {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(_) => {
                let message = "must be a map of arguments of the provider".to_owned();
                return Err(ProviderReferenceError { field: "extensions.providerMeta", message });
            }
        };
        let mode = ResourceMode::named(extensions).ok_or_else(|| {
            let words: Vec<&str> = ResourceMode::ALL.iter().map(|(_, word)| *word).collect();
            let message = format!("must be one of {}", words.join(", "));
            ProviderReferenceError { field: "extensions.mode", message }
        })?;
        let lock = extensions.get(SOURCE_LOCK).map(SourceLock::deserialize).transpose().map_err(|_| {
            let message = "is set by Stoa from the lock file of the source; remove it".to_owned();
            ProviderReferenceError { field: "extensions[\"stoa.dev/provider-lock\"]", message }
        })?;
        let (address, version) = match provider.rsplit_once('/') {
            Some((address, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
                (address, Some(version))
            }
            Some(_) | None => (provider, None),
        };
        Ok(Self { address, version, resource_type, mode, configuration, lock })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_may_have_version() {
        let extensions = |provider: &str| json!({"provider": provider, "resourceType": "random_id"});
        for (provider, address, version) in [
            ("random", "random", None),
            ("hashicorp/random", "hashicorp/random", None),
            ("hashicorp/random/3.6.0", "hashicorp/random", Some("3.6.0")),
            ("example.com/a/b/0.1.0-rc1", "example.com/a/b", Some("0.1.0-rc1")),
        ] {
            let extensions = extensions(provider);
            let found = ProviderReference::of(extensions.as_object().unwrap()).unwrap();
            assert_eq!((found.address, found.version), (address, version));
        }
        for (extensions, field) in [
            (json!({"resourceType": "a"}), "extensions.provider"),
            (json!({"provider": 1, "resourceType": "a"}), "extensions.provider"),
            (json!({"provider": "a"}), "extensions.resourceType"),
            (json!({"provider": "a", "resourceType": "b", "providerMeta": []}), "extensions.providerMeta"),
            (json!({"provider": "a", "resourceType": "b", "mode": "source"}), "extensions.mode"),
            (json!({"provider": "a", "resourceType": "b", "mode": true}), "extensions.mode"),
        ] {
            assert_eq!(ProviderReference::of(extensions.as_object().unwrap()).unwrap_err().field, field);
        }
    }
}
