//! The parameters of policies: objects of any kind of the cluster, which bindings choose.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{ParamKind, ParamRef};
use kube::{
    Api, Client,
    core::{DynamicObject, GroupVersionKind, TypeMeta},
    discovery::{self, Scope},
    runtime::{
        WatchStreamExt as _,
        reflector::{self, ObjectRef},
        watcher::{self, watcher},
    },
};
use parking_lot::Mutex;
use serde_json::Value;
use stoa_meta::selector::LabelSelector;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::selector;

/// How long a request waits for parameters that have not been read yet.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Finds the objects that are parameters.
#[async_trait]
pub trait Params: fmt::Debug + Send + Sync + 'static {
    /// Whether the objects of a kind live in namespaces. They need not have been read for that.
    async fn is_namespaced(&self, kind: &ParamKind) -> Result<bool, String>;

    /// The object of that name; the namespace is empty for kinds that have none.
    async fn find(&self, kind: &ParamKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, String>;

    /// The objects with those labels.
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
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct ClusterParams {
    #[educe(Debug(ignore))]
    client: Client,
    end: CancellationToken,
    #[educe(Debug(ignore))]
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
            tracing::warn!(error = stoa_meta::errors::chain(&error), kind = name, "a policy's paramKind is not known");
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'")
        })?;
        let writer = reflector::store::Writer::new(resource.clone());
        let store = writer.as_reader();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
        // A list tells the type of the cluster's own kinds once for all of its items.
        let typed = move |object: &mut DynamicObject| {
            object.types.get_or_insert_with(|| types.clone());
        };
        let changes = watcher(api, watcher::Config::default()).default_backoff().modify(typed).reflect(writer);
        let end = self.end.clone();
        tokio::spawn(async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
                if let Err(error) = change {
                    tracing::warn!(error = stoa_meta::errors::chain(&error), "a watch of parameters failed");
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    /// A cluster with two ConfigMaps, of which `few` has no type in the list, as the kube-apiserver sends it.
    async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        if request.uri().query().unwrap_or("").contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
        let answer = match request.uri().path() {
            "/api/v1" => json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
                "resources": [{
                    "name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap",
                    "verbs": ["get", "list", "watch"],
                }],
            }),
            "/api/v1/configmaps" => json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                "items": [
                    {"metadata": metadata("few"), "data": {"max": "1"}},
                    {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata("many"), "data": {"max": "9"}},
                ],
            }),
            other => panic!("unexpected request {other}"),
        };
        Ok(Response::new(Full::from(answer.to_string())))
    }

    #[tokio::test]
    async fn objects_have_their_type_however_they_were_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)));
            }
        });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let params = ClusterParams::new(client, CancellationToken::new());
        let kind = ParamKind { api_version: Some("v1".to_owned()), kind: Some("ConfigMap".to_owned()) };
        let whole = |name: &str, max: &str| {
            json!({
                "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "shop"},
                "data": {"max": max},
            })
        };
        let few = params.find(&kind, "shop", "few").await.unwrap().expect("it is there");
        assert_eq!(*few, whole("few", "1"));
        let all = params.select(&kind, "shop", &LabelSelector::default()).await.unwrap();
        assert_eq!(
            all.iter().map(|found| (**found).clone()).collect::<Vec<_>>(),
            [whole("few", "1"), whole("many", "9")]
        );
    }
}
