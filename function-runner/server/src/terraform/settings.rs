//! The providers of a workspace, as `spec.terraform` and its Secrets say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use stoa_engine::{FieldPath, Sensitive};
use stoa_outbound::causes;
use stoa_proto::{Problem, ProviderSecrets, Workspace};
use stoa_pulls::Credentials;
use stoa_runtime_terraform::ProviderRequest;
use stoa_terraform_provider::package::{Address, LockFile};
use stoa_terraform_provider::process::Network;
use stoa_terraform_provider::value::Json;

use crate::failure::{Failure, problem, reason};
use crate::local::is_below;
use crate::secret_store::Variable;

use super::failure::Failed;
use super::mirror::Mirror;
use super::registry_mirror::RegistryMirror;

/// `spec.terraform` of a Workspace.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default)]
    mirror: MirrorSpec,
    #[serde(default)]
    lock: String,
    #[serde(default)]
    network: NetworkSpec,
    #[serde(default)]
    providers: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MirrorSpec {
    #[serde(default)]
    directory: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    repository_template: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum NetworkSpec {
    #[default]
    Allow,
    Deny,
}

/// The workspace's configuration of a provider.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    source: String,
    #[serde(default)]
    configuration: Map<String, Value>,
}

/// The settings, with the secrets that they refer to.
pub(super) struct Settings {
    /// The name of the workspace.
    pub(super) workspace: String,
    pub(super) mirror: Mirror,
    /// The lock of the workspace. Without one, that of the source counts.
    pub(super) lock: Option<LockFile>,
    pub(super) network: Network,
    entries: BTreeMap<Address, Entry>,
    secrets: HashMap<String, ProviderSecrets>,
    /// Variables for the environment of all providers, from `spec.context`. A provider's own ones take precedence.
    variables: BTreeMap<String, Variable>,
}

/// A provider's configuration, with the one that the resource names.
pub(super) struct Configured {
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) configuration: Json,
    /// The texts that no message may have.
    pub(super) secrets: Sensitive,
}

/// A problem of a workspace's settings.
fn unusable(why: &str, field: &str, message: impl Into<String>) -> Failure {
    Failure::invalid(vec![Problem { field: format!("spec.terraform.{field}"), ..problem(why, message) }])
}

impl Settings {
    /// Reads the settings. A filesystem mirror has to be below one of the folders.
    pub(super) fn new(spec: Spec, workspace: &Workspace, folders: &[PathBuf]) -> Result<Self, Failure> {
        let shown = &workspace.mirror_credentials;
        let MirrorSpec { directory, url, repository_template } = spec.mirror;
        let mirror = match (directory.as_str(), url.as_str(), repository_template.as_str()) {
            ("", "", "") => {
                let message = "is missing; set directory, url or repositoryTemplate";
                return Err(unusable(reason::NO_RUNTIME, "mirror", message));
            }
            (directory, "", "") if is_below(directory.as_ref(), folders) => Mirror::Folder(directory.into()),
            (directory, "", "") => {
                let message = format!(
                    "{directory} is a path on the machine of the function-runner that its --provider-mirrors does not \
                     allow; use spec.terraform.mirror.url, or add the folder there"
                );
                return Err(unusable(reason::SOURCE_UNAUTHORIZED, "mirror.directory", message));
            }
            ("", url, "") => Mirror::Url(url.to_owned(), Credentials::of_keys(|key| shown.get(key).map(|it| &it[..]))),
            ("", "", _) => Mirror::Registry(RegistryMirror { template: repository_template, keys: shown.clone() }),
            (_, _, _) => {
                let message = "has several of directory, url and repositoryTemplate; remove all but one";
                return Err(unusable(reason::NO_RUNTIME, "mirror", message));
            }
        };
        let lock = Some(spec.lock.as_str()).filter(|lock| !lock.trim().is_empty()).map(LockFile::parse).transpose();
        let lock = lock.map_err(|error| unusable(reason::NO_RUNTIME, "lock", causes(&error)))?;
        let mut entries = BTreeMap::new();
        for entry in spec.providers {
            let field = format!("providers[name={}].source", entry.name);
            let address: Address =
                entry.source.parse().map_err(|error| unusable(reason::NO_RUNTIME, &field, format!("{error}")))?;
            if let Some(other) = entries.insert(address, entry) {
                let message = format!("is the provider of entry {:?} too; a provider has one entry", other.name);
                return Err(unusable(reason::NO_RUNTIME, &field, message));
            }
        }
        let network = match spec.network {
            NetworkSpec::Allow => Network::Allow,
            NetworkSpec::Deny => Network::Deny,
        };
        let (workspace, secrets) = (workspace.name.clone(), workspace.provider_secrets.clone());
        Ok(Self { workspace, mirror, lock, network, entries, secrets, variables: BTreeMap::new() })
    }

