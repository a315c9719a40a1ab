//! What was authored at every version, as replicas read it.

use stoa_git::testing::Behaviour;
use stoa_machinery::{
    log::Version,
    registry::{History as _, HistoryError, Past},
};
use stoa_storage::git::GitHistory;
use tempfile::TempDir;

use crate::{
    control_remote::Remote,
    support::{Bench, put},
};

#[tokio::test]
async fn a_replica_that_never_led_reads_the_past_from_the_remote() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    let second = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(second).await;
    let elsewhere = TempDir::new().unwrap();
    let record = bench.record().await;
    let copy = elsewhere.path().join("control.git");
    let history = GitHistory::new(copy.clone(), |_| true, record.clone()).with_remote(Some(remote.options()));
    let past = |version: Version| Past { version, prefix: "/registry/things/".to_owned(), after: None, max: 10 };
    let read = async |version: Version| {
        let entries = history.read(past(version)).await.unwrap().unwrap();
        entries.iter().map(|entry| String::from_utf8(entry.value.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(read(first).await, [r#"{"replicas":1}"#]);
    assert_eq!(read(second).await, [r#"{"replicas":2}"#]);
    // What is here already takes no question, and nobody else asks any.
    let bench = bench.stop().await;
    remote.server.behave(Behaviour::Away);
    let before = remote.server.requests();
    assert_eq!(read(first).await, [r#"{"replicas":1}"#]);
    assert_eq!(remote.server.requests(), before);
    // What is not is asked for, and known by the log to be there or not.
    let later = bench.write(put("web", "replicas: 3", "anna")).await;
    assert!(matches!(history.read(past(later)).await, Err(HistoryError::Failed(_))));
    remote.server.behave(Behaviour::Normal);
    assert!(matches!(history.read(past(later)).await, Err(HistoryError::Behind { upto }) if upto >= second));
    let bench = bench.run();
    bench.projected(later).await;
    bench.update(&record).await;
    assert_eq!(read(later).await, [r#"{"replicas":3}"#]);
    assert_eq!(read(first).await, [r#"{"replicas":1}"#]);
}
