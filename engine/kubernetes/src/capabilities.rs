//! Capabilities of a cluster: its version, and the APIs that it serves, as charts ask for them.

use http::Method;
use serde::Deserialize;
use stoa_engine::Sensitive;
use stoa_runtime::RuntimeError;

use crate::KubernetesRuntime;
use crate::cluster::decode;
use crate::error::CallError;
use crate::served;

/// The version and the APIs of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Its version, such as `v1.35.0`.
    pub version: String,
    /// Its APIs, sorted: `apps/v1` and `apps/v1/Deployment`, or `v1` and `v1/Pod` for the core group.
    pub apis: Vec<String>,
}

/// The answer to `/version`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl KubernetesRuntime {
    /// Asks the first cluster for its version and its APIs. `None` where the credentials may not read them.
    ///
    /// # Errors
    ///
    /// The cluster does not answer.
    pub async fn capabilities(&self) -> Result<Option<Capabilities>, RuntimeError> {
        let cluster = self.cluster(0);
        let read = async {
            let Version { git_version } = decode(&cluster.call(Method::GET, "/version", None).await?)?;
            let apis = served::api_versions(cluster).await?;
            Ok(Capabilities { version: git_version, apis })
        };
        match read.await {
            Ok(capabilities) => Ok(Some(capabilities)),
            Err(CallError::Status(failure)) if failure.code == 403 => Ok(None),
            Err(err) => Err(err.into_runtime(&cluster.name, &Sensitive::default()).before_a_change()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use stoa_engine::Owner;

    use super::*;
    use crate::cluster::Cluster;
    use crate::connections::Connection;

    fn runtime(answer: fn(&str) -> (u16, Value)) -> KubernetesRuntime {
        let server = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = answer(request.uri().path());
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        let cluster = Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")));
        KubernetesRuntime::of(vec![Arc::new(cluster)], Owner::default())
    }

    fn groups(items: Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    }

    #[tokio::test]
    async fn cluster_reports_version_and_apis() {
        let runtime = runtime(|path| {
            let kind = |kind: &str| json!({"resource": kind, "scope": "Namespaced", "responseKind": {"kind": kind}});
            let body = match path {
                "/version" => json!({"gitVersion": "v1.34.2", "major": "1", "minor": "34"}),
                "/api" => {
                    groups(json!([{"metadata": {}, "versions": [{"version": "v1", "resources": [kind("Pod")]}]}]))
                }
                _ => groups(json!([
                    {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [kind("Deployment")]}]},
                    {"metadata": {"name": "x.dev"}, "versions": [
                        {"version": "v2", "resources": [kind("Web")]}, {"version": "v1", "resources": [kind("Web")]}]},
                    {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
                ])),
            };
            (200, body)
        });
        let found = runtime.capabilities().await.unwrap().unwrap();
        assert_eq!(found.version, "v1.34.2");
        let expected = [
            "apps/v1",
            "apps/v1/Deployment",
            "metrics.k8s.io/v1beta1",
            "v1",
            "v1/Pod",
            "x.dev/v1",
            "x.dev/v1/Web",
            "x.dev/v2",
            "x.dev/v2/Web",
        ];
        assert_eq!(found.apis, expected);
    }

    #[tokio::test]
    async fn forbidden_version_is_no_error() {
        assert_eq!(runtime(|_| (403, json!({"kind": "Status"}))).capabilities().await.unwrap(), None);
    }
}
