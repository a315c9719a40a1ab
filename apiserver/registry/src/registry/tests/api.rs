use super::{super::api, *};

fn typed(name: &str, size: i64) -> Gadget {
    let mut gadget = Gadget::new(name, GadgetSpec { project: "p".to_owned(), size });
    gadget.metadata.namespace = Some("shop".to_owned());
    gadget
}

async fn change(changes: &mut BoxStream<'static, api::Change<Gadget>>) -> String {
    let next = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change in time");
    let name = |gadget: &Gadget| format!("{}={}", gadget.metadata.name.as_deref().unwrap_or(""), gadget.spec.size);
    match next.expect("goes on") {
        api::Change::Restarted(all) => format!("restarted {:?}", all.iter().map(name).collect::<Vec<_>>()),
        api::Change::Applied(gadget) => format!("applied {}", name(&gadget)),
        api::Change::Deleted(gadget) => format!("deleted {}", name(&gadget)),
    }
}

#[tokio::test]
async fn typed_objects_come_and_go() {
    let fixture = Fixture::new().await;
    let api = fixture.registry.api::<Gadget>();
    let created = api.create(&typed("a", 1)).await.expect("created");
    assert_eq!(created.metadata.resource_version.as_deref(), Some("1"));
    assert_eq!(api.get("shop", "a").await.expect("there"), created);
    assert_eq!(api.get_opt("shop", "b").await.expect("read"), None);

    let resized = api.update_with("shop", "a", |gadget| gadget.spec.size = 2).await.expect("updated");
    assert_eq!((resized.spec.size, resized.metadata.generation), (2, Some(2)));
    let ready = api
        .update_status_with("shop", "a", |gadget| gadget.status = Some(GadgetStatus { phase: "Ready".to_owned() }))
        .await
        .expect("updated");
    assert_eq!(ready.status.as_ref().map(|status| status.phase.as_str()), Some("Ready"));
    assert_eq!(api.replace(&created).await.expect_err("stale").reason(), "Conflict");
    let mut replaced = ready.clone();
    replaced.spec.size = 3;
    assert_eq!(api.replace(&replaced).await.expect("replaced").status, ready.status);
    let refused = api.update_with("shop", "a", |_| Err(ApiError::bad_request("no"))).await;
    assert_eq!(refused.expect_err("refused").message(), "no");
    assert_eq!(api.list(Some("shop"), "").await.expect("listed").len(), 1);
    assert_eq!(api.list(None, "none").await.expect("listed"), []);
    api.delete("shop", "a", &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(api.get_opt("shop", "a").await.expect("read"), None);
}

#[tokio::test]
async fn subscription_restarts_after_missed_changes() {
    let window = Window { events: 4, age: Duration::ZERO, ..Window::default() };
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), window).await;
    let api = fixture.registry.api::<Gadget>();
    let mut changes = api.subscribe(None);
    assert_eq!(change(&mut changes).await, "restarted []");
    api.create(&typed("a", 1)).await.expect("created");
    fixture.put_bytes("bad", r#"{"metadata":{"name":"bad","namespace":"shop","uid":"u"},"spec":7}"#).await;
    api.update_with("shop", "a", |gadget| gadget.spec.size = 2).await.expect("updated");
    api.delete("shop", "a", &DeleteOptions::default()).await.expect("deleted");
    assert_eq!(change(&mut changes).await, "applied a=1");
    assert_eq!(change(&mut changes).await, "applied a=2");
    assert_eq!(change(&mut changes).await, "deleted a=2");
    api.create(&typed("b", 1)).await.expect("created");
    for size in 2..20 {
        api.update_with("shop", "b", |gadget| gadget.spec.size = size).await.expect("updated");
    }
    assert_eq!(change(&mut changes).await, "restarted [\"b=19\"]");
    fixture.end.cancel();
    assert!(changes.next().await.is_none());
}

#[tokio::test]
async fn subscription_reports_pending_listing() {
    let window = Window { events: 4, age: Duration::ZERO, ..Window::default() };
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), window).await;
    let api = fixture.registry.api::<Gadget>();
    let (mut changes, listing) = fixture.gadgets.subscribe_listing(None);
    assert!(listing.is_due());
    for _ in 0..2 {
        let next = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("a change in time");
        assert!(matches!(next, Some(api::Change::Restarted(_))), "{next:?}");
        assert!(!listing.is_due());
        let name = format!("of-{}", api.list(None, "").await.expect("listed").len());
        api.create(&typed(&name, 1)).await.expect("created");
        for size in 2..20 {
            api.update_with("shop", &name, |gadget| gadget.spec.size = size).await.expect("updated");
        }
    }
}
