//! Tests of objects whose applied version is not served any more.

use stoa_runtime::conformance::delete;
use stoa_runtime::{Deleted, Live, ReadRequest};

use super::*;

/// One that was applied in `v1`, which is not served any more.
async fn outdated() -> Deployment {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.serve_in("v2");
    deployment
}

#[tokio::test(start_paused = true)]
async fn object_of_removed_version_is_deleted() {
    let deployment = outdated().await;
    assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Delete)]);
    assert_eq!((deployment.values("web"), deployment.state()), ([None, None], State::default()));
}

#[tokio::test(start_paused = true)]
async fn lost_call_in_removed_version_is_found() {
    let deployment = Deployment::new();
    deployment.crash(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.serve_in("v2");
    assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Delete)]);
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn object_in_served_version_stays() {
    let deployment = outdated().await;
    let uid = deployment.uid("web");
    let mut later = in_cluster("", "web", "a", false);
    later.id = "example.com/v2:Widget:shop:web".into();
    later.attributes["apiVersion"] = "example.com/v2".into();
    let actions = deployment.brings(&spec(vec![later])).await;
    assert!(actions.contains(&("web".to_owned(), Action::Forget)), "{actions:?}");
    assert_eq!(deployment.uid("web"), uid);
}

#[tokio::test(start_paused = true)]
async fn version_may_be_removed_during_run() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    let (runtime, state) = (deployment.runtime(), deployment.state());
    let prior = &state.resources[0];
    let read = runtime.read(&[ReadRequest { desired: None, prior: Some(prior) }]).await.unwrap().remove(0);
    assert!(matches!(read, Ok(Live::Present(_))));
    deployment.main.serve_in("v2");
    assert_eq!(runtime.delete(prior).await.unwrap(), Deleted::Gone);
    assert_eq!(deployment.values("web"), [None, None]);

    // It is gone when nothing holds it any more, and not with its version.
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.begin_to_remove("shop", "web");
    let (runtime, state) = (deployment.runtime(), deployment.state());
    let began = tokio::time::Instant::now();
    let held = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        deployment.main.serve_in("v2");
        deployment.main.end_watches();
        tokio::time::sleep(Duration::from_secs(60)).await;
        deployment.main.remove("shop", "web");
    };
    let (deleted, ()) = tokio::join!(delete(&*runtime, &state.resources[0]), held);
    assert_eq!(deleted.unwrap(), Deleted::Gone);
    assert!(began.elapsed() >= Duration::from_secs(65), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn inconsistent_discovery_deletes_no_record() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    let (runtime, state) = (deployment.runtime(), deployment.state());
    deployment.main.refuse("/v1/namespaces", 404);
    let error = runtime.delete(&state.resources[0]).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    // Once it says better, the object is found where it is.
    deployment.main.serve_in("v2");
    assert_eq!(runtime.delete(&state.resources[0]).await.unwrap(), Deleted::Gone);
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn namesake_in_other_version_is_not_deleted() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.begin_to_remove("shop", "web");
    let (runtime, state) = (deployment.runtime(), deployment.state());
    let taken = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        deployment.main.serve_in("v2");
        deployment.main.end_watches();
        deployment.main.remove("shop", "web");
        deployment.main.make("shop", "web", json!({}));
    };
    let (deleted, ()) = tokio::join!(delete(&*runtime, &state.resources[0]), taken);
    assert_eq!(deleted.unwrap(), Deleted::Gone);
    assert!(deployment.main.object("shop", "web").is_some(), "it stays");
}
