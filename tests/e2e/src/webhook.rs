//! An admission webhook's server, as a cluster's administrators would run one.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Answer = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A server of webhooks over TLS. It ends with the value.
#[derive(Debug)]
pub struct Webhooks {
    /// The port at the loopback address.
    pub port: u16,
    /// Who signed its certificate: base64 of PEM.
    pub ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Webhooks {
    /// Answers with what `answer` makes of the path, without its slash, and of the `request` of a review: a `response`
    /// without its uid. The certificate is for `localhost` and `name`.
    pub fn start(name: &str, answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let names = vec!["localhost".to_owned(), name.to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let builder = builder.unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![cert.der().clone()], key.into()).unwrap();
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (answer, remembered): (Arc<Answer>, _) = (Arc::new(answer), asked.clone());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, asked) = (tls.clone(), answer.clone(), remembered.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, answer.clone(), asked.clone()));
                    // Ends when the other side has asked enough.
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, ca_bundle: BASE64_STANDARD.encode(cert.pem()), asked, _runtime: runtime }
    }

    /// How its webhook at `path` is reached.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://localhost:{}/{path}", self.port), "caBundle": self.ca_bundle})
    }

    /// What it was asked so far about the object of a name: the paths and the requests.
    pub fn asked(&self, name: &str) -> Vec<(String, Value)> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(_, request)| request["name"] == name).cloned().collect()
    }
}

/// A `response` that lets the write pass with a JSON patch.
pub fn patched(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    if path == "moved" {
        // To a webhook that would let everything pass.
        let response = Response::builder().status(307).header("location", "/elsewhere");
        return Ok(response.body(Full::default()).unwrap());
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let request = &review["request"];
    asked.lock().unwrap().push((path.clone(), request.clone()));
    let uid = request["uid"].clone();
    // Who takes long holds up no others.
    let asked = request.clone();
    let mut response = tokio::task::spawn_blocking(move || answer(&path, &asked)).await.unwrap();
    response["uid"] = uid;
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::from(review.to_string())))
}
