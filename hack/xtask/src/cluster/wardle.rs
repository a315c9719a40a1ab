//! The two servers of `wardle.example.com` that the conformance program compares: Go's sample-apiserver, on the test
//! bed's etcd, and the example `wardle` of `stoa-storage`, on any of our logs.
//!
//! One APIService can lead to only one of them, and its port says to which; it begins with the reference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::control_plane::{etcd_flags, path_flag};
use super::state::WardleState;
use super::{Cluster, State, pki};
use crate::binaries;
use crate::ports;
use crate::process::{Daemon, Signal};

/// Where the service of both is.
pub(super) const NAMESPACE: &str = "wardle";
/// The service that the APIService names.
pub(super) const SERVICE: &str = "api";

/// How many changes of a resource the example remembers: fewer than the conformance program makes it forget
/// (`tests/conformance/checks_expired.go`), and more than come in the course of one of its checks.
const HISTORY: usize = 2000;

const PATIENCE: Duration = Duration::from_secs(60);

/// What both record: what is done by certain groups, and whatever happens to objects in a namespace `audited`.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: RequestResponse
  userGroups: ['audited:request-response']
- level: Request
  userGroups: ['audited:request']
- level: Metadata
  userGroups: ['audited:metadata']
- level: RequestResponse
  resources: [{group: '*', resources: ['*']}]
  namespaces: [audited]
- level: None
";

/// Where the example keeps its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WardleLog {
    /// In memory, without anything of stoa-storage; empty at every start
    Memory,
    /// On local files in the test bed's folder
    Local,
    /// On the test bed's etcd, under a prefix of its own
    Etcd,
}

impl WardleLog {
    /// What it is called on command lines.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Go's sample-apiserver and the example, in the order in which they start.
pub(super) fn daemons(dir: &Path) -> [Daemon; 2] {
    ["sample-apiserver", "wardle"].map(|name| Daemon::new(dir, name))
}

/// Where each of them records what is done.
pub(super) fn audit_logs(dir: &Path) -> [PathBuf; 2] {
    ["sample-apiserver", "wardle"].map(|name| dir.join(format!("logs/{name}-audit.log")))
}

/// Starts and registers both. The example is always started anew, as it may have been built anew.
pub(super) fn up(cluster: &Cluster, state: &mut State, example: &Path, log: WardleLog) -> Result<()> {
    let reference = binaries::SAMPLE_APISERVER.binary()?;
    pki::wardle(&cluster.pki())?;
    let [sample_apiserver, ours] = daemons(&cluster.dir);
    ours.end(Signal::Terminate, Duration::from_secs(10))?;

    let before = state.wardle.take();
    let mut taken = state.ports();
    let reference_port = match &before {
        Some(before) if sample_apiserver.pid().is_some() => before.reference_port,
        _ => ports::free(&taken)?,
    };
    taken.push(reference_port);
    let wardle = WardleState { reference_port, subject_port: ports::free(&taken)?, log };
    state.wardle = Some(wardle.clone());
    state.save(&cluster.dir)?;

    let manifest = cluster.dir.join("wardle.yaml");
    let ca = fs::read_to_string(cluster.pki().join("wardle-ca.crt")).context("reading wardle's authority")?;
    fs::write(&manifest, manifests(reference_port, &ca)).context("writing wardle's manifests")?;
    fs::write(cluster.dir.join("wardle-audit-policy.yaml"), AUDIT_POLICY).context("writing wardle's audit policy")?;
    let kubectl = cluster.kubectl()?;
    kubectl.run(&["apply", "--filename", manifest.to_str().context("the test bed's folder is not UTF-8")?])?;

    if sample_apiserver.pid().is_none() {
        eprintln!("starting sample-apiserver …");
        let mut command = server_command(cluster, &reference, reference_port, &audit_logs(&cluster.dir)[0]);
        etcd_flags(&mut command, cluster, state, "apiserver-etcd-client");
        for flag in ["authentication-kubeconfig", "authorization-kubeconfig"] {
            path_flag(&mut command, flag, &cluster.kubeconfig());
        }
        sample_apiserver.spawn(&mut command)?;
        sample_apiserver.wait(PATIENCE, || ports::accepts(reference_port))?;
    }
    eprintln!("starting the example wardle, its log: {} …", log.name());
    let mut command = server_command(cluster, example, wardle.subject_port, &audit_logs(&cluster.dir)[1]);
    command.arg(format!("--history={HISTORY}"));
    match log {
        WardleLog::Memory => {}
        WardleLog::Local => path_flag(&mut command, "data-dir", &cluster.dir.join("wardle")),
        WardleLog::Etcd => etcd_flags(&mut command, cluster, state, "apiserver-etcd-client"),
    }
    ours.spawn(&mut command)?;
    ours.wait(PATIENCE, || ports::accepts(wardle.subject_port))?;
    kubectl.run(&["wait", "--for=condition=Available", "--timeout=60s", "apiservice/v1alpha1.wardle.example.com"])?;
    Ok(())
}

/// The flags that both have.
fn server_command(cluster: &Cluster, binary: &Path, port: u16, audit_log: &Path) -> Command {
    let pki = cluster.pki();
    let mut command = Command::new(binary);
    command.arg("--bind-address=127.0.0.1").arg(format!("--secure-port={port}"));
    path_flag(&mut command, "kubeconfig", &cluster.kubeconfig());
    path_flag(&mut command, "tls-cert-file", &pki.join("wardle.crt"));
    path_flag(&mut command, "tls-private-key-file", &pki.join("wardle.key"));
    path_flag(&mut command, "audit-policy-file", &cluster.dir.join("wardle-audit-policy.yaml"));
    path_flag(&mut command, "audit-log-path", audit_log);
    command
}

fn manifests(port: u16, ca_pem: &str) -> String {
    let ca_bundle = BASE64_STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
---
apiVersion: v1
kind: Service
metadata:
  name: {SERVICE}
  namespace: {NAMESPACE}
spec:
  type: ExternalName
  externalName: localhost
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1alpha1.wardle.example.com
spec:
  group: wardle.example.com
  version: v1alpha1
  groupPriorityMinimum: 500
  versionPriority: 10
  caBundle: {ca_bundle}
  service: {{name: {SERVICE}, namespace: {NAMESPACE}, port: {port}}}
"
    )
}
