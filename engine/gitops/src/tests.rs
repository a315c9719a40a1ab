mod proposals;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use git2::{Oid, Repository, RepositoryInitOptions};
use serde_json::json;
use stoa_git::cache::Folders;
use stoa_git::testing::empty_files;
use stoa_runtime::conformance::{self, Subject, recorded};

use super::*;
use crate::place::Location;

/// A bare repository, and runs that write to it, in place or through a server.
#[derive(Debug)]
struct Bed {
    directory: tempfile::TempDir,
    server: Option<Server>,
    runs: AtomicU64,
}

fn owner(stack: &str) -> Owner {
    Owner {
        organization: "shop".to_owned(),
        stack: stack.to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: format!("uid-of-{stack}"),
    }
}

/// Git's own server on loopback, which moves branches by compare-and-swap as all servers do.
#[derive(Debug)]
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(base: &Path) -> Self {
        let programs = Command::new("git").arg("--exec-path").output().expect("git is installed");
        let programs = String::from_utf8(programs.stdout).unwrap();
        // The port is free when it is looked for, and somebody else may take it before the server
        // does; then another is looked for.
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut process = Command::new(Path::new(programs.trim()).join("git-daemon"))
                .args(["--listen=127.0.0.1", "--export-all", "--enable=receive-pack", "--reuseaddr"])
                .arg(format!("--port={port}"))
                .arg(format!("--base-path={}", base.display()))
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while process.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self { process, port };
                }
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bed {
    /// A repository that is used in place.
    fn local() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = RepositoryInitOptions::new();
        Repository::init_opts(directory.path().join("deploy.git"), options.bare(true).initial_head("main")).unwrap();
        Self { directory, server: None, runs: AtomicU64::default() }
    }

    /// A repository behind a server.
    fn remote() -> Self {
        let bed = Self::local();
        Self { server: Some(Server::start(bed.directory.path())), ..bed }
    }

    fn both() -> [Self; 2] {
        [Self::local(), Self::remote()]
    }

    fn config(&self, uid: &str) -> GitOpsConfig {
        GitOpsConfig {
            repository: match &self.server {
                None => format!("file://{}", self.directory.path().join("deploy.git").display()),
                Some(server) => format!("git://127.0.0.1:{}/deploy.git", server.port),
            },
            branch: String::new(),
            directory: "dev".to_owned(),
            proposing: None,
            cache: Folders::new(self.directory.path().to_owned()).take("caches", "one"),
            run: RunInfo {
                uid: uid.to_owned(),
                name: "web-dev-x".to_owned(),
                owner: owner("web-dev"),
                requester: "ann".to_owned(),
                source_commit: "0123456".to_owned(),
            },
        }
    }

    fn run(&self, uid: &str) -> GitOpsRuntime {
        GitOpsRuntime::new(self.config(uid), Arc::new(Anonymous)).unwrap()
    }

    /// A run of another deployment.
    fn run_of(&self, owner: Owner, uid: &str) -> GitOpsRuntime {
        let mut config = self.config(uid);
        config.run.owner = owner;
        GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap()
    }

    fn repository(&self) -> Repository {
        Repository::open(self.directory.path().join("deploy.git")).unwrap()
    }

    /// The ids of all commits, newest first.
    fn log(&self) -> Vec<Oid> {
        let repository = self.repository();
        let mut walk = repository.revwalk().unwrap();
        if walk.push_ref("refs/heads/main").is_err() {
            return Vec::new();
        }
        walk.map(Result::unwrap).collect()
    }

    /// All files at the head.
    fn files(&self) -> Vec<String> {
        let repository = self.repository();
        let tree = repository.find_reference("refs/heads/main").unwrap().peel_to_tree().unwrap();
        let mut files = Vec::new();
        tree.walk(git2::TreeWalkMode::PreOrder, |folder, entry| {
            if entry.kind() == Some(git2::ObjectType::Blob) {
                files.push(format!("{folder}{}", entry.name().unwrap()));
            }
            git2::TreeWalkResult::Ok
        })
        .unwrap();
        files
    }

    /// A hook that refuses all pushes.
    fn refuse_pushes(&self) {
        let hook = self.directory.path().join("deploy.git/hooks/pre-receive");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Somebody else's commit on top of the branch.
    fn push_by_somebody_else(&self, path: &str, content: &str) {
        let repository = self.repository();
        let parent = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
        let blob = repository.blob(content.as_bytes()).unwrap();
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path, blob, git2::FileMode::Blob);
        let tree = update.create_updated(&repository, &parent.tree().unwrap()).unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let bob = git2::Signature::now("Bob", "bob@example.com").unwrap();
        repository.commit(Some("refs/heads/main"), &bob, &bob, "by hand", &tree, &[&parent]).unwrap();
    }
}

