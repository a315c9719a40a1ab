//! Renderings by a function-runner.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use stoa_proto::function_runner_client::FunctionRunnerClient;
use stoa_proto::{GenerateRequest, Source};
use tonic::transport::Channel;

use super::Tool;
use super::inputs::Inputs;
use crate::runner::RunnerProcess;

/// A runner, and the folders that it renders.
#[derive(Debug)]
pub(super) struct Runner {
    process: RunnerProcess,
    client: FunctionRunnerClient<Channel>,
    source: Source,
    commit: String,
}

impl Runner {
    /// Starts the program of the process `like`.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(super) async fn start(like: u32, renderer: &Path, kcl: Option<&Path>, inputs: &Inputs) -> Result<Self> {
        let process = RunnerProcess::start(like, Some(renderer), kcl).await?;
        let client = FunctionRunnerClient::new(process.channel());
        let source = Source {
            provider: "Git".to_owned(),
            remote: format!("file://{}", inputs.path().display()),
            organization: "bench".to_owned(),
            ..Source::default()
        };
        Ok(Self { process, client, source, commit: inputs.commit()? })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
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
