//! Which runs a workflow starts, and that they stay its own whatever becomes of the server and of them.

use stoa_controller::conditions::set_condition;
use stoa_types::delivery::RunSpec;

use super::*;

#[tokio::test]
async fn restart_finds_run_started_before_crash() {
    let world = World::new().await;
    world.create(chain()).await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    assert!(world.all_runs().await.is_empty(), "the commit is recorded first");
    // What is pushed meanwhile is another workflow's.
    world.versions.0.lock().insert("main".to_owned(), 'b');
    // Nor does anything start that is paused meanwhile.
    world.change(|workflow| workflow.spec.paused = true).await;
    world.look().await;
    assert!(world.all_runs().await.is_empty());
    world.change(|workflow| workflow.spec.paused = false).await;
    let before = world.workflow().await.status;
    world.look().await;
    // The status was never written.
    let forget = |workflow: &mut Workflow| workflow.status.clone_from(&before);
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.look().await;
    assert_eq!(world.all_runs().await.len(), 1);
    let run = world.run_in("dev").await;
    assert_eq!(run.spec.version.as_deref(), Some("a".repeat(40).as_str()));
    let dev = step_of(&status(&world.workflow().await), "dev").clone();
    assert_eq!(
        (dev.phase, &dev.runs[0].name, dev.runs[0].phase),
        (StepPhase::Running, &run.name_any(), RunPhase::Pending)
    );
    for _ in 0..3 {
        world.look().await;
    }
    assert_eq!(world.all_runs().await.len(), 1);

    // It is cancelled with the others though no status names it.
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.change(|workflow| (workflow.spec.paused, workflow.spec.cancel) = (true, true)).await;
    world.look().await;
    assert!(world.run_in("dev").await.spec.cancel);
    assert!(!status(&world.workflow().await).phase.is_terminal(), "it is still under way");
    world.end("dev", RunPhase::Canceled).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
}

#[tokio::test]
async fn restart_finds_started_run_despite_later_rejection() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    let before = world.workflow().await.status;
    world.look().await;
    let forget = |workflow: &mut Workflow| workflow.status.clone_from(&before);
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    let stacks = world.runs.registry.api::<stoa_types::Stack>();
    stacks.delete("shop", "web", &Default::default()).await.unwrap();
    assert!(stacks.get("shop", "web").await.unwrap().metadata.deletion_timestamp.is_some(), "it takes no runs");
    world.look().await;
    let dev = step_of(&status(&world.workflow().await), "dev").clone();
    let run = world.run_in("dev").await;
    assert_eq!((dev.phase, &dev.runs[0].uid), (StepPhase::Running, &run.uid().unwrap()));
}

#[tokio::test]
async fn foreign_run_with_same_name_fails_workflow() {
    let world = World::new().await;
    world.create(chain()).await;
    let uid = world.workflow().await.uid().unwrap();
    let name = machine::run_name("w", &uid, "dev", "dev");
    world.runs.create("Run", &name, json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
    for _ in 0..3 {
        world.look().await;
    }
    let ended = status(&world.workflow().await);
    assert_eq!(ended.phase, WorkflowPhase::Failed);
    let message = format!("step dev: run {name} in workspace dev did not succeed: another run has the name {name}");
    assert_eq!(told(&ended, reason::FAILED), (reason::STEP_FAILED, message.as_str()));
}

/// A Preview in two workspaces, an approval, and an Apply of these plans.
fn previewed() -> Value {
    json!({"stack": "web", "steps": [
        {"name": "look", "run": {"operation": "Preview", "workspaces": ["eu", "us"], "maxFailures": 1}},
        {"name": "ok", "dependsOn": ["look"], "approval": {}},
        {"name": "go", "dependsOn": ["ok"], "run": {"operation": "Apply", "planOf": "look", "requireApproval": true}},
    ]})
}

impl World {
    /// The run of a step in a workspace.
    async fn run_of(&self, step: &str, workspace: &str) -> Run {
        let name = machine::run_name("w", &self.workflow().await.uid().unwrap(), step, workspace);
        self.runs.registry.api::<Run>().get("shop", &name).await.unwrap()
    }

    async fn end_of(&self, step: &str, workspace: &str, phase: RunPhase, message: &str) {
        let name = self.run_of(step, workspace).await.name_any();
        let end = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            status.phase = phase;
            set_condition(&mut status.conditions, reason::FAILED, true, reason::PLAN_STALE, message, None);
        };
        self.runs.registry.api::<Run>().update_status_with("shop", &name, end).await.unwrap();
    }
}

