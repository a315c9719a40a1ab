use serde_json::json;

use super::support::{Configured, HookServer, Server, gadget, patched, refused};
use crate::{
    object::Object,
    registry::{DeleteOptions, ListOptions, Target, UpdateSource},
    request::RequestContext,
    status::ApiError,
};

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
async fn mutating_webhooks_change_the_object_in_the_order_of_their_names() {
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
async fn what_a_webhook_makes_of_an_object_is_checked_like_any_other() {
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
async fn a_patch_is_read_before_its_type_counts_and_may_be_long() {
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
async fn webhooks_see_values_that_are_refused_and_may_mend_them() {
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
async fn a_webhook_that_cannot_be_called_counts_as_its_failure_policy_says() {
    let hooks = gate().await;
    let failing = async |change: fn(&mut serde_json::Value)| {
        let mut hook = hooks.hook("gate.test.dev", "validate");
        change(&mut hook);
        let server = with_validating(hook).await;
        server.create("shop", "a", 1).await
    };
    let refusal = |rest: &str| {
        let text = format!("Internal error occurred: failed calling webhook \"gate.test.dev\": {rest}");
        (500, "InternalError".to_owned(), text)
    };
    assert_eq!(
        refused(failing(|hook| hook["clientConfig"]["url"] = json!("https://127.0.0.1:1/x")).await),
        refusal(
            "failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: \
             connection refused"
        )
    );
    assert!(
        failing(|hook| {
            hook["clientConfig"]["url"] = json!("https://127.0.0.1:1/x");
            hook["failurePolicy"] = json!("Ignore");
        })
        .await
        .is_ok()
    );
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["clientConfig"]["service"] = json!({"namespace": "elsewhere", "name": "gate", "path": "/x"});
    assert_eq!(
        refused(with_validating(hook).await.create("shop", "a", 1).await),
        refusal(
            "failed to call webhook: Post \"https://gate.elsewhere.svc:443/x?timeout=10s\": service \"gate\" not found"
        )
    );
    let (_, _, text) = refused(failing(|hook| hook["clientConfig"]["caBundle"] = json!("")).await);
    assert!(
        text.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{text}"
    );
    // It answers in v1.
    assert_eq!(
        refused(failing(|hook| hook["admissionReviewVersions"] = json!(["v1beta1"])).await),
        refusal(
            "failed to call webhook: converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown conversion"
        )
    );
    let ignored = |hook: &mut serde_json::Value| {
        hook["admissionReviewVersions"] = json!(["v1beta1"]);
        hook["failurePolicy"] = json!("Ignore");
    };
    assert!(failing(ignored).await.is_ok());
    let (_, _, text) = refused(failing(|hook| hook["admissionReviewVersions"] = json!(["v9"])).await);
    assert!(text.ends_with("webhook does not accept known AdmissionReview versions (v1, v1beta1)"), "{text}");
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_called_by_the_name_of_that() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    let service = json!({"namespace": "hooks", "name": "gate", "path": "/validate", "port": hooks.port});
    hook["clientConfig"] = json!({"service": service, "caBundle": hook["clientConfig"]["caBundle"]});
    let server = with_validating(hook).await;
    assert_eq!(refused(server.create("shop", "a", 13).await).0, 403);
    // The second call goes over the connection of the first.
    assert_eq!(refused(server.create("shop", "a", 13).await).0, 403);
}

#[tokio::test]
async fn a_slow_or_broken_webhook_is_told_so() {
    let hooks = gate().await;
    let mut never = hooks.hook("gate.test.dev", "never");
    never["timeoutSeconds"] = json!(1);
    let (code, _, text) = refused(with_validating(never).await.create("shop", "a", 1).await);
    assert!(code == 500 && text.ends_with("/never?timeout=1s\": context deadline exceeded"), "{text}");
    let broken = hooks.hook("gate.test.dev", "broken");
    let (_, _, text) = refused(with_validating(broken).await.create("shop", "a", 1).await);
    let expected = "an error on the server (\"no such luck\") has prevented the request from succeeding";
    assert!(text.ends_with(expected), "{text}");
    let silent = hooks.hook("gate.test.dev", "silent");
    let (_, _, text) = refused(with_validating(silent).await.create("shop", "a", 1).await);
    let expected = "failed to call webhook: 0-length response with status code: 200 and content type: application/json";
    assert!(text.ends_with(expected), "{text}");
}

#[tokio::test]
async fn a_webhook_that_asks_for_another_try_is_asked_again() {
    let busy = "the server has received too many requests and has asked us to try again later";
    for (path, asked, outcome) in [
        ("busy-2-503", 3, Ok(())),
        ("busy-10-429", 11, Ok(())),
        ("busy-11-429", 11, Err(busy)),
        ("busy-1-404", 1, Err("the server could not find the requested resource")),
        // It does not say when.
        ("broken", 1, Err("an error on the server (\"no such luck\") has prevented the request from succeeding")),
    ] {
        let hooks = gate().await;
        let server = with_validating(hooks.hook("gate.test.dev", path)).await;
        match (server.create("shop", "a", 1).await.map(drop), outcome) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(why)) => assert!(error.message().ends_with(why), "{path}: {error:?}"),
            (came, _) => panic!("{path}: {came:?}"),
        }
        assert_eq!(hooks.asked().len(), asked, "{path}");
    }
}

#[tokio::test]
async fn a_webhook_hears_how_long_it_has() {
    use std::time::Duration;
    use tokio::time::Instant;
    let hooks = gate().await;
    let server = with_validating(hooks.hook("gate.test.dev", "validate")).await;
    for (left, told) in [(None, "timeout=10s"), (Some(60_000), "timeout=10s"), (Some(3_200), "timeout=4s")] {
        let mut context = server.dry();
        if let Some(left) = left {
            context.end_by(Instant::now() + Duration::from_millis(left));
            // What ends later changes nothing.
            context.end_by(Instant::now() + Duration::from_secs(90));
        }
        server.gadgets.create(&context, "shop", gadget("a", 1)).await.unwrap();
        assert_eq!(hooks.asked()[0]["query"], told);
    }
}

#[tokio::test]
async fn dry_runs_reach_only_webhooks_without_side_effects() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["sideEffects"] = json!("Some");
    let server = with_validating(hook).await;
    let outcome = server.gadgets.create(&server.dry(), "shop", gadget("a", 1)).await;
    let text = "admission webhook \"gate.test.dev\" does not support dry run";
    assert_eq!(refused(outcome), (400, "BadRequest".to_owned(), text.to_owned()));
    assert!(hooks.asked().is_empty());
    server.create("shop", "a", 1).await.unwrap();
}

/// How often a webhook is asked about the creation of `a` in `shop`, and a change of its status.
async fn times_asked(change: fn(&mut serde_json::Value)) -> (usize, usize) {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    change(&mut hook);
    let server = with_validating(hook).await;
    server.create("shop", "a", 1).await.unwrap();
    let created = hooks.asked().len();
    let mut object = gadget("a", 1);
    object.0.insert("status".to_owned(), json!({"phase": "Ready"}));
    server.update(Target::Status, object).await.unwrap();
    (created, hooks.asked().len())
}

#[tokio::test]
async fn rules_and_selectors_decide_who_is_asked() {
    assert_eq!(times_asked(|_| {}).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["resources"] = json!(["*/*"])).await, (1, 1));
    assert_eq!(times_asked(|hook| hook["rules"][0]["resources"] = json!(["gadgets/status"])).await, (0, 1));
    assert_eq!(times_asked(|hook| hook["rules"][0]["operations"] = json!(["DELETE"])).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["apiVersions"] = json!(["v2"])).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["apiGroups"] = json!(["*"])).await, (1, 0));
    // There is no other version that would be equivalent to this one.
    let equivalent = |hook: &mut serde_json::Value| {
        hook["matchPolicy"] = json!("Equivalent");
        hook["rules"][0]["apiVersions"] = json!(["v2"]);
    };
    assert_eq!(times_asked(equivalent).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["scope"] = json!("Cluster")).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["scope"] = json!("Namespaced")).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["namespaceSelector"] = json!({"matchLabels": {"env": "test"}})).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}})).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["objectSelector"] = json!({"matchLabels": {"kind": "b"}})).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["objectSelector"] = json!({"matchLabels": {"kind": "a"}})).await, (1, 0));
    assert_eq!(
        times_asked(|hook| hook["matchConditions"] = json!([{"name": "c", "expression": "object.spec.size > 5"}]))
            .await,
        (0, 0)
    );
    assert_eq!(
        times_asked(|hook| hook["matchConditions"] = json!([{"name": "c", "expression": "request.name == 'a'"}])).await,
        (1, 0)
    );
}

