//! What is planned and told, over a log in memory, a server of pull requests on loopback, and a runner that knows commits by heart.

mod merges;
mod reporter;

use bytes::Bytes;
use git2::{Oid, Repository};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use stoa_controller::conditions::set_condition;
use stoa_engine::{Action, PlannedAction, ResourceType, digest::canonical_json};
use stoa_kinds::{pull_request::USER, run_status::status};
use stoa_pulls::testing::{Forge, Merge};
use stoa_types::{
    Condition, SecretReference,
    common::condition,
    delivery::{Operation, PlanStatus, PlanSummary, RunPhase},
};
use tempfile::TempDir;

use super::{
    plans::{UNDER_WAY, UNDER_WAY_EACH},
    *,
};
use crate::{controllers::triggers::tests::Commits, testing::TestServer as Runs};

const TOKEN: &str = "s3cr3t-of-the-forge";

struct Bed {
    runs: Runs,
    commits: Commits,
    known: Known,
    forge: Forge,
    folder: TempDir,
}

impl Bed {
    /// A stack `web` that is applied to workspace `dev` by itself, and a server where its source may have pull requests.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = git2::RepositoryInitOptions::new();
        options.bare(true).mkpath(true).initial_head("main");
        Repository::init_opts(folder.path().join("shop/config.git"), &options).unwrap();
        let forge = Forge::start(folder.path(), TOKEN).await;
        let commits = Commits::default();
        let runs = Runs::with_runner_and_secrets(commits.runner()).await;
        let bed = Self { runs, commits, known: Known::default(), forge, folder };
        let data = [("token".to_owned(), k8s_openapi::ByteString(TOKEN.into()))];
        let mut secret = Secret { data: Some(data.into()), ..Secret::default() };
        (secret.metadata.namespace, secret.metadata.name) = (Some("shop".to_owned()), Some("forge".to_owned()));
        bed.runs.registry.api::<Secret>().create(&secret).await.unwrap();
        let base = bed.push("main", "1");
        let remote = format!("{}/shop/config.git", bed.forge.url());
        bed.change_source(|source| {
            source.spec.remote = remote.clone();
            source.spec.poll_interval = "1s".into();
            source.spec.pull_requests = Some(PullRequestPlans {
                secret_ref: Some(SecretReference { name: "forge".to_owned(), namespace: None }),
                ..PullRequestPlans::default()
            });
        })
        .await;
        bed.observe(base).await;
        bed.change_stack(|stack| {
            stack.spec.trigger = stoa_types::config::Trigger::Apply;
            stack.spec.workspaces = vec!["dev".to_owned()];
        })
        .await;
        bed
    }

    /// A commit on a branch, in which the folder of the stack `web` has this content.
    fn push(&self, branch: &str, content: &str) -> Oid {
        let repository = Repository::open_bare(self.folder.path().join("shop/config.git")).unwrap();
        let name = format!("refs/heads/{branch}");
        let of = |name: &str| repository.find_reference(name).ok()?.peel_to_commit().ok();
        let parent = of(&name).or_else(|| of("refs/heads/main"));
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("web", repository.blob(content.as_bytes()).unwrap(), 0o100_644).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let me = git2::Signature::now("me", "me@example.com").unwrap();
        let parents: Vec<_> = parent.iter().collect();
        let message = format!("{branch} {content}");
        let commit = repository.commit(None, &me, &me, &message, &tree, &parents).unwrap();
        repository.reference(&name, commit, true, "test").unwrap();
        self.commits.0.lock().insert(commit.to_string(), content.to_owned());
        commit
    }

    /// The source is found at a commit.
    async fn observe(&self, commit: Oid) {
        let moved = |source: &mut Source| {
            source.status.get_or_insert_default().observed_commit = Some(commit.to_string());
        };
        self.runs.registry.api::<Source>().update_status_with("shop", "config", moved).await.unwrap();
    }

    async fn change_source(&self, change: impl FnMut(&mut Source) + Send) {
        self.runs.registry.api::<Source>().update_with("shop", "config", change).await.unwrap();
    }

    async fn change_stack(&self, change: impl FnMut(&mut Stack) + Send) {
        self.runs.registry.api::<Stack>().update_with("shop", "web", change).await.unwrap();
    }

    /// Looks as the controller does once the interval has passed; the condition after that.
    async fn look(&self) -> Option<Condition> {
        // As another leader would, which knows nothing.
        self.known.forget(&key());
        self.look_again().await;
        let status = self.source().await.status.unwrap();
        condition(&status.conditions, reason::PULL_REQUESTS_PLANNED).cloned()
    }

    async fn look_again(&self) -> Option<Duration> {
        let again = self.look_only().await;
        self.tell().await;
        again
    }

    /// Looks, and tells nothing.
    async fn look_only(&self) -> Option<Duration> {
        let turns = ProbeSlots::default().of("shop");
        Box::pin(look(self.runs.services.clone(), self.known.clone(), turns, key())).await.unwrap()
    }

    /// Tells what there is to tell; when to go on.
    async fn tell(&self) -> Option<Duration> {
        let turns = ProbeSlots::default().of("shop");
        super::reporter::look(self.runs.services.clone(), self.known.clone(), turns, key()).await.unwrap()
    }

    /// Has the list answered, and what it leads to refused.
    async fn refuse_what_the_list_leads_to(&self) {
        self.known.forget(&key());
        let source = self.source().await;
        let plans = source.spec.pull_requests.clone().unwrap();
        let client = self.known.client(&self.runs.services, &key(), &source, &plans).await.unwrap();
        assert!(matches!(self.known.pulls(&key(), &source, &*client).await, Ok(Due::Now(_))));
        self.forge.refuse_next(500, "0");
    }

    async fn source(&self) -> Source {
        self.runs.registry.api::<Source>().get("shop", "config").await.unwrap()
    }

    /// What is known of pull requests, as `<number> <phase> <plans>`.
    async fn noted(&self) -> Vec<String> {
        let status = self.source().await.status.unwrap();
        status.pull_requests.iter().map(|pull| format!("{} {:?} {}", pull.number, pull.phase, pull.plans)).collect()
    }

    async fn plans(&self) -> Vec<Run> {
        plans_of(&self.runs.services, &key()).await.unwrap()
    }

    /// The only run that there is.
    async fn plan(&self) -> Run {
        let mut plans = self.plans().await;
        assert_eq!(plans.len(), 1, "{plans:#?}");
        plans.remove(0)
    }

    async fn write(&self, run: &Run, change: impl FnMut(&mut Run) + Send) {
        self.runs.registry.api::<Run>().update_status_with("shop", &run.name_any(), change).await.unwrap();
    }

    /// Ends a run with a plan that creates what is named.
    async fn make(&self, run: &Run, creates: &[&str]) {
        let action = |name: &&str| PlannedAction::new((*name).into(), ResourceType::Kubernetes, Action::Create);
        let plan = stoa_engine::Plan { actions: creates.iter().map(action).collect(), ..stoa_engine::Plan::of("") };
        let stack = self.runs.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let store = self.runs.services.backends.store("default").await.unwrap();
        let scope = format!("shop/{}", stack.uid().unwrap());
        let document = store.put(&scope, Bytes::from(canonical_json(&plan))).await.unwrap().to_string();
        let create = i64::try_from(creates.len()).unwrap();
        let made = PlanStatus {
            digest: format!("sha256:{create}"),
            document,
            summary: PlanSummary { create, ..PlanSummary::default() },
            ..PlanStatus::default()
        };
        let make = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            (status.phase, status.plan) = (RunPhase::Succeeded, Some(made.clone()));
            status.stack_uid = stack.uid();
        };
        self.write(run, make).await;
    }

    /// What was said of commits, as `<first digits> <state>: <description>`.
    fn said(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = |(of, said): &(String, Value)| {
            format!("{} {}: {}", &of[..4], text(&said["state"]), text(&said["description"]))
        };
        self.forge.statuses().iter().map(told).collect()
    }
}

