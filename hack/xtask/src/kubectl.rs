//! Runs kubectl, the one client of the test bed: what a person would type is what is done here.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// kubectl with one kubeconfig. The environment's `KUBECTL` names another program than `kubectl`.
#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_path_buf() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().context("running kubectl; it has to be in PATH, or named by KUBECTL")
    }

    /// Runs kubectl and returns what it printed.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        String::from_utf8(output.stdout).context("kubectl printed something that is not UTF-8")
    }

    /// Creates the objects of a YAML text; returns them as `resource/name` lines.
    pub(crate) fn create(&self, manifest: &str) -> Result<String> {
        let mut command = self.command(&["create", "--filename=-", "--output=name"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("running kubectl")?;
        let mut input = child.stdin.take().expect("it was asked for");
        input.write_all(manifest.as_bytes()).context("writing to kubectl")?;
        drop(input);
        let output = child.wait_with_output().context("running kubectl")?;
        if !output.status.success() {
            bail!("kubectl create failed");
        }
        String::from_utf8(output.stdout).context("kubectl printed something that is not UTF-8")
    }

    /// Whether kubectl succeeds.
    pub(crate) fn succeeds(&self, args: &[&str]) -> bool {
        self.output(args).is_ok_and(|output| output.status.success())
    }

    /// Runs kubectl with this process's output.
    pub(crate) fn show(&self, args: &[&str]) -> Result<()> {
        let status = self.command(args).status().context("running kubectl")?;
        if !status.success() {
            bail!("kubectl {} failed", args.join(" "));
        }
        Ok(())
    }
}
