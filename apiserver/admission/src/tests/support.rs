//! A server of gadgets with admission, and a webhook server over TLS whose answers a test chooses.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ParamKind, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
    },
    core::v1::Namespace,
};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoa_log::MemoryLog;
use stoa_meta::{
    authorizer::AllowAll,
    definition::{ResourceDefinition, Target},
    object::Object,
    request::{RequestContext, UserInfo},
    selector::LabelSelector,
    status::ApiError,
};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_registry::{
    admission::{AdmissionPlugin, Chain, Metrics},
    metrics::Families,
    registry::{Registry, Store, Stored, UpdateSource},
    strategy::Strategy,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Namespaces, ServiceResolver, Watched},
    policy::{Binding, MutatingPolicies, MutatingPolicy, Params, Policy, ValidatingPolicies},
    webhook::{Hook, MutatingWebhooks, ValidatingWebhooks},
};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
#[kube(scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"))]
pub(super) struct GadgetSpec {
    #[serde(default)]
    size: i64,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct GadgetStatus {
    #[serde(default)]
    phase: String,
}

/// Gadgets of a thousand and more are tagged as large by default.
#[derive(Debug)]
struct Gadgets;

impl Strategy for Gadgets {
    type Object = Gadget;

    fn set_defaults(&self, object: &mut Gadget) {
        if object.spec.size >= 1_000 && object.spec.tags.is_empty() {
            object.spec.tags = vec!["large".to_owned()];
        }
    }
}

/// Namespaces `shop`, labelled `env: prod`, and `lab`, labelled `env: test`.
#[derive(Debug)]
pub(super) struct FakeNamespaces;

#[async_trait]
impl Namespaces for FakeNamespaces {
    async fn namespace(&self, name: &str) -> Result<Arc<Namespace>, ApiError> {
        let env = match name {
            "shop" => "prod",
            "lab" => "test",
            _ => return Err(ApiError::not_found("", "namespaces", name)),
        };
        let mut found = Namespace::default();
        found.metadata.name = Some(name.to_owned());
        found.metadata.labels = Some([("env".to_owned(), env.to_owned())].into());
        Ok(Arc::new(found))
    }
}

/// Every Service is at this machine's loopback address.
#[derive(Debug)]
struct Loopback;

#[async_trait]
impl ServiceResolver for Loopback {
    async fn resolve(&self, namespace: &str, name: &str) -> Result<String, String> {
        if namespace == "hooks" { Ok("127.0.0.1".to_owned()) } else { Err(format!("service {name:?} not found")) }
    }
}

/// ConfigMaps by namespace and name.
#[derive(Debug, Default)]
pub(super) struct FakeParams(pub(super) BTreeMap<(String, String), Value>);

#[async_trait]
impl Params for FakeParams {
    async fn is_namespaced(&self, kind: &ParamKind) -> Result<bool, String> {
        match kind.kind.as_deref() {
            Some("ConfigMap") => Ok(true),
            other => {
                let (version, name) = (kind.api_version.as_deref().unwrap_or(""), other.unwrap_or(""));
                Err(format!("failed to find resource referenced by paramKind: '{version}, Kind={name}'"))
            }
        }
    }

    async fn find(&self, _: &ParamKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, String> {
        Ok(self.0.get(&(namespace.to_owned(), name.to_owned())).cloned().map(Arc::new))
    }

    async fn select(
        &self,
        _: &ParamKind,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Value>>, String> {
        let of_namespace = self.0.iter().filter(|((found, _), _)| found == namespace).map(|(_, value)| value);
        let selected =
            of_namespace.filter(|value| selector.matches(|key| value["metadata"]["labels"][key].as_str())).cloned();
        Ok(selected.map(Arc::new).collect())
    }
}

type Answer = dyn Fn(&Value) -> Value + Send + Sync;

/// A webhook server: answers `response` for a `request`, and remembers what it was asked.
pub(super) struct HookServer {
    pub(super) port: u16,
    pub(super) ca: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl HookServer {
    /// The requests so far; takes them.
    pub(super) fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Starts a server whose `/<path>` is told to `answer` in `path` of the request.
    pub(super) async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let ca = CertificateAuthority::new("hooks").unwrap();
        let request = CertificateRequest::server("hook").dns("localhost").dns("gate.hooks.svc");
        let certificate = ca.issue(&request).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = acceptor(&certificate.certificate_pem, &certificate.key_pem);
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (remembered, answer): (_, Arc<Answer>) = (asked.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, remembered, answer) = (tls.clone(), remembered.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, remembered.clone(), answer.clone()));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, ca: ca.certificate_pem().to_owned(), asked }
    }

    /// A webhook of this server for all writes of gadgets, as JSON to be changed.
    pub(super) fn hook(&self, name: &str, path: &str) -> Value {
        use base64::Engine as _;
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {
                "url": format!("https://localhost:{}/{path}", self.port),
                "caBundle": base64::prelude::BASE64_STANDARD.encode(&self.ca),
            },
            "rules": [{"apiGroups": ["test.dev"], "apiVersions": ["*"], "resources": ["gadgets"], "operations": ["*"]}],
        })
    }
}

fn acceptor(certificate: &str, key: &str) -> tokio_rustls::TlsAcceptor {
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()).into()
}

