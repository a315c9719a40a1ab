//! Hooks of steps, called on loopback.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Event;
use stoa_notifications::testing::{Received, Receiver, Reply};
use stoa_types::delivery::HookPhase;

use super::*;

/// What is signed with.
const KEY: &str = "whsec_c3RvYS1zdG9hLXN0b2Etc3RvYS1zdG9h";

fn hook(receiver: &Receiver, name: &str, more: Value) -> Value {
    let mut hook = json!({"name": name, "url": receiver.url(), "secretRef": {"name": "hooks", "key": "key"},
        "retry": {"minBackoff": "100ms", "maxBackoff": "1s"}});
    hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    hook
}

/// A run in `dev` with hooks.
fn spec(pre: Vec<Value>, post: Vec<Value>) -> Value {
    let run = json!({"operation": "Apply", "workspaces": ["dev"]});
    json!({"stack": "web", "steps": [{"name": "dev", "run": run, "hooks": {"pre": pre, "post": post}}]})
}

impl World {
    async fn with_key() -> Self {
        let world = Self::new().await;
        world.add_key().await;
        world
    }

    async fn add_key(&self) {
        let secret = json!({"metadata": {"name": "hooks"}, "stringData": {"key": KEY}});
        let Value::Object(secret) = secret else { unreachable!("a map") };
        let store = self.runs.registry.store("", "v1", "secrets").unwrap();
        store.create(&RequestContext::internal("test"), "shop", Object(secret)).await.unwrap();
    }

    /// What the Events of a reason say, and of how many occurrences.
    async fn events(&self, why: &str) -> Vec<(String, i32)> {
        let all = self.runs.registry.api::<Event>().list(Some("shop"), "").await.unwrap();
        let of = all.into_iter().filter(|event| event.reason.as_deref() == Some(why));
        of.map(|event| (event.message.unwrap_or_default(), event.count.unwrap_or_default())).collect()
    }
}

fn hook_of(status: &WorkflowStatus, name: &str) -> HookStatus {
    let hooks = &step_of(status, "dev").hooks;
    hooks.iter().find(|hook| hook.name == name).unwrap_or_else(|| panic!("{name} is not in {status:?}")).clone()
}

/// Whether it was signed with the key.
fn is_signed(received: &Received) -> bool {
    let header = |name: &str| received.headers[name].to_str().unwrap().to_owned();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let signed = [format!("{id}.{timestamp}.").as_bytes(), &received.body].concat();
    let key = STANDARD.decode(KEY.strip_prefix("whsec_").unwrap()).unwrap();
    let signature = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    ring::hmac::verify(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key), &signed, &signature).is_ok()
}

#[tokio::test]
async fn step_hooks_receive_events_around_runs() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|event| match event["data"]["phase"].as_str() {
        Some("Pre") => Reply::Says(200, json!({"message": "no freeze\u{1b}[2J today"})),
        _ => Reply::Code(204),
    })
    .await;
    let _controller = world.controlled();
    world.create(spec(vec![hook(&receiver, "ask", json!({}))], vec![hook(&receiver, "verify", json!({}))])).await;
    let before = receiver.next().await;
    assert!(is_signed(&before));
    let run = world.run_in("dev").await;
    let workflow = world.workflow().await;
    let event = &before.event;
    assert_eq!(before.headers["webhook-id"], event["id"].as_str().unwrap());
    assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &json!("dev.stoa.workflow.hook")));
    assert_eq!(
        (&event["source"], &event["subject"]),
        (&json!("/apis/config.stoa.dev/v1alpha1/organizations/shop"), &json!("workflows/w"))
    );
    let expected = json!({
        "kind": "Workflow", "name": "w", "namespace": "shop", "organization": "shop", "uid": workflow.uid(),
        "link": "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/workflows/w", "requester": "ann", "step": "dev",
        "hook": "ask", "phase": "Pre", "waves": 1, "operation": "Apply", "stack": "web", "commit": "a".repeat(40),
        "workspaces": ["dev"], "runs": [{"name": run.name_any(), "workspace": "dev"}],
    });
    assert_eq!(event["data"], expected);
    let ask = hook_of(&status(&workflow), "ask");
    assert_eq!((ask.phase, ask.attempts, ask.message.as_str()), (HookPhase::Succeeded, 1, "no freeze [2J today"));
    assert!(ask.start_time.is_some() && ask.completion_time.is_some());

    assert!(receiver.try_next().is_none(), "the run is under way");
    world.end("dev", RunPhase::Succeeded).await;
    let after = receiver.next().await.event;
    assert_eq!((&after["data"]["phase"], &after["data"]["outcome"]), (&json!("Post"), &json!("Succeeded")));
    assert_eq!(after["data"]["counts"], json!({"total": 1, "started": 1, "succeeded": 1, "failed": 0}));
    assert_eq!(after["data"]["runs"][0]["phase"], "Succeeded");
    assert_ne!(after["id"], event["id"]);
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0, "each is called once");
}