#[tokio::test]
async fn a_match_condition_that_fails_counts_as_the_failure_policy_says() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["matchConditions"] = json!([{"name": "c", "expression": "object.spec.missing == 1"}]);
    let (code, _, text) = refused(with_validating(hook.clone()).await.create("shop", "a", 1).await);
    let expected = "gadgets.test.dev \"a\" is forbidden: expression 'object.spec.missing == 1' resulted in error: no \
                    such key: missing";
    assert_eq!((code, text.as_str()), (403, expected));
    hook["failurePolicy"] = json!("Ignore");
    with_validating(hook).await.create("shop", "a", 13).await.unwrap();
    assert!(hooks.asked().is_empty());
}

#[tokio::test]
async fn a_webhook_is_called_again_when_another_changed_the_object_after_it() {
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

#[tokio::test]
async fn each_object_of_a_collection_is_asked_about() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["rules"][0]["operations"] = json!(["DELETE"]);
    let server = with_validating(hook).await;
    for (name, size) in [("a", 1), ("b", 13), ("c", 1)] {
        server.create("shop", name, size).await.unwrap();
    }
    let all = (ListOptions::default(), DeleteOptions::default());
    let outcome = server.gadgets.delete_collection(&server.context, Some("shop"), &all.0, &all.1).await;
    assert_eq!(refused(outcome).0, 403);
    let left = server.gadgets.list(Some("shop"), &ListOptions::default()).await.unwrap();
    assert!(left.items.iter().any(|item| item.name() == "b"));
    // As upstream, which asks by the name in the path.
    assert!(hooks.asked().iter().all(|request| request.get("name").is_none()), "{:?}", hooks.asked());
}

