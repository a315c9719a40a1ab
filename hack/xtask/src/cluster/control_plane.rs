//! etcd, kube-apiserver and kube-controller-manager, as a cluster's control plane runs them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::{Cluster, State, pki};
use crate::binaries;
use crate::ports;
use crate::process::{Daemon, Signal};

/// Longer than a start takes on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says for every request who asked for what and how it ended; tests count in it.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// The control plane's processes, in the order in which they start.
pub(super) fn daemons(dir: &Path) -> [Daemon; 3] {
    ["etcd", "kube-apiserver", "kube-controller-manager"].map(|name| Daemon::new(dir, name))
}

/// Starts the control plane unless all of it runs, and waits until its controllers work.
pub(super) fn up(cluster: &Cluster, state: &mut State) -> Result<()> {
    let started = Instant::now();
    let [etcd, apiserver, controller_manager] = daemons(&cluster.dir);
    if [&etcd, &apiserver, &controller_manager].iter().all(|daemon| daemon.pid().is_some()) {
        eprintln!("the control plane in {} is up", cluster.dir.display());
        return Ok(());
    }
    let etcd_binary = binaries::ETCD.binary()?;
    let apiserver_binary = binaries::KUBE_APISERVER.binary()?;
    let controller_manager_binary = binaries::KUBE_CONTROLLER_MANAGER.binary()?;

    // What is left of a control plane that lost a process might be waiting on the wrong port.
    for daemon in [&controller_manager, &apiserver, &etcd] {
        daemon.end(Signal::Terminate, Duration::from_secs(10))?;
    }
    state.renew_ports()?;
    state.save(&cluster.dir)?;
    write_configuration(cluster, state)?;

    eprintln!("starting etcd and kube-apiserver …");
    etcd.spawn(&mut etcd_command(cluster, state, &etcd_binary))?;
    etcd.wait(PATIENCE, || ports::accepts(state.etcd_port))?;
    start_apiserver(cluster, state, &apiserver, &apiserver_binary)?;

    let kubectl = cluster.kubectl()?;
    eprintln!("starting kube-controller-manager …");
    controller_manager.spawn(&mut controller_manager_command(cluster, state, &controller_manager_binary))?;
    // Its controllers run when one of them has done its work.
    controller_manager
        .wait(PATIENCE, || kubectl.succeeds(&["get", "serviceaccount", "default", "--namespace=default"]))?;
    eprintln!("the control plane in {} is up after {:.1?}", cluster.dir.display(), started.elapsed());
    Ok(())
}

fn start_apiserver(cluster: &Cluster, state: &State, apiserver: &Daemon, binary: &Path) -> Result<()> {
    apiserver.spawn(&mut apiserver_command(cluster, state, binary))?;
    let kubectl = cluster.kubectl()?;
    apiserver.wait(PATIENCE, || ports::accepts(state.apiserver_port) && kubectl.succeeds(&["get", "--raw=/readyz"]))
}

/// Starts etcd and kube-apiserver where they are not running, as after a crash, with the ports and data that they had;
/// returns their names.
pub(super) fn start_again(cluster: &Cluster, state: &State) -> Result<Vec<&'static str>> {
    let [etcd, apiserver, _] = daemons(&cluster.dir);
    let mut started = Vec::new();
    if etcd.pid().is_none() {
        ports::wait_until_free(state.etcd_port, PATIENCE)?;
        etcd.spawn(&mut etcd_command(cluster, state, &binaries::ETCD.binary()?))?;
        etcd.wait(PATIENCE, || ports::accepts(state.etcd_port))?;
        started.push(etcd.name());
    }
    if apiserver.pid().is_none() {
        ports::wait_until_free(state.apiserver_port, PATIENCE)?;
        start_apiserver(cluster, state, &apiserver, &binaries::KUBE_APISERVER.binary()?)?;
        started.push(apiserver.name());
    }
    Ok(started)
}

fn write_configuration(cluster: &Cluster, state: &State) -> Result<()> {
    let folder = cluster.pki();
    pki::control_plane(&folder)?;
    let server = state.apiserver_url();
    pki::kubeconfig(&folder, "admin", &server, &cluster.kubeconfig())?;
    pki::kubeconfig(&folder, "controller-manager", &server, &cluster.dir.join("controller-manager.kubeconfig"))?;
    fs::create_dir_all(cluster.dir.join("logs")).context("making the folder for logs")?;
    fs::write(cluster.dir.join("audit-policy.yaml"), AUDIT_POLICY).context("writing the audit policy")
}