#[tokio::test]
async fn rejecting_hook_fails_step_with_message() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|event| match event["data"]["hook"].as_str() {
        Some("ask") => Reply::Says(409, json!({"message": "frozen until Monday"})),
        _ => Reply::Code(200),
    })
    .await;
    let _controller = world.controlled();
    let sorry = hook(&receiver, "sorry", json!({"when": "Failure"}));
    world.create(spec(vec![hook(&receiver, "ask", json!({}))], vec![sorry])).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let why = "step dev: hook ask failed: the endpoint answered 409 Conflict: frozen until Monday";
    assert_eq!((ended.phase, told(&ended, reason::FAILED)), (WorkflowPhase::Failed, (reason::STEP_FAILED, why)));
    assert!(world.all_runs().await.is_empty());
    receiver.next().await;
    let sorry = receiver.next().await.event;
    assert_eq!((&sorry["data"]["hook"], &sorry["data"]["outcome"]), (&json!("sorry"), &json!("Failed")));
}

#[tokio::test]
async fn missing_hook_secret_reports_wait_until_created() {
    let world = World::new().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    let _controller = world.controlled();
    world.create(spec(vec![hook(&receiver, "ask", json!({}))], vec![])).await;
    let tried = |status: &WorkflowStatus| status.steps.iter().flat_map(|step| &step.hooks).any(|of| of.attempts > 2);
    let waiting = world.until(tried).await;
    let said = "hook ask of step dev is retried: Secret hooks does not exist";
    assert_eq!(told(&waiting, reason::WAITING), (reason::HOOK_RETRIED, said));
    let since =
        |status: &WorkflowStatus| condition(&status.conditions, reason::WAITING).unwrap().last_transition_time.0;
    let later = world.until(|status| status.steps[0].hooks[0].attempts > 4).await;
    assert_eq!((since(&waiting), waiting.phase), (since(&later), WorkflowPhase::Running));
    assert_eq!(world.events(reason::HOOK_RETRIED).await, [(said.to_owned(), 1)]);
    world.add_key().await;
    world.run_in("dev").await;
    let going_on = status(&world.workflow().await);
    assert!(condition(&going_on.conditions, reason::WAITING).is_none(), "{going_on:?}");
}

#[tokio::test]
async fn temporary_hook_failure_retries_with_same_id() {
    let world = World::with_key().await;
    let mut replies = vec![Reply::Code(200), Reply::Close, Reply::Says(503, json!({"message": "busy"})), Reply::Never];
    let receiver = Receiver::start(move |_| replies.pop().unwrap()).await;
    let _controller = world.controlled();
    world.create(spec(vec![hook(&receiver, "ask", json!({"timeout": "1s"}))], vec![])).await;
    let first = receiver.next().await;
    let again = "hook ask is retried: the endpoint answered 503 Service Unavailable: busy";
    world.until(|status| status.steps.first().is_some_and(|step| step.message == again)).await;
    world.run_in("dev").await;
    for _ in 0..3 {
        let next = receiver.next().await;
        assert_eq!(
            (&next.event["id"], &next.headers["webhook-id"]),
            (&first.event["id"], &first.headers["webhook-id"])
        );
    }
    let ask = hook_of(&status(&world.workflow().await), "ask");
    assert_eq!((ask.phase, ask.attempts, ask.message.as_str()), (HookPhase::Succeeded, 4, ""));
}

