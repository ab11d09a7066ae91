//! LIST_RANGES and DESCRIBE_RANGES: the ranges as they are stored, with the ends that only their servers know.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{
    ClientRole, DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, ErrorCode, ListRangesRequest,
    ListRangesResponse, ListRangesResult, Range, RangeCriteria, RangeId, Status,
};
use sbp_session::Session;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId, StreamId};

use super::fault::Fault;
use super::port::{ConnectionCommand, Port};
use super::replier::Replier;
use super::results::send_results;
use super::wire_range::{range_weight, wire_range};
use crate::node::Node;
use crate::placement::{Criterion, ListedPage, PlacementDriver, PlacementState, RangeRecord, list_ranges};
use crate::refusal::Refusal;

/// The questions about ranges of one connection that wait for range servers.
#[derive(Debug, Default)]
pub(super) struct RangeQueries {
    pending: HashMap<CallId, Pending>,
}

#[derive(Debug)]
struct Pending {
    found: Found,
    ends: HashMap<RangeKey, Result<Offset, Refusal>>,
    /// Range servers that have not answered.
    missing: usize,
}

/// What is stored about the ranges asked for.
#[derive(Debug)]
enum Found {
    Described(Vec<(StreamId, Stored<RangeRecord>)>),
    Listed { results: Vec<Listed>, continuation: Bytes },
}

type Stored<T> = Result<T, Refusal>;
/// What one of the criteria gave.
type Listed = (Option<RangeCriteria>, Stored<Vec<Arc<RangeRecord>>>);

/// What answering needs of its connection.
pub(super) struct RangeTurn<'a> {
    pub(super) session: &'a mut Session,
    pub(super) replier: &'a mut Replier,
    pub(super) node: &'a Arc<Node>,
    pub(super) port: &'a Arc<Port>,
    /// What the peer said that it is.
    pub(super) asker: ClientRole,
}

impl RangeQueries {
    /// Answers LIST_RANGES.
    pub(super) fn handle_list(
        &mut self,
        turn: &mut RangeTurn<'_>,
        call: CallId,
        request: ListRangesRequest,
    ) -> Result<(), Fault> {
        let ListRangesRequest {
            range_criteria,
            limit,
            continuation,
            ..
        } = request;
        let criteria: Vec<_> = range_criteria.iter().map(criterion).collect();
        let page = turn
            .node
            .placement()?
            .read(|state| list_ranges(state, &criteria, limit, &continuation))?;
        let ListedPage { results, continuation } = page;
        let results = results
            .into_iter()
            .map(|listed| (range_criteria.get(listed.criterion).cloned(), listed.ranges));
        let found = Found::Listed {
            results: results.collect(),
            continuation: continuation.into(),
        };
        Ok(self.complete(turn, call, found)?)
    }

    /// Answers DESCRIBE_RANGES.
    pub(super) fn handle_describe(
        &mut self,
        turn: &mut RangeTurn<'_>,
        call: CallId,
        request: &DescribeRangesRequest,
    ) -> Result<(), Fault> {
        let found = turn.node.placement()?.read(|state| {
            let find = |range: &RangeId| (range.stream_id, find_range(state, range));
            request.ranges.iter().map(find).collect()
        });
        Ok(self.complete(turn, call, Found::Described(found))?)
    }

