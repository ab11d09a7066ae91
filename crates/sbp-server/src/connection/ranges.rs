//! LIST_RANGES, DESCRIBE_RANGES and SYNC_RANGES at a placement driver: the stored ranges, with the confirmed ends of
//! open ones, which only their servers know.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sbp_frame::CallId;
use sbp_messages::{
    DescribeRangeResult, DescribeRangesRequest, DescribeRangesResponse, ErrorCode, ListRangesRequest,
    ListRangesResponse, ListRangesResult, Range, RangeCriteria, RangeId, Status, SyncRangesRequest, SyncRangesResult,
};
use sbp_session::Session;
use sbp_types::{Offset, RangeKey, StreamId};

use super::ends::Ends;
use super::fault::Fault;
use super::range_changes;
use super::replier::Replier;
use super::results::send_results;
use super::turn::RangeTurn;
use super::wire_range::range_weight;
use crate::placement::{Criterion, ListedPage, PlacementState, RangeRecord, list_ranges};
use crate::refusal::Refusal;

/// The requests about ranges of one connection that wait for range servers.
#[derive(Debug, Default)]
pub(super) struct RangeQueries {
    pending: HashMap<CallId, PendingAnswer>,
}

#[derive(Debug)]
struct PendingAnswer {
    found: Found,
    ends: Ends,
}

/// The stored ranges that a request asks for.
#[derive(Debug)]
enum Found {
    Described(Vec<(StreamId, Stored<RangeRecord>)>),
    Listed {
        results: Vec<Listed>,
        continuation: Bytes,
    },
    /// The ranges that SYNC_RANGES asks for.
    Stored(Vec<(StreamId, Stored<Vec<Arc<RangeRecord>>>)>),
}

type Stored<T> = Result<T, Refusal>;
/// The ranges that one criterion matches.
type Listed = (Option<RangeCriteria>, Stored<Vec<Arc<RangeRecord>>>);

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

    /// Answers SYNC_RANGES with the stored ranges, whatever role the peer has.
    pub(super) fn handle_stored(
        &mut self,
        turn: &mut RangeTurn<'_>,
        call: CallId,
        request: &SyncRangesRequest,
    ) -> Result<(), Fault> {
        let found = turn.node.placement()?.read(|state| {
            let asked = request.stream_ranges.iter();
            asked
                .map(|asked| (asked.stream_id, range_changes::stored(state, asked)))
                .collect()
        });
        Ok(self.complete(turn, call, Found::Stored(found))?)
    }

    /// Answers at once, or first asks the other servers of open ranges.
    fn complete(&mut self, turn: &mut RangeTurn<'_>, call: CallId, found: Found) -> Result<(), Refusal> {
        let ends = Ends::ask(turn, call, found.ranges())?;
        let pending = PendingAnswer { found, ends };
        if pending.ends.are_known() {
            pending.answer(turn, call);
        } else {
            self.pending.insert(call, pending);
        }
        Ok(())
    }

    /// Takes a range server's answer, or its failure to answer. Returns false when `call` is not among these requests.
    pub(super) fn handle_ends(
        &mut self,
        turn: &mut RangeTurn<'_>,
        call: CallId,
        keys: &[RangeKey],
        ends: &Result<Vec<Option<Offset>>, Refusal>,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&call) else {
            return false;
        };
        pending.ends.take(keys, ends);
        if pending.ends.are_known()
            && let Some(pending) = self.pending.remove(&call)
        {
            pending.answer(turn, call);
        }
        true
    }
}

impl Found {
    fn ranges(&self) -> Box<dyn Iterator<Item = &RangeRecord> + '_> {
        match self {
            Self::Described(found) => Box::new(found.iter().filter_map(|(_, found)| found.as_ref().ok())),
            Self::Listed { results, .. } => {
                let ranges = results.iter().filter_map(|(_, ranges)| ranges.as_ref().ok());
                Box::new(ranges.flatten().map(|range| &**range))
            }
            Self::Stored(results) => {
                let ranges = results.iter().filter_map(|(_, ranges)| ranges.as_ref().ok());
                Box::new(ranges.flatten().map(|range| &**range))
            }
        }
    }
}

impl PendingAnswer {
    fn answer(self, turn: &mut RangeTurn<'_>, call: CallId) {
        let Self { found, ends, .. } = self;
        let node = turn.node;
        match found {
            Found::Described(found) => {
                let results = found.into_iter().map(|(stream, found)| {
                    let described = found.and_then(|record| ends.described(node, &record));
                    describe_result(stream, described)
                });
                answer_described(turn.session, turn.replier, call, results);
            }
            Found::Listed { results, continuation } => {
                let results = results.into_iter().map(|(criteria, ranges)| {
                    let listed = |record: &Arc<RangeRecord>| ends.shown(node, record);
                    list_result(criteria, ranges.map(|ranges| ranges.iter().map(listed).collect()))
                });
                answer_listed(turn.session, turn.replier, call, results, &continuation);
            }
            Found::Stored(results) => {
                let results = results.into_iter().map(|(stream_id, ranges)| {
                    let (ranges, status) = match ranges {
                        Ok(ranges) => (
                            ranges.iter().map(|range| ends.shown(node, range)).collect(),
                            Status::success(),
                        ),
                        Err(refusal) => (Vec::new(), refusal.into()),
                    };
                    SyncRangesResult {
                        stream_id,
                        ranges,
                        status,
                    }
                });
                range_changes::answer_synced(turn.session, turn.replier, call, results);
            }
        }
    }
}

fn criterion(criteria: &RangeCriteria) -> Criterion {
    Criterion {
        stream: criteria.stream_id,
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
    let range = match asked.range_index {
        None => state.last_range(stream),
        Some(range) => state.range(RangeKey { stream, range }),
    };
    let Some(range) = range else {
        let what = asked.range_index.map_or_else(String::new, |index| format!(" {index}"));
        let message = format!("stream {stream} has no range{what}");
        return Err(Refusal::new(ErrorCode::RANGE_NOT_FOUND, message));
    };
    if let Some(epoch) = asked.epoch.filter(|epoch| *epoch != range.epoch) {
        let message = format!("range {} has epoch {}, not {epoch}", range.key, range.epoch);
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
