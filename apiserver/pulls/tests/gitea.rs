//! The client against a real Gitea, where there is one: `STOA_TEST_GITEA` and `STOA_TEST_GITEA_FILES` name it, and `hack/test`
//! sets them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;

use serde_json::json;
use stoa_pulls::{
    Address, CommentText, CommitStatus, Credentials, Pauses, Provider, PullError, PullRequests as _, PullState, Server,
    StatusState, Text, is_marked, marked,
};
use stoa_test_gitea::{GiteaServer, STRANGER, USER};

fn client(address: &str, token: &str) -> Server {
    let address = Address::new(Provider::Gitea, address, None).unwrap();
    let credentials = Credentials { token: Some(token.to_owned()), ..Credentials::default() };
    Server::new(address, &credentials, Pauses::default()).unwrap()
}

/// Makes a branch with a file of its own; its commit.
fn branch(gitea: &GiteaServer, user: &str, name: &str) -> String {
    let file = json!({"content": "YQ==", "branch": "main", "new_branch": name, "message": name});
    let path = format!("repos/{user}/config/contents/{}", name.replace('/', "-"));
    let made = gitea.call_as(user, "POST", &path, Some(&file));
    made["commit"]["sha"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn client_understands_a_real_gitea() {
    let Some(gitea) = GiteaServer::start() else {
        eprintln!("skipped: STOA_TEST_GITEA is not set");
        return;
    };
    let server = client(&gitea.create("config"), &gitea.token);
    let text = |title: &str| Text { title: title.to_owned(), body: marked("what it does", "stoa:shop/web/dev") };
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None);
    assert!(matches!(server.open("stoa/x", "main", &text("one")).await, Err(PullError::NotFound(_))));
    let head = branch(&gitea, USER, "stoa/x");
    let opened = server.open("stoa/x", "main", &text("one")).await.unwrap();
    assert_eq!((&opened.state, opened.is_fork, opened.is_to_default), (&PullState::Open, false, true));
    assert_eq!((opened.head_commit.as_ref(), opened.head.as_str()), (Some(&head), "stoa/x"));
    assert!(is_marked(&opened.body, "stoa:shop/web/dev"));
    assert_eq!(
        server.open("stoa/x", "main", &text("two")).await.unwrap().number,
        opened.number,
        "there is one already"
    );
    assert_eq!(server.find("stoa/x", "main").await.unwrap().map(|pull| pull.number), Some(opened.number));
    server.update(opened.number, &text("two\nlines")).await.unwrap();
    assert_eq!(server.get(opened.number).await.unwrap().title, "two lines");
    assert!(matches!(server.get(99).await, Err(PullError::NotFound(_))));

    gitea.call_as(STRANGER, "POST", &format!("repos/{USER}/config/forks"), Some(&json!({})));
    let theirs = branch(&gitea, STRANGER, "theirs");
    let of_fork = gitea.open("config", &format!("{STRANGER}:theirs"));
    for base in ["main", ""] {
        let mut open = server.list_open(base).await.unwrap();
        open.sort_by_key(|pull| pull.number);
        let told: Vec<_> = open.iter().map(|pull| (pull.number, pull.is_fork, pull.head_commit.clone())).collect();
        assert_eq!(told, [(opened.number, false, Some(head.clone())), (of_fork, true, Some(theirs.clone()))]);
    }
    assert!(server.list_open("other").await.unwrap().is_empty());

    let status = |state, description: &str| CommitStatus {
        context: "stoa/shop/config".to_owned(),
        state,
        description: description.to_owned(),
        url: None,
    };
    for said in [status(StatusState::Pending, "to be made"), status(StatusState::Success, "made")] {
        server.set_status(&head, &said).await.unwrap();
        server.set_status(&head, &said).await.unwrap();
    }
    let expected = ["stoa/shop/config pending: to be made", "stoa/shop/config success: made"];
    assert_eq!(gitea.statuses("config", &head), expected, "each is said once");

    let long = "x".repeat(50_000);
    for body in ["the first plan", &long, &long] {
        let comment = CommentText { marker: "stoa:plans:shop/config", body, before: None };
        server.comment(opened.number, &comment).await.unwrap();
    }
    let comments = gitea.comments("config", opened.number);
    assert_eq!(comments.len(), 1, "it is changed in its place");
    assert!(comments[0].starts_with("xxx") && is_marked(&comments[0], "stoa:plans:shop/config"));

    gitea.merge("config", opened.number);
    let PullState::Merged(Some(merged)) = server.get(opened.number).await.unwrap().state else {
        panic!("it is merged")
    };
    let log = gitea.call("GET", &format!("repos/{USER}/config/commits?sha=main&limit=1"), None);
    assert_eq!(log[0]["sha"], merged.as_str());
    server.close(of_fork).await.unwrap();
    assert_eq!(server.get(of_fork).await.unwrap().state, PullState::Closed);
    assert!(server.list_open("").await.unwrap().is_empty());
    let error = client(&format!("{}/{USER}/config.git", gitea.url()), "no-such-token").list_open("").await.unwrap_err();
    assert!(matches!(&error, PullError::Unauthorized(_)), "{error}");
    assert!(!error.to_string().contains("no-such-token"), "{error}");
}

#[tokio::test]
async fn repository_serves_pull_request_commits_by_id() {
    let Some(gitea) = GiteaServer::start() else { return };
    let address = gitea.create("config");
    gitea.call_as(STRANGER, "POST", &format!("repos/{USER}/config/forks"), Some(&json!({})));
    let theirs = branch(&gitea, STRANGER, "theirs");
    gitea.open("config", &format!("{STRANGER}:theirs"));
    // As the function-runner fetches what no branch of the repository leads to.
    let folder = tempfile::tempdir().unwrap();
    let repository = git2::Repository::init_bare(folder.path()).unwrap();
    let refspec = format!("+{theirs}:refs/stoa/{theirs}");
    repository.remote_anonymous(&address).unwrap().fetch(&[refspec], None, None).unwrap();
    assert!(repository.find_commit(theirs.parse().unwrap()).is_ok());
}

#[tokio::test]
async fn push_by_reader_counts_as_fork() {
    let Some(gitea) = GiteaServer::start() else { return };
    let address = gitea.create("config");
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=Eve", "-c", "user.email=eve@localhost", "-c", "commit.gpgsign=false"];
        let done = Command::new("git").arg("-C").arg(folder.path()).args(identity).args(args).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let theirs = GiteaServer::with_password(&address, STRANGER);
    git(&["clone", "--quiet", theirs.as_str(), "."]);
    std::fs::write(folder.path().join("theirs"), "a").unwrap();
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", "theirs"]);
    git(&["push", "--quiet", "origin", "HEAD:refs/for/main/theirs"]);
    let server = client(&address, &gitea.token);
    let open = server.list_open("main").await.unwrap();
    let told: Vec<_> = open.iter().map(|pull| (pull.is_fork, pull.head_commit.is_some())).collect();
    assert_eq!(told, [(true, true)], "it is in no branch of the repository");
    assert!(server.get(open[0].number).await.unwrap().is_fork);
}
