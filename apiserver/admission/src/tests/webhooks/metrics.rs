//! How calls of webhooks are counted.

use stoa_meta::request::RequestContext;

use super::*;

/// Upstream calls the steps of validating webhooks by two names.
#[tokio::test]
async fn match_condition_metrics_use_upstream_names() {
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
async fn unfinished_webhook_call_counts_as_failed() {
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
