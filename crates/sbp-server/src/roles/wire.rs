//! Converts messages of the placement driver into a range server's records, and back.

use std::sync::Arc;

use sbp_messages::{Range, ReplicaServer, ReplicaState, SealRangesResult, Stream, check_address};
use sbp_replication::Vote;
use sbp_types::{Epoch, Offset, Position, ServerId};

use crate::placement::{SchemaRecord, ServerRecord, Settings, StreamRecord};
use crate::range::{AddressBook, CopyRecord, FencedEnd, HeldRange, ReplicaSet};

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
            opened: range.opened_offset.filter(|opened| *opened < range.start_offset),
            ..CopyRecord::default()
        },
    }
}

/// The servers that have the range, the primary first. One that something of an open range is written back to is no other
/// server of it; one that gets a sealed range belongs to those that have it.
fn replica_set(range: &Range) -> ReplicaSet {
    let is_sealed = range.end().is_some();
    let complete = |replica: &&ReplicaServer| is_sealed || replica.state != ReplicaState::COPYING;
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
    sound.then(|| ServerRecord::new(server.server_id, server.advertise_addr.clone()))
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
        opened_offset: held.copy.opened,
        ..Range::default()
    }
}

/// Where a range began when it was opened.
fn beginning(range: &Range) -> Position {
    Position::start(range.opened_offset.unwrap_or(range.start_offset))
}

/// What a fenced server answers of its copy of a range.
pub(crate) fn voted(fenced: FencedEnd, range: Range) -> SealRangesResult {
    let FencedEnd {
        vote,
        confirmed,
        damaged,
    } = fenced;
    let begins_at = Some(vote.begins_at).filter(|place| *place != beginning(&range));
    let whole_to = Some(vote.whole_to).filter(|place| *place != vote.end);
    SealRangesResult {
        stream_id: range.stream_id,
        range: Some(Range {
            end_offset: None,
            end_marks: 0,
            next_offset: vote.end.offset,
            next_marks: vote.end.marks,
            ..range
        }),
        confirmed_offset: Some(confirmed.offset),
        writers_parts: vote.writers_end.map_or(0, |end| end.marks),
        begins_offset: begins_at.map(|place| place.offset),
        begins_marks: begins_at.map_or(0, |place| place.marks),
        whole_offset: whole_to.map(|place| place.offset),
        whole_marks: whole_to.map_or(0, |place| place.marks),
        lost_offsets: damaged.into_iter().flat_map(|(from, to)| [from, to]).collect(),
        ..SealRangesResult::default()
    }
}

/// What [`voted`] said; `None` if it is no answer of a fenced server.
pub(crate) fn fenced_end(result: &SealRangesResult) -> Option<FencedEnd> {
    let range = result.range.as_ref().filter(|range| range.end().is_none())?;
    let place = |offset: Option<Offset>, marks| offset.map(|offset| Position { offset, marks });
    let (beginning, end) = (
        beginning(range),
        Position {
            offset: range.next_offset,
            marks: range.next_marks,
        },
    );
    let writers_end = Position {
        marks: result.writers_parts,
        ..beginning
    };
    Some(FencedEnd {
        vote: Vote {
            end,
            whole_to: place(result.whole_offset, result.whole_marks).unwrap_or(end),
            begins_at: place(result.begins_offset, result.begins_marks).unwrap_or(beginning),
            writers_end: Some(writers_end).filter(|end| *end > beginning),
        },
        confirmed: Position::start(result.confirmed_offset.unwrap_or(Offset::ZERO)),
        damaged: spans(&result.lost_offsets),
    })
}

/// From and to of what was said to be lost.
fn spans(offsets: &[Offset]) -> Vec<(Offset, Offset)> {
    let pairs = offsets.chunks_exact(2).filter_map(|pair| match pair {
        [from, to] => Some((*from, *to)),
        _ => None,
    });
    pairs
        .filter(|(from, to)| from < to)
        .take(FencedEnd::MOST_SPANS)
        .collect()
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
    fn a_vote_arrives_as_it_was_given() {
        let at = |offset, marks| Position {
            offset: Offset(offset),
            marks,
        };
        let trimmed = HeldRange {
            start: Offset(9),
            copy: CopyRecord {
                opened: Some(Offset(5)),
                ..CopyRecord::default()
            },
            ..held(&[1, 2, 3])
        };
        let whole = Vote {
            end: at(12, 1),
            whole_to: at(12, 1),
            begins_at: at(5, 0),
            writers_end: None,
        };
        let votes = [
            whole,
            Vote {
                writers_end: Some(at(5, 2)),
                ..whole
            },
            Vote {
                whole_to: at(10, 3),
                begins_at: at(9, 1),
                ..whole
            },
        ];
        for vote in votes {
            let told = FencedEnd {
                vote,
                confirmed: at(11, 0),
                damaged: vec![(Offset(10), Offset(11)), (Offset(11), Offset(12))],
            };
            let range = wire_range(&trimmed, Offset(9), me(), &AddressBook::default());
            assert_eq!(fenced_end(&voted(told.clone(), range)), Some(told));
        }
        assert_eq!(fenced_end(&SealRangesResult::default()), None);
    }

    #[test]
    fn where_a_range_began_and_ends_is_told_with_its_marks() {
        let ended = HeldRange {
            start: Offset(9),
            end: Some(Offset(9)),
            copy: CopyRecord {
                end_marks: 2,
                opened: Some(Offset(5)),
                ..CopyRecord::default()
            },
            ..held(&[1, 2, 3])
        };
        let range = wire_range(&ended, Offset(9), me(), &AddressBook::default());
        assert_eq!(held_range(&range), ended);
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
