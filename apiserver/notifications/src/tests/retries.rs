//! Endpoints that fail, and what that does to the rest.

use super::*;

#[tokio::test]
async fn retries_reuse_event_id_until_accepted() {
    let bed = Bed::started().await;
    let elsewhere = Receiver::start(|_| Reply::Code(200)).await;
    let mut replies = [
        Reply::Code(500),
        Reply::Close,
        Reply::With(307, "location", elsewhere.url()),
        Reply::Never,
        Reply::Code(401),
        Reply::Code(202),
    ]
    .into_iter();
    let receiver = Receiver::start(move |_| replies.next().unwrap_or(Reply::Code(202))).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    let first = receiver.next().await;
    for _ in 1..6 {
        assert_eq!(receiver.next().await.body, first.body);
    }
    assert_eq!(receiver.count_for(Duration::from_millis(1500)).await, 0, "it was taken");
    assert!(elsewhere.try_next().is_none(), "redirects are not followed");
    bed.until_ready("chat", reason::AVAILABLE).await;
    let counted = bed.metric("stoa_notification_attempts_total");
    assert!(counted.contains("{outcome=\"retried\",sink=\"chat\"} 5"), "{counted}");
}

#[tokio::test]
async fn status_reports_unreachable_endpoint() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(503)).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    bed.until_ready("chat", reason::DELIVERY_FAILED).await;
    assert_eq!(bed.ready("chat").await.unwrap().message, "the endpoint answered 503 Service Unavailable");
    drop(receiver);
    let is_refused = |sink: &NotificationSink| {
        let conditions = &sink.status.as_ref().unwrap().conditions;
        condition(conditions, reason::READY).unwrap().message.contains("refused")
    };
    let sink = bed.until("chat", is_refused).await;
    assert!(!serde_json::to_string(&sink.status).unwrap().contains("hunter2"), "{:?}", sink.status);
}

#[tokio::test]
async fn an_answer_may_ask_to_wait() {
    let bed = Bed::started().await;
    let mut replies = [Reply::With(429, "retry-after", "2".to_owned())].into_iter();
    let receiver = Receiver::start(move |_| replies.next().unwrap_or(Reply::Code(200))).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    let waited = second.at - first.at;
    assert!(waited >= Duration::from_secs(2), "it waited {waited:?}");
}

#[tokio::test]
async fn clock_error_rejection_retries_event() {
    let bed = Bed::started().await;
    let mut replies = [Reply::Code(400), Reply::Code(400)].into_iter();
    let receiver = Receiver::start(move |_| replies.next().unwrap_or(Reply::Code(200))).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    let first = receiver.next().await;
    for _ in 1..3 {
        assert_eq!(receiver.next().await.body, first.body);
    }
    bed.until_ready("chat", reason::AVAILABLE).await;
    assert_eq!(bed.read("chat").await.status.unwrap().dead_letters, 0);
}

#[tokio::test]
async fn rejected_event_type_has_one_try() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|event| {
        let is_bad = event["type"] == "dev.stoa.run.started";
        Reply::Code(if is_bad { 400 } else { 200 })
    })
    .await;
    bed.sink("chat", &receiver, json!({"retry": {"maxAttempts": 2}})).await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    for expected in ["run.started runs/web-1", "run.started runs/web-1", "run.failed runs/web-1"] {
        assert_eq!(told(&receiver.next().await), expected);
    }
    bed.begin("web-2").await;
    bed.end("web-2", RunPhase::Failed).await;
    for expected in ["run.started runs/web-2", "run.failed runs/web-2"] {
        assert_eq!(told(&receiver.next().await), expected);
    }
    bed.until("chat", |sink| sink.status.as_ref().is_some_and(|status| status.dead_letters == 2)).await;
}

#[tokio::test]
async fn stack_events_retain_order_and_block_no_others() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|event| {
        let is_stuck = event["type"] == "dev.stoa.run.started";
        Reply::Code(if is_stuck { 500 } else { 200 })
    })
    .await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    bed.lose("lost").await;
    let mut came = Vec::new();
    while !came.contains(&"workspace.unavailable workspaces/lost".to_owned()) {
        came.push(told(&receiver.next().await));
    }
    for _ in 0..2 {
        came.push(told(&receiver.next().await));
    }
    assert!(!came.contains(&"run.failed runs/web-1".to_owned()), "{came:?}");
    receiver.behave(|_| Reply::Code(200));
    let mut came = vec![told(&receiver.next().await)];
    while came.last().unwrap() == "run.started runs/web-1" {
        came.push(told(&receiver.next().await));
    }
    assert_eq!(came.last().unwrap(), "run.failed runs/web-1", "{came:?}");
}

#[tokio::test]
async fn unresponsive_sink_blocks_no_other_sink() {
    let bed = Bed::started().await;
    let (slow, quick) = (Receiver::start(|_| Reply::Never).await, Receiver::start(|_| Reply::Code(200)).await);
    bed.sink("slow", &slow, json!({"timeout": "60s"})).await;
    bed.sink("quick", &quick, json!({})).await;
    for name in ["a", "b", "c", "d"] {
        bed.begin(name).await;
        assert_eq!(told(&quick.next().await), format!("run.started runs/{name}"));
    }
    assert_eq!(told(&slow.next().await), "run.started runs/a");
    bed.until_metric("stoa_notification_pending_events{sink=\"slow\"} 4").await;
    assert!(slow.try_next().is_none(), "the stack's first is under way");
}

#[tokio::test]
async fn an_endpoint_proves_who_it_is() {
    let bed = Bed::started().await;
    let receiver = Receiver::start_tls(|_| Reply::Code(200)).await;
    let bundle = STANDARD.encode(&receiver.ca);
    bed.sink("stranger", &receiver, json!({})).await;
    bed.begin("web-1").await;
    bed.until_ready("stranger", reason::DELIVERY_FAILED).await;
    let message = bed.ready("stranger").await.unwrap().message;
    assert!(message.contains("UnknownIssuer"), "{message}");
    assert!(receiver.try_next().is_none(), "a stranger is told nothing");
    bed.sink("friend", &receiver, json!({"caBundle": bundle})).await;
    bed.end("web-1", RunPhase::Canceled).await;
    assert_eq!(told(&receiver.next().await), "run.canceled runs/web-1");
}
