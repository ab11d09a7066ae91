//! The messages of etcd's API as they travel, by the names and field numbers that its protocol gives them. Fields that are
//! never set or looked at are left out.

use prost::{Message, Oneof};

/// A message and the path of the operation that answers it.
pub(crate) trait Operation: Message + 'static {
    /// What is answered.
    type Answer: Message + Default + 'static;
    /// Where it is asked.
    const PATH: &'static str;
}

macro_rules! operations {
    ($($request:ident => $answer:ident at $path:literal),* $(,)?) => {
        $(impl Operation for $request {
            type Answer = $answer;
            const PATH: &'static str = $path;
        })*
    };
}

operations! {
    RangeRequest => RangeResponse at "/etcdserverpb.KV/Range",
    TxnRequest => TxnResponse at "/etcdserverpb.KV/Txn",
    CompactionRequest => CompactionResponse at "/etcdserverpb.KV/Compact",
    LeaseGrantRequest => LeaseGrantResponse at "/etcdserverpb.Lease/LeaseGrant",
    LeaseRevokeRequest => LeaseRevokeResponse at "/etcdserverpb.Lease/LeaseRevoke",
    // A stream in both directions, of which one message in each is used.
    LeaseKeepAliveRequest => LeaseKeepAliveResponse at "/etcdserverpb.Lease/LeaseKeepAlive",
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredKey {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: bytes::Bytes,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: bytes::Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<StoredKey>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: bytes::Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "AnyRequest", tags = "1, 2, 3")]
    pub(crate) request: Option<AnyRequest>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum AnyRequest {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    /// Those to the other requests say nothing that is used.
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

/// `Compare.CompareResult.EQUAL`.
pub(crate) const EQUAL: i32 = 0;
/// `Compare.CompareTarget.CREATE`.
pub(crate) const CREATE: i32 = 1;
/// `Compare.CompareTarget.VALUE`.
pub(crate) const VALUE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompareRequest {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) key: bytes::Bytes,
    #[prost(oneof = "Compared", tags = "5, 7")]
    pub(crate) compared: Option<Compared>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(bytes::Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<CompareRequest>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompactionResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// In seconds; 0: there is no such lease any more.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}
