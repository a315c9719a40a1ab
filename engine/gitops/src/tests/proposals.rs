//! Tests of proposals, against a server with pull requests.

use stoa_engine::Action;
use stoa_pulls::testing::{Forge, Merge};
use stoa_pulls::{Address, Credentials, Pauses, Provider, Server as Pulls};
use stoa_runtime::{Finished, Proposal, ProposalState};

use super::*;

const BRANCH: &str = "stoa/shop/web-dev/dev";

/// A repository with a branch `main`, and a server with its pull requests.
struct ProposalTest {
    repository: TestRepository,
    forge: Forge,
}

impl ProposalTest {
    async fn new(repository: TestRepository) -> Self {
        let root = repository.directory.path().parent().unwrap().to_owned();
        let forge = Forge::start(&root, "s3cr3t").await;
        let test = Self { repository, forge };
        test.push("main", "README.md", "by hand\n");
        test
    }

    async fn both() -> [Self; 2] {
        let [local, remote] = TestRepository::both();
        [Self::new(local).await, Self::new(remote).await]
    }

    fn name(&self) -> String {
        format!("{}/deploy", self.repository.directory.path().file_name().unwrap().to_str().unwrap())
    }

    fn pulls(&self) -> Arc<Pulls> {
        let remote = format!("file:///srv/{}.git", self.name());
        let address = Address::new(Provider::Gitea, &remote, Some(&self.forge.url())).unwrap();
        let credentials = Credentials { token: Some("s3cr3t".to_owned()), ..Credentials::default() };
        Arc::new(Pulls::new(address, &credentials, Pauses::default()).unwrap())
    }

    fn runtime(&self, uid: &str, earlier: Option<u64>) -> GitOpsRuntime {
        let mut config = self.repository.config(uid);
        config.run.name = format!("run-{uid}");
        config.proposing = Some(Proposing { pulls: self.pulls(), branch_prefix: String::new(), earlier });
        GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap()
    }

    /// Carries a run out that wants these values of ConfigMaps.
    async fn finish(&self, uid: &str, earlier: Option<u64>, wanted: &[(&str, &str)]) -> Result<Finished, RuntimeError> {
        let runtime = self.runtime(uid, earlier);
        for (name, value) in wanted {
            apply(&runtime, &config_map(name, value)).await;
        }
        runtime.finish(&Grant::unlimited()).await
    }

    async fn propose(&self, uid: &str, earlier: Option<u64>, wanted: &[(&str, &str)]) -> Proposal {
        self.finish(uid, earlier, wanted).await.unwrap().proposal.expect("it is proposed")
    }

    /// Carries a run out that proposes nothing; the commit that has its changes.
    async fn done(&self, uid: &str, earlier: Option<u64>, wanted: &[(&str, &str)]) -> Option<String> {
        let finished = self.finish(uid, earlier, wanted).await.unwrap();
        assert_eq!(finished.proposal, None);
        finished.commit
    }

    async fn refusal(&self, uid: &str, earlier: Option<u64>, wanted: &[(&str, &str)]) -> String {
        let err = self.finish(uid, earlier, wanted).await.unwrap_err();
        assert!(!err.is_retryable(), "{err}");
        err.to_string()
    }

    fn head(&self, branch: &str) -> Option<Oid> {
        self.repository.repository().refname_to_id(&format!("refs/heads/{branch}")).ok()
    }

    /// Somebody pushes a file.
    fn push(&self, branch: &str, path: &str, content: &str) -> Oid {
        let repository = self.repository.repository();
        let parent = self.head(branch).map(|head| repository.find_commit(head).unwrap());
        let base = match &parent {
            Some(parent) => parent.tree().unwrap(),
            None => repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap(),
        };
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path, repository.blob(content.as_bytes()).unwrap(), git2::FileMode::Blob);
        let tree = repository.find_tree(update.create_updated(&repository, &base).unwrap()).unwrap();
        let bob = git2::Signature::now("Bob", "bob@example.com").unwrap();
        let parents: Vec<_> = parent.iter().collect();
        repository.commit(Some(&format!("refs/heads/{branch}")), &bob, &bob, "by hand", &tree, &parents).unwrap()
    }

    /// The files that a branch has and main does not have so.
    fn proposed(&self) -> Vec<String> {
        let repository = self.repository.repository();
        let tree = |branch: &str| repository.find_commit(self.head(branch).unwrap()).unwrap().tree().unwrap();
        let diff = repository.diff_tree_to_tree(Some(&tree("main")), Some(&tree(BRANCH)), None).unwrap();
        diff.deltas().map(|delta| delta.new_file().path().unwrap().display().to_string()).collect()
    }

    fn is_after(&self, commit: Oid, earlier: Oid) -> bool {
        commit == earlier || self.repository.repository().graph_descendant_of(commit, earlier).unwrap()
    }
}