fn key() -> ObjectKey {
    ("shop".to_owned(), "config".to_owned())
}

fn begin(commit: Oid) -> String {
    commit.to_string()[..4].to_owned()
}

#[tokio::test]
async fn pull_request_is_told_once_what_it_would_change() {
    let bed = Bed::new().await;
    let head = bed.push("better", "2");
    let number = bed.forge.open("shop/config", "better", "main", None);
    let told = bed.look().await.unwrap();
    assert_eq!((told.status.as_str(), told.message.as_str()), ("True", "1 of 1 open pull requests change stacks"));
    let run = bed.plan().await;
    assert_eq!((run.spec.operation, run.spec.version.clone()), (Operation::Preview, Some(head.to_string())));
    assert_eq!((run.spec.stack.as_str(), run.spec.workspace.as_str()), ("web", "dev"));
    let requester = status(&run).requester;
    assert_eq!(requester.username, USER);
    assert!(requester.extra[labels::PULL_REQUEST][0].ends_with("/shop/config/pulls/1"), "{requester:?}");
    let begin = begin(head);
    assert_eq!(bed.said(), [format!("{begin} pending: 1 plan to be made")]);
    assert!(bed.forge.comments(number).is_empty());
    assert_eq!(bed.noted().await, ["1 Pending 1"]);

    bed.make(&run, &["v1:ConfigMap:shop:web"]).await;
    bed.look().await;
    let expected = [format!("{begin} pending: 1 plan to be made"), format!("{begin} success: 1 plan: 1 to create")];
    assert_eq!(bed.said(), expected);
    let comments = bed.forge.comments(number);
    assert_eq!(comments.len(), 1);
    for part in ["| web | dev | 1 to create | `sha256:1` |", "+ create   v1:ConfigMap:shop:web", &run.name_any()] {
        assert!(comments[0].contains(part), "{part}: {}", comments[0]);
    }
    assert!(!comments[0].contains(TOKEN));
    assert_eq!(bed.noted().await, ["1 Succeeded 1"]);

    let asked = bed.forge.requests().len();
    bed.look().await;
    assert_eq!(bed.forge.requests()[asked..], ["GET /api/v1/repos/shop/config/pulls"], "there is no news");
    // Its name follows from what is planned, so that this is how to have it planned anew.
    let runs = bed.runs.registry.api::<Run>();
    runs.delete("shop", &run.name_any(), &Default::default()).await.unwrap();
    runs.update_with("shop", &run.name_any(), |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    bed.look().await;
    assert_eq!(bed.plan().await.name_any(), run.name_any());
    assert_eq!(bed.said().len(), 3);
}

#[tokio::test]
async fn push_renews_plan_and_updates_comment() {
    let bed = Bed::new().await;
    bed.push("better", "2");
    let number = bed.forge.open("shop/config", "better", "main", None);
    bed.look().await;
    let first = bed.plan().await;
    bed.make(&first, &["a"]).await;
    bed.look().await;
    let head = bed.push("better", "3");
    bed.look().await;
    let is_going = |run: &Run| run.metadata.deletion_timestamp.is_some();
    let plans = bed.plans().await;
    let second = plans.iter().find(|run| !is_going(run)).unwrap();
    assert_eq!(second.spec.version, Some(head.to_string()));
    assert!(plans.iter().all(|run| run.name_any() == second.name_any() || is_going(run)), "the first goes");
    bed.make(second, &["a", "b"]).await;
    bed.look().await;
    let comments = bed.forge.comments(number);
    assert_eq!(comments.len(), 1);
    assert!(comments[0].contains(&format!("Plans of {}", &head.to_string()[..8])), "{}", comments[0]);
    assert!(comments[0].contains("2 to create"), "{}", comments[0]);

    // Now it changes nothing any more, which is told since something else was told before.
    bed.push("better", "1");
    bed.look().await;
    assert!(bed.forge.comments(number)[0].contains("No stack changes."));
    assert_eq!(bed.noted().await, ["1 Succeeded 0"]);
    assert!(bed.plans().await.iter().all(is_going));
}

#[tokio::test]
async fn recreated_source_reuses_no_cached_pull_requests() {
    let bed = Bed::new().await;
    let sources = bed.runs.registry.api::<Source>();
    let mut source = Source::new("config", bed.source().await.spec);
    source.metadata.namespace = Some("shop".to_owned());
    source.spec.poll_interval = "1h".into();
    let lists = || bed.forge.requests().iter().filter(|request| request.ends_with("/pulls")).count();
    for times in 1..=2 {
        bed.runs.lose("/registry/config.stoa.dev/sources/shop/config").await;
        sources.create(&source).await.unwrap();
        for _ in 0..2 {
            bed.look_again().await;
            assert_eq!(lists(), times, "the answer is good for an hour, and for one Source");
        }
    }
}

#[tokio::test]
async fn nothing_is_made_twice_after_a_crash() {
    let bed = Bed::new().await;
    bed.push("better", "2");
    let number = bed.forge.open("shop/config", "better", "main", None);
    bed.look().await;
    let run = bed.plan().await;
    bed.make(&run, &["a"]).await;
    bed.look().await;
    let (said, comments) = (bed.said(), bed.forge.comments(number));
    // The server ended before it noted what it did.
    let forget = |source: &mut Source| source.status.get_or_insert_default().pull_requests.clear();
    bed.runs.registry.api::<Source>().update_status_with("shop", "config", forget).await.unwrap();
    bed.look().await;
    assert_eq!((bed.said(), bed.forge.comments(number)), (said, comments));
    assert_eq!(bed.plan().await.name_any(), run.name_any());
    assert_eq!(bed.noted().await, ["1 Succeeded 1"]);
}

#[tokio::test]
async fn pull_request_without_stack_changes_gets_status_only() {
    let bed = Bed::new().await;
    let head = bed.push("docs", "1");
    let number = bed.forge.open("shop/config", "docs", "main", None);
    bed.push("release", "2");
    bed.forge.open("shop/config", "docs", "release", None);
    let told = bed.look().await.unwrap();
    assert_eq!(told.message, "0 of 1 open pull requests change stacks", "the other goes elsewhere");
    assert_eq!(bed.said(), [format!("{} success: no stack changes", begin(head))]);
    assert!(bed.forge.comments(number).is_empty() && bed.plans().await.is_empty());

    // Stacks that nothing is started for by itself are not planned either, nor those that stay where they are.
    bed.push("docs", "2");
    let set = async |trigger, version: &str| {
        bed.change_stack(|stack| (stack.spec.trigger, stack.spec.desired_version) = (trigger, version.to_owned()))
            .await;
        bed.look().await;
        bed.plans().await.len()
    };
    use stoa_types::config::Trigger;
    assert_eq!(set(Trigger::Manual, "latest").await, 0);
    assert_eq!(set(Trigger::Apply, "v1").await, 0);
    assert_eq!(set(Trigger::Preview, "latest").await, 1);
}

#[tokio::test]
async fn what_was_closed_leaves_nothing_that_is_pending() {
    let bed = Bed::new().await;
    let closed = bed.push("closed", "2");
    let merged = bed.push("merged", "3");
    bed.forge.open("shop/config", "closed", "main", None);
    bed.forge.open("shop/config", "merged", "main", None);
    bed.look().await;
    assert_eq!(bed.noted().await, ["1 Pending 1", "2 Pending 1"]);
    for run in bed.plans().await {
        if run.spec.version == Some(merged.to_string()) {
            bed.make(&run, &["a"]).await;
        }
    }
    bed.look().await;
    bed.forge.close(1);
    let at = bed.forge.merge(2, Merge::Commit);
    bed.commits.0.lock().insert(at.to_string(), "3".to_owned());
    bed.observe(at).await;
    let before = bed.said().len();
    bed.look().await;
    assert!(bed.noted().await.is_empty());
    for plan in bed.plans().await {
        let is_merged = plan.spec.version == Some(merged.to_string());
        assert_eq!(plan.metadata.deletion_timestamp.is_none(), is_merged, "what was merged is still to be deployed");
    }
    let expected = format!("{} error: not planned, because the pull request is no longer open", begin(closed));
    assert_eq!(bed.said()[before..], [expected], "what was planned stays so");
}

#[tokio::test]
async fn merge_during_listing_preserves_plan_comment() {
    let bed = Bed::new().await;
    let head = bed.push("better", "2");
    let number = bed.forge.open("shop/config", "better", "main", None);
    bed.look().await;
    bed.make(&bed.plan().await, &["a"]).await;
    bed.look().await;
    let (told, source) = (bed.forge.comments(number), bed.source().await);
    assert!(told[0].contains("1 to create"), "{told:?}");
    let services = bed.runs.services.clone();
    let plans = source.spec.pull_requests.clone().unwrap();
    let client = bed.known.client(&services, &key(), &source, &plans).await.ok().unwrap();
    let listed = client.list_open("main").await.unwrap();
    let pulls = [(listed[0].clone(), head.to_string())];
    let at = bed.forge.merge(number, Merge::Commit);
    bed.commits.0.lock().insert(at.to_string(), "2".to_owned());
    bed.commits.2.lock().insert(head.to_string());
    bed.observe(at).await;
    let said = bed.said();
    let world = SourceSnapshot { services, known: bed.known.clone(), key: key(), client };
    assert_eq!(world.bring_about(bed.source().await, &pulls).await.unwrap().ok(), Some(0));
    bed.tell().await;
    assert_eq!((bed.forge.comments(number), bed.said()), (told, said));
}

#[tokio::test]
async fn strangers_have_nothing_planned_unless_the_source_says_so() {
    let bed = Bed::new().await;
    let theirs = bed.push("theirs", "2");
    bed.forge.open("shop/config", "theirs", "main", Some(theirs));
    let told = bed.look().await.unwrap();
    assert_eq!(told.message, "0 of 1 open pull requests change stacks; 1 from forks are left out");
    assert!(bed.said().is_empty() && bed.plans().await.is_empty());
    bed.change_source(|source| source.spec.pull_requests.as_mut().unwrap().allow_forks = true).await;
    bed.look().await;
    assert_eq!(bed.plan().await.spec.version, Some(theirs.to_string()));
    bed.change_source(|source| source.spec.pull_requests = None).await;
    assert_eq!(bed.look().await, None);
    assert!(bed.plan().await.metadata.deletion_timestamp.is_some() && bed.noted().await.is_empty());
}

#[tokio::test]
async fn plan_survives_until_its_manual_run_ends() {
    let bed = Bed::new().await;
    bed.push("better", "2");
    bed.forge.open("shop/config", "better", "main", None);
    bed.look().await;
    let plan = bed.plan().await;
    bed.make(&plan, &["a"]).await;
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": plan.name_any()});
    bed.runs.create("Run", "by-hand", spec).await;
    let runs = bed.runs.registry.api::<Run>();
    let is_going = async || {
        let plan = runs.get("shop", &plan.name_any()).await.unwrap();
        plan.metadata.deletion_timestamp.is_some()
    };
    bed.push("better", "3");
    bed.look().await;
    assert!(!is_going().await, "it is of an older commit");
    bed.change_source(|source| source.spec.pull_requests = None).await;
    assert_eq!(bed.look_again().await, Some(NEEDED));
    assert!(!is_going().await, "no pull requests are planned any more");
    let plans = bed.plans().await;
    let left = plans.iter().filter(|run| run.metadata.deletion_timestamp.is_none());
    assert_eq!(left.count(), 1, "others go");
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Canceled;
    runs.update_status_with("shop", "by-hand", end).await.unwrap();
    assert_eq!(bed.look_again().await, None);
    assert!(is_going().await);
}

#[tokio::test]
async fn plan_that_cannot_be_made_is_told() {
    let bed = Bed::new().await;
    let head = bed.push("broken", "2");
    let number = bed.forge.open("shop/config", "broken", "main", None);
    bed.look().await;
    let fail = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        status.phase = RunPhase::Failed;
        let message = "spec.yaml: line 3: no such field";
        set_condition(&mut status.conditions, reason::FAILED, true, reason::GENERATE_FAILED, message, None);
    };
    bed.write(&bed.plan().await, fail).await;
    bed.look().await;
    assert_eq!(bed.said()[1..], [format!("{} failure: 1 of 1 plan could not be made", begin(head))]);
    assert!(bed.forge.comments(number)[0].contains("spec.yaml: line 3: no such field"));
}

