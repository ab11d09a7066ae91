//! Ranges in answers, and the confirmed ends of open ones on other servers, which are asked for before a range is described.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sbp_frame::CallId;
use sbp_messages::{ClientRole, ErrorCode, Range, RangeServer, ReplicaServer, ReplicaState};
use sbp_types::{Offset, RangeKey, ServerId};

use super::handle::{ConnectionCommand, Turn};
use crate::node::Node;
use crate::placement::{PlacementDriver, RangeRecord};
use crate::refusal::Refusal;

/// The ends that range servers have told for one answer.
#[derive(Debug, Default)]
pub(super) struct Ends {
    known: HashMap<RangeKey, Result<Offset, Refusal>>,
    /// The number of range servers that have not answered.
    missing: usize,
}

impl Ends {
    /// Asks the other servers that hold these open ranges. Their answers come as [`ConnectionCommand::Ends`] under `call`.
    pub(super) fn ask<'a>(
        turn: &Turn<'_>,
        call: CallId,
        ranges: impl Iterator<Item = &'a RangeRecord>,
    ) -> Result<Self, Refusal> {
        let placement = turn.node.any_placement()?;
        let mut ends = Self::default();
        // A range server that asks may itself not serve before it is answered: asking it back would deadlock.
        if turn.asker == ClientRole::RANGE_SERVER {
            return Ok(ends);
        }
        let mut keys: BTreeMap<ServerId, Vec<RangeKey>> = BTreeMap::new();
        for range in ranges {
            let server = range.appends_go_to();
            if let Some(server) = server.filter(|server| turn.node.identity.server_id != Some(*server)) {
                keys.entry(server).or_default().push(range.key);
            }
        }
        for (server, keys) in keys {
            ends.missing += 1;
            ask(turn, placement, call, server, keys);
        }
        Ok(ends)
    }

    /// Whether all servers have answered or failed to.
    pub(super) fn are_known(&self) -> bool {
        self.missing == 0
    }

    /// Takes a range server's answer, or its failure to answer.
    pub(super) fn take(&mut self, keys: &[RangeKey], told: &Result<Vec<Option<Offset>>, Refusal>) {
        for (place, key) in keys.iter().enumerate() {
            let end = match told {
                Err(refusal) => Err(refusal.clone()),
                Ok(ends) => ends.get(place).copied().flatten().ok_or_else(|| {
                    let message = format!("the server of range {key} does not hold it");
                    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message)
                }),
            };
            self.known.insert(*key, end);
        }
        self.missing = self.missing.saturating_sub(1);
    }

    /// A range with its end, for DESCRIBE_RANGES. Where an open one ends must have been told.
    pub(super) fn described(&self, node: &Node, record: &RangeRecord) -> Result<Range, Refusal> {
        let range = listed(node, record);
        match self.known.get(&record.key) {
            Some(end) if record.end_offset.is_none() => {
                let next_offset = end.clone()?;
                Ok(Range { next_offset, ..range })
            }
            _ => Ok(range),
        }
    }
}

fn ask(turn: &Turn<'_>, placement: &PlacementDriver, call: CallId, server: ServerId, keys: Vec<RangeKey>) {
    let handle = Arc::clone(turn.handle);
    let asked = keys.clone();
    let done = move |ends| {
        let keys = asked;
        handle.post(ConnectionCommand::Ends { call, keys, ends });
    };
    match placement.range_server(server) {
        Ok(range_server) => range_server.next_offsets(keys, Box::new(done)),
        Err(refusal) => done(Err(refusal)),
    }
}

/// A range as a message, without asking anybody: of one that is open on another server its beginning alone is known to be confirmed.
pub(super) fn listed(node: &Node, range: &RangeRecord) -> Range {
    let held = node.ranges.as_ref();
    let confirmed = || held.and_then(|ranges| ranges.hub.ranges.lock().table.next_offset(range.key));
    let next_offset = range.end_offset.or_else(confirmed).unwrap_or(range.start_offset);
    Range {
        stream_id: range.key.stream,
        range_index: range.key.range,
        start_offset: range.start_offset,
        end_offset: range.end_offset,
        next_offset,
        servers: wire_servers(node, range),
        epoch: Some(range.epoch),
        replica_count: Some(range.replica_count),
        ack_count: Some(range.ack_count),
        end_marks: range.end_marks,
        opened_offset: (range.opened_offset < range.start_offset).then_some(range.opened_offset),
        ..Range::default()
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
            ..RangeServer::default()
        }),
        is_primary: place == 0,
        state: match range.incomplete.contains(server) {
            true => ReplicaState::COPYING,
            false => ReplicaState::COMPLETE,
        },
    };
    range.servers.iter().enumerate().map(replica).collect()
}
