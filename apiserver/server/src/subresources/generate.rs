//! `stacks/generate`: the Spec as it would be, recorded nowhere, sensitive values masked.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_types::{Run, Stack, delivery::Operation, reason};

use super::{Subresources, document_aside, failure, non_empty, parameter, wants_json};
use crate::{
    kinds::{lookup, run::target_workspace},
    runs::{Halt, documents, runner, target::Target},
};

/// How long a client is kept waiting.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Query parameters that are not the generator's.
const OWN: &[&str] = &["workspace", "version", "format", "timeout", "pretty", "dryRun", "fieldManager"];

#[derive(Debug)]
pub(super) struct Generate {
    pub(super) subresources: Subresources,
}

#[async_trait]
impl SubresourceHandler for Generate {
    /// Query parameters: `workspace` (may be left out when the stack has one), `version`, `format` (`json` or `yaml`);
    /// every other one is a parameter of the generator, such as `cell=c1`.
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        match tokio::time::timeout(TIMEOUT, self.generate(&call)).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::timeout(
                "generating took longer than 30s; create a Run with operation Preview, which may take its time",
                1,
            )),
        }
    }
}

impl Generate {
    async fn generate(&self, call: &SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let as_json = wants_json(&call.headers, &call.query, "yaml")?;
        let services = self.subresources.services()?;
        let stack = services.lookup.api::<Stack>()?.get(&call.namespace, &call.name).await?;
        let workspace = workspace_of(call, &stack)?;
        lookup::require_use(&call.context, "workspaces", &workspace).await?;
        let version = non_empty(&call.query, "version").unwrap_or(&stack.spec.desired_version).to_owned();
        let target = Target::of_stack(services, stack, &workspace).await.map_err(failure)?;
        lookup::require_use(&call.context, "backends", &target.workspace.spec.backend.name).await?;
        let parameters: BTreeMap<String, String> =
            call.query.iter().filter(|(key, _)| !OWN.contains(&key.as_str())).cloned().collect();
        let request = stoa_proto::ResolveRequest {
            source: Some(target.proto_source(services).await.map_err(failure)?),
            version,
            r#ref: target.source().map_err(failure)?.spec.reference.clone(),
        };
        let refused = |status: tonic::Status| match status.code() {
            // Runs wait until the function-runner has time; whoever waits for an answer is told.
            tonic::Code::ResourceExhausted => ApiError::too_many_requests(status.message(), 1),
            _ => failure(runner::halt(&status, reason::GENERATE_FAILED)),
        };
        let commit = services.runner.resolve(request).await.map_err(refused)?.into_inner().commit;
        let request = target.generate_request(services, &commit, &parameters).await.map_err(failure)?;
        let response = services.runner.generate(request).await.map_err(refused)?.into_inner();
        for warning in response.warnings {
            call.context.warn(warning);
        }
        let shown = documents::shown(response.spec).await.map_err(ApiError::internal)?;
        document_aside(shown, as_json).await
    }
}

fn workspace_of(call: &SubresourceCall, stack: &Stack) -> Result<String, ApiError> {
    let mut spec = serde_json::json!({ "stack": call.name, "operation": Operation::Preview });
    spec["workspace"] = parameter(&call.query, "workspace").unwrap_or("").into();
    let run: Run = serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec }))
        .map_err(|e| ApiError::internal(e.to_string()))?;
    target_workspace(&run, stack).map_err(|error| {
        let message = format!("workspace: {}", error.message);
        failure(Halt::failed(reason::REFERENCE_NOT_FOUND, message))
    })
}
