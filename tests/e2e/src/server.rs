//! The servers that tests talk to.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::io::BufReader;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::caller;
use crate::command::{eventually, kubectls, run, setting};
use crate::direct::{Created, Direct};

/// Longer than a start takes on a machine that is busy building.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl of one version with one kubeconfig. Where a method does not say that it runs kubectl, it need not be started.
#[derive(Debug, Clone)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// Whom to act as, instead of the kubeconfig's user.
    pub user: Option<String>,
}

impl Kubectl {
    /// The plain kubectl with this kubeconfig.
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { program: kubectls().swap_remove(0), kubeconfig, user: None }
    }

    /// The same kubectl as somebody else, who may do what RBAC grants.
    pub fn impersonate(&self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self.clone() }
    }

    /// The command with these arguments, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // It ends before it is worth it to look for what it needs no more, which takes half of its time.
        command.env("GOGC", "off").env("GOMEMLIMIT", "500MiB");
        command.env("KUBECACHEDIR", self.cache()).arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(self.user.iter().map(|user| format!("--as={user}"))).args(args);
        command
    }

    /// The same server without kubectl.
    fn direct(&self) -> Option<Direct> {
        Direct::new(&self.kubeconfig, self.user.clone())
    }

    /// Where kubectl keeps discovery documents: beside the kubeconfig, since another server may have had the same port.
    pub(crate) fn cache(&self) -> PathBuf {
        self.kubeconfig.with_extension("cache")
    }

    /// Runs kubectl and returns what it printed.
    ///
    /// # Panics
    ///
    /// When it fails, with what it said.
    pub fn run(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    /// Runs kubectl, which has to fail, and returns what it said.
    ///
    /// # Panics
    ///
    /// When it succeeds.
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "kubectl {args:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Whether kubectl succeeds.
    pub fn succeeds(&self, args: &[&str]) -> bool {
        self.try_to_run(args).is_some()
    }

    /// Runs kubectl and returns what it printed, if it succeeds.
    pub fn try_to_run(&self, args: &[&str]) -> Option<String> {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Reads a path.
    ///
    /// # Panics
    ///
    /// When that fails, with what kubectl says.
    pub fn raw(&self, path: &str) -> String {
        self.direct().and_then(|direct| direct.raw(path)).unwrap_or_else(|| self.run(&["get", "--raw", path]))
    }

    /// Reads an object or a list; nothing when that fails.
    pub fn try_get(&self, args: &[&str]) -> Option<Value> {
        if let Some(read) = self.direct().and_then(|direct| direct.get(args)) {
            return Some(read);
        }
        let args = [&["get", "--output=json"], args].concat();
        let output = self.command(&args).stdin(Stdio::null()).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Reads an object or a list: the arguments after `get`.
    pub fn get(&self, args: &[&str]) -> Value {
        if let Some(read) = self.direct().and_then(|direct| direct.get(args)) {
            return read;
        }
        serde_json::from_str(&self.run(&[&["get", "--output=json"], args].concat())).unwrap()
    }

    /// Applies a YAML text.
    pub fn apply(&self, manifest: &str) {
        let Some(left) = self.direct().and_then(|direct| direct.apply(manifest)) else {
            self.with_manifest("apply", manifest, |args| self.run(args));
            return;
        };
        if !left.is_empty() {
            let left: Vec<String> = left.iter().map(Value::to_string).collect();
            self.with_manifest("apply", &left.join("\n---\n"), |args| self.run(args));
        }
    }

    /// Applies a Secret of these keys and values.
    pub fn apply_secret(&self, namespace: &str, name: &str, values: &[(&str, &str)]) {
        let values: BTreeMap<&str, &str> = values.iter().copied().collect();
        let metadata = json!({"name": name, "namespace": namespace});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values});
        self.apply(&secret.to_string());
    }

    /// Applies a YAML text by server-side apply, as a field manager that takes what others have.
    pub fn claim(&self, manager: &str, manifest: &str) {
        let flags = ["--server-side", "--force-conflicts", "--field-manager", manager];
        self.with_manifest("apply", manifest, |args| self.run(&[args, &flags].concat()));
    }

    /// Creates the objects of a YAML text; returns the first one's name.
    ///
    /// # Panics
    ///
    /// When that fails.
    pub fn create(&self, manifest: &str) -> String {
        match self.direct().map(|direct| direct.create(manifest)) {
            Some(Created::Named(name)) => return name,
            Some(Created::Unknown(error)) => panic!("{manifest}: {error}"),
            Some(Created::LeftToKubectl) | None => {}
        }
        let created = self.with_manifest("create", manifest, |args| self.run(args));
        let first = created.lines().next().unwrap_or_default();
        first.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Creates the objects of a YAML text, which has to fail, and returns what kubectl said.
    pub fn create_refused(&self, manifest: &str) -> String {
        self.with_manifest("create", manifest, |args| self.refused(args))
    }

    /// Creates the objects of a YAML text; returns the first one's name, or what kubectl said.
    pub fn try_create(&self, manifest: &str) -> Result<String, String> {
        match self.direct().map(|direct| direct.create(manifest)) {
            Some(Created::Named(name)) => return Ok(name),
            Some(Created::Unknown(error)) => return Err(error),
            Some(Created::LeftToKubectl) | None => {}
        }
        self.with_manifest("create", manifest, |args| self.tried(args))
    }

    /// Asks the server what creating the objects of a YAML text would come to.
    pub fn would_create(&self, manifest: &str) -> Result<String, String> {
        self.with_manifest("create", manifest, |args| self.tried(&[args, &["--dry-run=server"]].concat()))
    }

    fn tried(&self, args: &[&str]) -> Result<String, String> {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if !output.status.success() {
            return Err(text(output.stderr));
        }
        let created = text(output.stdout);
        Ok(created.lines().next().and_then(|line| line.rsplit('/').next()).unwrap_or_default().to_owned())
    }

    fn with_manifest<T>(&self, verb: &str, manifest: &str, run: impl FnOnce(&[&str]) -> T) -> T {
        let file = tempfile::NamedTempFile::new().unwrap();
        // kubectl takes a text that begins with a brace for JSON, which YAML in one line is not.
        fs::write(file.path(), format!("---\n{manifest}")).unwrap();
        run(&[verb, "--output=name", "--filename", file.path().to_str().unwrap()])
    }

    /// Watches one object, `resource/name`, until `done` answers about it; it is asked first about the object as it
    /// is, then after every change. A server that goes away meanwhile is asked again.
    ///
    /// # Panics
    ///
    /// When there is no answer within `patience`.
    pub fn watch<T>(
        &self,
        namespace: &str,
        object: &str,
        patience: Duration,
        mut done: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + patience;
        let mut last = Value::Null;
        // A list of one: of a single object, kubectl reads it, watches from any version on, and drops the first event,
        // whatever happened in between.
        let (resource, name) = object.split_once('/').expect("resource/name");
        let selector = format!("--field-selector=metadata.name={name}");
        if let Some(direct) = self.direct()
            && let Some(answer) = direct.watch(namespace, (resource, name), deadline, &mut last, &mut done)
        {
            return answer;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let output =
                    self.command(&["get", object, "--namespace", namespace, "--output=yaml"]).output().unwrap();
                let now = String::from_utf8_lossy(&output.stdout);
                panic!("{object} is not as awaited within {patience:?}; last seen {last:#}\nnow {now}");
            }
            let timeout = format!("--request-timeout={}s", left.as_secs() + 1);
            let watch = ["get", resource, &selector, "--namespace", namespace, "--watch", "--output=json", &timeout];
            let mut command = self.command(&watch);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let stdout = child.stdout.take().expect("it was asked for");
            let mut answer = None;
            for seen in serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>() {
                // A watch that breaks off ends in the middle of anything.
                let Ok(seen) = seen else { break };
                answer = done(&seen);
                last = seen;
                if answer.is_some() {
                    break;
                }
            }
            // It may have ended by itself.
            let _ = child.kill();
            child.wait().unwrap();
            match answer {
                Some(answer) => return answer,
                None => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// A running Stoa.
pub trait Server: Send + Sync {
    /// kubectl as somebody who may do anything.
    fn kubectl(&self) -> Kubectl;

    /// The Workspaces' targets that this server can deploy to, as YAML below `spec`, indented by two; with the
    /// repository for those that are Git.
    fn target(&self, repository: &Path) -> String;
}

/// Stoa on its own, in a folder of its own. It ends with the value.
#[derive(Debug)]
pub struct Standalone {
    folder: TempDir,
    data: PathBuf,
    /// The same after a restart, so that clients find it.
    port: u16,
    arguments: Vec<String>,
    process: Child,
}

impl Standalone {
    /// The one that the tests of a program share; they work in organizations of their own. It ends with the last of
    /// them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Standalone>> = Mutex::new(Weak::new());
        // A test that failed to start it leaves nothing behind that the next one could not begin with.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts it and waits until it is ready.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments.
    pub fn start_with(arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self::start_in(folder, data, arguments)
    }

    /// Starts it with its data in a folder, which it makes.
    pub fn start_at(data: PathBuf) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), data, &[])
    }

    fn start_in(folder: TempDir, data: PathBuf, arguments: &[String]) -> Self {
        let port = free_port();
        let process = Self::spawn(folder.path(), &data, port, arguments, &[]);
        let server = Self { folder, data, port, arguments: arguments.to_vec(), process };
        server.wait();
        server
    }

    fn spawn(folder: &Path, data: &Path, port: u16, arguments: &[String], variables: &[(&str, &str)]) -> Child {
        let binaries = setting("STOA_TEST_BIN_DIR");
        let log = File::options().create(true).append(true).open(folder.join("stoa-apiserver.log")).unwrap();
        Command::new(binaries.join("stoa-apiserver"))
            .arg("standalone")
            .arg("--data-dir")
            .arg(data)
            .arg("--runner-binary")
            .arg(binaries.join("function-runner"))
            .arg(format!("--secure-port={port}"))
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn wait(&self) {
        self.wait_unless(|| false);
    }

    fn wait_unless(&self, is_over: impl Fn() -> bool) {
        let kubeconfig = self.data().join("kubeconfig");
        let is_ready = || kubeconfig.exists() && self.kubectl().succeeds(&["get", "--raw=/readyz"]);
        let ready = || (is_over() || is_ready()).then_some(());
        eventually(&format!("{} is ready", self.folder.path().display()), PATIENCE, ready);
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("stoa-apiserver.log")).unwrap()
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Ends it as a crash does. Its runner ends by itself then.
    pub fn kill(&mut self) {
        // The child may have ended by itself, which is as good.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Ends its runner as a crash does. The server starts another.
    ///
    /// # Panics
    ///
    /// When it has none within a while.
    pub fn kill_runner(&self) {
        let id = self.process.id();
        // Children are listed with the thread that started them.
        let tasks = format!("/proc/{id}/task");
        let runner = eventually("the server has a runner", PATIENCE, || {
            fs::read_dir(&tasks).ok()?.find_map(|task| {
                let of_task = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
                of_task.split_whitespace().next().map(str::to_owned)
            })
        });
        run(Command::new("sh").args(["-c", "kill -s KILL \"$0\"", &runner]));
    }

    /// Starts it again on the same data, and waits until it is ready.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with these environment variables, which its runner has, too.
    pub fn restart_with(&mut self, variables: &[(&str, &str)]) {
        self.restart_unless(variables, || false);
    }

    /// The same, but waits no longer once `is_over`, as when it may end before it is ready.
    pub fn restart_unless(&mut self, variables: &[(&str, &str)], is_over: impl Fn() -> bool) {
        self.process = Self::spawn(self.folder.path(), &self.data, self.port, &self.arguments, variables);
        self.wait_unless(is_over);
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server for Standalone {
    fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.data().join("kubeconfig"))
    }

    fn target(&self, repository: &Path) -> String {
        format!("  gitops:\n    repository: file://{}\n    branch: main\n", repository.display())
    }
}

/// A port that nothing listens on, below the range of outgoing connections, so that none takes it meanwhile.
pub fn free_port() -> u16 {
    let start = RandomState::new().hash_one(0) % 10_000;
    let start = u16::try_from(start).expect("less than 10,000");
    (0..10_000)
        .map(|step| 10_000 + (start + step) % 10_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of ten thousand ports is free")
}

/// A cluster with Stoa behind it, as `hack/cluster up --stoa` makes it.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    /// Whether the value ends the cluster with it.
    own: Option<TempDir>,
}

impl Cluster {
    /// The one that all tests share; they work in organizations of their own and end no process of it.
    pub fn shared() -> Self {
        Self { dir: setting("STOA_TEST_CLUSTER_DIR"), own: None }
    }

    /// A new one, whose processes the test may kill.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A new one without Stoa, as one of the clusters that is deployed to.
    pub fn without_stoa() -> Self {
        let own = tempfile::tempdir().unwrap();
        let cluster = Self { dir: own.path().join("cluster"), own: Some(own) };
        cluster.xtask(&["up"], &["--unsafe-no-fsync"]);
        cluster
    }

    /// A new one with so many Stoas on its etcd, whose processes the test may kill.
    pub fn replicated(replicas: usize) -> Self {
        Self::start_with(&["--replicas", &replicas.to_string()])
    }

    /// The same, with another argument for each of them.
    pub fn replicated_with(replicas: usize, arguments: &[String]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|argument| format!("--stoa-arg={argument}")).collect();
        let mut options = vec!["--replicas".to_owned(), replicas.to_string()];
        options.extend(arguments);
        Self::start_with(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn start_with(options: &[&str]) -> Self {
        let own = tempfile::tempdir().unwrap();
        let cluster = Self { dir: own.path().join("cluster"), own: Some(own) };
        let built = setting("STOA_TEST_BIN_DIR");
        let built = built.to_str().expect("a path in UTF-8");
        cluster.xtask(&[&["up", "--stoa", "--built", built], options].concat(), &[]);
        cluster
    }

    /// Ends a process, `stoa`, `runner`, `etcd` or `kube-apiserver`, as a crash does.
    pub fn kill(&self, process: &str) {
        self.xtask(&["kill"], &[process]);
    }

    /// The same with one that may just be ending by itself.
    pub fn kill_if_running(&self, process: &str) {
        // It complains when there is none any more.
        self.command(&["kill"], &[process]).output().unwrap();
    }

    /// Ends one of several Stoas, counted from 0, as a crash does.
    pub fn kill_replica(&self, replica: usize) {
        self.xtask(&["kill", "--replica", &replica.to_string()], &["stoa"]);
    }

    /// Clients of every Stoa itself, with nothing in between, that may do anything.
    pub fn replicas(&self) -> Vec<kube::Client> {
        let user = json!({"client-certificate": self.env("CLIENT_CERT"), "client-key": self.env("CLIENT_KEY")});
        let authority = PathBuf::from(self.env("STOA_CA"));
        let connect = |url: &str| caller::client(url, &authority, &user);
        self.env("STOA_URLS").split(',').map(connect).collect()
    }

    /// Where one of several Stoas is, counted from 0.
    pub(crate) fn stoa_url(&self, replica: usize) -> String {
        self.env("STOA_URLS").split(',').nth(replica).expect("there is such a replica").to_owned()
    }

    /// kubectl of one of several Stoas, counted from 0, with nothing in between, as somebody who may do anything.
    pub fn kubectl_of(&self, replica: usize) -> Kubectl {
        let user = json!({"client-certificate": self.env("CLIENT_CERT"), "client-key": self.env("CLIENT_KEY")});
        let url = self.stoa_url(replica);
        let file = self.dir.join(format!("replica-{replica}.kubeconfig"));
        fs::write(&file, caller::kubeconfig(&url, Path::new(&self.env("STOA_CA")), &user).to_string()).unwrap();
        Kubectl::new(file)
    }

    /// Where the Stoas keep their data.
    pub fn data(&self) -> PathBuf {
        self.dir.join("stoa")
    }

    /// What the Stoas and their runner have logged so far, requests included.
    pub fn logs(&self) -> Vec<PathBuf> {
        let logs = fs::read_dir(self.dir.join("logs")).unwrap().map(|entry| entry.unwrap().path());
        let ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("stoa-") || name.starts_with("function-runner")
        };
        logs.filter(ours).collect()
    }

    /// The folder of the test bed.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the test bed's certificates and keys.
    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// A certificate of the test bed, as PEM, by the name of its file.
    pub fn certificate(&self, name: &str) -> String {
        fs::read_to_string(self.pki().join(name).with_extension("crt")).unwrap()
    }

    /// Starts the processes that were killed.
    pub fn restart(&self) {
        self.restart_with(&[]);
    }

    /// The same with these environment variables.
    pub fn restart_with(&self, variables: &[(&str, &str)]) {
        run(self.command(&["start-stoa"], &[]).envs(variables.iter().copied()));
    }

    fn xtask(&self, before: &[&str], after: &[&str]) -> String {
        run(&mut self.command(before, after))
    }

    fn command(&self, before: &[&str], after: &[&str]) -> Command {
        let mut command = Command::new(setting("STOA_TEST_XTASK"));
        command.arg("cluster").args(before).arg("--dir").arg(&self.dir).args(after);
        command
    }

    /// One value of `hack/cluster env`.
    pub fn env(&self, key: &str) -> String {
        let lines = self.xtask(&["env"], &[]);
        let value = lines.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("hack/cluster env prints no {key}:\n{lines}")).to_owned()
    }

    /// The requests of kube-apiserver's audit log that were answered, oldest first, and have this in them, such as a
    /// namespace; the others are many.
    pub fn audit(&self, about: &str) -> Vec<Value> {
        self.events("AUDIT_LOG", about)
    }

    /// The events of the registered Stoa's audit log, oldest first.
    pub fn stoa_audit(&self) -> Vec<Value> {
        self.events("STOA_AUDIT_LOG", "")
    }

    fn events(&self, log: &str, about: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.env(log)).unwrap();
        // The last line may be half written.
        text.lines().filter(|line| line.contains(about)).filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.xtask(&["down"], &[]);
        }
    }
}

impl Server for Cluster {
    fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.dir.join("kubeconfig"))
    }

    fn target(&self, _repository: &Path) -> String {
        "  kubernetes:\n    clusters:\n    - {name: main, inCluster: true}\n".to_owned()
    }
}
