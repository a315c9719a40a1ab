mod folder;
mod foreign_contents;
mod other_writers;
mod proposals;
mod refusals;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use git2::{Oid, Repository, RepositoryInitOptions};
use serde_json::json;
use stoa_git::cache::Folders;
use stoa_git::testing::empty_files;
use stoa_runtime::conformance::{self, Subject, recorded};

use super::*;
use crate::branch::Location;

/// A bare repository for test runs, in place or behind a server.
#[derive(Debug)]
struct TestRepository {
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

impl TestRepository {
    /// A repository that is used in place.
    fn local() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = RepositoryInitOptions::new();
        Repository::init_opts(directory.path().join("deploy.git"), options.bare(true).initial_head("main")).unwrap();
        Self { directory, server: None, runs: AtomicU64::default() }
    }

    /// A repository behind a server.
    fn remote() -> Self {
        let repository = Self::local();
        Self { server: Some(Server::start(repository.directory.path())), ..repository }
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
            create_branch: true,
            validation: Validated::default(),
            proposing: None,
            cache: Folders::new(self.directory.path().to_owned()).take("caches", "one"),
            definitions: Arc::default(),
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
    fn foreign_push(&self, path: &str, content: &str) {
        let repository = self.repository();
        let parent = repository.find_reference("refs/heads/main").ok().map(|head| head.peel_to_commit().unwrap());
        let base = match &parent {
            Some(parent) => parent.tree_id(),
            None => repository.treebuilder(None).unwrap().write().unwrap(),
        };
        let base = repository.find_tree(base).unwrap();
        let blob = repository.blob(content.as_bytes()).unwrap();
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path, blob, git2::FileMode::Blob);
        let tree = update.create_updated(&repository, &base).unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let bob = git2::Signature::now("Bob", "bob@example.com").unwrap();
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        repository.commit(Some("refs/heads/main"), &bob, &bob, "by hand", &tree, &parents).unwrap();
    }
}

impl Subject for TestRepository {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        Arc::new(self.run_of(owner, &format!("run-{}", self.runs.fetch_add(1, Ordering::Relaxed))))
    }

    fn namespace(&self) -> Option<&str> {
        Some("shop")
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

fn told(result: Result<impl fmt::Debug, RuntimeError>) -> (bool, String) {
    let err = result.unwrap_err();
    (err.is_retryable(), err.to_string())
}

#[tokio::test]
async fn local_repository_conforms() {
    conformance::all(&TestRepository::local()).await;
}

#[tokio::test]
async fn remote_repository_conforms() {
    conformance::all(&TestRepository::remote()).await;
}

#[tokio::test]
async fn run_is_one_commit_with_trailers() {
    for repository in TestRepository::both() {
        let runtime = repository.run("u-1");
        apply(&runtime, &config_map("a", "1")).await;
        apply(&runtime, &config_map("b", "1")).await;
        let commit = finish(&runtime).await.unwrap();
        assert_eq!(repository.log(), [commit]);
        let git = repository.repository();
        let commit = git.find_commit(commit).unwrap();
        assert_eq!(
            commit.message().unwrap(),
            "shop/web-dev on dev: 2 created\n\nStoa-Stack: shop/web-dev\nStoa-Workspace: dev\nStoa-Run-Name: web-dev-x\n\
             Stoa-Source-Commit: 0123456\nStoa-Requester: ann\nStoa-Run: u-1\n"
        );
        assert_eq!(commit.author().to_string(), "ann <ann@users.invalid>");
        assert_eq!(commit.committer().name().unwrap(), "Stoa");
        assert_eq!(repository.files(), ["dev/shop/configmap-a.yaml", "dev/shop/configmap-b.yaml"]);
    }
}

#[tokio::test]
async fn nothing_new_is_no_commit() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        finish(&first).await.unwrap();
        let second = repository.run("u-2");
        apply(&second, &config_map("a", "1")).await;
        assert_eq!(finish(&second).await, None);
        assert_eq!(repository.log().len(), 1);
    }
}

