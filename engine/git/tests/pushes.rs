//! Pushes to real servers and folders.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use git2::{Oid, Repository};
use stoa_engine_git::commit::{Change, FileToWrite, NewCommit, Person, make};
use stoa_engine_git::push::{Moved, Outcome, PushError, RefUpdate, push};
use stoa_engine_git::remote::{Access, Connection, RemoteError, Service};
use stoa_git::Credentials;
use stoa_git::testing::{Behaviour, GitServer, SshServer, skipped};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tempfile::TempDir;

const PASSWORD: &str = "correct horse";

/// A remote repository, and one that pushes to it.
struct Bed {
    directory: TempDir,
    here: Repository,
}

impl Bed {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let remote = Repository::init_bare(directory.path().join("a.git")).unwrap();
        remote.config().unwrap().set_bool("http.receivepack", true).unwrap();
        let here = Repository::init_bare(directory.path().join("here.git")).unwrap();
        Self { directory, here }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.git")
    }

    fn remote(&self) -> Repository {
        Repository::open_bare(self.path()).unwrap()
    }

    fn commit(&self, parents: &[Oid], content: &str) -> Oid {
        let person = || Person { name: "t".to_owned(), email: "t@example.com".to_owned(), seconds: 1 };
        let files = vec![FileToWrite { path: "Kptfile", content: content.as_bytes(), is_executable: false }];
        let change = Change::Files { base: None, files, removed: BTreeSet::new(), most: 1000 };
        let (author, committer) = (person(), person());
        let parents = parents.to_vec();
        make(&self.here, &NewCommit { parents, message: "m", author, committer, path: "web", change }).unwrap().commit
    }

    fn at(&self, name: &str) -> Option<Oid> {
        self.remote().refname_to_id(name).ok()
    }
}

fn access(url: String, credentials: &[(&str, &str)]) -> Access {
    let credentials = credentials.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    Access { url, credentials: credentials.collect::<Credentials>(), authorities: None }
}

fn update(name: &str, expected: Option<Oid>, target: Option<Oid>) -> RefUpdate {
    RefUpdate { name: name.to_owned(), expected, target }
}

const MAIN: &str = "refs/heads/main";
const DRAFT: &str = "refs/heads/drafts/web/v1";
const TAG: &str = "refs/tags/web/v1";

const DONE: Outcome = Outcome::Done { was_done: false };
const WAS_DONE: Outcome = Outcome::Done { was_done: true };

/// A package's life against any remote: created, approved with three refs at once, and every stale request in between.
fn check_pushes(bed: &Bed, access: &Access) {
    let push = |updates: &[RefUpdate]| push(&bed.here, access, updates).unwrap();
    let first = bed.commit(&[], "1");
    let create = [update(MAIN, None, Some(first))];
    assert_eq!(push(&create), DONE);
    assert_eq!(push(&create), WAS_DONE, "it is repeated");
    let draft = bed.commit(&[first], "2");
    assert_eq!(push(&[update(DRAFT, None, Some(draft))]), DONE);
    assert_eq!(bed.at(DRAFT), Some(draft));

    let approved = bed.commit(&[first, draft], "2");
    let approve = [
        update(MAIN, Some(first), Some(approved)),
        update(TAG, None, Some(approved)),
        update(DRAFT, Some(draft), None),
    ];
    let other = bed.commit(&[first], "other");
    let stale = [update(MAIN, Some(other), Some(approved)), approve[1].clone(), approve[2].clone()];
    let moved = Moved { name: MAIN.to_owned(), expected: Some(other), actual: Some(first) };
    assert_eq!(push(&stale), Outcome::Conflict(vec![moved]));
    assert_eq!((bed.at(MAIN), bed.at(TAG), bed.at(DRAFT)), (Some(first), None, Some(draft)), "nothing moved");

    assert_eq!(push(&approve), DONE);
    assert_eq!((bed.at(MAIN), bed.at(TAG), bed.at(DRAFT)), (Some(approved), Some(approved), None));
    assert_eq!(push(&approve), WAS_DONE);

    // A ref that is gone is not one that this request deleted.
    let next = bed.commit(&[approved], "3");
    let late = [update(MAIN, Some(approved), Some(next)), update(DRAFT, Some(draft), None)];
    let moved = Moved { name: DRAFT.to_owned(), expected: Some(draft), actual: None };
    assert_eq!(push(&late), Outcome::Conflict(vec![moved]));
    assert_eq!(bed.at(MAIN), Some(approved));
    // To an old commit, and no objects to send.
    assert_eq!(push(&[update(DRAFT, None, Some(draft))]), DONE);
    assert_eq!(push(&[update(DRAFT, Some(draft), None), update(TAG, Some(approved), None)]), DONE);
    assert_eq!((bed.at(TAG), bed.at(DRAFT)), (None, None));
    // A lost tag and a forced push.
    assert_eq!(push(&[update(MAIN, Some(approved), Some(first)), update(TAG, None, Some(approved))]), DONE);
    let kept = bed.remote();
    assert!(
        kept.find_commit(approved).is_ok_and(|commit| commit.tree().unwrap().get_path("web/Kptfile".as_ref()).is_ok())
    );
}

