//! Pushes of a few objects that stand for more files than anybody can look at.

use crate::{
    control_remote::{Remote, away},
    support::{Bench, put},
};

/// So many levels are a hundred million files.
const LEVELS: u32 = 8;

#[tokio::test]
async fn projection_accepts_bomb_outside_object_folders() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "a: 1", "anna")).await;
    bench.projected(last).await;
    let bomb = bench.clone_repository().push_bomb("docs", LEVELS);
    bench.ingested(&bomb).await;
    let last = bench.write(put("web", "a: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["rev-parse", "main~1"]), bomb);
    assert!(bench.applied().await.is_empty());
    // The history of who changed what goes through it.
    let bench = bench.restart().await;
    let last = bench.write(put("db", "a: 1", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.status().refused, 0);
}

#[tokio::test]
async fn projection_reverts_bomb_and_retains_its_commit() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "a: 1", "anna")).await;
    bench.projected(last).await;
    let before = bench.git(&["rev-parse", "main"]);
    let bomb = bench.clone_repository().push_bomb("things", LEVELS);
    bench.refused_histories(1).await;
    assert_eq!(bench.git(&["rev-parse", "main"]), before);
    assert_eq!(bench.git(&["rev-parse", &format!("refs/stoa/refused/{bomb}")]), bomb);
    let last = bench.write(put("web", "a: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["rev-parse", "main~1"]), before);
    assert!(bench.applied().await.is_empty());
}

#[tokio::test]
async fn projection_adopts_remote_after_bomb_removal() {
    let remote = Remote::start().await;
    let clone = remote.clone_repository();
    clone.write("things/web.yaml", "a: 1\n");
    clone.commit_and_push("begin");
    let begun = remote.git(&["rev-parse", "main"]);
    let bomb = clone.push_bomb("things", LEVELS);
    let bench = Bench::new(Some(remote.options())).run();
    let error = away(&bench, "RemoteTooLarge").await;
    assert!(error.contains(&bomb), "{error}");
    remote.git(&["update-ref", "refs/heads/main", &begun]);
    bench.ingested(&begun).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("a: 1"));
    let last = bench.write(put("web", "a: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(remote.git(&["rev-parse", "main~1"]), begun);
}

#[tokio::test]
async fn projection_rejects_remote_bomb_until_revert() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let last = bench.write(put("web", "a: 1", "anna")).await;
    bench.projected(last).await;
    let agreed = remote.git(&["rev-parse", "main"]);
    let bomb = remote.clone_repository().push_bomb("things", LEVELS);
    let error = away(&bench, "RemoteTooLarge").await;
    assert!(error.contains(&agreed) && error.contains(&bomb), "{error}");
    remote.git(&["update-ref", "refs/heads/main", &agreed]);
    let last = bench.write(put("web", "a: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(remote.git(&["rev-parse", "main~1"]), agreed);
    assert!(bench.applied().await.is_empty());
}
