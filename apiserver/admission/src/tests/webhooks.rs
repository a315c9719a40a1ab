//! Admission by webhooks: what they are asked, and what becomes of their answers.
//!
//! Elsewhere: `rules` is about which are asked, `failures` about those that do not answer, and `metrics` about what is counted.

mod failures;
mod metrics;
mod rules;

use serde_json::json;
use stoa_meta::{definition::Target, object::Object};
use stoa_registry::registry::{DeleteOptions, ListOptions};

use super::support::{Configured, HookServer, Server, gadget, patched, refused};

/// Denies gadgets of size 13, and warns of the others.
async fn gate() -> HookServer {
    HookServer::start(|request| {
        let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
        if object["spec"]["size"] == 13 {
            return json!({"allowed": false, "status": {"message": "13 is unlucky", "code": 403, "reason": "Forbidden"}});
        }
        json!({"allowed": true, "warnings": ["looked at"], "auditAnnotations": {"seen": "yes"}})
    })
    .await
}

async fn with_validating(hook: serde_json::Value) -> Server {
    Server::new(Configured { validating: vec![("gates", vec![hook])], ..Configured::default() }).await
}

#[tokio::test]
async fn a_validating_webhook_refuses_writes() {
    let gate = gate().await;
    let server = with_validating(gate.hook("gate.test.dev", "validate")).await;
    let refusal = (
        403,
        "Forbidden".to_owned(),
        "admission webhook \"gate.test.dev\" denied the request: 13 is unlucky".to_owned(),
    );
    assert_eq!(refused(server.create("shop", "a", 13).await), refusal);
    let stored = server.create("shop", "a", 1).await.unwrap();
    assert_eq!(server.context.take_warnings(), ["looked at"]);
    assert_eq!(refused(server.update(Target::Main, gadget("a", 13)).await), refusal);
    assert_eq!(stored.generation(), 1);
    server.gadgets.delete(&server.context, "shop", "a", &DeleteOptions::default()).await.unwrap();
    assert_eq!(server.gadgets.list(None, &ListOptions::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn a_webhook_is_asked_what_kube_apiserver_would_ask() {
    let gate = gate().await;
    let server = with_validating(gate.hook("gate.test.dev", "validate")).await;
    server.create("shop", "a", 1).await.unwrap();
    server.update(Target::Main, gadget("a", 2)).await.unwrap();
    server.gadgets.delete(&server.dry(), "shop", "a", &DeleteOptions::default()).await.unwrap();
    let asked = gate.asked();
    let [create, update, delete] = asked.as_slice() else { panic!("{asked:#?}") };
    let kind = json!({"group": "test.dev", "version": "v1", "kind": "Gadget"});
    let resource = json!({"group": "test.dev", "version": "v1", "resource": "gadgets"});
    for request in &asked {
        assert_eq!((&request["kind"], &request["requestKind"]), (&kind, &kind));
        assert_eq!((&request["resource"], &request["requestResource"]), (&resource, &resource));
        assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("shop")));
        assert_eq!(request["userInfo"], json!({"username": "ann", "groups": ["dev"]}));
        assert!(request.get("subResource").is_none());
    }
    assert_eq!(create["operation"], "CREATE");
    assert_eq!(create["options"], json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
    assert_eq!((&create["oldObject"], &create["dryRun"]), (&json!(null), &json!(false)));
    assert!(create["object"]["metadata"]["uid"].is_string(), "{create:#}");
    assert_eq!(update["operation"], "UPDATE");
    assert_eq!((&update["object"]["spec"]["size"], &update["oldObject"]["spec"]["size"]), (&json!(2), &json!(1)));
    assert!(update["oldObject"]["metadata"]["resourceVersion"].is_string());
    assert_eq!(delete["operation"], "DELETE");
    assert_eq!((&delete["object"], &delete["oldObject"]["spec"]["size"]), (&json!(null), &json!(2)));
    assert_eq!((&delete["options"]["kind"], &delete["dryRun"]), (&json!("DeleteOptions"), &json!(true)));
}

#[tokio::test]
async fn what_a_webhook_puts_into_another_namespace_is_refused() {
    let elsewhere = json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}]);
    let moves = HookServer::start(move |_| patched(elsewhere.clone())).await;
    let hooks = vec![("moves", vec![moves.hook("moves.test.dev", "mutate")])];
    let server = Server::new(Configured { mutating: hooks, ..Configured::default() }).await;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    let refusal = (400, "BadRequest".to_owned(), message.to_owned());
    assert_eq!(refused(server.create("shop", "a", 1).await), refusal);
    assert_eq!(server.gadgets.list(None, &ListOptions::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn mutating_webhooks_run_in_name_order() {
    let hooks = HookServer::start(|request| {
        let path = request["path"].as_str().unwrap();
        patched(json!([{"op": "add", "path": "/spec/tags/-", "value": path}]))
    })
    .await;
    let server = Server::new(Configured {
        mutating: vec![
            ("zeta", vec![hooks.hook("z.test.dev", "z")]),
            ("alpha", vec![hooks.hook("b.test.dev", "b"), hooks.hook("a.test.dev", "a")]),
        ],
        ..Configured::default()
    })
    .await;
    let mut object = gadget("a", 1);
    object.0["spec"]["tags"] = json!([]);
    let stored = server.gadgets.create(&server.context, "shop", object).await.unwrap();
    assert_eq!(stored.object().0["spec"]["tags"], json!(["b", "a", "z"]));
}

#[tokio::test]
async fn server_validates_webhook_patches() {
    let hooks = HookServer::start(|request| match request["path"].as_str().unwrap() {
        "type" => patched(json!([{"op": "add", "path": "/spec/size", "value": "many"}])),
        "unknown" => patched(json!([{"op": "add", "path": "/spec/colour", "value": "red"}])),
        "label" => patched(json!([{"op": "add", "path": "/metadata/labels/-", "value": "not valid!"}])),
        "test" => patched(json!([{"op": "test", "path": "/spec/size", "value": 9}])),
        _ => patched(json!([{"op": "remove", "path": "/spec/nothing"}])),
    })
    .await;
    let outcome = async |path: &str| {
        let mutating = vec![("m", vec![hooks.hook("m.test.dev", path)])];
        let server = Server::new(Configured { mutating, ..Configured::default() }).await;
        server.create("shop", "a", 1).await
    };
    let (_, _, message) = refused(outcome("type").await);
    let wrong = "json: cannot unmarshal string into Go struct field GadgetSpec.spec.size of type int64";
    assert_eq!(message, format!("Internal error occurred: {wrong}"));
    assert_eq!(outcome("unknown").await.unwrap().object().0["spec"].get("colour"), None);
    assert_eq!(refused(outcome("label").await).0, 422);
    let (code, reason, message) = refused(outcome("missing").await);
    assert_eq!((code, reason.as_str()), (500, "InternalError"), "{message}");
    assert!(message.starts_with("Internal error occurred: ") && message.contains("nothing"), "{message}");
    let (_, _, message) = refused(outcome("test").await);
    assert_eq!(message, "Internal error occurred: testing value /spec/size failed: test failed");
}

#[tokio::test]
async fn server_reads_patch_before_checking_type() {
    let hooks = HookServer::start(|request| {
        let test = json!({"op": "test", "path": "/spec/size", "value": 1});
        let (patch, patch_type) = match request["path"].as_str().unwrap() {
            "long" => (json!(vec![test; 10_001]), "JSONPatch"),
            "none" => (json!([]), "Other"),
            "other" => (json!([test]), "Other"),
            _ => (json!({}), "Other"),
        };
        let mut response = patched(patch);
        response["patchType"] = patch_type.into();
        response
    })
    .await;
    let outcome = async |path: &str| {
        let mutating = vec![("m", vec![hooks.hook("m.test.dev", path)])];
        let server = Server::new(Configured { mutating, ..Configured::default() }).await;
        server.create("shop", "a", 1).await
    };
    outcome("long").await.unwrap();
    outcome("none").await.unwrap();
    let refusal = |rest: &str| format!("Internal error occurred: failed calling webhook \"m.test.dev\": {rest}");
    assert_eq!(refused(outcome("other").await).2, refusal("unsupported patch type \"Other\""));
    assert_eq!(
        refused(outcome("unreadable").await).2,
        refusal(
            "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type \
             jsonpatch.Patch"
        )
    );
}

#[tokio::test]
async fn audit_annotations_are_as_upstream_writes_them() {
    let hooks = HookServer::start(|request| {
        let mut response = match request["path"].as_str().unwrap() {
            "mutate" => patched(json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "<&>"}}])),
            _ => json!({"allowed": true}),
        };
        response["auditAnnotations"] =
            json!({"seen": "yes", "a/b": "no", "": "no", "-a": "no", "a b": "no", ("x".repeat(64)): "no"});
        response
    })
    .await;
    let server = Server::new(Configured {
        mutating: vec![("m", vec![hooks.hook("m.test.dev", "mutate")])],
        validating: vec![("v", vec![hooks.hook("v.test.dev", "v"), hooks.hook("No_Name", "v")])],
        ..Configured::default()
    })
    .await;
    server.create("shop", "a", 1).await.unwrap();
    let said = server.context.annotations();
    assert_eq!(
        json!(said.always),
        json!({
            "m.test.dev/seen": "yes",
            "v.test.dev/seen": "yes",
            "mutation.webhook.admission.k8s.io/round_0_index_0":
                r#"{"configuration":"m","webhook":"m.test.dev","mutated":true}"#,
        })
    );
    let patch = r#"{"configuration":"m","webhook":"m.test.dev","patch":[{"op":"add","path":"/metadata/annotations","value":{"a":"\u003c\u0026\u003e"}}],"patchType":"JSONPatch"}"#;
    assert_eq!(json!(said.with_bodies), json!({"patch.webhook.admission.k8s.io/round_0_index_0": patch}));
}

