//! The parameters of policies: objects of any kind of the cluster, which bindings choose.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{ParamKind, ParamRef};
use kube::{
    Api, Client,
    core::{DynamicObject, GroupVersionKind},
    discovery::{self, Scope},
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef},
        watcher::{self, watcher},
    },
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{admission::selector, selector::LabelSelector};

/// How long a request waits for parameters that have not been read yet.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Finds the objects that are parameters.
#[async_trait]
pub trait Params: fmt::Debug + Send + Sync + 'static {
    /// Whether the objects of a kind live in namespaces. They need not have been read for that.
    ///
    /// # Errors
    ///
    /// Why that cannot be told, as when there is no such kind.
    async fn is_namespaced(&self, kind: &ParamKind) -> Result<bool, String>;

    /// The object of that name; the namespace is empty for kinds that have none.
    ///
    /// # Errors
    ///
    /// Why that cannot be told.
    async fn find(&self, kind: &ParamKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, String>;

    /// The objects with those labels.
    ///
    /// # Errors
    ///
    /// Why that cannot be told.
    async fn select(
        &self,
        kind: &ParamKind,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Value>>, String>;
}

/// The parameters that a binding hands to its policy: one evaluation for each; null when it has none.
pub(super) async fn collect(
    params: &dyn Params,
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Arc<Value>>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else {
        return Ok(vec![Arc::new(Value::Null)]);
    };
    let own = reference.namespace.as_deref().unwrap_or("");
    let namespace = match (params.is_namespaced(kind).await?, own) {
        (false, "") => "",
        (false, _) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "") => namespace,
        (true, own) => own,
    };
    let name = reference.name.as_deref().filter(|name| !name.is_empty());
    let found = match (name, &reference.selector) {
        (Some(_), Some(_)) => return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned()),
        (Some(name), None) => params.find(kind, namespace, name).await?.into_iter().collect(),
        (None, Some(labels)) => params.select(kind, namespace, &selector::parse(Some(labels))?).await?,
        (None, None) => return Err("one of name or selector must be provided".to_owned()),
    };
    if found.is_empty() && reference.parameter_not_found_action.as_deref() == Some("Deny") {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// Objects of the cluster; each kind is watched from when it is first asked for.
pub struct ClusterParams {
    client: Client,
    end: CancellationToken,
    kinds: Mutex<HashMap<KindName, Arc<OnceCell<Kind>>>>,
}

/// Version and kind, as policies name them.
type KindName = (String, String);

#[derive(Clone)]
struct Kind {
    namespaced: bool,
    store: reflector::Store<DynamicObject>,
    resource: discovery::ApiResource,
}

impl fmt::Debug for ClusterParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterParams")
    }
}

impl ClusterParams {
    /// Reads them with `client`; the watches end with the token.
    pub fn new(client: Client, end: CancellationToken) -> Self {
        Self { client, end, kinds: Mutex::default() }
    }

    /// The kind, whether or not its objects have been read.
    async fn kind(&self, kind: &ParamKind) -> Result<Kind, String> {
        let (version, name) = (kind.api_version.clone().unwrap_or_default(), kind.kind.clone().unwrap_or_default());
        let cell = self.kinds.lock().entry((version.clone(), name.clone())).or_default().clone();
        Ok(cell.get_or_try_init(|| self.follow(&version, &name)).await?.clone())
    }

    /// The kind, once its objects have been read.
    async fn ready(&self, kind: &ParamKind) -> Result<Kind, String> {
        let found = self.kind(kind).await?;
        match tokio::time::timeout(READY_WITHIN, found.store.wait_until_ready()).await {
            Ok(Ok(())) => Ok(found),
            Ok(Err(_)) | Err(_) => {
                let (version, name) = (kind.api_version.as_deref().unwrap_or(""), kind.kind.as_deref().unwrap_or(""));
                Err(format!("paramKind kind `{version}, Kind={name}` not yet synced to use for admission"))
            }
        }
    }

    async fn follow(&self, version: &str, name: &str) -> Result<Kind, String> {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, name);
        let found = discovery::pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found.map_err(|error| {
            tracing::warn!(error = crate::auth::chain(&error), kind = name, "a policy's paramKind is not known");
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'")
        })?;
        let writer = reflector::store::Writer::new(resource.clone());
        let store = writer.as_reader();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let changes = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let end = self.end.clone();
        tokio::spawn(async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
                if let Err(error) = change {
                    tracing::warn!(error = crate::auth::chain(&error), "a watch of parameters failed");
                }
            }
        });
        Ok(Kind { namespaced: capabilities.scope == Scope::Namespaced, store, resource })
    }
}

fn json(object: &DynamicObject) -> Arc<Value> {
    Arc::new(serde_json::to_value(object).unwrap_or_default())
}

#[async_trait]
impl Params for ClusterParams {
    async fn is_namespaced(&self, kind: &ParamKind) -> Result<bool, String> {
        Ok(self.kind(kind).await?.namespaced)
    }

    async fn find(&self, kind: &ParamKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, String> {
        let kind = self.ready(kind).await?;
        let mut reference = ObjectRef::new_with(name, kind.resource.clone());
        if !namespace.is_empty() {
            reference = reference.within(namespace);
        }
        Ok(kind.store.get(&reference).map(|object| json(&object)))
    }

    async fn select(
        &self,
        kind: &ParamKind,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Value>>, String> {
        let mut found = self.ready(kind).await?.store.state();
        found.retain(|object| {
            let metadata = &object.metadata;
            let labels = metadata.labels.as_ref();
            metadata.namespace.as_deref().unwrap_or("") == namespace
                && selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
        });
        // An order that does not change from one write to the next.
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found.iter().map(|object| json(object)).collect())
    }
}
