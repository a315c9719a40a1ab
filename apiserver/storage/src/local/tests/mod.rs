//! Restart, compaction and damage on real files; `crash` simulates worse ones.

mod crash;
mod disk;
mod history;
mod space;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use futures_util::StreamExt as _;
use stoa_machinery::log::{Change, Expect, Fence, Origin};
use tempfile::TempDir;

use super::*;

/// Lives through every seed below `count`, or through the one that `STOA_TEST_SEED` names. A seed that fails is told,
/// so that it can be given back.
pub(super) fn seeds(count: u64, live: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let only: Option<u64> = std::env::var("STOA_TEST_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    for seed in only.map_or(0..count, |only| only..only + 1) {
        let outcome = std::panic::catch_unwind(|| live(seed));
        assert!(outcome.is_ok(), "STOA_TEST_SEED={seed} repeats it");
    }
}

/// A clock that stands where the test puts it: how much time has passed, and how far the machine's was set besides.
#[derive(Debug, Default)]
pub(super) struct ManualClock(pub AtomicI64, pub AtomicI64);

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.steady_ms() + self.1.load(Relaxed)
    }

    fn steady_ms(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

pub(super) fn put(key: &str, expect: Expect, value: impl Into<bytes::Bytes>) -> Write {
    let origin = Origin { user: "anna".into(), verb: "update".into(), message: "because".into() };
    Write { origin, ..Write::new(Key::new(key), expect, Change::Put(value.into())) }
}

fn delete(key: &str) -> Write {
    Write { change: Change::Delete, ..put(key, Expect::Any, "") }
}

fn small() -> LocalOptions {
    LocalOptions { segment_bytes: 512, ..LocalOptions::default() }
}

fn files(directory: &TempDir, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(suffix))
        .collect();
    files.sort();
    files
}

async fn values(log: &LocalLog, at: Option<Version>) -> Vec<(String, u64, String)> {
    log.scan("/", at)
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| (entry.key.to_string(), entry.version.0, String::from_utf8(entry.value.to_vec()).unwrap()))
        .collect()
}

/// Writes `count` values over ten keys, with a delete now and then.
async fn fill(log: &LocalLog, count: u64) {
    for n in 0..count {
        let key = format!("/registry/k{}", n % 10);
        let write = if n % 7 == 6 { delete(&key) } else { put(&key, Expect::Any, format!("value {n}")) };
        log.append(write).await.unwrap();
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), small()).unwrap();
    fill(&log, 300).await;
    let mut before = Vec::new();
    for at in 0..=300 {
        before.push(values(&log, Some(Version(at))).await);
    }
    let records: Vec<_> = log.follow(Version(0)).await.unwrap().take(300).map(Result::unwrap).collect().await;
    drop(log);

    let log = LocalLog::open(directory.path(), small()).unwrap();
    assert!(log.shared.segments.lock().len() > 5);
    assert_eq!(log.head().await.unwrap(), Version(300));
    for at in 0..=300 {
        assert_eq!(values(&log, Some(Version(at))).await, before[at as usize], "at {at}");
    }
    let again: Vec<_> = log.follow(Version(0)).await.unwrap().take(300).map(Result::unwrap).collect().await;
    assert_eq!(again, records);
    assert_eq!(log.append(put("/x", Expect::Absent, "x")).await.unwrap(), Version(301));
}

#[tokio::test]
async fn history_takes_what_was_replaced() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), small()).unwrap();
    for n in 0..10 {
        log.append(put(&format!("/registry/{n}"), Expect::Any, vec![b' '; 100])).await.unwrap();
    }
    assert_eq!(log.excess(0), None, "all are current");
    for _ in 0..5 {
        log.append(put("/registry/0", Expect::Any, vec![b' '; 100])).await.unwrap();
    }
    assert_eq!(
        [500, 499, 300, 0].map(|bytes| log.excess(bytes)),
        [None, Some(11), Some(12), Some(15)].map(|at| at.map(Version))
    );
    log.compact(Version(12)).await.unwrap();
    assert_eq!([300, 200].map(|bytes| log.excess(bytes)), [None, Some(Version(13))]);
    drop(log);
    let log = LocalLog::open(directory.path(), small()).unwrap();
    assert_eq!([300, 200].map(|bytes| log.excess(bytes)), [None, Some(Version(13))]);
}

