//! Templates of Go by a function-runner, as the product executes them, or by a replacement of their two variables.

use stoa_fleet::templates::{Batch, Executed, Execution, Renderer, RendererError, TemplateError};
use stoa_proto::fleet_client::FleetClient;
use stoa_proto::{ExecuteTemplatesRequest, TemplateExecution, TemplateResult, TemplateTexts, TemplateVariables};
use tokio::runtime::Handle;
use tonic::transport::Channel;

/// Replaces the variables that the templates of this benchmark have. The figures are then those of `stoa-fleet` alone.
#[derive(Debug)]
pub(super) struct Replacing;

impl Renderer for Replacing {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let one = |it: &Execution| {
            let data = &batch.data[it.data];
            let texts = batch.templates[it.template].spec.manifests.iter();
            let text = |text: &String| {
                text.replace("{{ .Namespace }}", &data.namespace()).replace("{{ .Workload }}", data.target.workload())
            };
            Ok(Executed { manifests: texts.map(text).collect(), volatile: Vec::new() })
        };
        Ok(batch.executions.iter().map(one).collect())
    }
}

/// A function-runner. Its calls are on threads that may wait.
#[derive(Debug)]
pub(super) struct OnRunner {
    pub(super) client: FleetClient<Channel>,
    pub(super) runtime: Handle,
}

fn request(batch: &Batch) -> ExecuteTemplatesRequest {
    let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let variables = batch.data.iter().map(|it| TemplateVariables {
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
    let executions = batch
        .executions
        .iter()
        .map(|it| TemplateExecution { template: position(it.template), variables: position(it.data) });
    ExecuteTemplatesRequest {
        organization: "bench".to_owned(),
        templates: batch.templates.iter().map(|it| TemplateTexts { manifests: it.spec.manifests.clone() }).collect(),
        variables: variables.collect(),
        executions: executions.collect(),
    }
}

fn result(of: TemplateResult) -> Result<Executed, TemplateError> {
    match of.failure {
        None => Ok(Executed { manifests: of.manifests, volatile: of.volatile }),
        Some(failure) => Err(TemplateError {
            manifest: failure.manifest as usize,
            line: failure.line as usize,
            message: failure.message,
        }),
    }
}

impl Renderer for OnRunner {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let mut client = self.client.clone();
        let answer = self.runtime.block_on(client.execute_templates(request(batch)));
        let answer = answer.map_err(|status| RendererError(status.message().to_owned()))?;
        Ok(answer.into_inner().results.into_iter().map(result).collect())
    }
}
