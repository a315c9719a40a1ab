//! How workflows end before their steps have, and when they go.

use super::*;

#[tokio::test]
async fn cancelling_does_not_wait_for_repositories() {
    let world = World::new().await;
    world.versions.0.lock().insert("main".to_owned(), '…');
    let _controller = world.controlled();
    world.create(chain()).await;
    tokio::time::timeout(PATIENCE, world.versions.3.notified()).await.expect("the version is asked for");
    let begin = tokio::time::Instant::now();
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!((ended.phase, world.all_runs().await.len()), (WorkflowPhase::Canceled, 0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn unresponsive_repositories_block_no_other_workflow() {
    let world = World::new().await;
    world.versions.0.lock().insert("main".to_owned(), '…');
    let _controller = world.controlled();
    // More than are looked at at once, and more than are asked for at once.
    for number in 0..40 {
        world.create_called(&format!("slow-{number}"), chain()).await;
    }
    tokio::time::timeout(PATIENCE, world.versions.3.notified()).await.expect("the version is asked for");
    let begin = tokio::time::Instant::now();
    world.create(json!({"steps": [{"name": "ok", "approval": {"message": "go on?"}}]})).await;
    world.until(|status| status.phase == WorkflowPhase::AwaitingApproval).await;
    world.change(|workflow| workflow.spec.cancel = true).await;
    assert_eq!(world.until(|status| status.phase.is_terminal()).await.phase, WorkflowPhase::Canceled);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn paused_workflow_resolves_branch_on_resume() {
    let world = World::new().await;
    world.create(chain()).await;
    let key = ("shop".to_owned(), "w".to_owned());
    let first = look(world.runs.services.clone(), world.memory.clone(), key).await.unwrap();
    assert_eq!(first, Some(AGAIN), "the repository is asked");
    world.poked.lock().await.recv().await.unwrap();
    world.change(|workflow| workflow.spec.paused = true).await;
    world.look().await;
    world.versions.0.lock().insert("main".to_owned(), 'b');
    world.change(|workflow| workflow.spec.paused = false).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).versions[0].commit, "b".repeat(40));
}

#[tokio::test]
async fn cancelling_does_not_wait_for_clusters() {
    let world = World::new().await;
    world.versions.1.lock().push("…");
    let _controller = world.controlled();
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "0s"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    world.end("dev", RunPhase::Succeeded).await;
    tokio::time::timeout(PATIENCE, world.versions.3.notified()).await.expect("it is looked at");
    let begin = tokio::time::Instant::now();
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Canceled);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn workflow_reports_cancellation_or_timeout_as_reason() {
    for (phase, told_of) in [
        (WorkflowPhase::Canceled, (reason::CANCELED, "the workflow was cancelled")),
        (WorkflowPhase::Failed, (reason::TIMED_OUT, "the workflow took longer than 1h")),
    ] {
        let world = World::new().await;
        let _controller = world.controlled();
        let run = json!({"operation": "Apply", "workspaces": ["dev"]});
        world.create(json!({"stack": "web", "timeout": "1h", "steps": [{"name": "dev", "run": run}]})).await;
        world.until(|status| status.phase == WorkflowPhase::Running).await;
        if phase == WorkflowPhase::Canceled {
            world.change(|workflow| workflow.spec.cancel = true).await;
        } else {
            world.age().await;
        }
        let mut changes = world.runs.registry.api::<Run>().subscribe(None);
        let canceled = async {
            while !world.run_in("dev").await.spec.cancel {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, canceled).await.expect("the run is cancelled");
        world.end("dev", RunPhase::Canceled).await;
        let ended = world.until(|status| status.phase.is_terminal()).await;
        assert_eq!((ended.phase, told(&ended, reason::FAILED)), (phase, told_of));
        assert_eq!(step_of(&ended, "dev").phase, StepPhase::Canceled);
    }
}

#[tokio::test]
async fn cancelling_ends_it_once_its_runs_have_ended() {
    let world = World::new().await;
    let _controller = world.controlled();
    world.create(chain()).await;
    world.run_in("dev").await;
    world.until(|status| status.phase == WorkflowPhase::Running).await;
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.until(|status| step_of(status, "ok").phase == StepPhase::Canceled).await;
    let runs = world.runs.registry.api::<Run>();
    let canceled = async {
        let mut changes = runs.subscribe(None);
        while !world.run_in("dev").await.spec.cancel {
            changes.next().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, canceled).await.expect("the run is cancelled");
    assert!(!status(&world.workflow().await).phase.is_terminal());
    world.end("dev", RunPhase::Canceled).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Canceled);
    assert_eq!(told(&ended, reason::FAILED), (reason::CANCELED, "the workflow was cancelled"));
}

#[tokio::test]
async fn its_time_is_up() {
    let world = World::new().await;
    let _controller = world.controlled();
    let mut spec = chain();
    spec["timeout"] = json!("1h");
    world.create(spec).await;
    world.run_in("dev").await;
    world.age().await;
    world.until(|status| step_of(status, "ok").phase == StepPhase::Canceled).await;
    world.end("dev", RunPhase::Canceled).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Failed);
    assert_eq!(told(&ended, reason::FAILED), (reason::TIMED_OUT, "the workflow took longer than 1h"));
}

#[tokio::test]
async fn its_runs_are_cancelled_first_and_go_with_it() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let (workflows, runs) = (world.runs.registry.api::<Workflow>(), world.runs.registry.api::<Run>());
    workflows.delete("shop", "w", &DeleteOptions::default()).await.unwrap();
    world.look().await;
    let run = world.run_in("dev").await;
    assert!(run.spec.cancel && run.metadata.deletion_timestamp.is_none());
    world.end("dev", RunPhase::Canceled).await;
    world.look().await;
    world.look().await;
    assert!(workflows.get_opt("shop", "w").await.unwrap().is_none());
    let left = runs.get_opt("shop", &run.name_any()).await.unwrap();
    assert!(left.is_none_or(|run| run.metadata.deletion_timestamp.is_some()));
}

#[tokio::test]
async fn ttl_removes_finished_workflow() {
    let world = World::new().await;
    let mut spec = chain();
    (spec["cancel"], spec["ttlSecondsAfterFinished"]) = (json!(true), json!(0));
    world.create(spec).await;
    world.look().await;
    world.look().await;
    world.look().await;
    assert!(world.runs.registry.api::<Workflow>().get_opt("shop", "w").await.unwrap().is_none());
}

#[tokio::test]
async fn pending_apply_retains_workflow_of_its_plan() {
    let world = World::new().await;
    let run = json!({"operation": "Preview", "workspaces": ["dev"], "maxParallel": 10, "timeout": "1h"});
    let steps = json!([{"name": "dev", "run": run}]);
    world.create(json!({"stack": "web", "steps": steps, "ttlSecondsAfterFinished": 0})).await;
    world.look().await;
    world.look().await;
    let preview = world.end("dev", RunPhase::Succeeded).await.name_any();
    let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": preview});
    world.runs.create("Run", "apply", apply).await;
    world.look().await;
    assert!(status(&world.workflow().await).phase.is_terminal());
    assert_eq!(world.look().await, Some(AGAIN));
    assert!(world.workflow().await.metadata.deletion_timestamp.is_none());
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
    world.runs.registry.api::<Run>().update_status_with("shop", "apply", end).await.unwrap();
    world.look().await;
    assert!(world.workflow().await.metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn clock_reset_removes_no_workflow_early() {
    let world = World::new().await;
    let mut spec = chain();
    (spec["cancel"], spec["ttlSecondsAfterFinished"]) = (json!(true), json!(i64::MAX));
    world.create(spec).await;
    world.look().await;
    let hour = jiff::SignedDuration::from_hours(1);
    let later = Time(world.runs.services.now() + hour);
    let end_later = |workflow: &mut Workflow| {
        workflow.status.get_or_insert_default().completion_time = Some(later.clone());
    };
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", end_later).await.unwrap();
    assert_eq!(world.look().await, Some(Duration::from_secs(3600)));
}
