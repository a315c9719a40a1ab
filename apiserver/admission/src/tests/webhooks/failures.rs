//! Webhooks that cannot be called, take too long or say nothing of use.

use stoa_meta::status::ApiError;

use super::*;

#[tokio::test]
async fn failed_webhook_call_follows_failure_policy() {
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
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1beta1, \
             Kind=AdmissionReview, got admission.k8s.io/v1, Kind=AdmissionReview"
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
async fn webhook_call_uses_service_name() {
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
async fn server_retries_webhook_that_asks_for_retry() {
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
    for (left, told) in [(None, "timeout=10s"), (Some(60_000), "timeout=10s"), (Some(3_950), "timeout=4s")] {
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
async fn failed_match_condition_follows_failure_policy() {
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
async fn nothing_is_said_without_explanation_but_that() {
    let hooks = HookServer::start(|_| json!({"allowed": false})).await;
    let refusal: Result<_, ApiError> =
        with_validating(hooks.hook("gate.test.dev", "validate")).await.create("shop", "a", 1).await;
    let text = "admission webhook \"gate.test.dev\" denied the request without explanation";
    assert_eq!(refused(refusal), (400, String::new(), text.to_owned()));
}
