//! What was authored at every version, as replicas read it.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers and all")]

use std::time::Duration;

use futures_util::future::join_all;
use stoa_control_repo::{GitHistory, ProjectionState, RemoteOptions};
use stoa_git::testing::Behaviour;
use stoa_machinery::{
    log::{Key, Version},
    registry::{History as _, HistoryError, Past},
};
use tempfile::TempDir;

use crate::{
    all_tests,
    control_remote::{Remote, away},
    support::{Bench, elsewhere, packs, put, remove},
};

/// A replica that never led, and has a folder of its own.
struct Replica {
    folder: TempDir,
    record: ProjectionState,
    history: GitHistory,
}

impl Replica {
    async fn new(bench: &Bench, remote: RemoteOptions) -> Self {
        let (folder, record) = (TempDir::new().unwrap(), bench.record().await);
        let history = GitHistory::new(folder.path().join("control.git"), |_| true, record.clone());
        let history = history.with_remote(Some(remote)).repacked_every(Duration::from_millis(20));
        Self { folder, record, history }
    }

    async fn read(&self, version: Version) -> Result<Option<Vec<String>>, HistoryError> {
        read(&self.history, version).await
    }

    #[track_caller]
    fn check(found: Result<Option<Vec<String>>, HistoryError>, expected: &str) {
        assert_eq!(found.unwrap().unwrap(), [expected]);
    }

    fn packs(&self) -> usize {
        packs(&self.folder.path().join("control.git"))
    }
}

pub(crate) fn past(version: Version, wanted: usize) -> Past {
    Past { version, prefix: "/registry/things/".to_owned(), after: None, wanted }
}

pub(crate) async fn read(history: &GitHistory, version: Version) -> Result<Option<Vec<String>>, HistoryError> {
    let entries = history.read(past(version, 10)).await?;
    let text = |entry: stoa_machinery::log::Entry| String::from_utf8(entry.value.to_vec()).unwrap();
    Ok(entries.map(|entries| entries.into_iter().map(text).collect()))
}

