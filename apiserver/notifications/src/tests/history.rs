//! Crashes, changes of the leader, and history that is gone.

use super::*;

#[tokio::test]
async fn crash_before_cursor_write_repeats_event_id() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.until_ready("chat", reason::AVAILABLE).await;
    let (mut tries, cursor) = (0, async |bed: &Bed| bed.kept().await.remove(0).1);
    let (name, first, before) = loop {
        tries += 1;
        assert!(tries < 20, "the cursor was written before each crash");
        let (name, before) = (format!("web-{tries}"), cursor(&bed).await);
        bed.begin(&name).await;
        let first = receiver.next().await;
        bed.crash().await;
        let is_behind = cursor(&bed).await == before;
        bed.start();
        if is_behind {
            break (name, first, before);
        }
        // A busy machine may take longer than the cursor stays behind.
    };
    let second = receiver.next().await;
    assert_eq!((&second.event, told(&second)), (&first.event, format!("run.started runs/{name}")));

    // Once that is in the log, it is not repeated.
    let is_written = async {
        while cursor(&bed).await == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_written).await.expect("the cursor is written");
    bed.crash().await;
    // Nobody delivers while this happens.
    bed.end(&name, RunPhase::Succeeded).await;
    bed.start();
    assert_eq!(told(&receiver.next().await), format!("run.succeeded runs/{name}"));
    assert_eq!(receiver.count_for(Duration::from_millis(200)).await, 0);
}

#[tokio::test]
async fn a_crash_while_an_answer_is_awaited_loses_nothing() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Never).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    let first = receiver.next().await;
    bed.crash().await;
    receiver.behave(|_| Reply::Code(200));
    bed.start();
    assert_eq!(receiver.next().await.event["id"], first.event["id"]);
    assert_eq!(told(&receiver.next().await), "run.failed runs/web-1");
}

#[tokio::test]
async fn orderly_stop_prevents_repeated_deliveries() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|event| {
        let is_stuck = event["subject"] == "runs/web-1";
        Reply::Code(if is_stuck { 500 } else { 200 })
    })
    .await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    bed.lose("lost").await;
    while told(&receiver.next().await) != "workspace.unavailable workspaces/lost" {}
    bed.stop().await;
    receiver.behave(|_| Reply::Code(200));
    bed.start();
    // A try before the end may have come late.
    let mut came = vec![told(&receiver.next().await)];
    bed.end("web-1", RunPhase::Succeeded).await;
    while came.last().unwrap() != "run.succeeded runs/web-1" {
        came.push(told(&receiver.next().await));
    }
    came.dedup();
    assert_eq!(came, ["run.started runs/web-1", "run.succeeded runs/web-1"]);
}

#[tokio::test]
async fn sink_reports_and_bridges_history_gap() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("old").await;
    assert_eq!(told(&receiver.next().await), "run.started runs/old");
    bed.until_ready("chat", reason::AVAILABLE).await;
    bed.stop().await;

    bed.begin("gone").await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    let runs = bed.world.registry.api::<Run>();
    // Long over; that it is touched now is no news.
    let past: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    bed.set("old", |run| {
        let status = run.status.get_or_insert_default();
        (status.start_time, status.completion_time) = (Some(Time(past)), Some(Time(past)));
        status.phase = RunPhase::Succeeded;
    })
    .await;
    runs.delete("shop", "gone", &DeleteOptions::default()).await.unwrap();
    runs.update_with("shop", "gone", |run| run.metadata.finalizers = None).await.unwrap();
    let log = &bed.services.log;
    log.compact(log.head().await.unwrap()).await.unwrap();
    // A record after it, or else nothing would be missed.
    bed.lose("lost").await;
    log.compact(log.head().await.unwrap()).await.unwrap();

    bed.start();
    let mut came: Vec<Received> = Vec::new();
    while !came.iter().any(|received| told(received).starts_with("workspace")) || came.len() < 4 {
        came.push(receiver.next().await);
    }
    let mut names: Vec<String> = came.iter().map(told).collect();
    let order = |name: &str| names.iter().position(|other| other == name).unwrap();
    assert!(order("run.started runs/web-1") < order("run.failed runs/web-1"), "{names:?}");
    names.sort();
    let expected = [
        "notificationsink.gap notificationsinks/chat",
        "run.failed runs/web-1",
        "run.started runs/web-1",
        "workspace.unavailable workspaces/lost",
    ];
    assert_eq!(names, expected);
    let sink = bed.until("chat", |sink| sink.status.as_ref().is_some_and(|status| status.gaps == 1)).await;
    let gap = sink.status.unwrap().last_gap.unwrap();
    let event = came.iter().find(|received| told(received).starts_with("notificationsink")).unwrap();
    assert_eq!((&event.event["data"]["from"], &event.event["data"]["to"]), (&json!(gap.from), &json!(gap.to)));
    bed.until_metric("stoa_notification_gaps_total{sink=\"chat\"} 1").await;

    // From there on it is as before.
    bed.begin("web-2").await;
    assert_eq!(told(&receiver.next().await), "run.started runs/web-2");
    bed.until_ready("chat", reason::AVAILABLE).await;
    let begun: u64 = runs.get("shop", "web-2").await.unwrap().resource_version().unwrap().parse().unwrap();
    let is_written = async {
        while serde_json::from_str::<records::Cursor>(&bed.kept().await[0].1).unwrap().position.0 < begun {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_written).await.expect("the cursor is written");
    bed.crash().await;
    bed.end("web-2", RunPhase::Succeeded).await;
    bed.start();
    assert_eq!(told(&receiver.next().await), "run.succeeded runs/web-2");
    assert_eq!(bed.read("chat").await.status.unwrap().gaps, 1);
}

#[tokio::test]
async fn delivery_leaves_record_of_later_version_unchanged() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.until_ready("chat", reason::AVAILABLE).await;
    bed.stop().await;
    let (key, cursor) = bed.kept().await.remove(0);
    let later = cursor.replace("\"schemaVersion\":1", "\"schemaVersion\":2");
    let write = stoa_machinery::log::Write::new(
        stoa_machinery::Key::new(key),
        stoa_machinery::log::Expect::Any,
        stoa_machinery::log::Change::Put(later.clone().into()),
    );
    bed.services.log.append(write).await.unwrap();
    bed.start();
    bed.begin("web-1").await;
    bed.until_ready("chat", reason::UNREADABLE_STATE).await;
    assert_eq!(bed.kept().await[0].1, later);
    assert!(receiver.try_next().is_none());
}