impl Subject for Bed {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        Arc::new(self.run_of(owner, &format!("run-{}", self.runs.fetch_add(1, Ordering::Relaxed))))
    }

    fn namespace(&self) -> &str {
        "shop"
    }
}

fn config_map(name: &str, value: &str) -> Resource {
    serde_json::from_value(json!({"id": format!("v1:ConfigMap:shop:{name}"), "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"a": value}}}))
    .unwrap()
}

async fn apply(runtime: &GitOpsRuntime, desired: &Resource) -> StateResource {
    let applied = runtime.apply(&ApplyRequest::new(desired, None)).await.unwrap();
    recorded(desired, &applied)
}

async fn finish(runtime: &GitOpsRuntime) -> Option<Oid> {
    runtime.finish(&Grant::unlimited()).await.unwrap().commit.map(|commit| Oid::from_str(&commit).unwrap())
}

#[tokio::test]
async fn a_local_repository_conforms() {
    conformance::all(&Bed::local()).await;
}

#[tokio::test]
async fn a_remote_repository_conforms() {
    conformance::all(&Bed::remote()).await;
}

#[tokio::test]
async fn a_run_is_one_commit_that_says_who_and_why() {
    for bed in Bed::both() {
        let runtime = bed.run("u-1");
        apply(&runtime, &config_map("a", "1")).await;
        apply(&runtime, &config_map("b", "1")).await;
        let commit = finish(&runtime).await.unwrap();
        assert_eq!(bed.log(), [commit]);
        let repository = bed.repository();
        let commit = repository.find_commit(commit).unwrap();
        assert_eq!(
            commit.message().unwrap(),
            "shop/web-dev on dev: 2 created\n\nStoa-Stack: shop/web-dev\nStoa-Workspace: dev\nStoa-Run-Name: web-dev-x\n\
             Stoa-Source-Commit: 0123456\nStoa-Requester: ann\nStoa-Run: u-1\n"
        );
        assert_eq!(commit.author().to_string(), "ann <ann@users.invalid>");
        assert_eq!(commit.committer().name().unwrap(), "Stoa");
        assert_eq!(bed.files(), ["dev/shop/configmap-a.yaml", "dev/shop/configmap-b.yaml"]);
    }
}

#[tokio::test]
async fn nothing_new_is_no_commit() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        finish(&first).await.unwrap();
        let second = bed.run("u-2");
        apply(&second, &config_map("a", "1")).await;
        assert_eq!(finish(&second).await, None);
        assert_eq!(bed.log().len(), 1);
    }
}

#[tokio::test]
async fn a_second_try_of_a_run_finds_the_commit_of_the_first() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await;
        bed.push_by_somebody_else("dev/shop/configmap-a.yaml", "changed: since\n");
        let again = bed.run("u-1");
        apply(&again, &config_map("a", "1")).await;
        assert_eq!(finish(&again).await, commit);
        assert_eq!(bed.log().len(), 2, "nothing was written again");
    }
}

#[tokio::test]
async fn a_second_try_writes_what_the_first_did_not() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await;
        let again = bed.run("u-1");
        apply(&again, &config_map("a", "1")).await;
        apply(&again, &config_map("b", "1")).await;
        assert_ne!(finish(&again).await, commit);
        assert_eq!(bed.files().len(), 2);
    }
}

#[tokio::test]
async fn deleted_files_take_their_empty_folder_with_them() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        let prior = apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        bed.push_by_somebody_else("README.md", "by hand\n");
        let second = bed.run("u-2");
        second.delete(&prior).await.unwrap();
        let commit = finish(&second).await.unwrap();
        assert_eq!(bed.files(), ["README.md"]);
        let repository = bed.repository();
        assert!(
            repository.find_commit(commit).unwrap().message().unwrap().starts_with("shop/web-dev on dev: 1 deleted\n")
        );
    }
}

