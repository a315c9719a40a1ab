//! Steps that wait until what they deployed is healthy.

use super::*;

#[tokio::test]
async fn step_succeeds_after_required_healthy_time() {
    let world = World::new().await;
    world.versions.1.lock().push("v1:Pod:shop:web");
    let spec = |timeout: &str| {
        let run =
            json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "1s", "timeout": timeout}});
        json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})
    };
    world.create(spec("1h")).await;
    let controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    let message = "the deployment of wave 1 of 1 is not healthy: workspace dev: v1:Pod:shop:web: it is InProgress";
    world.until(|status| step_of(status, "dev").message == message).await;
    world.versions.1.lock().clear();
    let healthy = "the deployment of wave 1 of 1 is healthy and must stay so for 1s";
    world.until(|status| step_of(status, "dev").message == healthy).await;
    // Had it been healthy all the time, it would have ended: it begins anew.
    world.versions.1.lock().push("v1:Pod:shop:web");
    world.until(|status| step_of(status, "dev").message == message).await;
    world.versions.1.lock().clear();
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    drop(controller);
}

#[tokio::test]
async fn for_how_long_it_was_healthy_outlives_the_server() {
    let world = World::new().await;
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "1h", "timeout": "2h"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    let controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.steps.first().is_some_and(|step| step.message.contains("is healthy and"))).await;
    drop(controller);
    // As a server noted it that was up for longer.
    let nearly = |workflow: &mut Workflow| {
        workflow.status.as_mut().unwrap().steps[0].wave_healthy_seconds = Some(3_599);
    };
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", nearly).await.unwrap();
    let memory = Memory::default();
    let of = status(&world.workflow().await);
    let waves = HashMap::from([("dev".to_owned(), vec![vec!["dev".to_owned()]])]);
    let (requeue, mut poked) = Requeue::new();
    let look = async || {
        let workflow = world.workflow().await;
        memory.gates.look(&world.runs.services, &workflow, &of, &waves, &requeue)
    };
    assert_eq!(look().await.get("dev"), None, "nobody looked yet");
    tokio::time::timeout(PATIENCE, poked.recv()).await.unwrap();
    let seen = look().await;
    let machine::Gate::Healthy(long) = &seen["dev"] else { panic!("{seen:?}") };
    // The test itself takes some time, too.
    assert!((3_599..3_599 + PATIENCE.as_secs()).contains(&long.as_secs()), "{long:?}");
}

#[tokio::test]
async fn busy_runner_reports_unknown_health() {
    let world = World::new().await;
    world.versions.1.lock().push("!");
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "0s", "timeout": "1h"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    let _controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    let message = format!("the health of the deployment of wave 1 of 1 is unknown: workspace dev: {BUSY}");
    world.until(|status| step_of(status, "dev").message == message).await;
    world.versions.1.lock().clear();
    assert_eq!(world.until(|status| status.phase.is_terminal()).await.phase, WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn step_fails_on_health_timeout() {
    let world = World::new().await;
    world.versions.1.lock().extend(["v1:Pod:shop:web", "v1:Pod:shop:db"]);
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "0s", "timeout": "1s"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    let _controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let message = "step dev: the deployment of wave 1 of 1 is not healthy: workspace dev: v1:Pod:shop:web: it is \
                   InProgress; and 1 more resource after 1s";
    assert_eq!(told(&ended, reason::FAILED), (reason::STEP_FAILED, message));
}