#[tokio::test]
async fn compaction_retires_files_and_keeps_what_is_current() {
    let directory = TempDir::new().unwrap();
    let mut log = LocalLog::open(directory.path(), small()).unwrap();
    fill(&log, 300).await;
    let at_250 = values(&log, Some(Version(250))).await;
    let now = values(&log, None).await;
    let segments = files(&directory, ".segment").len();
    log.compact(Version(100)).await.unwrap();
    log.compact(Version(250)).await.unwrap();
    assert_eq!(files(&directory, ".snapshot").len(), 1);
    assert!(files(&directory, ".segment").len() < segments / 3);

    for _restart in 0..2 {
        assert_eq!(values(&log, Some(Version(250))).await, at_250);
        assert_eq!(values(&log, None).await, now);
        assert!(matches!(
            log.scan("/", Some(Version(249))).await,
            Err(LogError::Expired { asked: Version(249), oldest: Version(250) })
        ));
        assert!(matches!(log.follow(Version(249)).await.err(), Some(LogError::Expired { .. })));
        let next = log.follow(Version(250)).await.unwrap().next().await.unwrap().unwrap();
        assert_eq!(next.version, Version(251));
        drop(log);
        log = LocalLog::open(directory.path(), small()).unwrap();
    }
}

#[tokio::test]
async fn log_truncates_torn_tail_and_continues() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    fill(&log, 20).await;
    drop(log);
    let segment = files(&directory, ".segment").pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    fs::write(&segment, &whole[..whole.len() - 3]).unwrap();

    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    assert_eq!(log.head().await.unwrap(), Version(19));
    assert!(fs::read(&segment).unwrap().len() < whole.len() - 3, "the rest of the write is cut off");
    assert_eq!(log.append(put("/x", Expect::Absent, "x")).await.unwrap(), Version(20));
    drop(log);
    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    assert_eq!(log.head().await.unwrap(), Version(20));
}

#[tokio::test]
async fn damage_before_the_tail_is_reported() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), small()).unwrap();
    fill(&log, 60).await;
    drop(log);
    let segments = files(&directory, ".segment");
    for segment in &segments {
        let whole = fs::read(segment).unwrap();
        // Any byte of a segment that is followed by another, and any but the last batch of the last.
        let end = if Some(segment) == segments.last() { 28 } else { whole.len() };
        for at in (0..end).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(segment, damaged).unwrap();
            let error = LocalLog::open(directory.path(), small()).unwrap_err();
            assert!(matches!(error, LogError::Corrupt(_)), "byte {at} of {segment:?}: {error:?}");
        }
        fs::write(segment, whole).unwrap();
    }
    fs::rename(&segments[1], segments[1].with_extension("gone")).unwrap();
    let error = LocalLog::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, LogError::Corrupt(_)), "{error:?}");
}

#[tokio::test]
async fn a_snapshot_that_does_not_read_back_is_reported() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), small()).unwrap();
    fill(&log, 60).await;
    log.compact(Version(50)).await.unwrap();
    drop(log);
    let snapshot = files(&directory, ".snapshot").pop().unwrap();
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    let error = LocalLog::open(directory.path(), small()).unwrap_err();
    assert!(matches!(&error, LogError::Corrupt(what) if what.contains("50.snapshot")), "{error:?}");
}

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    let error = LocalLog::open(directory.path(), LocalOptions::default()).unwrap_err();
    assert!(matches!(error, LogError::Unavailable(_)), "{error:?}");
    drop(log);
    LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
}

#[tokio::test]
async fn leases_survive_a_restart_and_tokens_only_grow() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = LocalOptions { clock: Arc::clone(&clock) as _, ..small() };
    let log = LocalLog::open(directory.path(), options.clone()).unwrap();
    let ttl = Duration::from_secs(10);
    let first = log.acquire("run/a", "one", ttl).await.unwrap();
    fill(&log, 60).await;
    clock.0.store(9_000, Relaxed);
    log.renew(&first).await.unwrap();
    log.compact(Version(55)).await.unwrap();
    drop(log);

    let log = LocalLog::open(directory.path(), options.clone()).unwrap();
    clock.0.store(19_000, Relaxed);
    assert!(matches!(log.acquire("run/a", "two", ttl).await, Err(LogError::Held { holder, .. }) if holder == "one"));
    let under_first = |key: &str| Write { fence: Some(first.fence()), ..put(key, Expect::Any, "x") };
    log.append(under_first("/a")).await.unwrap();
    clock.0.store(19_001, Relaxed);
    assert!(matches!(log.append(under_first("/b")).await, Err(LogError::Fenced { .. })));
    let second = log.acquire("run/a", "two", ttl).await.unwrap();
    assert!(second.token > first.token);
    log.release(&first).await.unwrap();
    assert!(matches!(log.acquire("run/a", "one", ttl).await, Err(LogError::Held { .. })));
    log.release(&second).await.unwrap();
    drop(log);

    let log = LocalLog::open(directory.path(), options).unwrap();
    let third = log.acquire("run/a", "one", ttl).await.unwrap();
    assert!(third.token > second.token);
    let stale =
        Write { fence: Some(Fence { lease: "run/a".into(), token: second.token }), ..put("/b", Expect::Any, "x") };
    assert!(matches!(log.append(stale).await, Err(LogError::Fenced { .. })));
}

