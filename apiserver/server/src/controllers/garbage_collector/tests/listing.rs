//! What the collector answers while it has missed something, and the list of what there is hangs.

use std::{pin::pin, task::Poll};

use async_trait::async_trait;
use futures_util::poll;
use stoa_machinery::{
    log::{Entry, Key, Lease, LogError, RecordStream, Snapshot, Version, Write},
    registry::Window,
};
use tokio::sync::RwLock;

use super::*;

/// A log in memory that a test can keep from telling where it ends, which each list asks first.
#[derive(Debug)]
struct Hanging {
    log: MemoryLog,
    head: RwLock<()>,
}

#[async_trait]
impl Log for Hanging {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        self.log.append(write).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        let _told = self.head.read().await;
        self.log.head().await
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        self.log.read(key).await
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        self.log.scan(prefix, at).await
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        self.log.follow(since).await
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        self.log.compact(before).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        self.log.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }
}

#[tokio::test]
async fn nobody_is_answered_before_what_was_missed_is_listed() {
    let log = Arc::new(Hanging { log: MemoryLog::new(), head: RwLock::new(()) });
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    // The last hundred events are kept, and no more.
    let window = Window { bytes: 0, ..Window::default() };
    let builder = Registry::builder(log.clone()).end_with(end.clone()).window(window);
    let registry = stoa_kinds::core_v1::register(builder).build().await.unwrap();
    let (feed, collector, _due) = Collector::new(registry.clone(), recorder_of(&registry, &end));
    let a = make(&registry, "configmaps", "shop", "a", &[]).await;
    let ask = || collector.seen.ask(|graph| graph.dependents(&a).len());
    // The feed goes on only where it is polled here, so that it can miss something.
    let mut feed = pin!(tokio::task::unconstrained(feed.run(end)));
    let begun = tokio::select! {
        () = &mut feed => panic!("the server runs"),
        found = ask() => found,
    };
    assert_eq!(begun.unwrap(), 0);

    make(&registry, "configmaps", "shop", "first", &[config_map("a", &a)]).await;
    let mut asked = pin!(ask());
    assert!(poll!(&mut asked).is_pending() && poll!(&mut feed).is_pending());
    assert!(matches!(poll!(&mut asked), Poll::Ready(Ok(1))), "the feed answers when it is polled");

    for _ in 0..100 {
        make(&registry, "configmaps", "shop", "missed", &[config_map("a", &a)]).await;
        delete(&registry, "missed", "Background").await;
    }
    make(&registry, "configmaps", "shop", "last", &[config_map("a", &a)]).await;
    let hangs = log.head.write().await;
    let mut asked = pin!(ask());
    assert!(poll!(&mut asked).is_pending());
    for _ in 0..3 {
        assert!(poll!(&mut feed).is_pending());
        assert!(poll!(&mut asked).is_pending(), "nobody knows yet who depends on it");
    }
    drop(hangs);
    let found = tokio::select! {
        () = &mut feed => panic!("the server runs"),
        found = &mut asked => found,
    };
    assert_eq!(found.unwrap(), 2);
}
