//! What a standalone server takes for ConfigMaps, Secrets and Namespaces.

use serde_json::{Value, json};
use stoa_machinery::{
    RequestContext,
    registry::{Target, UpdateSource},
};

use super::{World, causes};

/// Each of `expected` is in what an object is refused for, or empty where it is taken.
async fn check(kind: &str, objects: &[Value], expected: &[&str]) {
    let world = World::new().await;
    let namespace = if kind == "Namespace" { "" } else { "shop" };
    for (i, (object, expected)) in objects.iter().zip(expected).enumerate() {
        let mut named = json!({ "metadata": { "name": format!("a{i}") } });
        named.as_object_mut().unwrap().extend(object.as_object().unwrap().clone());
        let made = world.make("v1", kind, namespace, named).await;
        let said = made.as_ref().err().map_or("", |error| error.message());
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{object}: {said:?}");
    }
}

#[tokio::test]
async fn config_maps_hold_what_kubernetes_has_them_hold() {
    let long = "x".repeat((1 << 20) + 1);
    check(
        "ConfigMap",
        &[
            json!({ "data": { "a.b": "c" }, "binaryData": { "c": "AAA=" } }),
            json!({ "data": { "a b": "c" } }),
            json!({ "data": { "a": "c" }, "binaryData": { "a": "AAA=" } }),
            json!({ "data": { "a": long } }),
        ],
        &[
            "",
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of",
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
            "Too long: may not be more than 1048576 bytes",
        ],
    )
    .await;
}

#[tokio::test]
async fn secrets_have_the_keys_of_their_type() {
    let of = |kind: &str, data: Value| json!({ "type": format!("kubernetes.io/{kind}"), "stringData": data });
    check(
        "Secret",
        &[
            of("tls", json!({ "tls.key": "k" })),
            of("tls", json!({ "tls.key": "k", "tls.crt": "c" })),
            of("basic-auth", json!({})),
            of("basic-auth", json!({ "password": "" })),
            of("ssh-auth", json!({ "ssh-privatekey": "" })),
            of("dockerconfigjson", json!({})),
            of("dockerconfigjson", json!({ ".dockerconfigjson": "x" })),
            of("dockerconfigjson", json!({ ".dockerconfigjson": "{}" })),
            of("service-account-token", json!({})),
            json!({ "type": "example.com/own", "stringData": { "../a": "b" } }),
            json!({ "type": "" }),
        ],
        &[
            "data[tls.crt]: Required value",
            "",
            "[data[username]: Required value, data[password]: Required value]",
            "",
            "data[ssh-privatekey]: Required value",
            "data[.dockerconfigjson]: Required value",
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"",
            "",
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            "data[../a]: Invalid value: \"../a\"",
            "",
        ],
    )
    .await;
}

#[tokio::test]
async fn namespaces_have_names_without_dots() {
    check(
        "Namespace",
        &[json!({ "metadata": { "name": "a.b" } })],
        &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
    )
    .await;
}

#[tokio::test]
async fn what_is_immutable_stays_so() {
    let world = World::new().await;
    for kind in ["ConfigMap", "Secret"] {
        let value = if kind == "Secret" { "YQ==" } else { "a" };
        let object = json!({ "metadata": { "name": "a" }, "immutable": true, "data": { "a": value } });
        world.make("v1", kind, "shop", object).await.unwrap();
        let store = world.registry.store("", "v1", &format!("{}s", kind.to_lowercase())).unwrap();
        let change = UpdateSource::transform(move |current| {
            let mut new = current.clone();
            new.0["data"] = json!({});
            new.0["immutable"] = false.into();
            Ok(new)
        });
        let error =
            store.update(&RequestContext::internal("tests"), "shop", "a", Target::Main, change).await.unwrap_err();
        let why = "Forbidden: field is immutable when `immutable` is set";
        assert_eq!(causes(&error), [format!("immutable: {why}"), format!("data: {why}")]);
    }
}

#[tokio::test]
async fn the_namespace_default_stays() {
    let world = World::new().await;
    let namespaces = world.registry.store("", "v1", "namespaces").unwrap();
    assert!(!namespaces.definition().verbs.contains(&"deletecollection"));
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "default" } })).await.unwrap();
    let context = RequestContext::internal("tests");
    let error = namespaces.delete(&context, "", "default", &Default::default()).await.unwrap_err();
    assert_eq!(error.message(), "namespaces \"default\" is forbidden: this namespace may not be deleted");
}
