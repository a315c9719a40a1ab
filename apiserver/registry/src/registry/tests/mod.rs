//! Tests of the registry, over the log in memory: one module for each subject.

mod api;
mod changes;
mod computed;
mod concurrency;
mod create;
mod deep;
mod delete;
mod follow;
mod list;
pub(crate) mod scale;
mod size_limit;
mod undecodable;
mod update;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream::BoxStream};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoa_log::{Change, Expect, MemoryLog, Write};
use stoa_meta::{
    authorizer::AllowAll,
    definition::SelectableField,
    object::Object,
    request::{RequestContext, UserInfo},
    status::FieldError,
};

use super::*;
use crate::{
    metrics::Families,
    strategy::{Admission, Strategy},
};

#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus", derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub(super) struct GadgetSpec {
    #[serde(default)]
    pub(super) project: String,
    #[serde(default)]
    pub(super) size: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct GadgetStatus {
    #[serde(default)]
    pub(super) phase: String,
}

/// Sizes are at most 1,000,000 and 1 by default, the project stays as it is, and one project may not be used.
#[derive(Debug)]
struct Gadgets;

#[async_trait]
impl Strategy for Gadgets {
    type Object = Gadget;

    fn set_defaults(&self, object: &mut Gadget) {
        if object.spec.size == 0 {
            object.spec.size = 1;
        }
    }

    fn validate(&self, object: &Gadget) -> Vec<FieldError> {
        let too_big = object.spec.size > 1_000_000;
        too_big.then(|| FieldError::invalid("spec.size", object.spec.size, "too big")).into_iter().collect()
    }

    fn validate_update(&self, new: &Gadget, old: &Gadget) -> Vec<FieldError> {
        let changed = new.spec.project != old.spec.project;
        changed
            .then(|| FieldError::invalid("spec.project", &new.spec.project, "field is immutable"))
            .into_iter()
            .collect()
    }

    fn warnings(&self, new: &Gadget, _: Option<&Gadget>) -> Vec<String> {
        (new.spec.size == 13).then(|| "spec.size: 13 is unlucky".to_owned()).into_iter().collect()
    }

    async fn admit(&self, _: &RequestContext, change: Admission<'_, Gadget>) -> Result<(), ApiError> {
        let object = match change {
            Admission::Create(object) | Admission::Update { new: object, .. } => object,
            Admission::Delete(object) if object.spec.project == "kept" => {
                return Err(ApiError::forbidden("test.dev", "gadgets", "", "it is kept"));
            }
            Admission::Delete(_) => return Ok(()),
        };
        match object.spec.project.as_str() {
            "secret" => Err(ApiError::forbidden("test.dev", "gadgets", "", "the project is secret")),
            _ => Ok(()),
        }
    }
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Widget")]
struct WidgetSpec {
    #[serde(default)]
    size: i64,
}

/// Updates must say what they are based on, and create what is missing.
#[derive(Debug)]
struct Widgets;

impl Strategy for Widgets {
    type Object = Widget;

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }
}

/// Knows the namespaces `shop` and `other`, and `going`, which is terminating.
#[derive(Debug)]
struct Namespaces;

#[async_trait]
impl NamespaceLookup for Namespaces {
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError> {
        Ok(match namespace {
            "shop" | "other" => Some(NamespacePhase::Active),
            "going" => Some(NamespacePhase::Terminating),
            _ => None,
        })
    }
}

const FIELDS: &[SelectableField] = &[SelectableField { name: "spec.project", path: &["spec", "project"] }];

