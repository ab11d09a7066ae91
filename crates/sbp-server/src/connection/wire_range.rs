//! Ranges in answers.

use sbp_messages::{Range, RangeServer, ReplicaServer};
use sbp_types::ServerId;

use crate::node::Node;
use crate::placement::RangeRecord;

/// A range as a message.
pub(super) fn wire_range(node: &Node, range: &RangeRecord) -> Range {
    let held = node.ranges.as_ref();
    let confirmed = || held.and_then(|ranges| ranges.hub.ranges.lock().table.next_offset(range.key));
    // Of an open range on another server only the start is known to be confirmed; that server knows more.
    let next_offset = range.end_offset.or_else(confirmed).unwrap_or(range.start_offset);
    Range {
        stream_id: range.key.stream,
        range_index: range.key.range,
        start_offset: range.start_offset,
        end_offset: range.end_offset,
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
