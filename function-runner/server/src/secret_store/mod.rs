//! Secret stores: the values that a Spec names as `ref://<name>/<property>`, read right before the infrastructure is called.
//!
//! Start at [`resolve`]. The values are in memory only: plans mask them, and states have digests of them, as they are
//! declared sensitive (`stoa_engine::stored_secret`).
//!
//! Elsewhere: `vault` reads from Vault. The API server reads Kubernetes Secrets, and sends those that the Spec names.

mod vault;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::Spec;
use stoa_engine::stored_secret::{StoredSecret, replace, stored_secrets};
use stoa_proto::Target;
use tonic::Code;

use self::vault::Vault;
use crate::failure::{Failure, reason};

/// The values by the texts that name them.
type Values = BTreeMap<StoredSecret, String>;

/// The part of a Workspace's spec that this module reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceSpec {
    #[serde(default)]
    secret_store: SecretStore,
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

/// The provider of a store, by its name in Kusion.
#[derive(Default, Deserialize)]
struct Provider {
    kubernetes: Option<serde_json::Value>,
    vault: Option<vault::Settings>,
    /// Those that Stoa does not read.
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

/// The Spec with the values of its workspace's secret store.
pub(crate) async fn resolve(mut spec: Spec, target: &Target) -> Result<Spec, Failure> {
    let named = stored_secrets(&spec);
    let Some(first) = named.first() else { return Ok(spec) };
    let values = read(settings(target)?.secret_store.provider, &named, first, target).await?;
    replace(&mut spec, &|stored| values.get(stored).cloned());
    Ok(spec)
}

/// The variables that `spec.context` of the workspace has for providers, as in Kusion: texts under names in upper case.
/// Those of kubeconfigs are for others.
pub(crate) async fn variables(target: &Target) -> Result<BTreeMap<String, Variable>, Failure> {
    let WorkspaceSpec { secret_store, context } = settings(target)?;
    let (mut variables, mut named) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in context {
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
    let Some(first) = all.first() else { return Ok(variables) };
    let values = read(secret_store.provider, &all, first, target).await?;
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
        invalid(format!("spec.secretStore and spec.context of workspace {:?} cannot be read: {error}", workspace.name))
    })
}

/// The values of a store.
async fn read(
    provider: Provider,
    named: &BTreeSet<StoredSecret>,
    first: &StoredSecret,
    target: &Target,
) -> Result<Values, Failure> {
    match provider {
        Provider { kubernetes: Some(_), .. } => of_kubernetes(named, target),
        Provider { vault: Some(settings), .. } => {
            let none = HashMap::new();
            let credentials = target.workspace.as_ref().map_or(&none, |workspace| &workspace.secret_store_credentials);
            Vault::new(settings, credentials)?.read(named).await
        }
        Provider { kubernetes: None, vault: None, others } => {
            let names: Vec<&str> = others.keys().map(String::as_str).collect();
            let has = match names.as_slice() {
                [] => "no provider".to_owned(),
                names => format!("provider {}, which Stoa does not read", names.join(", ")),
            };
            let message = format!(
                "{first}: spec.secretStore of workspace {:?} has {has}; set provider.kubernetes or provider.vault",
                target.workspace.as_ref().map(|workspace| workspace.name.as_str()).unwrap_or_default()
            );
            Err(invalid(message))
        }
    }
}

/// The values that the API server read.
fn of_kubernetes(named: &BTreeSet<StoredSecret>, target: &Target) -> Result<Values, Failure> {
    let mut values = Values::new();
    for stored in named {
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
            (json!({"provider": {"aws": {"region": "x"}}}), "provider aws, which Stoa does not read"),
        ] {
            let told = refusal("ref://db/password", &target(&store)).await;
            let expected = "set provider.kubernetes or provider.vault";
            assert_eq!(told, format!("ref://db/password: spec.secretStore of workspace \"dev\" has {has}; {expected}"));
        }
        let plain = resolve(spec("x"), &target(&json!({}))).await.unwrap();
        assert_eq!(plain, spec("x"), "a Spec without such values needs no store");
    }
}
