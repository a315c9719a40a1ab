//! Porch's service of functions.

use std::sync::Arc;

use prost::bytes::Bytes;
use stoa_proto::evaluator::function_evaluator_server::FunctionEvaluator;
use stoa_proto::evaluator::{EvaluateFunctionRequest, EvaluateFunctionResponse};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::functions::{Call as FunctionCall, Functions};

use super::calls::{Call, Calls};

/// Metadata of an answer: the exit code of a function that failed.
const EXIT_CODE: &str = "stoa-exit-code";
/// Metadata of a request from a caller that reads [`EXIT_CODE`]. Other callers get an error for a function that failed.
const READS_EXIT_CODE: &str = "stoa-reads-exit-code";
/// Metadata of a request: the organization that pays for the call.
const ORGANIZATION: &str = "stoa-organization";

/// Runs functions within the limits of calls.
#[derive(Clone, Debug)]
pub(crate) struct FunctionService {
    calls: Arc<Calls>,
    functions: Functions,
    /// Whether the callers have no certificate.
    is_open: bool,
}

impl FunctionService {
    /// For callers with a certificate, which name the organization that pays.
    pub(crate) fn new(calls: Arc<Calls>, functions: Functions) -> Self {
        Self { calls, functions, is_open: false }
    }

    /// For all callers. They pay together, as one organization without a name.
    pub(crate) fn open(calls: Arc<Calls>, functions: Functions) -> Self {
        Self { calls, functions, is_open: true }
    }
}

/// The organization that pays for a call. Without a certificate, a caller could name others, or a new one for each call.
fn payer(metadata: &MetadataMap, is_open: bool) -> String {
    if is_open { String::new() } else { text(metadata, ORGANIZATION) }
}

fn text(metadata: &MetadataMap, key: &str) -> String {
    metadata.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tonic::async_trait]
impl FunctionEvaluator for FunctionService {
    async fn evaluate_function(
        &self,
        request: Request<EvaluateFunctionRequest>,
    ) -> Result<Response<EvaluateFunctionResponse>, Status> {
        let reads_exit_code = !text(request.metadata(), READS_EXIT_CODE).is_empty();
        let organization = payer(request.metadata(), self.is_open);
        let EvaluateFunctionRequest { resource_list, image } = request.into_inner();
        let span = tracing::info_span!("EvaluateFunction", organization, image);
        let call = Call { method: "EvaluateFunction", organization: organization.clone(), span };
        let (calls, functions) = (&self.calls, &self.functions);
        let evaluated = calls.call(call, async {
            let _memory = calls.memory(&organization, resource_list.len()).await?;
            let call = FunctionCall { organization: organization.clone(), image: image.clone(), list: resource_list };
            let output = functions.run(call).await?;
            if output.exit_code != 0 && !reads_exit_code {
                return Err(functions.failure(image, output).await);
            }
            let answer = EvaluateFunctionResponse { resource_list: output.stdout, log: Bytes::from(output.stderr) };
            Ok((answer, output.exit_code))
        });
        // grpc-go refuses details that are no `google.rpc.Status`, and Porch reads the message alone.
        let without_details = |status: Status| Status::new(status.code(), status.message());
        let answer = Box::pin(evaluated).await;
        let answer = answer.map_err(|status| if self.is_open { without_details(status) } else { status })?;
        let exit_code = answer.get_ref().1;
        let mut answer = answer.map(|(answer, _)| answer);
        if exit_code != 0 {
            answer.metadata_mut().insert(EXIT_CODE, exit_code.into());
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_without_certificate_name_no_payer() {
        let mut metadata = MetadataMap::new();
        metadata.insert(ORGANIZATION, "shop".parse().unwrap());
        assert_eq!((payer(&metadata, false), payer(&metadata, true)), ("shop".to_owned(), String::new()));
    }
}
