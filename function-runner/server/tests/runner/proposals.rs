//! The main job where people merge what is delivered.

use serde_json::json;
use stoa_proto::{LookAtProposalRequest, Proposal, Summary};
use stoa_pulls::testing::{Forge, Merge};

use crate::bed::{Bed, Origin};
use crate::caller::Caller;
use crate::delivery::Scene;

impl Scene {
    /// The same with a repository that has a branch and pull requests.
    async fn proposing() -> (Self, Forge) {
        let bed = Bed::start();
        let origin = Origin::new(&bed.path("origin"));
        let deploy = bed.path("git/shop/deploy.git");
        let repository = git2::Repository::init_opts(
            &deploy,
            git2::RepositoryInitOptions::new().bare(true).mkpath(true).initial_head("main"),
        );
        let repository = repository.unwrap();
        let tree = repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap();
        let me = git2::Signature::now("me", "me@example.com").unwrap();
        repository.commit(Some("refs/heads/main"), &me, &me, "empty", &tree, &[]).unwrap();
        let forge = Forge::start(&bed.path("git"), "s3cr3t").await;
        let workspace = json!({"gitops": {
            "repository": format!("file://{}", deploy.display()), "branch": "main", "createBranch": true, "directory": "dev",
            "mode": "PullRequest", "pullRequest": {"provider": "Gitea", "url": forge.url()},
        }});
        let mut caller = Caller::new(bed.client().await, &workspace);
        let credentials = &mut caller.target.workspace.as_mut().unwrap().pull_request_credentials;
        credentials.insert("token".to_owned(), b"s3cr3t\n".to_vec().into());
        (Self { bed, origin, deploy, caller }, forge)
    }

    async fn look(&mut self) -> Result<Proposal, tonic::Status> {
        let target = &self.caller.target;
        let (workspace, organization) = (target.workspace.clone(), target.organization.clone());
        let request = LookAtProposalRequest { workspace, number: 1, organization };
        Ok(self.caller.client.look_at_proposal(request).await?.into_inner())
    }
}

#[tokio::test]
async fn stack_is_delivered_once_people_merge_it() {
    let (mut scene, forge) = Scene::proposing().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let applied = scene.caller.apply(&spec, &plan).await;
    let proposal = applied.finished().proposal.clone().unwrap();
    assert!(!applied.finished().succeeded && applied.finished().problems.is_empty(), "{applied:?}");
    assert_eq!(
        (proposal.number, proposal.state.as_str(), proposal.branch.as_str()),
        (1, "Open", "stoa/shop/web-dev/dev")
    );
    assert_eq!(applied.results.len(), 3);
    assert!(
        applied.results.iter().all(|result| result.outcome == "Skipped" && result.resource.is_empty()),
        "{applied:?}"
    );
    assert_eq!(scene.commits().len(), 1, "nothing is on the branch that is deployed from");
    let base_commit = scene.commits().remove(0);
    assert_eq!(scene.look().await.unwrap(), Proposal { base_commit, ..proposal });
    scene.caller.state.clear();

    // What is recorded and planned is as it was: nothing was done.
    assert_eq!(scene.caller.plan(&spec, false).await.unwrap().digest, plan.digest);
    forge.merge(1, Merge::Squash);
    assert_eq!(scene.look().await.unwrap().state, "Merged");
    scene.caller.target.pull_request = 1;
    let applied = scene.caller.apply(&spec, &plan).await;
    assert!(applied.finished().succeeded, "{applied:?}");
    assert_eq!(applied.finished().gitops_commit, scene.commits()[0]);
    assert!(scene.delivered().iter().any(|text| text.contains("replicas: 1")));

    scene.caller.target.pull_request = 0;
    scene.caller.next_run("web-dev-2");
    let again = scene.caller.plan(&spec, false).await.unwrap();
    assert_eq!(again.summary, Some(Summary { unchanged: 3, ..Summary::default() }), "{}", again.table);
    assert!(scene.caller.apply(&spec, &again).await.finished().succeeded);
    assert_eq!(forge.pulls().len(), 1, "nothing to do is no pull request");

    // What the server does not let us know is told without the token.
    let credentials = &mut scene.caller.target.workspace.as_mut().unwrap().pull_request_credentials;
    credentials.insert("token".to_owned(), b"hunter2-hunter2".to_vec().into());
    let error = scene.look().await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert!(error.message().contains("401") && !error.message().contains("hunter2"), "{error}");
}
