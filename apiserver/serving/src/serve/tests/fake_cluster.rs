//! As much of a kube-apiserver as delegation needs: two kinds of review, one ConfigMap that can be watched, and the namespace
//! `shop` in which nothing is configured.

use std::{collections::BTreeMap, convert::Infallible, net::Ipv4Addr};

use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use tokio::{net::TcpListener, sync::broadcast};

use super::*;

/// What the fake says, and what it was asked.
pub(crate) struct FakeCluster {
    pub(crate) client: kube::Client,
    pub(crate) url: String,
    pub(crate) state: Arc<State>,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

pub(crate) struct State {
    /// Token to user, which may have the token's audiences besides, or to null for one that nobody knows. Any other is an
    /// error.
    pub(crate) tokens: Mutex<BTreeMap<String, Value>>,
    /// What reviews answer once, in order, instead of a review.
    pub(crate) failures: Mutex<Vec<Value>>,
    /// The spec of every review.
    pub(crate) reviews: Mutex<Vec<Value>>,
    /// Decides on the spec of a SubjectAccessReview.
    pub(crate) allows: Box<dyn Fn(&Value) -> bool + Send + Sync>,
    /// The data of the ConfigMap.
    data: Mutex<BTreeMap<String, String>>,
    changes: broadcast::Sender<Value>,
}

impl State {
    fn config_map(&self, version: u32) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": *self.data.lock(),
            "metadata": {
                "name": "extension-apiserver-authentication", "namespace": "kube-system",
                "resourceVersion": version.to_string(),
            },
        })
    }

    /// Changes the ConfigMap; watchers hear of it.
    pub(crate) fn set_config_map(&self, data: BTreeMap<String, String>) {
        *self.data.lock() = data;
        // Nobody watches yet, perhaps.
        let _ = self.changes.send(json!({"type": "MODIFIED", "object": self.config_map(2)}));
    }

    pub(crate) async fn watched(&self) {
        while self.changes.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl FakeCluster {
    pub(crate) async fn start(allows: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        let state = Arc::new(State {
            tokens: Mutex::default(),
            failures: Mutex::default(),
            reviews: Mutex::default(),
            allows: Box::new(allows),
            data: Mutex::default(),
            changes: broadcast::channel(16).0,
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(serve(listener, state.clone()));
        let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        Self { client, url, state, _serving: tokio_util::task::AbortOnDropHandle::new(serving) }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let reviewed = |group: &str, kind: &str, status: Value| {
        json!({
            "apiVersion": format!("{group}.k8s.io/v1"), "kind": kind, "metadata": {}, "status": status,
            "spec": serde_json::from_slice::<Value>(&body).unwrap()["spec"],
        })
    };
    let value = match (parts.method.as_str(), parts.uri.path()) {
        ("POST", path) => {
            let spec = serde_json::from_slice::<Value>(&body).unwrap()["spec"].take();
            state.reviews.lock().push(spec.clone());
            let failure = state.failures.lock().pop();
            if let Some(failure) = failure {
                let mut response = Response::new(crate::http::body::full(failure.to_string()));
                *response.status_mut() = StatusCode::from_u16(failure["code"].as_u64().unwrap() as u16).unwrap();
                return response;
            }
            match path {
                "/apis/authentication.k8s.io/v1/tokenreviews" => {
                    let status = match state.tokens.lock().get(spec["token"].as_str().unwrap()) {
                        Some(Value::Null) => json!({"authenticated": false}),
                        Some(user) => json!({"authenticated": true, "user": user, "audiences": user["audiences"]}),
                        None => json!({"error": "unknown"}),
                    };
                    reviewed("authentication", "TokenReview", status)
                }
                "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                    let allowed = (state.allows)(&spec);
                    let reason = if allowed { "the fake says so" } else { "the fake says no" };
                    reviewed("authorization", "SubjectAccessReview", json!({"allowed": allowed, "reason": reason}))
                }
                other => panic!("unexpected POST {other}"),
            }
        }
        ("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication") => state.config_map(1),
        ("GET", "/api/v1/namespaces/kube-system/configmaps") => {
            if parts.uri.query().unwrap_or("").contains("watch=true") {
                let changes = tokio_stream::wrappers::BroadcastStream::new(state.changes.subscribe());
                let frames = changes.map(|change| Ok(Frame::data(Bytes::from(format!("{}\n", change.unwrap())))));
                return Response::new(StreamBody::new(frames).boxed_unsync());
            }
            let items = [state.config_map(1)];
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": items})
        }
        ("GET", "/api/v1/namespaces/shop") => {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        }
        // Nothing is there, and nothing comes to be.
        ("GET", path) if path == "/api/v1/namespaces" || path.starts_with("/apis/admissionregistration.k8s.io/") => {
            if parts.uri.query().unwrap_or("").contains("watch=true") {
                let frames = futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
                return Response::new(StreamBody::new(frames).boxed_unsync());
            }
            json!({"metadata": {"resourceVersion": "1"}, "items": []})
        }
        other => panic!("unexpected request {other:?}"),
    };
    Response::new(crate::http::body::full(value.to_string()))
}