fn etcd_command(cluster: &Cluster, state: &State, binary: &Path) -> Command {
    let pki = cluster.pki();
    let client = format!("https://127.0.0.1:{}", state.etcd_port);
    let peer = format!("https://127.0.0.1:{}", state.etcd_peer_port);
    let mut command = Command::new(binary);
    command.arg("--name=testbed");
    path_flag(&mut command, "data-dir", &cluster.dir.join("etcd"));
    for flag in ["listen-client-urls", "advertise-client-urls"] {
        command.arg(format!("--{flag}={client}"));
    }
    for flag in ["listen-peer-urls", "initial-advertise-peer-urls"] {
        command.arg(format!("--{flag}={peer}"));
    }
    command.arg(format!("--initial-cluster=testbed={peer}")).arg("--log-level=warn");
    for prefix in ["", "peer-"] {
        path_flag(&mut command, &format!("{prefix}cert-file"), &pki.join("etcd.crt"));
        path_flag(&mut command, &format!("{prefix}key-file"), &pki.join("etcd.key"));
        path_flag(&mut command, &format!("{prefix}trusted-ca-file"), &pki.join("etcd-ca.crt"));
        command.arg(format!("--{prefix}client-cert-auth=true"));
    }
    command
}

fn apiserver_command(cluster: &Cluster, state: &State, binary: &Path) -> Command {
    let pki = cluster.pki();
    let mut command = Command::new(binary);
    command.args([
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // A loopback address is no valid endpoint, so the service `kubernetes` has none.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        // In MB: past it the log rotates, and who counts in it would miss the beginning.
        "--audit-log-maxsize=4096",
        "--profiling=false",
    ]);
    command.arg(format!("--secure-port={}", state.apiserver_port));
    etcd_flags(&mut command, cluster, state, "apiserver-etcd-client");
    for (flag, file) in [
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
        ("client-ca-file", "ca.crt"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ("proxy-client-cert-file", "front-proxy-client.crt"),
        ("proxy-client-key-file", "front-proxy-client.key"),
        ("service-account-key-file", "service-accounts.crt"),
        ("service-account-signing-key-file", "service-accounts.key"),
    ] {
        path_flag(&mut command, flag, &pki.join(file));
    }
    path_flag(&mut command, "audit-policy-file", &cluster.dir.join("audit-policy.yaml"));
    path_flag(&mut command, "audit-log-path", &cluster.audit_log());
    command
}

fn controller_manager_command(cluster: &Cluster, state: &State, binary: &Path) -> Command {
    let pki = cluster.pki();
    let mut command = Command::new(binary);
    command.args([
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        // The defaults are for large clusters on large machines; tests wait for namespaces to go.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]);
    command.arg(format!("--secure-port={}", state.controller_manager_port));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        path_flag(&mut command, flag, &cluster.dir.join("controller-manager.kubeconfig"));
    }
    for (flag, file) in [
        ("tls-cert-file", "controller-manager-serving.crt"),
        ("tls-private-key-file", "controller-manager-serving.key"),
        ("client-ca-file", "ca.crt"),
        ("root-ca-file", "ca.crt"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ("service-account-private-key-file", "service-accounts.key"),
    ] {
        path_flag(&mut command, flag, &pki.join(file));
    }
    command
}

/// The flags for the test bed's etcd, which all API servers have by the same names; `client` is the name of the certificate.
pub(super) fn etcd_flags(command: &mut Command, cluster: &Cluster, state: &State, client: &str) {
    let pki = cluster.pki();
    command.arg(format!("--etcd-servers=https://127.0.0.1:{}", state.etcd_port));
    path_flag(command, "etcd-cafile", &pki.join("etcd-ca.crt"));
    path_flag(command, "etcd-certfile", &pki.join(format!("{client}.crt")));
    path_flag(command, "etcd-keyfile", &pki.join(format!("{client}.key")));
}

/// Adds `--flag=path` without demanding that the path be UTF-8.
pub(super) fn path_flag(command: &mut Command, flag: &str, path: &Path) {
    let mut argument = std::ffi::OsString::from(format!("--{flag}="));
    argument.push(path);
    command.arg(argument);
}
