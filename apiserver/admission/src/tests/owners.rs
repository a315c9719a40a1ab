//! Who owns what a write sets, what admission changes of it, and what it makes of `managedFields` itself.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stoa_meta::definition::Target;
use stoa_registry::registry::{Apply, UpdateSource};

use super::support::{Configured, HookServer, Server, gadget, patched};

/// What each manager of an object owns.
fn owners(object: &stoa_meta::object::Object) -> BTreeMap<String, Value> {
    let entries = object.0["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone())).collect()
}

/// Whether nobody owns annotations.
fn annotations_are_nobodys(object: &stoa_meta::object::Object) -> bool {
    !json!(owners(object)).to_string().contains("f:annotations")
}

async fn server(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (Server, HookServer) {
    let hooks = HookServer::start(answer).await;
    let mutating = vec![("m", vec![hooks.hook("m.test.dev", "m")])];
    let mut server = Server::new(Configured { mutating, ..Configured::default() }).await;
    server.context.field_manager = "kubectl".to_owned();
    (server, hooks)
}

#[tokio::test]
async fn webhook_sees_managed_fields_and_owns_none() {
    let (server, hooks) = server(|_| patched(json!([{"op": "add", "path": "/spec/tags", "value": ["x"]}]))).await;
    let stored = server.create("shop", "a", 1).await.unwrap();
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:kind": {}}}, "f:spec": {"f:size": {}, "f:tags": {}}});
    let asked = &hooks.asked()[0];
    assert_eq!(asked["object"]["metadata"]["managedFields"][0]["manager"], "kubectl");
    let seen = asked["object"]["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert_eq!(owners(&stored.object()), BTreeMap::from([("kubectl".to_owned(), seen.clone())]));
    assert_eq!(stored.object().0["spec"]["tags"], json!(["x"]));
    // The empty list that is the default is the writer's; what the webhook put there is nobody's besides.
    assert_eq!(seen, fields);
}

#[tokio::test]
async fn writer_owns_no_fields_admission_changed() {
    let (mut server, _hooks) = server(|request| match request["operation"].as_str() {
        Some("UPDATE") => patched(json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}}])),
        _ => json!({"allowed": true}),
    })
    .await;
    server.create("shop", "a", 1).await.unwrap();
    server.context.field_manager = "edit".to_owned();
    let stored = server.update(Target::Main, gadget("a", 2)).await.unwrap();
    assert_eq!(stored.object().0["metadata"]["annotations"], json!({"seen": "yes"}));
    assert_eq!(owners(&stored.object())["edit"], json!({"f:spec": {"f:size": {}}}));
    assert!(annotations_are_nobodys(&stored.object()));
    // An applied configuration is owned by its manager, and what admission adds to it is not.
    let configuration = json!({
        "apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"size": 3},
    });
    let configuration = stoa_meta::object::Object(configuration.as_object().unwrap().clone());
    let apply = Apply { configuration, force: true, previous: None, finish: Box::new(Ok) };
    server.context.field_manager = "applier".to_owned();
    let change = UpdateSource::Apply(apply);
    let (stored, _) = server.gadgets.update(&server.context, "shop", "a", Target::Main, change).await.unwrap();
    assert_eq!(owners(&stored.object())["applier"], json!({"f:spec": {"f:size": {}}}));
    assert!(annotations_are_nobodys(&stored.object()));
}

#[tokio::test]
async fn server_restores_broken_managed_fields_with_warning() {
    let broken = |field: &'static str, value: &'static str| {
        move |_: &Value| {
            let path = format!("/metadata/managedFields/0/{field}");
            patched(json!([{"op": "replace", "path": path, "value": value}]))
        }
    };
    let (server, _hooks) = server(broken("operation", "Guess")).await;
    let stored = server.create("shop", "a", 1).await.unwrap();
    assert_eq!(stored.object().0["metadata"]["managedFields"][0]["operation"], "Update");
    assert_eq!(
        server.context.take_warnings(),
        [
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
          admission controller; please fix your requests: operation must be `Apply` or `Update`"
        ]
    );
    let (server, _hooks) = self::server(broken("manager", "someone")).await;
    let stored = server.create("shop", "a", 1).await.unwrap();
    assert!(owners(&stored.object()).contains_key("someone"));
    assert!(server.context.take_warnings().is_empty());
}
