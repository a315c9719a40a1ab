//! The servers that tests talk to.

use std::collections::hash_map::RandomState;
use std::env;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::caller;
use crate::child::memory_of;
use crate::command::{eventually, run, setting};
use crate::kubectl::Kubectl;

/// Longer than a start takes on a machine that is busy building.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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

    /// The same with the programs of Kustomize and Helm, and of KCL; nothing where the environment does not name both.
    pub fn start_with_tools() -> Option<Self> {
        let tools = [("renderer", "STOA_TEST_RENDERER"), ("kcl-library", "STOA_TEST_KCL")];
        let flag = |(flag, variable): (&str, &str)| Some(format!("--{flag}={}", env::var(variable).ok()?));
        let flags: Option<Vec<String>> = tools.into_iter().map(flag).collect();
        if flags.is_none() {
            eprintln!("skipped: STOA_TEST_RENDERER or STOA_TEST_KCL is not set");
        }
        Some(Self::start_with(&flags?))
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

    /// How much memory it takes now, in bytes. Its runner is another process.
    pub fn memory(&self) -> u64 {
        memory_of(self.process.id())
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
        format!(
            "  gitops:\n    repository: file://{}\n    branch: main\n    createBranch: true\n",
            repository.display()
        )
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
        cluster.xtask(&["up"], &[]);
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

    /// The folder that Terraform's providers may write.
    pub fn provider_objects(&self) -> PathBuf {
        self.dir.join("provider-objects")
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
