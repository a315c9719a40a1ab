//! The Kubernetes Secrets that a Spec or a Workspace's context names as `ref://<name>/<key>`, for a Workspace whose secret store
//! they are.
//!
//! The server reads them right before a call of a runner, and stores them nowhere. Elsewhere: the runner reads the other
//! stores, and replaces the texts in the Spec.
//!
//! A Run of a trigger or a pull request has no requester with the permission `use`, and its commit may have no review. It reads
//! only the Secrets that the Workspace lists in [`TRIGGERED`].

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use memchr::memmem;
use serde_json::Value;
use stoa_controller::blocking::run_blocking;
use stoa_engine::{
    Spec,
    stored_secret::{StoredSecret, stored_secrets},
};
use stoa_kinds::lookup;
use stoa_types::{
    Run, SecretKeyReference,
    platform::{KubernetesSecrets, WorkspaceSpec},
    reason,
};

use crate::{
    Services, StepError,
    target::{Secrets, Target, requester},
};

/// The field of the store with the names of the Secrets that Runs of triggers and pull requests may read.
const TRIGGERED: &str = "triggered";

/// The stores that a Spec and a context name, and the values of those that the server reads.
#[derive(Debug, Default)]
pub(crate) struct StoredSecrets {
    /// The names; empty for the default store.
    pub(crate) stores: BTreeSet<String>,
    /// The values by the texts that name them.
    pub(crate) values: HashMap<String, Bytes>,
}

/// The values that a Spec or the context of the workspace names, by the text there. For those of the Spec, the requester of
/// the run needs the verb `use` on each Secret.
///
/// # Errors
///
/// Failed when a Secret or its key does not exist, or may not be used.
pub(crate) async fn read(
    services: &Services,
    target: &Target,
    run: &Run,
    spec: &Bytes,
) -> Result<StoredSecrets, StepError> {
    let mut read = StoredSecrets::default();
    let context = requester(services, run);
    let mut secrets = Secrets::new(services);
    let mut permitted: BTreeSet<(String, String)> = BTreeSet::new();
    let of_spec = named(spec).await?;
    let of_context: BTreeSet<StoredSecret> = of_context(&target.workspace.spec).collect();
    for stored in of_spec.union(&of_context) {
        let StoredSecret { name, property, store, .. } = stored;
        read.stores.insert(store.clone().unwrap_or_default());
        // The runner reads the others, and reports those that do not exist.
        let Some(store) = Store::of(&target.workspace.spec, store.as_deref(), &target.namespace()) else { continue };
        let namespace = &store.namespace;
        match &context {
            // The authors of workspaces may name any Secret.
            _ if !of_spec.contains(stored) => {}
            Some(context) => {
                if permitted.insert((namespace.clone(), name.clone())) {
                    lookup::require_secret(context, namespace, name).await?;
                }
            }
            None => store.require_triggered(stored)?,
        }
        let key = SecretKeyReference { namespace: namespace.clone(), name: name.clone(), key: property.clone() };
        let value = secrets.key(&key).await.map_err(|error| match error {
            StepError::Failed { reason, message } => StepError::failed(reason, format!("{stored}: {message}")),
            other => other,
        })?;
        read.values.insert(stored.to_string(), value);
    }
    Ok(read)
}

/// The Secrets that are the store of a workspace.
struct Store {
    /// That of the organization, unless the workspace names another.
    namespace: String,
    /// The names of those that Runs of triggers and pull requests may read.
    triggered: Vec<String>,
    /// Its field in the Workspace.
    path: String,
}

impl Store {
    /// The store of a name, or the default one, if it is in Kubernetes.
    fn of(workspace: &WorkspaceSpec, name: Option<&str>, organization: &str) -> Option<Self> {
        if let Some(name) = name {
            let store = workspace.secret_stores.iter().find(|store| store.name == name)?;
            let KubernetesSecrets { namespace, triggered } = store.provider.kubernetes.clone()?;
            let path = format!("spec.secretStores[{name:?}].provider.kubernetes");
            let namespace = if namespace.is_empty() { organization.to_owned() } else { namespace };
            return Some(Self { namespace, triggered, path });
        }
        let store = workspace.secret_store.get("provider")?.get("kubernetes").filter(|store| !store.is_null())?;
        let named = store.get("namespace").and_then(Value::as_str).filter(|namespace| !namespace.is_empty());
        let triggered = store.get(TRIGGERED).and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            namespace: named.unwrap_or(organization).to_owned(),
            triggered: triggered.filter_map(Value::as_str).map(str::to_owned).collect(),
            path: "spec.secretStore.provider.kubernetes".to_owned(),
        })
    }

    fn require_triggered(&self, stored: &StoredSecret) -> Result<(), StepError> {
        let StoredSecret { name, .. } = stored;
        if self.triggered.contains(name) {
            return Ok(());
        }
        let message = format!(
            "{stored}: a Run of a trigger or pull request may not read Secret {}/{name}; add {name:?} to \
             {}.{TRIGGERED} of the Workspace, or start the Run yourself",
            self.namespace, self.path
        );
        Err(StepError::failed(reason::PERMISSION_DENIED, message))
    }
}

