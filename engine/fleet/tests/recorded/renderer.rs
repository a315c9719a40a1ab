//! The function-runner's renderer as it is built, in a process of its own.

use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use hyper_util::rt::TokioIo;
use stoa_fleet::templates::{Batch, Executed, Renderer, RendererError, TemplateError};
use stoa_proto::renderer::{self as wire, TemplatesRequest, renderer_client::RendererClient};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    runtime::{Builder, Runtime},
};
use tonic::transport::{Channel, Endpoint};

/// A process of the renderer, which ends with this.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    client: RendererClient<Channel>,
    runtime: Runtime,
    _stdout: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Process {
    /// Starts the program that `STOA_TEST_RENDERER` names; `None` without it.
    pub(crate) fn start() -> Option<Self> {
        let Ok(program) = env::var("STOA_TEST_RENDERER") else {
            eprintln!("skipped: STOA_TEST_RENDERER is not set");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        let mut child = command.current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let socket = folder.path().join("renderer.sock");
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://renderer");
        let channel = runtime.block_on(endpoint.connect_with_connector(connector)).unwrap();
        let client = RendererClient::new(channel).max_decoding_message_size(128 << 20);
        Some(Self { child, client, runtime, _stdout: stdout, _folder: folder })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(batch: &Batch) -> TemplatesRequest {
    let templates = batch.templates.iter().map(|it| wire::Template { manifests: it.spec.manifests.clone() });
    let data = batch.data.iter().map(|it| wire::TemplateData {
        deployment_target_name: it.target.name.clone(),
        namespace: it.namespace(),
        environment: it.environment.clone(),
        workspace: it.target.workspace().to_owned(),
        workload: it.target.workload().to_owned(),
        labels: it.labels().clone().into_iter().collect(),
        manifests: it.manifests().clone().into_iter().collect(),
        cluster_type: it.cluster_type.name.clone(),
        config_data: it.config_data.clone().into(),
    });
    let position = |at: usize| u32::try_from(at).unwrap();
    let executions =
        batch.executions.iter().map(|it| wire::Execution { template: position(it.template), data: position(it.data) });
    TemplatesRequest {
        templates: templates.collect(),
        data: data.collect(),
        executions: executions.collect(),
        max_bytes: 1 << 20,
        max_response_bytes: 64 << 20,
        max_passes: 5,
        milliseconds: 10_000,
    }
}

impl Renderer for Process {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let mut client = self.client.clone();
        let answer = self.runtime.block_on(client.execute_templates(request(batch)));
        let answer = answer.map_err(|status| RendererError(status.to_string()))?.into_inner();
        let result = |it: wire::Executed| match it.problem {
            None => Ok(Executed { manifests: it.manifests, volatile: it.volatile }),
            Some(problem) => Err(TemplateError {
                manifest: problem.manifest as usize,
                line: problem.line as usize,
                message: problem.message,
            }),
        };
        Ok(answer.executed.into_iter().map(result).collect())
    }
}