#[tokio::test]
async fn what_names_no_namespace_leaves_the_folder_of_clusters_where_it_was_formerly() {
    for bed in Bed::both() {
        let mut desired = config_map("a", "1");
        desired.attributes["metadata"] = json!({"name": "a"});
        let run = bed.run("u-1");
        let prior = apply(&run, &desired).await;
        finish(&run).await;
        assert_eq!(bed.files(), ["dev/_default/configmap-a.yaml"]);
        let text =
            String::from_utf8(manifest::render(&Manifest::of(&desired, &owner("web-dev")).unwrap().object).unwrap());
        let text = text.unwrap();
        // As an earlier version laid it out, beside somebody else's.
        let first = bed.run("u-2");
        first.delete(&prior).await.unwrap();
        finish(&first).await;
        bed.push_by_somebody_else("dev/_cluster/configmap-a.yaml", &text);
        bed.push_by_somebody_else(
            "dev/_cluster/configmap-b.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
        );
        let requests = [ReadRequest { desired: Some(&desired), prior: None }];
        let answers = bed.run("u-3").read(&requests).await.unwrap();
        assert!(matches!(&answers[0], Ok(Live::Present(_))), "{answers:?}");
        let mut other = desired.clone();
        other.attributes["metadata"] = json!({"name": "b"});
        let second = bed.run("u-4");
        apply(&second, &desired).await;
        apply(&second, &other).await;
        finish(&second).await;
        let files = ["dev/_cluster/configmap-b.yaml", "dev/_default/configmap-a.yaml", "dev/_default/configmap-b.yaml"];
        assert_eq!(bed.files(), files);
        // Where it was not moved yet, it goes all the same.
        bed.push_by_somebody_else("dev/_cluster/configmap-a.yaml", &text);
        let third = bed.run("u-5");
        third.delete(&prior).await.unwrap();
        finish(&third).await;
        assert_eq!(bed.files(), ["dev/_cluster/configmap-b.yaml", "dev/_default/configmap-b.yaml"]);
    }
}

#[tokio::test]
async fn what_no_cluster_would_take_is_refused_and_what_nobody_knows_is_told() {
    let bed = Bed::local();
    let runtime = bed.run("u-1");
    let mut desired = config_map("a", "1");
    desired.attributes.insert("data".to_owned(), json!({"a": 1, "b": true}));
    desired.attributes.insert("dta".to_owned(), json!({}));
    let refused = runtime.preview(&ApplyRequest::new(&desired, None), None).await.unwrap_err();
    let RuntimeError::Invalid { message, field } = refused else { panic!("{refused:?}") };
    assert_eq!(field.as_deref(), Some("attributes.data.a"));
    assert_eq!(message, "text is wanted here, not a number; attributes.data.b: text is wanted here, not a boolean");
    let told = runtime.warnings(&desired);
    assert_eq!(told, ["v1:ConfigMap:shop:a: attributes.dta: no field is known that is called so"]);
    assert_eq!(runtime.warnings(&config_map("a", "1")), [""; 0]);
}

#[tokio::test]
async fn runs_that_write_at_once_all_get_through() {
    for bed in Bed::both() {
        let runs: Vec<_> = (0..6).map(|n| bed.run(&format!("u-{n}"))).collect();
        let written = join_all(runs.iter().enumerate().map(|(n, runtime)| async move {
            apply(runtime, &config_map(&format!("c{n}"), "1")).await;
            finish(runtime).await.unwrap()
        }))
        .await;
        let log = bed.log();
        assert_eq!(log.len(), 6, "{:?}", bed.server);
        assert!(written.iter().all(|commit| log.contains(commit)));
        assert_eq!(bed.files().len(), 6);
    }
}

#[tokio::test]
async fn a_commit_that_comes_between_is_built_upon() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await.unwrap();
        let runtime = bed.run("u-2");
        let (repository, head) = runtime.place.head().unwrap();
        assert_eq!(head, Some(commit));
        bed.push_by_somebody_else("README.md", "by hand\n");
        // What was made from the old head does not get in; the run does.
        let parent = repository.find_commit(commit).unwrap();
        let me = git2::Signature::now("me", "me@example.com").unwrap();
        let late = repository.commit(None, &me, &me, "late", &parent.tree().unwrap(), &[&parent]).unwrap();
        assert!(matches!(
            runtime.place.advance(&repository, head, late, &Grant::unlimited()).unwrap(),
            place::Advance::Raced(_)
        ));
        apply(&runtime, &config_map("b", "1")).await;
        finish(&runtime).await.unwrap();
        assert_eq!(bed.log().len(), 3);
        assert!(bed.files().contains(&"README.md".to_owned()));
    }
}

