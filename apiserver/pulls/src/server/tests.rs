//! The client against the server for tests, and against some that mean no good.

mod gitlab;
mod issues;

use git2::{Oid, Repository, RepositoryInitOptions};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing::{Forge, Merge};

struct Bed {
    directory: TempDir,
    forge: Forge,
}

impl Bed {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop/deploy.git");
        Repository::init_opts(path, RepositoryInitOptions::new().bare(true).mkpath(true)).unwrap();
        let forge = Forge::start(directory.path(), "s3cr3t").await;
        let bed = Self { directory, forge };
        bed.commit("main", "README.md", "main");
        bed
    }

    fn commit(&self, branch: &str, path: &str, text: &str) -> Oid {
        let repository = Repository::open_bare(self.directory.path().join("shop/deploy.git")).unwrap();
        let of = |branch: &str| repository.find_reference(&format!("refs/heads/{branch}")).ok()?.peel_to_commit().ok();
        let parent = of(branch).or_else(|| of("main"));
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path, repository.blob(text.as_bytes()).unwrap(), git2::FileMode::Blob);
        let base = match &parent {
            Some(parent) => parent.tree().unwrap(),
            None => repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap(),
        };
        let tree = repository.find_tree(update.create_updated(&repository, &base).unwrap()).unwrap();
        let me = git2::Signature::now("me", "me@example.com").unwrap();
        let parents: Vec<_> = parent.iter().collect();
        let commit = repository.commit(None, &me, &me, text, &tree, &parents).unwrap();
        repository.reference(&format!("refs/heads/{branch}"), commit, true, "test").unwrap();
        commit
    }

    fn server_with(&self, token: &str) -> Server {
        let address = Address::new(Provider::Gitea, "file:///srv/shop/deploy.git", Some(&self.forge.url())).unwrap();
        let credentials = Credentials { token: Some(token.to_owned()), ..Credentials::default() };
        Server::new(address, &credentials, Pauses::default()).unwrap()
    }

    fn server(&self) -> Server {
        self.server_with("s3cr3t")
    }
}

fn text(title: &str) -> Text {
    Text { title: title.to_owned(), body: marked("what it does", "stoa:shop/web-dev/dev") }
}

#[tokio::test]
async fn server_opens_one_pull_request_per_branch() {
    let bed = Bed::new().await;
    let server = bed.server();
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None);
    assert!(matches!(server.open("stoa/x", "main", &text("one")).await, Err(PullError::NotFound(_))));
    let head = bed.commit("stoa/x", "a", "1");
    // Other people's pull requests, more than a page of them, and one of a fork that has a branch of the same name.
    for branch in ["b1", "b2", "b3"] {
        bed.commit(branch, "b", branch);
        bed.forge.open("shop/deploy", branch, "main", None);
    }
    let fork = bed.commit("elsewhere", "c", "3");
    bed.forge.open("shop/deploy", "stoa/x", "main", Some(fork));
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None, "that is the fork's");

    let opened = server.open("stoa/x", "main", &text("one")).await.unwrap();
    assert_eq!((opened.number, opened.state.clone(), opened.is_fork), (5, PullState::Open, false));
    assert_eq!(opened.head_commit, Some(head.to_string()));
    assert!(is_marked(&opened.body, "stoa:shop/web-dev/dev"));
    assert_eq!(server.open("stoa/x", "main", &text("two")).await.unwrap(), opened, "there is one already");
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), Some(opened.clone()));
    assert_eq!(server.find("stoa/x", "other").await.unwrap(), None);
    assert_eq!(server.list_open("main").await.unwrap().len(), 5);
    assert_eq!(server.list_open("").await.unwrap().len(), 5, "main is the default branch");
    assert!(server.list_open("other").await.unwrap().is_empty());
    assert_eq!(server.list_open("main").await.unwrap().iter().filter(|pull| pull.is_fork).count(), 1);

    server.update(5, &text("two\nlines")).await.unwrap();
    assert_eq!(server.get(5).await.unwrap().title, "two lines");
    let merged = bed.forge.merge(5, Merge::Squash);
    assert_eq!(server.get(5).await.unwrap().state, PullState::Merged(Some(merged.to_string())));
    server.close(5).await.unwrap();
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None);
    server.close(1).await.unwrap();
    assert_eq!(server.get(1).await.unwrap().state, PullState::Closed);
    assert!(matches!(server.get(9).await, Err(PullError::NotFound(_))));
}

