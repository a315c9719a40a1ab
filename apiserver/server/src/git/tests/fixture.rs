//! A server's registry with its controllers, its control repository, and clones of that.

use std::{path::PathBuf, process::Command, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use stoa_control_repo::{GitOptions, GitStatus};
use stoa_controller::{events::Recorder, object::Kind};
use stoa_kinds::{
    cluster::{Cluster, standalone::StandaloneCluster},
    hub::memory::Hub,
    kind::Surroundings,
    lookup::Lookup,
    package_repositories::Packages,
    scheduler::fleets::Fleets,
};
use stoa_machinery::{
    ApiError, Object, Registry, RequestContext,
    admission::Chain,
    auth::{AllowAll, Authorizer},
    log::{Key, Log, MemoryLog, Record, Version},
    registry::{Apply, DeleteOptions, Store, Stored, Target, UpdateSource, Window},
    request::UserInfo,
};
use stoa_runs::testing::{services, unreachable_runner};
use stoa_types::Organization;
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    controllers,
    git::{Metrics, REPOSITORY, Repository, attach, start_with},
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Fixture {
    pub(super) registry: Arc<Registry>,
    pub(super) status: watch::Receiver<GitStatus>,
    pub(super) recorder: Recorder,
    directory: TempDir,
    _tasks: JoinSet<()>,
    _end: DropGuard,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        Self::with_authorizer(Arc::new(AllowAll)).await
    }

    pub(super) async fn with_authorizer(authorizer: Arc<dyn Authorizer>) -> Self {
        Self::with(authorizer, Window::default()).await
    }

    /// One that keeps little history in memory.
    pub(super) async fn forgetful() -> Self {
        Self::with(Arc::new(AllowAll), Window { events: 16, age: Duration::ZERO, ..Window::default() }).await
    }

    async fn with(authorizer: Arc<dyn Authorizer>, window: Window) -> Self {
        let end = CancellationToken::new();
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let lookup = Lookup::default();
        let cluster: Arc<dyn Cluster> = Arc::new(StandaloneCluster { lookup: lookup.clone() });
        let directory = TempDir::new().expect("a directory");
        let builder = Registry::builder(log.clone()).end_with(end.clone()).window(window);
        let packages = Packages::default();
        let surroundings = Surroundings {
            lookup: lookup.clone(),
            cluster: cluster.clone(),
            packages,
            fleets: Fleets::default(),
            hub: Hub::default(),
        };
        let builder = stoa_kinds::register(builder, &surroundings, |_, definition| definition);
        let builder = stoa_kinds::core_v1::register(builder).namespaces_in("", "v1", "namespaces");
        let metrics = Metrics::new(&prometheus::Registry::new()).expect("registered");
        let repository = Repository {
            folder: directory.path().to_owned(),
            remote: None,
            patience: Duration::from_secs(30),
            metrics,
        };
        let builder = attach(builder, Chain::default(), cluster.clone(), log.clone(), &repository);
        let registry = lookup.build(builder).await.expect("built");
        let documents = directory.path().join("documents");
        let services = services(&log, &surroundings, unreachable_runner(), &documents, &end);
        let recorder = services.recorder.clone();
        let mut tasks = JoinSet::new();
        // Those that an organization needs; the others would only tell that there is no runner.
        tasks.spawn(controllers::organizations::run(services.clone(), end.clone()));
        tasks.spawn(controllers::projects::run(services.clone(), end.clone()));
        tasks.spawn(controllers::stacks::run(services.clone(), end.clone()));
        tasks.spawn(controllers::namespaces::run(
            registry.clone(),
            lookup.clone(),
            services.queues.clone(),
            end.clone(),
        ));
        // Where events about cluster-scoped objects are.
        let default = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("a namespace");
        registry.api::<k8s_openapi::api::core::v1::Namespace>().create(&default).await.expect("created");
        let options = GitOptions {
            poll: Duration::from_millis(10),
            linger: Duration::from_millis(1),
            pace: Duration::from_millis(1),
            retry: Duration::from_millis(50),
            patience: Duration::from_millis(300),
            ..GitOptions::default()
        };
        let status = start_with(
            registry.clone(),
            log,
            &repository,
            authorizer,
            recorder.clone(),
            options,
            end.clone(),
            &mut tasks,
        )
        .await
        .expect("started");
        Self { registry, status, recorder, directory, _tasks: tasks, _end: end.drop_guard() }
    }

    fn context(&self, user: &str) -> RequestContext {
        RequestContext::new(UserInfo { name: user.to_owned(), ..UserInfo::default() }, Arc::new(AllowAll))
    }

    pub(super) async fn create(&self, user: &str, object: &Value) -> Arc<Stored> {
        let kind = object["kind"].as_str().expect("a kind");
        let store = self.registry.stores().find(|store| store.definition().kind == kind).expect("served");
        let Value::Object(map) = object.clone() else { panic!("an object") };
        let object = Object(map);
        let namespace = object.namespace().to_owned();
        store.create(&self.context(user), &namespace, object).await.expect("created")
    }

    pub(super) async fn update(
        &self,
        user: &str,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        change: impl Fn(&mut Object) + Send + Sync,
    ) -> Arc<Stored> {
        let store = self.registry.store(group, "v1alpha1", plural).expect("served");
        let source = UpdateSource::transform(|current| {
            let mut object = current.clone();
            change(&mut object);
            Ok(object)
        });
        store.update(&self.context(user), namespace, name, Target::Main, source).await.expect("updated").0
    }

    pub(super) async fn delete(&self, user: &str, group: &str, plural: &str, namespace: &str, name: &str) {
        let store = self.registry.store(group, "v1alpha1", plural).expect("served");
        store.delete(&self.context(user), namespace, name, &DeleteOptions::default()).await.expect("deleted");
    }

    /// The store of the stacks, and a context to write to it as somebody.
    pub(super) fn stacks(&self, user: &str, dry_run: bool) -> (&Store, RequestContext) {
        let mut context = self.context(user);
        context.dry_run = dry_run;
        (self.registry.store("config.stoa.dev", "v1alpha1", "stacks").expect("served"), context)
    }

    /// Applies a part of the stack `web-dev` as a field manager of its own.
    pub(super) async fn apply_stack(&self, manager: &str, spec: Value) -> Result<(), ApiError> {
        let (store, mut context) = self.stacks("ann", false);
        context.field_manager = manager.to_owned();
        let mut configuration = stack("web-dev");
        configuration["spec"] = spec;
        let Value::Object(configuration) = configuration else { panic!("an object") };
        let finish = Box::new(Ok);
        let apply = Apply { configuration: Object(configuration), force: true, previous: None, finish };
        store.update(&context, "shop", "web-dev", Target::Main, UpdateSource::Apply(apply)).await.map(|_| ())
    }

    /// The organization, its namespace, a source, a project and a stack that has a status.
    pub(super) async fn create_shop(&self, user: &str) {
        let mut organizations = self.registry.api::<Organization>().subscribe(None);
        self.create(user, &organization()).await;
        next(&mut organizations, |change| match change {
            stoa_machinery::registry::api::Change::Applied(o) => o.status.and_then(|s| s.namespace),
            _ => None,
        })
        .await;
        for object in [source(), project(), stack("web-dev")] {
            self.create(user, &object).await;
        }
        let mut stacks = self.registry.api::<stoa_types::Stack>().subscribe(None);
        next(&mut stacks, |change| match change {
            stoa_machinery::registry::api::Change::Applied(s) => s.status,
            stoa_machinery::registry::api::Change::Restarted(all) => all.into_iter().find_map(|s| s.status),
            stoa_machinery::registry::api::Change::Deleted(_) => None,
        })
        .await;
    }

    /// Waits until everything that is in the log now is in Git.
    pub(super) async fn projected(&self) -> Version {
        let head = self.registry.log().head().await.expect("head");
        self.wait(|status| status.projected >= head).await;
        head
    }

    pub(super) async fn wait(&self, done: impl Fn(&GitStatus) -> bool) {
        let mut status = self.status.clone();
        let waited = tokio::time::timeout(PATIENCE, status.wait_for(|status| done(status))).await;
        if waited.is_err() {
            panic!("it does not get there: {:?}", self.status.borrow().clone());
        }
    }

    /// Waits until an object is gone.
    pub(super) async fn gone<K: Kind>(&self, namespace: &str, name: &str) {
        let api = self.registry.api::<K>();
        let mut changes = api.subscribe(Some(namespace));
        while api.get_opt(namespace, name).await.expect("read").is_some() {
            tokio::time::timeout(PATIENCE, changes.next()).await.expect("a change").expect("more");
        }
    }

    /// The first Event with a reason.
    pub(super) async fn event(&self, reason: &str) -> Event {
        self.event_that(|event| event.reason.as_deref() == Some(reason)).await
    }

    /// The first warning about an object of a kind.
    pub(super) async fn event_about(&self, kind: &str) -> Event {
        self.event_that(|event| event.involved_object.kind.as_deref() == Some(kind)).await
    }

    pub(super) async fn event_that(&self, is_it: impl Fn(&Event) -> bool) -> Event {
        let mut events = self.registry.api::<Event>().subscribe(None);
        next(&mut events, |change| match change {
            stoa_machinery::registry::api::Change::Restarted(all) => all.into_iter().find(&is_it),
            stoa_machinery::registry::api::Change::Applied(event) => Some(event).filter(&is_it),
            stoa_machinery::registry::api::Change::Deleted(_) => None,
        })
        .await
    }

    /// The last record of a key that changed more than the status: the one of its newest generation.
    pub(super) async fn record_of(&self, key: &str) -> Record {
        let head = self.registry.log().head().await.expect("head");
        let mut records = self.registry.log().follow(Version(0)).await.expect("follow");
        let mut found: Option<(Value, Record)> = None;
        loop {
            let record = records.next().await.expect("record").expect("record");
            let is_last = record.version >= head;
            if record.key == Key::new(key)
                && let stoa_machinery::log::Change::Put(bytes) = &record.change
            {
                let value: Value = serde_json::from_slice(bytes).expect("JSON");
                let authored = json!([value["spec"], value["metadata"]["labels"], value["metadata"]["annotations"]]);
                if found.as_ref().is_none_or(|(before, _)| *before != authored) {
                    found = Some((authored, record));
                }
            }
            if is_last {
                return found.expect("it was written").1;
            }
        }
    }

    fn control(&self) -> PathBuf {
        self.directory.path().join(REPOSITORY)
    }

    /// What `git log` says of every commit on main, oldest first.
    pub(super) fn log(&self, format: &str) -> Vec<String> {
        let out = git(&self.control(), &["log", "--reverse", &format!("--format={format}"), "main"]);
        out.lines().map(str::to_owned).collect()
    }

    pub(super) fn head(&self) -> String {
        git(&self.control(), &["rev-parse", "main"]).trim().to_owned()
    }

    pub(super) fn show(&self, path: &str) -> String {
        git(&self.control(), &["show", &format!("main:{path}")])
    }

    pub(super) fn files(&self) -> Vec<String> {
        git(&self.control(), &["ls-tree", "-r", "--name-only", "main"]).lines().map(str::to_owned).collect()
    }

    /// A clone with everything in it that is in the log now.
    pub(super) async fn clone_control(&self) -> Clone {
        self.wait(|status| status.commit.is_some()).await;
        self.projected().await;
        let directory = TempDir::new().expect("a directory");
        let control = self.control();
        git(directory.path(), &["clone", "--quiet", &control.to_string_lossy(), "."]);
        Clone { directory }
    }

    /// Commits what was changed in a clone, if a message is given, pushes, and waits until it is applied.
    pub(super) async fn push(&self, clone: &Clone, message: &str) -> String {
        if !message.is_empty() {
            clone.git(&["add", "--all"]);
            clone.git(&["commit", "--quiet", "--message", message]);
        }
        clone.git(&["push", "--quiet", "origin", "HEAD:main"]);
        let commit = clone.git(&["rev-parse", "HEAD"]).trim().to_owned();
        self.wait(|status| status.commit.as_ref() == Some(&commit)).await;
        commit
    }
}

