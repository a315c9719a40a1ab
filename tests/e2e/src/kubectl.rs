//! kubectl, and what stands in for it where it need not be started.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{kubectls, run};
use crate::direct::{Created, Direct};

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
