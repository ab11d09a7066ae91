//! LIST_RANGES, and how answers show ranges.

use sbp_frame::CallId;
use sbp_messages::{
    ErrorCode, ListRangesRequest, ListRangesResponse, ListRangesResult, Range, RangeId, RangeServer, ReplicaServer,
    Status,
};
use sbp_session::Session;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId};

use super::fault::Fault;
use super::replier::Replier;
use crate::node::Node;
use crate::placement::{Criterion, ListedPage, PlacementState, RangeRecord, list_ranges};
use crate::refusal::Refusal;

/// Answers LIST_RANGES.
pub(super) fn handle_list(
    session: &mut Session,
    replier: &mut Replier,
    node: &Node,
    call: CallId,
    request: ListRangesRequest,
) -> Result<(), Fault> {
    let criteria: Vec<_> = request
        .range_criteria
        .iter()
        .map(|criteria| Criterion {
            stream: (criteria.stream_id != StreamId(-1)).then_some(criteria.stream_id),
            server: criteria.range_server.as_ref().map(|server| server.server_id),
        })
        .collect();
    let ListedPage { results, continuation } = node
        .placement()?
        .read(|state| list_ranges(state, &criteria, request.limit, &request.continuation))?;
    let list_responses = results
        .into_iter()
        .map(|listed| {
            let (ranges, status) = match listed.ranges {
                Ok(ranges) => (
                    ranges.iter().map(|range| wire_range(node, range)).collect(),
                    Status::success(),
                ),
                Err(refusal) => (Vec::new(), refusal.into()),
            };
            ListRangesResult {
                range_criteria: request.range_criteria.get(listed.criterion).cloned(),
                ranges,
                status,
            }
        })
        .collect();
    let response = ListRangesResponse {
        list_responses,
        continuation: continuation.into(),
        ..Default::default()
    };
    replier.finish(session, call, &response);
    Ok(())
}

pub(super) fn find_range(state: &PlacementState, asked: &RangeId) -> Result<RangeRecord, Refusal> {
    if let Some(fault) = asked.fault() {
        return Err(Refusal::new(fault.code, fault.message));
    }
    let stream = asked.stream_id;
    if state.stream(stream).is_none() {
        return Err(Refusal::no_stream(stream));
    }
    let range = if asked.range_index == RangeIndex::OPEN {
        state.last_range(stream)
    } else {
        state.range(RangeKey {
            stream,
            range: asked.range_index,
        })
    };
    let Some(range) = range else {
        let message = format!("stream {stream} has no range {}", asked.range_index);
        return Err(Refusal::new(ErrorCode::RANGE_NOT_FOUND, message));
    };
    if asked.epoch != Epoch::ANY && asked.epoch != range.epoch {
        let message = format!("range {} has epoch {}, not {}", range.key, range.epoch, asked.epoch);
        return Err(Refusal::new(ErrorCode::EXPIRED_RANGE_EPOCH, message));
    }
    Ok(RangeRecord::clone(range))
}

/// A range as answers show it.
pub(super) fn wire_range(node: &Node, range: &RangeRecord) -> Range {
    let held = node.ranges.as_ref();
    let confirmed = || held.and_then(|ranges| ranges.hub.ranges.lock().table.next_offset(range.key));
    // Of a range elsewhere it is known here that its start is confirmed; its server tells more.
    let next_offset = range.end_offset.or_else(confirmed).unwrap_or(range.start_offset);
    Range {
        stream_id: range.key.stream,
        range_index: range.key.range,
        start_offset: range.start_offset,
        end_offset: range.end_offset.unwrap_or(Offset(-1)),
        next_offset,
        servers: wire_servers(node, range),
        epoch: range.epoch,
        replica_count: range.replica_count,
        ack_count: range.ack_count,
    }
}

fn wire_servers(node: &Node, range: &RangeRecord) -> Vec<ReplicaServer> {
    let address = |server: ServerId| {
        if Some(server) == node.identity.server_id {
            return node.identity.advertise.clone();
        }
        let placement = node.placement.as_ref();
        let known = placement.and_then(|driver| driver.read(|state| state.server(server).cloned()));
        known.map(|server| server.address.clone()).unwrap_or_default()
    };
    let replica = |(place, server): (usize, &ServerId)| ReplicaServer {
        range_server: Some(RangeServer {
            server_id: *server,
            advertise_addr: address(*server),
        }),
        is_primary: place == 0,
    };
    range.servers.iter().enumerate().map(replica).collect()
}

/// Bytes of a range in an answer, roughly and rather too many.
pub(super) fn range_weight(range: &Range) -> usize {
    let addresses = range.servers.iter().filter_map(|replica| replica.range_server.as_ref());
    256 + addresses.map(|server| 128 + server.advertise_addr.len()).sum::<usize>()
}
