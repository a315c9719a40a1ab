//! Runs that follow the merge of a pull request, which was shown a plan.

use std::sync::Mutex;

use bytes::Bytes;
use stoa_controller::conditions::set_condition;
use stoa_engine::{Plan, digest::canonical_json};
use stoa_types::{
    Source,
    delivery::{PlanStatus, RunSource},
    labels,
};
use tokio::sync::mpsc;

use super::fenced_runners::{A, Conversation, Planned, Rendered, Scripted, deleting};
use super::{approval::told, *};
use stoa_kinds::pull_request::USER;
use stoa_runs::testing::runner_at;

const B: &str = "v1:ConfigMap:shop:b";
const SPEC: &str = r#"{"resources":[]}"#;

/// A world whose runner plans what it finds there, before its controller is at work; of the commits of pull requests Git has
/// those of these letters in its history.
async fn planning(plan: Plan, earlier: &str) -> (TestServer, Planned, mpsc::UnboundedReceiver<Conversation>) {
    let planned: Planned = Arc::new(Mutex::new(plan));
    let earlier = earlier.chars().map(|letter| letter.to_string().repeat(40)).collect();
    let (address, conversations) =
        Scripted::rendering(planned.clone(), Rendered { spec: SPEC, earlier, ..Rendered::default() }).await;
    (TestServer::with_runner(runner_at(address)).await, planned, conversations)
}

impl TestServer {
    /// Pull request 7 was shown this plan of a commit; the name of the Preview that made it.
    async fn show(&self, letter: char, plan: &Plan, is_merged: bool) -> String {
        let name = format!("web-pr7-{letter}");
        let commit = letter.to_string().repeat(40);
        let mut run = self.run_of(&name, "Preview", &commit);
        run.labels_mut().insert(labels::SOURCE.to_owned(), "config".to_owned());
        run.labels_mut().insert(labels::PULL_REQUEST.to_owned(), "7".to_owned());
        let runs = self.registry.api::<Run>();
        let context = RequestContext::internal(USER.strip_prefix("system:stoa:").unwrap());
        runs.clone().with_context(context).create(&run).await.unwrap();
        let stack = self.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let store = self.services.backends.store("default").await.unwrap();
        let scope = format!("shop/{}", stack.uid().unwrap());
        let document = store.put(&scope, Bytes::from(canonical_json(plan))).await.unwrap().to_string();
        let spec = store.put(&scope, SPEC.into()).await.unwrap().to_string();
        let made = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            status.phase = RunPhase::Succeeded;
            status.merged = is_merged;
            status.stack_uid = stack.uid();
            status.source = Some(RunSource {
                commit: commit.clone(),
                path: "web".into(),
                spec_digest: Some(spec.clone()),
                ..RunSource::default()
            });
            status.plan =
                Some(PlanStatus { digest: plan.digest(), document: document.clone(), ..PlanStatus::default() });
        };
        runs.update_status_with("shop", &name, made).await.unwrap();
        name
    }

    /// The pull request of a Preview is found to be merged.
    async fn merge(&self, preview: &str) {
        let merged = |run: &mut Run| run.status.get_or_insert_default().merged = true;
        self.registry.api::<Run>().update_status_with("shop", preview, merged).await.unwrap();
    }

    /// The source, whose pull requests are planned, is found at one commit, and it is known what was merged into another.
    async fn observe(&self, found: char, known: char) {
        let sources = self.registry.api::<Source>();
        let shows = |source: &mut Source| {
            source.spec.remote = "https://git.example.com/shop/config.git".to_owned();
            source.spec.pull_requests = Some(stoa_types::config::PullRequestPlans::default());
        };
        sources.update_with("shop", "config", shows).await.unwrap();
        let at = |letter: char| Some(letter.to_string().repeat(40));
        let observe = |source: &mut Source| {
            let status = source.status.get_or_insert_default();
            (status.observed_commit, status.merges_known_at) = (at(found), at(known));
        };
        sources.update_status_with("shop", "config", observe).await.unwrap();
    }

    fn run_of(&self, name: &str, operation: &str, commit: &str) -> Run {
        let spec = json!({"stack": "web", "workspace": "dev", "operation": operation, "version": commit,
            "allowMassDeletion": operation == "Apply"});
        let mut run = Run::new(name, serde_json::from_value(spec).unwrap());
        run.metadata.namespace = Some("shop".to_owned());
        run
    }

    /// Starts what a trigger does for a commit of the branch.
    async fn follow(&self, name: &str) {
        let run = self.run_of(name, "Apply", &"m".repeat(40));
        let context = RequestContext::internal("trigger");
        self.registry.api::<Run>().with_context(context).create(&run).await.unwrap();
    }
}