#[tokio::test]
async fn hook_fails_after_its_time_or_attempts() {
    for (retry, least) in [
        (json!({"maxAge": "1s", "minBackoff": "100ms", "maxBackoff": "1s"}), 1),
        (json!({"maxAttempts": 2, "minBackoff": "100ms"}), 2),
        (json!({"maxAge": "0s"}), 1),
    ] {
        let world = World::with_key().await;
        let receiver = Receiver::start(|_| Reply::Code(500)).await;
        let _controller = world.controlled();
        let ask = hook(&receiver, "ask", json!({"retry": retry, "failurePolicy": "Ignore"}));
        world.create(spec(vec![ask], vec![])).await;
        world.end("dev", RunPhase::Succeeded).await;
        let ended = world.until(|status| status.phase.is_terminal()).await;
        assert_eq!(ended.phase, WorkflowPhase::Succeeded, "it is ignored");
        let ask = hook_of(&ended, "ask");
        assert_eq!(
            (ask.phase, ask.message.as_str()),
            (HookPhase::Failed, "the endpoint answered 500 Internal Server Error")
        );
        assert!((least..=20).contains(&ask.attempts), "{}", ask.attempts);
        let why = "hook ask failed: the endpoint answered 500 Internal Server Error, which is ignored";
        assert_eq!(step_of(&ended, "dev").message, why);
    }
}

#[tokio::test]
async fn restart_repeats_only_unanswered_hooks() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|event| match event["data"]["hook"].as_str() {
        Some("one") => Reply::Code(200),
        _ => Reply::Never,
    })
    .await;
    let controller = world.controlled();
    let pre = vec![hook(&receiver, "one", json!({})), hook(&receiver, "two", json!({"timeout": "1m"}))];
    world.create(spec(pre, vec![])).await;
    assert_eq!(receiver.next().await.event["data"]["hook"], "one");
    let asked = receiver.next().await.event;
    assert_eq!(asked["data"]["hook"], "two");
    drop(controller);
    receiver.behave(|_| Reply::Code(200));
    let controller = world.controlled();
    let again = receiver.next().await.event;
    assert_eq!(again, asked, "the same, also its time");
    world.run_in("dev").await;
    assert!(receiver.try_next().is_none(), "that one passed is remembered");

    // The answer came right before a crash, and was never written.
    world.until(|status| step_of(status, "dev").counts.is_some_and(|counts| counts.started == 1)).await;
    drop(controller);
    let before = world.workflow().await.status;
    let forget = |workflow: &mut Workflow| {
        workflow.status.clone_from(&before);
        let steps = &mut workflow.status.as_mut().unwrap().steps;
        steps[0].hooks[1].phase = HookPhase::Running;
        (steps[0].counts, steps[0].runs) =
            (Some(stoa_types::delivery::RunCounts { total: 1, ..Default::default() }), Vec::new());
    };
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    let _controller = world.controlled();
    assert_eq!(receiver.next().await.event["id"], asked["id"]);
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.phase == WorkflowPhase::Succeeded).await;
    assert_eq!(world.all_runs().await.len(), 1);
}

