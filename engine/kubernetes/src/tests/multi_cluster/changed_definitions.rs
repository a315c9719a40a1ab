//! Tests of objects whose definition has just changed, which a server may not have observed yet.

use stoa_runtime::{ApplyRequest, RuntimeError};
use tokio::time::Instant;

use super::*;
use crate::target::Gvk;

fn widgets() -> Gvk {
    Gvk { group: "example.com".to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() }
}

/// Applies a widget with a value to a cluster, just after its definition changed in one of the clusters, while a server
/// prunes the value this often. Returns how often it was applied, how long that took, and the final object.
async fn apply(place: Option<&str>, defined_in: usize, times: usize) -> (usize, Duration, Option<Value>) {
    let server = Server::default();
    if let Some(place) = place {
        server.be_at(place);
    }
    let runtime = runtime_of(&[("main", &server), ("east", &server)]);
    runtime.cluster(defined_in).note_defined(widgets());
    server.prune("spec", times);
    let (desired, began) = (in_cluster("main", "web", "a", false), Instant::now());
    let applied = runtime.apply(&ApplyRequest::new(&desired, None)).await.unwrap();
    assert_eq!(applied.live.get("spec"), server.object("shop", "web").unwrap().get("spec"), "it is told as it is");
    let calls = server.asked().iter().filter(|asked| asked.starts_with("APPLY")).count();
    (calls, began.elapsed(), applied.live.get("spec").cloned())
}

#[tokio::test(start_paused = true)]
async fn field_pruned_by_outdated_server_is_reapplied() {
    let (calls, took, spec) = apply(None, 0, 3).await;
    assert_eq!((calls, spec), (4, Some(json!({"value": "a"}))));
    assert!(took < Duration::from_secs(1), "{took:?}");
    // By then it has heard of it: what it says holds, and others may want it so.
    let (calls, took, spec) = apply(None, 0, usize::MAX).await;
    assert!(calls > 4 && spec.is_none(), "{calls} {spec:?}");
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn cluster_aliases_share_definition_changes() {
    assert_eq!(apply(Some("here"), 1, 3).await.0, 4);
    // What is changed elsewhere says nothing of what is here.
    let (calls, took, spec) = apply(None, 1, 3).await;
    assert_eq!((calls, took, spec), (1, Duration::ZERO, None));
}

#[tokio::test(start_paused = true)]
async fn partial_apply_is_not_reported_as_undone() {
    let server = Server::default();
    let runtime = runtime_of(&[("main", &server)]);
    runtime.cluster(0).note_defined(widgets());
    server.prune("spec", usize::MAX);
    let refused = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.refuse("APPLY", 422);
    };
    let desired = in_cluster("", "web", "a", false);
    let request = ApplyRequest::new(&desired, None);
    let (error, ()) = tokio::join!(runtime.apply(&request), refused);
    let error = error.unwrap_err();
    assert!(
        error.is_unanswered() && error.to_string().contains("only some fields were applied before this error: no"),
        "{error:?}"
    );
    assert!(server.object("shop", "web").is_some());
    // Where nothing was taken, a refusal is one.
    let desired = in_cluster("", "other", "a", false);
    let error = runtime.apply(&ApplyRequest::new(&desired, None)).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Rejected { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn partially_served_kind_is_awaited() {
    let server = Server::default();
    let runtime = runtime_of(&[("main", &server)]);
    server.refuse("/namespaces/", 404);
    let (desired, began) = (in_cluster("", "web", "a", false), Instant::now());
    let request = ApplyRequest::new(&desired, None);
    let refused = runtime.apply(&request).await.unwrap_err();
    assert!(matches!(refused, RuntimeError::Rejected { .. }), "{refused:?}");
    assert_eq!(began.elapsed(), Duration::ZERO, "it is long defined");
    runtime.cluster(0).note_defined(widgets());
    let heard = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.refuse_nothing();
    };
    let (applied, ()) = tokio::join!(runtime.apply(&request), heard);
    assert_eq!(applied.unwrap().live["spec"], json!({"value": "a"}));
}

#[tokio::test(start_paused = true)]
async fn health_of_partially_served_kind_is_awaited() {
    let server = Server::default();
    let runtime = runtime_of(&[("main", &server)]);
    server.set_ready("shop", "web", "True");
    server.refuse("/namespaces/", 404);
    let desired = in_cluster("", "web", "a", false);
    let error = runtime.wait_healthy(&desired, &|_, _| {}).await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    runtime.cluster(0).note_defined(widgets());
    let error = runtime.wait_healthy(&desired, &|_, _| {}).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    server.refuse_nothing();
    assert_eq!(runtime.wait_healthy(&desired, &|_, _| {}).await.unwrap(), Health::Current);
}