#[tokio::test]
async fn mutating_webhook_mends_invalid_object() {
    let hooks = HookServer::start(|request| match request["path"].as_str().unwrap() {
        "mend" => patched(json!([{"op": "add", "path": "/spec", "value": {"size": 5}}])),
        _ => json!({"allowed": true}),
    })
    .await;
    // What its schema requires is not there.
    let broken = || {
        let mut object = gadget("a", 1);
        object.0.remove("spec");
        object
    };
    let server = async |path: &str| {
        let mutating = vec![("m", vec![hooks.hook("m.test.dev", path)])];
        Server::new(Configured { mutating, ..Configured::default() }).await
    };
    let mended = server("mend").await;
    let stored = mended.gadgets.create(&mended.context, "shop", broken()).await.unwrap();
    assert_eq!((&stored.object().0["spec"]["size"], stored.generation()), (&json!(5), 1));
    assert_eq!(mended.update(Target::Main, broken()).await.unwrap().generation(), 1);
    assert!(hooks.asked().iter().all(|request| request["object"].get("spec").is_none()));

    let seen = server("see").await;
    let message = "Gadget.test.dev \"a\" is invalid: spec: Required value".to_owned();
    let refusal = (422, "Invalid".to_owned(), message);
    assert_eq!(refused(seen.gadgets.create(&seen.context, "shop", broken()).await), refusal);
    assert_eq!(hooks.asked().len(), 1);
    seen.create("shop", "a", 1).await.unwrap();
    hooks.asked();
    assert_eq!(refused(seen.update(Target::Main, broken()).await), refusal);
    let mut stale = broken();
    stale.metadata_mut().insert("resourceVersion".to_owned(), json!("999"));
    assert_eq!(refused(seen.update(Target::Main, stale).await).0, 409);
    assert_eq!(hooks.asked().len(), 2);
}