#[test]
fn long_name_is_rejected_before_a_connection() {
    let bed = Bed::new();
    let name = format!("refs/heads/{}", "x".repeat(70_000));
    let updates = [update(&name, None, Some(bed.commit(&[], "1")))];
    let outcome = push(&bed.here, &access("https://127.0.0.1:9/a.git".to_owned(), &[]), &updates).unwrap();
    assert!(matches!(outcome, Outcome::Rejected { message, .. } if message.contains("more than 1024 bytes")));
}

#[test]
fn folder_moves_all_refs_or_none() {
    let bed = Bed::new();
    check_pushes(&bed, &access(format!("file://{}", bed.path().display()), &[]));
}

#[test]
fn checked_out_branch_is_not_moved() {
    let bed = Bed::new();
    let worktree = bed.directory.path().join("tree");
    let mut options = git2::RepositoryInitOptions::new();
    options.initial_head("main");
    Repository::init_opts(&worktree, &options).unwrap();
    let access = access(worktree.display().to_string(), &[]);
    let first = bed.commit(&[], "1");
    let refused = push(&bed.here, &access, &[update(MAIN, None, Some(first))]).unwrap();
    assert!(matches!(refused, Outcome::Rejected { name, .. } if name == MAIN));
    assert_eq!(push(&bed.here, &access, &[update(DRAFT, None, Some(first))]).unwrap(), DONE);
}

#[test]
fn locked_ref_moves_nothing() {
    let bed = Bed::new();
    let access = access(bed.path().display().to_string(), &[]);
    let first = bed.commit(&[], "1");
    push(&bed.here, &access, &[update(MAIN, None, Some(first))]).unwrap();
    let remote = bed.remote();
    let mut lock = remote.transaction().unwrap();
    lock.lock_ref(TAG).unwrap();
    let next = bed.commit(&[first], "2");
    let updates = [update(MAIN, Some(first), Some(next)), update(TAG, None, Some(next))];
    let refused = push(&bed.here, &access, &updates).unwrap_err();
    assert!(matches!(&refused, PushError::Folder(message) if message.contains("locked")), "{refused}");
    assert_eq!(bed.at(MAIN), Some(first));
    drop(lock);
    assert_eq!(push(&bed.here, &access, &updates).unwrap(), DONE);
}