/// Does something whenever a reference of a copy has been fetched, before it is read.
struct Meanwhile<F>(F);

impl<F> fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl<F: Fn() + Send + Sync + 'static> Connect for Meanwhile<F> {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        let mut callbacks = git2::RemoteCallbacks::new();
        callbacks.update_tips(move |_, _, _| {
            (self.0)();
            true
        });
        callbacks
    }

    fn credentials(&self) -> Credentials {
        Credentials::default()
    }
}

#[tokio::test]
async fn nobody_reads_the_branch_of_another_who_shares_a_copy_and_a_name() {
    let bed = Bed::remote();
    let first = bed.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    let main = finish(&first).await.unwrap();
    bed.push_by_somebody_else("README.md", "by hand\n");
    let repository = bed.repository();
    let theirs = repository.refname_to_id("refs/heads/main").unwrap();
    repository.reference("refs/heads/other", theirs, true, "theirs").unwrap();
    repository.reference("refs/heads/main", main, true, "as before").unwrap();
    let copies = Folders::new(bed.directory.path().to_owned()).take("caches", "fresh");
    let at = |branch: &str, connect: Arc<dyn Connect>| {
        let config = GitOpsConfig { branch: branch.to_owned(), cache: copies.clone(), ..bed.config("look") };
        GitOpsRuntime::new(config, connect).unwrap()
    };
    let other = at("other", Arc::new(Anonymous));
    let place = Arc::clone(&other.place);
    let mine = at("main", Arc::new(Meanwhile(move || assert_eq!(place.head().unwrap().1, Some(theirs)))));
    let (copy, head) = mine.place.head().unwrap();
    assert_eq!(head, Some(main));

    // What is left of both is one reference for each branch, which a server is told.
    let mut left: Vec<Oid> = copy.references().unwrap().map(|it| it.unwrap().target().unwrap()).collect();
    let mut expected = [main, theirs];
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
    apply(&mine, &config_map("b", "1")).await;
    let written = finish(&mine).await.unwrap();
    let left: Vec<Oid> = copy.references().unwrap().map(|it| it.unwrap().target().unwrap()).collect();
    assert!(left.len() == 2 && left.contains(&written), "{left:?}");
    repository.find_reference("refs/heads/main").unwrap().delete().unwrap();
    assert_eq!(mine.place.head().unwrap().1, None);
    assert_eq!(copy.references().unwrap().count(), 1, "the branch is gone");
}

#[tokio::test]
async fn a_copy_that_is_broken_is_fetched_anew() {
    let bed = Bed::remote();
    let first = bed.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await.unwrap();
    let desired = config_map("a", "1");
    let read = async || {
        let requests = [ReadRequest { desired: Some(&desired), prior: None }];
        bed.run("u-2").read(&requests).await.map(|mut answers| answers.remove(0).unwrap())
    };
    let Location::Remote(url) = &first.place.location else { panic!("it is remote") };
    let copy = first.place.path_of_copy(url);
    let breaks: [fn(&Path); 4] = [
        |copy| empty_files(&copy.join("objects")),
        |copy| empty_files(&copy.join("refs")),
        |copy| std::fs::write(copy.join("config"), "[core").unwrap(),
        |copy| std::fs::remove_file(copy.join("HEAD")).unwrap(),
    ];
    for (nth, damage) in breaks.into_iter().enumerate() {
        assert!(matches!(read().await.unwrap(), Live::Present(_)));
        damage(&copy);
        bed.push_by_somebody_else("README.md", &format!("{nth}\n"));
        if let Err(err) = read().await {
            assert!(err.is_retryable(), "after break {nth}: {err}");
        }
        assert!(matches!(read().await.unwrap(), Live::Present(_)), "after break {nth}");
    }
    // Whoever is at work in a copy that another run has removed comes again.
    let gone = git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Os, "No such file or directory");
    assert!(first.place.explain(&gone).is_retryable());

    // And leaves the one alone that was fetched meanwhile.
    let broken = git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Odb, "object not found");
    let (old, _) = first.place.head().unwrap();
    stoa_git::cache::remove(&copy).unwrap();
    let (new, _) = first.place.head().unwrap();
    assert!(first.place.explain_in(&old, &broken).is_retryable() && copy.exists());
    assert!(first.place.explain_in(&new, &broken).is_retryable() && !copy.exists());
}

