//! Stoa behind the test bed's kube-apiserver: two processes and their registration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::control_plane::{etcd_flags, path_flag};
use super::state::StoaState;
use super::{Cluster, State, pki};
use crate::binaries::StoaBinaries;
use crate::kcl;
use crate::paths;
use crate::ports;
use crate::process::Daemon;
use crate::renderer;

/// Where Stoa's service and service accounts live; `manifests/base` says the same.
pub(super) const NAMESPACE: &str = "stoa-system";
/// The service that the APIServices name; `manifests/base` says the same.
pub(super) const SERVICE: &str = "stoa-apiserver";
const PATIENCE: Duration = Duration::from_secs(60);

/// Which requests stoa-apiserver records: those of certain groups, and what is done with anything named `audited`.
/// All others cost nothing.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: Metadata
  userGroups: ['audited:metadata']
- level: Request
  userGroups: ['audited:request']
- level: RequestResponse
  userGroups: ['audited:request-response']
- level: Metadata
  resources: [{group: '*', resources: ['*'], resourceNames: [audited]}]
- level: None
";

/// What the processes of stoa-apiserver are called; there are no more.
const APISERVERS: [&str; 5] =
    ["stoa-apiserver", "stoa-apiserver-1", "stoa-apiserver-2", "stoa-apiserver-3", "stoa-apiserver-4"];

/// The process of a stoa-apiserver, counted from 0.
pub(super) fn apiserver(dir: &Path, replica: usize) -> Result<Daemon> {
    let name = APISERVERS.get(replica).with_context(|| format!("there is no replica {replica}"))?;
    Ok(Daemon::new(dir, name))
}

/// The process of function-runner.
pub(super) fn runner(dir: &Path) -> Daemon {
    Daemon::new(dir, "function-runner")
}

/// All there may be, in the order in which they end.
pub(super) fn daemons(dir: &Path) -> Vec<Daemon> {
    APISERVERS.iter().map(|name| Daemon::new(dir, name)).chain([runner(dir)]).collect()
}

/// Where stoa-apiserver keeps its log, its control repository and its documents; replicas share the last two, and
/// have folders of their own below.
pub(super) fn data_folder(dir: &Path) -> PathBuf {
    dir.join("stoa")
}

/// Where a stoa-apiserver, counted from 0, records requests.
pub(super) fn audit_log(dir: &Path, replica: usize) -> PathBuf {
    dir.join(format!("logs/stoa-audit-{replica}.log"))
}

fn audit_policy(dir: &Path) -> PathBuf {
    dir.join("stoa-audit-policy.yaml")
}

