use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use stoa_machinery::log::{Entry, Lease, MemoryLog, RecordStream, Snapshot};
use stoa_storage::documents::LocalDocuments;

use super::*;

/// What etcd takes in one transaction, by default.
const ETCD: usize = 1_572_864;

/// So many failures of a log that is away.
const AWAY: usize = usize::MAX;

#[derive(Debug)]
struct At(i64);

impl Clock for At {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// A log that takes no more at once than etcd, and fails so many times before it takes anything.
#[derive(Debug)]
pub(crate) struct Narrow {
    log: MemoryLog,
    failures: AtomicUsize,
    /// So many renewals of leases fail, too.
    unrenewed: AtomicUsize,
    /// What says this is never written, and never refused.
    hanging: std::sync::OnceLock<&'static str>,
    /// What says this is refused for now.
    refused: Mutex<Option<&'static str>>,
    /// Scans of this are never answered.
    unscanned: std::sync::OnceLock<&'static str>,
    /// How many bytes of values were to be read at most, of scans that say so.
    bounds: Mutex<Vec<usize>>,
    /// How often it was asked where it ends, as by every list.
    heads: AtomicUsize,
    /// Something is not written since it says that, or not read.
    pub(crate) hangs: tokio::sync::Notify,
}

impl Narrow {
    pub(crate) fn new(failures: usize) -> Arc<Self> {
        Arc::new(Self {
            log: MemoryLog::new(),
            failures: failures.into(),
            unrenewed: 0.into(),
            hanging: std::sync::OnceLock::new(),
            refused: Mutex::default(),
            unscanned: std::sync::OnceLock::new(),
            bounds: Mutex::default(),
            heads: 0.into(),
            hangs: tokio::sync::Notify::new(),
        })
    }

    /// Fails this many times from now on.
    pub(crate) fn fail(&self, times: usize) {
        self.failures.store(times, Ordering::SeqCst);
    }

    /// Fails to renew leases this many times.
    pub(crate) fn fail_renewals(&self, times: usize) {
        self.unrenewed.store(times, Ordering::SeqCst);
    }

    /// How often it was asked where it ends.
    pub(crate) fn heads(&self) -> usize {
        self.heads.load(Ordering::SeqCst)
    }

    /// How many bytes of values were to be read at most, of scans that say so.
    pub(crate) fn bounds(&self) -> Vec<usize> {
        self.bounds.lock().unwrap().clone()
    }

    /// Never answers to writes that say this.
    pub(crate) fn hang(&self, said: &'static str) {
        self.hanging.set(said).unwrap();
    }

    /// Refuses writes that say this, or none.
    pub(crate) fn refuse(&self, said: Option<&'static str>) {
        *self.refused.lock().unwrap() = said;
    }

    /// Never answers to scans of this prefix.
    pub(crate) fn hang_scans(&self, prefix: &'static str) {
        self.unscanned.set(prefix).unwrap();
    }
}

#[async_trait]
impl Log for Narrow {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        if let (Some(said), Change::Put(value)) = (self.hanging.get(), &write.change)
            && String::from_utf8_lossy(value).contains(said)
        {
            self.hangs.notify_one();
            std::future::pending::<()>().await;
        }
        let refused = *self.refused.lock().unwrap();
        if let (Some(said), Change::Put(value)) = (refused, &write.change)
            && String::from_utf8_lossy(value).contains(said)
        {
            self.hangs.notify_one();
            return Err(LogError::Unavailable("no leader".into()));
        }
        let size = if let Change::Put(value) = &write.change { value.len() } else { 0 };
        if size > ETCD {
            return Err(LogError::TooLarge { size, limit: "etcdserver: request is too large".to_owned() });
        }
        if self.failures.load(Ordering::SeqCst) == AWAY {
            return Err(LogError::Unavailable("no route to host".into()));
        }
        let failing = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if let Ok(left) = failing {
            // Every other answer is lost after the write was made.
            if left % 2 == 0 {
                self.log.append(write).await?;
            }
            return Err(LogError::Unavailable("no leader".into()));
        }
        self.log.append(write).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        self.log.head().await
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        self.log.read(key).await
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        if self.unscanned.get().is_some_and(|unscanned| *unscanned == prefix) {
            self.hangs.notify_one();
            std::future::pending::<()>().await;
        }
        self.log.scan(prefix, at).await
    }

    async fn scan_within(&self, prefix: &str, bytes: usize) -> Result<Option<Snapshot>, LogError> {
        self.bounds.lock().unwrap().push(bytes);
        self.log.scan_within(prefix, bytes).await
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
        if self.unrenewed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(LogError::Unavailable("no leader".into()));
        }
        self.log.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }
}

