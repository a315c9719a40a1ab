//! What a NotificationSink may say.

use super::*;

const PLATFORM: &str = "platform.stoa.dev/v1alpha1";

fn sink(changes: Value) -> Value {
    let mut spec = json!({
        "url": "https://hooks.example.com/stoa?team=shop",
        "secretRef": { "namespace": "stoa-system", "name": "hooks", "key": "key" },
    });
    let Value::Object(changes) = changes else { panic!("an object") };
    spec.as_object_mut().unwrap().extend(changes);
    json!({ "metadata": { "name": "chat" }, "spec": spec })
}

#[tokio::test]
async fn what_is_left_out_has_a_default() {
    let world = World::new().await;
    let made = world.make(PLATFORM, "NotificationSink", "", sink(json!({}))).await.unwrap();
    let spec = made.get_path(&["spec"]).unwrap();
    let retry = json!({ "maxAge": "24h", "minBackoff": "1s", "maxBackoff": "5m" });
    assert_eq!((&spec["timeout"], &spec["suspend"], &spec["retry"]), (&json!("10s"), &json!(false), &retry));
}

#[tokio::test]
async fn selector_has_one_owner() {
    let world = World::new().await;
    let selector = json!({ "matchLabels": { "tier": "web" } });
    let made =
        world.make(PLATFORM, "NotificationSink", "", sink(json!({ "organizationSelector": selector }))).await.unwrap();
    let owned = &made.get_path(&["metadata", "managedFields"]).unwrap()[0]["fieldsV1"]["f:spec"];
    assert_eq!(owned["f:organizationSelector"], json!({}), "{owned}");
}

#[tokio::test]
async fn plain_http_is_for_loopback_alone() {
    let world = World::new().await;
    for (url, is_taken) in [
        ("http://127.0.0.1:8080/hook", true),
        ("http://[::1]:8080/hook", true),
        ("http://localhost/hook", true),
        ("http://10.0.0.1/hook", false),
        ("http://localhost.example.com/hook", false),
        ("http://127.0.0.1.example.com/hook", false),
    ] {
        let made = world.make(PLATFORM, "NotificationSink", "", {
            let mut object = sink(json!({ "url": url }));
            object["metadata"]["name"] = format!("s{}", url.len()).into();
            object
        });
        assert_eq!(made.await.is_ok(), is_taken, "{url}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_by_its_path() {
    let world = World::new().await;
    let mut told = Vec::new();
    for changes in [
        json!({ "url": "", "secretRef": { "namespace": "", "name": "", "key": "" } }),
        json!({ "url": "https://ann:hunter2@hooks.example.com/" }),
        json!({ "url": "ftp://hooks.example.com/" }),
        json!({ "url": "/hooks" }),
        json!({ "url": "https://hooks.example.com/#part", "source": "https://stoa.example.com/" }),
        json!({ "caBundle": "bm90aGluZw==" }),
        json!({ "events": ["dev.stoa.run.failed", "dev.stoa.run.failed", "dev.stoa.release.gone"] }),
        json!({ "organizations": ["shop", "shop"], "stacks": [""] }),
        json!({ "organizationSelector": { "matchExpressions": [{ "key": "tier", "operator": "Near" }] } }),
        json!({ "timeout": "10m", "retry": { "maxAttempts": 0, "maxAge": "soon", "minBackoff": "10s", "maxBackoff": "5s" } }),
    ] {
        let error = world.make(PLATFORM, "NotificationSink", "", sink(changes)).await.unwrap_err();
        assert_eq!(error.code(), 422, "{error}");
        assert!(!error.message().contains("hunter2"), "a password must not be repeated: {error}");
        told.extend(causes(&error));
    }
    // With all types there are, which others add to.
    let unsupported = told.iter().position(|cause| cause.starts_with("spec.events[2]: Unsupported value")).unwrap();
    let supported = told.remove(unsupported);
    assert!(supported.contains("\"dev.stoa.run.started\", "), "{supported}");
    insta::assert_snapshot!(told.join("\n"), @r#"
    spec.url: Required value
    spec.secretRef.namespace: Required value
    spec.secretRef.name: Required value
    spec.secretRef.key: Required value
    spec.url: Forbidden: must not contain credentials; events are signed with secretRef
    spec.url: Invalid value: "ftp://hooks.example.com/": must be a URL such as https://hooks.example.com/stoa
    spec.url: Invalid value: "/hooks": must be a URL such as https://hooks.example.com/stoa
    spec.url: Invalid value: "https://hooks.example.com/#part": must not have a fragment
    spec.source: Invalid value: "https://stoa.example.com/": must not end in '/' or have a query or a fragment
    spec.caBundle: Invalid value: "<certificates>": must be certificates, PEM in base64
    spec.events[1]: Duplicate value: "dev.stoa.run.failed"
    spec.organizations[1]: Duplicate value: "shop"
    spec.stacks[0]: Required value
    spec.organizationSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator
    spec.timeout: Invalid value: "10m": must be between 1s and 60s
    spec.retry.maxAttempts: Invalid value: 0: must be at least 1
    spec.retry.maxAge: Invalid value: "soon": "soon" is not a duration such as 30s or 1h30m
    spec.retry.maxBackoff: Invalid value: "5s": must not be shorter than minBackoff
    "#);
}