/// Starts and registers Stoa, and waits until kube-apiserver sees it.
pub(super) fn up(
    cluster: &Cluster,
    state: &mut State,
    binaries: StoaBinaries,
    replicas: Option<u8>,
    arguments: Vec<String>,
) -> Result<()> {
    let started = Instant::now();
    let before = state.stoa.take();
    let on_etcd = replicas.is_some() || before.as_ref().is_some_and(|stoa| stoa.on_etcd);
    let count = replicas.map(usize::from).or(before.as_ref().map(|stoa| stoa.ports.len())).unwrap_or(1);
    if let Some(before) = &before {
        ensure!(
            (before.on_etcd, before.ports.len()) == (on_etcd, count),
            "this test bed has {} stoa-apiserver {}; another one, or hack/cluster down --purge, has to come first",
            before.ports.len(),
            if before.on_etcd { "on etcd" } else { "on local files" }
        );
    }
    let told = before.as_ref().map(|stoa| stoa.arguments.clone()).unwrap_or_default();
    let arguments = if arguments.is_empty() { told } else { arguments };
    pki::stoa(&cluster.pki())?;
    for account in [SERVICE, "function-runner"] {
        let path = account_kubeconfig(cluster, account);
        pki::kubeconfig(&cluster.pki(), &format!("{account}-account"), &state.apiserver_url(), &path)?;
    }

    let mut taken = state.ports();
    let mut choose = |before: Option<u16>, daemon: &Daemon| -> Result<u16> {
        let port = match before {
            Some(port) if daemon.pid().is_some() || ports::is_free(port) => port,
            _ => ports::free(&taken)?,
        };
        taken.push(port);
        Ok(port)
    };
    let (mut ports, mut webhook_ports) = (Vec::new(), Vec::new());
    for replica in 0..count {
        let daemon = apiserver(&cluster.dir, replica)?;
        ports.push(choose(before.as_ref().and_then(|stoa| stoa.ports.get(replica).copied()), &daemon)?);
        webhook_ports.push(choose(before.as_ref().and_then(|stoa| stoa.webhook_ports.get(replica).copied()), &daemon)?);
    }
    let runner_port = choose(before.as_ref().map(|stoa| stoa.runner_port), &runner(&cluster.dir))?;
    let registered = ports[0];
    let (apiserver, runner) = (binaries.apiserver, binaries.runner);
    state.stoa = Some(StoaState { ports, webhook_ports, on_etcd, arguments, runner_port, apiserver, runner });
    state.save(&cluster.dir)?;

    // stoa-apiserver reads its front-proxy settings from the cluster with the rights given here.
    register(cluster, registered)?;
    start(cluster, state)?;
    eprintln!("waiting until the APIServices are available …");
    let services = api_services()?;
    let names: Vec<String> = services.iter().map(|name| format!("apiservice/{name}")).collect();
    let mut wait = vec!["wait", "--for=condition=Available", "--timeout=60s"];
    wait.extend(names.iter().map(String::as_str));
    let kubectl = cluster.kubectl()?;
    kubectl.run(&wait)?;
    // Discovery hears of a service some time after it became available.
    let is_discovered = |name: &str| {
        let group = name.split_once('.').map_or(name, |(_, group)| group);
        let resources = ["api-resources", "--output=name", &format!("--api-group={group}")];
        kubectl.run(&resources).is_ok_and(|found| !found.is_empty())
    };
    self::apiserver(&cluster.dir, 0)?.wait(PATIENCE, || services.iter().all(|name| is_discovered(name)))?;
    eprintln!("stoa in {} is up after {:.1?}", cluster.dir.display(), started.elapsed());
    Ok(())
}

/// The names of the APIServices of `manifests/base`, such as `v1alpha1.config.stoa.dev`.
fn api_services() -> Result<Vec<String>> {
    let file = paths::repository().join("manifests/base/apiservices.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(text.lines().filter_map(|line| line.strip_prefix("  name: ")).map(str::to_owned).collect())
}

/// Starts whichever process is not running, with the ports and data it had; returns their names.
pub(super) fn start(cluster: &Cluster, state: &State) -> Result<Vec<&'static str>> {
    let stoa = state.stoa.as_ref().context("this test bed has no Stoa yet; hack/cluster up --stoa starts it")?;
    fs::write(audit_policy(&cluster.dir), AUDIT_POLICY).context("writing the audit policy")?;
    let mut started = Vec::new();
    // The runner first, so that the API server's first call finds it; neither depends on that.
    let mut processes = vec![(runner(&cluster.dir), runner_command(cluster, stoa)?, stoa.runner_port)];
    for (replica, port) in stoa.ports.iter().enumerate() {
        processes.push((apiserver(&cluster.dir, replica)?, apiserver_command(cluster, state, stoa, replica), *port));
    }
    for (daemon, mut command, port) in processes {
        if daemon.pid().is_none() {
            eprintln!("starting {} …", daemon.name());
            ports::wait_until_free(port, PATIENCE)?;
            daemon.spawn(&mut command)?;
            daemon.wait(PATIENCE, || ports::accepts(port))?;
            started.push(daemon.name());
        }
    }
    Ok(started)
}

fn account_kubeconfig(cluster: &Cluster, account: &str) -> PathBuf {
    cluster.dir.join(format!("{account}.kubeconfig"))
}

