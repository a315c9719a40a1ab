//! The calls of the plugin library beside those of the provider: the output of the process, and its end.

use std::sync::Arc;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::output::{Lines, Output};

/// An empty message.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Empty {}

/// A part of the output.
#[derive(Clone, PartialEq, prost::Message)]
struct StdioData {
    #[prost(int32, tag = "1")]
    channel: i32,
    #[prost(bytes = "bytes", tag = "2")]
    data: bytes::Bytes,
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(grpc)
}

/// Asks the process to exit, which it often does before it answers.
pub(super) async fn shut_down(channel: Channel) {
    let Ok(mut grpc) = ready(channel).await else { return };
    let path = PathAndQuery::from_static("/plugin.GRPCController/Shutdown");
    let answer = grpc.unary::<Empty, Empty, _>(Request::new(Empty {}), path, ProstCodec::default()).await;
    if let Err(status) = answer {
        tracing::debug!(%status, "a provider ended before it answered the request to end");
    }
}

/// Reads the output that the provider's own code prints, until the process ends.
pub(super) async fn drain_output(channel: Channel, output: Arc<Output>) {
    let path = PathAndQuery::from_static("/plugin.GRPCStdio/StreamStdio");
    let Ok(mut grpc) = ready(channel).await else { return };
    let request = Request::new(Empty {});
    let answer = grpc.server_streaming::<Empty, StdioData, _>(request, path, ProstCodec::default()).await;
    let Ok(answer) = answer else { return };
    let mut stream = answer.into_inner();
    // Standard output is channel 1 and standard error channel 2.
    let mut lines: [Lines; 2] = Default::default();
    while let Ok(Some(part)) = stream.message().await {
        lines[usize::from(part.channel == 2)].feed(&part.data, &output);
    }
    for lines in lines {
        lines.finish(&output);
    }
}