#[tokio::test]
async fn nothing_is_said_without_explanation_but_that() {
    let hooks = HookServer::start(|_| json!({"allowed": false})).await;
    let refusal: Result<_, ApiError> =
        with_validating(hooks.hook("gate.test.dev", "validate")).await.create("shop", "a", 1).await;
    let text = "admission webhook \"gate.test.dev\" denied the request without explanation";
    assert_eq!(refused(refusal), (400, String::new(), text.to_owned()));
}

/// Upstream calls the steps of validating webhooks by two names.
#[tokio::test]
async fn match_conditions_are_counted_under_the_names_that_upstream_has() {
    let hooks = gate().await;
    let conditional = |path: &str| {
        let mut hook = hooks.hook(&format!("{path}.test.dev"), path);
        hook["matchConditions"] = json!([{"name": "c", "expression": "object.spec.size > 5"}]);
        hook
    };
    let server = Server::new(Configured {
        mutating: vec![("m", vec![conditional("mutate")])],
        validating: vec![("v", vec![conditional("validate")])],
        ..Configured::default()
    })
    .await;
    server.create("shop", "a", 1).await.unwrap();
    assert!(hooks.asked().is_empty());
    let counted = |metric: &str| {
        let metric = format!("apiserver_admission_match_condition_{metric}");
        let lines = server.metrics(&metric).into_iter();
        lines.map(|line| line.replacen(&metric, "", 1)).collect::<Vec<_>>()
    };
    let line = |webhook: &str, step: &str| {
        format!("{{kind=\"webhook\",name=\"{webhook}.test.dev\",operation=\"CREATE\",type=\"{step}\"}} 1")
    };
    assert_eq!(counted("exclusions_total"), [line("mutate", "admit"), line("validate", "validate")]);
    assert_eq!(counted("evaluation_seconds_count"), [line("mutate", "admit"), line("validate", "validating")]);
}

