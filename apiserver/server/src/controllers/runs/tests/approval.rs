//! Runs whose plan somebody has to approve.

use std::sync::{Mutex, atomic::AtomicBool};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_machinery::{
    ApiError,
    auth::{AllowAll, Attributes, Authorizer, Decision},
    registry::{Target, UpdateSource},
    request::UserInfo,
};
use stoa_runs::testing::runner_at;
use stoa_types::Workspace;
use tokio::sync::mpsc;

use super::fenced_runners::{A, Conversation, Planned, Scripted, deleting};
use super::*;

const B: &str = "v1:ConfigMap:shop:b";

/// A world whose workspace wants plans approved, before its controller is at work.
async fn guarded() -> (TestServer, Planned, mpsc::UnboundedReceiver<Conversation>) {
    let planned: Planned = Arc::new(Mutex::new(deleting(&[A])));
    let (address, conversations) = Scripted::planning(planned.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let workspaces = world.registry.api::<Workspace>();
    workspaces
        .update_with("", "dev", |workspace: &mut Workspace| workspace.spec.require_approval = true)
        .await
        .unwrap();
    (world, planned, conversations)
}

fn by(name: &str) -> RequestContext {
    RequestContext::new(UserInfo { name: name.to_owned(), ..UserInfo::default() }, Arc::new(AllowAll))
}

impl TestServer {
    pub(super) async fn waits(&self, run: &str) -> RunStatus {
        self.until(run, |status| {
            status.phase == RunPhase::AwaitingApproval && condition(&status.conditions, reason::WAITING).is_some()
        })
        .await
    }

    /// Starts a Destroy that is not the server's own.
    pub(super) async fn destroy_for_ann(&self, name: &str) {
        let Value::Object(run) = json!({"metadata": {"name": name},
            "spec": {"stack": "web", "workspace": "dev", "operation": "Destroy"}})
        else {
            unreachable!("a map")
        };
        let store = self.registry.store("delivery.stoa.dev", "v1alpha1", "runs").unwrap();
        store.create(&by("ann"), "shop", Object(run)).await.unwrap();
    }

    /// Decides about the plan that waits.
    pub(super) async fn decide(&self, run: &str, decision: &str) {
        let digest = status(&self.registry.api::<Run>().get("shop", run).await.unwrap()).plan.unwrap().digest;
        self.decide_about(run, &digest, decision).await.unwrap();
    }

    /// Decides about a plan, as far as that is allowed.
    pub(super) async fn decide_about(&self, run: &str, digest: &str, decision: &str) -> Result<(), ApiError> {
        let change = UpdateSource::transform(|current: &Object| {
            let mut new = current.clone();
            new.0["status"]["approval"] = json!({"planDigest": digest, "decision": decision, "message": "looked at"});
            Ok(new)
        });
        let store = self.registry.store("delivery.stoa.dev", "v1alpha1", "runs").unwrap();
        store.update(&by("bob"), "shop", run, Target::Part("approval"), change).await.map(drop)
    }
}

pub(super) fn told<'a>(status: &'a RunStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = condition(&status.conditions, type_).unwrap_or_else(|| panic!("{type_} is told in {status:?}"));
    (found.status.as_str(), found.reason.as_str(), found.message.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_awaits_approval_without_lease_or_runner() {
    let (world, _, mut conversations) = guarded().await;
    let world = world.controlled();
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Destroy", "timeout": "10s"});
    world.create("Run", "one", spec).await;
    let waiting = world.waits("one").await;
    let digest = deleting(&[A]).digest();
    let message = format!("plan {digest} (+0 ~0 -1) waits for approval, requested by workspace dev");
    assert_eq!(told(&waiting, reason::WAITING), ("True", reason::AWAITING_APPROVAL, message.as_str()));
    assert!(world.journal("one").await.contains(&format!("AwaitingApproval: {message}")));
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let ready = condition(&stack.status.as_ref().unwrap().conditions, reason::READY).unwrap();
    assert_eq!(ready.reason, reason::AWAITING_APPROVAL, "{}", ready.message);

    world.destroy("two").await;
    // Its time does not pass.
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    assert!(awaits_approval(&world.registry.api::<Run>().get("shop", "one").await.unwrap()));
    assert_eq!(status(&world.registry.api::<Run>().get("shop", "two").await.unwrap()).phase, RunPhase::Pending);
    assert!(conversations.try_recv().is_err(), "no runner is asked");
    let lease = format!("run/{}/dev", stack.uid().unwrap());
    let held = world.services.log.acquire(&lease, "somebody", Duration::from_secs(30)).await.expect("nobody has it");
    world.services.log.release(&held).await.unwrap();

    world.decide("one", "Approved").await;
    let mut conversation = conversations.recv().await.unwrap();
    conversation.begin("only").await;
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Applying)), "nobody is waited for");
    conversation.carry_out(&[A]).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    let sentence = format!("bob approved plan {digest} (+0 ~0 -1): looked at");
    assert_eq!(told(&ended, reason::APPROVED), ("True", reason::APPROVED, sentence.as_str()));
    assert_eq!(world.journal("one").await.matches(&sentence).count(), 1);
    // What was approved was one plan and no other.
    world.waits("two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_plan_fails_the_run_and_changes_nothing() {
    let (world, _, mut conversations) = guarded().await;
    let world = world.controlled();
    world.destroy("one").await;
    world.waits("one").await;
    world.destroy("two").await;
    world.decide("one", "Rejected").await;
    let ended = world.ended("one").await;
    let sentence = format!("bob rejected plan {} (+0 ~0 -1): looked at", deleting(&[A]).digest());
    assert_eq!((ended.phase, told(&ended, reason::FAILED)), (RunPhase::Failed, ("True", "Rejected", &*sentence)));
    assert_eq!(told(&ended, reason::APPROVED), ("False", "Rejected", sentence.as_str()));
    world.waits("two").await;
    assert!(conversations.try_recv().is_err());
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap().status.unwrap();
    assert_eq!(stack.deployments[0].incomplete, None, "what is deployed is as before");
    let last = condition(&stack.conditions, reason::LAST_RUN).unwrap();
    let said = (last.status.as_str(), last.reason.as_str(), last.message.as_str());
    assert_eq!(said, ("False", reason::REJECTED, &*format!("run one in workspace dev: {sentence}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn decided_run_retains_queue_turn_while_suspending() {
    let (world, _, _conversations) = guarded().await;
    let mut scheduler = Scheduler::new(world.services.clone(), world.end.clone());
    let runs = world.registry.api::<Run>();
    for name in ["one", "two"] {
        world.destroy(name).await;
        scheduler.see(runs.get("shop", name).await.unwrap()).await;
    }
    world.waits("one").await;
    world.decide("one", "Rejected").await;
    // Its task has not ended yet, as far as the scheduler knows.
    scheduler.see(runs.get("shop", "one").await.unwrap()).await;
    let one = scheduler.next_ends().await;
    assert!(scheduler.lanes.has_turn(&one) && scheduler.tasks.is_empty());
    scheduler.sweep().await;
    let again = scheduler.tasks.join_next().await.expect("it goes on").unwrap();
    assert_eq!((again.uid.as_str(), world.ended("one").await.phase), (one.as_str(), RunPhase::Failed));
    assert_eq!(status(&runs.get("shop", "two").await.unwrap()).phase, RunPhase::Pending);
    scheduler.ended(again).await;
    world.waits("two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_waiting_run_spends_no_time() {
    let (world, _, _conversations) = guarded().await;
    let mut scheduler = Scheduler::new(world.services.clone(), world.end.clone());
    world.destroy("one").await;
    scheduler.see(world.registry.api::<Run>().get("shop", "one").await.unwrap()).await;
    world.waits("one").await;
    let ended = scheduler.tasks.join_next().await.unwrap().unwrap();
    let one = ended.uid.clone();
    let lookup = std::mem::take(&mut scheduler.services.lookup);
    scheduler.ended(ended).await;
    scheduler.services.lookup = lookup;
    let spent = scheduler.began[&one].spent();
    tokio::time::sleep(Duration::from_millis(20)).await;
    scheduler.later.values_mut().for_each(|at| *at = Instant::now());
    scheduler.sweep().await;
    assert!(scheduler.lanes.has_turn(&one) && scheduler.tasks.is_empty());
    assert_eq!(scheduler.began[&one].spent(), spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_stale_plan_fails_with_changes() {
    let (world, planned, mut conversations) = guarded().await;
    let world = world.controlled();
    world.destroy("one").await;
    world.waits("one").await;
    *planned.lock().unwrap() = deleting(&[A, B]);
    world.decide("one", "Approved").await;
    let ended = world.ended("one").await;
    let (_, why, message) = told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why), (RunPhase::Failed, reason::PLAN_STALE));
    let change = format!("{B}: nothing was planned, now Delete");
    assert!(message.ends_with(&format!("{change} (plan: +0 ~0 -1)")), "{message}");
    assert!(world.journal("one").await.contains(&change));
    assert!(conversations.try_recv().is_err(), "nothing is applied of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_without_changes_needs_no_approval() {
    let (world, planned, mut conversations) = guarded().await;
    let world = world.controlled();
    *planned.lock().unwrap() = deleting(&[]);
    world.destroy("one").await;
    let mut conversation = conversations.recv().await.unwrap();
    conversation.begin("only").await;
    conversation.carry_out(&[]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_wait_survives_restart() {
    let (world, planned, mut conversations) = guarded().await;
    let first = world.end.child_token();
    let controller = tokio::spawn(run(world.services.clone(), first.clone()));
    // What was created in the same second has its turn by its name after a restart.
    for name in ["a", "b", "c", "d"] {
        world.destroy_for_ann(name).await;
    }
    world.waits("a").await;
    first.cancel();
    controller.await.unwrap();
    // Had it not been decided about before, it would be planned again, and otherwise.
    *planned.lock().unwrap() = deleting(&[A, B]);
    let world = world.controlled();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(awaits_approval(&world.registry.api::<Run>().get("shop", "a").await.unwrap()));
    *planned.lock().unwrap() = deleting(&[A]);
    world.decide("a", "Approved").await;
    let mut conversation = conversations.recv().await.unwrap();
    conversation.begin("only").await;
    conversation.carry_out(&[A]).await;
    assert_eq!(world.ended("a").await.phase, RunPhase::Succeeded);

    world.waits("b").await;
    world.change("b", |run| run.spec.cancel = true).await;
    assert_eq!(world.ended("b").await.phase, RunPhase::Canceled);
    world.waits("c").await;
    world.registry.api::<Run>().delete("shop", "c", &DeleteOptions::default()).await.unwrap();
    world.waits("d").await;
    // The next does not wait for what is removed with it.
    let runs = world.registry.api::<Run>();
    let gone = async {
        while runs.get_opt("shop", "c").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it goes");
}

/// Allows everything until it is told otherwise.
#[derive(Debug, Default)]
struct Revocable(AtomicBool);

#[async_trait]
impl Authorizer for Revocable {
    async fn authorize(&self, user: &UserInfo, _: &Attributes) -> Result<Decision, stoa_machinery::ApiError> {
        let is_denied = user.name == "ann" && self.0.load(Ordering::Relaxed);
        Ok(if is_denied { Decision::Deny(String::new()) } else { Decision::Allow(String::new()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_permission_fails_approved_run() {
    let (mut world, _, mut conversations) = guarded().await;
    let authorizer = Arc::new(Revocable::default());
    world.services.authorizer = authorizer.clone();
    let world = world.controlled();
    world.destroy_for_ann("one").await;
    world.waits("one").await;
    authorizer.0.store(true, Ordering::Relaxed);
    world.decide("one", "Approved").await;
    let ended = world.ended("one").await;
    let (_, why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::PERMISSION_DENIED, "{message}");
    assert!(message.contains("User \"ann\" cannot create resource \"stacks/destroy\""), "{message}");
    assert!(conversations.try_recv().is_err());
}

#[test]
fn approval_wait_spends_no_run_time() {
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
    let mut run = Run::new("one", serde_json::from_value(spec).unwrap());
    let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
    let spent = |run: &Run, now: i64| Stopwatch::new(run, at(now)).before.as_secs();
    let set = run.status.get_or_insert_default();
    set.start_time = Some(Time(at(0)));
    set.phase = RunPhase::Planning;
    assert_eq!(spent(&run, 50), 50);
    let set = run.status.get_or_insert_default();
    set.plan = Some(serde_json::from_value(json!({"digest": "sha256:0", "time": at(10)})).unwrap());
    set.phase = RunPhase::AwaitingApproval;
    assert_eq!(spent(&run, 50), 10);
    let set = run.status.get_or_insert_default();
    let approval = json!({"planDigest": "sha256:0", "decision": "Approved", "time": at(1_000)});
    set.approval = Some(serde_json::from_value(approval).unwrap());
    assert_eq!(spent(&run, 1_005), 15);
    set_phase(&mut run, RunPhase::Applying);
    assert_eq!(spent(&run, 1_050), 60);
}

fn set_phase(run: &mut Run, phase: RunPhase) {
    run.status.get_or_insert_default().phase = phase;
}

#[tokio::test]
async fn deletion_never_repeats_rejected_destroy() {
    let world = TestServer::new().await;
    let stacks = world.registry.api::<Stack>();
    let stack = stacks
        .update_status_with("shop", "web", deploying(json!([{"workspace": "dev", "resources": 1}])))
        .await
        .unwrap();
    world.apply("change").await;
    let runs = world.registry.api::<Run>();
    let wait = |run: &mut Run| set_phase(run, RunPhase::AwaitingApproval);
    runs.update_status_with("shop", "change", wait).await.unwrap();
    crate::controllers::stacks::destroy(&world.services, &stack).await.unwrap();
    assert!(runs.get("shop", "change").await.unwrap().spec.cancel, "it would have its turn first");
    let destroys = || async {
        let all = runs.list(Some("shop"), "").await.unwrap();
        all.into_iter().filter(|run| run.name_any() != "change").collect::<Vec<_>>()
    };
    let started = destroys().await;
    assert_eq!(started.len(), 1);
    let long_ago = Time(Timestamp::now() - jiff::SignedDuration::from_secs(3_600));
    let end = |rejected: bool| {
        let long_ago = long_ago.clone();
        move |run: &mut Run| {
            let approval = json!({"planDigest": "sha256:0", "decision": "Rejected"});
            let status = run.status.get_or_insert_default();
            status.phase = RunPhase::Failed;
            status.completion_time = Some(long_ago.clone());
            status.approval = rejected.then(|| serde_json::from_value(approval).unwrap());
        }
    };
    runs.update_status_with("shop", &started[0].name_any(), end(true)).await.unwrap();
    crate::controllers::stacks::destroy(&world.services, &stack).await.unwrap();
    assert_eq!(destroys().await.len(), 1, "it was rejected");
    let mut of_the_same_name = stack.clone();
    of_the_same_name.metadata.uid = Some("another".to_owned());
    let of = |uid: Option<String>| move |run: &mut Run| run.status.get_or_insert_default().stack_uid.clone_from(&uid);
    runs.update_status_with("shop", &started[0].name_any(), of(stack.uid())).await.unwrap();
    crate::controllers::stacks::destroy(&world.services, &of_the_same_name).await.unwrap();
    assert_eq!(destroys().await.len(), 2, "another stack of the name was meant");
    runs.update_status_with("shop", &started[0].name_any(), of(None)).await.unwrap();
    let others = destroys().await.into_iter().filter(|run| run.name_any() != started[0].name_any());
    for run in others {
        runs.update_status_with("shop", &run.name_any(), end(false)).await.unwrap();
    }
    runs.update_status_with("shop", &started[0].name_any(), end(false)).await.unwrap();
    crate::controllers::stacks::destroy(&world.services, &stack).await.unwrap();
    assert_eq!(destroys().await.len(), 3);
}