/// Carries out what a run asks for.
async fn carry_out(conversations: &mut mpsc::UnboundedReceiver<Conversation>, ids: &[&str]) {
    let conversation = tokio::time::timeout(PATIENCE, conversations.recv()).await.expect("it applies");
    let mut conversation = conversation.unwrap();
    conversation.begin("only").await;
    conversation.carry_out(ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merge_applies_plan_shown_on_pull_request() {
    let (world, _, mut conversations) = planning(deleting(&[A]), "").await;
    let preview = world.show('c', &deleting(&[A]), true).await;
    let world = world.controlled();
    world.follow("one").await;
    carry_out(&mut conversations, &[A]).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    let digest = deleting(&[A]).digest();
    let [merged] = &ended.merged_plans[..] else { panic!("{:?}", ended.merged_plans) };
    assert!(merged.carried_out && merged.digest == digest && merged.digest == ended.plan.as_ref().unwrap().digest);
    assert_eq!((merged.number, merged.source.as_str(), &merged.run), (7, "config", &preview));
    assert_eq!(ended.source.as_ref().unwrap().commit, "m".repeat(40), "what was merged is what is released");
    let message = format!("plan {digest} is the one that pull request 7 was shown");
    let expected = ("True", reason::MERGED_PLAN_HOLDS, message.as_str());
    assert_eq!(told(&ended, reason::MERGED_PLAN_HOLDS), expected);
    assert!(world.journal("one").await.contains(&message));

    // It was followed, so that a later change of the branch is no merge of it.
    world.follow("two").await;
    carry_out(&mut conversations, &[A]).await;
    assert!(world.ended("two").await.merged_plans.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn unshown_plan_awaits_approval_with_differences() {
    let (world, planned, mut conversations) = planning(deleting(&[A, B]), "").await;
    world.show('c', &deleting(&[A]), true).await;
    let open = world.show('d', &deleting(&[A]), false).await;
    let world = world.controlled();
    world.follow("one").await;
    let waiting = world.waits("one").await;
    let (shown, made) = (deleting(&[A]).digest(), deleting(&[A, B]).digest());
    let (_, why, message) = told(&waiting, reason::MERGED_PLAN_HOLDS);
    let expected = format!(
        "the plan that pull request 7 ({shown}) was shown no longer holds: {B}: nothing was planned, now Delete. Plan \
         {made} was made instead, and the merge did not approve it"
    );
    assert_eq!((why, message), (reason::PLAN_STALE, expected.as_str()));
    let asked = format!(
        "plan {made} (+0 ~0 -2) waits for approval, requested by the merge of pull request 7, where another was shown"
    );
    assert_eq!(told(&waiting, reason::WAITING).2, asked);
    assert!(!waiting.merged_plans[0].carried_out);
    let refused = world.decide_about("one", &shown, "Approved").await.unwrap_err();
    assert_eq!(refused.code(), 409, "an approval is for the plan that waits and no other: {refused:?}");
    assert!(conversations.try_recv().is_err());
    world.decide("one", "Approved").await;
    carry_out(&mut conversations, &[A, B]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);

    // Nor is an approval good for what would be planned afterwards.
    world.merge(&open).await;
    world.follow("two").await;
    world.waits("two").await;
    *planned.lock().unwrap() = deleting(&[A]);
    world.decide("two", "Approved").await;
    let ended = world.ended("two").await;
    assert_eq!((ended.phase, why_failed(&ended)), (RunPhase::Failed, reason::PLAN_STALE));
    assert!(conversations.try_recv().is_err());
}

fn why_failed(status: &RunStatus) -> &str {
    why(&status.conditions)
}

#[tokio::test(flavor = "multi_thread")]
async fn smaller_plan_proceeds_and_lists_omissions() {
    let (world, _, mut conversations) = planning(deleting(&[A]), "").await;
    world.show('c', &deleting(&[A, B]), true).await;
    let world = world.controlled();
    world.follow("one").await;
    carry_out(&mut conversations, &[A]).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    let (is_held, why, message) = told(&ended, reason::MERGED_PLAN_HOLDS);
    assert_eq!((is_held, why), ("False", reason::PLAN_COVERED));
    assert!(message.contains(&format!("{B}: Delete was planned, now nothing")), "{message}");
    assert!(!ended.merged_plans[0].carried_out);
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_request_plan_counts_once_merged_in_git() {
    let (world, _, mut conversations) = planning(deleting(&[A]), "d").await;
    for letter in ['c', 'd'] {
        world.show(letter, &deleting(&[A]), false).await;
    }
    let world = world.controlled();
    world.follow("one").await;
    carry_out(&mut conversations, &[A]).await;
    let ended = world.ended("one").await;
    let [merged] = &ended.merged_plans[..] else { panic!("{:?}", ended.merged_plans) };
    assert!(merged.carried_out && merged.commit == "d".repeat(40), "{merged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_waits_for_merge_detection() {
    let (world, _, mut conversations) = planning(deleting(&[A]), "").await;
    world.observe('m', 'b').await;
    let preview = world.show('c', &deleting(&[A]), false).await;
    let world = world.controlled();
    world.follow("one").await;
    world.until("one", |status| status.phase == RunPhase::Planning).await;
    assert!(conversations.try_recv().is_err());
    world.merge(&preview).await;
    world.observe('m', 'm').await;
    carry_out(&mut conversations, &[A]).await;
    assert!(world.ended("one").await.merged_plans[0].carried_out);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_awaits_pending_lookup_but_not_outage() {
    let (world, _, mut conversations) = planning(deleting(&[A, B]), "").await;
    world.observe('m', 'b').await;
    world.show('c', &deleting(&[A]), false).await;
    let sources = world.registry.api::<Source>();
    let say = async |why: &'static str| {
        let said = |source: &mut Source| {
            let conditions = &mut source.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::PULL_REQUESTS_PLANNED, false, why, "it answers 403", None);
        };
        sources.update_status_with("shop", "config", said).await.unwrap();
    };
    // It is there to be asked, though it takes no comments.
    say(reason::PULL_REQUESTS_NOT_REPORTED).await;
    let world = world.controlled();
    world.follow("one").await;
    let says = |status: &RunStatus| {
        let waiting = condition(&status.conditions, reason::WAITING);
        waiting
            .is_some_and(|waiting| waiting.message.starts_with("it is not known yet which pull requests were merged"))
    };
    world.until("one", says).await;
    assert!(conversations.try_recv().is_err());
    say(reason::PULL_REQUESTS_UNAVAILABLE).await;
    carry_out(&mut conversations, &[A, B]).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, ended.merged_plans.len()), (RunPhase::Succeeded, 0), "{ended:?}");
    assert!(world.journal("one").await.contains("only Git shows which pull requests were merged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn later_observed_commit_covers_deployed_commit() {
    let (world, _, mut conversations) = planning(deleting(&[A]), "m").await;
    world.observe('o', 'n').await;
    world.show('c', &deleting(&[B]), false).await;
    let world = world.controlled();
    world.follow("one").await;
    carry_out(&mut conversations, &[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
}
