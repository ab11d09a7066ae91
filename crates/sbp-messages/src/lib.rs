//! The typed messages of the Streaming Batch Protocol: what a frame's extended header says.
//!
//! Each table of the wire schema is a plain Rust struct here, with the schema's names. [`Message`] turns one into bytes
//! and back; [`Encoder`] is what encoding needs. Decoding takes a peer's bytes: it verifies them before it looks, never
//! panics, and allocates in proportion to the header. What a request may say is judged by its `validate` function.
//! [`ErrorCode::rule`] is the one table of what a peer can answer: retry, side effects, what to do.
//!
//! Each is declared in a `tables!` block, from which the macro makes the struct and its encoding in [`V01`], whose bytes
//! `schemas/sbp.fbs` defines. Another dialect is one more module with a [`Profile`] for the same structs. No type of the
//! FlatBuffers library is public.

mod append;
mod decode_error;
mod encoder;
mod enumerations;
mod error_code;
mod error_rule;
pub mod features;
mod fetch;
mod go_away;
mod heartbeat;
mod message;
mod placement;
mod profile;
mod range_changes;
mod ranges;
mod status;
mod stream_changes;
mod streams;
mod system_error;
mod templates;
mod token;
mod v01;
mod validate;

pub use append::{AppendInfo, AppendRequest, AppendResponse, AppendResult};
pub use decode_error::{DecodeError, Refusal};
pub use encoder::Encoder;
pub use enumerations::{ClientRole, ReplicaEntry, ReplicaState, SealKind, ServerState};
pub use error_code::ErrorCode;
pub use error_rule::{ErrorRule, Retry};
pub use fetch::{FetchInfo, FetchRequest, FetchResponse, FetchResult};
pub use go_away::GoAway;
pub use heartbeat::{Feature, HeartbeatRequest, HeartbeatResponse};
pub use message::{Message, Role};
pub use placement::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, IdAllocationRequest,
    IdAllocationResponse, MetadataStoreMember, PlacementDriverCluster, PlacementDriverNode, RangeServerStatus,
    ReportMetricsRequest, ReportMetricsResponse, StuckRange,
};
pub use profile::{Profile, V01};
pub use range_changes::{
    CreateRangeRequest, CreateRangeResponse, SealRangesRequest, SealRangesResponse, SealRangesResult, StreamRanges,
    SyncRangesRequest, SyncRangesResponse, SyncRangesResult,
};
pub use ranges::{
    DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, ListRangesRequest, ListRangesResponse,
    ListRangesResult, Range, RangeCriteria, RangeId, RangeServer, ReplicaServer,
};
pub use status::Status;
pub use stream_changes::{
    DeleteStreamResult, DeleteStreamsRequest, DeleteStreamsResponse, TrimStreamResult, TrimStreamsRequest,
    TrimStreamsResponse, TrimmedStream, UpdateStreamResult, UpdateStreamsRequest, UpdateStreamsResponse,
};
pub use streams::{
    CreateStreamResult, CreateStreamsRequest, CreateStreamsResponse, DescribeStreamResult, DescribeStreamsRequest,
    DescribeStreamsResponse, KeyValue, Stream,
};
pub use system_error::SystemErrorResponse;
pub use token::Token;
pub use validate::{AddressFault, MAX_ENTRIES, check_address, is_valid_stream_name, requested_timeout, throttle_time};
