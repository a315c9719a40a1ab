//! What the contract does not say because only etcd has it: replicas, neighbours, limits, certificates.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use stoa_machinery::{
    log::{Change, Expect, Key, Log, LogError, Version},
    metrics::Families,
};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_storage::{EtcdLog, etcd::EtcdOptions};
use tempfile::TempDir;
use tokio::time::timeout;

use super::server::{Etcd, PATIENCE, free_port, open, put, tls};

#[tokio::test]
async fn replicas_see_each_others_writes_in_one_order() {
    let etcd = Etcd::start();
    let (one, two) = (etcd.open().await, etcd.open().await);
    let mut followers = [one.follow(Version(0)).await.unwrap(), two.follow(Version(0)).await.unwrap()];
    let mut versions = Vec::new();
    for n in 0..20 {
        let writer = if n % 2 == 0 { &one } else { &two };
        versions.push(writer.append(put("/a", Expect::Any, n.to_string())).await.unwrap());
    }
    for follower in &mut followers {
        for version in &versions {
            let record = timeout(PATIENCE, follower.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(record.version, *version);
        }
    }
    assert_eq!(one.head().await.unwrap(), *versions.last().unwrap());
    // What one of them read, the other has to respect.
    let stale = two.append(put("/a", Expect::At(versions[3]), "stale")).await;
    assert!(matches!(stale, Err(LogError::Conflict { found, .. }) if found == versions.last().copied()), "{stale:?}");
}

#[tokio::test]
async fn prefixes_are_kept_apart() {
    let etcd = Etcd::start();
    let ours = etcd.open().await;
    let theirs = open(EtcdOptions { prefix: "/sto".to_owned(), ..etcd.options() }).await;
    let mut followed = ours.follow(Version(0)).await.unwrap();
    theirs.append(put("/a", Expect::Absent, "theirs")).await.unwrap();
    theirs.acquire("x", "they", Duration::from_secs(60)).await.unwrap();
    assert_eq!(ours.head().await.unwrap(), Version(0));
    let mine = ours.append(put("/a", Expect::Absent, "ours")).await.unwrap();
    ours.acquire("x", "we", Duration::from_secs(60)).await.unwrap();
    assert_eq!(ours.scan("", None).await.unwrap().entries.len(), 1);
    assert_eq!(timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap().version, mine);
    assert!(followed.next().now_or_never().is_none());
}

#[tokio::test]
async fn idle_log_notices_compaction_by_others() {
    let etcd = Etcd::start();
    let ours = etcd.open().await;
    let theirs = open(EtcdOptions { prefix: "/others".to_owned(), ..etcd.options() }).await;
    let first = ours.append(put("/a", Expect::Any, "1")).await.unwrap();
    let last = ours.append(put("/a", Expect::Any, "2")).await.unwrap();
    for n in 0..10 {
        let theirs_at = theirs.append(put("/b", Expect::Any, n.to_string())).await.unwrap();
        theirs.compact(theirs_at).await.unwrap();
    }
    // Everything after `last` is there, since nothing is.
    assert_eq!(ours.scan("/", Some(last)).await.unwrap().entries[0].value, "2");
    let mut followed = ours.follow(last).await.unwrap();
    let next = ours.append(put("/a", Expect::Any, "3")).await.unwrap();
    assert_eq!(timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap().version, next);
    let expired = ours.scan("/", Some(first)).await;
    assert!(matches!(expired, Err(LogError::Expired { asked, .. }) if asked == first), "{expired:?}");
}

#[tokio::test]
async fn history_counts_only_own_records() {
    let etcd = Etcd::start();
    let ours = etcd.open().await;
    let theirs = open(EtcdOptions { prefix: "/others".to_owned(), ..etcd.options() }).await;
    let mut versions = Vec::new();
    for n in 0..6 {
        versions.push(ours.append(put("/a", Expect::Any, n.to_string())).await.unwrap());
        for _ in 0..7 {
            theirs.append(put("/b", Expect::Any, n.to_string())).await.unwrap();
        }
    }
    for (records, first) in [(1, 5), (3, 3), (5, 1), (6, 0), (100, 0)] {
        let since = ours.before_last(records).await.unwrap();
        let mut followed = ours.follow(since).await.unwrap();
        let record = timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(record.version, versions[first], "the last {records}");
    }
    ours.compact(versions[4]).await.unwrap();
    let last = ours.before_last(1).await.unwrap();
    assert!((versions[4]..versions[5]).contains(&last), "{last}");
    for records in [3, 100] {
        let since = ours.before_last(records).await.unwrap();
        let gone = ours.scan("/", Some(since)).await;
        assert!(matches!(gone, Err(LogError::Expired { oldest, .. }) if oldest == versions[4]), "{gone:?}");
    }
}

#[tokio::test]
async fn compacted_follower_receives_expired_error() {
    let mut etcd = Etcd::start();
    let log = etcd.open().await;
    let first = log.append(put("/a", Expect::Any, "1")).await.unwrap();
    let mut followed = log.follow(first).await.unwrap();
    // It has not looked yet when what it wants is gone.
    let mut last = first;
    for n in 0..5 {
        last = log.append(put("/a", Expect::Any, n.to_string())).await.unwrap();
    }
    log.compact(last).await.unwrap();
    etcd.members[0].kill();
    etcd.members[0].spawn();
    let told = timeout(PATIENCE, followed.next()).await.unwrap().unwrap();
    assert!(matches!(told, Err(LogError::Expired { asked, .. }) if asked == first), "{told:?}");
    assert!(followed.next().await.is_none());
}

#[tokio::test]
async fn append_rejects_write_above_size_limit() {
    let etcd = Etcd::start();
    let log = etcd.open().await;
    // Above what etcd takes, and above what its RPC layer does.
    for size in [1_600_000, 4_000_000] {
        let refused = log.append(put("/a", Expect::Any, vec![b'x'; size])).await;
        assert!(matches!(refused, Err(LogError::TooLarge { size: told, .. }) if told >= size), "{refused:?}");
    }
    assert_eq!(log.head().await.unwrap(), Version(0));
    log.append(put("/a", Expect::Absent, vec![b'x'; 1_400_000])).await.unwrap();
}

#[tokio::test]
async fn responses_that_come_in_pieces_are_put_together() {
    let etcd = Etcd::start();
    let log = etcd.open().await;
    let mut versions = Vec::new();
    for n in 0..8_u8 {
        versions.push(log.append(put(&format!("/{n}"), Expect::Any, vec![n; 1_000_000])).await.unwrap());
    }
    let mut followed = log.follow(Version(0)).await.unwrap();
    for (n, version) in (0..).zip(versions) {
        let record = timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap();
        assert_eq!((record.version, record.change), (version, Change::Put(vec![n; 1_000_000].into())));
    }
}

#[tokio::test]
async fn a_scan_of_many_pages_is_of_one_version() {
    let etcd = Etcd::start();
    let log = etcd.open().await;
    let key = |n: usize| format!("/k/{n:05}");
    let writes = (0..2_500).map(|n| {
        let log = log.clone();
        async move { log.append(put(&key(n), Expect::Absent, "1")).await.unwrap() }
    });
    let written: Vec<Version> = futures_util::stream::iter(writes).buffer_unordered(64).collect().await;
    let before = written.into_iter().max().unwrap();
    let changing = tokio::spawn({
        let log = log.clone();
        async move {
            for n in 0..2_500 {
                log.append(put(&key(2_499 - n), Expect::Any, "2")).await.unwrap();
            }
        }
    });
    while !changing.is_finished() {
        let snapshot = log.scan("/k/", None).await.unwrap();
        assert_eq!(snapshot.entries.len(), 2_500);
        assert!(snapshot.entries.is_sorted_by(|a, b| a.key < b.key));
        // Values change from the last to the first, so in a snapshot no later one is older.
        let values: Vec<_> = snapshot.entries.iter().map(|entry| entry.value.clone()).collect();
        assert!(values.is_sorted(), "version {}", snapshot.version);
        assert!(snapshot.entries.iter().all(|entry| entry.version <= snapshot.version));
    }
    changing.await.unwrap();
    let then = log.scan("/k/", Some(before)).await.unwrap();
    assert!(then.entries.iter().all(|entry| entry.value == "1"));
}

#[tokio::test]
async fn only_certificates_of_the_authority_get_in() {
    let (etcd, ca) = Etcd::with_tls();
    let log = etcd.open().await;
    log.append(put("/a", Expect::Absent, "1")).await.unwrap();
    let quickly = EtcdOptions { patience: Duration::from_millis(300), ..etcd.options() };
    let nobody = EtcdOptions { tls: tls(ca.certificate_pem(), None), ..quickly.clone() };
    assert!(matches!(EtcdLog::open(nobody).await, Err(LogError::Unavailable(_))));
    let folder = TempDir::new().unwrap();
    let stranger = CertificateAuthority::load_or_create(folder.path(), "ca", "stranger").unwrap();
    let client = stranger.issue(&CertificateRequest::client("stoa")).unwrap();
    let false_client = EtcdOptions { tls: tls(ca.certificate_pem(), Some(client)), ..quickly.clone() };
    assert!(matches!(EtcdLog::open(false_client).await, Err(LogError::Unavailable(_))));
    let false_server = tls(stranger.certificate_pem(), None);
    assert!(matches!(
        EtcdLog::open(EtcdOptions { tls: false_server.clone(), ..quickly }).await,
        Err(LogError::Unavailable(_))
    ));
    // Certificates are exchanged while it is open.
    let options = EtcdOptions { patience: Duration::from_secs(5), ..etcd.options() };
    let log = EtcdLog::open(options).await.unwrap();
    log.set_tls(&false_server).unwrap();
    assert!(log.read(&Key::new("/a")).await.is_err());
    log.set_tls(&etcd.tls).unwrap();
    assert!(log.read(&Key::new("/a")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_member_that_is_not_there_is_passed_over() {
    let etcd = Etcd::start();
    let mut options = etcd.options();
    options.servers.insert(0, format!("http://127.0.0.1:{}", free_port()));
    let log = open(options).await;
    log.append(put("/a", Expect::Absent, "1")).await.unwrap();
    let mut followed = log.follow(Version(0)).await.unwrap();
    timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn calls_are_counted_as_upstream_counts_them() {
    let etcd = Etcd::start();
    let metrics = Families::default();
    let log = EtcdLog::open(EtcdOptions { metrics: metrics.clone(), ..etcd.options() }).await.unwrap();
    let key = "/registry/config.stoa.dev/stacks/shop/web";
    let first = log.append(put(key, Expect::Absent, "1")).await.unwrap();
    log.append(put(key, Expect::At(first), "2")).await.unwrap();
    log.read(&Key::new(key)).await.unwrap();
    log.probe().await.unwrap();
    let told = || prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
    let text = told();
    let labels =
        |operation: &str| format!("{{group=\"config.stoa.dev\",operation=\"{operation}\",resource=\"stacks\"}} 1");
    for operation in ["create", "update", "get"] {
        for name in ["etcd_requests_total", "etcd_request_duration_seconds_count"] {
            let line = format!("{name}{}", labels(operation));
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
    let size = "apiserver_storage_size_bytes{storage_cluster_id=";
    assert!(text.contains(size), "{text}");
    let help = "etcd_requests_total [ALPHA] Etcd request counts for each operation and object type.";
    assert!(text.contains(&format!("# HELP {help}\n")), "{text}");
    metrics.reset();
    assert!(!told().contains("etcd_requests_total{") && told().contains(size), "{}", told());
}
