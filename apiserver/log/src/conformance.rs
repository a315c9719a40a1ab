//! The contract of [`Log`] as tests: one function for each sentence of its documentation.
//!
//! Every function expects a fresh, empty log and panics where the contract is broken. A crate
//! that implements the trait runs them all with [`log_conformance_tests!`](crate::log_conformance_tests).

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};

use super::{Change, Expect, Key, Lease, Log, LogError, Origin, Record, RecordStream, Version, Write};

/// How long anything that has to happen may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// A lease that does not expire while a test runs.
const LONG: Duration = Duration::from_secs(600);
/// A lease whose expiry a test waits for.
const SHORT: Duration = Duration::from_millis(300);

/// Makes one `#[tokio::test]` of each function in this module.
///
/// The argument names an async function that returns a fresh log as `Arc<dyn Log>`, and
/// something to keep alive while the test runs, such as a temporary directory.
#[macro_export]
macro_rules! log_conformance_tests {
    ($fresh:path) => {
        $crate::log_conformance_tests!(@each $fresh:
            versions_order_all_keys
            head_is_the_version_of_the_last_record
            the_last_records_come_after_the_version_before_them
            absent_wants_nothing_there
            at_wants_the_last_write
            at_a_deleted_version_conflicts
            any_takes_whatever_is_there
            removing_what_is_not_there_conflicts_unless_any
            refused_write_leaves_nothing_behind
            racing_writers_of_one_version_have_one_winner
            concurrent_writes_are_all_kept
            dropped_append_is_whole_or_absent
            read_gives_the_last_value
            scan_gives_a_prefix_in_byte_order
            scan_shows_an_old_version
            scan_past_the_head_is_future
            scan_within_so_many_bytes_gives_all_or_nothing
            follow_streams_what_came_after
            follow_waits_for_new_records
            follow_carries_the_whole_record
            compaction_expires_older_scans
            compaction_expires_older_follows
            compaction_keeps_current_values
            compaction_past_the_head_is_up_to_the_head
            held_lease_refuses_others
            same_holder_takes_its_lease_again_with_a_greater_token
            expired_lease_can_be_taken
            renewal_keeps_a_lease
            renewing_a_lost_lease_is_fenced
            released_lease_can_be_taken
            releasing_a_lost_lease_changes_nothing
            tokens_are_never_used_twice
            write_under_a_held_lease_is_appended
            write_under_a_lost_lease_is_fenced
            write_under_an_expired_lease_is_fenced
        );
    };
    (@each $fresh:path: $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let (log, _guard) = $fresh().await;
                $crate::conformance::$name(log).await;
            }
        )*
    };
}

/// A write with no fence.
fn write(key: &str, expect: Expect, change: Change) -> Write {
    let origin = Origin { user: "ann".into(), verb: "update".into(), message: "because".into() };
    Write { origin, ..Write::new(Key::new(key), expect, change) }
}

fn value(text: &str) -> Change {
    Change::Put(Bytes::copy_from_slice(text.as_bytes()))
}

async fn put(log: &dyn Log, key: &str, text: &str) -> Version {
    log.append(write(key, Expect::Any, value(text))).await.expect("put")
}

async fn delete(log: &dyn Log, key: &str) -> Version {
    log.append(write(key, Expect::Any, Change::Delete)).await.expect("delete")
}

async fn get(log: &dyn Log, key: &str) -> Option<(String, Version)> {
    let entry = log.read(&Key::new(key)).await.expect("read")?;
    assert_eq!(entry.key, Key::new(key));
    Some((text(&entry.value), entry.version))
}

fn text(value: &Bytes) -> String {
    String::from_utf8(value.to_vec()).expect("the tests write text")
}

async fn scan(log: &dyn Log, prefix: &str, at: Option<Version>) -> Vec<(String, String)> {
    let snapshot = log.scan(prefix, at).await.expect("scan");
    if let Some(at) = at {
        assert_eq!(snapshot.version, at, "a scan shows the version it was asked for");
    }
    snapshot.entries.iter().map(|entry| (entry.key.to_string(), text(&entry.value))).collect()
}

