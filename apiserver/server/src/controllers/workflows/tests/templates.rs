//! Workflows whose steps are in a file of the source.

use super::*;

/// A workflow of a file with this step.
async fn of_template(world: &World, step: &str) {
    let head = "apiVersion: delivery.stoa.dev/v1alpha1\nkind: Workflow\nspec:\n  stack: ${app}\n  steps:\n";
    *world.versions.2.lock() = format!("{head}  - {step}\n");
    let template = json!({"project": "web", "path": "ci/flow.yaml", "parameters": {"app": "web"}});
    world.create(json!({"version": "main", "template": template})).await;
}

#[tokio::test]
async fn the_steps_of_a_template_are_read_once() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    let read = status(&world.workflow().await).template.unwrap();
    assert_eq!((read.commit, read.stack.as_str(), read.steps.len()), ("a".repeat(40), "web", 1));
    assert!(world.all_runs().await.is_empty(), "what is done is recorded first");
    // What is pushed meanwhile is another workflow's.
    *world.versions.2.lock() = "other".to_owned();
    world.look().await;
    world.look().await;
    let run = world.end("dev", RunPhase::Succeeded).await;
    assert_eq!((run.spec.stack.as_str(), status_of_run(&run).requester.username.as_str()), ("web", "ann"));
    world.look().await;
    let ended = world.workflow().await;
    assert_eq!(status(&ended).phase, WorkflowPhase::Succeeded);
    assert!(ended.spec.steps.is_empty() && ended.metadata.generation == Some(1), "the spec stays as it was sent");
}

#[tokio::test]
async fn invalid_template_error_names_file_line_and_field() {
    for (step, why, expected) in [
        (
            "{name: dev, run: {operation: Apply, workspaces: [mars]}}",
            reason::INVALID_TEMPLATE,
            "ci/flow.yaml: line 6: spec.steps[0].run.workspaces[0]: Not found: \"mars\"",
        ),
        (
            "{name: dev, run: {operation: Apply, maxParallel: 0, workspaces: [dev]}}",
            reason::INVALID_TEMPLATE,
            "ci/flow.yaml: line 6: spec.steps[0].run.maxParallel: Invalid value: 0: must be from 1 to 100",
        ),
    ] {
        let world = World::new().await;
        of_template(&world, step).await;
        world.look().await;
        let ended = status(&world.workflow().await);
        assert_eq!((ended.phase, told(&ended, reason::FAILED)), (WorkflowPhase::Failed, (why, expected)));
    }
}

#[tokio::test]
async fn who_asked_for_a_template_may_create_its_runs() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    world.authorizer.0.store(true, std::sync::atomic::Ordering::Relaxed);
    world.look().await;
    let ended = status(&world.workflow().await);
    let (why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::PERMISSION_DENIED);
    assert!(message.contains("User \"ann\" cannot create resource \"stacks/apply\""), "{message}");
}

#[tokio::test]
async fn workflow_cancelled_before_template_starts_nothing() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    world.change(|workflow| workflow.spec.paused = true).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Paused);
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
}