#[tokio::test]
async fn error_hides_reply_of_foreign_host() {
    let bed = Bed::new().await;
    let told = async |source: &Source| {
        let plans = source.spec.pull_requests.clone().unwrap();
        let client = Known::default().client(&bed.runs.services, &key(), source, &plans).await.unwrap();
        bed.forge.refuse_next(422, "0");
        client.list_open("main").await.unwrap_err().to_string()
    };
    let mut source = bed.source().await;
    let status = format!("{}/api/v1: it answered 422 Unprocessable Entity", bed.forge.url());
    assert_eq!(told(&source).await, format!("{status}: not now, Bearer (sensitive)"));
    source.spec.remote = "git@git.example.com:shop/config.git".to_owned();
    source.spec.pull_requests.as_mut().unwrap().url = bed.forge.url();
    assert_eq!(told(&source).await, status);
}

#[tokio::test]
async fn controller_honors_rate_limit_and_resumes_later() {
    let bed = Bed::new().await;
    bed.push("better", "2");
    bed.forge.open("shop/config", "better", "main", None);
    bed.forge.refuse_next(429, "300");
    let told = bed.look().await.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::PULL_REQUESTS_UNAVAILABLE));
    assert!(!told.message.contains(TOKEN), "{}", told.message);
    let asked = bed.forge.requests().len();
    let wait = bed.look_again().await.unwrap();
    assert!(wait <= Duration::from_secs(300), "{wait:?}");
    assert_eq!(bed.forge.requests().len(), asked, "nothing was asked");
    // The clock of the runtime passes the pause.
    tokio::time::pause();
    tokio::time::advance(wait + Duration::from_millis(50)).await;
    tokio::time::resume();
    bed.look_again().await;
    assert_eq!(bed.noted().await, ["1 Pending 1"]);
    assert_eq!(bed.look().await.unwrap().status, "True");
}