/// Whether a Spec may name such values.
pub(crate) fn may_be_in(spec: &[u8]) -> bool {
    memmem::find(spec, b"ref://").is_some()
}

/// Whether the context of a workspace names such values.
pub(crate) fn are_in_context(workspace: &WorkspaceSpec) -> bool {
    of_context(workspace).next().is_some()
}

/// The secrets that the context of a workspace names for the environment of Terraform's providers.
fn of_context(workspace: &WorkspaceSpec) -> impl Iterator<Item = StoredSecret> {
    let texts = workspace.context.values().filter(|_| workspace.terraform.is_some()).filter_map(Value::as_str);
    // The runner reports wrong texts.
    texts.filter_map(|text| StoredSecret::parse(text)?.ok())
}

async fn named(spec: &Bytes) -> Result<BTreeSet<StoredSecret>, StepError> {
    if !may_be_in(spec) {
        return Ok(BTreeSet::new());
    }
    let (bytes, spec) = (spec.len(), spec.clone());
    let parse = move || serde_json::from_slice::<Spec>(&spec).map(|spec| stored_secrets(&spec)).ok();
    run_blocking(bytes, parse)
        .await
        .ok_or_else(|| StepError::failed(reason::UNREADABLE_SPEC, "the Spec is not a Spec that this server can read"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn spec_names_its_secrets_once() {
        let resource = |value: &str| json!({"id": value, "type": "Kubernetes", "attributes": {"kind": "ConfigMap", "data": {"a": value, "b": "ref://db/user"}}});
        let spec = json!({"resources": [resource("ref://db/user"), resource("ref://db/password"), resource("x")]});
        let found = named(&spec.to_string().into()).await.unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ref://db/password", "ref://db/user"]);
        assert!(named(&Bytes::from_static(b"not a Spec")).await.unwrap().is_empty());
        assert!(named(&Bytes::from_static(b"ref:// not a Spec")).await.is_err());
    }

    #[test]
    fn context_names_secrets_for_providers() {
        let of = |terraform: Value| {
            let context = json!({"TOKEN": "ref://aws/key", "REGION": "eu-1", "WRONG": "ref://x", "N": 1});
            let spec = json!({"backend": {"name": "b"}, "context": context, "terraform": terraform});
            let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
            of_context(&spec).map(|stored| stored.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(json!({"mirror": {"url": "https://mirror.example/"}})), ["ref://aws/key"]);
        assert_eq!(of(Value::Null), [""; 0]);
    }

    #[test]
    fn secrets_are_of_the_organization_unless_the_store_names_a_namespace() {
        let of = |store: Value| {
            let spec = json!({"backend": {"name": "b"}, "secretStore": {"provider": store}});
            let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
            Store::of(&spec, None, "shop")
        };
        let namespace = |store: Value| of(store).map(|store| store.namespace);
        assert_eq!(namespace(json!({"vault": {"server": "https://vault"}})), None);
        assert_eq!(namespace(json!({"kubernetes": {}})), Some("shop".to_owned()));
        assert_eq!(namespace(json!({"kubernetes": {"namespace": "stores"}})), Some("stores".to_owned()));
        let stored = StoredSecret::parse("ref://db/password").unwrap().unwrap();
        let store = of(json!({"kubernetes": {"triggered": ["db"]}})).unwrap();
        assert!(store.require_triggered(&stored).is_ok());
        let Err(StepError::Failed { message, .. }) = of(json!({"kubernetes": {}})).unwrap().require_triggered(&stored)
        else {
            panic!("a trigger reads a Secret that nobody listed");
        };
        let expected = "ref://db/password: a Run of a trigger or pull request may not read Secret shop/db; add \"db\" to \
                        spec.secretStore.provider.kubernetes.triggered of the Workspace, or start the Run yourself";
        assert_eq!(message, expected);
    }

    #[test]
    fn named_store_has_its_own_namespace() {
        let stores = json!([{"name": "team", "provider": {"kubernetes": {"namespace": "stores"}}},
            {"name": "cloud", "provider": {"aws": {"region": "eu-central-1"}}}]);
        let spec = json!({"backend": {"name": "b"}, "secretStores": stores});
        let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
        let namespace = |name: &str| Store::of(&spec, Some(name), "shop").map(|store| store.namespace);
        assert_eq!(namespace("team").as_deref(), Some("stores"));
        assert_eq!((namespace("cloud"), namespace("none")), (None, None));
        let stored = StoredSecret::parse("ref://db/password?store=team").unwrap().unwrap();
        let Err(StepError::Failed { message, .. }) =
            Store::of(&spec, Some("team"), "shop").unwrap().require_triggered(&stored)
        else {
            panic!("a trigger reads a Secret that nobody listed");
        };
        assert!(message.contains("spec.secretStores[\"team\"].provider.kubernetes.triggered"), "{message}");
    }
}
