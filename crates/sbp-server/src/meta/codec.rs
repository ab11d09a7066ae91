//! The encoding of stored metadata records.
//!
//! Integers are big-endian; text and bytes have a `u32` length before them; an optional value has a byte 0 or 1 before
//! it. The first byte of a record is its version. A newer version of the software appends fields under a new version
//! number and reads the older ones; an unknown version is refused, never guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sbp_messages::Stream;
use sbp_types::{Epoch, Offset, Position, RangeKey, ServerId, StreamId, StreamIdentity, TimestampMs};

use crate::placement::{RangeRecord, SchemaRecord, ServerRecord, Settings, StreamRecord};
use crate::range::{CopyRecord, HeldRange, ReplicaSet};

/// The version of range records, of held ranges that are on one server alone, and of stream records before identities.
const FIRST: u8 = 1;
/// The version of held ranges that end with the servers that hold them.
const WITH_REPLICAS: u8 = 2;
/// The version of ranges with copies that end with where the range began when it was opened.
const WITH_OPENED: u8 = 3;
/// The version of held ranges that end with from where on another server had something else: an older version of the software would
/// let the copy count.
const WITH_DISPUTE: u8 = 4;
/// The version of range records that end with the servers that may lack some of the range.
const WITH_INCOMPLETE: u8 = 4;
/// The version of range records that end with those, with the servers that were let go of, and with those whose copies say nothing of
/// the writers: an older version of the software would not know that the former remove what they have, and have it copied to them
/// again meanwhile, nor that the latter may open no range.
const WITH_LET_GO: u8 = 5;
/// The version of the records of range servers that are to be emptied: an older version of the software would place ranges
/// on them.
const DRAINING: u8 = 2;
/// The version of records of range servers that say whether they are to be emptied, and end with how often they were started.
const WITH_STARTS: u8 = 3;
/// The version of stream records that end with an identity.
const WITH_IDENTITY: u8 = 2;
/// The version of stream records that end with an identity and with who made the stream.
const WITH_OWNER: u8 = 3;

/// The value of a stream's record; its id is the key.
pub(crate) fn encode_stream(stream: &StreamRecord) -> Vec<u8> {
    let settings = &stream.settings;
    let mut out = Writer::new(if stream.owner.is_some() {
        WITH_OWNER
    } else {
        WITH_IDENTITY
    });
    out.option(stream.name.as_deref(), |out, name| out.bytes(name.as_bytes()));
    out.i64(stream.created_at.0);
    out.i8(settings.replica_count);
    out.i8(settings.ack_count);
    out.i64(settings.retention_period_ms);
    out.i64(settings.retention_bytes.unwrap_or(Stream::UNBOUNDED));
    out.option(settings.schema.as_deref(), |out, schema| {
        out.bytes(&schema.ipc);
        out.bytes(&schema.canonical);
        out.i64(schema.fingerprint.cast_signed());
    });
    out.count(settings.properties.len());
    for (key, value) in &settings.properties {
        out.bytes(key.as_bytes());
        out.bytes(value.as_bytes());
    }
    out.option(stream.identity, |out, identity| out.0.extend_from_slice(&identity.0));
    if let Some(owner) = &stream.owner {
        out.bytes(owner.as_bytes());
    }
    out.0
}

/// Reads what [`encode_stream`] wrote.
pub(crate) fn decode_stream(id: StreamId, bytes: &[u8]) -> Option<StreamRecord> {
    let (version, mut from) = Reader::versioned(bytes)?;
    let name = from.option(Reader::text)?.map(Arc::from);
    let created_at = TimestampMs(from.i64()?);
    let replica_count = from.i8()?;
    let ack_count = from.i8()?;
    let retention_period_ms = from.i64()?;
    let retention_bytes = from.i64()?;
    let schema = from.option(|from| {
        let ipc = from.bytes()?.to_vec();
        let canonical = from.bytes()?.to_vec();
        Some(Arc::new(SchemaRecord {
            ipc,
            canonical,
            fingerprint: from.i64()?.cast_unsigned(),
        }))
    })?;
    let mut properties = BTreeMap::new();
    for _property in 0..from.count()? {
        properties.insert(from.text()?, from.text()?);
    }
    let identity = match version {
        FIRST => None,
        WITH_IDENTITY | WITH_OWNER => from.option(Reader::array)?.map(StreamIdentity),
        _ => return None,
    };
    let owner = match version {
        WITH_OWNER => Some(Arc::from(from.text()?)),
        _ => None,
    };
    let settings = Settings {
        replica_count,
        ack_count,
        retention_period_ms,
        retention_bytes: Some(retention_bytes).filter(|bytes| *bytes > 0),
        schema,
        properties,
    };
    from.end(StreamRecord {
        id,
        name,
        settings,
        created_at,
        identity,
        owner,
    })
}

