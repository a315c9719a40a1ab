//! Runs kubectl, the one client of the test bed: what a person would type is what is done here.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::binaries;

/// The program: what `KUBECTL` names, else `kubectl` in PATH, else one built from `tests/cluster`.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(named) = env::var_os("KUBECTL").filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let found = env::var_os("PATH")
        .and_then(|path| env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file()));
    match found {
        Some(found) => Ok(found),
        None => binaries::KUBECTL.binary(),
    }
}

/// kubectl of every version that is tested, oldest first: what is beside the plain one, and else built; the last is the
/// cluster's own.
pub(crate) fn versions() -> Result<Vec<PathBuf>> {
    let plain = program()?;
    let beside = fs::canonicalize(&plain).with_context(|| format!("resolving {}", plain.display()))?;
    let mut all = Vec::new();
    for (name, command) in binaries::OLD_KUBECTLS {
        let there = beside.with_file_name(name);
        all.push(if there.is_file() { there } else { command.binary()? });
    }
    all.push(binaries::KUBECTL.binary()?);
    Ok(all)
}

/// kubectl with one kubeconfig.
#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self> {
        Ok(Self { program: program()?, kubeconfig: kubeconfig.to_path_buf() })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().with_context(|| format!("running {}", self.program.display()))
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
