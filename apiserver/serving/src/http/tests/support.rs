//! A server of two kinds, and answers that are easy to compare.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoa_log::MemoryLog;
use stoa_meta::{
    authorizer::AllowAll,
    definition::{
        Cell, Column, Part as WrittenAlone, ResourceDefinition, SelectableField, Subresource, SubresourceCall,
        SubresourceHandler, SubresourceResponse,
    },
    object::Object,
    request::{RequestContext, UserInfo},
    status::ApiError,
};
use stoa_registry::{
    registry::{Registry, Store},
    strategy::{DefaultStrategy, Strategy},
    testing::{Rack, Racks},
};
use tokio_util::sync::CancellationToken;

use crate::http::{ApiHandler, Body, RequestInfo, SubresourceCallExt as _, body};

/// What kubectl accepts.
pub(super) const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
struct GadgetSpec {
    #[serde(default)]
    size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Part {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<i64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct GadgetStatus {
    #[serde(default)]
    phase: String,
}

/// Cluster-scoped, and for clients only to read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Shelf", plural = "shelves")]
struct ShelfSpec {
    #[serde(default)]
    size: i64,
}

/// What has a part that is written alone.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Letter", namespaced, status = "LetterStatus")]
struct LetterSpec {
    to: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct LetterStatus {
    #[serde(default)]
    phase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<Seal>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Seal {
    wax: String,
    #[serde(default)]
    by: String,
}

/// Seals say who put them there.
#[derive(Debug)]
struct Letters;

impl Strategy for Letters {
    type Object = Letter;

    fn prepare_for_part(&self, context: &RequestContext, part: &str, new: &mut Letter, _: &Letter) {
        if part == "seal"
            && let Some(seal) = new.status.as_mut().and_then(|status| status.seal.as_mut())
        {
            seal.by.clone_from(&context.user.name);
        }
    }
}

#[derive(Debug)]
struct Gadgets;

impl Strategy for Gadgets {
    type Object = Gadget;

    fn warnings(&self, new: &Gadget, _: Option<&Gadget>) -> Vec<String> {
        (new.spec.size == 13).then(|| "spec.size: 13 is unlucky".to_owned()).into_iter().collect()
    }
}

/// Answers with the call it got.
#[derive(Debug)]
struct Spin;

#[async_trait]
impl SubresourceHandler for Spin {
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let speed = call.query.iter().find(|(name, _)| name == "speed").map(|(_, value)| value);
        let answer = json!({
            "namespace": call.namespace,
            "name": call.name,
            "method": call.method.as_str(),
            "speed": speed,
            "dryRun": call.context.dry_run,
            "fieldManager": call.context.field_manager,
            "body": String::from_utf8_lossy(&call.body),
        });
        Ok(http::Response::new(body::full(answer.to_string())))
    }
}

/// Creates another gadget, of which the one in the path is the owner.
#[derive(Debug)]
struct Copy {
    store: Arc<OnceLock<Arc<Store>>>,
}

#[async_trait]
impl SubresourceHandler for Copy {
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let complete = |object: &mut Object| {
            object.0.entry("spec").or_insert_with(|| json!({}))["owner"] = call.name.as_str().into();
            Ok(())
        };
        call.create(self.store.get().expect("set before the first call"), complete).await
    }
}

fn gadgets(store: Arc<OnceLock<Arc<Store>>>) -> ResourceDefinition {
    ResourceDefinition::from_crd(&Gadget::crd())
        .columns(&[
            Column::new("Size", Cell::Path(&["spec", "size"]), "How large it is.").kind("integer"),
            Column::new("Owner", Cell::Path(&["spec", "owner"]), "Whose it is.").wide(),
            Column::age(),
        ])
        .selectable(&[SelectableField { name: "spec.size", path: &["spec", "size"] }])
        .subresource(Subresource {
            name: "spin",
            verbs: &["get", "create"],
            kind: ("test.dev", "v1", "Spin"),
            description: "Spins it.",
            produces: &["text/plain"],
            handler: Arc::new(Spin),
        })
        .subresource(Subresource {
            name: "copy",
            verbs: &["create"],
            kind: ("test.dev", "v1", "Gadget"),
            description: "Makes another like it.",
            produces: &[],
            handler: Arc::new(Copy { store }),
        })
}

fn shelves() -> ResourceDefinition {
    ResourceDefinition { verbs: vec!["get", "list"], ..ResourceDefinition::from_crd(&Shelf::crd()) }
}

/// A server.
pub(super) struct Server {
    handler: ApiHandler,
    /// Ends the registry with the test.
    end: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::with_clock(jiff::Timestamp::now).await
    }

    pub(super) async fn with_clock(now: fn() -> jiff::Timestamp) -> Self {
        Self::over(Arc::new(MemoryLog::new()), now).await
    }

    /// A server over a log.
    pub(super) async fn over(log: Arc<MemoryLog>, now: fn() -> jiff::Timestamp) -> Self {
        let end = CancellationToken::new();
        let store = Arc::new(OnceLock::new());
        let registry = Registry::builder(log)
            .register(gadgets(store.clone()), Gadgets)
            .register(shelves(), DefaultStrategy::<Shelf>::default())
            .register(ResourceDefinition::from_crd(&Rack::crd()), Racks::default())
            .register(
                ResourceDefinition::from_crd(&Letter::crd())
                    .part(WrittenAlone { name: "seal", path: &["status", "seal"] }),
                Letters,
            )
            .bookmark_interval(Duration::from_millis(50))
            .end_with(end.clone())
            .build()
            .await
            .unwrap();
        let gadgets = registry.store("test.dev", "v1", "gadgets").unwrap();
        store.set(Arc::clone(gadgets)).unwrap();
        Self { handler: ApiHandler::new(&registry).with_clock(now), end }
    }

    /// A server of one other kind, over a log in memory.
    pub(super) async fn of(definition: ResourceDefinition, strategy: impl Strategy) -> Self {
        let end = CancellationToken::new();
        let builder = Registry::builder(Arc::new(MemoryLog::new())).register(definition, strategy);
        let registry = builder.end_with(end.clone()).build().await.unwrap();
        Self { handler: ApiHandler::new(&registry), end }
    }

    /// Sends a request and returns the answer as it begins.
    pub(super) async fn open(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.handle(request.body(body::full(body)).unwrap()).await
    }

    /// Answers a request.
    pub(super) async fn handle(&self, request: Request<Body>) -> http::Response<Body> {
        let info = RequestInfo::new(request.method(), request.uri());
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        self.handler.handle(info, RequestContext::new(user, Arc::new(AllowAll)), request).await
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        Answer::read(self.open(method, target, headers, body).await).await
    }

    pub(super) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], "").await
    }

    pub(super) async fn post(&self, target: &str, object: &Value) -> Answer {
        self.send("POST", target, &[("content-type", "application/json")], object.to_string()).await
    }

    pub(super) async fn put(&self, target: &str, object: &Value) -> Answer {
        self.send("PUT", target, &[("content-type", "application/json")], object.to_string()).await
    }

    /// Sends a merge patch.
    pub(super) async fn merge(&self, target: &str, patch: &Value) -> Answer {
        self.send("PATCH", target, &[("content-type", "application/merge-patch+json")], patch.to_string()).await
    }

    /// Applies a configuration, with this query.
    pub(super) async fn apply(&self, target: &str, query: &str, configuration: &Value) -> Answer {
        let headers = [("content-type", "application/apply-patch+yaml")];
        self.send("PATCH", &format!("{target}?{query}"), &headers, configuration.to_string()).await
    }

    /// Creates a gadget and returns it.
    pub(super) async fn create(&self, namespace: &str, gadget: Value) -> Value {
        let answer = self.post(&format!("/apis/test.dev/v1/namespaces/{namespace}/gadgets"), &gadget).await;
        assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
        answer.json()
    }
}

/// An answer that was read whole.
pub(super) struct Answer {
    pub(super) code: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// Reads the whole of an answer.
    pub(super) async fn read(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { code: parts.status, headers: parts.headers, body }
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A header, or the empty string.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// Compares a failure that upstream gives no reason.
    #[track_caller]
    pub(super) fn assert_status_without_reason(&self, code: u16, message: &str) {
        let status = self.json();
        assert_eq!((&status["code"], &status["message"], status.get("reason")), (&code.into(), &message.into(), None));
        assert_eq!(self.code.as_u16(), code);
    }

    /// Compares what a failure tells; its details are left aside.
    #[track_caller]
    pub(super) fn assert_status(&self, code: u16, reason: &str, message: &str) {
        let details = self.json()["details"].take();
        self.assert_failure(code, reason, message, &details);
    }

    /// Compares all that a failure tells; without details these are null.
    #[track_caller]
    pub(super) fn assert_failure(&self, code: u16, reason: &str, message: &str, details: &Value) {
        let mut expected = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        });
        if !details.is_null() {
            expected["details"] = details.clone();
        }
        assert_eq!(self.json(), expected);
        assert_eq!(self.code.as_u16(), code);
    }
}

pub(super) fn gadget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}
