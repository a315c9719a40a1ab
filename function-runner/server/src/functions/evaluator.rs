//! Functions of a function runner of Porch, to which this runner passes on the calls of images that it does not have.

use std::time::Duration;

use async_trait::async_trait;
use stoa_packages::function_metadata::FunctionDescription;
use stoa_proto::evaluator::function_evaluator_client::FunctionEvaluatorClient;
use stoa_proto::evaluator::{EvaluateFunctionRequest, EvaluateFunctionResponse};
use stoa_workers::Limits;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{Call, Executor, Output, took_too_long};
use crate::failure::{Failure, reason};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Passes calls on.
#[derive(Debug)]
pub(super) struct Evaluator {
    address: String,
    channel: Channel,
    limits: Limits,
}

impl Evaluator {
    /// Connects at the first call. Needs a Tokio runtime.
    pub(super) fn new(address: String, limits: Limits) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(CONNECT).connect_lazy();
        Ok(Self { address, channel, limits })
    }
}

/// Calls a function evaluator of Porch's protocol.
pub(super) async fn ask(channel: Channel, call: &Call, limits: &Limits, what: &str) -> Result<Output, Failure> {
    let mut client = FunctionEvaluatorClient::new(channel)
        .max_decoding_message_size(limits.answer)
        .max_encoding_message_size(limits.answer.max(call.list.len() + (64 << 10)));
    let request = EvaluateFunctionRequest { resource_list: call.list.clone(), image: call.image.clone() };
    match tokio::time::timeout(limits.time, client.evaluate_function(request)).await {
        Ok(Ok(answer)) => {
            let EvaluateFunctionResponse { resource_list, log } = answer.into_inner();
            let stderr = String::from_utf8_lossy(&log).into_owned();
            Ok(Output { stdout: resource_list, stderr, exit_code: 0 })
        }
        Ok(Err(status)) => Err(failure(call, limits, &status, what)),
        Err(_) => Err(took_too_long(&call.image, limits.time)),
    }
}

fn failure(call: &Call, limits: &Limits, status: &Status, what: &str) -> Failure {
    let (image, message) = (&call.image, status.message());
    match status.code() {
        Code::NotFound | Code::Unimplemented => {
            let message = format!("neither this function-runner nor {what} has function {image:?}: {message}");
            Failure::new(Code::NotFound, reason::UNKNOWN_FUNCTION, message)
        }
        Code::DeadlineExceeded => took_too_long(image, limits.time),
        Code::Unavailable | Code::Cancelled | Code::ResourceExhausted => {
            Failure::new(Code::Unavailable, reason::UNAVAILABLE, format!("{what} does not answer: {message}"))
        }
        // Evaluators report a function that failed as an internal error.
        _ => {
            let message = format!("function {image:?} failed: {message}");
            Failure::new(Code::FailedPrecondition, reason::FUNCTION_FAILED, message)
        }
    }
}

#[async_trait]
impl Executor for Evaluator {
    /// It is asked last, and only it knows its images.
    fn has(&self, _: &str) -> bool {
        true
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        Vec::new()
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        let what = format!("Porch's function runner at {}", self.address);
        ask(self.channel.clone(), call, &self.limits, &what).await
    }
}
