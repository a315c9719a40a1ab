//! The part of etcd's v3 API that the log uses, as messages and calls. Names and numbers are those of etcd's
//! `api/etcdserverpb/rpc.proto`; unused fields are left out.
//!
//! A `oneof` of etcd is a message of optional fields here, of which one is set. An enum is its number. The bytes are the same.

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::{Request, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

/// The comparison of `mod_revision`, in [`Compare::target`].
const MOD: i32 = 2;
/// The deletion of a key, in [`Event::kind`]; a put is 0.
const DELETE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The revision of the whole store when the request was carried out; 0 in a few errors.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision of the last change.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// How often it was changed since it was created; 0 in the event of a delete.
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// The id of the lease that it is attached to, or 0.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

impl Event {
    pub(super) fn is_delete(&self) -> bool {
        self.kind == DELETE
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The first key that is not in the range; empty for one key alone.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// 0 for no limit.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// 0 for now.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub delete_range: Option<DeleteRangeRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

/// Holds when a key has this `mod_revision`. The result is `EQUAL`, which is 0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// A key that does not exist has revision 0.
    #[prost(int64, optional, tag = "6")]
    pub mod_revision: Option<i64>,
}

/// All of `success` happens in one revision, or else `failure`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Drops what was overwritten before a revision.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// The response to a compaction, and to the end of a lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Acknowledgement {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
    #[prost(message, optional, tag = "3")]
    pub progress: Option<WatchProgressRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// The first revision whose events are wanted; 0 for whatever comes.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// Whether a response that is too long may come in pieces.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Above 0 when the watch was cancelled because its start is older than this.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Whether the next response continues with the events of this one.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// Ends a lease, and removes the keys that are attached to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The rest, in seconds; 0 when the lease has ended.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// In bytes, as the file is allocated.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
}

impl Compare {
    /// The last change of a key was at this revision; 0 for a key that is not there.
    pub(super) fn changed_at(key: Bytes, revision: i64) -> Self {
        Self { target: MOD, key, mod_revision: Some(revision) }
    }
}

impl RangeRequest {
    /// One key as of now.
    pub(super) fn key(key: Bytes) -> Self {
        Self { key, ..Self::default() }
    }

    /// One key as of now, without its value.
    pub(super) fn only_key(key: Bytes) -> Self {
        Self { key, keys_only: true, ..Self::default() }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> Self {
        Self { range: Some(range), ..Self::default() }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> Self {
        Self { put: Some(put), ..Self::default() }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(delete: DeleteRangeRequest) -> Self {
        Self { delete_range: Some(delete), ..Self::default() }
    }
}

impl TxnResponse {
    /// The first key-value pair that the `n`th operation, a range, found.
    pub(super) fn found(&self, n: usize) -> Option<&KeyValue> {
        self.responses.get(n)?.range.as_ref()?.kvs.first()
    }
}

/// Responses that say which revision they were made at.
pub(super) trait Headed {
    fn header(&self) -> Option<&ResponseHeader>;

    /// The revision, or 0 when there is no header.
    fn revision(&self) -> i64 {
        self.header().map_or(0, |header| header.revision)
    }
}

macro_rules! headed {
    ($($response:ty)*) => {
        $(impl Headed for $response {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

headed!(RangeResponse TxnResponse Acknowledgement WatchResponse LeaseGrantResponse LeaseKeepAliveResponse StatusResponse);

/// A request that has one response.
pub(super) trait Call: Clone + Send + Sync {
    type Response: Headed;

    fn call(self, channel: Channel) -> impl Future<Output = Result<Self::Response, Status>> + Send;
}

macro_rules! unary {
    ($($method:literal $request:ty => $response:ty;)*) => {
        $(impl Call for $request {
            type Response = $response;

            async fn call(self, channel: Channel) -> Result<$response, Status> {
                let method = PathAndQuery::from_static(concat!("/etcdserverpb.", $method));
                let answer = ready(channel).await?.unary(Request::new(self), method, ProstCodec::default()).await?;
                Ok(answer.into_inner())
            }
        })*
    };
}

unary! {
    "KV/Range" RangeRequest => RangeResponse;
    "KV/Txn" TxnRequest => TxnResponse;
    "KV/Compact" CompactionRequest => Acknowledgement;
    "Lease/LeaseGrant" LeaseGrantRequest => LeaseGrantResponse;
    "Lease/LeaseRevoke" LeaseRevokeRequest => Acknowledgement;
    "Maintenance/Status" StatusRequest => StatusResponse;
}

/// Renews a lease once, by a stream of one request.
impl Call for LeaseKeepAliveRequest {
    type Response = LeaseKeepAliveResponse;

    async fn call(self, channel: Channel) -> Result<LeaseKeepAliveResponse, Status> {
        let once = Request::new(tokio_stream::iter([self]));
        let mut responses: Streaming<LeaseKeepAliveResponse> =
            stream(channel, "/etcdserverpb.Lease/LeaseKeepAlive", once).await?;
        responses.message().await?.ok_or_else(|| Status::unavailable("the lease was not renewed"))
    }
}

/// Begins a watch by the first of these requests.
pub(super) async fn watch(
    channel: Channel,
    requests: Request<impl Stream<Item = WatchRequest> + Send + 'static>,
) -> Result<Streaming<WatchResponse>, Status> {
    stream(channel, "/etcdserverpb.Watch/Watch", requests).await
}

async fn stream<Q: Message + 'static, R: Message + Default + 'static>(
    channel: Channel,
    method: &'static str,
    requests: Request<impl Stream<Item = Q> + Send + 'static>,
) -> Result<Streaming<R>, Status> {
    let method = PathAndQuery::from_static(method);
    let answer = ready(channel).await?.streaming(requests, method, ProstCodec::default()).await?;
    Ok(answer.into_inner())
}

/// A client on a channel that takes a request.
async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    client.ready().await.map_err(|error| Status::unknown(format!("the channel is not ready: {error}")))?;
    Ok(client)
}
