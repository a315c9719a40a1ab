//! Runs whose changes somebody has to merge.

use std::sync::Mutex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_proto::Proposal;
use stoa_runs::testing::runner_at;
use stoa_types::{
    Release, Workspace,
    config::Deployment,
    platform::{CommitMode, GitOpsTarget, PullRequests},
};
use tokio::sync::mpsc;
use tonic::Status;

use super::fenced_runners::{A, Awaits, Conversation, Found, Proposed, Rendered, SOON, Scripted, deleting};
use super::{approval::told, *};

/// A world whose workspace has a repository with pull requests, and what is found of number 7.
async fn proposing() -> (TestServer, Proposed, mpsc::UnboundedReceiver<Conversation>) {
    proposing_of(Rendered::default()).await
}

/// The same, where the runner renders this.
async fn proposing_of(rendered: Rendered) -> (TestServer, Proposed, mpsc::UnboundedReceiver<Conversation>) {
    let proposed = Found::new(Ok(pull("Open", "c1")));
    let planned = Arc::new(Mutex::new(deleting(&[A])));
    let (address, conversations) = Scripted::rendering_and_proposing(planned, rendered, proposed.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let change = |workspace: &mut Workspace| {
        workspace.spec.gitops = Some(GitOpsTarget {
            repository: "https://git.example.com/shop/deploy.git".to_owned(),
            branch: "main".to_owned(),
            mode: CommitMode::PullRequest,
            pull_request: Some(PullRequests::default()),
            ..GitOpsTarget::default()
        });
    };
    world.registry.api::<Workspace>().update_with("", "dev", change).await.unwrap();
    (world, proposed, conversations)
}

/// The same, where the run `one` waits for its pull request to be merged.
async fn awaiting_merge() -> (TestServer, Proposed, mpsc::UnboundedReceiver<Conversation>) {
    let (world, proposed, mut conversations) = proposing().await;
    let world = world.controlled();
    world.destroy("one").await;
    next(&mut conversations).await.propose(A, pull("Open", "c1")).await;
    world.awaits_merge("one").await;
    (world, proposed, conversations)
}

fn pull(state: &str, commit: &str) -> Proposal {
    Proposal {
        number: 7,
        url: "https://git.example.com/shop/deploy/pulls/7".to_owned(),
        branch: "stoa/shop/web/dev".to_owned(),
        commit: commit.to_owned(),
        state: state.to_owned(),
        ..Proposal::default()
    }
}

async fn next(conversations: &mut mpsc::UnboundedReceiver<Conversation>) -> Conversation {
    let mut next = tokio::time::timeout(PATIENCE, conversations.recv()).await.expect("a runner is asked").unwrap();
    next.begin("only").await;
    next
}

impl TestServer {
    async fn awaits_merge(&self, run: &str) -> RunStatus {
        self.until(run, |status| status.phase == RunPhase::AwaitingMerge).await
    }

    /// Has the next look at the pull request of a run that waits be later than anything here takes: as after a day.
    async fn is_looked_at_late(&self, run: &str, proposed: &Found) {
        let long_ago = Time(Timestamp::now() - jiff::SignedDuration::from_hours(24));
        let wait = |run: &mut Run| {
            run.status.as_mut().unwrap().pull_request.as_mut().unwrap().time = Some(long_ago.clone());
        };
        self.registry.api::<Run>().update_status_with("shop", run, wait).await.unwrap();
        // One look may be due before that. Where none is, the run was put down only afterwards: either way the next is late.
        let _ = proposed.is_looked_at(1, SOON).await;
    }

    async fn releases(&self) -> usize {
        self.registry.api::<Release>().list(Some("shop"), "").await.unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_awaits_merge_without_lease_or_release() {
    let (world, proposed, mut conversations) = proposing().await;
    let world = world.controlled();
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Destroy", "timeout": "10s"});
    world.create("Run", "one", spec).await;
    let first = next(&mut conversations).await;
    assert_eq!(first.start.target.as_ref().unwrap().pull_request, 0);
    first.propose(A, pull("Open", "c1")).await;
    let waiting = world.awaits_merge("one").await;
    let page = "https://git.example.com/shop/deploy/pulls/7";
    let message = format!("pull request 7 ({page}) waits to be merged");
    assert_eq!(told(&waiting, reason::WAITING), ("True", reason::AWAITING_MERGE, message.as_str()));
    let noted = waiting.pull_request.clone().unwrap();
    assert_eq!((noted.number, noted.url.as_str(), noted.commit.as_str()), (7, page, "c1"));
    assert_eq!(waiting.progress.map(|progress| (progress.done, progress.failed)), Some((0, 0)));
    assert!(waiting.resources.iter().all(|resource| resource.phase == "Pending"), "{:?}", waiting.resources);
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let ready = condition(&stack.status.as_ref().unwrap().conditions, reason::READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason::AWAITING_MERGE));
    let recorded = world.services.log.scan("/stoa/state/", None).await.unwrap().entries;
    assert!(
        !recorded.iter().any(|entry| String::from_utf8_lossy(&entry.value).contains("\"intent\"")),
        "no call is open"
    );
    let lease = format!("run/{}/dev", stack.uid().unwrap());

    // Its time does not pass, which four looks are longer than, and it is looked at by looking at the pull request alone.
    proposed.looked_at(4).await;
    assert_eq!(world.awaits_merge("one").await.pull_request, Some(noted));
    assert!(conversations.try_recv().is_err(), "nothing is carried out");
    let held = world.services.log.acquire(&lease, "somebody", Duration::from_secs(30)).await.expect("nobody has it");
    world.services.log.release(&held).await.unwrap();
    // A server that is away ends nothing.
    proposed.set(Err(Status::invalid_argument("it answered 401 Unauthorized")));
    let is_told = |status: &RunStatus| {
        told(status, reason::WAITING).2.ends_with("its state is unknown: it answered 401 Unauthorized")
    };
    assert_eq!(world.until("one", is_told).await.phase, RunPhase::AwaitingMerge);
    assert_eq!(world.releases().await, 0);

    proposed.set(Ok(pull("Merged", "c1")));
    let second = next(&mut conversations).await;
    assert_eq!(second.start.target.as_ref().unwrap().pull_request, 7);
    let under_way = (Some("one".to_owned()), Some(RunPhase::Applying));
    assert_eq!(world.deployment().await, under_way, "nobody is waited for any more");
    second.carry_out(&[A]).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    assert!(ended.pull_request.unwrap().end_time.is_some() && condition(&ended.conditions, reason::WAITING).is_none());
    assert_eq!(world.releases().await, 1);
    assert!(world.journal("one").await.contains("pull request 7 is merged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn next_run_supersedes_run_awaiting_merge() {
    let (world, proposed, mut conversations) = awaiting_merge().await;
    world.destroy("two").await;
    let second = next(&mut conversations).await;
    assert_eq!(second.start.target.as_ref().unwrap().run_name, "two");
    proposed.set(Ok(pull("Open", "c2")));
    second.propose(A, pull("Open", "c2")).await;
    world.awaits_merge("two").await;
    let first = next(&mut conversations).await;
    assert_eq!(first.start.target.as_ref().unwrap().run_name, "one", "the branch moved on from its commit");
    first.propose(A, Proposal { by: "two".to_owned(), ..pull("Superseded", "c2") }).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Canceled, reason::SUPERSEDED));
    assert_eq!(world.deployment().await, (Some("two".to_owned()), Some(RunPhase::AwaitingMerge)));
    assert_eq!(world.releases().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_run_starts_before_pull_request_poll() {
    let (world, proposed, mut conversations) = awaiting_merge().await;
    world.is_looked_at_late("one", &proposed).await;
    world.destroy("two").await;
    let second = next(&mut conversations).await;
    assert_eq!(second.start.target.as_ref().unwrap().run_name, "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_request_that_is_closed_is_no_success() {
    let (world, proposed, mut conversations) = awaiting_merge().await;
    proposed.set(Ok(pull("Closed", "c1")));
    next(&mut conversations).await.propose(A, pull("Closed", "c1")).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::PULL_REQUEST_CLOSED));
    assert_eq!(world.releases().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_ends_run_awaiting_merge_immediately() {
    let (world, proposed, _conversations) = awaiting_merge().await;
    world.is_looked_at_late("one", &proposed).await;
    world.change("one", |run| run.spec.cancel = true).await;
    let ended = world.ended("one").await;
    assert_eq!(
        told(&ended, reason::FAILED),
        ("True", reason::CANCELED, "the run was cancelled; pull request 7 stays as it is (plan: +0 ~0 -1)")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn superseded_merged_run_records_nothing() {
    let (world, proposed, mut conversations) = proposing().await;
    let world = world.controlled();
    world.destroy("one").await;
    next(&mut conversations).await.propose(A, pull("Open", "c1")).await;
    assert_eq!(world.awaits_merge("one").await.pull_request.unwrap().release, Some(0));
    // What the first one proposed is merged, and the second one goes on from there before the first has looked.
    world.destroy("two").await;
    let second = next(&mut conversations).await;
    assert_eq!(second.start.target.as_ref().unwrap().run_name, "two");
    second.carry_out(&[A]).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Succeeded);
    proposed.set(Ok(pull("Merged", "c1")));
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Canceled, reason::SUPERSEDED));
    assert!(conversations.try_recv().is_err(), "nothing is carried out");
    assert_eq!(world.deployment().await, (Some("two".to_owned()), Some(RunPhase::Succeeded)));
    assert_eq!(world.releases().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_waiting_run_leaves_deployment_to_next_run() {
    let (world, _, mut conversations) = proposing().await;
    let world = world.controlled();
    world.destroy("one").await;
    next(&mut conversations).await.propose(A, pull("Open", "c1")).await;
    world.awaits_merge("one").await;
    world.destroy("two").await;
    let second = next(&mut conversations).await;
    let before = world.deployment().await;
    assert_eq!(before.0.as_deref(), Some("two"));
    world.change("one", |run| run.spec.cancel = true).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Canceled);
    assert_eq!(world.deployment().await, before);
    second.carry_out(&[A]).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_successor_restores_cancelled_run_as_last() {
    let held = Awaits::new(vec!["somebody".to_owned()]);
    let (spec, lacking) = (r#"{"resources":[]}"#, "latest");
    let rendered = Rendered { spec, lacking, held: held.clone(), ..Rendered::default() };
    let (world, _, mut conversations) = proposing_of(rendered).await;
    let world = world.controlled();
    world.destroy("one").await;
    next(&mut conversations).await.propose(A, pull("Open", "c1")).await;
    world.awaits_merge("one").await;
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "version": "latest"});
    world.create("Run", "two", spec).await;
    let says = |of: &Deployment, phase: RunPhase| {
        let is_before = of.before.as_ref().is_some_and(|before| before.run == "one" && before.phase == phase);
        of.last_run.as_deref() == Some("two") && is_before
    };
    world.deployed(|of| says(of, RunPhase::AwaitingMerge)).await;
    world.change("one", |run| run.spec.cancel = true).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Canceled);
    world.deployed(|of| says(of, RunPhase::Canceled)).await;

    held.send_replace(Vec::new());
    let ended = world.ended("two").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::SOURCE_NOT_FOUND));
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Canceled)));
    let status = world.registry.api::<Stack>().get("shop", "web").await.unwrap().status.unwrap();
    let ready = condition(&status.conditions, reason::READY).unwrap();
    assert_eq!(ready.reason, reason::NOT_DEPLOYED, "what was not merged changed nothing: {ready:?}");
    let last = condition(&status.conditions, reason::LAST_RUN).unwrap();
    let message = "run one in workspace dev: the run was cancelled; pull request 7 stays as it is (plan: +0 ~0 -1)";
    assert_eq!((last.reason.as_str(), last.message.as_str()), (reason::CANCELED, message));
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_updates_pull_request_once_per_base() {
    let (world, proposed, mut conversations) = awaiting_merge().await;
    let conflict = |commit: &str, base: &str| {
        Ok(Proposal { in_conflict: true, base_commit: base.to_owned(), ..pull("Open", commit) })
    };
    proposed.set(conflict("c1", "b1"));
    let again = next(&mut conversations).await;
    assert_eq!(again.start.target.as_ref().unwrap().pull_request, 7);
    proposed.set(Ok(pull("Open", "c2")));
    again.propose(A, pull("Open", "c2")).await;
    let waits = |status: &RunStatus| told(status, reason::WAITING).2.ends_with("waits to be merged");
    let is_anew = |status: &RunStatus| status.pull_request.as_ref().is_some_and(|pull| pull.commit == "c2");
    let anew = world.until("one", |status| waits(status) && is_anew(status)).await;
    assert_eq!(anew.pull_request.unwrap().unmergeable_into, None);

    // With commits of others it is left to them, and not tried again and again.
    proposed.set(conflict("c2", "b2"));
    let blocked = "branch stoa/shop/web/dev has commits of others".to_owned();
    next(&mut conversations).await.propose(A, Proposal { blocked, ..pull("Open", "c2") }).await;
    let page = "https://git.example.com/shop/deploy/pulls/7";
    let expected = format!(
        "pull request 7 ({page}) cannot be merged as it is, into b2: branch stoa/shop/web/dev has commits of others"
    );
    world.until("one", |status| told(status, reason::WAITING).2 == expected).await;
    // What it says is for people alone.
    let reword = |run: &mut Run| {
        let conditions = &mut run.status.get_or_insert_default().conditions;
        let waiting = conditions.iter_mut().find(|condition| condition.type_ == reason::WAITING).unwrap();
        waiting.message = "it waits".to_owned();
    };
    world.registry.api::<Run>().update_status_with("shop", "one", reword).await.unwrap();
    // The second look begins once the first is over.
    proposed.looked_at(2).await;
    assert!(conversations.try_recv().is_err(), "the base is the same");
    let waiting = world.awaits_merge("one").await;
    assert_eq!(
        (waiting.completion_time, waiting.pull_request.unwrap().unmergeable_into),
        (None, Some("b2".to_owned()))
    );
    proposed.set(conflict("c2", "b3"));
    next(&mut conversations).await.propose(A, pull("Open", "c3")).await;
    world.until("one", waits).await;
}

#[test]
fn merge_wait_spends_no_run_time() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let run = |end_time: Option<&str>| -> Run {
        let pull = json!({"number": 7, "time": "2026-01-01T01:00:10Z", "endTime": end_time});
        let status = json!({"startTime": "2026-01-01T01:00:00Z", "phase": "AwaitingMerge", "pullRequest": pull});
        let spec = json!({"stack": "web", "operation": "Apply"});
        serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec, "status": status})).unwrap()
    };
    assert_eq!(Stopwatch::new(&run(None), now).before, Duration::from_secs(10));
    assert_eq!(Stopwatch::new(&run(Some("2026-01-01T11:59:00Z")), now).before, Duration::from_secs(70));
    // It is looked at less and less often.
    let waits = |minutes: i64| {
        let mut run = run(None);
        let since = now.checked_sub(jiff::SignedDuration::from_mins(minutes)).unwrap();
        run.status.as_mut().unwrap().pull_request.as_mut().unwrap().time = Some(Time(since));
        look_after(&run, now).as_secs()
    };
    assert_eq!([0, 1, 10, 100, -5].map(waits), [3, 3, 30, 60, 3]);
}