#[tokio::test]
async fn apply_step_carries_out_the_plan_of_each_workspace() {
    let world = World::new().await;
    world.create(previewed()).await;
    world.look().await;
    world.look().await;
    for workspace in ["eu", "us"] {
        world.end_of("look", workspace, RunPhase::Succeeded, "").await;
    }
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::AwaitingApproval);
    // What is pushed meanwhile is in no plan.
    world.versions.0.lock().insert("main".to_owned(), 'b');
    world.approve("ok").await;
    world.look().await;
    for workspace in ["eu", "us"] {
        let (run, preview) = (world.run_of("go", workspace).await, world.run_of("look", workspace).await);
        let spec = &run.spec;
        assert_eq!((spec.plan.as_ref(), &spec.workspace), (preview.metadata.name.as_ref(), &preview.spec.workspace));
        assert_eq!((&spec.version, spec.require_approval), (&None, true), "the plan that waits is that of the Preview");
        assert_eq!(preview.spec.version, Some("a".repeat(40)));
    }
    let stale = "the plan of w-1 no longer holds, preview again: v1:ConfigMap:shop:a: Create was planned, now Update";
    world.end_of("go", "eu", RunPhase::Failed, stale).await;
    world.end_of("go", "us", RunPhase::Succeeded, "").await;
    world.look().await;
    let ended = status(&world.workflow().await);
    let name = world.run_of("go", "eu").await.name_any();
    let message = format!("step go: run {name} in workspace eu did not succeed: {stale}");
    assert_eq!(told(&ended, reason::FAILED), (reason::STEP_FAILED, message.as_str()));
}

#[tokio::test]
async fn apply_step_fails_where_its_preview_made_no_plan() {
    let world = World::new().await;
    world.create(previewed()).await;
    world.look().await;
    world.look().await;
    world.end_of("look", "eu", RunPhase::Succeeded, "").await;
    world.end_of("look", "us", RunPhase::Failed, "it cannot be rendered").await;
    world.look().await;
    world.remove(&world.run_of("look", "eu").await).await;
    world.approve("ok").await;
    world.look().await;
    world.look().await;
    let go = step_of(&status(&world.workflow().await), "go").clone();
    let uid = world.workflow().await.uid().unwrap();
    let said: Vec<String> = go.runs.into_iter().map(|run| run.message).collect();
    let expected = [("eu", "does not exist"), ("us", "is Failed")].map(|(workspace, why)| {
        let preview = machine::run_name("w", &uid, "look", workspace);
        format!("step look has no plan in workspace {workspace}: its Preview {preview} {why}")
    });
    assert_eq!((go.phase, said), (StepPhase::Failed, expected.to_vec()));
    assert_eq!(world.all_runs().await.len(), 1, "nothing is applied");
}