fn apiserver_command(cluster: &Cluster, state: &State, stoa: &StoaState, replica: usize) -> Command {
    let pki = cluster.pki();
    let mut command = Command::new(&stoa.apiserver);
    command.args(["serve", "--bind-address=127.0.0.1"]).arg(format!("--secure-port={}", stoa.ports[replica]));
    command.args(stoa.webhook_ports.get(replica).map(|port| format!("--webhook-port={port}")));
    let data = data_folder(&cluster.dir);
    if stoa.on_etcd {
        path_flag(&mut command, "shared-dir", &data);
        path_flag(&mut command, "data-dir", &data.join(format!("replica-{replica}")));
        path_flag(&mut command, "sealing-key-file", &pki.join(pki::SEALING_KEY));
        etcd_flags(&mut command, cluster, state, "stoa-etcd-client");
    } else {
        path_flag(&mut command, "data-dir", &data);
    }
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        path_flag(&mut command, flag, &account_kubeconfig(cluster, SERVICE));
    }
    path_flag(&mut command, "audit-policy-file", &audit_policy(&cluster.dir));
    path_flag(&mut command, "audit-log-path", &audit_log(&cluster.dir, replica));
    // What stands between the two says where it is itself.
    if !stoa.arguments.iter().any(|argument| argument.starts_with("--runner=")) {
        command.arg(format!("--runner={}", stoa.runner_url()));
    }
    for (flag, file) in [
        ("tls-cert-file", "stoa.crt"),
        ("tls-private-key-file", "stoa.key"),
        ("runner-ca", "runner-ca.crt"),
        ("runner-cert", "stoa-runner-client.crt"),
        ("runner-key", "stoa-runner-client.key"),
    ] {
        path_flag(&mut command, flag, &pki.join(file));
    }
    command.args(&stoa.arguments);
    command
}

fn runner_command(cluster: &Cluster, stoa: &StoaState) -> Result<Command> {
    let pki = cluster.pki();
    let mut command = Command::new(&stoa.runner);
    command.arg(format!("--listen=127.0.0.1:{}", stoa.runner_port));
    for (flag, file) in [("tls-cert", "runner.crt"), ("tls-key", "runner.key"), ("client-ca", "runner-ca.crt")] {
        path_flag(&mut command, flag, &pki.join(file));
    }
    path_flag(&mut command, "cache-dir", &cluster.dir.join("runner-cache"));
    path_flag(&mut command, "kubeconfig", &account_kubeconfig(cluster, "function-runner"));
    // Repositories of tests and samples are wherever they were made.
    command.args(["--local-repositories=/", "--provider-mirrors=/"]);
    if let Some(renderer) = renderer::built() {
        path_flag(&mut command, "renderer", &renderer);
    }
    if let Some(library) = kcl::downloaded() {
        path_flag(&mut command, "kcl-library", &library);
    }
    let objects = paths::make_folder(&cluster.dir.join("provider-objects"))?;
    path_flag(&mut command, "provider-directories", &objects);
    Ok(command)
}

/// Applies `manifests/testbed` with the port and the authority of this test bed.
fn register(cluster: &Cluster, port: u16) -> Result<()> {
    let folder = paths::make_folder(&cluster.dir.join("manifests"))?;
    let base = paths::relative(&folder, &fs::canonicalize(paths::repository().join("manifests/testbed"))?);
    let ca = fs::read_to_string(cluster.pki().join("stoa-ca.crt")).context("reading Stoa's authority")?;
    fs::write(folder.join("kustomization.yaml"), kustomization(&base, port, &ca))
        .context("writing the kustomization")?;
    let folder = folder.to_str().context("the test bed's folder is not UTF-8")?;
    cluster.kubectl()?.run(&["apply", "--kustomize", folder])?;
    Ok(())
}

fn kustomization(base: &Path, port: u16, ca_pem: &str) -> String {
    let ca_bundle = BASE64_STANDARD.encode(ca_pem);
    format!(
        "resources:
- {base}
patches:
- target:
    kind: APIService
  patch: |
    - op: add
      path: /spec/caBundle
      value: {ca_bundle}
    - op: add
      path: /spec/service/port
      value: {port}
",
        base = base.display()
    )
}