#[tokio::test]
async fn a_kind_that_nobody_knows_is_refused_where_no_cluster_is_asked() {
    let runtime = Bed::local().run("u-1");
    let mut desired = config_map("a", "1");
    desired.attributes.insert("kind".to_owned(), json!("ConfigMapSet"));
    let refused = runtime.preview(&ApplyRequest::new(&desired, None), None).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::UnknownKind(message) if message == "v1 has no kind \"ConfigMapSet\""));
}

#[tokio::test]
async fn a_server_that_refuses_the_push_is_not_asked_again() {
    let bed = Bed::remote();
    bed.refuse_pushes();
    let runtime = bed.run("u-1");
    apply(&runtime, &config_map("a", "1")).await;
    let (retryable, message) = told(runtime.finish(&Grant::unlimited()).await);
    assert!(!retryable && message.contains("refuses the push: pre-receive hook declined"), "{message}");
}

#[tokio::test]
async fn the_live_object_is_what_stands_at_the_head() {
    for bed in Bed::both() {
        let runtime = bed.run("u-1");
        let desired = config_map("a", "1");
        let prior = apply(&runtime, &desired).await;
        finish(&runtime).await;
        bed.push_by_somebody_else("dev/shop/configmap-a.yaml", "# by hand\napiVersion: v1\ndata: {a: \"2\"}\n");
        let requests = [ReadRequest { desired: Some(&desired), prior: None }];
        let answers = bed.run("u-2").read(&requests).await.unwrap();
        let Ok(Live::Present(live)) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!(live["data"], json!({"a": "2"}));

        bed.push_by_somebody_else("dev/shop/configmap-a.yaml", "a: [\n");
        let answers = bed.run("u-3").read(&requests).await.unwrap();
        let Err(RuntimeError::Invalid { message, .. }) = &answers[0] else { panic!("{answers:?}") };
        assert!(message.starts_with("dev/shop/configmap-a.yaml holds no object"), "{message}");

        // What is recorded there has lost all that it said, and is written anew or removed.
        let requests = [ReadRequest { desired: Some(&desired), prior: Some(&prior) }];
        let answers = bed.run("u-4").read(&requests).await.unwrap();
        let Ok(Live::Present(live)) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!(
            json!(live),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}})
        );
        let removing = bed.run("u-5");
        removing.delete(&prior).await.unwrap();
        finish(&removing).await;
        assert_eq!(bed.files(), [""; 0]);
    }
}

#[tokio::test]
async fn a_name_that_no_file_can_have_is_refused() {
    let bed = Bed::local();
    let runtime = bed.run("u-1");
    let role = |name: String| {
        let mut role = config_map("a", "1");
        role.attributes.insert("metadata".to_owned(), json!({"name": name, "namespace": "shop"}));
        role
    };
    let most = 255 - "configmap-.yaml".len();
    runtime.preview(&ApplyRequest::new(&role("a".repeat(most)), None), None).await.unwrap();
    for name in ["a".repeat(most + 1), ":".repeat(most / 3 + 1)] {
        let refused = runtime.preview(&ApplyRequest::new(&role(name), None), None).await.unwrap_err();
        let RuntimeError::Invalid { message, field } = refused else { panic!("{refused:?}") };
        assert_eq!(field.as_deref(), Some("attributes.metadata.name"));
        assert!(message.starts_with("the file would have a longer name"), "{message}");
    }
}

#[tokio::test]
async fn a_file_where_a_folder_should_be_is_told() {
    let bed = Bed::local();
    let first = bed.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await;
    bed.push_by_somebody_else("dev/other", "a file\n");
    let mut desired = config_map("b", "1");
    desired.attributes["metadata"]["namespace"] = json!("other");
    let second = bed.run("u-2");
    apply(&second, &desired).await;
    let err = second.finish(&Grant::unlimited()).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "dev/other/configmap-b.yaml cannot be written: a file stands where a folder should be, or a folder where a file should"
    );
}

