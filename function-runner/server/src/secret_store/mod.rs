//! Secret stores: the values that a Spec names as `ref://<name>/<property>`, read right before the infrastructure is called.
//!
//! Start at [`resolve`]. The values are in memory only: plans mask them, and states have digests of them, as they are
//! declared sensitive (`stoa_engine::stored_secret`). A Workspace has a default store, `spec.secretStore`, and others by name,
//! `spec.secretStores`, which `?store=` chooses.
//!
//! Elsewhere: `vault`, `aws`, `azure` and `alicloud` read from services, by the requests of `service`; `file` reads an
//! encrypted file of the source. The API server reads Kubernetes Secrets, and sends those that the Spec names.

mod alicloud;
mod aws;
mod azure;
mod credentials;
mod file;
mod service;
mod vault;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::Spec;
use stoa_engine::stored_secret::{StoredSecret, replace, stored_secrets};
use stoa_proto::Target;
use tonic::Code;

use self::credentials::Credentials;
use self::service::{Region, Store};
use crate::failure::{Failure, reason};

/// The values by the texts that name them.
type Values = BTreeMap<StoredSecret, String>;

/// The number of parallel requests to a store.
const AT_ONCE: usize = 8;

/// The part of a Workspace's spec that this module reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceSpec {
    #[serde(default)]
    secret_store: SecretStore,
    #[serde(default)]
    secret_stores: Vec<NamedStore>,
    #[serde(default)]
    context: Map<String, Value>,
}

/// A variable of the environment of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) value: String,
    /// Whether it is from a secret store, so that no message may have it.
    pub(crate) is_secret: bool,
}

#[derive(Default, Deserialize)]
struct SecretStore {
    #[serde(default)]
    provider: Provider,
}

/// A store that `?store=` chooses.
#[derive(Deserialize)]
struct NamedStore {
    name: String,
    provider: Provider,
}

