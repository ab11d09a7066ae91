//! What is stored about a stream, a range and a range server.

use std::sync::Arc;

use sbp_types::{Epoch, Offset, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::schema::SchemaRecord;
use super::settings::Settings;
use crate::range::{HeldRange, StreamFacts};

/// A stream that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) id: StreamId,
    /// Unique among the streams that exist; `None` when it was created without one.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) settings: Settings,
    pub(crate) created_at: TimestampMs,
    /// What it was given when it was made, or at the first start of a version that knows identities. `None`: there was no
    /// room on the disk to write it down, or this is a range server's memory of the stream.
    pub(crate) identity: Option<StreamIdentity>,
}

impl StreamRecord {
    /// What the range servers that hold the stream need to know of it.
    pub(crate) fn facts(&self) -> StreamFacts {
        let schema = self.settings.schema.as_deref();
        StreamFacts {
            fingerprints: schema.map(SchemaRecord::fingerprints).unwrap_or_default(),
            retention_period_ms: self.settings.retention_period_ms,
            retention_bytes: self.settings.retention_bytes,
        }
    }
}

/// A range of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// Its first offset that is kept: a trim raises it.
    pub(crate) start_offset: Offset,
    /// One past its last offset; `None` while it is open.
    pub(crate) end_offset: Option<Offset>,
    /// The servers that hold it, the primary first.
    pub(crate) servers: Vec<ServerId>,
    pub(crate) replica_count: i8,
    pub(crate) ack_count: i8,
}

impl RangeRecord {
    /// The server that takes its appends; `None` once it is sealed.
    pub(crate) fn appends_go_to(&self) -> Option<ServerId> {
        match self.end_offset {
            None => self.servers.first().copied(),
            Some(_) => None,
        }
    }

    /// The range as a server that holds it remembers it.
    pub(crate) fn held(&self) -> HeldRange {
        HeldRange {
            key: self.key,
            epoch: self.epoch,
            start: self.start_offset,
            end: self.end_offset,
        }
    }
}

/// A range server that can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerRecord {
    pub(crate) id: ServerId,
    /// `host:port`, as it said itself.
    pub(crate) address: String,
}
