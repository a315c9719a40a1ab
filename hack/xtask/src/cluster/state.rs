//! What a test bed remembers from one command to the next.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::wardle::WardleLog;
use crate::ports;

/// The file `cluster.json` of a test bed's folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) etcd_port: u16,
    pub(super) etcd_peer_port: u16,
    pub(super) apiserver_port: u16,
    pub(super) controller_manager_port: u16,
    /// Set by the first `up --stoa`.
    pub(super) stoa: Option<StoaState>,
    /// Set by the first `up --wardle`.
    pub(super) wardle: Option<WardleState>,
}

/// Where the two servers of `wardle.example.com` were last started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WardleState {
    pub(super) reference_port: u16,
    pub(super) subject_port: u16,
    /// Where the example keeps its objects.
    pub(super) log: WardleLog,
}

/// How Stoa was last started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoaState {
    /// Of every replica; the first one's is registered.
    pub(super) ports: Vec<u16>,
    /// Where each of them takes webhooks.
    pub(super) webhook_ports: Vec<u16>,
    /// Whether the log is on the test bed's etcd, as it is with replicas.
    pub(super) on_etcd: bool,
    /// What each of them is told besides.
    pub(super) arguments: Vec<String>,
    pub(super) runner_port: u16,
    pub(super) apiserver: PathBuf,
    pub(super) runner: PathBuf,
}

impl StoaState {
    /// Where every replica is, the registered one first.
    pub(super) fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("https://localhost:{port}")).collect()
    }

    /// Where the registered one takes webhooks.
    pub(super) fn webhook_url(&self) -> Option<String> {
        self.webhook_ports.first().map(|port| format!("https://localhost:{port}/webhooks"))
    }

    /// Where function-runner is.
    pub(super) fn runner_url(&self) -> String {
        format!("https://localhost:{}", self.runner_port)
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("cluster.json")
}

impl State {
    /// Whether `dir` is a test bed's folder.
    pub(super) fn exists(dir: &Path) -> bool {
        file(dir).is_file()
    }

    pub(super) fn load(dir: &Path) -> Result<Self> {
        let path = file(dir);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// The folder's state; a new one has ports that are free now, and is written at once.
    pub(super) fn load_or_new(dir: &Path) -> Result<Self> {
        if Self::exists(dir) {
            return Self::load(dir);
        }
        let mut state = Self {
            etcd_port: 0,
            etcd_peer_port: 0,
            apiserver_port: 0,
            controller_manager_port: 0,
            stoa: None,
            wardle: None,
        };
        state.renew_ports()?;
        state.save(dir)?;
        Ok(state)
    }

    pub(super) fn save(&self, dir: &Path) -> Result<()> {
        let path = file(dir);
        let partial = path.with_extension("partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("writing {}", partial.display()))?;
        fs::rename(&partial, &path).with_context(|| format!("writing {}", path.display()))
    }

    /// Replaces the control plane's ports that somebody else took while it was down.
    pub(super) fn renew_ports(&mut self) -> Result<()> {
        let mut taken = self.ports();
        for port in
            [&mut self.etcd_port, &mut self.etcd_peer_port, &mut self.apiserver_port, &mut self.controller_manager_port]
        {
            if *port == 0 || !ports::is_free(*port) {
                *port = ports::free(&taken)?;
                taken.push(*port);
            }
        }
        Ok(())
    }

    /// Every port of the test bed, those of what is behind it too.
    pub(super) fn ports(&self) -> Vec<u16> {
        let mut ports = vec![self.etcd_port, self.etcd_peer_port, self.apiserver_port, self.controller_manager_port];
        ports.extend(
            self.stoa
                .iter()
                .flat_map(|stoa| stoa.ports.iter().chain(&stoa.webhook_ports).copied().chain([stoa.runner_port])),
        );
        ports.extend(self.wardle.iter().flat_map(|wardle| [wardle.reference_port, wardle.subject_port]));
        ports
    }

    pub(super) fn apiserver_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port)
    }
}