#[tokio::test]
async fn clock_change_leaves_lease_duration() {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::default());
    let options = LocalOptions { clock: Arc::clone(&clock) as _, ..small() };
    let log = LocalLog::open(directory.path(), options.clone()).unwrap();
    let ttl = Duration::from_secs(10);
    let lease = log.acquire("run/a", "one", ttl).await.unwrap();
    let others = async |log: &LocalLog| log.acquire("run/a", "two", ttl).await;
    for set in [3_600_000, -3_600_000, 0] {
        clock.1.store(set, Relaxed);
        clock.0.fetch_add(9_000, Relaxed);
        let write = Write { fence: Some(lease.fence()), ..put("/a", Expect::Any, "x") };
        log.append(write).await.unwrap_or_else(|error| panic!("set by {set} ms: {error}"));
        assert!(matches!(others(&log).await, Err(LogError::Held { .. })), "set by {set} ms");
        log.renew(&lease).await.unwrap();
    }
    drop(log);

    // Set back while nobody looks: it does not last an hour longer.
    clock.1.store(-3_600_000, Relaxed);
    let log = LocalLog::open(directory.path(), options).unwrap();
    assert!(matches!(others(&log).await, Err(LogError::Held { .. })));
    clock.0.fetch_add(10_001, Relaxed);
    others(&log).await.unwrap();
}

#[tokio::test]
async fn concurrent_writes_share_syncs() {
    let directory = TempDir::new().unwrap();
    let log = Arc::new(LocalLog::open(directory.path(), LocalOptions::default()).unwrap());
    let writes = (0..500).map(|n| {
        let log = Arc::clone(&log);
        async move { log.append(put(&format!("/k{n}"), Expect::Absent, "x")).await.unwrap() }
    });
    let mut versions = futures_util::future::join_all(writes).await;
    versions.sort();
    assert_eq!(versions, (1..=500).map(Version).collect::<Vec<_>>());
    let batches = log.shared.published.read().state.batch;
    assert!(batches < 100, "{batches}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_is_never_before_what_was_read() {
    let disk = disk::SimulatedDisk::new(disk::Random::new(1));
    let log = Arc::new(LocalLog::open_on(Arc::new(disk), LocalOptions::default()).unwrap());
    let writer = Arc::clone(&log);
    let writes = tokio::spawn(async move {
        for n in 0..5_000 {
            writer.append(put("/a", Expect::Any, n.to_string())).await.unwrap();
        }
    });
    while !writes.is_finished() {
        let read = log.read(&Key::new("/a")).await.unwrap().map_or(Version(0), |entry| entry.version);
        let head = log.head().await.unwrap();
        assert!(head >= read, "{head} after {read} was read");
    }
    writes.await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_too_large_is_refused() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    let error = log.append(put("/a", Expect::Any, vec![0; MAX_VALUE + 1])).await.unwrap_err();
    assert!(matches!(error, LogError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn a_follower_hears_of_the_end() {
    let directory = TempDir::new().unwrap();
    let log = LocalLog::open(directory.path(), LocalOptions::default()).unwrap();
    let mut stream = log.follow(Version(0)).await.unwrap();
    log.append(put("/a", Expect::Absent, "x")).await.unwrap();
    drop(log);
    assert_eq!(stream.next().await.unwrap().unwrap().version, Version(1));
    assert!(matches!(stream.next().await, Some(Err(LogError::Unavailable(_)))));
    assert!(stream.next().await.is_none());
}
