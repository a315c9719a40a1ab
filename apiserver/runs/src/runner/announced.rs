//! Specs whose size is known before they are taken.

use futures_util::{FutureExt as _, future::BoxFuture};
use stoa_proto::{GenerateRequest, GenerateResponse, function_runner_client::FunctionRunnerClient};
use tonic::{Response, Status, body::Body, transport::Channel};
use tower::ServiceExt as _;

use super::pool::MAX_MESSAGE;

/// The metadata in which a runner says how many bytes a Spec has.
pub(crate) const SPEC_BYTES: &str = "stoa-spec-bytes";
/// What has this among its headers has no message.
const GRPC_STATUS: &str = "grpc-status";

/// Whether a Spec is taken that has so many bytes; nothing where a runner of an earlier version does not tell.
pub(crate) type Admit<'a> = dyn Fn(Option<usize>) -> Result<(), Status> + Send + Sync + 'a;

/// Renders a Spec where `admit` accepts its size; before that, only a window of HTTP/2 is in memory.
pub(super) fn generate<'a>(
    channel: Channel,
    request: GenerateRequest,
    admit: &'a Admit<'a>,
) -> BoxFuture<'a, Result<Response<GenerateResponse>, Status>> {
    let call = move |request: http::Request<Body>| admitted(channel.clone(), request, admit);
    let client = FunctionRunnerClient::new(tower::service_fn(call));
    let mut client = client.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    async move { client.generate(request).await }.boxed()
}

fn admitted<'a>(
    channel: Channel,
    request: http::Request<Body>,
    admit: &'a Admit<'a>,
) -> BoxFuture<'a, Result<http::Response<Body>, Status>> {
    let answered = async move {
        let response = channel.oneshot(request).await.map_err(|error| Status::from_error(Box::new(error)))?;
        let headers = response.headers();
        if !headers.contains_key(GRPC_STATUS) {
            let bytes: Option<usize> = headers.get(SPEC_BYTES).and_then(|bytes| bytes.to_str().ok()?.parse().ok());
            admit(bytes)?;
        }
        Ok(response)
    };
    answered.boxed()
}
