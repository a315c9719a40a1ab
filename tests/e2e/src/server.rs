//! The servers that tests talk to.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{eventually, kubectls, run, setting};

/// Longer than a start takes on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl of one version with one kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
}

impl Kubectl {
    /// The plain kubectl with this kubeconfig.
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { program: kubectls().swap_remove(0), kubeconfig }
    }

    /// The command with these arguments, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command
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
        self.command(args).stdin(Stdio::null()).output().unwrap().status.success()
    }

    /// Reads an object or a list: the arguments after `get`.
    pub fn get(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[&["get", "--output=json"], args].concat())).unwrap()
    }

    /// Applies a YAML text.
    pub fn apply(&self, manifest: &str) {
        self.with_manifest("apply", manifest);
    }

    /// Creates the objects of a YAML text; returns the first one's name.
    pub fn create(&self, manifest: &str) -> String {
        let created = self.with_manifest("create", manifest);
        let first = created.lines().next().unwrap_or_default();
        first.rsplit('/').next().unwrap_or_default().to_owned()
    }

    fn with_manifest(&self, verb: &str, manifest: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), manifest).unwrap();
        self.run(&[verb, "--output=name", "--filename", file.path().to_str().unwrap()])
    }
}

/// A running Stoa.
pub trait Server {
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
    /// The same after a restart, so that clients find it.
    port: u16,
    process: Child,
}

impl Standalone {
    /// Starts it and waits until it is ready.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let process = Self::spawn(folder.path(), port);
        let server = Self { folder, port, process };
        server.wait();
        server
    }

    fn spawn(folder: &Path, port: u16) -> Child {
        let binaries = setting("STOA_TEST_BIN_DIR");
        let log = File::options().create(true).append(true).open(folder.join("stoa-apiserver.log")).unwrap();
        Command::new(binaries.join("stoa-apiserver"))
            .arg("standalone")
            .arg("--data-dir")
            .arg(folder.join("data"))
            .arg("--runner-binary")
            .arg(binaries.join("function-runner"))
            .arg(format!("--secure-port={port}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn wait(&self) {
        let kubeconfig = self.data().join("kubeconfig");
        let ready = || (kubeconfig.exists() && self.kubectl().succeeds(&["get", "--raw=/readyz"])).then_some(());
        eventually(&format!("{} is ready", self.folder.path().display()), PATIENCE, ready);
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Ends it as a crash does. Its runner ends by itself then.
    pub fn kill(&mut self) {
        // The child may have ended by itself, which is as good.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Starts it again on the same data, and waits until it is ready.
    pub fn restart(&mut self) {
        self.process = Self::spawn(self.folder.path(), self.port);
        self.wait();
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
fn free_port() -> u16 {
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
        let own = tempfile::tempdir().unwrap();
        let cluster = Self { dir: own.path().join("cluster"), own: Some(own) };
        cluster.xtask(&["up", "--stoa"], &[]);
        cluster
    }

    /// Ends a process, `stoa` or `runner`, as a crash does.
    pub fn kill(&self, process: &str) {
        self.xtask(&["kill"], &[process]);
    }

    /// Starts the processes that were killed.
    pub fn restart(&self) {
        self.xtask(&["start-stoa"], &[]);
    }

    fn xtask(&self, before: &[&str], after: &[&str]) -> String {
        run(Command::new(setting("STOA_TEST_XTASK"))
            .arg("cluster")
            .args(before)
            .arg("--dir")
            .arg(&self.dir)
            .args(after))
    }

    /// One value of `hack/cluster env`.
    pub fn env(&self, key: &str) -> String {
        let lines = self.xtask(&["env"], &[]);
        let value = lines.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("hack/cluster env prints no {key}:\n{lines}")).to_owned()
    }

    /// The requests of kube-apiserver's audit log that were answered, oldest first.
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.env("AUDIT_LOG")).unwrap();
        // The last line may be half written.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
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