/// The value of a range's record; stream and index are the key.
pub(crate) fn encode_range(range: &RangeRecord) -> Vec<u8> {
    let version = match (range.end_marks, range.opened_offset == range.start_offset) {
        _ if !range.let_go.is_empty() || !range.unknowing.is_empty() => WITH_LET_GO,
        _ if !range.incomplete.is_empty() => WITH_INCOMPLETE,
        (_, false) => WITH_OPENED,
        (0, true) => FIRST,
        (_, true) => WITH_REPLICAS,
    };
    let mut out = Writer::new(version);
    out.i64(range.epoch.0);
    out.i64(range.start_offset.0);
    out.option(range.end_offset, |out, end| out.i64(end.0));
    out.i8(range.replica_count);
    out.i8(range.ack_count);
    out.servers(&range.servers);
    if version >= WITH_REPLICAS {
        out.i64(range.end_marks.into());
    }
    if version >= WITH_OPENED {
        out.i64(range.opened_offset.0);
    }
    if version >= WITH_INCOMPLETE {
        out.servers(&range.incomplete);
    }
    if version >= WITH_LET_GO {
        out.servers(&range.let_go);
        out.servers(&range.unknowing);
    }
    out.0
}

/// Reads what [`encode_range`] wrote.
pub(crate) fn decode_range(key: RangeKey, bytes: &[u8]) -> Option<RangeRecord> {
    let (version, mut from) = Reader::versioned(bytes)?;
    let epoch = Epoch(from.i64()?);
    let start_offset = Offset(from.i64()?);
    let end_offset = from.option(Reader::i64)?.map(Offset);
    let replica_count = from.i8()?;
    let ack_count = from.i8()?;
    let servers = from.servers()?;
    let end_marks = match version {
        FIRST => 0,
        WITH_REPLICAS..=WITH_LET_GO => from.marks()?,
        _ => return None,
    };
    let opened_offset = match version {
        WITH_OPENED..=WITH_LET_GO => Offset(from.i64()?),
        _ => start_offset,
    };
    let incomplete = match version {
        WITH_INCOMPLETE | WITH_LET_GO => from.servers()?,
        _ => Vec::new(),
    };
    let (let_go, unknowing) = match version {
        WITH_LET_GO => (from.servers()?, from.servers()?),
        _ => (Vec::new(), Vec::new()),
    };
    from.end(RangeRecord {
        key,
        epoch,
        start_offset,
        opened_offset,
        end_offset,
        end_marks,
        servers,
        incomplete,
        let_go,
        unknowing,
        replica_count,
        ack_count,
    })
}

/// The value of a held range's record; stream and index are the key.
pub(crate) fn encode_held(held: &HeldRange) -> Vec<u8> {
    let set = &held.set;
    let version = match (set.is_alone(), held.copy.opened, held.copy.writers_parts) {
        (true, ..) => FIRST,
        _ if held.copy.disputed.is_some() => WITH_DISPUTE,
        (false, None, 0) => WITH_REPLICAS,
        (false, ..) => WITH_OPENED,
    };
    let mut out = Writer::new(version);
    out.i64(held.epoch.0);
    out.i64(held.start.0);
    out.option(held.end, |out, end| out.i64(end.0));
    if !set.is_alone() {
        out.i8(i8::try_from(set.acks()).unwrap_or(i8::MAX));
        out.servers(set.servers());
        out.i64(held.copy.end_marks.into());
        out.option(held.copy.fenced_at, Writer::position);
    }
    if version >= WITH_OPENED {
        out.option(held.copy.opened, |out, opened| out.i64(opened.0));
        out.i64(held.copy.writers_parts.into());
    }
    if version >= WITH_DISPUTE {
        out.option(held.copy.disputed, Writer::position);
    }
    out.0
}

