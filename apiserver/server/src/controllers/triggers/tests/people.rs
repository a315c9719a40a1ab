//! On whose behalf runs are started.

use stoa_machinery::{RequestContext, auth::AllowAll, request::UserInfo};
use stoa_types::delivery::{Approval, Decision};

use super::*;

fn by(name: &str) -> RequestContext {
    let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
    RequestContext::new(user, Arc::new(AllowAll))
}

impl World {
    /// Somebody changes what the stack deploys.
    async fn touch(&self, name: &str) {
        let touch = |stack: &mut Stack| {
            stack.spec.generator.parameters.insert("touched-by".to_owned(), name.to_owned());
        };
        self.change_by(name, touch).await;
    }

    async fn change_by(&self, name: &str, change: impl FnMut(&mut Stack) + Send) {
        self.runs.registry.api::<Stack>().with_context(by(name)).update_with("shop", "web", change).await.unwrap();
    }

    /// Somebody has the source lead elsewhere.
    async fn lead(&self, name: &str) {
        let lead = |source: &mut Source| source.spec.reference = format!("of-{name}");
        let sources = self.runs.registry.api::<Source>().with_context(by(name));
        sources.update_with("shop", "config", lead).await.unwrap();
    }

    /// Who is behind the run that was started last in a workspace, once the controller has looked.
    async fn behind(&self, workspace: &str) -> Vec<String> {
        self.look().await;
        let run = started_in(&self.stack().await, workspace).unwrap().run.clone();
        let run = self.runs.registry.api::<Run>().get("shop", &run).await.unwrap();
        status(&run).requester.extra.remove(trigger::CAUSED_BY).unwrap_or_default()
    }

    /// Somebody deletes the last run.
    async fn delete_last(&self) {
        let (runs, last) = (self.runs.registry.api::<Run>(), self.last().await.name_any());
        runs.delete("shop", &last, &Default::default()).await.unwrap();
        runs.update_with("shop", &last, |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    }

    /// The last run succeeds, which is noted.
    async fn succeed(&self) {
        Box::pin(self.end(&self.last().await, RunPhase::Succeeded)).await;
        Box::pin(self.look()).await;
    }
}

#[tokio::test]
async fn run_records_every_earlier_decider() {
    let world = World::new().await;
    world.touch("eve").await;
    world.touch("ann").await;
    assert_eq!(world.behind("dev").await, ["ann", "eve"], "nothing was started before");
    world.succeed().await;
    world.touch("bob").await;
    assert_eq!(world.behind("dev").await, ["bob"], "that is carried out");
    world.touch("eve").await;
    world.lead("kim").await;
    world.lead("lou").await;
    world.touch("ann").await;
    assert_eq!(world.behind("dev").await, ["ann", "lou", "eve", "kim", "bob"]);
    world.succeed().await;
    world.push("b", "2").await;
    assert_eq!(world.behind("dev").await, ["ann", "lou"], "who last decided");
}

#[tokio::test]
async fn trigger_change_confirms_current_source() {
    let world = World::new().await;
    world.change(|stack| stack.spec.trigger = stoa_types::config::Trigger::Manual).await;
    world.lead("kim").await;
    world.lead("lou").await;
    world.change_by("ann", |stack| stack.spec.trigger = stoa_types::config::Trigger::Apply).await;
    assert_eq!(world.behind("dev").await, ["ann", "lou"]);
}

#[tokio::test]
async fn next_run_inherits_deciders_of_deleted_run() {
    let world = World::new().await;
    world.touch("eve").await;
    assert_eq!(world.behind("dev").await, ["eve"]);
    world.delete_last().await;
    world.touch("ann").await;
    assert_eq!(world.behind("dev").await, ["ann", "eve"]);
    world.end(&world.last().await, RunPhase::Failed).await;
    world.look().await;
    world.delete_last().await;
    world.touch("bob").await;
    assert_eq!(world.behind("dev").await, ["bob", "ann", "eve"], "it did not come to a good end");
    world.succeed().await;
    world.delete_last().await;
    world.touch("kim").await;
    assert_eq!(world.behind("dev").await, ["kim"], "what it was for is deployed");
}

#[tokio::test]
async fn new_workspace_inherits_deciders_of_pending_change() {
    let world = World::new().await;
    let workspace = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
    world.runs.create("Workspace", "prod", workspace).await;
    world.touch("eve").await;
    assert_eq!(world.behind("dev").await, ["eve"]);
    world.change_by("bob", |stack| stack.spec.workspaces.push("prod".to_owned())).await;
    assert_eq!(world.behind("prod").await, ["bob", "eve"]);
    // Each workspace has its own from then on.
    world.succeed().await;
    world.touch("ann").await;
    assert_eq!(world.behind("dev").await, ["ann", "bob"]);
    assert_eq!(world.behind("prod").await, ["ann", "bob", "eve"]);
}

#[tokio::test]
async fn replacing_run_inherits_deciders_of_unapproved_run() {
    let world = World::new().await;
    let (stacks, runs) = (world.runs.registry.api::<Stack>(), world.runs.registry.api::<Run>());
    let behind = async |name: &str, commit: &str, content: &str| {
        let set = |stack: &mut Stack| {
            stack.status.get_or_insert_default().trigger.get_or_insert_default().set_by = name.to_owned();
        };
        stacks.update_status_with("shop", "web", set).await.unwrap();
        world.push(commit, content).await;
        world.look().await;
        status(&world.last().await).requester.extra[trigger::CAUSED_BY].clone()
    };
    assert_eq!(behind("eve", "b", "2").await, ["eve"]);
    // A touch of somebody else's, while that waits or after it failed, makes nobody else of who decided.
    assert_eq!(behind("ann", "c", "3").await, ["ann", "eve"]);
    world.end(&world.last().await, RunPhase::Failed).await;
    assert_eq!(behind("bob", "d", "4").await, ["bob", "ann", "eve"]);
    world.end(&world.last().await, RunPhase::Succeeded).await;
    assert_eq!(behind("eve", "e", "5").await, ["eve"]);
    let approve = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        status.phase = RunPhase::Failed;
        status.approval = Some(Approval {
            plan_digest: String::new(),
            decision: Decision::Approved,
            message: String::new(),
            approver: None,
            time: None,
        });
    };
    let (_, approved) = queue::key_of(&world.last().await);
    runs.update_status_with("shop", &approved, approve).await.unwrap();
    assert_eq!(behind("ann", "f", "6").await, ["ann"]);
}
