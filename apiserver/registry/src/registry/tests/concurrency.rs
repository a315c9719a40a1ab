use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_writers_of_one_counter_lose_nothing() {
    let fixture = Fixture::new().await;
    fixture.create(json!({"metadata": {"name": "counter"}, "spec": {"size": 1}})).await.expect("created");
    let writers = (0..50).map(|_| {
        let (gadgets, context) = (fixture.gadgets.clone(), fixture.context.clone());
        tokio::spawn(async move {
            let mut conflicts = 0;
            for _ in 0..10 {
                loop {
                    // Read, change, and write back on the condition that nobody else has written.
                    let mut object = gadgets.get("shop", "counter", None).await.expect("there").object();
                    let size = object.0["spec"]["size"].as_i64().expect("a number");
                    object.0["spec"]["size"] = json!(size + 1);
                    let source = UpdateSource::Object(object);
                    match gadgets.update(&context, "shop", "counter", Target::Main, source).await {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error.reason(), "Conflict"),
                    }
                    conflicts += 1;
                }
            }
            conflicts
        })
    });
    let conflicts = futures_util::future::join_all(writers).await;
    let conflicts: u32 = conflicts.into_iter().map(|conflicts| conflicts.expect("no panic")).sum();
    let counter = fixture.gadgets.get("shop", "counter", None).await.expect("there");
    assert_eq!(counter.object().0["spec"]["size"], 501, "after {conflicts} conflicts");
    assert_eq!((counter.generation(), counter.version), (501, Version(501)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transforms_of_many_writers_are_all_made() {
    let fixture = Fixture::new().await;
    fixture.gadget("counter", 1).await;
    let writers = (0..50).map(|_| {
        let (gadgets, context) = (fixture.gadgets.clone(), fixture.context.clone());
        tokio::spawn(async move {
            let source = UpdateSource::transform(|current| {
                let mut new = current.clone();
                let size = new.0["spec"]["size"].as_i64().expect("a number");
                new.0["spec"]["size"] = json!(size + 1);
                Ok(new)
            });
            gadgets.update(&context, "shop", "counter", Target::Main, source).await.expect("updated");
        })
    });
    for writer in futures_util::future::join_all(writers).await {
        writer.expect("no panic");
    }
    let counter = fixture.gadgets.get("shop", "counter", None).await.expect("there");
    assert_eq!(counter.object().0["spec"]["size"], 51);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_sees_the_same_order() {
    let fixture = Fixture::new().await;
    let options = WatchOptions::default();
    let mut watches = Vec::new();
    for _ in 0..8 {
        watches.push(fixture.gadgets.watch(None, &options).await.expect("a watch"));
    }
    let writers = (0..8).map(|writer| {
        let (gadgets, context) = (fixture.gadgets.clone(), fixture.context.clone());
        tokio::spawn(async move {
            for i in 0..20 {
                let sent = object(gadget(&format!("g{writer}-{i}"), 1));
                gadgets.create(&context, "shop", sent).await.expect("created");
            }
        })
    });
    futures_util::future::join_all(writers).await;
    let first = lines(&mut watches[0], 160).await;
    assert!(first.iter().enumerate().all(|(i, line)| line.ends_with(&format!(" at {}", i + 1))), "{first:#?}");
    for watch in &mut watches[1..] {
        assert_eq!(lines(watch, 160).await, first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_creates_have_one_winner() {
    let fixture = Fixture::new().await;
    let writers = (0..16).map(|size| {
        let (gadgets, context) = (fixture.gadgets.clone(), fixture.context.clone());
        tokio::spawn(async move { gadgets.create(&context, "shop", object(gadget("a", size))).await })
    });
    let results = futures_util::future::join_all(writers).await;
    let won = results.iter().filter(|result| result.as_ref().expect("no panic").is_ok()).count();
    assert_eq!(won, 1);
}