#[tokio::test]
async fn a_scale_is_admitted_as_what_it_is() {
    let hooks = HookServer::start(|request| match request["path"].as_str().unwrap() {
        "mutate" => patched(json!([{"op": "replace", "path": "/spec/replicas", "value": 7}])),
        _ => json!({"allowed": true}),
    })
    .await;
    let of_scales = |path: &str| {
        let mut hook = hooks.hook(&format!("{path}.test.dev"), path);
        hook["rules"][0]["resources"] = json!(["gadgets/scale"]);
        hook
    };
    let server = Server::new(Configured {
        mutating: vec![("m", vec![of_scales("mutate")])],
        validating: vec![("v", vec![of_scales("look")])],
        ..Configured::default()
    })
    .await;
    server.create("shop", "a", 1).await.unwrap();
    let scale = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"replicas": 2}});
    let stored = server.update(Target::Scale, Object(scale.as_object().unwrap().clone())).await.unwrap();
    assert_eq!((&stored.object().0["spec"]["size"], stored.generation()), (&json!(7), 2));
    let asked = hooks.asked();
    let [mutating, validating] = asked.as_slice() else { panic!("{asked:#?}") };
    for request in &asked {
        assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
        assert_eq!(request["resource"], json!({"group": "test.dev", "version": "v1", "resource": "gadgets"}));
        assert_eq!(request["subResource"], "scale");
        assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
    }
    assert_eq!(mutating["object"]["spec"], json!({"replicas": 2}));
    assert_eq!(validating["object"]["spec"], json!({"replicas": 7}));
    assert_eq!(validating["object"]["kind"], "Scale");
}

#[tokio::test]
async fn later_change_reinvokes_mutating_webhook() {
    let hooks = HookServer::start(|request| match request["path"].as_str().unwrap() {
        "late" if request["object"]["spec"]["size"] == 1 => {
            patched(json!([{"op": "replace", "path": "/spec/size", "value": 2}]))
        }
        _ => json!({"allowed": true}),
    })
    .await;
    let mut early = hooks.hook("early.test.dev", "early");
    early["reinvocationPolicy"] = json!("IfNeeded");
    let once = hooks.hook("once.test.dev", "once");
    let late = hooks.hook("late.test.dev", "late");
    let mutating = vec![("m", vec![early, once, late])];
    let server = Server::new(Configured { mutating, ..Configured::default() }).await;
    server.create("shop", "a", 1).await.unwrap();
    let asked: Vec<_> =
        hooks.asked().iter().map(|r| (r["path"].clone(), r["object"]["spec"]["size"].clone())).collect();
    assert_eq!(
        asked,
        [(json!("early"), json!(1)), (json!("once"), json!(1)), (json!("late"), json!(1)), (json!("early"), json!(2))]
    );
}