#[tokio::test]
async fn run_opens_one_pull_request_until_merged() {
    for (test, how) in ProposalTest::both().await.into_iter().zip([Merge::Commit, Merge::Squash]) {
        let base = test.head("main");
        let proposal = test.propose("u-1", None, &[("a", "1"), ("b", "1")]).await;
        assert_eq!((proposal.number, proposal.branch.as_str(), &proposal.state), (1, BRANCH, &ProposalState::Open));
        assert_eq!(Some(proposal.commit.clone()), test.head(BRANCH).map(|head| head.to_string()));
        assert_eq!(test.head("main"), base, "the base is left alone");
        assert_eq!(test.proposed(), ["dev/shop/configmap-a.yaml", "dev/shop/configmap-b.yaml"]);
        let pull = &test.forge.pulls()[0];
        assert_eq!(pull["title"], "shop/web-dev on dev: 2 created");
        let body = pull["body"].as_str().unwrap();
        assert!(
            body.contains("- created `dev/shop/configmap-a.yaml`") && body.contains("asked for by `ann`"),
            "{body}"
        );

        // However often it is carried out again, before it is known that there was an earlier try or after.
        for earlier in [None, Some(1)] {
            assert_eq!(test.propose("u-1", earlier, &[("a", "1"), ("b", "1")]).await, proposal);
        }
        assert_eq!(test.forge.pulls().len(), 1);

        let merged = test.forge.merge(1, how);
        let done = test.done("u-1", Some(1), &[("a", "1"), ("b", "1")]).await;
        assert_eq!(done, Some(merged.to_string()));
        // Once it is merged, others may change it.
        test.push("main", "dev/shop/configmap-a.yaml", "changed: since\n");
        assert_eq!(test.done("u-1", Some(1), &[("a", "1"), ("b", "1")]).await, Some(merged.to_string()));
        // What was changed by hand is proposed to be as it should be, by another pull request.
        assert_eq!(test.propose("u-2", None, &[("a", "1"), ("b", "1")]).await.number, 2);
        assert_eq!(test.proposed(), ["dev/shop/configmap-a.yaml"]);
        assert_eq!(test.forge.pulls()[1]["title"], "shop/web-dev on dev: 1 updated");
    }
}

#[tokio::test]
async fn write_error_is_reported_after_merge() {
    for test in ProposalTest::both().await {
        assert_eq!(test.propose("u-1", None, &[("a", "1")]).await.number, 1);
        test.forge.merge(1, Merge::Squash);
        let too_large = "x".repeat(17 << 20);
        let why = test.refusal("u-1", Some(1), &[("a", too_large.as_str())]).await;
        assert!(why.ends_with("would be larger than 16 MiB"), "{why}");
    }
}

#[tokio::test]
async fn next_run_updates_pull_request() {
    for test in ProposalTest::both().await {
        test.propose("u-1", None, &[("a", "1"), ("gone", "1")]).await;
        let first = test.head(BRANCH).unwrap();
        let proposal = test.propose("u-2", None, &[("a", "2"), ("b", "2")]).await;
        assert_eq!((proposal.number, test.forge.pulls().len()), (1, 1));
        let second = test.head(BRANCH).unwrap();
        assert!(test.is_after(second, first), "it goes on from what was there");
        assert_eq!(test.proposed(), ["dev/shop/configmap-a.yaml", "dev/shop/configmap-b.yaml"], "and nothing else");
        for earlier in [None, Some(1)] {
            let ended = test.propose("u-1", earlier, &[("a", "1"), ("gone", "1")]).await;
            assert_eq!(ended.state, ProposalState::Superseded("run-u-2".to_owned()));
        }
        assert_eq!(test.head(BRANCH), Some(second));
        test.forge.merge(1, Merge::Commit);
        assert!(test.done("u-2", Some(1), &[("a", "2"), ("b", "2")]).await.is_some());
    }
}

