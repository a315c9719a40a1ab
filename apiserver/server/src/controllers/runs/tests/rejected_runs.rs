//! What a stack says of its deployment once a run has begun and is refused for what it asks for.

use std::sync::Mutex;

use stoa_runs::testing::runner_at;
use stoa_types::config::Deployment;

use super::*;
use super::{
    deleted_runs::vanish,
    fenced_runners::{Rendered, Scripted, deleting},
};

/// A world where the run `two` has begun, and asks for a version that there is not, before its controller is at work.
async fn mistaken() -> TestServer {
    let rendered = Rendered { spec: r#"{"resources":[]}"#, lacking: "latest", ..Rendered::default() };
    let (address, _) = Scripted::rendering(Arc::new(Mutex::new(deleting(&[]))), rendered).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "version": "latest"});
    world.create("Run", "two", spec).await;
    say_begun(&world, "two").await;
    world
}

impl TestServer {
    /// What the stack says of its deployment once the run `two` is refused, of which it says this before.
    async fn refuses(self, deployment: Value) -> Deployment {
        let stacks = self.registry.api::<Stack>();
        stacks.update_status_with("shop", "web", deploying(json!([deployment]))).await.unwrap();
        let world = self.controlled();
        let ended = world.ended("two").await;
        assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::SOURCE_NOT_FOUND));
        stacks.get("shop", "web").await.unwrap().status.unwrap().deployments.remove(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_run_restores_predecessor_status() {
    for (is_gone, fares) in [(true, RunPhase::Canceled), (false, RunPhase::Failed)] {
        let world = mistaken().await;
        world.apply("one").await;
        say_begun(&world, "one").await;
        let end = |run: &mut Run| run.status.get_or_insert_default().phase = fares;
        if is_gone {
            vanish(&world, "one").await;
            // Another has its name, and has nothing to do with what is deployed.
            world.create("Run", "one", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
            say_begun(&world, "one").await;
        } else {
            world.registry.api::<Run>().update_status_with("shop", "one", end).await.unwrap();
        }
        let noted = json!({"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "two",
            "before": {"run": "one", "phase": "AwaitingMerge"}});
        let told = world.refuses(noted).await;
        assert_eq!((told.last_run.as_deref(), told.phase), (Some("one"), Some(fares)), "{is_gone}");
        assert_eq!(told.before, None, "nothing is under way");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_run_stays_last_without_recorded_predecessor() {
    let noted = json!({"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "two", "release": 4});
    let told = mistaken().await.refuses(noted).await;
    assert_eq!((told.last_run.as_deref(), told.phase), (Some("two"), Some(RunPhase::Failed)));
    assert_eq!(told.release, Some(4));
}
