//! What does not decode and does not say where its file is.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers and all")]

use stoa_control_repo::{GitHistory, ProjectionState};
use stoa_machinery::log::{Change, Key, Version};

use crate::{
    past,
    support::{Bench, damage, elsewhere, put, remove, write},
};

/// The files that there are.
fn files(bench: &Bench) -> String {
    bench.git(&["ls-tree", "-r", "--name-only", "main"])
}

/// Things of which two do not decode, with comments in their files.
async fn damaged() -> Bench {
    let bench = Bench::start().await;
    bench.write(put("db", "size: 1", "anna")).await;
    bench.write(put("queue", "length: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", "# two are too many\nreplicas: 1\n");
    clone.commit_and_push("say why");
    bench.ingested_all(&clone).await;
    bench.write(damage("db")).await;
    bench.write(damage("web")).await;
    // A commit, so that a restart begins after what happened to the others.
    let last = bench.write(put("queue", "length: 2", "anna")).await;
    bench.projected(last).await;
    bench
}

/// Each thing has the file that it had; then one is deleted and one repaired, and changed after that.
async fn check(bench: &Bench, before: &str) {
    assert_eq!(files(bench), "things/db.yaml\nthings/queue.yaml\nthings/web.yaml");
    assert_eq!(bench.git(&["diff", before, "main"]), "");
    let deleted = bench.write(remove("db", "anna")).await;
    let repaired = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(repaired).await;
    assert_eq!(files(bench), "things/queue.yaml\nthings/web.yaml");
    assert_eq!(bench.git(&["diff", before, "main", "--", "things/web.yaml"]), "");
    let changed = bench.write(put("web", "replicas: 3", "anna")).await;
    bench.projected(changed).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "# two are too many\nreplicas: 3");
    let history = GitHistory::new(bench.repository(), |_| true, bench.record().await);
    let read = async |version| past::read(&history, version).await.unwrap();
    let then = [r#"{"size":1}"#, r#"{"length":2}"#, r#"{"replicas":1}"#];
    assert_eq!(read(Version(deleted.0 - 1)).await.unwrap(), then, "what they were is known all the time");
    assert_eq!(read(repaired).await.unwrap(), [r#"{"length":2}"#, r#"{"replicas":1}"#]);
    assert_eq!(read(changed).await.unwrap(), [r#"{"length":2}"#, r#"{"replicas":3}"#]);
}

#[tokio::test]
async fn undecodable_object_retains_file_until_repair() {
    let bench = damaged().await;
    let before = bench.git(&["rev-parse", "main"]);
    check(&bench, &before).await;
}

#[tokio::test]
async fn its_file_is_found_again_after_a_restart() {
    let bench = damaged().await;
    let before = bench.git(&["rev-parse", "main"]);
    let bench = bench.restart().await;
    let last = bench.write(elsewhere()).await;
    bench.projected(last).await;
    check(&bench, &before).await;
}

#[tokio::test]
async fn undecodable_object_retains_file_after_compaction() {
    let bench = damaged().await;
    let bench = bench.stop().await;
    let before = bench.git(&["rev-parse", "main"]);
    let last = bench.write(elsewhere()).await;
    bench.compact(last).await;
    let bench = bench.run();
    bench.projected(last).await;
    check(&bench, &before).await;
}

#[tokio::test]
async fn projection_leaves_record_of_later_version_unchanged() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let bench = bench.stop().await;
    let key = Key::new(ProjectionState::PREFIX);
    let there = bench.log().read(&key).await.unwrap().unwrap().value;
    let mut record: serde_json::Value = serde_json::from_slice(&there).unwrap();
    record["schemaVersion"] = 2.into();
    record["what is not known yet"] = "is kept".into();
    let later = serde_json::to_vec(&record).unwrap();
    bench.write(write(ProjectionState::PREFIX, Change::Put(later.clone().into()), "", "")).await;
    bench.write(put("web", "replicas: 2", "anna")).await;

    let bench = bench.run();
    let told = "the record of what is in Git has schemaVersion 2, and 1 is the newest known here";
    bench.wait(|status| status.restarts >= 2 && status.error.as_ref().is_some_and(|error| error.contains(told))).await;
    assert_eq!(bench.log().read(&key).await.unwrap().unwrap().value, later);
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 1");
    // What wrote it goes on where it was.
    let bench = bench.stop().await;
    bench.write(write(ProjectionState::PREFIX, Change::Put(there), "", "")).await;
    let bench = bench.run();
    let last = bench.write(put("web", "replicas: 3", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 3");
}
