//! `stacks/generate`: the Spec as it would be, recorded nowhere, sensitive values masked.
//!
//! A source that does not answer keeps whoever asks waiting, with a place among all requests that change something. So a
//! namespace has only so many at once ([`Turns`]), and more are turned away rather than kept waiting.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_types::{Run, Stack, delivery::Operation, reason};

use super::{Subresources, document, failure, non_empty, parameter, wants_json};
use crate::{
    controllers::asks::Turns,
    kinds::{lookup, run::target_workspace},
    rooms,
    runs::{Halt, documents, runner, target::Target},
};

/// How long a client is kept waiting.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So many are generated at once, eight of them for the first namespace that asks. It is a small part of the requests that
/// change something, and of the calls of a function-runner, of which runs need some.
const AT_ONCE: usize = 32;
/// Query parameters that are not the generator's.
const OWN: &[&str] = &["workspace", "version", "format", "timeout", "pretty", "dryRun", "fieldManager"];

#[derive(Debug)]
pub(super) struct Generate {
    subresources: Subresources,
    turns: Turns,
}

#[async_trait]
impl SubresourceHandler for Generate {
    /// Query parameters: `workspace` (may be left out when the stack has one), `version`, `format` (`json` or `yaml`);
    /// every other one is a parameter of the generator, such as `cell=c1`.
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let turns = self.turns.of(&call.namespace);
        let Some(_turn) = turns.try_take() else {
            let message = format!(
                "as many Specs are generated for namespace {:?} as may be at once; try again, or create a Run with operation \
                 Preview, which waits for its turn",
                call.namespace
            );
            return Err(ApiError::too_many_requests(message, 1));
        };
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
    pub(super) fn new(subresources: Subresources) -> Self {
        Self { subresources, turns: Turns::new(AT_ONCE) }
    }

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
        let spec = response.spec;
        let room = rooms::take(&call.namespace, spec.len()).await?;
        let show = move || document(&documents::shown(spec).map_err(ApiError::internal)?, as_json);
        let (answer, room) = room.work(show).await;
        room.until_sent(answer?).await
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

#[cfg(test)]
mod tests {
    use std::iter;

    use http::{HeaderMap, Method};
    use stoa_machinery::RequestContext;

    use super::*;

    fn call(namespace: &str) -> SubresourceCall {
        SubresourceCall {
            context: RequestContext::internal("tests"),
            namespace: namespace.to_owned(),
            name: "web".to_owned(),
            method: Method::POST,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
        }
    }

    #[tokio::test]
    async fn namespace_that_waits_for_its_sources_has_no_more_than_its_share_and_keeps_no_other_from_generating() {
        let generate = Generate::new(Subresources::default());
        let silent = generate.turns.of("silent");
        let held: Vec<_> = iter::from_fn(|| silent.try_take()).collect();
        assert_eq!(held.len(), 8);
        let code = async |namespace| generate.call(call(namespace)).await.unwrap_err().code();
        assert_eq!(code("silent").await, 429);
        assert_eq!(code("quick").await, 503, "it goes on to the services, which are not there yet");
        drop(held);
        assert_eq!([code("silent").await, code("silent").await], [503, 503], "a turn is given back");
    }
}
