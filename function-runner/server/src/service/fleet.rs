//! The service `Fleet`.

use std::sync::Arc;

use prost::Message as _;
use stoa_proto::fleet_server::Fleet;
use stoa_proto::renderer::{self, TemplatesRequest};
use stoa_proto::{
    ExecuteTemplatesRequest, ExecuteTemplatesResponse, ProposeFilesRequest, ProposeFilesResponse, TemplateExecution,
    TemplateFailure, TemplateResult, TemplateVariables,
};
use tonic::{Request, Response, Status};

use crate::failure::Failure;
use crate::generate::Generators;
use crate::source::Sources;

use super::calls::{Call, Calls};
use super::required;

/// The most bytes of the texts of one execution, and of all executions of a request of the renderer.
const EXECUTION_BYTES: u32 = 1 << 20;
const RESPONSE_BYTES: u32 = 64 << 20;
/// How often a result with `{{` is rendered again.
const PASSES: u32 = 10;
/// The time of one execution, in milliseconds.
const EXECUTION_MILLISECONDS: u32 = 2_000;

/// Answers the calls. It keeps nothing but caches.
#[derive(Debug)]
pub(crate) struct FleetService {
    calls: Arc<Calls>,
    sources: Sources,
    generators: Generators,
}

impl FleetService {
    pub(crate) fn new(calls: Arc<Calls>, sources: Sources, generators: Generators) -> Self {
        Self { calls, sources, generators }
    }

    /// Executes all executions, in as many requests of the renderer as its limits need.
    async fn execute(&self, request: ExecuteTemplatesRequest) -> Result<ExecuteTemplatesResponse, Failure> {
        let ExecuteTemplatesRequest { organization, templates, variables, executions } = request;
        let templates: Vec<renderer::Template> =
            templates.into_iter().map(|it| renderer::Template { manifests: it.manifests }).collect();
        let data: Vec<renderer::TemplateData> = variables.into_iter().map(data).collect();
        let execution = |it: &TemplateExecution| renderer::Execution { template: it.template, data: it.variables };
        let mut left: Vec<renderer::Execution> = executions.iter().map(execution).collect();
        if left.iter().any(|it| it.template as usize >= templates.len() || it.data as usize >= data.len()) {
            return Err(Failure::request("executions: a position is outside of templates or variables"));
        }
        let mut results = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let request = TemplatesRequest {
                templates: templates.clone(),
                data: data.clone(),
                executions: left.clone(),
                max_bytes: EXECUTION_BYTES,
                max_response_bytes: RESPONSE_BYTES,
                max_passes: PASSES,
                milliseconds: EXECUTION_MILLISECONDS,
            };
            let response = self.generators.renderer().execute_templates(&organization, request).await?;
            let executed = response.executed.len().min(left.len());
            if executed == 0 {
                return Err(Failure::internal(&"the renderer executed no template of a request"));
            }
            results.extend(response.executed.into_iter().take(executed).map(result));
            left.drain(..executed);
        }
        Ok(ExecuteTemplatesResponse { results })
    }
}

fn data(of: TemplateVariables) -> renderer::TemplateData {
    renderer::TemplateData {
        deployment_target_name: of.deployment_target_name,
        namespace: of.namespace,
        environment: of.environment,
        workspace: of.workspace,
        workload: of.workload,
        labels: of.labels,
        manifests: of.manifests,
        cluster_type: of.cluster_type,
        config_data: of.config_data,
    }
}

fn result(of: renderer::Executed) -> TemplateResult {
    let failure = of.problem.map(|problem| TemplateFailure {
        manifest: problem.manifest,
        line: problem.line,
        message: problem.message,
    });
    TemplateResult { manifests: of.manifests, failure, volatile: of.volatile }
}

#[tonic::async_trait]
impl Fleet for FleetService {
    async fn execute_templates(
        &self,
        request: Request<ExecuteTemplatesRequest>,
    ) -> Result<Response<ExecuteTemplatesResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("ExecuteTemplates", executions = request.executions.len());
        let call = Call { method: "ExecuteTemplates", organization: request.organization.clone(), span };
        let executed = self.calls.call(call, async {
            let _memory = self.calls.memory(&request.organization, request.encoded_len()).await?;
            self.execute(request).await
        });
        Box::pin(executed).await
    }

    async fn propose_files(
        &self,
        request: Request<ProposeFilesRequest>,
    ) -> Result<Response<ProposeFilesResponse>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("ProposeFiles", base = request.base, files = request.files.len());
        let call = Call::of_source("ProposeFiles", request.source.as_ref(), span);
        let proposed = self.calls.call(call, async {
            let source = required(request.source.take(), "source")?;
            let _memory = self.calls.memory(&source.organization, request.encoded_len()).await?;
            self.sources.propose(&source, request).await
        });
        Box::pin(proposed).await
    }
}