#[tokio::test]
async fn cancellation_abandons_hook_but_pause_does_not() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Never).await;
    let _controller = world.controlled();
    let pre = vec![hook(&receiver, "ask", json!({"timeout": "1m"}))];
    world.create(spec(pre, vec![hook(&receiver, "clean", json!({"when": "Always"}))])).await;
    receiver.next().await;
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!((ended.phase, hook_of(&ended, "ask").phase), (WorkflowPhase::Canceled, HookPhase::Canceled));
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0);
    assert!(world.all_runs().await.is_empty());

    let world = World::with_key().await;
    let (answer, answers) = tokio::sync::watch::channel(503);
    let receiver = Receiver::start(move |_| Reply::Code(*answers.borrow())).await;
    let _controller = world.controlled();
    let pre = vec![hook(&receiver, "ask", json!({})), hook(&receiver, "later", json!({}))];
    world.create(spec(pre, vec![])).await;
    receiver.next().await;
    world.change(|workflow| workflow.spec.paused = true).await;
    world.until(|status| condition(&status.conditions, reason::PAUSED).is_some()).await;
    answer.send(200).unwrap();
    world.until(|status| hook_of(status, "ask").phase == HookPhase::Succeeded).await;
    while receiver.try_next().is_some() {}
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0, "nothing begins");
    world.change(|workflow| workflow.spec.paused = false).await;
    assert_eq!(receiver.next().await.event["data"]["hook"], "later");
    world.run_in("dev").await;
}

#[tokio::test]
async fn removed_workflow_calls_no_more_hooks() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Code(503)).await;
    let _controller = world.controlled();
    let again = json!({"retry": {"minBackoff": "100ms", "maxBackoff": "1s"}});
    world.create(spec(vec![hook(&receiver, "ask", again)], vec![])).await;
    receiver.next().await;
    let workflows = world.runs.registry.api::<Workflow>();
    workflows.delete("shop", "w", &DeleteOptions::default()).await.unwrap();
    let taken = workflows.update_with("shop", "w", |workflow: &mut Workflow| workflow.finalizers_mut().clear()).await;
    // Its controller may be the first to let it go.
    assert!(taken.as_ref().err().is_none_or(|error| error.code() == 404), "{taken:?}");
    assert!(workflows.get_opt("shop", "w").await.unwrap().is_none());
    let stops = async { while receiver.count_for(Duration::from_secs(2)).await > 0 {} };
    tokio::time::timeout(PATIENCE, stops).await.expect("it stops");
}

#[tokio::test]
async fn hook_call_requires_current_permission_and_key() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    let secret = json!({"name": "other", "key": "key"});
    world.create(spec(vec![hook(&receiver, "ask", json!({"secretRef": secret}))], vec![])).await;
    let controller = world.controlled();
    let missing = "hook ask is retried: Secret other does not exist";
    world.until(|status| status.steps.first().is_some_and(|step| step.message == missing)).await;
    drop(controller);
    world.authorizer.0.store(true, std::sync::atomic::Ordering::Relaxed);
    let _controller = world.controlled();
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let (why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::STEP_FAILED);
    assert!(message.contains("User \"ann\" cannot use resource \"hookhosts\""), "{message}");
    assert!(receiver.try_next().is_none());
}

#[tokio::test]
async fn unresponsive_hooks_block_no_other_workflow() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Never).await;
    let _controller = world.controlled();
    let slow = spec(vec![hook(&receiver, "ask", json!({"timeout": "5m"}))], vec![]);
    for i in 0..2 * AT_ONCE {
        world.create_called(&format!("slow-{i}"), slow.clone()).await;
    }
    receiver.next().await;
    world
        .create(
            json!({"stack": "web", "steps": [{"name": "dev", "run": {"operation": "Apply", "workspaces": ["dev"]}}]}),
        )
        .await;
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.phase == WorkflowPhase::Succeeded).await;
}

/// A run in `dev`, with hooks before and after the whole.
fn whole(pre: Vec<Value>, post: Vec<Value>) -> Value {
    let run = json!({"operation": "Apply", "workspaces": ["dev"]});
    json!({"stack": "web", "steps": [{"name": "dev", "run": run}], "hooks": {"pre": pre, "post": post}})
}