/// Somebody's clone of the control repository.
pub(super) struct Clone {
    directory: TempDir,
}

impl Clone {
    pub(super) fn git(&self, args: &[&str]) -> String {
        git(self.directory.path(), args)
    }

    pub(super) fn write(&self, path: &str, content: &str) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    pub(super) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(path)).expect("read")
    }

    pub(super) fn remove(&self, path: &str) {
        std::fs::remove_file(self.directory.path().join(path)).expect("removed");
    }
}

/// The output of `git`, which knows nothing of whoever runs the tests.
fn git(directory: &std::path::Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(directory)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Cy"), ("GIT_AUTHOR_EMAIL", "cy@example.com")])
        .envs([("GIT_COMMITTER_NAME", "Cy"), ("GIT_COMMITTER_EMAIL", "cy@example.com")])
        .output()
        .expect("git is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// The first item of a stream that a test takes.
pub(super) async fn next<T, U>(stream: &mut (impl Stream<Item = T> + Unpin), take: impl Fn(T) -> Option<U>) -> U {
    let found = async {
        loop {
            if let Some(found) = take(stream.next().await.expect("more")) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it comes")
}

pub(super) fn organization() -> Value {
    json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Organization", "metadata": {"name": "shop"},
        "spec": {"description": "Web shop"},
    })
}

pub(super) fn source() -> Value {
    json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source", "metadata": {"name": "config", "namespace": "shop"},
        "spec": {"remote": "https://git.example.com/shop/config.git", "ref": "main"},
    })
}

pub(super) fn project() -> Value {
    json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Project", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"source": {"name": "config"}, "path": "apps/web"},
    })
}

pub(super) fn stack(name: &str) -> Value {
    json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"project": "web"},
    })
}

pub(super) fn workspace(name: &str) -> Value {
    json!({
        "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {
            "backend": {"name": "default"},
            "gitops": {"repository": "file:///srv/deploy.git", "branch": "main", "directory": name, "mode": "Commit"},
        },
    })
}