async fn respond(
    request: hyper::Request<Incoming>,
    asked: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Answer>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    review["request"]["path"] = path.clone().into();
    review["request"]["query"] = query.into();
    let times_asked = {
        let mut asked = asked.lock().unwrap();
        asked.push(review["request"].clone());
        asked.len()
    };
    let mut response = answer(&review["request"]);
    if path == "broken" {
        return Ok(Response::builder().status(500).body(Full::from("no such luck")).unwrap());
    }
    // `busy-<times>-<code>` cannot answer so often, and says with which code and when it can.
    if let Some((times, code)) = path.strip_prefix("busy-").and_then(|of| of.split_once('-'))
        && times_asked <= times.parse().unwrap()
    {
        let busy = Response::builder().status(code).header("retry-after", "0");
        return Ok(busy.body(Full::default()).unwrap());
    }
    if path == "silent" {
        return Ok(Response::new(Full::default()));
    }
    if path == "never" {
        std::future::pending::<()>().await;
    }
    response["uid"] = review["request"]["uid"].clone();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::from(review.to_string())))
}

/// `allowed: true`, with a JSON patch.
pub(super) fn patched(operations: Value) -> Value {
    use base64::Engine as _;
    let patch = base64::prelude::BASE64_STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"})
}

/// What a cluster configures.
#[derive(Default)]
pub(super) struct Configured {
    /// Configurations by name, each with its webhooks.
    pub(super) mutating: Vec<(&'static str, Vec<Value>)>,
    pub(super) validating: Vec<(&'static str, Vec<Value>)>,
    pub(super) policies: Vec<Value>,
    pub(super) bindings: Vec<Value>,
    /// Policies that mutate.
    pub(super) mutations: Vec<Value>,
    pub(super) mutation_bindings: Vec<Value>,
    pub(super) params: FakeParams,
    /// Plugins that are asked before those of a cluster.
    pub(super) plugins: Vec<Arc<dyn AdmissionPlugin>>,
}

/// A server of gadgets.
pub(super) struct Server {
    pub(super) gadgets: Arc<Store>,
    pub(super) context: RequestContext,
    metrics: Families,
    end: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("it has the kind's shape"))
}

impl Server {
    pub(super) async fn new(configured: Configured) -> Self {
        let resolver: Arc<dyn ServiceResolver> = Arc::new(Loopback);
        let configuration = |(name, hooks): (&str, Vec<Value>)| json!({"metadata": {"name": name}, "webhooks": hooks});
        let mutating = configured.mutating.into_iter().map(|c| read(configuration(c))).collect();
        let validating = configured.validating.into_iter().map(|c| read(configuration(c))).collect();
        let policy = |value| Arc::new(Policy::compile(&read::<ValidatingAdmissionPolicy>(value)));
        let binding = |value| Arc::new(Binding::of_validating(&read::<ValidatingAdmissionPolicyBinding>(value)));
        let mutation = |value| Arc::new(MutatingPolicy::compile(&read::<MutatingAdmissionPolicy>(value)));
        let mutation_binding = |value| Arc::new(Binding::of_mutating(&read::<MutatingAdmissionPolicyBinding>(value)));
        let params: Arc<dyn Params> = Arc::new(configured.params);
        let namespaces: Arc<dyn Namespaces> = Arc::new(FakeNamespaces);
        let of_cluster: [Arc<dyn AdmissionPlugin>; 4] = [
            Arc::new(MutatingPolicies::new(
                Watched::fixed(configured.mutations.into_iter().map(mutation).collect()),
                Watched::fixed(configured.mutation_bindings.into_iter().map(mutation_binding).collect()),
                params.clone(),
                namespaces.clone(),
            )),
            Arc::new(MutatingWebhooks::new(Watched::fixed(Hook::of_mutating(mutating, &resolver)), namespaces.clone())),
            Arc::new(ValidatingPolicies::new(
                Watched::fixed(configured.policies.into_iter().map(policy).collect()),
                Watched::fixed(configured.bindings.into_iter().map(binding).collect()),
                params,
                namespaces.clone(),
            )),
            Arc::new(ValidatingWebhooks::new(Watched::fixed(Hook::of_validating(validating, &resolver)), namespaces)),
        ];
        let plugins = configured.plugins.into_iter().chain(of_cluster).collect();
        let end = CancellationToken::new();
        let metrics = Families::default();
        let registry = Registry::builder(Arc::new(MemoryLog::new()))
            .register(ResourceDefinition::from_crd(&Gadget::crd()), Gadgets)
            .admission(Chain::new(plugins).counted(Metrics::new(&metrics).unwrap()))
            .end_with(end.clone())
            .build()
            .await
            .expect("the log reads");
        let user = UserInfo { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
        let gadgets = registry.store("test.dev", "v1", "gadgets").expect("registered").clone();
        Self { gadgets, context: RequestContext::new(user, Arc::new(AllowAll)), metrics, end }
    }

    pub(super) async fn create(&self, namespace: &str, name: &str, size: i64) -> Result<Arc<Stored>, ApiError> {
        self.gadgets.create(&self.context, namespace, gadget(name, size)).await
    }

    pub(super) async fn update(&self, target: Target, object: Object) -> Result<Arc<Stored>, ApiError> {
        let name = object.name().to_owned();
        let change = UpdateSource::Object(object);
        self.gadgets.update(&self.context, "shop", &name, target, change).await.map(|(stored, _)| stored)
    }

    /// The lines of `/metrics` that begin like this.
    pub(super) fn metrics(&self, beginning: &str) -> Vec<String> {
        use prometheus::Encoder as _;
        let mut text = Vec::new();
        prometheus::TextEncoder::new().encode(&self.metrics.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
    }

    pub(super) fn dry(&self) -> RequestContext {
        let mut context = self.context.clone();
        context.dry_run = true;
        context
    }
}

pub(super) fn gadget(name: &str, size: i64) -> Object {
    let labels = json!({"kind": name});
    let value = json!({
        "apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": name, "labels": labels},
        "spec": {"size": size},
    });
    Object(value.as_object().unwrap().clone())
}

/// Code, reason and message of a refusal.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> (u16, String, String) {
    let error = outcome.expect_err("it is refused");
    (error.code(), error.reason().to_owned(), error.message().to_owned())
}