    /// The same with variables for the environment of all providers.
    pub(super) fn with_variables(self, variables: BTreeMap<String, Variable>) -> Self {
        Self { variables, ..self }
    }

    /// The entry of a provider, if it has one.
    pub(super) fn entry(&self, address: &Address) -> Option<&Entry> {
        self.entries.get(address)
    }

    /// The workspace's configuration, then its secrets, then the resource's own configuration: argument by argument.
    pub(super) fn configured(&self, request: &ProviderRequest<'_>) -> Result<Configured, Failed> {
        let none = ProviderSecrets::default();
        let entry = self.entry(request.address);
        let secrets = entry.and_then(|entry| self.secrets.get(&entry.name)).unwrap_or(&none);
        let of_entry = |key: &str, what: &str, problem: &str| {
            let (address, workspace) = (request.address, &self.workspace);
            let name = entry.map(|entry| entry.name.as_str()).unwrap_or_default();
            Failed::lasting(format!(
                "provider {address} cannot be configured: key {key:?} in the {what} of provider {name:?} of workspace \
                 {workspace} {problem}"
            ))
        };
        let mut hidden = Map::new();
        let mut arguments = entry.map(|entry| entry.configuration.clone()).unwrap_or_default();
        for (name, value) in sorted(&secrets.configuration) {
            let text = std::str::from_utf8(value)
                .map_err(|_| of_entry(name, "configuration Secret", "is no text; encode it, such as in base64"))?;
            hidden.insert(format!("configuration {name}"), text.into());
            arguments.insert(name.clone(), text.into());
        }
        arguments
            .extend(request.configuration.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        let mut environment = Vec::new();
        for (name, Variable { value, is_secret }) in &self.variables {
            if value.contains('\0') {
                let why = format!("spec.context[{name:?}] of workspace {} has a zero byte", self.workspace);
                return Err(Failed::lasting(why));
            }
            if !secrets.environment.contains_key(name) {
                environment.push((name.into(), value.into()));
            }
            if *is_secret {
                hidden.insert(format!("context {name}"), value.as_str().into());
            }
        }
        for (name, value) in sorted(&secrets.environment) {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains(&0) {
                return Err(of_entry(name, "environment Secret", "is no variable of an environment; rename it"));
            }
            hidden.insert(format!("environment {name}"), String::from_utf8_lossy(value).into());
            environment.push((name.into(), OsString::from_vec(value.to_vec())));
        }
        let paths: BTreeSet<FieldPath> = hidden.keys().map(|key| FieldPath::of_keys([key.as_str()])).collect();
        let configuration = Json::from(&Value::Object(arguments));
        Ok(Configured { environment, configuration, secrets: Sensitive::of(&hidden, &paths) })
    }

    /// The providers with a configuration, and a digest of it without secrets: those may be renewed at any time.
    pub(super) fn destination(&self) -> String {
        let configured = self.entries.iter().filter(|(_, entry)| !entry.configuration.is_empty());
        let shown = configured.map(|(address, entry)| {
            let digest = Sha256::digest(Value::from(entry.configuration.clone()).to_string());
            let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{address} with configuration {digest}")
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() {
            "Terraform providers".to_owned()
        } else {
            format!("Terraform providers {}", shown.join(", "))
        }
    }
}

fn sorted(values: &HashMap<String, Bytes>) -> BTreeMap<&String, &Bytes> {
    values.iter().collect()
}
