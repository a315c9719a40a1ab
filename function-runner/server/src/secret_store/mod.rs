//! Secret stores: the values that a Spec names as `ref://<name>/<property>`, read right before the infrastructure is called.
//!
//! Start at [`resolve`]. The values are in memory only: plans mask them, and states have digests of them, as they are
//! declared sensitive (`stoa_engine::stored_secret`).
//!
//! Elsewhere: `vault` reads from Vault. The API server reads Kubernetes Secrets, and sends those that the Spec names.

mod vault;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use stoa_engine::Spec;
use stoa_engine::stored_secret::{StoredSecret, replace, stored_secrets};
use stoa_proto::Target;
use tonic::Code;

use self::vault::Vault;
use crate::failure::{Failure, reason};

/// The values by the texts that name them.
type Values = BTreeMap<StoredSecret, String>;

/// The part of a Workspace's spec that this module reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceSpec {
    #[serde(default)]
    secret_store: SecretStore,
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
    let workspace = target.workspace.clone().unwrap_or_default();
    let settings: WorkspaceSpec = serde_json::from_slice(&workspace.spec).map_err(|error| {
        invalid(format!("spec.secretStore of workspace {:?} cannot be read: {error}", workspace.name))
    })?;
    let values = match settings.secret_store.provider {
        Provider { kubernetes: Some(_), .. } => of_kubernetes(&named, target)?,
        Provider { vault: Some(settings), .. } => {
            Vault::new(settings, &workspace.secret_store_credentials)?.read(&named).await?
        }
        Provider { kubernetes: None, vault: None, others } => {
            let names: Vec<&str> = others.keys().map(String::as_str).collect();
            let has = match names.as_slice() {
                [] => "no provider".to_owned(),
                names => format!("provider {}, which Stoa does not read", names.join(", ")),
            };
            let message = format!(
                "{first}: spec.secretStore of workspace {:?} has {has}; set provider.kubernetes or provider.vault",
                workspace.name
            );
            return Err(invalid(message));
        }
    };
    replace(&mut spec, &|stored| values.get(stored).cloned());
    Ok(spec)
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