#[tokio::test]
async fn foreign_commits_on_branch_stay() {
    for test in ProposalTest::both().await {
        test.propose("u-1", None, &[("a", "1")]).await;
        let by_bob = test.push(BRANCH, "notes.md", "why\n");
        // It is still what was planned.
        let proposal = test.propose("u-1", Some(1), &[("a", "1")]).await;
        assert_eq!((proposal.state, proposal.commit), (ProposalState::Open, by_bob.to_string()));
        let refusal = test.refusal("u-2", None, &[("a", "2")]).await;
        assert!(refusal.contains(&format!("{:.10} by Bob", by_bob.to_string())), "{refusal}");
        assert_eq!(test.head(BRANCH), Some(by_bob), "nothing was overwritten");

        let changed = test.push(BRANCH, "dev/shop/configmap-a.yaml", "changed: by hand\n");
        let refusal = test.refusal("u-1", Some(1), &[("a", "1")]).await;
        assert!(refusal.contains("has commits of others"), "{refusal}");
        assert_eq!(test.head(BRANCH), Some(changed));
        // Nor is it done when they merge it.
        test.forge.merge(1, Merge::Squash);
        let refusal = test.refusal("u-1", Some(1), &[("a", "1")]).await;
        assert!(refusal.starts_with("the pull request was merged with other content than planned"), "{refusal}");
    }
}

#[tokio::test]
async fn closed_pull_request_ends_run() {
    for test in ProposalTest::both().await {
        test.propose("u-1", None, &[("a", "1")]).await;
        test.forge.close(1);
        assert_eq!(test.propose("u-1", Some(1), &[("a", "1")]).await.state, ProposalState::Closed);
        assert_eq!(test.forge.pulls().len(), 1);
        let again = test.propose("u-2", None, &[("a", "1")]).await;
        assert_eq!((again.number, again.state), (2, ProposalState::Open));
    }
}

#[tokio::test]
async fn early_closed_pull_request_is_not_reopened() {
    for test in ProposalTest::both().await {
        test.propose("u-0", None, &[("a", "0")]).await;
        test.forge.close(1);
        // This is another one's, though the branch is the same.
        assert_eq!(test.propose("u-1", None, &[("a", "1")]).await.number, 2);
        test.forge.close(2);
        // It does not know that it opened it.
        for _ in 0..2 {
            let ended = test.propose("u-1", None, &[("a", "1")]).await;
            assert_eq!((ended.number, ended.state), (2, ProposalState::Closed));
        }
        assert_eq!(test.forge.pulls().len(), 2);
        assert_eq!(test.propose("u-2", None, &[("a", "1")]).await.number, 3);
    }
}