#[tokio::test]
async fn workflow_hooks_receive_events_around_all_steps() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    let controller = world.controlled();
    let post = vec![
        hook(&receiver, "verify", json!({})),
        hook(&receiver, "sorry", json!({"when": "Failure"})),
        hook(&receiver, "clean", json!({"when": "Always"})),
    ];
    world.create(whole(vec![hook(&receiver, "ask", json!({}))], post)).await;
    let before = receiver.next().await;
    assert!(is_signed(&before));
    world.run_in("dev").await;
    let event = &before.event;
    assert_eq!(event["type"], "dev.stoa.workflow.hook");
    let expected = json!({
        "kind": "Workflow", "name": "w", "namespace": "shop", "organization": "shop", "uid": world.workflow().await.uid(),
        "link": "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/workflows/w", "requester": "ann",
        "hook": "ask", "phase": "Pre", "steps": [{"name": "dev", "phase": "Pending"}],
    });
    assert_eq!(event["data"], expected);
    // What has passed is remembered.
    drop(controller);
    let _controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    for name in ["verify", "clean"] {
        let after = receiver.next().await.event;
        assert_eq!(
            (&after["data"]["hook"], &after["data"]["phase"], &after["data"]["outcome"]),
            (&json!(name), &json!("Post"), &json!("Succeeded"))
        );
        let counts = json!({"total": 1, "started": 1, "succeeded": 1, "failed": 0});
        assert_eq!(after["data"]["steps"], json!([{"name": "dev", "phase": "Succeeded", "counts": counts}]));
    }
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!((ended.phase, ended.hooks.len()), (WorkflowPhase::Succeeded, 3));
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0, "each is called once");
}

#[tokio::test]
async fn rejecting_workflow_hook_fails_workflow() {
    let refusing = |refuses: &'static str| {
        move |event: &Value| match event["data"]["hook"] == refuses {
            true => Reply::Says(409, json!({"message": "not today"})),
            false => Reply::Code(200),
        }
    };
    let world = World::with_key().await;
    let receiver = Receiver::start(refusing("ask")).await;
    let _controller = world.controlled();
    let sorry = hook(&receiver, "sorry", json!({"when": "Failure"}));
    world.create(whole(vec![hook(&receiver, "ask", json!({}))], vec![sorry])).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let why = "hook ask failed: the endpoint answered 409 Conflict: not today";
    assert_eq!((ended.phase, told(&ended, reason::FAILED)), (WorkflowPhase::Failed, (reason::HOOK_FAILED, why)));
    assert!(world.all_runs().await.is_empty() && step_of(&ended, "dev").phase == StepPhase::Skipped);
    receiver.next().await;
    let sorry = receiver.next().await.event;
    assert_eq!((&sorry["data"]["hook"], &sorry["data"]["outcome"]), (&json!("sorry"), &json!("Failed")));

    let world = World::with_key().await;
    let receiver = Receiver::start(refusing("verify")).await;
    let _controller = world.controlled();
    world.create(whole(vec![], vec![hook(&receiver, "verify", json!({}))])).await;
    world.end("dev", RunPhase::Succeeded).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let why = "hook verify failed: the endpoint answered 409 Conflict: not today";
    assert_eq!((ended.phase, told(&ended, reason::FAILED)), (WorkflowPhase::Failed, (reason::HOOK_FAILED, why)));
    assert_eq!(step_of(&ended, "dev").phase, StepPhase::Succeeded);
}

#[tokio::test]
async fn cancelling_gives_up_a_hook_after_all_steps() {
    let world = World::with_key().await;
    let receiver = Receiver::start(|_| Reply::Never).await;
    let _controller = world.controlled();
    world.create(whole(vec![], vec![hook(&receiver, "verify", json!({"timeout": "1m"}))])).await;
    world.end("dev", RunPhase::Succeeded).await;
    receiver.next().await;
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!((ended.phase, ended.hooks[0].phase), (WorkflowPhase::Canceled, HookPhase::Canceled));
}