#[tokio::test]
async fn unreadable_pull_request_blocks_no_other() {
    let bed = Bed::new().await;
    bed.push("better", "2");
    let lost = bed.push("lost", "3");
    bed.forge.open("shop/config", "better", "main", None);
    bed.forge.open("shop/config", "lost", "main", None);
    bed.look().await;
    bed.commits.0.lock().remove(&lost.to_string());
    let head = bed.push("better", "4");
    let told = bed.look().await.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::SOURCE_NOT_FOUND));
    let plans = bed.plans().await.into_iter().filter(|run| run.metadata.deletion_timestamp.is_none());
    let mut versions: Vec<String> = plans.filter_map(|run| run.spec.version).collect();
    versions.sort();
    let mut expected = [lost.to_string(), head.to_string()];
    expected.sort();
    assert_eq!(versions, expected, "what was planned of it stays");
}

#[tokio::test]
async fn slow_comparison_blocks_no_other_pull_request() {
    let bed = Bed::new().await;
    bed.change_source(|source| source.spec.poll_interval = "1h".into()).await;
    bed.push("closed", "2");
    bed.forge.open("shop/config", "closed", "main", None);
    bed.look().await;
    let stale = bed.plan().await;
    bed.forge.close(1);
    let head = bed.push("better", "3");
    bed.forge.open("shop/config", "better", "main", None);
    let slow = bed.push("slow", "4").to_string();
    bed.forge.open("shop/config", "slow", "main", None);
    bed.commits.1.hang(&slow);
    let pass = async {
        // The latest is compared first.
        bed.commits.1.asked.notified().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(21)).await;
        tokio::time::resume();
    };
    let (told, ()) = tokio::join!(bed.look(), pass);
    let told = told.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::SOURCE_UNREACHABLE));
    assert_eq!(told.message, "pull request 3: the repository did not answer within 20s");
    assert_eq!(bed.noted().await, ["2 Pending 1"]);
    let plans = bed.plans().await;
    let is_there = |run: &Run| run.metadata.deletion_timestamp.is_none();
    let versions: Vec<_> = plans.iter().filter(|run| is_there(run)).map(|run| run.spec.version.clone()).collect();
    assert_eq!(versions, [Some(head.to_string())]);
    assert!(!plans.iter().any(|run| is_there(run) && run.name_any() == stale.name_any()));
    // Nobody asks for it at once, and it is looked for again.
    assert_eq!(bed.look_again().await, Some(AGAIN));
    bed.commits.1.answer(&slow);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(25)).await;
    tokio::time::resume();
    bed.look_again().await;
    assert_eq!(bed.noted().await, ["2 Pending 1", "3 Pending 1"]);
}

