//! Tests of clusters that are unavailable for long.

use stoa_runtime::RuntimeError;

use super::*;

#[tokio::test(start_paused = true)]
async fn suspended_cluster_error_is_retryable() {
    let deployment = Deployment::new();
    let web = in_cluster("east", "web", "a", false);
    deployment.brings(&spec(vec![web.clone()])).await;
    deployment.east.be_away(true);
    let (runtime, record) = (deployment.runtime(), deployment.state().resources[0].clone());
    let look = async || {
        let found = runtime.inspect(&[&record]).await.unwrap().remove(0).unwrap_err();
        let health = runtime.wait_healthy(&web, &|_, _| {}).await.unwrap_err();
        assert!(found.is_retryable() && health.is_retryable(), "{found:?}, {health:?}");
        [found, health].map(|error| matches!(error, RuntimeError::Suspended { .. }))
    };
    assert_eq!(look().await, [false, false]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    // One asks now and then, and nobody else.
    assert_eq!(look().await, [false, true]);
    assert_eq!(look().await, [true, true]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_resource_is_not_left_open() {
    let deployment = Deployment::new();
    let wanted = spec(vec![in_cluster("east", "web", "a", false), in_cluster("main", "api", "a", false)]);
    deployment.east.be_away(true);
    let (_, mut results) = deployment.apply(&wanted).await;
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let [api, web] = &results[..] else { panic!("{results:?}") };
    assert_eq!((api.2, web.2), (ResourceOutcome::Done, ResourceOutcome::Failed));
    assert_eq!(deployment.state().open, []);
    // Others are not held up by it.
    let mut others = wanted.clone();
    others.resources.remove(0);
    deployment.brings(&others).await;
    deployment.east.be_away(false);
    deployment.brings(&wanted).await;
    // Nor is it open that something is to go.
    deployment.east.be_away(true);
    let (_, results) = deployment.apply(&others).await;
    assert!(results.iter().any(|(id, _, outcome)| id == "web" && *outcome == ResourceOutcome::Failed), "{results:?}");
    assert_eq!(deployment.state().open, []);
    deployment.east.be_away(false);
    deployment.brings(&others).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn health_check_survives_long_outage() {
    let deployment = Deployment::new();
    let mut web = in_cluster("east", "web", "a", false);
    let policy = json!({"cel": {"current": "status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"}});
    web.extensions.insert("healthPolicy".to_owned(), policy);
    let run = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        deployment.east.set_ready("shop", "web", "False");
        tokio::time::sleep(Duration::from_secs(1)).await;
        deployment.east.be_away(true);
        deployment.east.end_watches();
        tokio::time::sleep(Duration::from_secs(150)).await;
        deployment.east.be_away(false);
        deployment.east.set_ready("shop", "web", "True");
    };
    let wanted = spec(vec![web]);
    let ((outcome, _), ()) = tokio::join!(deployment.apply(&wanted), run);
    assert!(outcome.succeeded, "{outcome:?}");

    // Where it stays away, that is what is told.
    let run = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        deployment.east.be_away(true);
        deployment.east.end_watches();
    };
    deployment.east.set_ready("shop", "web", "False");
    let again = spec(vec![Resource { attributes: changed(&wanted.resources[0]), ..wanted.resources[0].clone() }]);
    let ((outcome, _), ()) = tokio::join!(deployment.apply(&again), run);
    let told = &outcome.problems[0].message;
    assert!(told.starts_with("it was applied but did not become healthy in time: cluster east"), "{told}");
}

fn changed(resource: &Resource) -> serde_json::Map<String, Value> {
    let mut attributes = resource.attributes.clone();
    attributes.insert("spec".to_owned(), json!({"value": "changed"}));
    attributes
}
