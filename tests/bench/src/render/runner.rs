//! A function-runner of this program alone: the one of the test bed, with tools and certificates of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_proto::function_runner_client::FunctionRunnerClient;
use stoa_proto::{GenerateRequest, Source};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::Tool;
use super::inputs::Inputs;

/// Longer than its start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runner that ends with the value.
#[derive(Debug)]
pub(super) struct Runner {
    process: Child,
    client: FunctionRunnerClient<Channel>,
    source: Source,
    commit: String,
    _folder: TempDir,
}

impl Runner {
    /// Starts the program of the process `like`.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(super) async fn start(like: u32, renderer: &Path, kcl: Option<&Path>, inputs: &Inputs) -> Result<Self> {
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
        command.arg(format!("--renderer={}", renderer.display()));
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
        let client = FunctionRunnerClient::new(endpoint.connect().await.context("connecting to the function-runner")?);
        let source = Source {
            provider: "Git".to_owned(),
            remote: format!("file://{}", inputs.path().display()),
            organization: "bench".to_owned(),
            ..Source::default()
        };
        Ok(Self { process, client, source, commit: inputs.commit()?, _folder: folder })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Generates the folder of a tool for a stack, and returns how long that took.
    ///
    /// # Errors
    ///
    /// When it fails, or has another number of resources than it should.
    pub(super) async fn generate(&self, tool: Tool, stack: &str) -> Result<Duration> {
        let request = GenerateRequest {
            source: Some(self.source.clone()),
            commit: self.commit.clone(),
            path: tool.folder().to_owned(),
            organization: "bench".to_owned(),
            project: "web".to_owned(),
            stack: stack.to_owned(),
            ..GenerateRequest::default()
        };
        let started = Instant::now();
        let answer = self.client.clone().generate(request).await;
        let elapsed = started.elapsed();
        let answer = answer.map_err(|status| anyhow::anyhow!("{}: {}", status.code(), status.message()))?.into_inner();
        let spec: Value = serde_json::from_slice(&answer.spec).context("the Spec is no JSON")?;
        let found = spec["resources"].as_array().map_or(0, Vec::len);
        ensure!(found == tool.resources(), "the Spec has {found} resources, not {}", tool.resources());
        Ok(elapsed)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
