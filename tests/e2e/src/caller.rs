//! Requests as they go over the wire, with any certificate and any headers.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::server::Cluster;

/// A client that adds nothing to what it is told to send.
#[derive(Clone)]
pub struct Caller {
    client: kube::Client,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The code of HTTP.
    pub code: u16,
    /// What it says beside the body.
    pub headers: http::HeaderMap,
    /// The body; null for what is not JSON.
    pub body: Value,
}

impl Answer {
    /// The message of a Status.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Cluster {
    /// Calls kube-apiserver as the admin.
    pub fn front_door(&self) -> Caller {
        self.caller("APISERVER_URL", "CLUSTER_CA", Some("admin"))
    }

    /// Calls Stoa itself with a certificate of the test bed, by the name of its file, or with none.
    pub fn directly(&self, certificate: Option<&str>) -> Caller {
        self.caller("STOA_URL", "STOA_CA", certificate)
    }

    /// The same of one of several Stoas, counted from 0.
    pub fn directly_at(&self, replica: usize, certificate: Option<&str>) -> Caller {
        self.caller_at(&self.stoa_url(replica), "STOA_CA", certificate)
    }

    /// Calls etcd as Stoa does.
    pub fn etcd(&self) -> Etcd {
        let (authority, user) = (self.pki().join("etcd-ca.crt"), self.user("stoa-etcd-client"));
        Etcd::new(Caller { client: client(&self.env("ETCD_URL"), &authority, &user) })
    }

    fn caller(&self, url: &str, authority: &str, certificate: Option<&str>) -> Caller {
        self.caller_at(&self.env(url), authority, certificate)
    }

    fn caller_at(&self, url: &str, authority: &str, certificate: Option<&str>) -> Caller {
        let user = certificate.map_or_else(|| json!({}), |name| self.user(name));
        Caller { client: client(url, Path::new(&self.env(authority)), &user) }
    }

    /// A kubeconfig's `user` with a certificate of the test bed, by the name of its file.
    fn user(&self, certificate: &str) -> Value {
        let file = |extension: &str| self.pki().join(certificate).with_extension(extension);
        json!({"client-certificate": file("crt"), "client-key": file("key")})
    }
}

/// A kubeconfig of the server at `url`, whose authority is in a file, and of this `user`.
pub(crate) fn kubeconfig(url: &str, authority: &Path, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    })
}

/// A client of the server at `url`, whose authority is in a file, as a kubeconfig's `user`.
pub(crate) fn client(url: &str, authority: &Path, user: &Value) -> kube::Client {
    let kubeconfig = serde_json::from_value(kubeconfig(url, authority, user)).unwrap();
    // Reading the files waits for nothing.
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let mut config = config.now_or_never().expect("nothing to wait for").unwrap();
    config.connect_timeout = Some(Duration::from_secs(5));
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

impl Caller {
    /// The client itself.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Reads a path.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask("GET", path, headers, &Value::Null).await
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let answer = self.send(method, path, headers, body).await;
        let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.into_body().collect_bytes().await.unwrap();
        Answer { code, headers, body: serde_json::from_slice(&body).unwrap_or_default() }
    }

    /// The code that a request is answered with; of a watch, too, since the rest is not waited for.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    pub async fn code(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> u16 {
        self.send(method, path, headers, body).await.status().as_u16()
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        self.client.send(request.body(body).unwrap()).await.unwrap()
    }
}