/// The provider of a store, by its name in Kusion.
#[derive(Clone, Default, Deserialize)]
struct Provider {
    kubernetes: Option<Value>,
    vault: Option<vault::Settings>,
    aws: Option<Region>,
    azure: Option<azure::Settings>,
    alicloud: Option<Region>,
    file: Option<file::Settings>,
    /// Those that Stoa does not read.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// The Spec with the values of its workspace's secret store.
pub(crate) async fn resolve(mut spec: Spec, target: &Target) -> Result<Spec, Failure> {
    let named = stored_secrets(&spec);
    if named.is_empty() {
        return Ok(spec);
    }
    let values = read(&settings(target)?, &named, target).await?;
    replace(&mut spec, &|stored| values.get(stored).cloned());
    Ok(spec)
}

/// The variables that `spec.context` of the workspace has for providers, as in Kusion: texts under names in upper case.
/// Those of kubeconfigs are for others.
pub(crate) async fn variables(target: &Target) -> Result<BTreeMap<String, Variable>, Failure> {
    let mut settings = settings(target)?;
    let (mut variables, mut named) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in std::mem::take(&mut settings.context) {
        let Value::String(value) = value else { continue };
        if !is_variable(&name) {
            continue;
        }
        match StoredSecret::parse(&value).transpose() {
            Ok(None) => drop(variables.insert(name, Variable { value, is_secret: false })),
            Ok(Some(stored)) => drop(named.insert(name, stored)),
            Err(why) => return Err(invalid(format!("spec.context[{name:?}]: a value in a secret store {why}"))),
        }
    }
    let all: BTreeSet<StoredSecret> = named.values().cloned().collect();
    if all.is_empty() {
        return Ok(variables);
    }
    let values = read(&settings, &all, target).await?;
    variables.extend(named.into_iter().filter_map(|(name, stored)| {
        let value = values.get(&stored)?.clone();
        Some((name, Variable { value, is_secret: true }))
    }));
    Ok(variables)
}

/// Whether a key of `spec.context` is a variable for providers.
fn is_variable(name: &str) -> bool {
    let is_upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let starts_well = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    starts_well && name.bytes().all(is_upper) && !name.starts_with("KUBECONFIG_")
}

fn settings(target: &Target) -> Result<WorkspaceSpec, Failure> {
    let Some(workspace) = &target.workspace else { return Ok(WorkspaceSpec::default()) };
    serde_json::from_slice(&workspace.spec).map_err(|error| {
        invalid(format!(
            "spec.secretStore, secretStores and context of workspace {:?} cannot be read: {error}",
            workspace.name
        ))
    })
}

/// The values of all stores that are named.
async fn read(settings: &WorkspaceSpec, named: &BTreeSet<StoredSecret>, target: &Target) -> Result<Values, Failure> {
    let mut by_store: BTreeMap<Option<&str>, BTreeSet<&StoredSecret>> = BTreeMap::new();
    for stored in named {
        by_store.entry(stored.store.as_deref()).or_default().insert(stored);
    }
    let mut values = Values::new();
    for (store, named) in by_store {
        let provider = provider(settings, store, &named, target)?;
        values.extend(read_store(provider, store.unwrap_or_default(), &named, target).await?);
    }
    Ok(values)
}

/// The provider of a store.
fn provider(
    settings: &WorkspaceSpec,
    store: Option<&str>,
    named: &BTreeSet<&StoredSecret>,
    target: &Target,
) -> Result<Provider, Failure> {
    let Some(store) = store else { return Ok(settings.secret_store.provider.clone()) };
    let found = settings.secret_stores.iter().find(|named| named.name == store);
    found.map(|found| found.provider.clone()).ok_or_else(|| {
        let known: Vec<&str> = settings.secret_stores.iter().map(|named| named.name.as_str()).collect();
        let first = named.first().map(ToString::to_string).unwrap_or_default();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        invalid(format!(
            "{first}: spec.secretStores of workspace {:?} has no store {store:?}; it has {known}",
            workspace_name(target)
        ))
    })
}

/// The values of one store.
async fn read_store(
    provider: Provider,
    name: &str,
    named: &BTreeSet<&StoredSecret>,
    target: &Target,
) -> Result<Values, Failure> {
    let none = HashMap::new();
    let workspace = target.workspace.as_ref();
    let credentials = workspace.map_or(&none, |workspace| match name {
        "" => &workspace.secret_store_credentials,
        name => workspace.named_store_credentials.get(name).map_or(&none, |keys| &keys.values),
    });
    let credentials = Credentials(credentials);
    let in_store = |failure: Failure| of_store(failure, name);
    let store: Box<dyn Store> = match provider {
        Provider { kubernetes: Some(_), .. } => return of_kubernetes(named, target),
        Provider { vault: Some(settings), .. } => {
            Box::new(vault::Vault::new(settings, &credentials).map_err(in_store)?)
        }
        Provider { aws: Some(settings), .. } => {
            Box::new(aws::SecretsManager::new(settings, &credentials).map_err(in_store)?)
        }
        Provider { azure: Some(settings), .. } => {
            Box::new(azure::KeyVault::new(settings, &credentials).map_err(in_store)?)
        }
        Provider { alicloud: Some(settings), .. } => {
            Box::new(alicloud::Kms::new(settings, &credentials).map_err(in_store)?)
        }
        Provider { file: Some(settings), .. } => {
            let file = target.store_files.get(name).map(|bytes| &bytes[..]);
            Box::new(file::EncryptedFile::new(settings, file, &credentials).map_err(in_store)?)
        }
        Provider { others, .. } => {
            let names: Vec<&str> = others.keys().map(String::as_str).collect();
            let has = match names.as_slice() {
                [] => "no provider".to_owned(),
                names => format!("provider {}, which Stoa does not read", names.join(", ")),
            };
            let first = named.first().map(ToString::to_string).unwrap_or_default();
            let message = format!(
                "{first}: {} of workspace {:?} has {has}; set provider.kubernetes, vault, aws, azure, alicloud or file",
                field(name),
                workspace_name(target)
            );
            return Err(invalid(message));
        }
    };
    read_all(&*store, named.iter().copied()).await.map_err(in_store)
}

/// A failure with the name of its store, if it has one.
fn of_store(failure: Failure, name: &str) -> Failure {
    if name.is_empty() {
        return failure;
    }
    let (code, mut problems) = failure.into_parts();
    for problem in &mut problems {
        problem.message = format!("secret store {name:?}: {}", problem.message);
    }
    Failure::of(code, problems)
}

/// The field of a store.
fn field(name: &str) -> String {
    if name.is_empty() { "spec.secretStore".to_owned() } else { format!("spec.secretStores[{name:?}]") }
}

fn workspace_name(target: &Target) -> &str {
    target.workspace.as_ref().map(|workspace| workspace.name.as_str()).unwrap_or_default()
}

/// The values of a store, each secret read once for all of its properties.
async fn read_all<'n>(store: &dyn Store, named: impl IntoIterator<Item = &'n StoredSecret>) -> Result<Values, Failure> {
    let mut secrets: BTreeMap<(&str, Option<&str>), Vec<&StoredSecret>> = BTreeMap::new();
    for stored in named {
        secrets.entry((&stored.name, stored.version.as_deref())).or_default().push(stored);
    }
    let reads: Vec<_> = secrets.into_values().map(|properties| read_secret(store, properties)).collect();
    let read: Vec<Values> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

async fn read_secret(store: &dyn Store, properties: Vec<&StoredSecret>) -> Result<Values, Failure> {
    let Some(first) = properties.first() else { return Ok(Values::new()) };
    let found = store.properties(first).await?;
    let value = |stored: &StoredSecret| match found.get(&stored.property) {
        Some(Value::String(text)) => Ok((stored.clone(), text.clone())),
        Some(Value::Null) | None => {
            Err(invalid(format!("{stored}: the secret in {} has no property {:?}", store.title(), stored.property)))
        }
        Some(other) => Ok((stored.clone(), other.to_string())),
    };
    properties.into_iter().map(value).collect()
}

/// The values that the API server read.
fn of_kubernetes(named: &BTreeSet<&StoredSecret>, target: &Target) -> Result<Values, Failure> {
    let mut values = Values::new();
    for stored in named.iter().copied() {
        if stored.version.is_some() {
            return Err(invalid(format!("{stored}: Kubernetes Secrets have no versions; remove ?version")));
        }
        let Some(bytes) = target.stored_secrets.get(&stored.to_string()) else {
            let message = format!("{stored}: the API server sent no value; it is older than this function-runner");
            return Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message));
        };
        let Ok(text) = String::from_utf8(bytes.to_vec()) else {
            return Err(invalid(format!("{stored}: the value is not a text in UTF-8")));
        };
        values.insert(stored.clone(), text);
    }
    Ok(values)
}

