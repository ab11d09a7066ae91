//! Converts messages of the placement driver into a range server's records, and back.

use std::sync::Arc;

use sbp_messages::{Range, ReplicaServer, ReplicaState, Stream, check_address};
use sbp_types::{Epoch, Offset, ServerId};

use crate::placement::{SchemaRecord, ServerRecord, Settings, StreamRecord};
use crate::range::{AddressBook, CopyRecord, HeldRange, ReplicaSet};

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
        set: replica_set(range),
        copy: CopyRecord {
            end_marks: range.end_marks,
            fenced_at: None,
        },
    }
}

/// The servers that have the range, the primary first. One that is being copied to does not have it yet.
fn replica_set(range: &Range) -> ReplicaSet {
    let complete = |replica: &&ReplicaServer| replica.state != ReplicaState::COPYING;
    let of = |is_primary| {
        let replicas = range.servers.iter().filter(complete);
        let wanted = replicas.filter(move |replica| replica.is_primary == is_primary);
        wanted.filter_map(|replica| replica.range_server.as_ref())
    };
    let servers = of(true).chain(of(false)).map(|server| server.server_id);
    ReplicaSet::new(servers, range.ack_count)
}

/// Where the servers of a range are, as far as it is told and can be dialled.
pub(crate) fn located(range: &Range) -> impl Iterator<Item = ServerRecord> {
    let servers = range.servers.iter().filter_map(|replica| replica.range_server.as_ref());
    servers.filter_map(server_record)
}

/// Where a server is, if that can be dialled.
pub(crate) fn server_record(server: &sbp_messages::RangeServer) -> Option<ServerRecord> {
    let sound = server.server_id.0 >= 1 && check_address(&server.advertise_addr).is_ok();
    sound.then(|| ServerRecord {
        id: server.server_id,
        address: server.advertise_addr.clone(),
    })
}

/// The message of a range that `me` holds; `next` is its confirmed end.
pub(crate) fn wire_range(
    held: &HeldRange,
    next: Offset,
    me: sbp_messages::RangeServer,
    addresses: &AddressBook,
) -> Range {
    let replica = |(place, server): (usize, &ServerId)| ReplicaServer {
        range_server: Some(sbp_messages::RangeServer {
            server_id: *server,
            advertise_addr: match addresses.address(*server) {
                Some(address) => address.to_string(),
                None if *server == me.server_id => me.advertise_addr.clone(),
                None => String::new(),
            },
            ..sbp_messages::RangeServer::default()
        }),
        is_primary: place == 0,
        ..ReplicaServer::default()
    };
    let mut servers: Vec<_> = held.set.servers().iter().enumerate().map(replica).collect();
    let acks = i8::try_from(held.set.acks()).ok().filter(|_| !held.set.is_alone());
    if held.set.is_alone() {
        servers.push(ReplicaServer {
            range_server: Some(me),
            is_primary: true,
            ..ReplicaServer::default()
        });
    }
    Range {
        stream_id: held.key.stream,
        range_index: held.key.range,
        start_offset: held.start,
        end_offset: held.end,
        next_offset: held.end.unwrap_or(next),
        servers,
        epoch: Some(held.epoch),
        ack_count: acks,
        end_marks: held.copy.end_marks,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> sbp_messages::RangeServer {
        sbp_messages::RangeServer {
            server_id: ServerId(2),
            advertise_addr: "two:1".to_owned(),
            ..sbp_messages::RangeServer::default()
        }
    }

    fn held(servers: &[i32]) -> HeldRange {
        HeldRange {
            key: sbp_types::RangeKey {
                stream: sbp_types::StreamId(7),
                range: sbp_types::RangeIndex(1),
            },
            epoch: Epoch(1),
            start: Offset(5),
            end: None,
            set: ReplicaSet::new(servers.iter().copied().map(ServerId), Some(3)),
            copy: CopyRecord::default(),
        }
    }

    #[test]
    fn a_range_is_told_with_its_servers_and_where_they_are() {
        let addresses = AddressBook::default();
        addresses.note(ServerId(1), "one:1");
        let held = held(&[1, 2, 3]);
        let mut range = wire_range(&held, Offset(9), me(), &addresses);
        assert_eq!(held_range(&range), held);
        let primaries: Vec<_> = range.servers.iter().map(|replica| replica.is_primary).collect();
        assert_eq!(primaries, [true, false, false]);
        let known: Vec<_> = located(&range).map(|record| (record.id.0, record.address)).collect();
        assert_eq!(
            known,
            [(1, "one:1".to_owned()), (2, "two:1".to_owned())],
            "that of 3 is not known"
        );
        // The primary counts, wherever it stands, and who is being copied to has nothing yet.
        range.servers.rotate_left(1);
        assert_eq!(held_range(&range).set.servers(), [1, 2, 3].map(ServerId));
        range.servers[1].state = ReplicaState::COPYING;
        assert_eq!(held_range(&range).set.servers(), [1, 2].map(ServerId));
        range.servers[0].range_server.as_mut().unwrap().advertise_addr = "0.0.0.0:1".to_owned();
        assert_eq!(located(&range).count(), 1, "an address that nobody has is not kept");
    }

    #[test]
    fn a_range_of_one_server_is_told_as_before_there_were_replicas() {
        let range = wire_range(&held(&[]), Offset(9), me(), &AddressBook::default());
        assert_eq!(range.servers.len(), 1);
        assert_eq!(
            (range.primary(), range.ack_count, range.replica_count),
            (Some(&me()), None, None)
        );
        assert!(held_range(&range).set.is_alone());
    }
}