async fn serve(bed: &Bed, password: &str) -> (GitServer, String, CertificateAuthority) {
    let authority = CertificateAuthority::new("git test").unwrap();
    let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
    let tls = (issued.certificate_pem.as_str(), issued.key_pem.as_str());
    let server = GitServer::start(bed.directory.path(), password, Some(tls)).await;
    let url = server.url("https", "a.git");
    (server, url, authority)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn https_server_moves_all_refs_or_none() {
    let bed = Bed::new();
    let (_server, url, authority) = serve(&bed, PASSWORD).await;
    let access = access(url, &[("username", "bot"), ("password", PASSWORD), ("ca.crt", authority.certificate_pem())]);
    blocking(move || check_pushes(&bed, &access)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_credentials_are_not_shown() {
    let bed = Bed::new();
    let (_server, url, authority) = serve(&bed, PASSWORD).await;
    let ca = authority.certificate_pem().to_owned();
    let other = CertificateAuthority::new("other").unwrap().certificate_pem().to_owned();
    let refused = blocking(move || {
        let open = |credentials: &[(&str, &str)]| {
            Connection::open(&access(url.clone(), credentials), Service::ReceivePack).unwrap_err()
        };
        [
            open(&[("username", "bot"), ("password", "wrong password"), ("ca.crt", &ca)]),
            open(&[("bearerToken", "wrong password"), ("ca.crt", &ca)]),
            open(&[("ca.crt", &ca)]),
            open(&[("username", "bot"), ("password", PASSWORD), ("ca.crt", &other)]),
            open(&[("username", "bot"), ("password", PASSWORD)]),
        ]
    });
    for (number, error) in refused.await.iter().enumerate() {
        match number {
            0..3 => assert!(matches!(error, RemoteError::Unauthorized(..)), "{number}: {error}"),
            _ => assert!(matches!(error, RemoteError::Untrusted(..)), "{number}: {error}"),
        }
        assert!(!error.to_string().contains("wrong password") && !error.to_string().contains(PASSWORD), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn push_without_an_answer_is_repeated() {
    let bed = Bed::new();
    let (server, url, authority) = serve(&bed, PASSWORD).await;
    let access = access(url, &[("username", "bot"), ("password", PASSWORD), ("ca.crt", authority.certificate_pem())]);
    let first = bed.commit(&[], "1");
    let updates = [update(MAIN, None, Some(first)), update(TAG, None, Some(first))];
    for (behaviour, arrives) in [(Behaviour::TakesNoPush, false), (Behaviour::Mute, true)] {
        server.behave(behaviour);
        let (bed, access, updates) = (Repository::open(bed.here.path()).unwrap(), access.clone(), updates.clone());
        let pushed = blocking(move || push(&bed, &access, &updates)).await;
        assert!(matches!(pushed, Err(PushError::Remote(RemoteError::Unanswered(..)))), "{pushed:?}");
        server.behave(Behaviour::Normal);
        let _ = arrives;
    }
    assert_eq!(bed.at(TAG), Some(first));
    let here = Repository::open(bed.here.path()).unwrap();
    let repeated = blocking(move || push(&here, &access, &updates).unwrap()).await;
    assert_eq!(repeated, WAS_DONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_of_a_hook_moves_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    let hook = bed.path().join("hooks/update");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\ncase $1 in refs/heads/main) echo main is protected >&2; exit 1;; esac\n")
        .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (_server, url, authority) = serve(&bed, PASSWORD).await;
    let access = access(url, &[("username", "bot"), ("password", PASSWORD), ("ca.crt", authority.certificate_pem())]);
    let first = bed.commit(&[], "1");
    let updates = [update(TAG, None, Some(first)), update(MAIN, None, Some(first))];
    let here = Repository::open(bed.here.path()).unwrap();
    let pushed = blocking(move || push(&here, &access, &updates).unwrap()).await;
    let Outcome::Rejected { name, message } = pushed else { panic!("{pushed:?}") };
    assert_eq!(name, MAIN);
    assert!(message.contains("main is protected"), "{message}");
    assert_eq!((bed.at(MAIN), bed.at(TAG)), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_lose_nothing() {
    let bed = Bed::new();
    let (_server, url, authority) = serve(&bed, PASSWORD).await;
    let access = access(url, &[("username", "bot"), ("password", PASSWORD), ("ca.crt", authority.certificate_pem())]);
    let first = bed.commit(&[], "1");
    let here = Repository::open(bed.here.path()).unwrap();
    let (to, by) = (access.clone(), [update(MAIN, None, Some(first))]);
    blocking(move || push(&here, &to, &by).unwrap()).await;
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let target = bed.commit(&[first], &format!("writer {number}"));
            let tag = format!("refs/tags/web/v{number}");
            let updates = [update(MAIN, Some(first), Some(target)), update(&tag, None, Some(target))];
            let (here, access) = (Repository::open(bed.here.path()).unwrap(), access.clone());
            (target, tag, tokio::task::spawn_blocking(move || push(&here, &access, &updates).unwrap()))
        })
        .collect();
    let mut won = Vec::new();
    for (target, tag, writer) in writers {
        match writer.await.unwrap() {
            Outcome::Done { was_done: false } => won.push(target),
            Outcome::Conflict(moved) => {
                assert_eq!(moved.len(), 1, "{moved:?}");
                assert!(moved[0].name == MAIN && moved[0].actual != Some(first), "{moved:?}");
                assert_eq!(bed.at(&tag), None, "all or none");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won.len(), 1);
    assert_eq!(bed.at(MAIN), won.first().copied());
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_server_moves_all_refs_or_none() {
    let Some(server) = SshServer::start().await else { return skipped("pushes over SSH, for lack of sshd") };
    let bed = Bed::new();
    let url = server.url("", &bed.path());
    let (key, known, user) = (server.private_key(), server.known_hosts(), SshServer::user());
    let (other_key, other_known) = server.other_key();
    blocking(move || {
        let with = |key: &str, known: &str| {
            access(url.clone(), &[("username", &user), ("ssh-privatekey", key), ("known_hosts", known)])
        };
        let open = |access: &Access| Connection::open(access, Service::ReceivePack).unwrap_err();
        assert!(matches!(open(&with(&other_key, &known)), RemoteError::Unauthorized(..)));
        assert!(matches!(open(&with(&key, &other_known)), RemoteError::Untrusted(..)));
        check_pushes(&bed, &with(&key, &known));
    })
    .await;
}