#[test]
fn summary_counts_all_that_are_open() {
    let pull = |number: u64, is_fork: bool, head_commit: Option<&str>| PullRequest {
        number,
        url: String::new(),
        title: String::new(),
        body: String::new(),
        state: stoa_pulls::PullState::Open,
        head: "x".to_owned(),
        head_commit: head_commit.map(str::to_owned),
        is_fork,
        base: "main".to_owned(),
        is_to_default: true,
        base_commit: None,
        is_mergeable: None,
    };
    let mut open: Vec<PullRequest> = (0..MOST as u64 + 2).map(|number| pull(number, false, Some("c"))).collect();
    open.extend([pull(500, true, Some("c")), pull(501, false, None)]);
    let (wanted, left_out) = wanted(&open, false);
    assert_eq!(
        summary(open.len(), wanted.len(), &left_out),
        "100 of 104 open pull requests change stacks; 1 from forks are left out; 1 are left out because their \
         branches do not exist; 2 more are left out because only the latest 100 are planned"
    );
}

#[tokio::test]
async fn comment_names_no_run_that_could_not_be_created() {
    let bed = Bed::new().await;
    bed.change_stack(|stack| stack.spec.workspaces = vec!["nowhere".to_owned()]).await;
    bed.push("better", "2");
    let number = bed.forge.open("shop/config", "better", "main", None);
    bed.look().await;
    assert!(bed.plans().await.is_empty());
    let comments = bed.forge.comments(number);
    assert!(comments[0].contains("nowhere") && !comments[0].contains("kubectl"), "{comments:?}");
}