#[tokio::test]
async fn pull_request_lookup_avoids_listing_all_open() {
    let bed = Bed::new().await;
    let server = bed.server();
    for number in 0..7 {
        let branch = format!("b{number}");
        bed.commit(&branch, "b", &branch);
        bed.forge.open("shop/deploy", &branch, "main", None);
    }
    let asked = async |found: Option<u64>| {
        let before = bed.forge.requests().len();
        let pull = server.find("stoa/shop/web-dev", "main").await.unwrap();
        assert_eq!(pull.map(|pull| pull.number), found);
        bed.forge.requests().len() - before
    };
    assert_eq!(asked(None).await, 1, "there never was one");
    bed.commit("stoa/shop/web-dev", "a", "1");
    server.open("stoa/shop/web-dev", "main", &text("one")).await.unwrap();
    assert_eq!(asked(Some(8)).await, 1);
    // The server tells of the first that there was; the one that is open was changed last.
    server.close(8).await.unwrap();
    server.open("stoa/shop/web-dev", "main", &text("two")).await.unwrap();
    assert_eq!(asked(Some(9)).await, 2);
}

#[tokio::test]
async fn lookup_finds_closed_pull_request_by_commit() {
    let bed = Bed::new().await;
    let server = bed.server();
    let head = bed.commit("better", "a", "1").to_string();
    let number = server.open("better", "main", &text("one")).await.unwrap().number;
    let closed = async |base: &str, commit: &str| {
        server.find_closed("better", base, commit).await.unwrap().map(|closed| closed.number)
    };
    assert_eq!(closed("main", &head).await, None, "it is open");
    server.close(number).await.unwrap();
    assert_eq!(closed("main", &head).await, Some(number));
    assert_eq!((closed("main", &"a".repeat(40)).await, closed("other", &head).await), (None, None));
    let again = server.open("better", "main", &text("one")).await.unwrap().number;
    bed.forge.merge(again, Merge::Squash);
    assert_eq!(closed("main", &head).await, Some(number), "one that was merged is not closed");
    bed.commit("others", "b", "1");
    for _ in 0..PAGE {
        let number = bed.forge.open("shop/deploy", "others", "main", None);
        bed.forge.close(number);
    }
    assert_eq!(closed("main", &head).await, None, "that was long ago");
}

#[tokio::test]
async fn unreadable_pull_request_blocks_no_other() {
    let bed = Bed::new().await;
    let server = bed.server();
    for branch in ["of-no-shape", "of-no-state", "whole"] {
        bed.commit(branch, "b", branch);
        bed.forge.open("shop/deploy", branch, "main", None);
    }
    bed.commit("stoa/x", "a", "1");
    // The server tells of the first of two branches, which is closed.
    server.open("stoa/x", "main", &text("one")).await.unwrap();
    server.close(4).await.unwrap();
    server.open("stoa/x", "main", &text("two")).await.unwrap();
    bed.commit("later", "b", "later");
    bed.forge.open("shop/deploy", "later", "main", None);
    bed.forge.garble(1, json!({"head": null}));
    bed.forge.garble(2, json!({"state": "half open"}));
    bed.forge.garble(4, json!({"state": "half open"}));
    // This one is told before the one that is looked for.
    bed.forge.garble(6, json!({"merge_commit_sha": "none"}));
    let open: Vec<u64> = server.list_open("main").await.unwrap().iter().map(|pull| pull.number).collect();
    assert_eq!(open, [3, 5]);
    assert_eq!(server.find("stoa/x", "main").await.unwrap().map(|pull| pull.number), Some(5));
    assert_eq!(server.open("stoa/x", "main", &text("three")).await.unwrap().number, 5, "there is one already");
    assert_eq!(server.find("later", "main").await.unwrap(), None);
}

