//! The namespaces of the cluster that the server stands behind.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use tokio_util::sync::CancellationToken;

use super::{NamespaceLookup, NamespacePhase};
use crate::{
    content,
    status::{ApiError, api_error, quote},
};

/// A cluster's namespaces, from a watch.
#[derive(Clone)]
pub struct ClusterNamespaces {
    client: Client,
    store: reflector::Store<Namespace>,
}

impl fmt::Debug for ClusterNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterNamespaces")
    }
}

impl ClusterNamespaces {
    /// Begins to watch; the watch ends with the token.
    pub fn start(client: Client, end: CancellationToken) -> Arc<Self> {
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

    /// The namespace of that name, if there is one.
    ///
    /// # Errors
    ///
    /// When that could not be found out.
    pub async fn get(&self, namespace: &str) -> Result<Option<Arc<Namespace>>, ApiError> {
        // Names that none can have are not asked for, since as a part of a path they may lead elsewhere.
        let complaints = content::path_segment(namespace);
        if !complaints.is_empty() {
            let complaints = complaints.join(" ");
            return Err(ApiError::internal(format!("invalid resource name {}: [{complaints}]", quote(namespace))));
        }
        if !content::dns_label(namespace).is_empty() {
            return Ok(None);
        }
        let known = self.store.get(&reflector::ObjectRef::new(namespace));
        if known.is_some() {
            return Ok(known);
        }
        // The watch may be behind a namespace that was created just now, so the server is asked.
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(namespace).await.map_err(api_error)?.map(Arc::new))
    }
}

fn phase(namespace: &Namespace) -> NamespacePhase {
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    if is_going { NamespacePhase::Terminating } else { NamespacePhase::Active }
}

#[async_trait]
impl NamespaceLookup for ClusterNamespaces {
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError> {
        Ok(self.get(namespace).await?.as_deref().map(phase))
    }
}