#[tokio::test]
async fn delayed_run_creation_blocks_only_its_step() {
    let world = World::new().await;
    let run =
        |workspaces: Value| json!({"operation": "Apply", "workspaces": workspaces, "maxParallel": 10, "timeout": "1h"});
    let steps = json!([{"name": "prod", "run": run(json!(["eu", "us"]))}, {"name": "dev", "run": run(json!(["dev"]))}]);
    world.create(json!({"stack": "web", "steps": steps})).await;
    world.look().await;
    let uid = world.workflow().await.uid().unwrap();
    let look = async |away: &'static str| {
        *world.authorizer.1.lock() = away;
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(1)).await;
        tokio::time::resume();
        let again = world.look().await;
        (again, status(&world.workflow().await))
    };
    // How many runs of the step are started, with one that cannot be in this workspace.
    for (away, others) in [("eu", 0_usize), ("us", 1)] {
        let (again, waiting) = look(away).await;
        let name = machine::run_name("w", &uid, "prod", away);
        let why = format!("run {name} in workspace {away} cannot be created yet: the authorizer is away");
        let prod = step_of(&waiting, "prod");
        assert_eq!((prod.phase, &prod.message, prod.runs.len()), (StepPhase::Running, &why, others));
        assert_eq!(prod.counts.map(|counts| (counts.started, counts.failed)), Some((others as i64, 0)));
        assert_eq!(told(&waiting, reason::WAITING), (reason::WAITING, format!("step prod: {why}").as_str()));
        assert!(again.is_some_and(|wait| !wait.is_zero()), "{again:?}");
        assert_eq!(step_of(&waiting, "dev").runs[0].uid, world.run_in("dev").await.uid().unwrap());
        assert_eq!(world.all_runs().await.len(), 1 + others);
        world.look().await;
        assert_eq!(status(&world.workflow().await), waiting, "the look that follows says the same");
    }
    let (_, going_on) = look("").await;
    let prod = step_of(&going_on, "prod");
    assert_eq!((prod.message.as_str(), prod.runs.len(), world.all_runs().await.len()), ("", 2, 3));
    assert!(condition(&going_on.conditions, reason::WAITING).is_none());
    for workspace in ["dev", "eu", "us"] {
        world.end(workspace, RunPhase::Succeeded).await;
    }
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Succeeded);
}

#[tokio::test]
async fn a_run_that_admission_changed_is_found_again() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    let before = world.workflow().await.status;
    world.look().await;
    // As if a webhook had set these when it was created.
    let made = world.run_in("dev").await;
    world.remove(&made).await;
    let mut changed = Run::new(&made.name_any(), made.spec.clone());
    (changed.spec.timeout, changed.spec.require_approval) = ("2h".into(), true);
    changed.metadata.namespace = Some("shop".to_owned());
    changed.metadata.owner_references.clone_from(&made.metadata.owner_references);
    changed.metadata.labels.clone_from(&made.metadata.labels);
    let services = &world.runs.services;
    let runs = world.runs.registry.api::<Run>();
    runs.with_context(context(services, &before.clone().unwrap())).create(&changed).await.unwrap();
    let forget = |workflow: &mut Workflow| workflow.status.clone_from(&before);
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.look().await;
    let dev = step_of(&status(&world.workflow().await), "dev").clone();
    assert_eq!((dev.phase, dev.runs[0].phase), (StepPhase::Running, RunPhase::Pending));

    let with = |change: fn(&mut RunSpec)| {
        let mut other = made.spec.clone();
        change(&mut other);
        starts::is_for_same(&other, &made.spec)
    };
    assert!(with(|spec| spec.cancel = true));
    for change in [
        (|spec| spec.stack.push('x')) as fn(&mut RunSpec),
        |spec| spec.workspace.push('x'),
        |spec| spec.version = None,
        |spec| spec.release = Some(1),
        |spec| spec.plan = Some("look".to_owned()),
        |spec| spec.operation = stoa_types::delivery::Operation::Preview,
    ] {
        assert!(!with(change));
    }
}

#[tokio::test]
async fn run_without_label_stays_with_workflow() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let name = world.run_in("dev").await.name_any();
    let runs = world.runs.registry.api::<Run>();
    runs.update_with("shop", &name, |run: &mut Run| run.metadata.labels = None).await.unwrap();
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert!(world.run_in("dev").await.spec.cancel);
}

