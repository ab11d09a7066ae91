//! The requests about metadata of one connection, from the request to the answer. Changes wait for the metadata thread, and
//! descriptions of open ranges for the ends of these, which only their servers know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    DescribeRangeResult, DescribeRangesRequest, ErrorCode, ListRangesRequest, ListRangesResult, Range, RangeId,
    StreamRanges, SyncRangesRequest, SyncRangesResult, requested_timeout,
};
use sbp_types::{Offset, RangeKey, StreamId};

use super::audited::AuditedChange;
use super::changes::{Change, ChangeAnswer, read_change};
use super::ends::{Ends, listed};
use super::fault::Fault;
use super::handle::{ConnectionCommand, Turn};
use super::results::Page;
use crate::node::Node;
use crate::placement::{Listed, ListedPage, MetadataJob, Outcomes, PlacementState, RangeRecord, list_ranges};
use crate::refusal::{Refusal, value_and_status};

/// The requests that are not answered.
#[derive(Debug, Default)]
pub(super) struct MetadataCalls {
    /// Changes that the metadata thread has not done.
    changes: HashMap<CallId, (OpCode, Instant, ChangeAnswer)>,
    /// Descriptions that wait for the ends of their ranges.
    descriptions: HashMap<CallId, (Ends, Description)>,
}

/// What DESCRIBE_RANGES asked for: the stream of each entry, and its range, or why there is none.
type Description = Vec<(StreamId, Result<RangeId, Refusal>)>;

/// Ranges that are stored, or why there are none.
type Stored = Result<Vec<Arc<RangeRecord>>, Refusal>;

impl MetadataCalls {
    /// Decodes a change of metadata and hands it to the metadata thread.
    pub(super) fn handle_change(&mut self, turn: &Turn<'_>, frame: &Frame) -> Result<(), Fault> {
        let placement = turn.node.placement()?;
        let Change {
            timeout_ms,
            request,
            answer,
            asked,
        } = read_change(turn, frame)?;
        let (handle, call) = (Arc::clone(turn.handle), frame.call_id);
        let pending = turn.node.counters.metadata_pending.one();
        let audited = AuditedChange::new(turn, frame.opcode, asked);
        let job = MetadataJob {
            done: Box::new(move |answer| {
                drop(pending);
                // Here, because the connection may be gone when the change is done.
                if let Some(audited) = audited {
                    audited.done(&answer);
                }
                handle.post(ConnectionCommand::Changed { call, answer });
            }),
            deadline: turn.now + requested_timeout(timeout_ms).unwrap_or(turn.node.limits.default_timeout),
            request,
        };
        placement.submit(job)?;
        self.changes.insert(call, (frame.opcode, turn.now, answer));
        Ok(())
    }

    /// Answers a change that the metadata thread has done.
    pub(super) fn handle_changed(&mut self, turn: &mut Turn<'_>, call: CallId, reply: Result<Outcomes, Refusal>) {
        let Some((opcode, since, answer)) = self.changes.remove(&call) else {
            return;
        };
        let took = turn.now.saturating_duration_since(since);
        turn.node.counters.metadata_seconds.observe(took, 1);
        match reply {
            Err(refusal) => turn.refuse_call(call, opcode, refusal),
            Ok(reply) => answer.give(turn, call, reply),
        }
    }

    /// Answers LIST_RANGES with what is stored: no other server is asked, because clients ask where streams are first of all when
    /// one is gone.
    pub(super) fn handle_list(turn: &mut Turn<'_>, call: CallId, request: ListRangesRequest) -> Result<(), Fault> {
        let ListRangesRequest {
            range_criteria: criteria,
            limit,
            continuation,
            ..
        } = request;
        let placement = turn.node.placement()?;
        let term = placement.term();
        let page = placement.read(|state| list_ranges(state, &criteria, limit, &continuation, turn.gate))?;
        let ListedPage { results, continuation } = page;
        let node = turn.node;
        let results = results.into_iter().map(|Listed { criterion, ranges }| {
            let (ranges, status) = value_and_status(ranges.map(|ranges| all_listed(node, &ranges)));
            ListRangesResult {
                range_criteria: criteria.get(criterion).cloned(),
                ranges: ranges.unwrap_or_default(),
                status,
            }
        });
        let continuation = continuation.into();
        turn.send_page(call, results, Page { continuation, term });
        Ok(())
    }

