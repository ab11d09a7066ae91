//! Quotas: how much a name may do.

use serde::{Deserialize, Serialize};

/// The limits of one name, over all its connections to this server. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Bytes of records appended per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in_per_second: Option<u64>,
    /// Bytes of records read per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out_per_second: Option<u64>,
    /// Requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Streams that the name has made and that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}

impl Quota {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}
