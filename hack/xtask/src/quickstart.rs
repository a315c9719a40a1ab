//! `hack/quickstart`: from a clone to a first rollout, with nothing but what a user would type.
//!
//! Start at [`run`]. It may be interrupted and repeated at any point: what is there is kept, what runs goes on, and a
//! rollout of what is already rolled out changes nothing.
//!
//! Elsewhere: `sample` makes the repositories, `rollout` creates runs and follows them, `tools` has what Kustomize, Helm
//! and KCL need.

mod rollout;
mod sample;
mod tools;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::binaries::{self, Profile};
use crate::cluster;
use crate::kubectl::Kubectl;
use crate::paths;
use crate::ports;
use crate::process::{Daemon, Signal};
use sample::{Sample, SampleTarget};
use tools::Tools;

/// From a clone to a first rollout.
#[derive(Debug, Args)]
pub(crate) struct Quickstart {
    /// Use a real Kubernetes control plane (built on first use) and create the objects there
    #[arg(long)]
    cluster: bool,
    /// End what earlier calls started; the data stays
    #[arg(long, conflicts_with = "cluster")]
    stop: bool,
    /// Use optimized programs, which take several times as long to build
    #[arg(long, conflicts_with = "stop")]
    release: bool,
    /// The folder of the programs that were built
    #[arg(long, hide = true)]
    built: PathBuf,
    /// The folder for everything that is made
    #[arg(long, default_value_os_t = default_folder())]
    dir: PathBuf,
}

fn default_folder() -> PathBuf {
    paths::repository().join(".stoa")
}

/// Does what the command line asks.
pub(crate) fn run(args: &Quickstart) -> Result<()> {
    if args.stop {
        return stop(&args.dir);
    }
    let dir = paths::make_own_folder(&args.dir)?;
    let _lock = paths::lock(&dir.join(".quickstart.lock"))?;
    let (kubeconfig, target) = if args.cluster {
        // The test bed starts its runner with them.
        step("Tools for Kustomize, Helm and KCL");
        Tools::made();
        step("A Kubernetes control plane with Stoa behind it");
        let built = Some(args.built.clone());
        let options = cluster::Options { stoa: Some(Profile::Debug), built, ..cluster::Options::default() };
        (cluster::up(&dir.join("cluster"), options)?.kubeconfig(), SampleTarget::Cluster)
    } else {
        step("Stoa on its own");
        (standalone(&dir, &args.built, &Tools::there())?, SampleTarget::GitOps)
    };
    let kubectl = Kubectl::new(&kubeconfig)?;

    step("Sample content");
    let sample = Sample::make(&dir, target)?;
    sample.create_objects(&kubectl)?;

    step("Preview: what would change");
    let preview = rollout::create(&kubectl, "Preview", None)?;
    rollout::follow(&kubectl, &preview)?;
    println!("{}", rollout::log(&kubectl, &preview)?);

    step("Apply exactly that plan");
    let apply = rollout::create(&kubectl, "Apply", Some(&preview))?;
    rollout::follow(&kubectl, &apply)?;

    step("What there is now");
    // Only what this is about: an organization that was worked in has more.
    kubectl.show(&[
        "get",
        "stacks/web-dev",
        &format!("runs/{preview}"),
        &format!("runs/{apply}"),
        "--namespace=shop",
    ])?;
    kubectl.show(&["get", "releases,resources", "--namespace=shop", "--field-selector=spec.stack=web-dev"])?;
    println!();
    sample.show_result(&kubectl)?;
    if !args.cluster {
        // The first rollout needs none of them, and does not wait for a build.
        step("Tools for Kustomize, Helm and KCL");
        standalone(&dir, &args.built, &Tools::made())?;
    }
    next_steps(&dir, &kubeconfig, &sample, &apply);
    if !args.release {
        println!(
            "hack/quickstart --release                          # the same with optimized programs, built in minutes"
        );
    }
    Ok(())
}

fn step(title: &str) {
    eprintln!("\n==> {title}");
}