    /// Answers SYNC_RANGES with the stored ranges, whatever role the peer has.
    pub(super) fn handle_sync(turn: &mut Turn<'_>, call: CallId, request: &SyncRangesRequest) -> Result<(), Fault> {
        let found: Vec<_> = turn.node.placement()?.read(|state| {
            let find = |asked: &StreamRanges| (asked.stream_id, stored(state, asked));
            request.stream_ranges.iter().map(find).collect()
        });
        let node = turn.node;
        let results = found.into_iter().map(|(stream_id, ranges)| {
            let (ranges, status) = value_and_status(ranges.map(|ranges| all_listed(node, &ranges)));
            SyncRangesResult {
                stream_id,
                ranges: ranges.unwrap_or_default(),
                status,
            }
        });
        turn.send_results(call, results);
        Ok(())
    }

    /// Answers DESCRIBE_RANGES, once the servers of open ranges have told where these end.
    pub(super) fn handle_describe(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        request: &DescribeRangesRequest,
    ) -> Result<(), Fault> {
        let mut open = Vec::new();
        let asked = turn.node.placement()?.read(|state| {
            let mut find = |asked: &RangeId| {
                let stream = asked.stream_id;
                let allowed = turn.gate.check_id(OpCode::DESCRIBE_RANGES, stream, |id, allowed| {
                    allowed(state.name_of(id))
                });
                let found = allowed.and_then(|()| find_range(state, asked));
                let named = found.map(|range| {
                    let range_index = Some(range.key.range);
                    open.extend(range.end_offset.is_none().then_some(range));
                    RangeId { range_index, ..*asked }
                });
                (stream, named)
            };
            request.ranges.iter().map(&mut find).collect()
        });
        let ends = Ends::ask(turn, call, open.iter().map(|range| &**range))?;
        self.answer_description(turn, call, ends, asked);
        Ok(())
    }

    /// Takes a range server's answer about the ends of ranges, or its failure to answer.
    pub(super) fn handle_ends(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        keys: &[RangeKey],
        told: &Result<Vec<Option<Offset>>, Refusal>,
    ) {
        if let Some((mut ends, asked)) = self.descriptions.remove(&call) {
            ends.take(keys, told);
            self.answer_description(turn, call, ends, asked);
        }
    }

    /// Answers DESCRIBE_RANGES if all ends are known. The ranges are told as they are then: one may have got its end since they
    /// were asked for.
    fn answer_description(&mut self, turn: &mut Turn<'_>, call: CallId, ends: Ends, asked: Description) {
        if !ends.are_known() {
            self.descriptions.insert(call, (ends, asked));
            return;
        }
        let node = turn.node;
        let placement = match node.placement() {
            Ok(placement) => placement,
            Err(refusal) => return turn.refuse_call(call, OpCode::DESCRIBE_RANGES, refusal),
        };
        let found: Vec<_> = placement.read(|state| {
            let find = |(stream, asked): (_, Result<RangeId, Refusal>)| {
                (stream, asked.and_then(|asked| find_range(state, &asked)))
            };
            asked.into_iter().map(find).collect()
        });
        let results = found.into_iter().map(|(stream_id, found)| {
            let (range, status) = value_and_status(found.and_then(|record| ends.described(node, &record)));
            DescribeRangeResult {
                stream_id,
                range,
                status,
            }
        });
        turn.send_results(call, results);
    }
}

fn all_listed(node: &Node, ranges: &[Arc<RangeRecord>]) -> Vec<Range> {
    ranges.iter().map(|range| listed(node, range)).collect()
}

fn find_range(state: &PlacementState, asked: &RangeId) -> Result<Arc<RangeRecord>, Refusal> {
    Refusal::check(asked.fault())?;
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
    Refusal::check_epoch(range.key, range.epoch, asked.epoch)?;
    Ok(Arc::clone(range))
}

/// The stored ranges of a stream that the request names; all of them if it names none.
fn stored(state: &PlacementState, asked: &StreamRanges) -> Stored {
    if state.stream(asked.stream_id).is_none() {
        return Err(Refusal::no_stream(asked.stream_id));
    }
    let named = |index| asked.ranges.iter().any(|range| range.range_index == index);
    let ranges = state.ranges_of(asked.stream_id);
    let ranges = ranges.filter(|range| asked.ranges.is_empty() || named(range.key.range));
    Ok(ranges.cloned().collect())
}