/// A server with gadgets and widgets.
struct Fixture {
    registry: Arc<Registry>,
    gadgets: Arc<Store>,
    widgets: Arc<Store>,
    context: RequestContext,
    metrics: Families,
    end: CancellationToken,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Fixture {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryLog::new()), Window::default()).await
    }

    async fn over(log: Arc<dyn Log>, window: Window) -> Self {
        let end = CancellationToken::new();
        let metrics = Families::default();
        let registry = Registry::builder(log)
            .metrics(Metrics::new(&metrics).expect("registered"))
            .register(ResourceDefinition::from_crd(&Gadget::crd()).selectable(FIELDS), Gadgets)
            .register(ResourceDefinition::from_crd(&Widget::crd()), Widgets)
            .namespaces(Arc::new(Namespaces))
            .window(window)
            .bookmark_interval(Duration::from_millis(50))
            .end_with(end.clone())
            .build()
            .await
            .expect("the log reads");
        let store = |plural| registry.store("test.dev", "v1", plural).expect("registered").clone();
        let (gadgets, widgets) = (store("gadgets"), store("widgets"));
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        Self { registry, gadgets, widgets, context: RequestContext::new(user, Arc::new(AllowAll)), metrics, end }
    }

    async fn create(&self, value: Value) -> Result<Arc<Stored>, ApiError> {
        self.gadgets.create(&self.context, "shop", object(value)).await
    }

    /// Creates `shop/<name>` with a size.
    async fn gadget(&self, name: &str, size: i64) -> Arc<Stored> {
        self.create(gadget(name, size)).await.expect("created")
    }

    async fn put(&self, value: Value) -> Result<Arc<Stored>, ApiError> {
        self.put_to(Target::Main, value).await
    }

    async fn put_to(&self, target: Target, value: Value) -> Result<Arc<Stored>, ApiError> {
        let object = object(value);
        let name = object.name().to_owned();
        let result = self.gadgets.update(&self.context, "shop", &name, target, UpdateSource::Object(object)).await;
        result.map(|(stored, created)| {
            assert!(!created);
            stored
        })
    }

    async fn resize(&self, name: &str, size: i64) -> Arc<Stored> {
        self.put(gadget(name, size)).await.expect("updated")
    }

    async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.gadgets.delete(&self.context, "shop", name, options).await
    }

    async fn list(&self, options: &ListOptions) -> Result<List, ApiError> {
        self.gadgets.list(Some("shop"), options).await
    }

    async fn head(&self) -> Version {
        self.registry.log().head().await.expect("head")
    }

    /// Writes bytes past the registry, as an earlier release may have.
    async fn put_bytes(&self, name: &str, bytes: &'static str) {
        let write = Write::new(
            Key::new(format!("/registry/test.dev/gadgets/shop/{name}")),
            Expect::Any,
            Change::Put(bytes::Bytes::from_static(bytes.as_bytes())),
        );
        self.registry.log().append(write).await.expect("appended");
    }
}

fn gadget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}

fn object(value: Value) -> Object {
    Object(value.as_object().expect("a map").clone())
}

fn value(stored: &Stored) -> Value {
    Value::Object(stored.object().0)
}

fn names(list: &List) -> Vec<&str> {
    list.items.iter().map(|item| item.name()).collect()
}

/// Code, reason and message of a failure.
fn failure<T: std::fmt::Debug>(result: Result<T, ApiError>) -> (u16, String, String) {
    let error = result.expect_err("a failure");
    (error.code(), error.reason().to_owned(), error.message().to_owned())
}

async fn next(events: &mut BoxStream<'static, Event>) -> Option<Event> {
    tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("an event in time")
}

/// An event as a line: what happened, to which object or at which version.
fn line(event: &Event) -> String {
    let object = |word: &str, object: &Stored| {
        assert_eq!(object.object().meta_str("resourceVersion"), object.version.to_string());
        format!("{word} {} size {} at {}", object.name(), object.object().0["spec"]["size"], object.version)
    };
    match event {
        Event::Added(stored) => object("added", stored),
        Event::Modified(stored) => object("modified", stored),
        Event::Deleted(stored) => object("deleted", stored),
        Event::Bookmark { version, initial_events_end: true } => format!("initial end at {version}"),
        Event::Bookmark { version, initial_events_end: false } => format!("bookmark at {version}"),
        Event::Error(error) => format!("error {} {}", error.code(), error.message()),
    }
}

async fn lines(events: &mut BoxStream<'static, Event>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.push(line(&next(events).await.expect("an event")));
    }
    lines
}