#[tokio::test]
async fn second_try_finds_first_commit() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await;
        repository.foreign_push("dev/shop/configmap-a.yaml", "changed: since\n");
        let again = repository.run("u-1");
        apply(&again, &config_map("a", "1")).await;
        assert_eq!(finish(&again).await, commit);
        assert_eq!(repository.log().len(), 2, "nothing was written again");
    }
}

#[tokio::test]
async fn second_try_writes_missing_changes() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await;
        let again = repository.run("u-1");
        apply(&again, &config_map("a", "1")).await;
        apply(&again, &config_map("b", "1")).await;
        assert_ne!(finish(&again).await, commit);
        assert_eq!(repository.files().len(), 2);
    }
}

#[tokio::test]
async fn deletion_removes_empty_folder() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        let prior = apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        repository.foreign_push("README.md", "by hand\n");
        let second = repository.run("u-2");
        second.delete(&prior).await.unwrap();
        let commit = finish(&second).await.unwrap();
        assert_eq!(repository.files(), ["README.md"]);
        let repository = repository.repository();
        assert!(
            repository.find_commit(commit).unwrap().message().unwrap().starts_with("shop/web-dev on dev: 1 deleted\n")
        );
    }
}

#[tokio::test]
async fn object_without_namespace_has_default_folder() {
    for repository in TestRepository::both() {
        let mut desired = config_map("a", "1");
        desired.attributes["metadata"] = json!({"name": "a"});
        let run = repository.run("u-1");
        let prior = apply(&run, &desired).await;
        finish(&run).await;
        assert_eq!(repository.files(), ["dev/_default/configmap-a.yaml"]);
        let second = repository.run("u-2");
        second.delete(&prior).await.unwrap();
        finish(&second).await;
        assert!(repository.files().is_empty());
    }
}

#[tokio::test]
async fn broken_copy_is_fetched_again() {
    let repository = TestRepository::remote();
    let first = repository.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await.unwrap();
    let desired = config_map("a", "1");
    let read = async || {
        let requests = [ReadRequest { desired: Some(&desired), prior: None }];
        repository.run("u-2").read(&requests).await.map(|mut answers| answers.remove(0).unwrap())
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
        repository.foreign_push("README.md", &format!("{nth}\n"));
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
async fn live_object_is_at_branch_head() {
    for repository in TestRepository::both() {
        let runtime = repository.run("u-1");
        let desired = config_map("a", "1");
        let prior = apply(&runtime, &desired).await;
        finish(&runtime).await;
        repository.foreign_push("dev/shop/configmap-a.yaml", "# by hand\napiVersion: v1\ndata: {a: \"2\"}\n");
        let requests = [ReadRequest { desired: Some(&desired), prior: None }];
        let answers = repository.run("u-2").read(&requests).await.unwrap();
        let Ok(Live::Present(live)) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!(live["data"], json!({"a": "2"}));

        repository.foreign_push("dev/shop/configmap-a.yaml", "a: [\n");
        let answers = repository.run("u-3").read(&requests).await.unwrap();
        let Err(RuntimeError::Invalid { message, .. }) = &answers[0] else { panic!("{answers:?}") };
        assert!(message.starts_with("dev/shop/configmap-a.yaml is not an object"), "{message}");

        // What is recorded there has lost all that it said, and is written anew or removed.
        let requests = [ReadRequest { desired: Some(&desired), prior: Some(&prior) }];
        let answers = repository.run("u-4").read(&requests).await.unwrap();
        let Ok(Live::Present(live)) = &answers[0] else { panic!("{answers:?}") };
        assert_eq!(
            json!(live),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}})
        );
        let removing = repository.run("u-5");
        removing.delete(&prior).await.unwrap();
        finish(&removing).await;
        assert_eq!(repository.files(), [""; 0]);
    }
}
