//! Converts messages of the placement driver into a range server's records, and back.

use std::sync::Arc;

use sbp_messages::{Range, ReplicaServer, Stream};
use sbp_types::{Epoch, Offset, ServerId};

use crate::placement::{SchemaRecord, Settings, StreamRecord};
use crate::range::HeldRange;

/// The record of a range in a message.
pub(crate) fn held_range(range: &Range) -> HeldRange {
    HeldRange {
        key: sbp_types::RangeKey {
            stream: range.stream_id,
            range: range.range_index,
        },
        epoch: range.epoch.unwrap_or(Epoch(-1)),
        start: range.start_offset,
        end: range.end(),
    }
}

/// The message of a held range; `next` is its confirmed end.
pub(crate) fn wire_range(held: &HeldRange, next: Offset, server: sbp_messages::RangeServer) -> Range {
    Range {
        stream_id: held.key.stream,
        range_index: held.key.range,
        start_offset: held.start,
        end_offset: held.end,
        next_offset: held.end.unwrap_or(next),
        servers: vec![ReplicaServer {
            range_server: Some(server),
            is_primary: true,
            ..ReplicaServer::default()
        }],
        epoch: Some(held.epoch),
        ..Range::default()
    }
}

/// Whether a range is on a server.
pub(crate) fn is_on(range: &Range, server: ServerId) -> bool {
    let ids = range.servers.iter().filter_map(|replica| replica.range_server.as_ref());
    ids.into_iter().any(|replica| replica.server_id == server)
}

/// A range server's record of a stream, without what only users need (properties, identity). The error says what
/// cannot be read.
pub(crate) fn stream_record(stream: &Stream) -> Result<StreamRecord, String> {
    let schema = stream.schema.as_ref().map(SchemaRecord::read).transpose();
    let schema = schema.map_err(|error| format!("the columns of stream {}: {error}", stream.stream_id))?;
    Ok(StreamRecord {
        id: stream.stream_id,
        name: (!stream.name.is_empty()).then(|| Arc::from(stream.name.as_str())),
        settings: Settings {
            replica_count: stream.replica_nums,
            ack_count: stream.ack_count,
            retention_period_ms: stream.retention_period_ms,
            retention_bytes: stream.kept_bytes(),
            schema: schema.map(Arc::new),
            properties: Default::default(),
        },
        created_at: stream.created_at_ms,
        identity: None,
        owner: None,
    })
}
