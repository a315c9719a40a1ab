//! What is live, or may be, is not forgotten by a deletion.

use super::*;

#[tokio::test]
async fn a_stack_with_live_infrastructure_is_not_deleted() {
    let world = World::with_stack().await;
    let api = world.registry.api::<stoa_types::Stack>();
    api.update_status_with("shop", "web-dev", |s: &mut stoa_types::Stack| {
        let deployment =
            stoa_types::config::Deployment { workspace: "dev".to_owned(), resources: 3, ..Default::default() };
        s.status.get_or_insert_default().deployments.push(deployment);
    })
    .await
    .unwrap();
    let error = api.delete("shop", "web-dev", &Default::default()).await.unwrap_err();
    assert_eq!(error.code(), 403);
    assert!(error.message().contains("deletionPolicy is Refuse"), "{error}");
}

#[tokio::test]
async fn stack_counts_live_until_run_reports_resources() {
    use stoa_types::{DeletionPolicy, Project, Run, Stack, Workspace, delivery::RunPhase};
    let world = World::with_stack().await;
    let spec = json!({ "stack": "web-dev", "workspace": "dev", "operation": "Apply" });
    let run = json!({ "metadata": { "name": "web-dev-1" }, "spec": spec });
    world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
    let mut dry = by("ann", &[]);
    dry.dry_run = true;
    let stacks = world.registry.api::<Stack>().with_context(dry.clone());
    let projects = world.registry.api::<Project>().with_context(dry.clone());
    let workspaces = world.registry.api::<Workspace>().with_context(dry);
    let destroy = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Destroy);
    let elsewhere = |workspace: &mut Workspace| workspace.spec.gitops.as_mut().unwrap().directory = "stage".to_owned();
    for (phase, of_run, may_be_live) in [
        ("Generating", RunPhase::Generating, true),
        ("Applying", RunPhase::Applying, true),
        ("Verifying", RunPhase::Verifying, true),
        ("AwaitingApproval", RunPhase::AwaitingApproval, false),
        ("AwaitingMerge", RunPhase::AwaitingMerge, false),
        ("Failed", RunPhase::Verifying, false),
        // It ended without telling.
        ("Generating", RunPhase::Failed, false),
    ] {
        let set = |run: &mut Run| run.status.get_or_insert_default().phase = of_run;
        world.registry.api::<Run>().update_status_with("shop", "web-dev-1", set).await.unwrap();
        let at = deploying(json!([{ "workspace": "dev", "resources": 0, "phase": phase, "lastRun": "web-dev-1" }]));
        world.registry.api::<Stack>().update_status_with("shop", "web-dev", at).await.unwrap();
        let refused = [
            stacks.delete("shop", "web-dev", &Default::default()).await.err(),
            stacks.update_with("shop", "web-dev", destroy).await.err(),
            projects.delete("shop", "web", &Default::default()).await.err(),
            workspaces.delete("", "dev", &Default::default()).await.err(),
            workspaces.update_with("", "dev", elsewhere).await.err(),
        ];
        let expected = if may_be_live { [403, 403, 403, 409, 409].map(Some) } else { [None; 5] };
        assert_eq!(refused.map(|error| error.map(|error| error.code())), expected, "{phase} {of_run:?}");
    }
}

/// Gives leave to destroy a stack, and ends a run when it is asked for that.
#[derive(Debug)]
struct EndsRun(Arc<Registry>, &'static str);

#[async_trait]
impl Authorizer for EndsRun {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        use stoa_types::{Run, delivery::RunPhase};
        let decision = Allow(vec!["create stacks/destroy web-dev"]).authorize(user, attributes).await?;
        if attributes.subresource == "destroy" {
            let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Failed;
            self.0.api::<Run>().update_status_with("shop", self.1, end).await?;
        }
        Ok(decision)
    }
}

/// Has a run begin to change the stack `web-dev`. Whoever asks in this context may destroy the stack, and the run has ended once
/// that was asked.
async fn ending_run(world: &World, run: &'static str) -> RequestContext {
    use stoa_types::{Run, Stack, delivery::RunPhase};
    let spec = json!({ "stack": "web-dev", "workspace": "dev", "operation": "Apply" });
    let object = json!({ "metadata": { "name": run }, "spec": spec });
    world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", object).await.unwrap();
    let begin = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Applying;
    world.registry.api::<Run>().update_status_with("shop", run, begin).await.unwrap();
    let at = deploying(json!([{ "workspace": "dev", "resources": 0, "phase": "Applying", "lastRun": run }]));
    world.registry.api::<Stack>().update_status_with("shop", "web-dev", at).await.unwrap();
    let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
    let mut dry = RequestContext::new(user, Arc::new(EndsRun(world.registry.clone(), run)));
    dry.dry_run = true;
    dry
}

/// Whether it is live is not asked once more after leave to destroy it was.
#[track_caller]
fn assert_still_live(refused: &ApiError) {
    assert!(refused.message().contains("workspaces.platform.stoa.dev \"dev\" is forbidden"), "{refused}");
}

#[tokio::test]
async fn stack_check_finds_live_resources_once() {
    use stoa_types::{DeletionPolicy, Stack};
    let world = World::with_stack().await;
    let stacks = world.registry.api::<Stack>();
    for (run, policy) in [("web-dev-1", DeletionPolicy::Destroy), ("web-dev-2", DeletionPolicy::Refuse)] {
        stacks
            .update_with("shop", "web-dev", |stack: &mut Stack| stack.spec.deletion_policy = Some(policy))
            .await
            .unwrap();
        let asked = stacks.clone().with_context(ending_run(&world, run).await);
        let refused = if policy == DeletionPolicy::Destroy {
            asked.delete("shop", "web-dev", &Default::default()).await.unwrap_err()
        } else {
            let destroy = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Destroy);
            asked.update_with("shop", "web-dev", destroy).await.unwrap_err()
        };
        assert_still_live(&refused);
    }
}

#[tokio::test]
async fn project_check_finds_live_resources_once() {
    use stoa_types::{DeletionPolicy, Project};
    let world = World::with_stack().await;
    let projects = world.registry.api::<Project>();
    let destroy = |project: &mut Project| project.spec.deletion_policy = Some(DeletionPolicy::Destroy);
    let asked = projects.clone().with_context(ending_run(&world, "web-dev-1").await);
    assert_still_live(&asked.update_with("shop", "web", destroy).await.unwrap_err());
    let asked = projects.clone().with_context(ending_run(&world, "web-dev-2").await);
    projects.update_with("shop", "web", destroy).await.unwrap();
    assert_still_live(&asked.delete("shop", "web", &Default::default()).await.unwrap_err());
}