async fn next(stream: &mut RecordStream) -> Result<Record, LogError> {
    tokio::time::timeout(PATIENCE, stream.next())
        .await
        .expect("a record in time")
        .expect("follow ends only with an error")
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn assert_conflict(result: Result<Version, LogError>, expected: Option<Version>) {
    match result {
        Err(LogError::Conflict { found, .. }) => assert_eq!(found, expected, "a conflict says what was found"),
        other => panic!("expected a conflict with {expected:?}, got {other:?}"),
    }
}

fn assert_fenced<T: std::fmt::Debug>(result: Result<T, LogError>, lease: &Lease) {
    match result {
        Err(LogError::Fenced { lease: name, token }) => assert_eq!((name, token), (lease.name.clone(), lease.token)),
        other => panic!("expected a fenced call, got {other:?}"),
    }
}

/// Takes a lease as soon as it is free.
async fn acquire_eventually(log: &dyn Log, name: &str, holder: &str) -> Lease {
    let start = Instant::now();
    loop {
        match log.acquire(name, holder, LONG).await {
            Ok(lease) => return lease,
            Err(LogError::Held { .. }) if start.elapsed() < PATIENCE => tokio::time::sleep(SHORT / 20).await,
            Err(error) => panic!("the lease did not become free: {error}"),
        }
    }
}

/// Versions begin above 0 and grow with every write, whatever its key.
pub async fn versions_order_all_keys(log: Arc<dyn Log>) {
    let versions = [
        Version(0),
        put(&*log, "/a", "1").await,
        put(&*log, "/b", "1").await,
        put(&*log, "/a", "2").await,
        delete(&*log, "/b").await,
    ];
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

/// The head is the version of the last durable record, and 0 before the first write.
pub async fn head_is_the_version_of_the_last_record(log: Arc<dyn Log>) {
    assert_eq!(log.head().await.expect("head"), Version(0));
    let last = put(&*log, "/a", "1").await;
    assert_eq!(log.head().await.expect("head"), last);
    let last = delete(&*log, "/a").await;
    assert_eq!(log.head().await.expect("head"), last);
}

/// What comes after the version before the last so many records are those, or all when there are no more.
pub async fn the_last_records_come_after_the_version_before_them(log: Arc<dyn Log>) {
    assert_eq!(log.before_last(2).await.expect("before the first"), Version(0));
    let versions = [
        put(&*log, "/a", "1").await,
        put(&*log, "/b", "1").await,
        put(&*log, "/a", "2").await,
        delete(&*log, "/b").await,
    ];
    assert_eq!(log.before_last(0).await.expect("the head"), versions[3]);
    for (records, first) in [(1, 3), (2, 2), (4, 0), (9, 0)] {
        let since = log.before_last(records).await.expect("a version");
        let mut stream = log.follow(since).await.expect("followed");
        assert_eq!(next(&mut stream).await.expect("a record").version, versions[first], "the last {records}");
    }
}

/// `Expect::Absent`: nothing is there, never written or deleted.
pub async fn absent_wants_nothing_there(log: Arc<dyn Log>) {
    let first = log.append(write("/a", Expect::Absent, value("1"))).await.expect("the key is free");
    assert_conflict(log.append(write("/a", Expect::Absent, value("2"))).await, Some(first));
    delete(&*log, "/a").await;
    log.append(write("/a", Expect::Absent, value("3"))).await.expect("the key is free again");
}

/// `Expect::At`: the last write to the key is this one; the conflict says what was found.
pub async fn at_wants_the_last_write(log: Arc<dyn Log>) {
    let first = put(&*log, "/a", "1").await;
    put(&*log, "/b", "1").await;
    let second = log.append(write("/a", Expect::At(first), value("2"))).await.expect("still at first");
    assert_conflict(log.append(write("/a", Expect::At(first), value("3"))).await, Some(second));
    assert_conflict(log.append(write("/a", Expect::At(first), Change::Delete)).await, Some(second));
    assert_conflict(log.append(write("/c", Expect::At(first), value("1"))).await, None);
    log.append(write("/a", Expect::At(second), Change::Delete)).await.expect("still at second");
}

/// `Expect::At` does not hold at the version of a delete.
pub async fn at_a_deleted_version_conflicts(log: Arc<dyn Log>) {
    put(&*log, "/a", "1").await;
    let deleted = delete(&*log, "/a").await;
    assert_conflict(log.append(write("/a", Expect::At(deleted), value("2"))).await, None);
}

/// `Expect::Any`: whatever is or is not there.
pub async fn any_takes_whatever_is_there(log: Arc<dyn Log>) {
    put(&*log, "/a", "1").await;
    put(&*log, "/a", "2").await;
    delete(&*log, "/a").await;
    let last = put(&*log, "/a", "3").await;
    assert_eq!(get(&*log, "/a").await, Some(("3".to_owned(), last)));
}

/// Removing what is not there is a conflict unless `Expect::Any`, which records it.
pub async fn removing_what_is_not_there_conflicts_unless_any(log: Arc<dyn Log>) {
    assert_conflict(log.append(write("/a", Expect::Absent, Change::Delete)).await, None);
    assert_conflict(log.append(write("/a", Expect::At(Version(1)), Change::Delete)).await, None);
    let version = log.append(write("/a", Expect::Any, Change::Delete)).await.expect("any");
    assert_eq!(log.head().await.expect("head"), version);
}

/// A refused write changes neither the value nor the head, and nobody who follows sees it.
pub async fn refused_write_leaves_nothing_behind(log: Arc<dyn Log>) {
    let first = put(&*log, "/a", "1").await;
    assert_conflict(log.append(write("/a", Expect::Absent, value("2"))).await, Some(first));
    assert_eq!(get(&*log, "/a").await, Some(("1".to_owned(), first)));
    assert_eq!(log.head().await.expect("head"), first);
    let second = put(&*log, "/b", "1").await;
    let mut stream = log.follow(first).await.expect("follow");
    assert_eq!(next(&mut stream).await.expect("record").version, second);
}

/// Of many writers that expect the same version, exactly one is appended.
pub async fn racing_writers_of_one_version_have_one_winner(log: Arc<dyn Log>) {
    let first = put(&*log, "/a", "start").await;
    let writers = (0..16).map(|i| {
        let log = log.clone();
        tokio::spawn(async move { log.append(write("/a", Expect::At(first), value(&i.to_string()))).await.is_ok() })
    });
    let winners = futures_util::future::join_all(writers).await;
    assert_eq!(winners.into_iter().filter(|won| *won.as_ref().expect("no panic")).count(), 1);
    let mut stream = log.follow(first).await.expect("follow");
    let winner = next(&mut stream).await.expect("record");
    assert_eq!(log.head().await.expect("head"), winner.version, "nothing else was appended");
}

/// Concurrent writes each get a version of their own, and all of them can be read and followed.
pub async fn concurrent_writes_are_all_kept(log: Arc<dyn Log>) {
    let writers = (0..64).map(|i| {
        let log = log.clone();
        tokio::spawn(async move { put(&*log, &format!("/k/{i:02}"), &i.to_string()).await })
    });
    let versions: BTreeSet<Version> =
        futures_util::future::join_all(writers).await.into_iter().map(|v| v.expect("no panic")).collect();
    assert_eq!(versions.len(), 64);
    assert_eq!(scan(&*log, "/k/", None).await.len(), 64);
    let mut stream = log.follow(Version(0)).await.expect("follow");
    for expected in versions {
        assert_eq!(next(&mut stream).await.expect("record").version, expected);
    }
}

/// Dropping the future of an append leaves the write either appended whole or not at all.
pub async fn dropped_append_is_whole_or_absent(log: Arc<dyn Log>) {
    for i in 0..20 {
        let key = format!("/k/{i:02}");
        // Polled once and then dropped.
        let _ = log.append(write(&key, Expect::Absent, value("whole"))).now_or_never();
    }
    // Appended after all of them, so that whatever they left is durable by now.
    let last = put(&*log, "/last", "x").await;
    let found = log.scan("/k/", Some(last)).await.expect("scan");
    let mut stream = log.follow(Version(0)).await.expect("follow");
    let mut records = Vec::new();
    while records.last().is_none_or(|record: &Record| record.version < last) {
        records.push(next(&mut stream).await.expect("record"));
    }
    assert_eq!(records.last().expect("at least the last one").key, Key::new("/last"));
    assert_eq!(records.len() - 1, found.entries.len());
    for (record, entry) in records.iter().zip(&found.entries) {
        assert_eq!(entry.value, "whole");
        assert!(records.iter().any(|r| r.version == entry.version && r.key == entry.key), "{record:?}");
    }
}

/// A read gives the last value and its version, and nothing after a delete.
pub async fn read_gives_the_last_value(log: Arc<dyn Log>) {
    assert_eq!(get(&*log, "/a").await, None);
    put(&*log, "/a", "1").await;
    let second = put(&*log, "/a", "2").await;
    put(&*log, "/ab", "other").await;
    assert_eq!(get(&*log, "/a").await, Some(("2".to_owned(), second)));
    delete(&*log, "/a").await;
    assert_eq!(get(&*log, "/a").await, None);
}

/// A scan gives everything whose key begins with the prefix, in bytewise key order.
pub async fn scan_gives_a_prefix_in_byte_order(log: Arc<dyn Log>) {
    let mut last = Version(0);
    for key in ["/r/b", "/r/a/x", "/r/a-b/x", "/r/Z", "/s/a", "/q/a", "/r/é"] {
        last = put(&*log, key, key).await;
    }
    let expected = ["/r/Z", "/r/a-b/x", "/r/a/x", "/r/b", "/r/é"].map(|key| (key, key));
    assert_eq!(scan(&*log, "/r/", None).await, pairs(&expected));
    assert_eq!(scan(&*log, "/r/a", None).await, pairs(&expected[1..3]));
    assert_eq!(scan(&*log, "/t/", None).await, pairs(&[]));
    assert_eq!(scan(&*log, "", None).await.len(), 7);
    assert_eq!(log.scan("/r/", None).await.expect("scan").version, last);
}

/// A scan at a version shows no later write, and every earlier one.
pub async fn scan_shows_an_old_version(log: Arc<dyn Log>) {
    let one = put(&*log, "/a", "1").await;
    let two = put(&*log, "/b", "1").await;
    let three = put(&*log, "/a", "2").await;
    let four = delete(&*log, "/b").await;
    let five = put(&*log, "/c", "1").await;
    assert_eq!(scan(&*log, "/", Some(Version(0))).await, pairs(&[]));
    assert_eq!(scan(&*log, "/", Some(one)).await, pairs(&[("/a", "1")]));
    assert_eq!(scan(&*log, "/", Some(two)).await, pairs(&[("/a", "1"), ("/b", "1")]));
    assert_eq!(scan(&*log, "/", Some(three)).await, pairs(&[("/a", "2"), ("/b", "1")]));
    assert_eq!(scan(&*log, "/", Some(four)).await, pairs(&[("/a", "2")]));
    assert_eq!(scan(&*log, "/", Some(five)).await, pairs(&[("/a", "2"), ("/c", "1")]));
}

/// A scan at a version newer than the head is refused.
pub async fn scan_past_the_head_is_future(log: Arc<dyn Log>) {
    let head = put(&*log, "/a", "1").await;
    let later = Version(head.0 + 8);
    match log.scan("/", Some(later)).await {
        Err(LogError::Future { asked, head: found }) => assert_eq!((asked, found), (later, head)),
        other => panic!("expected a version from the future to be refused, got {other:?}"),
    }
}

/// A scan within so many bytes of values gives all that there is, or nothing where that is more.
pub async fn scan_within_so_many_bytes_gives_all_or_nothing(log: Arc<dyn Log>) {
    put(&*log, "/r/a", "12").await;
    let last = put(&*log, "/r/b", "345").await;
    let within = async |prefix: &str, bytes| {
        let found = log.scan_within(prefix, bytes).await.expect("scan");
        found.map(|found| (found.version, found.entries.len()))
    };
    assert_eq!(within("/r/", 5).await, Some((last, 2)));
    assert_eq!(within("/r/", 4).await, None);
    assert_eq!(within("/r/b", 3).await, Some((last, 1)));
    assert_eq!(within("/t/", 0).await, Some((last, 0)));
}

/// A follow streams every record after a version, oldest first, whatever its key.
pub async fn follow_streams_what_came_after(log: Arc<dyn Log>) {
    let versions = [
        Version(0),
        put(&*log, "/a", "1").await,
        put(&*log, "/b", "1").await,
        put(&*log, "/a", "2").await,
        delete(&*log, "/b").await,
    ];
    for since in 0..4 {
        let mut stream = log.follow(versions[since]).await.expect("follow");
        for expected in &versions[since + 1..] {
            assert_eq!(next(&mut stream).await.expect("record").version, *expected);
        }
        assert!(stream.next().now_or_never().is_none(), "nothing else has been written");
    }
}

/// A follow that has caught up waits for new records.
pub async fn follow_waits_for_new_records(log: Arc<dyn Log>) {
    let first = put(&*log, "/a", "1").await;
    let mut stream = log.follow(first).await.expect("follow");
    assert!(stream.next().now_or_never().is_none(), "nothing is there yet");
    for i in 0..10 {
        let version = put(&*log, "/a", &i.to_string()).await;
        let record = next(&mut stream).await.expect("record");
        assert_eq!((record.version, record.change), (version, value(&i.to_string())));
    }
}

/// A record carries key, change, origin and time.
pub async fn follow_carries_the_whole_record(log: Arc<dyn Log>) {
    put(&*log, "/a", "1").await;
    delete(&*log, "/a").await;
    let mut stream = log.follow(Version(0)).await.expect("follow");
    let put = next(&mut stream).await.expect("record");
    assert_eq!((put.key, put.change), (Key::new("/a"), value("1")));
    assert_eq!(put.origin, Origin { user: "ann".into(), verb: "update".into(), message: "because".into() });
    assert!(put.time_ms > 1_700_000_000_000, "milliseconds since the Unix epoch: {}", put.time_ms);
    let delete = next(&mut stream).await.expect("record");
    assert_eq!((delete.key, delete.change), (Key::new("/a"), Change::Delete));
    assert!(delete.time_ms >= put.time_ms);
}

/// Writes five values and drops the history before the third; returns their versions.
async fn five_writes_compacted_before_the_third(log: &dyn Log) -> [Version; 5] {
    let mut versions = [Version(0); 5];
    for (i, version) in versions.iter_mut().enumerate() {
        *version = put(log, "/a", &(i + 1).to_string()).await;
    }
    log.compact(versions[2]).await.expect("compact");
    versions
}

fn assert_expired<T>(result: Result<T, LogError>, at: Version, expected_oldest: Version) {
    match result {
        Err(LogError::Expired { asked, oldest }) => assert_eq!((asked, oldest), (at, expected_oldest)),
        Err(other) => panic!("expected version {at} to be expired, got {other:?}"),
        Ok(_) => panic!("expected version {at} to be expired"),
    }
}

/// After a compaction, scans at older versions are refused and others are not.
pub async fn compaction_expires_older_scans(log: Arc<dyn Log>) {
    let [_, second, third, fourth, _] = five_writes_compacted_before_the_third(&*log).await;
    assert_expired(log.scan("/", Some(second)).await, second, third);
    assert_expired(log.scan("/", Some(Version(0))).await, Version(0), third);
    assert_eq!(scan(&*log, "/", Some(third)).await, pairs(&[("/a", "3")]));
    assert_eq!(scan(&*log, "/", Some(fourth)).await, pairs(&[("/a", "4")]));
}

/// After a compaction, follows from older versions are refused, at once or as the last item.
pub async fn compaction_expires_older_follows(log: Arc<dyn Log>) {
    let [_, second, third, fourth, _] = five_writes_compacted_before_the_third(&*log).await;
    match log.follow(second).await {
        Err(error) => assert_expired::<()>(Err(error), second, third),
        Ok(mut stream) => {
            assert_expired(next(&mut stream).await, second, third);
            assert!(stream.next().await.is_none(), "the error is the last item");
        }
    }
    let mut stream = log.follow(third).await.expect("follow");
    assert_eq!(next(&mut stream).await.expect("record").version, fourth);
}

/// A compaction keeps values that are still current, whatever their age.
pub async fn compaction_keeps_current_values(log: Arc<dyn Log>) {
    let old = put(&*log, "/old", "kept").await;
    put(&*log, "/gone", "x").await;
    delete(&*log, "/gone").await;
    let head = put(&*log, "/a", "1").await;
    log.compact(head).await.expect("compact");
    assert_eq!(get(&*log, "/old").await, Some(("kept".to_owned(), old)));
    assert_eq!(scan(&*log, "/", None).await, pairs(&[("/a", "1"), ("/old", "kept")]));
    log.append(write("/old", Expect::At(old), value("2"))).await.expect("its version is still known");
}

/// A compaction past the head counts as one up to the head, and writes go on.
pub async fn compaction_past_the_head_is_up_to_the_head(log: Arc<dyn Log>) {
    let head = put(&*log, "/a", "1").await;
    log.compact(Version(head.0 + 100)).await.expect("compact");
    assert_eq!(scan(&*log, "/", Some(head)).await, pairs(&[("/a", "1")]));
    let mut stream = log.follow(head).await.expect("follow");
    let later = put(&*log, "/a", "2").await;
    assert!(later > head);
    assert_eq!(next(&mut stream).await.expect("record").version, later);
}

/// Nobody else gets a lease until it expires or is released.
pub async fn held_lease_refuses_others(log: Arc<dyn Log>) {
    let lease = log.acquire("run/x", "one", LONG).await.expect("free");
    assert_eq!((lease.name.as_str(), lease.holder.as_str(), lease.ttl), ("run/x", "one", LONG));
    match log.acquire("run/x", "two", LONG).await {
        Err(LogError::Held { lease, holder }) => assert_eq!((lease.as_str(), holder.as_str()), ("run/x", "one")),
        other => panic!("expected the lease to be held, got {other:?}"),
    }
    log.acquire("run/y", "two", LONG).await.expect("another name is free");
}

/// The same holder gets its lease again with a greater token, and its earlier life is fenced off.
pub async fn same_holder_takes_its_lease_again_with_a_greater_token(log: Arc<dyn Log>) {
    let first = log.acquire("run/x", "one", LONG).await.expect("free");
    let second = log.acquire("run/x", "one", LONG).await.expect("its own");
    assert!(second.token > first.token);
    assert_fenced(log.renew(&first).await, &first);
    log.renew(&second).await.expect("held");
}

/// A lease that was not renewed for its length can be taken, with a greater token.
pub async fn expired_lease_can_be_taken(log: Arc<dyn Log>) {
    let start = Instant::now();
    let first = log.acquire("run/x", "one", SHORT).await.expect("free");
    let second = acquire_eventually(&*log, "run/x", "two").await;
    assert!(start.elapsed() >= SHORT, "taken after {:?}", start.elapsed());
    assert!(second.token > first.token);
}

/// A renewal extends a lease by its full length from now.
pub async fn renewal_keeps_a_lease(log: Arc<dyn Log>) {
    let is_kept = async |name: &str, ttl: Duration| {
        let mut renewed = Instant::now();
        let lease = log.acquire(name, "one", ttl).await.expect("free");
        let start = Instant::now();
        let outcome = loop {
            if start.elapsed() >= ttl + ttl / 4 {
                break log.acquire(name, "two", LONG).await;
            }
            tokio::time::sleep(ttl / 10).await;
            let begun = Instant::now();
            if let Err(error) = log.renew(&lease).await {
                break Err(error);
            }
            renewed = begun;
        };
        let is_kept = matches!(outcome, Err(LogError::Held { .. }));
        assert!(is_kept || renewed.elapsed() >= ttl, "the lease was lost in time: {outcome:?}");
        is_kept
    };
    // A busy machine may renew a short lease too late, which says nothing.
    if !is_kept("run/x", Duration::from_secs(2)).await {
        assert!(is_kept("run/y", Duration::from_secs(20)).await, "no renewal came in time");
    }
}

/// Renewing a lease that somebody else took is refused.
pub async fn renewing_a_lost_lease_is_fenced(log: Arc<dyn Log>) {
    let lost = log.acquire("run/x", "one", SHORT).await.expect("free");
    acquire_eventually(&*log, "run/x", "two").await;
    assert_fenced(log.renew(&lost).await, &lost);
}

/// A released lease can be taken at once.
pub async fn released_lease_can_be_taken(log: Arc<dyn Log>) {
    let first = log.acquire("run/x", "one", LONG).await.expect("free");
    log.release(&first).await.expect("release");
    let second = log.acquire("run/x", "two", LONG).await.expect("free again");
    assert!(second.token > first.token);
    assert_fenced(log.renew(&first).await, &first);
}

/// Releasing a lease that is no longer held counts as done and does not touch the new holder.
pub async fn releasing_a_lost_lease_changes_nothing(log: Arc<dyn Log>) {
    let first = log.acquire("run/x", "one", LONG).await.expect("free");
    log.release(&first).await.expect("release");
    log.release(&first).await.expect("a second release counts as done");
    let second = log.acquire("run/x", "two", LONG).await.expect("free again");
    log.release(&first).await.expect("a late release counts as done");
    log.renew(&second).await.expect("still held");
}

/// Tokens grow with every change of holder and are never used twice, also after a release.
pub async fn tokens_are_never_used_twice(log: Arc<dyn Log>) {
    let mut last = 0;
    for holder in ["one", "two", "one", "one", "three"] {
        let lease = log.acquire("run/x", holder, LONG).await.expect("free");
        assert!(lease.token > last, "{} after {last}", lease.token);
        last = lease.token;
        log.release(&lease).await.expect("release");
    }
}

/// A write under a lease that is held is appended.
pub async fn write_under_a_held_lease_is_appended(log: Arc<dyn Log>) {
    let lease = log.acquire("run/x", "one", LONG).await.expect("free");
    let mut fenced = write("/a", Expect::Absent, value("1"));
    fenced.fence = Some(lease.fence());
    let version = log.append(fenced).await.expect("the lease is held");
    assert_eq!(get(&*log, "/a").await, Some(("1".to_owned(), version)));
}

/// A write under a lease that was released, or taken by another, is refused and leaves nothing.
pub async fn write_under_a_lost_lease_is_fenced(log: Arc<dyn Log>) {
    let lost = log.acquire("run/x", "one", LONG).await.expect("free");
    log.release(&lost).await.expect("release");
    let mut fenced = write("/a", Expect::Any, value("1"));
    fenced.fence = Some(lost.fence());
    assert_fenced(log.append(fenced.clone()).await, &lost);
    log.acquire("run/x", "two", LONG).await.expect("free again");
    assert_fenced(log.append(fenced).await, &lost);
    assert_eq!(get(&*log, "/a").await, None);
}

/// A write under a lease that expired is refused, though nobody has taken it since.
pub async fn write_under_an_expired_lease_is_fenced(log: Arc<dyn Log>) {
    let start = Instant::now();
    let lease = log.acquire("run/x", "one", SHORT).await.expect("free");
    loop {
        let mut fenced = write("/a", Expect::Any, value("1"));
        fenced.fence = Some(lease.fence());
        match log.append(fenced).await {
            Ok(_) if start.elapsed() < PATIENCE => tokio::time::sleep(SHORT / 20).await,
            result => break assert_fenced(result, &lease),
        }
    }
    assert!(start.elapsed() >= SHORT, "fenced off after {:?}", start.elapsed());
}