#[tokio::test]
async fn server_reports_pull_request_mergeability() {
    let bed = Bed::new().await;
    let server = bed.server();
    bed.commit("stoa/x", "a", "1");
    server.open("stoa/x", "main", &text("one")).await.unwrap();
    assert_eq!(server.get(1).await.unwrap().is_mergeable, Some(true));
    let base = bed.commit("main", "a", "2");
    let pull = server.get(1).await.unwrap();
    assert_eq!((pull.is_mergeable, pull.base_commit), (Some(false), Some(base.to_string())));
}

fn of<'a>(marker: &'a str, body: &'a str) -> CommentText<'a> {
    CommentText { marker, body, before: None }
}

#[tokio::test]
async fn app_ignores_marked_comment_of_person() {
    let bed = Bed::new().await;
    bed.commit("b", "b", "1");
    let number = bed.forge.open("shop/deploy", "b", "main", None);
    bed.forge.be_used_by_an_app();
    let server = bed.server();
    let planted = marked("looks fine", "stoa:plan");
    bed.forge.say(number, &planted);
    let id = server.comment(number, &of("stoa:plan", "the first plan")).await.unwrap();
    assert_eq!(server.comment(number, &of("stoa:plan", "the second plan")).await.unwrap(), id);
    assert_eq!(bed.forge.comments(number), [planted.clone(), marked("the second plan", "stoa:plan")]);

    // Another program may have been made to write one; whoever remembers the id is not deceived.
    let number = bed.forge.open("shop/deploy", "b", "main", None);
    bed.forge.say_as("workflow", number, &planted);
    let before = Some(u64::MAX);
    let id = server.comment(number, &CommentText { before, ..of("stoa:plan", "the first plan") }).await.unwrap();
    let again = CommentText { before: Some(id), ..of("stoa:plan", "the second plan") };
    assert_eq!(server.comment(number, &again).await.unwrap(), id);
    assert_eq!(bed.forge.comments(number), [planted, marked("the second plan", "stoa:plan")]);
}

#[tokio::test]
async fn comment_is_written_once_and_only_over_our_own() {
    let bed = Bed::new().await;
    bed.commit("b", "b", "1");
    let number = bed.forge.open("shop/deploy", "b", "main", None);
    let server = bed.server();
    bed.forge.say(number, &marked("not yours", "stoa:plan"));
    server.comment(number, &of("stoa:plan", "the first plan")).await.unwrap();
    server.comment(number, &of("stoa:plan", "the second plan")).await.unwrap();
    server.comment(number, &of("stoa:other", "of another stack")).await.unwrap();
    let expected = [
        marked("not yours", "stoa:plan"),
        marked("the second plan", "stoa:plan"),
        marked("of another stack", "stoa:other"),
    ];
    assert_eq!(bed.forge.comments(number), expected);
    let before = bed.forge.requests().len();
    server.comment(number, &of("stoa:plan", "the second plan")).await.unwrap();
    assert_eq!(bed.forge.requests().len(), before + 1, "it is as it should be");
    let long = "x".repeat(100_000);
    server.comment(number, &of("stoa:plan", &long)).await.unwrap();
    let cut = &bed.forge.comments(number)[1];
    assert!(cut.chars().count() <= BODY && is_marked(cut, "stoa:plan"), "the marker stays");
}

#[tokio::test]
async fn status_is_said_of_a_commit() {
    let bed = Bed::new().await;
    let head = bed.commit("b", "b", "1").to_string();
    let status = CommitStatus {
        context: "stoa/web-dev/dev".to_owned(),
        state: StatusState::Success,
        description: "x".repeat(200),
        url: None,
    };
    bed.server().set_status(&head, &status).await.unwrap();
    let (of, said) = bed.forge.statuses().remove(0);
    assert_eq!((of, &said["state"], &said["context"]), (head, &json!("success"), &json!("stoa/web-dev/dev")));
    assert_eq!(said["description"].as_str().unwrap().chars().count(), DESCRIPTION);
    let of = bed.forge.statuses().remove(0).0;
    bed.server().set_status(&of, &status).await.unwrap();
    assert_eq!(bed.forge.statuses().len(), 1, "that was said");
    for (state, context) in [(StatusState::Failure, "stoa/web-dev/dev"), (StatusState::Success, "stoa/web-dev/prod")] {
        let other = CommitStatus { state, context: context.to_owned(), ..status.clone() };
        bed.server().set_status(&of, &other).await.unwrap();
    }
    bed.server().set_status(&of, &status).await.unwrap();
    assert_eq!(bed.forge.statuses().len(), 4, "it holds again");
    assert!(matches!(bed.server().set_status("main", &status).await, Err(PullError::Refused(_))));
}

