//! The names of the features that a HEARTBEAT agrees on.
//!
//! Those without a number for a value have the value `1`, which nobody looks at. The five `max-` names carry the
//! server's limits as decimal numbers and are always told.

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
/// Streams are described with their identity: `Stream.identity`.
pub const IDENTITY: &str = "identity";
/// What an acknowledgement means: `fsync` or `none`.
pub const DURABILITY: &str = "durability";
/// The number of the server at the other end.
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

/// The value of a feature, if it is among those given. The first of that name counts.
#[must_use]
pub fn find<'a>(features: &'a [Feature], name: &str) -> Option<&'a str> {
    features
        .iter()
        .find(|feature| feature.name == name)
        .map(|feature| feature.value.as_str())
}

/// The value of a feature that is a decimal number; `None` as well when it is no such number.
#[must_use]
pub fn find_number(features: &[Feature], name: &str) -> Option<u64> {
    find(features, name)?.parse().ok()
}