#[tokio::test]
async fn calls_are_counted_by_what_came_of_them() {
    let gate = gate().await;
    let server = with_validating(gate.hook("gate.test.dev", "validate")).await;
    server.create("shop", "a", 1).await.unwrap();
    refused(server.create("shop", "b", 13).await);
    let of = |name: &str, server: &Server| {
        let lines = server.metrics(&format!("apiserver_admission_webhook_{name}"));
        lines.into_iter().map(|line| line.replace("apiserver_admission_webhook_", "")).collect::<Vec<_>>()
    };
    let labels = |more: &str| format!("{more}name=\"gate.test.dev\",operation=\"CREATE\"");
    assert_eq!(
        of("request_total", &server),
        [
            format!("request_total{{code=\"200\",{},rejected=\"false\",type=\"validating\"}} 1", labels("")),
            format!("request_total{{code=\"403\",{},rejected=\"true\",type=\"validating\"}} 1", labels("")),
        ]
    );
    assert_eq!(
        of("rejection_count", &server),
        [format!(
            "rejection_count{{{},rejection_code=\"403\",type=\"validating\"}} 1",
            labels("error_type=\"no_error\",")
        )]
    );
    assert_eq!(of("admission_duration_seconds_count", &server).len(), 2);
    assert_eq!(server.metrics("apiserver_admission_step_admission_duration_seconds_count").len(), 3);

    let mut down = gate.hook("gate.test.dev", "validate");
    down["clientConfig"]["url"] = json!("https://127.0.0.1:1/x");
    let closed = with_validating(down.clone()).await;
    refused(closed.create("shop", "a", 1).await);
    assert_eq!(
        of("rejection_count", &closed),
        [format!(
            "rejection_count{{{},rejection_code=\"503\",type=\"validating\"}} 1",
            labels("error_type=\"calling_webhook_error\",")
        )]
    );
    down["failurePolicy"] = json!("Ignore");
    let open = with_validating(down).await;
    open.create("shop", "a", 1).await.unwrap();
    assert_eq!(of("fail_open", &open), ["fail_open_count{name=\"gate.test.dev\",type=\"validating\"} 1"]);
    assert!(of("rejection_count", &open).is_empty());
}

