//! The part of etcd's API that the log uses, from `proto/etcd.proto`, and short constructors.
#![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in the proto")]
#![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

use bytes::Bytes;

include!("generated/etcdserverpb.rs");

use compare::{CompareResult, CompareTarget, TargetUnion};
use request_op::Request;
use response_op::Response;

impl Compare {
    /// The last change of a key was at this revision; 0 for a key that is not there.
    pub(super) fn changed_at(key: Bytes, revision: i64) -> Self {
        Self {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key,
            target_union: Some(TargetUnion::ModRevision(revision)),
        }
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
        Self { request: Some(Request::RequestRange(range)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> Self {
        Self { request: Some(Request::RequestPut(put)) }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(delete: DeleteRangeRequest) -> Self {
        Self { request: Some(Request::RequestDeleteRange(delete)) }
    }
}

impl TxnResponse {
    /// The first key-value pair that the `n`th operation, a range, found.
    pub(super) fn found(&self, n: usize) -> Option<&KeyValue> {
        match self.responses.get(n)?.response.as_ref()? {
            Response::ResponseRange(range) => range.kvs.first(),
            Response::ResponsePut(_) | Response::ResponseDeleteRange(_) => None,
        }
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

headed!(RangeResponse TxnResponse CompactionResponse WatchResponse LeaseGrantResponse LeaseRevokeResponse
    LeaseKeepAliveResponse StatusResponse);