impl Bed {
    /// Two pull requests whose plans are made; they are not listed again meanwhile.
    async fn with_two_plans() -> Self {
        let bed = Self::new().await;
        bed.change_source(|source| source.spec.poll_interval = "1h".into()).await;
        for (branch, content) in [("first", "2"), ("second", "3")] {
            bed.push(branch, content);
            bed.forge.open("shop/config", branch, "main", None);
        }
        bed.look().await;
        for run in bed.plans().await {
            bed.make(&run, &["a"]).await;
        }
        bed
    }
}

#[tokio::test]
async fn rejected_comment_blocks_no_other_pull_request() {
    let bed = Bed::with_two_plans().await;
    // The latest is told first: one call asks what was said, and one says it.
    bed.forge.refuse_next(422, "0");
    bed.forge.refuse_next(422, "0");
    bed.look_again().await;
    let conditions = bed.source().await.status.unwrap().conditions;
    let told = condition(&conditions, reason::PULL_REQUESTS_PLANNED).unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::PULL_REQUESTS_NOT_REPORTED));
    assert!(told.message.starts_with("pull request 2: ") && !told.message.contains(TOKEN), "{}", told.message);
    assert_eq!((bed.forge.comments(1).len(), bed.forge.comments(2).len()), (1, 0));
    let asked = bed.forge.requests().len();
    bed.look_again().await;
    assert_eq!(bed.forge.requests().len(), asked, "it is not asked again yet");
    assert_eq!(bed.look().await.unwrap().status, "True");
    assert_eq!((bed.forge.comments(1).len(), bed.forge.comments(2).len()), (1, 1));
}

