//! The names of the features that a HEARTBEAT agrees on.
//!
//! Features without a number have the value `1`, which is ignored. The five `max-` names have the server's limits as
//! decimal numbers and are always sent.

use crate::Feature;

/// Streams have names: `Stream.name`, `DescribeStreamsRequest.names`.
pub const NAMES: &str = "names";
/// `AppendInfo.expected_offset` is honoured.
pub const CONDITIONAL_APPEND: &str = "conditional-append";
/// Writers' sequences are honoured; the value is the number of batches remembered.
pub const IDEMPOTENCE: &str = "idempotence";
/// An empty batch with the flag `FENCE` makes its writer's epoch current.
pub const FENCE: &str = "fence";
/// `end_offset`, `start_timestamp_ms`, `max_bytes` and positions are honoured in FETCH.
pub const BOUNDED_FETCH: &str = "bounded-fetch";
/// A FETCH that waits can be ended: `FetchRequest.withdraw`.
pub const WITHDRAW: &str = "withdraw";
/// Streams are described with their identity: `Stream.identity`.
pub const IDENTITY: &str = "identity";
/// Range servers replicate ranges: entries of APPEND that are no client's, and what goes with them.
pub const REPLICATION: &str = "replication";
/// The cluster that the server belongs to; the value is the cluster's id.
pub const CLUSTER: &str = "cluster";
/// When appends are acknowledged: `fsync` or `none`.
pub const DURABILITY: &str = "durability";
/// The id of the server at the other end.
pub const SERVER_ID: &str = "server-id";
/// Calls in flight on one connection.
pub const MAX_CALLS: &str = "max-calls";
/// Bytes of requests on one connection that are read and not yet answered.
pub const MAX_BYTES: &str = "max-bytes";
/// FETCHes that may wait on one connection.
pub const MAX_WAITS: &str = "max-waits";
/// Entries of one request.
pub const MAX_ENTRIES: &str = "max-entries";
/// Bytes of a request's extended header.
pub const MAX_HEADER: &str = "max-header";

/// The value of the first feature with this name, if there is one.
#[must_use]
pub fn find<'a>(features: &'a [Feature], name: &str) -> Option<&'a str> {
    features
        .iter()
        .find(|feature| feature.name == name)
        .map(|feature| feature.value.as_str())
}

/// The value of a feature as a decimal number; `None` also if it is not a number.
#[must_use]
pub fn find_number(features: &[Feature], name: &str) -> Option<u64> {
    find(features, name)?.parse().ok()
}