/// Reads what [`encode_held`] wrote.
pub(crate) fn decode_held(key: RangeKey, bytes: &[u8]) -> Option<HeldRange> {
    let (version, mut from) = Reader::versioned(bytes)?;
    let epoch = Epoch(from.i64()?);
    let start = Offset(from.i64()?);
    let end = from.option(Reader::i64)?.map(Offset);
    let (set, copy) = match version {
        FIRST => (ReplicaSet::alone(), CopyRecord::default()),
        WITH_REPLICAS | WITH_OPENED | WITH_DISPUTE => {
            let acks = from.i8()?;
            let set = ReplicaSet::new(from.servers()?, Some(acks));
            let end_marks = from.marks()?;
            let fenced_at = from.option(Reader::position)?;
            let (opened, writers_parts) = match version {
                WITH_OPENED | WITH_DISPUTE => (from.option(Reader::i64)?.map(Offset), from.marks()?),
                _ => (None, 0),
            };
            let disputed = match version {
                WITH_DISPUTE => from.option(Reader::position)?,
                _ => None,
            };
            let copy = CopyRecord {
                end_marks,
                fenced_at,
                opened,
                writers_parts,
                disputed,
            };
            (set, copy)
        }
        _ => return None,
    };
    from.end(HeldRange {
        key,
        epoch,
        start,
        end,
        set,
        copy,
    })
}

/// The value of a range server's record, where it has one of its own; its id is the key.
pub(crate) fn encode_server(server: &ServerRecord) -> Vec<u8> {
    let version = match (server.starts, server.draining) {
        (1.., _) => WITH_STARTS,
        (0, true) => DRAINING,
        (0, false) => FIRST,
    };
    let mut out = Writer::new(version);
    out.bytes(server.address.as_bytes());
    if version == WITH_STARTS {
        out.i8(server.draining.into());
        out.i64(server.starts.cast_signed());
    }
    out.0
}

/// Reads what [`encode_server`] wrote.
pub(crate) fn decode_server(id: ServerId, bytes: &[u8]) -> Option<ServerRecord> {
    let (version, mut from) = Reader::versioned(bytes)?;
    let address = from.text()?;
    let (draining, starts) = match version {
        FIRST => (false, 0),
        DRAINING => (true, 0),
        WITH_STARTS => (from.i8()? != 0, from.i64()?.cast_unsigned()),
        _ => return None,
    };
    from.end(ServerRecord {
        id,
        address,
        draining,
        starts,
    })
}

/// The value of the servers that may still have something of a deleted stream, whose id is the key.
pub(crate) fn encode_servers(servers: &BTreeSet<ServerId>) -> Vec<u8> {
    let mut out = Writer::new(FIRST);
    out.servers(&servers.iter().copied().collect::<Vec<_>>());
    out.0
}

/// Reads what [`encode_servers`] wrote.
pub(crate) fn decode_servers(bytes: &[u8]) -> Option<BTreeSet<ServerId>> {
    let (version, mut from) = Reader::versioned(bytes)?;
    let servers = from.servers()?;
    from.end((version == FIRST).then(|| servers.into_iter().collect()))
        .flatten()
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(version: u8) -> Self {
        Self(vec![version])
    }

    fn i8(&mut self, value: i8) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn position(&mut self, at: Position) {
        self.i64(at.offset.0);
        self.i64(at.marks.into());
    }

    fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("what came in one frame has fewer than 2^32 parts");
        self.0.extend_from_slice(&count.to_be_bytes());
    }

    fn servers(&mut self, servers: &[ServerId]) {
        self.count(servers.len());
        for server in servers {
            self.i64(server.0.into());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn option<V>(&mut self, value: Option<V>, write: impl FnOnce(&mut Self, V)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a record's version and returns it with the rest.
    fn versioned(bytes: &'a [u8]) -> Option<(u8, Self)> {
        let (&version, rest) = bytes.split_first()?;
        Some((version, Self(rest)))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn count(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.count()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn marks(&mut self) -> Option<u32> {
        u32::try_from(self.i64()?).ok()
    }

    fn position(&mut self) -> Option<Position> {
        let offset = Offset(self.i64()?);
        let marks = self.marks()?;
        Some(Position { offset, marks })
    }

    fn servers(&mut self) -> Option<Vec<ServerId>> {
        let mut servers = Vec::new();
        for _server in 0..self.count()? {
            servers.push(ServerId(i32::try_from(self.i64()?).ok()?));
        }
        Some(servers)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn option<V>(&mut self, read: impl FnOnce(&mut Self) -> Option<V>) -> Option<Option<V>> {
        match self.array()? {
            [0] => Some(None),
            [1] => read(self).map(Some),
            _ => None,
        }
    }

    /// Returns `value` if all bytes were read.
    fn end<V>(self, value: V) -> Option<V> {
        self.0.is_empty().then_some(value)
    }
}
