//! The namespaces of the cluster in front of the server, from a watch.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use stoa_meta::{
    content,
    status::{ApiError, quote},
};
use stoa_registry::registry::{NamespaceLookup, NamespacePhase};
use tokio_util::sync::CancellationToken;

use crate::cluster::api_error;

/// A cluster's namespaces, from a watch.
#[derive(Clone, educe::Educe)]
#[educe(Debug)]
pub struct ClusterNamespaces {
    #[educe(Debug(ignore))]
    client: Client,
    store: reflector::Store<Namespace>,
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

    /// The namespace of that name, if there is one. Fails when that could not be found out.
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
        Ok(self.get(namespace).await.map_err(unknown)?.as_deref().map(phase))
    }
}

/// What whoever writes hears when the cluster does not tell of the namespace: that it refuses this server, or has no time
/// for it, says nothing about the write. As upstream's `NamespaceLifecycle`.
fn unknown(error: ApiError) -> ApiError {
    if error.is("InternalError") { error } else { ApiError::internal(error.message()) }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::Ipv4Addr};

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use serde_json::json;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::*;

    /// Tells of no namespace to anybody.
    async fn refuse(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "namespaces are forbidden",
        });
        let mut response = Response::new(Full::from(status.to_string()));
        *response.status_mut() = http::StatusCode::FORBIDDEN;
        Ok(response)
    }

    #[tokio::test]
    async fn failures_of_the_cluster_are_internal_to_who_writes() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(refuse)).await);
                });
            }
        });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let end = CancellationToken::new();
        let namespaces = ClusterNamespaces::start(client, end.clone());
        let check = async |namespace: &str, why: &str| {
            let error = namespaces.phase(namespace).await.expect_err(why);
            assert_eq!((error.code(), error.reason()), (500, "InternalError"), "{error:?}");
            assert!(error.message().starts_with(&format!("Internal error occurred: {why}")), "{error:?}");
        };
        check("shop", "namespaces are forbidden").await;
        check("%", "invalid resource name").await;
        serving.abort();
        let _ = serving.await;
        check("shop", "the cluster's API server cannot be reached").await;
        end.cancel();
    }
}
