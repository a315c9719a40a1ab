use super::*;

fn from(version: impl ToString) -> WatchOptions {
    WatchOptions { resource_version: Some(version.to_string()), ..WatchOptions::default() }
}

async fn watch(fixture: &Fixture, options: &WatchOptions) -> BoxStream<'static, Event> {
    fixture.gadgets.watch(Some("shop"), options).await.expect("a watch")
}

#[tokio::test]
async fn watch_without_a_version_begins_with_what_is_there() {
    let fixture = Fixture::new().await;
    fixture.gadget("b", 1).await;
    fixture.gadget("a", 2).await;
    for options in [WatchOptions::default(), from(0)] {
        let mut events = watch(&fixture, &options).await;
        assert_eq!(lines(&mut events, 2).await, ["added a size 2 at 2", "added b size 1 at 1"]);
    }
    let mut events = watch(&fixture, &WatchOptions::default()).await;
    lines(&mut events, 2).await;
    fixture.resize("a", 3).await;
    fixture.delete("b", &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(lines(&mut events, 2).await, ["modified a size 3 at 3", "deleted b size 1 at 4"]);
}

#[tokio::test]
async fn watch_resumes_after_any_version() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.resize("a", 2).await;
    fixture.gadgets.create(&fixture.context, "other", object(gadget("a", 9))).await.expect("created");
    fixture.delete("a", &DeleteOptions::default()).await.expect("deleted");
    fixture.gadget("a", 3).await;
    let all = ["added a size 1 at 1", "modified a size 2 at 2", "deleted a size 2 at 4", "added a size 3 at 5"];
    for (since, expected) in [(1, &all[1..]), (2, &all[2..]), (3, &all[2..]), (4, &all[3..])] {
        let mut events = watch(&fixture, &from(since)).await;
        assert_eq!(lines(&mut events, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_selector() {
    let fixture = Fixture::new().await;
    let sent =
        |size: i64, env: &str| json!({"metadata": {"name": "a", "labels": {"env": env}}, "spec": {"size": size}});
    let options = WatchOptions { label_selector: Some("env=dev".to_owned()), ..WatchOptions::default() };
    let mut events = watch(&fixture, &options).await;
    fixture.create(sent(1, "prod")).await.expect("created");
    fixture.put(sent(2, "dev")).await.expect("updated");
    fixture.put(sent(3, "dev")).await.expect("updated");
    fixture.put(sent(4, "prod")).await.expect("updated");
    fixture.put(sent(5, "dev")).await.expect("updated");
    fixture.delete("a", &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(
        lines(&mut events, 5).await,
        [
            "added a size 2 at 2",
            "modified a size 3 at 3",
            "deleted a size 3 at 4",
            "added a size 5 at 5",
            "deleted a size 5 at 6"
        ]
    );
}

#[tokio::test]
async fn streaming_list_marks_where_the_initial_events_end() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture
        .widgets
        .create(&fixture.context, "", object(json!({"metadata": {"name": "w"}, "spec": {}})))
        .await
        .expect("created");
    let options = WatchOptions {
        resource_version_match: Some("NotOlderThan".to_owned()),
        send_initial_events: Some(true),
        allow_bookmarks: true,
        ..from(1)
    };
    let mut events = watch(&fixture, &options).await;
    assert_eq!(lines(&mut events, 2).await, ["added a size 1 at 1", "initial end at 2"]);
    // Nothing happened since.
    assert!(tokio::time::timeout(Duration::from_millis(200), next(&mut events)).await.is_err());
    let options = WatchOptions { send_initial_events: Some(false), resource_version: None, ..options };
    let mut events = watch(&fixture, &options).await;
    fixture.resize("a", 2).await;
    let first = loop {
        let event = lines(&mut events, 1).await.remove(0);
        if !event.starts_with("bookmark") {
            break event;
        }
    };
    assert_eq!(first, "modified a size 2 at 3");
}

#[tokio::test]
async fn bookmarks_follow_the_log_though_nothing_happens_here() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let mut events = watch(&fixture, &WatchOptions { allow_bookmarks: true, ..from(1) }).await;
    // Whoever begins at a version is not told of it.
    assert!(tokio::time::timeout(Duration::from_millis(200), next(&mut events)).await.is_err());
    fixture
        .widgets
        .create(&fixture.context, "", object(json!({"metadata": {"name": "w"}, "spec": {}})))
        .await
        .expect("created");
    assert_eq!(lines(&mut events, 2).await, ["bookmark at 2", "bookmark at 2"]);
}

#[tokio::test]
async fn watch_ends_at_its_timeout_and_with_the_server() {
    let fixture = Fixture::new().await;
    let short = WatchOptions { timeout: Duration::from_millis(30), ..WatchOptions::default() };
    assert!(next(&mut watch(&fixture, &short).await).await.is_none());
    let mut events = watch(&fixture, &WatchOptions::default()).await;
    fixture.end.cancel();
    assert!(next(&mut events).await.is_none());
}

#[tokio::test]
async fn watch_outside_window_ends_with_expired_error() {
    let window = Window { events: 4, age: Duration::ZERO, ..Window::default() };
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), window).await;
    fixture.gadget("a", 1).await;
    let mut slow = watch(&fixture, &from(1)).await;
    for size in 2..19 {
        fixture.resize("a", size).await;
    }
    // An event stays within the millisecond of its time, and the next event removes it.
    tokio::time::sleep(Duration::from_millis(5)).await;
    fixture.resize("a", 19).await;
    // The cache follows the log a moment later: its window is final once it has the last event.
    assert_eq!(lines(&mut watch(&fixture, &from(18)).await, 1).await, ["modified a size 19 at 19"]);
    let expected = "error 410 too old resource version: 1 (15)";
    assert_eq!(lines(&mut slow, 1).await, [expected]);
    assert!(next(&mut slow).await.is_none());
    assert_eq!(lines(&mut watch(&fixture, &from(1)).await, 1).await, [expected]);
}

#[tokio::test]
async fn large_objects_shrink_window_to_hundred_events() {
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), Window { bytes: 0, ..Window::default() }).await;
    fixture.gadget("a", 1).await;
    for size in 2..=150 {
        fixture.resize("a", size).await;
    }
    assert_eq!(lines(&mut watch(&fixture, &from(149)).await, 1).await, ["modified a size 150 at 150"]);
    let expected = "error 410 too old resource version: 49 (50)";
    assert_eq!(lines(&mut watch(&fixture, &from(49)).await, 1).await, [expected]);
    assert_eq!(lines(&mut watch(&fixture, &from(50)).await, 1).await, ["modified a size 51 at 51"]);
}

#[tokio::test]
async fn options_that_do_not_go_together_are_refused() {
    let fixture = Fixture::new().await;
    for (options, message) in [
        (
            WatchOptions { send_initial_events: Some(true), ..WatchOptions::default() },
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            WatchOptions { resource_version_match: Some("NotOlderThan".to_owned()), ..WatchOptions::default() },
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
             provided",
        ),
    ] {
        let error = fixture.gadgets.watch(None, &options).await.err().expect("refused");
        assert_eq!(error.message(), format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"));
        assert_eq!(error.code(), 422);
    }
}