#[tokio::test]
async fn non_leader_replica_reads_history_from_remote() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    let second = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(second).await;
    // By a server of its own: what the projection asked last may still be on its way when it stops.
    let server = remote.another_server().await;
    let replica = Replica::new(&bench, remote.options_at(&server)).await;
    Replica::check(replica.read(first).await, r#"{"replicas":1}"#);
    Replica::check(replica.read(second).await, r#"{"replicas":2}"#);
    // What is here already takes no question.
    let bench = bench.stop().await;
    server.behave(Behaviour::Away);
    let before = server.requests();
    Replica::check(replica.read(first).await, r#"{"replicas":1}"#);
    assert_eq!(server.requests(), before);
    // What is not is asked for, and known by the log to be there or not.
    let later = bench.write(put("web", "replicas: 3", "anna")).await;
    assert!(matches!(replica.read(later).await, Err(HistoryError::Failed(_))));
    server.behave(Behaviour::Normal);
    assert!(matches!(replica.read(later).await, Err(HistoryError::Behind { upto }) if upto >= second));
    let bench = bench.run();
    bench.projected(later).await;
    bench.update(&replica.record).await;
    // The record has moved on from what is here, which is as good as before.
    let bench = bench.stop().await;
    server.behave(Behaviour::Away);
    Replica::check(replica.read(first).await, r#"{"replicas":1}"#);
    Replica::check(replica.read(second).await, r#"{"replicas":2}"#);
    assert!(matches!(replica.read(later).await, Err(HistoryError::Failed(_))));
    // Whoever waits for the same shares what one of them brings.
    server.behave(Behaviour::Normal);
    let before = server.requests();
    for found in join_all((0..20).map(|_| replica.read(later))).await {
        Replica::check(found, r#"{"replicas":3}"#);
    }
    assert!(server.requests() - before < 10);
    drop(bench);
}

#[tokio::test]
async fn a_replica_that_brings_much_has_few_packs() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    bench.wait(|status| status.commit.is_some()).await;
    let replica = Replica::new(&bench, remote.options()).await;
    for n in 0..if all_tests() { 50 } else { 20 } {
        let version = bench.write(put("web", &format!("n: {n}"), "anna")).await;
        bench.projected(version).await;
        bench.update(&replica.record).await;
        Replica::check(replica.read(version).await, &format!(r#"{{"n":{n}}}"#));
    }
    bench.until("packs are merged", |_| replica.packs() <= 12).await;
}

#[tokio::test]
async fn new_log_reads_no_foreign_history() {
    let remote = Remote::start().await;
    for options in [None, Some(remote.options())] {
        let bench = Bench::new(options.clone()).run();
        bench.wait(|status| status.commit.is_some()).await;
        let mut last = Version(0);
        for n in 0..30 {
            last = bench.write(put("web", &format!("n: {n}"), "anna")).await;
        }
        bench.projected(last).await;
        // The log was lost, the folder was not.
        let bench = bench.stop().await.with_new_log().run();
        bench.ingested(&bench.git(&["rev-parse", "main"])).await;
        for _ in 0..40 {
            bench.write(elsewhere()).await;
        }
        let last = bench.write(put("web", "n: 99", "anna")).await;
        bench.projected(last).await;
        let history = GitHistory::new(bench.repository(), |_| true, bench.record().await).with_remote(options);
        let mut all = Vec::new();
        for version in 1..=last.0 {
            all.extend(read(&history, Version(version)).await.unwrap().unwrap_or_default());
        }
        all.dedup();
        assert_eq!(all, [r#"{"n":29}"#, r#"{"n":99}"#]);
    }
}

#[tokio::test]
async fn history_lists_full_folders_in_key_order() {
    let bench = Bench::start().await;
    let names: Vec<String> = (0..1_100).map(|n| format!("t{n:04}")).collect();
    for some in names.chunks(100) {
        join_all(some.iter().map(|name| bench.write(put(name, "a: 1", "anna")))).await;
    }
    let all = bench.write(put("t0500", "a: 2", "anna")).await;
    bench.projected(all).await;
    let history = GitHistory::new(bench.repository(), |_| true, bench.record().await);
    let keys = |names: &[String]| names.iter().map(|name| format!("/registry/things/{name}")).collect::<Vec<_>>();
    let read = async |past: Past| {
        let entries = history.read(past).await.unwrap().unwrap();
        entries.iter().map(|entry| entry.key.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(read(past(all, 2_000)).await, keys(&names));
    assert_eq!(read(past(all, 7)).await, keys(&names[..7]));
    let next = Past { after: Some(Key::new("/registry/things/t1041")), ..past(all, 9) };
    assert_eq!(read(next).await, keys(&names[1_042..1_051]));
    let one = Past { prefix: "/registry/things/t1099".to_owned(), ..past(all, 9) };
    assert_eq!(read(one).await, keys(&names[1_099..]));
    // It goes on from what is there.
    let last = bench.write(remove("t1098", "anna")).await;
    bench.projected(last).await;
    assert_eq!(read(past(last, 2_000)).await.len(), 1_099);
}

#[tokio::test]
async fn log_serves_history_during_remote_outage() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    remote.server.behave(Behaviour::Away);
    away(&bench, "RemoteUnavailable").await;
    let second = bench.write(put("web", "replicas: 2", "anna")).await;
    let third = bench.write(put("db", "size: 1", "anna")).await;
    let last = bench.write(remove("web", "anna")).await;
    // The replica that leads, and one that never did.
    let here = GitHistory::new(bench.repository(), |_| true, bench.record().await).with_log(bench.log());
    let server = remote.another_server().await;
    let replica = Replica::new(&bench, remote.options_at(&server)).await;
    let there = replica.history.clone().with_log(bench.log());
    let bench = bench.stop().await;
    server.behave(Behaviour::Away);
    let before = server.requests();
    for history in [&here, &there] {
        let read = async |version| read(history, version).await.unwrap().unwrap();
        assert_eq!(read(second).await, ["replicas: 2\0"]);
        assert_eq!(read(third).await, ["size: 1\0", "replicas: 2\0"]);
        assert_eq!(read(last).await, ["size: 1\0"]);
        let after = Past { after: Some(Key::new("/registry/things/db")), ..past(third, 1) };
        let keys: Vec<_> = history.read(after).await.unwrap().unwrap().into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, [Key::new("/registry/things/web")]);
    }
    assert_eq!(server.requests(), before, "nobody asks the remote for what is in the log");
    // Once it is in Git it is read there, and the log may let it go. It shows what people decided then.
    for server in [&remote.server, &server] {
        server.behave(Behaviour::Normal);
    }
    let bench = bench.run();
    bench.projected(last).await;
    bench.compact(last).await;
    bench.update(&replica.record).await;
    Replica::check(read(&there, second).await, r#"{"replicas":2}"#);
    assert_eq!(read(&there, last).await.unwrap().unwrap(), [r#"{"size":1}"#]);
    // What is neither here nor there is told of as before.
    remote.server.behave(Behaviour::Away);
    server.behave(Behaviour::Away);
    let lost = bench.write(put("db", "size: 2", "anna")).await;
    let head = bench.write(elsewhere()).await;
    bench.compact(head).await;
    assert!(matches!(read(&there, lost).await, Err(HistoryError::Failed(_))));
}