#[tokio::test]
async fn controller_limits_concurrent_plans() {
    let bed = Bed::new().await;
    for number in 1..=UNDER_WAY + 2 {
        let branch = format!("branch-{number}");
        bed.push(&branch, &format!("of {number}"));
        bed.forge.open("shop/config", &branch, "main", None);
    }
    bed.look().await;
    let plans = bed.plans().await;
    assert_eq!((plans.len(), bed.said().len()), (UNDER_WAY, UNDER_WAY + 2), "all are told that they will be planned");
    bed.look().await;
    assert_eq!(bed.plans().await.len(), UNDER_WAY);
    bed.make(&plans[0], &["a"]).await;
    bed.look().await;
    assert_eq!(bed.plans().await.len(), UNDER_WAY + 1);
}

#[tokio::test]
async fn pull_request_of_many_plans_leaves_room_for_others() {
    let bed = Bed::new().await;
    let workspaces: Vec<String> = (0..=UNDER_WAY_EACH).map(|number| format!("stage-{number}")).collect();
    for name in &workspaces {
        let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
        bed.runs.create("Workspace", name, spec).await;
    }
    bed.change_stack(|stack| stack.spec.workspaces.clone_from(&workspaces)).await;
    for (branch, content) in [("first", "2"), ("second", "3")] {
        bed.push(branch, content);
        bed.forge.open("shop/config", branch, "main", None);
    }
    bed.look().await;
    let plans = bed.plans().await;
    for number in ["1", "2"] {
        let is_its = |run: &&Run| run.labels().get(labels::PULL_REQUEST).is_some_and(|of| of == number);
        assert_eq!(plans.iter().filter(is_its).count(), UNDER_WAY_EACH, "{plans:#?}");
    }
    let all = UNDER_WAY_EACH + 1;
    assert_eq!(bed.noted().await, [format!("1 Pending {all}"), format!("2 Pending {all}")]);
}

#[tokio::test]
async fn controller_cleans_closed_pull_request_during_outage() {
    let bed = Bed::new().await;
    bed.change_source(|source| source.spec.poll_interval = "1h".into()).await;
    bed.push("closed", "2");
    bed.push("open", "3");
    bed.forge.open("shop/config", "closed", "main", None);
    bed.look().await;
    let plan = bed.plan().await;
    bed.forge.close(1);
    bed.forge.open("shop/config", "open", "main", None);
    bed.refuse_what_the_list_leads_to().await;
    let asked = bed.forge.requests().len();
    bed.look_again().await;
    assert_eq!(bed.forge.requests().len(), asked + 1, "the server is left alone after that");
    let gone = bed.plans().await.into_iter().find(|run| run.name_any() == plan.name_any());
    assert!(gone.is_none_or(|run| run.metadata.deletion_timestamp.is_some()));
}
