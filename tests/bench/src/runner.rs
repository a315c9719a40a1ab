//! A function-runner of this program alone: the one of the test bed, with tools and certificates of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// Longer than its start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the value.
#[derive(Debug)]
pub(crate) struct RunnerProcess {
    process: Child,
    channel: Channel,
    _folder: TempDir,
}

impl RunnerProcess {
    /// Starts the program of the process `like`, with the tools that there are.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(crate) async fn start(like: u32, renderer: Option<&Path>, kcl: Option<&Path>) -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let file = |name: &str| folder.path().join(name);
        let authority = CertificateAuthority::new("bench-render")?;
        authority.issue(&CertificateRequest::server("runner").loopback())?.write(folder.path(), "runner")?;
        fs::write(file("ca.crt"), authority.certificate_pem())?;
        let program = fs::read_link(format!("/proc/{like}/exe")).context("finding the runner's program")?;
        let mut command = Command::new(&program);
        command.args(["--listen=127.0.0.1:0", "--exit-on-stdin-close", "--local-repositories=/"]);
        for (flag, name) in [
            ("tls-cert", "runner.crt"),
            ("tls-key", "runner.key"),
            ("client-ca", "ca.crt"),
            ("cache-dir", "cache"),
            ("address-file", "address"),
        ] {
            command.arg(format!("--{flag}={}", file(name).display()));
        }
        if let Some(renderer) = renderer {
            command.arg(format!("--renderer={}", renderer.display()));
        }
        if let Some(kcl) = kcl {
            command.arg(format!("--kcl-library={}", kcl.display()));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().with_context(|| format!("running {}", program.display()))?;
        let started = Instant::now();
        let address = loop {
            match fs::read_to_string(file("address")) {
                Ok(address) if address.ends_with('\n') => break address,
                _ => ensure!(started.elapsed() < PATIENCE, "the function-runner does not start"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let issued = authority.issue(&CertificateRequest::client("stoa-apiserver"))?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.certificate_pem()))
            .identity(Identity::from_pem(issued.certificate_pem, issued.key_pem))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", address.trim()))?.tls_config(tls)?;
        let channel = endpoint.connect().await.context("connecting to the function-runner")?;
        Ok(Self { process, channel, _folder: folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The connection to it, which clients share.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

impl Drop for RunnerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