#[tokio::test]
async fn client_honors_rate_limit_wait() {
    let bed = Bed::new().await;
    let server = bed.server();
    bed.forge.refuse_next(429, "30");
    let Err(PullError::Limited { wait, message }) = server.list_open("main").await else { panic!("it is limited") };
    assert_eq!(wait.as_secs(), 30);
    assert!(!message.contains("s3cr3t"), "{message}");
    let asked = bed.forge.requests().len();
    let error = server.get(1).await.unwrap_err();
    assert!(error.is_retryable() && matches!(error, PullError::Limited { .. }), "{error}");
    assert_eq!(bed.forge.requests().len(), asked, "nothing was asked");
}

#[tokio::test]
async fn errors_have_no_credentials() {
    let bed = Bed::new().await;
    let server = bed.server_with("hunter2-hunter2");
    let error = server.list_open("main").await.unwrap_err();
    assert!(matches!(&error, PullError::Unauthorized(said) if said.contains("(sensitive) is not known")), "{error}");
    assert!(!format!("{error:?} {server:?}").contains("hunter2"));
    let error = server.quoting_at_remote_alone().list_open("main").await.unwrap_err();
    assert_eq!(error, PullError::Unauthorized(format!("{}/api/v1: it answered 401 Unauthorized", bed.forge.url())));
    let basic = Credentials::of_keys(|key| match key {
        "username" => Some(&b"bot\n"[..]),
        "password" => Some(&b"hunter2\n"[..]),
        _ => None,
    });
    assert_eq!(basic.authorization().unwrap(), "Basic Ym90Omh1bnRlcjI=");
    assert!(!format!("{basic:?}").contains("hunter2"));
    let address = Address::new(Provider::Gitea, "git@x:shop/deploy.git", Some("http://127.0.0.1:1")).unwrap();
    let away = Server::new(address, &basic, Pauses::default()).unwrap();
    let error = away.get(1).await.unwrap_err();
    assert!(matches!(error, PullError::Unavailable(_)) && !error.to_string().contains("hunter2"), "{error}");
}

/// A server that answers anything without an end, redirects, or speaks no HTTP.
async fn answering(answer: &'static [u8], more: &'static [u8]) -> Server {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer).await;
                while !more.is_empty() && stream.write_all(more).await.is_ok() {}
            });
        }
    });
    let address = Address::new(Provider::Gitea, "git@x:shop/deploy.git", Some(&url)).unwrap();
    Server::new(address, &Credentials::default(), Pauses::default()).unwrap()
}

#[tokio::test]
async fn hostile_servers_are_refused() {
    let endless = answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[", &[b' '; 65_536]).await;
    let error = endless.list_open("main").await.unwrap_err();
    assert!(matches!(&error, PullError::Malformed(said) if said.contains("more than")), "{error}");
    let deep = format!("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{}", "[".repeat(5_000));
    let deep = answering(deep.leak().as_bytes(), b"").await;
    assert!(matches!(deep.list_open("main").await, Err(PullError::Malformed(_))));
    let away =
        answering(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n", b"").await;
    assert!(matches!(away.get(1).await, Err(PullError::Refused(said)) if said.contains("not followed")));
    let other = answering(b"SSH-2.0-OpenSSH_9.2\r\n", b"").await;
    assert!(matches!(other.get(1).await, Err(PullError::Unavailable(_))));
    // Pages without an end.
    let page = br#"[{"id": 1}]"#;
    let head = "HTTP/1.1 200 OK\r\nlink: <x>; rel=\"next\"\r\nconnection: close";
    let pages = format!("{head}\r\ncontent-length: {}\r\n\r\n{}", page.len(), String::from_utf8_lossy(page));
    let pages = answering(pages.leak().as_bytes(), b"").await;
    let error = pages.comment(1, &of("stoa:plan", "text")).await.unwrap_err();
    assert!(matches!(&error, PullError::Refused(said) if said.contains("more than 1000")), "{error}");
}