fn standalone_daemon(dir: &Path) -> Daemon {
    Daemon::new(&dir.join("quickstart"), "stoa-apiserver")
}

/// Starts the program in the folder `built` as `stoa-apiserver standalone` unless it runs with these tools; returns its
/// kubeconfig.
fn standalone(dir: &Path, built: &Path, tools: &Tools) -> Result<PathBuf> {
    let daemon = standalone_daemon(dir);
    let kubeconfig = dir.join("kubeconfig");
    let kubectl = Kubectl::new(&kubeconfig)?;
    let ready = || kubeconfig.exists() && kubectl.succeeds(&["get", "--raw=/readyz"]);
    let stoa = binaries::stoa(Profile::Debug, Some(built))?;
    if let Some(pid) = daemon.pid() {
        if is_program(pid, &stoa.apiserver) && tools.are_used_by(pid) {
            eprintln!("stoa-apiserver runs (pid {pid})");
            return daemon.wait(Duration::from_secs(60), ready).map(|()| kubeconfig);
        }
        eprintln!("restarting stoa-apiserver with {}", stoa.apiserver.display());
        daemon.end(Signal::Terminate, Duration::from_secs(30))?;
    }
    let mut command = Command::new(&stoa.apiserver);
    command.arg("standalone").arg("--data-dir").arg(dir).arg("--runner-binary").arg(&stoa.runner);
    command.arg(format!("--secure-port={}", standalone_port(dir)?)).args(tools.flags());
    daemon.spawn(&mut command)?;
    daemon.wait(Duration::from_secs(60), ready)?;
    eprintln!("stoa-apiserver is ready; its data is in {}", dir.display());
    Ok(kubeconfig)
}

/// Whether a process executes this file, or one that was there before.
fn is_program(pid: u32, program: &Path) -> bool {
    let executed = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default().display().to_string();
    let program = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    Path::new(executed.trim_end_matches(" (deleted)")) == program
}

/// The port of the last start, so that terminals with the kubeconfig go on working; another one when it is taken.
fn standalone_port(dir: &Path) -> Result<u16> {
    let file = dir.join("quickstart/port");
    let before = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    let port = match before {
        Some(port) if TcpListener::bind(("127.0.0.1", port)).is_ok() => port,
        _ => ports::free(&[])?,
    };
    paths::make_folder(&dir.join("quickstart"))?;
    fs::write(&file, port.to_string()).with_context(|| format!("writing {}", file.display()))?;
    Ok(port)
}

fn stop(dir: &Path) -> Result<()> {
    let daemon = standalone_daemon(dir);
    let ended = daemon.end(Signal::Terminate, Duration::from_secs(30))?;
    eprintln!("stoa-apiserver: {}", if ended { "ended" } else { "it did not run" });
    let cluster = dir.join("cluster");
    if cluster.exists() { cluster::down(&cluster, false) } else { Ok(()) }
}

fn next_steps(dir: &Path, kubeconfig: &Path, sample: &Sample, run: &str) {
    let spec = sample.spec();
    let folder = sample.source().display().to_string();
    println!(
        "
Next, in this terminal:

export KUBECONFIG={kubeconfig}
kubectl get stoa -A                                # everything, with the columns people look for
kubectl describe stack web-dev -n shop
kubectl explain stack.spec
$EDITOR {spec}
git -C {folder} commit -am 'Change something'
kubectl create -f - <<EOF
apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata: {{generateName: web-dev-, namespace: shop}}
spec: {{stack: web-dev, operation: Apply}}
EOF
kubectl get runs -n shop -w
kubectl get --raw {log}
{history}
hack/quickstart --stop                             # end what this started; the data stays",
        kubeconfig = kubeconfig.display(),
        spec = spec.display(),
        log = rollout::log_path(run),
        history = sample.history_hint(dir),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_recognized_by_its_program() {
        let own = std::process::id();
        assert!(is_program(own, &std::env::current_exe().unwrap()));
        assert!(!is_program(own, Path::new("/bin/sh")));
    }
}