fn invalid(message: String) -> Failure {
    Failure::new(Code::InvalidArgument, reason::SECRET_STORE, message)
}

#[cfg(test)]
mod testing {
    use super::*;

    /// The values of some texts, in their order, or the code and message of the failure.
    pub(super) async fn read(store: &dyn Store, texts: &[&str]) -> Result<Vec<String>, String> {
        let named: BTreeSet<StoredSecret> =
            texts.iter().map(|text| StoredSecret::parse(text).unwrap().unwrap()).collect();
        match read_all(store, &named).await {
            Ok(values) => {
                let of = |text: &&str| values[&StoredSecret::parse(text).unwrap().unwrap()].clone();
                Ok(texts.iter().map(of).collect())
            }
            Err(failure) => Err(format!("{:?}: {}", failure.code(), failure.problems()[0].message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_proto::Workspace;

    use super::*;

    fn spec(value: &str) -> Spec {
        let attributes =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"v": value}});
        let resource = json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "attributes": attributes});
        serde_json::from_value(json!({ "resources": [resource] })).unwrap()
    }

    fn target(store: &serde_json::Value) -> Target {
        let spec = json!({"backend": {"name": "b"}, "secretStore": store}).to_string();
        let workspace = Workspace { name: "dev".to_owned(), spec: spec.into(), ..Workspace::default() };
        Target { workspace: Some(workspace), ..Target::default() }
    }

    async fn refusal(value: &str, target: &Target) -> String {
        resolve(spec(value), target).await.unwrap_err().problems()[0].message.clone()
    }

    #[tokio::test]
    async fn kubernetes_secrets_come_with_the_call() {
        let mut target = target(&json!({"provider": {"kubernetes": {}}}));
        target.stored_secrets.insert("ref://db/password".to_owned(), "hunter2".into());
        let resolved = resolve(spec("ref://db/password"), &target).await.unwrap();
        assert_eq!(resolved.resources[0].attributes["data"]["v"], "hunter2");
        assert_eq!(resolved.resources[0].extensions["stoa.dev/sensitive"], json!(["data.v"]));
        let told = refusal("ref://db/password?version=1", &target).await;
        assert_eq!(told, "ref://db/password?version=1: Kubernetes Secrets have no versions; remove ?version");
        target.stored_secrets.insert("ref://db/password".to_owned(), vec![0xff].into());
        assert_eq!(refusal("ref://db/password", &target).await, "ref://db/password: the value is not a text in UTF-8");
    }

    #[tokio::test]
    async fn context_has_variables_for_providers() {
        let mut target = target(&json!({"provider": {"kubernetes": {}}}));
        let set = |target: &mut Target, context: serde_json::Value| {
            let workspace = target.workspace.as_mut().unwrap();
            let mut spec: serde_json::Value = serde_json::from_slice(&workspace.spec).unwrap();
            spec["context"] = context;
            workspace.spec = spec.to_string().into();
        };
        let context = json!({"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "ref://aws/key", "KUBECONFIG_PATH": "/x",
            "region": "x", "1X": "x", "RETRIES": 3});
        set(&mut target, context);
        target.stored_secrets.insert("ref://aws/key".to_owned(), "hunter2".into());
        let found = variables(&target).await.unwrap();
        let of = |value: &str, is_secret| Variable { value: value.to_owned(), is_secret };
        let expected = [("AWS_REGION", of("eu-1", false)), ("AWS_SECRET_ACCESS_KEY", of("hunter2", true))];
        assert_eq!(found, expected.map(|(name, variable)| (name.to_owned(), variable)).into());
        set(&mut target, json!({"TOKEN": "ref://x"}));
        let told = variables(&target).await.unwrap_err().problems()[0].message.clone();
        let start = "spec.context[\"TOKEN\"]: a value in a secret store must be ref://<name>/<property>";
        assert!(told.starts_with(start), "{told}");
        assert!(variables(&Target::default()).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn store_without_a_known_provider_is_refused() {
        for (store, has) in [
            (json!({}), "no provider"),
            (json!({"provider": {"onpremises": {"name": "x"}}}), "provider onpremises, which Stoa does not read"),
        ] {
            let told = refusal("ref://db/password", &target(&store)).await;
            let expected = "set provider.kubernetes, vault, aws, azure, alicloud or file";
            assert_eq!(told, format!("ref://db/password: spec.secretStore of workspace \"dev\" has {has}; {expected}"));
        }
        let plain = resolve(spec("x"), &target(&json!({}))).await.unwrap();
        assert_eq!(plain, spec("x"), "a Spec without such values needs no store");
    }

    #[tokio::test]
    async fn store_is_chosen_by_its_name() {
        let workspace = json!({"backend": {"name": "b"}, "secretStore": {"provider": {"kubernetes": {}}},
            "secretStores": [{"name": "other", "provider": {"kubernetes": {}}}, {"name": "file", "provider": {"file": {"path": "s.age"}}},
                {"name": "cloud", "provider": {"azure": {"vaultUrl": "https://a.vault.azure.net", "tenantId": "t"}}}]});
        let workspace =
            Workspace { name: "dev".to_owned(), spec: workspace.to_string().into(), ..Workspace::default() };
        let mut target = Target { workspace: Some(workspace), ..Target::default() };
        for (text, value) in [("ref://db/password", "first"), ("ref://db/password?store=other", "second")] {
            target.stored_secrets.insert(text.to_owned(), value.into());
        }
        let resolved = resolve(spec("ref://db/password?store=other"), &target).await.unwrap();
        assert_eq!(resolved.resources[0].attributes["data"]["v"], "second");
        let resolved = resolve(spec("ref://db/password"), &target).await.unwrap();
        assert_eq!(resolved.resources[0].attributes["data"]["v"], "first");
        let unknown = refusal("ref://db/password?store=x", &target).await;
        let expected = "ref://db/password?store=x: spec.secretStores of workspace \"dev\" has no store \"x\"; it has other, file, cloud";
        assert_eq!(unknown, expected);
        let cloud = refusal("ref://db/password?store=cloud", &target).await;
        assert_eq!(
            cloud,
            "secret store \"cloud\": the Secret of the secret store has no key \"clientId\"; set its secretRef"
        );
        let file = refusal("ref://db/password?store=file", &target).await;
        assert!(file.starts_with("secret store \"file\": "), "{file}");
    }
}
