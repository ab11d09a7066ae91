//! The requests about metadata of one connection, from the request to the answer. Changes wait for the metadata thread.
//! Answers that show open ranges wait for their confirmed ends, which only their servers know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{
    DescribeRangeResult, DescribeRangesRequest, ErrorCode, ListRangesRequest, ListRangesResult, RangeId, StreamRanges,
    SyncRangesRequest, SyncRangesResult, requested_timeout,
};
use sbp_types::{Offset, RangeKey};

use super::audited::AuditedChange;
use super::changes::{Change, ChangeAnswer, read_change};
use super::ends::{DESCRIBED_WITHIN, Ends, SHOWN_WITHIN};
use super::fault::Fault;
use super::handle::{Answer, ConnectionCommand, Turn};
use super::results::Page;
use crate::placement::{Listed, ListedPage, MetadataJob, Outcome, Outcomes, PlacementState, RangeRecord, list_ranges};
use crate::refusal::{Refusal, value_and_status};

/// The requests that are not answered.
#[derive(Debug, Default)]
pub(super) struct MetadataCalls {
    /// Changes that the metadata thread has not done.
    changes: HashMap<CallId, (OpCode, Instant, ChangeAnswer)>,
    /// Answers that wait for the ends of the ranges that they show.
    answers: HashMap<CallId, (Ends, Answer<Ends>)>,
}

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

    /// Answers a change that the metadata thread has done, or first asks the servers of open ranges for their ends.
    pub(super) fn handle_changed(&mut self, turn: &mut Turn<'_>, call: CallId, reply: Result<Outcomes, Refusal>) {
        let Some((opcode, since, answer)) = self.changes.remove(&call) else {
            return;
        };
        let took = turn.now.saturating_duration_since(since);
        turn.node.counters.metadata_seconds.observe(took, 1);
        let asked = reply.and_then(|reply| {
            let outcomes = reply.iter().filter_map(|result| result.as_ref().ok());
            let ends = Ends::ask(
                turn,
                call,
                outcomes.filter_map(Outcome::range_that_may_have_grown),
                SHOWN_WITHIN,
            )?;
            Ok((reply, ends))
        });
        match asked {
            Err(refusal) => turn.refuse_call(call, opcode, refusal),
            Ok((reply, ends)) => {
                let answer = Answer::new(move |turn, call, ends| answer.give(turn, call, (reply, ends)));
                self.answer_with(turn, call, ends, answer);
            }
        }
    }

    /// Answers LIST_RANGES.
    pub(super) fn handle_list(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        request: ListRangesRequest,
    ) -> Result<(), Fault> {
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
        let ends = Ends::ask(
            turn,
            call,
            all(results.iter().map(|listed| &listed.ranges)),
            SHOWN_WITHIN,
        )?;
        let answer = Answer::new(move |turn: &mut Turn<'_>, call, ends: Ends| {
            let node = turn.node;
            let results = results.into_iter().map(|Listed { criterion, ranges }| {
                let (ranges, status) = value_and_status(ranges.map(|ranges| ends.all_shown(node, &ranges)));
                ListRangesResult {
                    range_criteria: criteria.get(criterion).cloned(),
                    ranges: ranges.unwrap_or_default(),
                    status,
                }
            });
            let continuation = continuation.into();
            turn.send_page(call, results, Page { continuation, term });
        });
        self.answer_with(turn, call, ends, answer);
        Ok(())
    }

    /// Answers DESCRIBE_RANGES.
    pub(super) fn handle_describe(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        request: &DescribeRangesRequest,
    ) -> Result<(), Fault> {
        let found: Vec<_> = turn.node.placement()?.read(|state| {
            let find = |range: &RangeId| {
                let stream = range.stream_id;
                let allowed = turn.gate.check_id(OpCode::DESCRIBE_RANGES, stream, |id, allowed| {
                    allowed(state.name_of(id))
                });
                (stream, allowed.and_then(|()| find_range(state, range)))
            };
            request.ranges.iter().map(find).collect()
        });
        let ranges = found.iter().filter_map(|(_, found)| found.as_deref().ok());
        let ends = Ends::ask(turn, call, ranges, DESCRIBED_WITHIN)?;
        let answer = Answer::new(move |turn: &mut Turn<'_>, call, ends: Ends| {
            let node = turn.node;
            let results = found.into_iter().map(|(stream_id, found)| {
                let (range, status) = value_and_status(found.and_then(|record| ends.described(node, &record)));
                DescribeRangeResult {
                    stream_id,
                    range,
                    status,
                }
            });
            turn.send_results(call, results);
        });
        self.answer_with(turn, call, ends, answer);
        Ok(())
    }

    /// Answers SYNC_RANGES with the stored ranges, whatever role the peer has.
    pub(super) fn handle_sync(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        request: &SyncRangesRequest,
    ) -> Result<(), Fault> {
        let found: Vec<_> = turn.node.placement()?.read(|state| {
            let find = |asked: &StreamRanges| (asked.stream_id, stored(state, asked));
            request.stream_ranges.iter().map(find).collect()
        });
        let ends = Ends::ask(turn, call, all(found.iter().map(|(_, ranges)| ranges)), SHOWN_WITHIN)?;
        let answer = Answer::new(move |turn: &mut Turn<'_>, call, ends: Ends| {
            let node = turn.node;
            let results = found.into_iter().map(|(stream_id, ranges)| {
                let (ranges, status) = value_and_status(ranges.map(|ranges| ends.all_shown(node, &ranges)));
                SyncRangesResult {
                    stream_id,
                    ranges: ranges.unwrap_or_default(),
                    status,
                }
            });
            turn.send_results(call, results);
        });
        self.answer_with(turn, call, ends, answer);
        Ok(())
    }

    /// Answers at once, or when all the ends are known.
    fn answer_with(&mut self, turn: &mut Turn<'_>, call: CallId, ends: Ends, answer: Answer<Ends>) {
        if ends.are_known() {
            answer.give(turn, call, ends);
        } else {
            self.answers.insert(call, (ends, answer));
        }
    }

    /// Takes a range server's answer about the ends of ranges, or its failure to answer.
    pub(super) fn handle_ends(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        keys: &[RangeKey],
        told: &Result<Vec<Option<Offset>>, Refusal>,
    ) {
        if let Some((mut ends, answer)) = self.answers.remove(&call) {
            ends.take(keys, told);
            self.answer_with(turn, call, ends, answer);
        }
    }
}

/// All ranges that were found.
fn all<'a>(found: impl Iterator<Item = &'a Stored>) -> impl Iterator<Item = &'a RangeRecord> {
    found
        .filter_map(|ranges| ranges.as_ref().ok())
        .flatten()
        .map(|range| &**range)
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