#[tokio::test]
async fn unasked_run_ignores_older_closed_request() {
    let test = ProposalTest::new(TestRepository::local()).await;
    test.propose("u-0", None, &[("a", "0")]).await;
    test.forge.close(1);
    test.forge.hold("/pulls");
    let runtime = test.runtime("u-1", None);
    apply(&runtime, &config_map("a", "1")).await;
    // It is put down once its commit is on the branch, and before it asked.
    let before = test.head(BRANCH);
    let pushed = async {
        while test.head(BRANCH) == before {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let grant = Grant::unlimited();
    tokio::select! {
        finished = runtime.finish(&grant) => panic!("{finished:?}"),
        () = pushed => {}
    }
    test.forge.release();
    // As servers may tell it whose pull requests are where their branches are now.
    test.forge.garble(
        1,
        json!({"head": {"ref": BRANCH, "label": BRANCH, "sha": test.head(BRANCH).unwrap().to_string(),
        "repo": {"full_name": test.name()}}}),
    );
    assert_eq!(test.propose("u-1", None, &[("a", "1")]).await.number, 2);
}

#[tokio::test]
async fn empty_change_closes_pull_request() {
    for test in ProposalTest::both().await {
        assert_eq!(test.done("u-0", None, &[]).await, None);
        test.propose("u-1", None, &[("a", "1")]).await;
        test.forge.merge(1, Merge::Commit);
        assert!(test.done("u-1", Some(1), &[("a", "1")]).await.is_some());
        assert!(test.done("u-2", None, &[("a", "1")]).await.is_some());
        assert_eq!(test.forge.pulls().len(), 1);

        // What was wanted meanwhile is wanted no more.
        test.push("others", "notes.md", "mine\n");
        let by_hand = test.forge.open(&test.name(), "others", "main", None);
        test.propose("u-3", None, &[("a", "2")]).await;
        assert_eq!(test.done("u-4", None, &[]).await, None);
        let states = test.forge.pulls();
        assert_eq!((&states[1]["state"], &states[2]["state"]), (&json!("open"), &json!("closed")));
        assert_eq!(by_hand, 2);
        assert!(test.forge.comments(3)[0].contains("nothing left to merge"));
        // One that a person opened from our branch is theirs.
        test.propose("u-5", None, &[("a", "3")]).await;
        test.forge.describe(4, "mine now");
        test.propose("u-6", None, &[("a", "4")]).await;
        assert_eq!(test.forge.pulls()[3]["body"], "mine now");
        assert_eq!(test.done("u-7", None, &[]).await, None);
        assert_eq!(test.forge.pulls()[3]["state"], "open");
    }
}

#[tokio::test]
async fn merged_earlier_run_keeps_next_proposal() {
    let test = ProposalTest::new(TestRepository::local()).await;
    test.propose("u-1", None, &[("a", "1")]).await;
    test.forge.merge(1, Merge::Commit);
    test.propose("u-2", None, &[("b", "1")]).await;
    assert!(test.done("u-1", Some(1), &[("a", "1")]).await.is_some());
    assert_eq!(test.forge.pulls()[1]["state"], "open");
}

#[tokio::test]
async fn moved_base_is_merged_without_force() {
    for test in ProposalTest::both().await {
        test.propose("u-1", None, &[("a", "1")]).await;
        let first = test.head(BRANCH).unwrap();
        // What does not matter changes nothing.
        test.push("main", "notes.md", "others\n");
        test.propose("u-1", Some(1), &[("a", "1")]).await;
        assert_eq!(test.head(BRANCH), Some(first));
        // A file that is proposed would be in conflict.
        let base = test.push("main", "dev/shop/configmap-a.yaml", "others: too\n");
        test.propose("u-1", Some(1), &[("a", "1")]).await;
        let second = test.head(BRANCH).unwrap();
        assert!(test.is_after(second, first) && test.is_after(second, base));
        assert_eq!(test.proposed(), ["dev/shop/configmap-a.yaml"]);
        test.forge.merge(1, Merge::Commit);
        assert!(test.done("u-1", Some(1), &[("a", "1")]).await.is_some());
    }
}

#[tokio::test]
async fn moved_base_with_foreign_commits_blocks() {
    for test in ProposalTest::both().await {
        test.propose("u-1", None, &[("a", "1")]).await;
        let theirs = test.push(BRANCH, "notes.md", "mine\n");
        test.push("main", "dev/shop/configmap-a.yaml", "others: too\n");
        let waits = test.propose("u-1", Some(1), &[("a", "1")]).await;
        assert_eq!((waits.state, waits.commit.as_str()), (ProposalState::Open, theirs.to_string().as_str()));
        let blocked = waits.blocked.expect("it is told why");
        assert!(blocked.contains("by Bob") && blocked.starts_with("main changed the same files"), "{blocked}");
        assert_eq!(test.head(BRANCH), Some(theirs), "nothing of theirs is lost");
    }
}

#[tokio::test]
async fn rewritten_branch_loses_commit() {
    use crate::{Compliance, Reading};
    for test in ProposalTest::both().await {
        let [first, second] = ["1", "2"].map(|content| test.push("main", "notes.md", content));
        let other = test.push("other", "notes.md", "3");
        let set = |ids: &[Oid]| ids.iter().map(Oid::to_string).collect::<std::collections::BTreeSet<_>>();
        let at = |revision: Oid| {
            let sync = json!({"status": "Synced", "revision": revision.to_string()});
            let status = json!({"sync": sync, "health": {"status": "Healthy"}});
            Reading::application(json!({"status": status}).as_object().unwrap())
        };
        let runtime = test.runtime("u-1", None);
        let lineage = runtime.lineage(set(&[first, second, other]), set(&[first, second])).await.unwrap();
        let of = |revision: Oid, commit: Oid| at(revision).of(&commit.to_string(), &lineage).0;
        assert_eq!(of(second, first), Compliance::Compliant);
        assert_eq!(of(first, first), Compliance::Compliant);
        assert_eq!(of(first, second), Compliance::Pending);
        assert_eq!(of(second, other), Compliance::NonCompliant, "it is on another branch");
        test.repository.repository().reference("refs/heads/main", first, true, "rewritten").unwrap();
        let lineage = runtime.lineage(set(&[second]), set(&[first, second])).await.unwrap();
        let (found, why) = at(second).of(&second.to_string(), &lineage);
        assert_eq!(found, Compliance::NonCompliant);
        assert!(why.contains("branch main no longer contains commit"), "{why}");
    }
}

#[tokio::test]
async fn deletion_is_proposed_and_others_kept() {
    let test = ProposalTest::new(TestRepository::local()).await;
    test.propose("u-1", None, &[("a", "1")]).await;
    test.forge.merge(1, Merge::Squash);
    let runtime = test.runtime("u-2", None);
    let desired = config_map("a", "1");
    let prior = recorded(&desired, &test.runtime("u-2", None).apply(&ApplyRequest::new(&desired, None)).await.unwrap());
    runtime.delete(&prior).await.unwrap();
    let finished = runtime.finish(&Grant::unlimited()).await.unwrap();
    assert_eq!(finished.proposal.unwrap().number, 2);
    assert_eq!(
        test.forge.pulls()[1]["title"],
        format!("shop/web-dev on dev: 1 {}d", Action::Delete.to_string().to_lowercase())
    );
    // Another deployment's file is not proposed to change.
    let mut config = test.repository.config("u-3");
    config.run.owner = owner("other");
    config.proposing = Some(Proposing { pulls: test.pulls(), branch_prefix: "bot/".to_owned(), earlier: None });
    let other = GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap();
    apply(&other, &config_map("a", "2")).await;
    assert!(matches!(other.finish(&Grant::unlimited()).await, Err(RuntimeError::Owned(_))));
    assert_eq!(test.head("bot/shop/other/dev"), None);
}

#[tokio::test]
async fn server_errors_are_reported_without_loss() {
    let test = ProposalTest::new(TestRepository::local()).await;
    test.forge.refuse_next(502, "1");
    let err = test.finish("u-1", None, &[("a", "1")]).await.unwrap_err();
    assert!(err.is_retryable() && !err.to_string().contains("s3cr3t"), "{err}");
    let pushed = test.head(BRANCH);
    assert!(pushed.is_some(), "the branch was there first");
    // One that limits calls says for how long, and that is passed on.
    test.forge.refuse_next(429, "7");
    let err = test.finish("u-1", None, &[("a", "1")]).await.unwrap_err();
    assert!(matches!(&err, RuntimeError::Limited { wait, .. } if wait.as_secs() == 7) && err.is_retryable(), "{err:?}");
    assert_eq!(test.propose("u-1", None, &[("a", "1")]).await.number, 1);
    assert_eq!(test.head(BRANCH), pushed);
    // When the time is over nothing is opened or moved.
    let grant = Grant::until(tokio::time::Instant::now());
    let other = test.runtime("u-2", None);
    apply(&other, &config_map("a", "2")).await;
    assert!(other.finish(&grant).await.is_err());
    assert_eq!(test.head(BRANCH), pushed);
}

#[tokio::test]
async fn invalid_branches_are_rejected_by_field() {
    let test = ProposalTest::new(TestRepository::local()).await;
    for prefix in ["a..b/", "/", "x.lock/"] {
        let mut config = test.repository.config("u-1");
        config.proposing = Some(Proposing { pulls: test.pulls(), branch_prefix: prefix.to_owned(), earlier: None });
        let Err(RuntimeError::Invalid { field, .. }) = GitOpsRuntime::new(config, Arc::new(Anonymous)) else {
            panic!("{prefix} is accepted")
        };
        assert_eq!(field.as_deref(), Some("spec.gitops.pullRequest.branchPrefix"));
    }
    let mut config = test.repository.config("u-1");
    config.branch = BRANCH.to_owned();
    config.proposing = Some(Proposing { pulls: test.pulls(), branch_prefix: String::new(), earlier: None });
    assert!(matches!(GitOpsRuntime::new(config, Arc::new(Anonymous)), Err(RuntimeError::Invalid { .. })));
    let mut config = test.repository.config("u-1");
    config.branch = "nowhere".to_owned();
    config.proposing = Some(Proposing { pulls: test.pulls(), branch_prefix: String::new(), earlier: None });
    let runtime = GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let err = runtime.finish(&Grant::unlimited()).await.unwrap_err();
    assert_eq!(err.to_string(), "branch nowhere does not exist; create it so that a pull request can go to it");
}

/// Whatever people and runs do, in any order: no commit of a person is lost, only people move the base, and there is one pull
/// request at most.
#[tokio::test]
async fn interleavings_lose_no_commit() {
    let test = ProposalTest::new(TestRepository::local()).await;
    // A fixed sequence of numbers that looks like none.
    let mut seed = 7_u32;
    let mut draw = |of: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % of
    };
    let (mut by_people, mut run) = (Vec::new(), 0);
    for step in 0..60 {
        let base = test.head("main").unwrap();
        let (value, open) = (draw(3).to_string(), open_pull(&test));
        match draw(8) {
            0 => drop(test.push("main", "dev/shop/configmap-a.yaml", &format!("by: hand-{step}\n"))),
            1 if test.head(BRANCH).is_some() && draw(3) == 0 => {
                by_people.push(test.push(BRANCH, "notes.md", &format!("{step}\n")));
            }
            2 if let Some(number) = open => {
                let tip = test.head(BRANCH).unwrap();
                let repository = test.repository.repository();
                let commit = |id| repository.find_commit(id).unwrap();
                if !repository.merge_commits(&commit(base), &commit(tip), None).unwrap().has_conflicts() {
                    test.forge.merge(number, if draw(2) == 0 { Merge::Commit } else { Merge::Squash });
                }
            }
            3 if let Some(number) = open => test.forge.close(number),
            4 if test.head(BRANCH).is_some() && draw(2) == 0 => {
                // Whoever deletes the branch knows what is on it.
                by_people.clear();
                let repository = test.repository.repository();
                repository.find_reference(&format!("refs/heads/{BRANCH}")).unwrap().delete().unwrap();
                if let Some(number) = open {
                    test.forge.close(number);
                }
            }
            kind => {
                run += u32::from(kind % 2 == 0);
                let earlier = open.filter(|_| kind % 2 == 1);
                let before = test.head(BRANCH);
                let wanted = [("a", value.as_str()), ("b", value.as_str())];
                let finished = test.finish(&format!("u-{run}"), earlier, &wanted).await;
                if let Err(err) = &finished {
                    assert!(!err.is_retryable(), "step {step}: {err}");
                }
                assert_eq!(test.head("main"), Some(base), "step {step}: a run moved the base");
                if let (Some(before), Some(after)) = (before, test.head(BRANCH)) {
                    assert!(test.is_after(after, before), "step {step}: a push was forced");
                }
                if let Ok(Finished { proposal: Some(Proposal { state: ProposalState::Open, .. }), .. }) = finished {
                    assert!(open_pull(&test).is_some(), "step {step}");
                }
            }
        }
        if let Some(head) = test.head(BRANCH) {
            assert!(by_people.iter().all(|commit| test.is_after(head, *commit)), "step {step}: a commit is lost");
        }
    }
    assert!(run > 5);
}

/// The pull request that is open, of which there is one at most.
fn open_pull(test: &ProposalTest) -> Option<u64> {
    let pulls = test.forge.pulls();
    let open: Vec<u64> =
        pulls.iter().filter(|it| it["state"] == "open").filter_map(|it| it["number"].as_u64()).collect();
    assert!(open.len() <= 1, "{open:?}");
    open.first().copied()
}