fn journal(log: &Arc<Narrow>) -> Journal {
    Journal::new(log.clone(), Arc::new(At(0)), "uid")
}

async fn text(log: &dyn Log) -> String {
    read(log, "uid").await.unwrap().0.iter().map(Line::text).collect()
}

#[tokio::test]
async fn lines_stay_in_order_though_the_clock_is_set_back() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    for (now, text) in [(7_200_000, "first"), (0, "second"), (3_600_000, "third")] {
        let mut journal = Journal::new(log.clone(), Arc::new(At(now)), "uid");
        journal.note("Applying", text);
        journal.flush().await;
    }
    let (lines, _) = read(&*log, "uid").await.unwrap();
    assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["first", "second", "third"]);
}

#[tokio::test]
async fn what_is_larger_than_a_record_of_etcd_is_written_all_the_same() {
    let log = Narrow::new(0);
    let mut journal = journal(&log);
    let table: String = (0..60_000).map(|number| format!("+ create   v1:ConfigMap:shop:größe-{number}\n")).collect();
    assert!(table.len() > 2 << 20);
    let unbroken = "ü".repeat(1 << 20);
    journal.note("Planning", &*table);
    journal.note("Planning", &*unbroken);
    for number in 0..5_000 {
        journal.note("Applying", format!("{number} {}", "\u{1}".repeat(100)));
    }
    journal.flush().await;
    let (lines, _) = read(&*log, "uid").await.unwrap();
    let told =
        |range: std::ops::Range<usize>| lines[range].iter().map(|line| line.message.as_str()).collect::<String>();
    let second = lines.iter().position(|line| line.message.starts_with('ü')).unwrap();
    let third = lines.iter().position(|line| line.message.starts_with("0 ")).unwrap();
    assert!(told(0..second) == table && told(second..third) == unbroken, "{second} {third}");
    assert_eq!(lines.len() - third, 5_000);
    assert!(lines.iter().all(|line| line.message.len() <= LONGEST));
    let text = text(&*log).await;
    let heads = text.matches("00:00:00 Planning").count();
    assert_eq!(heads, 2, "lines that go on have no head of their own");
    assert!(text.contains(&table));
    let largest = log.scan("/stoa/journal/", None).await.unwrap().entries.iter().map(|entry| entry.value.len()).max();
    assert!(largest.unwrap() <= LARGEST + 6 * LONGEST, "{largest:?}");
}

#[tokio::test]
async fn lines_wait_for_a_log_that_is_away_and_are_written_once() {
    let log = Narrow::new(5);
    let mut journal = journal(&log);
    for number in 0..8 {
        journal.note("Applying", format!("line {number}"));
        journal.flush().await;
    }
    let expected: String = (0..8).map(|number| format!("00:00:00 Applying: line {number}\n")).collect();
    assert_eq!(text(&*log).await, expected);
}

#[tokio::test]
async fn what_is_given_up_is_told() {
    let log = Narrow::new(AWAY);
    let mut journal = journal(&log);
    let long = "x".repeat(LONGEST);
    for _ in 0..(WAITING / LONGEST + 20) {
        journal.note("Applying", &*long);
        journal.flush().await;
    }
    assert!(journal.unwritten.iter().map(|(_, value, _)| value.len()).sum::<usize>() <= WAITING);
    log.failures.store(0, Ordering::SeqCst);
    journal.note("Failed", "the end");
    journal.flush().await;
    let (lines, _) = read(&*log, "uid").await.unwrap();
    let lost = WAITING / LONGEST + 20 - lines.iter().filter(|line| line.message == long).count();
    let told = format!("{lost} lines are missing before this one: the log could not be written");
    assert!(lost > 0 && lines.iter().any(|line| line.message == told), "{lost}");
    assert!(lines.iter().any(|line| line.message == "the end"));
}

#[tokio::test]
async fn a_journal_is_read_from_its_document_as_it_was() {
    let log = Narrow::new(0);
    let mut journal = journal(&log);
    journal.note("Planning", "a\nb");
    journal.note("Succeeded", "");
    journal.flush().await;
    let folder = tempfile::tempdir().unwrap();
    let documents = LocalDocuments::open(folder.path()).unwrap();
    let digest = keep(&*log, "uid", &documents, "shop/stack").await.unwrap();
    let document = documents.get("shop/stack", &digest.parse().unwrap()).await.unwrap().unwrap();
    let (lines, _) = read(&*log, "uid").await.unwrap();
    assert_eq!(of_document(&document).unwrap(), lines);
    remove(&*log, "uid").await.unwrap();
    assert!(read(&*log, "uid").await.unwrap().0.is_empty());
}