    /// Answers at once, or asks the servers of open ranges elsewhere first.
    fn complete(&mut self, turn: &mut RangeTurn<'_>, call: CallId, found: Found) -> Result<(), Refusal> {
        let placement = turn.node.placement()?;
        let mut pending = Pending {
            missing: 0,
            ends: HashMap::new(),
            found,
        };
        // A range server lists ranges before it serves them: to ask it back would be to wait for each other.
        let elsewhere = match turn.asker {
            ClientRole::RANGE_SERVER => BTreeMap::new(),
            _ => pending.found.elsewhere(turn.node),
        };
        for (server, keys) in elsewhere {
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
        turn: &mut RangeTurn<'_>,
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

impl Found {
    /// The open ranges that only servers elsewhere know the ends of.
    fn elsewhere(&self, node: &Node) -> BTreeMap<ServerId, Vec<RangeKey>> {
        let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut note = |record: &RangeRecord| {
            let server = record.appends_go_to();
            if let Some(server) = server.filter(|server| node.identity.server_id != Some(*server)) {
                keys.entry(server).or_default().push(record.key);
            }
        };
        match self {
            Self::Described(found) => found.iter().filter_map(|(_, found)| found.as_ref().ok()).for_each(note),
            Self::Listed { results, .. } => {
                let ranges = results.iter().filter_map(|(_, ranges)| ranges.as_ref().ok());
                ranges.flatten().for_each(|record| note(record));
            }
        }
        keys
    }
}

impl Pending {
    fn answer(self, turn: &mut RangeTurn<'_>, call: CallId) {
        let Self { found, ends, .. } = self;
        let node = turn.node;
        match found {
            Found::Described(found) => {
                let results = found.into_iter().map(|(stream, found)| {
                    let described = found.and_then(|record| described(node, &record, ends.get(&record.key)));
                    describe_result(stream, described)
                });
                answer_described(turn.session, turn.replier, call, results);
            }
            Found::Listed { results, continuation } => {
                let results = results.into_iter().map(|(criteria, ranges)| {
                    let listed = |record: &Arc<RangeRecord>| listed(node, record, ends.get(&record.key));
                    list_result(criteria, ranges.map(|ranges| ranges.iter().map(listed).collect()))
                });
                answer_listed(turn.session, turn.replier, call, results, &continuation);
            }
        }
    }
}

/// A range with its end; without the end, that is the answer.
fn described(node: &Node, record: &RangeRecord, end: Option<&Result<Offset, Refusal>>) -> Result<Range, Refusal> {
    let range = wire_range(node, record);
    let next_offset = match end {
        None => range.next_offset,
        Some(end) => end.clone()?,
    };
    Ok(Range { next_offset, ..range })
}

/// A range with its end, or with what is known of it: where a range is can be told while its server is down.
fn listed(node: &Node, record: &RangeRecord, end: Option<&Result<Offset, Refusal>>) -> Range {
    let range = wire_range(node, record);
    let next_offset = match end {
        Some(Ok(end)) => *end,
        _ => range.next_offset,
    };
    Range { next_offset, ..range }
}

fn ask(turn: &RangeTurn<'_>, placement: &PlacementDriver, call: CallId, server: ServerId, keys: Vec<RangeKey>) {
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

fn criterion(criteria: &RangeCriteria) -> Criterion {
    Criterion {
        stream: (criteria.stream_id != StreamId(-1)).then_some(criteria.stream_id),
        server: criteria.range_server.as_ref().map(|server| server.server_id),
    }
}

fn find_range(state: &PlacementState, asked: &RangeId) -> Result<RangeRecord, Refusal> {
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

fn list_result(range_criteria: Option<RangeCriteria>, listed: Result<Vec<Range>, Refusal>) -> ListRangesResult {
    let (ranges, status) = match listed {
        Ok(ranges) => (ranges, Status::success()),
        Err(refusal) => (Vec::new(), refusal.into()),
    };
    ListRangesResult {
        range_criteria,
        ranges,
        status,
    }
}

fn answer_described(
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

fn answer_listed(
    session: &mut Session,
    replier: &mut Replier,
    call: CallId,
    results: impl Iterator<Item = ListRangesResult>,
    continuation: &Bytes,
) {
    let weigh = |result: &ListRangesResult| {
        let ranges: usize = result.ranges.iter().map(range_weight).sum();
        256 + ranges + result.status.message.len()
    };
    send_results(session, replier, call, results, weigh, |list_responses, last| {
        ListRangesResponse {
            list_responses,
            continuation: if last { continuation.clone() } else { Bytes::new() },
            ..Default::default()
        }
    });
}
