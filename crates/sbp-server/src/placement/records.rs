//! What is stored about a stream and about a range.

use std::sync::Arc;

use sbp_types::{Epoch, Offset, RangeKey, ServerId, StreamId, TimestampMs};
use smallvec::SmallVec;

use super::settings::Settings;

/// A stream that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) id: StreamId,
    /// Unique among the streams that exist; `None` when it was created without one.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) settings: Settings,
    pub(crate) created_at: TimestampMs,
}

impl StreamRecord {
    pub(crate) fn facts(&self) -> crate::range::StreamFacts {
        crate::range::StreamFacts {
            fingerprints: self.fingerprints(),
            retention_period_ms: self.settings.retention_period_ms,
            retention_bytes: self.settings.retention_bytes,
        }
    }
    /// What a batch of typed columns may say it was written with; nothing for an opaque stream.
    pub(crate) fn fingerprints(&self) -> SmallVec<[u64; 1]> {
        self.settings.schema.iter().map(|schema| schema.fingerprint).collect()
    }
}

/// A stream's columns.
#[derive(Clone, Debug)]
pub(crate) struct SchemaRecord {
    /// The Arrow IPC schema message, as it was given.
    pub(crate) ipc: Vec<u8>,
    /// The form that schemas are compared by.
    pub(crate) canonical: Vec<u8>,
    /// What a batch of typed columns says it was written with.
    pub(crate) fingerprint: u64,
}

impl PartialEq for SchemaRecord {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for SchemaRecord {}

/// A range of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// Its first offset.
    pub(crate) start_offset: Offset,
    /// One past its last offset; `None` while it is open.
    pub(crate) end_offset: Option<Offset>,
    /// The servers that hold it, the primary first.
    pub(crate) servers: Vec<ServerId>,
    pub(crate) replica_count: i8,
    pub(crate) ack_count: i8,
}