#[tokio::test]
async fn a_call_that_is_out_when_its_request_is_over_is_counted_as_failed() {
    let hooks = gate().await;
    for (mutates, policy) in [(false, "Fail"), (false, "Ignore"), (true, "Fail"), (true, "Ignore")] {
        let mut never = hooks.hook("gate.test.dev", "never");
        never["failurePolicy"] = json!(policy);
        let (fails, never) = (policy == "Fail", vec![("gates", vec![never])]);
        let configured = if mutates {
            Configured { mutating: never, ..Configured::default() }
        } else {
            Configured { validating: never, ..Configured::default() }
        };
        let server = Server::new(configured).await;
        let mut context = server.context.clone();
        let give_up = async |context: &RequestContext| {
            hooks.asked();
            let asked = async {
                while hooks.asked().is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                outcome = server.gadgets.create(context, "shop", gadget("a", 1)) => panic!("{outcome:?}"),
                () = asked => {}
            }
        };
        let counted = |name: &str| server.metrics(&format!("apiserver_admission_webhook_{name}")).concat();
        let check_count = |times: usize| {
            let request = counted("request_total");
            let labels = [r#"code="503""#.to_owned(), format!(r#"rejected="{fails}""#)];
            assert!(labels.iter().all(|label| request.contains(label)), "{request}");
            assert!(request.ends_with(&format!(" {times}")), "{request}");
            assert!(counted("admission_duration_seconds_count").ends_with(&format!(" {times}")));
        };
        let step = if mutates { "mutation" } else { "validating" };
        let failed_open = format!("failed-open.{step}.webhook.admission.k8s.io/round_0_index_0");
        // Who asked has gone.
        give_up(&context).await;
        check_count(1);
        assert_eq!(counted("rejection_count") + &counted("fail_open_count"), "");
        let said = context.annotations().always;
        assert!(!said.contains_key(&failed_open));
        let asked = r#"{"configuration":"gates","webhook":"gate.test.dev","mutated":false}"#;
        let mutation = said.get("mutation.webhook.admission.k8s.io/round_0_index_0").map(String::as_str);
        assert_eq!(mutation, mutates.then_some(asked));
        // The time is over.
        context.end_by(tokio::time::Instant::now());
        give_up(&context).await;
        check_count(2);
        let (rejections, opened) = (counted("rejection_count"), counted("fail_open_count"));
        assert_eq!(rejections.contains(r#"error_type="calling_webhook_error""#), fails, "{rejections}");
        assert_eq!(opened.ends_with(" 1"), !fails, "{opened}");
        assert_eq!(context.annotations().always.contains_key(&failed_open), !fails);
    }
}

#[tokio::test]
async fn what_a_removed_namespace_left_behind_can_be_finished_by_the_server_alone() {
    let gate = gate().await;
    let on = |operation: &str, selector: serde_json::Value| {
        let mut hook = gate.hook("gate.test.dev", "validate");
        hook["rules"][0]["operations"] = json!([operation]);
        hook["namespaceSelector"] = selector;
        hook
    };
    // Whatever it selects, and whether or not its failures count.
    let other = json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]});
    let mut ignored = on("UPDATE", json!({"matchLabels": {"env": "prod"}}));
    ignored["failurePolicy"] = json!("Ignore");
    let rules = json!({"resourceRules": [{
        "apiGroups": ["test.dev"], "apiVersions": ["v1"], "resources": ["gadgets"], "operations": ["UPDATE"],
    }]});
    let policy = json!({
        "metadata": {"name": "spaced"},
        "spec": {"matchConstraints": rules, "validations": [{"expression": "namespaceObject == null"}]},
    });
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "spaced", "validationActions": ["Deny"]}});
    let mutation = json!({
        "metadata": {"name": "renaming"},
        "spec": {
            "matchConstraints": rules,
            "reinvocationPolicy": "Never",
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/tags', value: ['seen']}]"},
            }],
        },
    });
    let hooks =
        [Configured { validating: vec![("gates", vec![on("UPDATE", other), ignored])], ..Configured::default() }];
    let policies = [
        Configured { policies: vec![policy], bindings: vec![binding], ..Configured::default() },
        Configured {
            mutations: vec![mutation],
            mutation_bindings: vec![json!({"metadata": {"name": "b"}, "spec": {"policyName": "renaming"}})],
            ..Configured::default()
        },
    ];
    for configured in hooks.into_iter().chain(policies) {
        let server = Server::new(configured).await;
        server.create("gone", "a", 1).await.unwrap();
        let update = async |context: &RequestContext| {
            let change = UpdateSource::Object(gadget("a", 2));
            server.gadgets.update(context, "gone", "a", Target::Main, change).await
        };
        let (code, reason, _) = refused(update(&server.context).await);
        assert_eq!((code, &*reason), (404, "NotFound"));
        update(&RequestContext::internal("janitor")).await.unwrap();
    }
    assert_eq!(gate.asked().len(), 0);
}