#[tokio::test]
async fn a_folder_where_a_file_should_be_is_told_and_stays() {
    let bed = Bed::local();
    let first = bed.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await;
    let prior = apply(&bed.run("u-0"), &config_map("b", "1")).await;
    let theirs = "dev/shop/configmap-b.yaml/theirs.yaml";
    bed.push_by_somebody_else(theirs, "a: 1\n");
    let second = bed.run("u-2");
    apply(&second, &config_map("b", "2")).await;
    let (retryable, message) = told(second.finish(&Grant::unlimited()).await);
    assert!(!retryable && message.starts_with("dev/shop/configmap-b.yaml cannot be written"), "{message}");
    let third = bed.run("u-3");
    third.delete(&prior).await.unwrap();
    assert_eq!(finish(&third).await, None, "there is no such file");
    assert_eq!(bed.files(), ["dev/shop/configmap-a.yaml", theirs]);
}

fn told(result: Result<impl fmt::Debug, RuntimeError>) -> (bool, String) {
    let err = result.unwrap_err();
    (err.is_retryable(), err.to_string())
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_told() {
    let bed = Bed::local();
    let at = |repository: String| {
        GitOpsRuntime::new(GitOpsConfig { repository, ..bed.config("u") }, Arc::new(Anonymous)).unwrap()
    };
    let (retryable, message) = told(at("file:///nowhere/deploy.git".to_owned()).read(&[]).await);
    assert_eq!((retryable, message.as_str()), (false, "repository file:///nowhere/deploy.git does not exist"));

    let plain = bed.directory.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let (retryable, message) = told(at(plain.display().to_string()).read(&[]).await);
    assert!(!retryable && message.contains("does not exist"), "{message}");

    // Nothing listens on port 1.
    let (retryable, message) = told(at("http://bot:hunter2@127.0.0.1:1/deploy.git".to_owned()).read(&[]).await);
    assert!(
        retryable && message.starts_with("repository http://127.0.0.1:1/deploy.git cannot be reached"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
}

/// Shows a token, as far as messages go.
#[derive(Debug)]
struct Token(&'static str);

impl Connect for Token {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        git2::RemoteCallbacks::new()
    }

    fn credentials(&self) -> Credentials {
        [("token".to_owned(), self.0.as_bytes().to_vec())].into_iter().collect()
    }
}

#[tokio::test]
async fn a_server_that_repeats_a_credential_is_quoted_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let repository = format!("git://{}/deploy.git", listener.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let said = "ERR nobody is called s3cr3t";
        std::io::Write::write_all(&mut stream, format!("{:04x}{said}", said.len() + 4).as_bytes()).unwrap();
        // Until it is read, lest it be reset.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let bed = Bed::local();
    let config = GitOpsConfig { repository, ..bed.config("u") };
    let (_, message) = told(GitOpsRuntime::new(config, Arc::new(Token("s3cr3t"))).unwrap().read(&[]).await);
    answer.join().unwrap();
    assert!(message.ends_with("remote error: nobody is called (sensitive)"), "{message}");

    // So is a hook that refuses a push.
    let bed = Bed::remote();
    bed.refuse_pushes();
    let runtime = GitOpsRuntime::new(bed.config("u-1"), Arc::new(Token("declined"))).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let (_, message) = told(runtime.finish(&Grant::unlimited()).await);
    assert!(message.ends_with("pre-receive hook (sensitive)"), "{message}");
}

#[tokio::test]
async fn a_branch_that_is_checked_out_is_left_alone() {
    let bed = Bed::local();
    let path: &Path = &bed.directory.path().join("work");
    Repository::init_opts(path, RepositoryInitOptions::new().initial_head("main")).unwrap();
    let config = GitOpsConfig { repository: path.display().to_string(), ..bed.config("u") };
    let (retryable, message) =
        told(GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap().finish(&Grant::unlimited()).await);
    assert!(!retryable && message.ends_with("has refs/heads/main checked out; use a bare repository"), "{message}");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_field() {
    let bed = Bed::local();
    let check = |change: fn(&mut GitOpsConfig), expected: &str| {
        let mut config = bed.config("u");
        change(&mut config);
        let Err(RuntimeError::Invalid { field, .. }) = GitOpsRuntime::new(config, Arc::new(Anonymous)) else {
            panic!("{expected} is accepted")
        };
        assert_eq!(field.as_deref(), Some(expected));
    };
    check(|config| config.branch = "a..b".to_owned(), "spec.gitops.branch");
    check(|config| config.directory = "../up".to_owned(), "spec.gitops.directory");
    check(|config| config.directory = "a/.git/hooks".to_owned(), "spec.gitops.directory");
    check(|config| config.repository.clear(), "spec.gitops.repository");
}

#[tokio::test]
async fn nobody_makes_up_a_trailer_or_an_author() {
    let bed = Bed::local();
    let mut config = bed.config("u-1");
    config.run.requester = "eve <x@y>\nStoa-Run: u-2".to_owned();
    let runtime = GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let commit = finish(&runtime).await.unwrap();
    let repository = bed.repository();
    let commit = repository.find_commit(commit).unwrap();
    assert!(!commit.message().unwrap().lines().any(|line| line == "Stoa-Run: u-2"));
    assert_eq!(commit.author().name().unwrap(), "eve x@yStoa-Run: u-2");
}

/// The same ConfigMap as a file, by whoever is marked.
fn file(name: &str, mark: &str) -> String {
    let annotations =
        if mark.is_empty() { String::new() } else { format!(", annotations: {{stoa.dev/owner: {mark}}}") };
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop{annotations}}}\ndata: {{a: theirs}}\n"
    )
}

#[tokio::test]
async fn nothing_of_a_run_is_written_when_one_file_became_anothers_meanwhile() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        let second = bed.run("u-2");
        apply(&second, &config_map("a", "2")).await;
        apply(&second, &config_map("b", "2")).await;
        bed.push_by_somebody_else("dev/shop/configmap-b.yaml", &file("b", "shop/api/dev/u"));
        let (retryable, message) = told(second.finish(&Grant::unlimited()).await);
        assert!(
            !retryable && message.starts_with("ConfigMap b in namespace shop belongs to shop/api/dev"),
            "{message}"
        );
        assert_eq!(bed.log().len(), 2, "nothing was written");
    }
}

