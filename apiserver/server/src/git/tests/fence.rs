//! Whoever leads no more applies nothing that was pushed, however long it was suspended.

use stoa_control_repo::{CommitInfo, Ingest, IngestError, PushedFile};
use stoa_machinery::auth::AllowAll;

use super::*;
use crate::git::ingest::ControlIngest;

#[tokio::test]
async fn lost_lease_prevents_every_file_ingestion() {
    let fixture = Fixture::new().await;
    let log = fixture.registry.log();
    let lease = log.acquire("controllers", "one", Duration::from_secs(10)).await.expect("free");
    let ingest =
        ControlIngest::new(&fixture.registry, Arc::new(AllowAll), fixture.recorder.clone(), Some(lease.fence()))
            .expect("all kinds are served");
    let commit = CommitInfo {
        id: "1".repeat(40),
        author: "Carla".to_owned(),
        email: "carla@example.com".to_owned(),
        subject: "dev".to_owned(),
        time: 0,
    };
    let pushed = yaml(&workspace("dev"));
    let file =
        PushedFile { path: WORKSPACE, content: pushed.as_bytes(), before: None, commit: &commit, is_first: false };
    ingest.apply(file).await.expect("applied");
    let newer = fixture
        .update("bob", "platform.stoa.dev", "workspaces", "", "dev", |w| w.0["spec"]["description"] = "newer".into())
        .await;

    log.release(&lease).await.expect("released");
    let mut older = workspace("dev");
    older["spec"]["description"] = "older".into();
    let older = yaml(&older);
    let file =
        PushedFile { path: WORKSPACE, content: older.as_bytes(), before: None, commit: &commit, is_first: false };
    let refused = ingest.apply(file).await.expect_err("the lease is lost");
    assert!(matches!(refused, IngestError::Unavailable(_)), "{refused:?}");
    let refused = ingest.remove(WORKSPACE, &commit).await.expect_err("the lease is lost");
    assert!(matches!(refused, IngestError::Unavailable(_)), "{refused:?}");
    let refused = ingest.invalid(WORKSPACE, "it is wrong", &commit).await.expect_err("the lease is lost");
    assert!(matches!(refused, IngestError::Unavailable(_)), "{refused:?}");
    let there = fixture.registry.store("platform.stoa.dev", "v1alpha1", "workspaces").expect("served");
    let there = there.get("", "dev", None).await.expect("it is there");
    assert_eq!(there.object().0["spec"]["description"], newer.object().0["spec"]["description"]);
    let conditions = ["status", "conditions"];
    assert_eq!(there.object().get_path(&conditions), newer.object().get_path(&conditions));
}
