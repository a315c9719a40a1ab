//! A database that has reached its quota, as etcd 3.6.8 has it: no put and no lease until its alarm is disarmed. Reads,
//! renewals of leases, deletes and compactions go on.

use std::time::{Duration, Instant};

use stoa_machinery::log::{Expect, Key, Lease, Log, LogError, Version};
use stoa_storage::{EtcdLog, etcd::EtcdOptions};

use super::server::{Etcd, PATIENCE, put};

const QUOTA: u64 = 16 << 20;
const TTL: Duration = Duration::from_secs(60);

/// Writes one key again and again until etcd refuses to; returns the version of the last that it took.
async fn fill(log: &EtcdLog) -> Version {
    let mut last = Version::default();
    for _ in 0..100 {
        match log.append(put("/a", Expect::Any, vec![b' '; 1 << 20])).await {
            Ok(version) => last = version,
            Err(error) => {
                assert!(cause(&error).contains("database space exceeded"), "{error:?}");
                return last;
            }
        }
    }
    panic!("etcd took more than its quota");
}

fn cause(error: &LogError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

async fn open(etcd: &Etcd) -> EtcdLog {
    let options = EtcdOptions { patience: PATIENCE, ..etcd.options() };
    EtcdLog::open(options).await.unwrap()
}

fn assert_refused(taken: Result<Lease, LogError>) {
    assert!(cause(&taken.unwrap_err()).contains("database space exceeded"));
}

/// A number in an answer of etcd's gateway, which writes those of 64 bits in quotation marks.
fn number(answer: &str, field: &str) -> u64 {
    let (_, after) = answer.split_once(&format!("\"{field}\":\"")).unwrap_or_else(|| panic!("no {field} in {answer}"));
    after.split('"').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_etcd_opens_and_compacts_without_lease() {
    let mut etcd = Etcd::with_quota(QUOTA);
    let log = open(&etcd).await;
    assert!(!log.is_full().await.unwrap());
    let first = log.append(put("/b", Expect::Absent, "b")).await.unwrap();
    let last = fill(&log).await;
    assert!(log.is_full().await.unwrap());
    drop(log);
    etcd.members[0].kill();
    etcd.members[0].spawn();
    etcd.members[0].wait();

    let log = open(&etcd).await;
    assert_eq!(log.head().await.unwrap(), last);
    assert_eq!(log.read(&Key::new("/b")).await.unwrap().unwrap().version, first);
    assert!(log.is_full().await.unwrap());
    let unwell = cause(&log.probe().await.unwrap_err());
    assert!(unwell.contains("NOSPACE") && unwell.contains("etcdctl alarm disarm"), "{unwell}");
    // No replica can lead.
    assert_refused(log.acquire("controllers", "one", TTL).await);
    log.compact(last).await.unwrap();
    let expired = log.scan("/", Some(first)).await;
    assert!(matches!(expired, Err(LogError::Expired { .. })), "{expired:?}");

    // That alone frees no page of the file, so that operators go on.
    assert_refused(log.acquire("controllers", "one", TTL).await);
    let member = &etcd.members[0];
    let began = Instant::now();
    // Compaction continues after its answer.
    while number(&member.post("/v3/maintenance/status", "{}"), "dbSize") > QUOTA / 2 {
        assert!(began.elapsed() < PATIENCE, "its file does not get smaller");
        member.post("/v3/maintenance/defragment", "{}");
    }
    let alarms = member.post("/v3/maintenance/alarm", r#"{"action":"GET"}"#);
    let id = number(&alarms, "memberID");
    member.post("/v3/maintenance/alarm", &format!(r#"{{"action":"DEACTIVATE","memberID":"{id}","alarm":"NOSPACE"}}"#));
    assert!(!log.is_full().await.unwrap());
    log.probe().await.unwrap();
    log.acquire("controllers", "one", TTL).await.unwrap();
    log.append(put("/a", Expect::At(last), "small")).await.unwrap();
}

#[tokio::test]
async fn full_etcd_renews_the_lease_of_the_leader() {
    let etcd = Etcd::with_quota(QUOTA);
    let log = open(&etcd).await;
    let lease = log.acquire("controllers", "one", TTL).await.unwrap();
    fill(&log).await;
    log.renew(&lease).await.unwrap();
    assert_refused(log.acquire("another", "one", TTL).await);
    log.release(&lease).await.unwrap();
}