#[tokio::test]
async fn what_became_anothers_meanwhile_is_left_and_the_rest_goes() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        let priors = [apply(&first, &config_map("a", "1")).await, apply(&first, &config_map("b", "1")).await];
        finish(&first).await;
        let second = bed.run("u-2");
        for prior in &priors {
            assert_eq!(second.delete(prior).await.unwrap(), Deleted::Gone, "nobody knows yet");
        }
        bed.push_by_somebody_else("dev/shop/configmap-b.yaml", &file("b", "shop/api/dev/u"));
        let finished = second.finish(&Grant::unlimited()).await.unwrap();
        let left = BTreeMap::from([(priors[1].id.clone(), "shop/api/dev".to_owned())]);
        assert_eq!(finished.left, left);
        assert_eq!(bed.files(), ["dev/shop/configmap-b.yaml"]);
        let again = bed.run("u-2");
        for prior in &priors {
            again.delete(prior).await.unwrap();
        }
        assert_eq!(
            again.finish(&Grant::unlimited()).await.unwrap(),
            finished,
            "a second try finds the commit of the first"
        );
    }
}

#[tokio::test]
async fn a_file_without_a_mark_is_what_its_run_wrote_or_others() {
    for bed in Bed::both() {
        let first = bed.run("u-1");
        let prior = apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        bed.push_by_somebody_else("dev/shop/configmap-a.yaml", &file("a", ""));
        let look = async |run: &str| {
            let found = bed.run("u-2").look_for(&[LostCall { resource: &prior, run }]).await.unwrap().remove(0);
            found.unwrap()
        };
        assert!(matches!(look("u-1").await, Found::Ours(_)), "as before there were marks");
        assert_eq!(look("u-0").await, Found::Foreign);
        assert_eq!(bed.run("u-2").delete(&prior).await.unwrap(), Deleted::Gone);
        // What has no mark yet gets one with its next change.
        let second = bed.run("u-2");
        apply(&second, &config_map("a", "2")).await;
        finish(&second).await.unwrap();
        assert!(matches!(look("u-0").await, Found::Ours(_)));
    }
}