#[tokio::test]
async fn run_without_owner_reference_stays_with_workflow() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let run = world.run_in("dev").await;
    assert_eq!(step_of(&status(&world.workflow().await), "dev").runs[0].uid, run.uid().unwrap());
    let runs = world.runs.registry.api::<Run>();
    let let_go = |run: &mut Run| run.metadata.owner_references = None;
    runs.update_with("shop", &run.name_any(), let_go).await.unwrap();
    world.look().await;
    assert_eq!(step_of(&status(&world.workflow().await), "dev").phase, StepPhase::Running);
    world.end("dev", RunPhase::Succeeded).await;
    world.look().await;
    assert_eq!(step_of(&status(&world.workflow().await), "ok").phase, StepPhase::AwaitingApproval);
    world.approve("ok").await;
    world.look().await;
    let eu = world.run_in("eu").await;
    runs.update_with("shop", &eu.name_any(), let_go).await.unwrap();
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert!(world.run_in("eu").await.spec.cancel, "it is cancelled with the others");
    // Another run of its name is none of the workflow's.
    world.remove(&world.run_in("us").await).await;
    let mut other = Run::new(&world.run_in("eu").await.name_any(), eu.spec.clone());
    world.remove(&eu).await;
    other.metadata.namespace = Some("shop".to_owned());
    other.metadata.labels.clone_from(&eu.metadata.labels);
    runs.create(&other).await.unwrap();
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
    assert!(!world.run_in("eu").await.spec.cancel);
}

#[tokio::test]
async fn workflow_starts_runs_only_with_current_permission() {
    let world = World::new().await;
    let _controller = world.controlled();
    world.create(chain()).await;
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.phase == WorkflowPhase::AwaitingApproval).await;
    world.authorizer.0.store(true, std::sync::atomic::Ordering::Relaxed);
    world.approve("ok").await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let (why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::STEP_FAILED);
    assert!(message.contains("User \"ann\" cannot create resource \"stacks/apply\""), "{message}");
    assert_eq!(world.all_runs().await.len(), 1);
}

#[tokio::test]
async fn workspaces_are_selected_by_label_when_the_step_begins() {
    let world = World::new().await;
    let waves = json!([{"workspaces": ["us"]}, {"workspaceSelector": {"matchLabels": {"tier": "prod"}}}]);
    let run = json!({"operation": "Apply", "waves": waves, "maxParallel": 10, "timeout": "1h"});
    world.create(json!({"stack": "web", "steps": [{"name": "prod", "run": run}]})).await;
    world.look().await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    assert!(world.all_runs().await.is_empty(), "what is selected is recorded first");
    let selected = step_of(&status(&world.workflow().await), "prod").selected.clone();
    assert_eq!(selected.iter().map(|wave| wave.workspaces.join(",")).collect::<Vec<_>>(), ["us", "eu"]);
    let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
    world.runs.create("Workspace", "late", spec).await;
    let unlabel = |workspace: &mut stoa_types::Workspace| workspace.metadata.labels = None;
    world.runs.registry.api::<stoa_types::Workspace>().update_with("", "eu", unlabel).await.unwrap();
    world.look().await;
    world.end("us", RunPhase::Succeeded).await;
    world.look().await;
    world.end("eu", RunPhase::Succeeded).await;
    world.look().await;
    let ended = status(&world.workflow().await);
    assert_eq!((ended.phase, world.all_runs().await.len()), (WorkflowPhase::Succeeded, 2));
    assert!(step_of(&ended, "prod").selected.is_empty(), "what is over needs no names");
}

#[tokio::test]
async fn successful_workflow_reports_tolerated_failures_and_skips() {
    let world = World::new().await;
    let waves = json!([{"workspaces": ["dev", "us"]}, {"workspaceSelector": {"matchLabels": {"tier": "none"}}}]);
    let run = json!({"operation": "Apply", "waves": waves, "maxParallel": 10, "maxFailures": 1, "timeout": "1h"});
    world.create(json!({"stack": "web", "steps": [{"name": "all", "run": run}]})).await;
    for _ in 0..3 {
        world.look().await;
    }
    world.end("dev", RunPhase::Failed).await;
    world.end("us", RunPhase::Succeeded).await;
    world.look().await;
    let ended = status(&world.workflow().await);
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    let expected = "1 step succeeded; step all: 1 of 2 runs failed, which is tolerated; wave 2 of 2 is skipped: \
                    its selector finds no workspace of the stack that no other wave has";
    assert_eq!(told(&ended, reason::COMPLETE), ("Succeeded", expected));
}
