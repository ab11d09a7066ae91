//! DESCRIBE_RANGES: the ranges as they are stored, with the ends that only their servers know.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sbp_frame::CallId;
use sbp_messages::{
    DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, ErrorCode, Range, RangeId, Status,
};
use sbp_session::Session;
use sbp_types::{Offset, RangeKey, ServerId, StreamId};

use super::describe::{find_range, range_weight, wire_range};
use super::port::{ConnectionCommand, Port};
use super::replier::Replier;
use super::results::send_results;
use crate::node::Node;
use crate::placement::{PlacementDriver, RangeRecord};
use crate::refusal::Refusal;

/// The DESCRIBE_RANGES of one connection that wait for range servers.
#[derive(Debug, Default)]
pub(super) struct Describes {
    pending: HashMap<CallId, Pending>,
}

#[derive(Debug)]
struct Pending {
    found: Vec<(StreamId, Result<RangeRecord, Refusal>)>,
    ends: HashMap<RangeKey, Result<Offset, Refusal>>,
    /// Range servers that have not answered.
    missing: usize,
}

/// What describing needs of its connection.
pub(super) struct DescribeTurn<'a> {
    pub(super) session: &'a mut Session,
    pub(super) replier: &'a mut Replier,
    pub(super) node: &'a Arc<Node>,
    pub(super) port: &'a Arc<Port>,
}

impl Describes {
    /// Answers at once, or asks the servers of open ranges elsewhere first.
    pub(super) fn handle_request(
        &mut self,
        turn: &mut DescribeTurn<'_>,
        call: CallId,
        request: DescribeRangesRequest,
    ) -> Result<(), Refusal> {
        let placement = turn.node.placement()?;
        let found: Vec<_> = placement.read(|state| {
            let find = |range: &RangeId| (range.stream_id, find_range(state, range));
            request.ranges.iter().map(find).collect()
        });
        let mut pending = Pending {
            found,
            ends: HashMap::new(),
            missing: 0,
        };
        for (server, keys) in elsewhere(turn.node, &pending.found) {
            pending.missing += 1;
            ask(turn, placement, call, server, keys);
        }
        if pending.missing == 0 {
            pending.answer(turn, call);
        } else {
            self.pending.insert(call, pending);
        }
        Ok(())
    }

    /// A range server has answered, or will not.
    pub(super) fn handle_ends(
        &mut self,
        turn: &mut DescribeTurn<'_>,
        call: CallId,
        keys: &[RangeKey],
        ends: Result<Vec<Option<Offset>>, Refusal>,
    ) {
        let Some(pending) = self.pending.get_mut(&call) else {
            return;
        };
        for (place, key) in keys.iter().enumerate() {
            let end = match &ends {
                Err(refusal) => Err(refusal.clone()),
                Ok(ends) => ends.get(place).copied().flatten().ok_or_else(|| {
                    let message = format!("the server of range {key} does not hold it");
                    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message)
                }),
            };
            pending.ends.insert(*key, end);
        }
        pending.missing -= 1;
        if pending.missing == 0
            && let Some(pending) = self.pending.remove(&call)
        {
            pending.answer(turn, call);
        }
    }
}

impl Pending {
    fn answer(self, turn: &mut DescribeTurn<'_>, call: CallId) {
        let Self { found, ends, .. } = self;
        let node = turn.node;
        let results = found.into_iter().map(|(stream, found)| {
            let described = found.and_then(|record| {
                let range = wire_range(node, &record);
                Ok(match ends.get(&record.key) {
                    None => range,
                    Some(end) => Range {
                        next_offset: end.clone()?,
                        ..range
                    },
                })
            });
            describe_result(stream, described)
        });
        answer(turn.session, turn.replier, call, results);
    }
}

/// The open ranges that only servers elsewhere know the ends of.
fn elsewhere(node: &Node, found: &[(StreamId, Result<RangeRecord, Refusal>)]) -> BTreeMap<ServerId, Vec<RangeKey>> {
    let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for record in found.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let here = |server: ServerId| Some(server) == node.identity.server_id;
        if let Some(server) = record.appends_go_to().filter(|server| !here(*server)) {
            keys.entry(server).or_default().push(record.key);
        }
    }
    keys
}

fn ask(turn: &DescribeTurn<'_>, placement: &PlacementDriver, call: CallId, server: ServerId, keys: Vec<RangeKey>) {
    let port = Arc::clone(turn.port);
    let asked = keys.clone();
    let done = move |ends| {
        let keys = asked;
        // A connection that is gone needs no answer.
        let _gone = port.mailbox.post(ConnectionCommand::Ends { call, keys, ends });
    };
    if placement.is_up(server) {
        placement.others().next_offsets(server, keys, Box::new(done));
    } else {
        let message = format!("range server {server} is down");
        done(Err(Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message)));
    }
}

fn describe_result(stream_id: StreamId, described: Result<Range, Refusal>) -> DescribeRangeResult {
    let (range, status) = match described {
        Ok(range) => (Some(range), Status::success()),
        Err(refusal) => (None, refusal.into()),
    };
    DescribeRangeResult {
        stream_id,
        range,
        status,
    }
}

fn answer(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    results: impl Iterator<Item = DescribeRangeResult>,
) {
    let weigh =
        |result: &DescribeRangeResult| 64 + result.range.as_ref().map_or(0, range_weight) + result.status.message.len();
    send_results(session, replier, call, results, weigh, |describe_responses, _| {
        DescribeRangesResponse {
            describe_responses,
            ..Default::default()
        }
    });
}
