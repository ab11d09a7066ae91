//! The stored records of streams, ranges and range servers.

use std::sync::Arc;

use sbp_types::{Epoch, Offset, Position, RangeIndex, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::life::Life;
use super::schema::SchemaRecord;
use super::settings::Settings;
use crate::range::{CopyRecord, HeldRange, ReplicaSet, StreamFacts};

/// A stream that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) id: StreamId,
    /// Unique among the streams that exist; `None` when it was created without one.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) settings: Settings,
    pub(crate) created_at: TimestampMs,
    /// The identity, drawn when the stream was created or, for an older stream, at the first start of a version with
    /// identities. `None` if the disk had no room to store it then, or in a range server's copy of the record.
    pub(crate) identity: Option<StreamIdentity>,
    /// The name in the file of names of whoever made it, if the server knew that; not in a range server's copy.
    pub(crate) owner: Option<Arc<str>>,
}

impl StreamRecord {
    /// The settings that range servers need to know.
    pub(crate) fn facts(&self) -> StreamFacts {
        let schema = self.settings.schema.as_deref();
        StreamFacts {
            name: self.name.clone(),
            fingerprints: schema.map(SchemaRecord::fingerprints).unwrap_or_default(),
            retention_period_ms: self.settings.retention_period_ms,
            retention_bytes: self.settings.retention_bytes,
            replicas: self.settings.replica_count,
        }
    }
}

/// A range of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// The first offset that is kept; a trim raises it.
    pub(crate) start_offset: Offset,
    /// The first offset that it had when it was opened.
    pub(crate) opened_offset: Offset,
    /// One past its last offset; `None` while it is open.
    pub(crate) end_offset: Option<Offset>,
    /// How many entries without offset belong to it at its end.
    pub(crate) end_marks: u32,
    /// The servers that hold it, the primary first.
    pub(crate) servers: Vec<ServerId>,
    /// Those of them that may lack some of it; of an open range none is listed.
    pub(crate) incomplete: Vec<ServerId>,
    /// The servers whose copies are done without, and that have not said yet that they have nothing of it any more. None of them
    /// is one of `servers`.
    pub(crate) let_go: Vec<ServerId>,
    /// Those of them whose copies say nothing of the writers at its end, however whole they are: they were made of what one server
    /// alone had, or of what was trimmed.
    pub(crate) unknowing: Vec<ServerId>,
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

    /// Whether it is on fewer servers than its stream was to have replicas when it was opened.
    pub(crate) fn lacks_replicas(&self) -> bool {
        usize::try_from(self.replica_count).is_ok_and(|wanted| self.servers.len() < wanted)
    }

    /// The servers that have all of it, if it is sealed.
    pub(crate) fn complete(&self) -> impl Iterator<Item = ServerId> {
        let all = self.servers.iter().copied();
        all.filter(|server| !self.incomplete.contains(server))
    }

    /// The servers that have all of it, if it is sealed, and know the writers at its end.
    pub(super) fn knowing(&self) -> impl Iterator<Item = ServerId> {
        self.complete().filter(|server| !self.unknowing.contains(server))
    }

    /// Whether one server alone has it and has always had it, as far as the record shows: then that one went on with the writers as
    /// it knew them, and a copy of the range says nothing of them.
    pub(super) fn is_on_one(&self) -> bool {
        self.servers.len() == 1 && self.ack_count == 1
    }

    /// Whether its server needed nothing to begin it, or has begun it, as far as its end shows: the state of the writers, if it has
    /// entries, is in it.
    pub(super) fn was_begun(&self) -> bool {
        let has_entries = self.end().is_some_and(|end| end != Position::start(self.opened_offset));
        self.key.range == RangeIndex(0) || self.replica_count == 1 || has_entries
    }

    /// Where it ends, if it is sealed.
    pub(crate) fn end(&self) -> Option<Position> {
        let marks = self.end_marks;
        self.end_offset.map(|offset| Position { offset, marks })
    }

    /// The range as a range server holds it.
    pub(crate) fn held(&self) -> HeldRange {
        HeldRange {
            key: self.key,
            epoch: self.epoch,
            start: self.start_offset,
            end: self.end_offset,
            set: ReplicaSet::new(self.servers.iter().copied(), Some(self.ack_count)),
            copy: CopyRecord {
                end_marks: self.end_marks,
                opened: (self.opened_offset < self.start_offset).then_some(self.opened_offset),
                ..CopyRecord::default()
            },
        }
    }
}

/// A range server and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerRecord {
    pub(crate) id: ServerId,
    /// `host:port`, as the server reported it.
    pub(crate) address: String,
    /// Whether it is to be emptied.
    pub(crate) draining: bool,
    /// How often its data directory had been started when it was there; 0: that is not known.
    pub(crate) starts: u64,
}

impl ServerRecord {
    /// A server as it reports itself: in use.
    pub(crate) fn new(id: ServerId, address: impl Into<String>) -> Self {
        Self {
            id,
            address: address.into(),
            draining: false,
            starts: 0,
        }
    }

    /// What it said of itself.
    pub(crate) fn life(&self) -> Life {
        Life {
            starts: self.starts,
            address: self.address.clone(),
        }
    }
}
