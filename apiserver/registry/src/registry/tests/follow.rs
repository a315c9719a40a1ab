use std::sync::atomic::{AtomicBool, Ordering};

use stoa_log::{Entry, Lease, LogError, Record, RecordStream, Snapshot};

use super::*;

/// A log in memory whose first follower fails after one record. Of its versions it says that but the first are others'.
#[derive(Debug)]
struct Interrupted {
    log: MemoryLog,
    /// Whether history is lost with it, or only the connection.
    expires: bool,
    done: AtomicBool,
}

#[async_trait]
impl Log for Interrupted {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        self.log.append(write).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        self.log.head().await
    }

    async fn before_last(&self, _records: u64) -> Result<Version, LogError> {
        Ok(Version(0))
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        self.log.read(key).await
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        self.log.scan(prefix, at).await
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        let records = self.log.follow(since).await?;
        if self.done.swap(true, Ordering::SeqCst) {
            return Ok(records);
        }
        let error = if self.expires {
            LogError::Expired { asked: since, oldest: Version(since.0 + 1) }
        } else {
            LogError::Unavailable("interrupted".into())
        };
        let failure = futures_util::stream::iter([Err::<Record, _>(error)]);
        Ok(records.take(1).chain(failure).boxed())
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

async fn interrupted(expires: bool) -> Fixture {
    let log = Interrupted { log: MemoryLog::new(), expires, done: AtomicBool::new(false) };
    Fixture::over(Arc::new(log), Window::default()).await
}

#[tokio::test]
async fn log_that_comes_back_is_followed_on() {
    let fixture = interrupted(false).await;
    let mut events = fixture.gadgets.watch(None, &WatchOptions::default()).await.expect("a watch");
    fixture.gadget("a", 1).await;
    fixture.gadget("b", 1).await;
    fixture.resize("a", 2).await;
    assert_eq!(lines(&mut events, 3).await, ["added a size 1 at 1", "added b size 1 at 2", "modified a size 2 at 3"]);
}

#[tokio::test]
async fn lost_log_history_ends_watches_and_reloads() {
    let fixture = interrupted(true).await;
    let mut events = fixture.gadgets.watch(None, &WatchOptions::default()).await.expect("a watch");
    fixture.gadget("a", 1).await;
    fixture.gadget("b", 1).await;
    let list = fixture.list(&ListOptions::default()).await.expect("listed");
    assert_eq!((names(&list), list.version), (vec!["a", "b"], Version(2)));
    // How much had been written when the log was read anew is left to chance.
    let error = lines(&mut events, 1).await.remove(0);
    assert!(error.starts_with("error 410 too old resource version: 0 ("), "{error}");
    let mut events = fixture.gadgets.watch(None, &WatchOptions::default()).await.expect("a watch");
    assert_eq!(lines(&mut events, 2).await, ["added a size 1 at 1", "added b size 1 at 2"]);
}

#[tokio::test]
async fn startup_reads_history_within_event_window() {
    let log = Arc::new(Interrupted { log: MemoryLog::new(), expires: false, done: AtomicBool::new(true) });
    let window = Window { events: 2, ..Window::default() };
    let before = Fixture::over(log.clone(), window).await;
    before.gadget("a", 1).await;
    for size in 2..=5 {
        before.resize("a", size).await;
    }
    before.end.cancel();
    let fixture = Fixture::over(log, window).await;
    let options = WatchOptions { resource_version: Some("2".to_owned()), ..WatchOptions::default() };
    let mut events = fixture.gadgets.watch(None, &options).await.expect("a watch");
    assert_eq!(lines(&mut events, 2).await, ["modified a size 3 at 3", "modified a size 4 at 4"]);
}

#[tokio::test]
async fn writer_is_answered_though_the_server_ends() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.end.cancel();
    let write = fixture.create(gadget("b", 1));
    let created = tokio::time::timeout(Duration::from_secs(10), write).await.expect("in time").expect("durable");
    assert_eq!(created.version, Version(2));
}
