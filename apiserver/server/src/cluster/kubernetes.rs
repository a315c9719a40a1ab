//! The cluster behind a kube-apiserver.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Namespace, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use stoa_machinery::{
    ApiError,
    registry::{NamespaceLookup, NamespacePhase},
};
use stoa_types::Organization;
use tokio_util::sync::CancellationToken;

use super::{Cluster, NamespaceInfo, namespace_of};

/// A real cluster.
#[derive(Clone)]
pub(crate) struct KubernetesCluster {
    client: Client,
}

impl fmt::Debug for KubernetesCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubernetesCluster")
    }
}

impl KubernetesCluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }
}

/// The failure of a call to kube-apiserver, as our own client hears it: its Status as it is, and
/// 503 when it could not be reached.
pub(crate) fn api_error(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => serde_json::to_value(&*status).and_then(serde_json::from_value).map_or_else(
            |_| ApiError::new(status.code, &status.reason, status.message.clone()),
            |s| ApiError(Box::new(s)),
        ),
        other => {
            tracing::warn!(error = &other as &dyn std::error::Error, "kube-apiserver cannot be reached");
            ApiError::service_unavailable("the cluster's API server cannot be reached")
        }
    }
}

#[async_trait]
impl Cluster for KubernetesCluster {
    async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError> {
        let found = self.namespaces().get_opt(name).await.map_err(api_error)?;
        Ok(found.as_ref().map(NamespaceInfo::from))
    }

    async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
        let created = self.namespaces().create(&PostParams::default(), &namespace_of(organization)).await;
        Ok(NamespaceInfo::from(&created.map_err(api_error)?))
    }

    async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.namespaces().delete(name, &params).await.map_err(api_error) {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = secrets.get_opt(name).await.map_err(api_error)?;
        Ok(found.map(|s| s.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    async fn record(&self, event: Event) -> Result<(), ApiError> {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if event.count.unwrap_or(1) <= 1 {
            return events.create(&PostParams::default(), &event).await.map(|_| ()).map_err(api_error);
        }
        let patch = serde_json::json!({
            "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message,
        });
        events
            .patch(&event.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(api_error)
    }
}

/// The phases of the cluster's namespaces, from a watch.
#[derive(Clone)]
pub(crate) struct WatchedNamespaces {
    client: Client,
    store: reflector::Store<Namespace>,
}

impl fmt::Debug for WatchedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchedNamespaces")
    }
}

impl WatchedNamespaces {
    /// Begins to watch; the watch ends with the token.
    pub(crate) fn start(client: Client, end: CancellationToken) -> Arc<Self> {
        let (store, writer) = reflector::store();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let stream = watcher(namespaces, watcher::Config::default()).default_backoff().reflect(writer);
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            while let Some(Some(event)) = end.run_until_cancelled(stream.next()).await {
                if let Err(error) = event {
                    tracing::warn!(%error, "the watch of namespaces failed; it is taken up again");
                }
            }
        });
        Arc::new(Self { client, store })
    }
}

fn phase(namespace: &Namespace) -> NamespacePhase {
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    if is_going { NamespacePhase::Terminating } else { NamespacePhase::Active }
}

#[async_trait]
impl NamespaceLookup for WatchedNamespaces {
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError> {
        let known = self.store.get(&reflector::ObjectRef::new(namespace));
        if let Some(namespace) = known {
            return Ok(Some(phase(&namespace)));
        }
        // The watch may be behind a namespace that was created just now, so the server is asked.
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(namespace).await.map_err(api_error)?.as_ref().map(phase))
    }
}
