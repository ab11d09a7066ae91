//! APPEND requests of a connection.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use sbp_frame::{CallId, Frame, OpCode, Payload};
use sbp_messages::{AppendInfo, AppendRequest, AppendResponse, AppendResult, ErrorCode, Message, requested_timeout};
use sbp_record::{BodyEncoding, inspect};
use sbp_types::TimestampMs;
use smallvec::{SmallVec, smallvec};

use super::batch_head::{claim_of, head_refusal, largest_time};
use super::follow;
use super::handle::Turn;
use crate::access::{Direction, Gate};
use crate::range::{AppendDone, AppendEntry, AppendJob, EntryId, FollowJob, HeadFacts};
use crate::refusal::Refusal;

/// The APPENDs of one connection.
///
/// The batches of all frames that one turn of the connection's task has read are handed to the range server together:
/// one lock, one hand-over to the log.
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// The batches of this turn, in the order of their frames.
    turn: Vec<AppendJob>,
    /// The calls of this turn with so short a timeout that it may pass before the turn ends.
    short: Vec<(CallId, Instant)>,
    /// Calls with several entries that are not all answered yet. A call with one entry is not kept here.
    open: HashMap<CallId, OpenCall>,
    /// The entries of this turn that another range server has sent of ranges that this one holds too.
    followed: Vec<FollowJob>,
    /// The batches of this turn that the peer may not append.
    forbidden: Vec<AppendDone>,
    /// An empty buffer, kept for its capacity.
    done: Vec<AppendDone>,
}

#[derive(Debug)]
struct OpenCall {
    missing: usize,
    results: SmallVec<[AppendResult; 1]>,
}

/// A turn never takes this long, so only shorter timeouts are checked at its end.
const SHORT_TIMEOUT_MS: u128 = 1_000;

impl Appends {
    /// Reads a request and keeps its batches. They are handed to the range server when the turn ends.
    pub(super) fn handle_request(&mut self, turn: &Turn<'_>, frame: &Frame) -> Result<(), sbp_messages::DecodeError> {
        let received = turn.now;
        let request = AppendRequest::decode(&frame.header)?;
        request.validate(frame.payload.len())?;
        let call = frame.call_id;
        let timeout = requested_timeout(request.timeout_ms);
        let expires = timeout.map(|timeout| received + timeout);
        if let Some(timeout) = timeout
            && timeout.as_millis() < SHORT_TIMEOUT_MS
        {
            self.short.push((call, received + timeout));
        }
        if let missing @ 2.. = request.append_requests.len() {
            self.open.insert(
                call,
                OpenCall {
                    missing,
                    results: SmallVec::with_capacity(missing),
                },
            );
        }
        let over_quota = turn.replier.presence.as_ref();
        let over_quota = over_quota.and_then(|presence| presence.charge_in(frame.payload.len(), received).err());
        let mut payload = Batches::new(&frame.payload);
        for info in &request.append_requests {
            let chunks = payload.take(usize::try_from(info.batch_length).unwrap_or(0));
            if !info.is_from_client() {
                match follow::read_entry(turn, call, info, chunks) {
                    Ok(job) => self.followed.push(job),
                    Err(refusal) => self.forbidden.push(forbidden(call, received, info, refusal)),
                }
                continue;
            }
            let allowed = turn.check_stream(OpCode::APPEND, info.stream_id);
            if let Err(refusal) = allowed.and(over_quota.clone().map_or(Ok(()), Err)) {
                self.forbidden.push(forbidden(call, received, info, refusal));
                continue;
            }
            let job = read_entry(call, received, info, chunks);
            let gate = turn.gate.clone();
            self.turn.push(AppendJob { expires, gate, ..job });
        }
        Ok(())
    }

    /// Hands the turn's batches to the range server, and sends the answers that are known at once.
    pub(super) fn finish_turn(&mut self, turn: &mut Turn<'_>) {
        if self.turn.is_empty() && self.forbidden.is_empty() && self.followed.is_empty() {
            return;
        }
        self.drop_expired(turn);
        let mut done = std::mem::take(&mut self.done);
        if let Ok(ranges) = turn.node.ranges()
            && !self.turn.is_empty()
        {
            ranges.append(turn.requester, &mut self.turn, &mut done);
        }
        if let Ok(ranges) = turn.node.ranges()
            && !self.followed.is_empty()
        {
            ranges.follow(turn.requester, &mut self.followed, &mut done);
        }
        done.append(&mut self.forbidden);
        if !done.is_empty() {
            self.handle_done(turn, &mut done, Instant::now());
        }
        self.done = done;
    }

    /// Sends the answers for batches that were synced or refused; `ended` is now.
    pub(super) fn handle_done(&mut self, turn: &mut Turn<'_>, done: &mut Vec<AppendDone>, ended: Instant) {
        if done.is_empty() {
            return;
        }
        count_times(turn, done, ended);
        let now = turn.node.clock.now();
        let asked_by_quota = turn.quota_wait_ms(Direction::In);
        let mut throttle_time_ms = turn
            .node
            .ranges()
            .map_or(0, |ranges| ranges.throttle_ms())
            .max(asked_by_quota);
        for done in done.drain(..) {
            let call = done.entry.call;
            let result = append_result(done, now);
            if result.status.code == ErrorCode::TOO_MANY_REQUESTS
                && let Ok(ranges) = turn.node.ranges()
            {
                throttle_time_ms = ranges.refused_throttle_ms().max(asked_by_quota);
            }
            turn.note_entry(OpCode::APPEND, (Some(result.stream_id), ""), &result.status);
            let results = match self.open.get_mut(&call) {
                // The call's only entry was not started in time: the whole call ends with a system error.
                None if result.status.code == ErrorCode::REQUEST_TIMEOUT => {
                    turn.replier
                        .refuse(turn.session, call.raw(), OpCode::APPEND, Refusal::expired());
                    continue;
                }
                None => smallvec![result],
                Some(open) => {
                    open.results.push(result);
                    open.missing = open.missing.saturating_sub(1);
                    if open.missing != 0 {
                        continue;
                    }
                    self.open.remove(&call).map(|open| open.results).unwrap_or_default()
                }
            };
            let response = AppendResponse {
                throttle_time_ms,
                append_responses: results,
                ..Default::default()
            };
            turn.finish(call, &response);
        }
    }

    /// The peer may do other things than before, or nothing any more, for this reason: its batches that are not with the log
    /// yet are judged by that.
    pub(super) fn change_rights(&mut self, turn: &mut Turn<'_>, rights: Result<&Gate, &Refusal>) {
        for mut job in std::mem::take(&mut self.turn) {
            let allowed = rights
                .map_err(Refusal::clone)
                .and_then(|gate| turn.check_stream(OpCode::APPEND, job.entry.stream).map(|()| gate));
            match allowed {
                Ok(gate) => {
                    job.gate = gate.clone();
                    self.turn.push(job);
                }
                Err(refusal) => self.forbidden.push(job.refuse(refusal)),
            }
        }
        if let Ok(ranges) = turn.node.ranges() {
            let mut refused = ranges.change_rights(turn.requester, rights);
            self.handle_done(turn, &mut refused, turn.now);
        }
    }

    /// Ends the calls of this turn whose timeout has passed.
    fn drop_expired(&mut self, turn: &mut Turn<'_>) {
        if self.short.is_empty() {
            return;
        }
        let now = Instant::now();
        for (call, deadline) in self.short.drain(..) {
            if now >= deadline {
                self.turn.retain(|job| job.call != call);
                self.forbidden.retain(|done| done.entry.call != call);
                self.open.remove(&call);
                turn.refuse_call(call, OpCode::APPEND, Refusal::expired());
            }
        }
    }
}

/// Counts how long the stored batches took. Those that arrived together, as most do, are counted together.
///
/// A function of its own in the program, so that what it costs can be seen: `python -m tests.bench --only counting`.
#[inline(never)]
fn count_times(turn: &Turn<'_>, done: &[AppendDone], ended: Instant) {
    let same = |one: &AppendDone, next: &AppendDone| one.entry.arrived == next.entry.arrived;
    for together in done.chunk_by(same) {
        let stored = together.iter().filter(|done| done.outcome.is_ok()).count();
        if let (1.., Some(first)) = (stored, together.first()) {
            let took = ended.saturating_duration_since(first.entry.arrived);
            let count = u64::try_from(stored).unwrap_or(u64::MAX);
            turn.node.counters.append_seconds.observe(took, count);
        }
    }
}

fn append_result(done: AppendDone, now: TimestampMs) -> AppendResult {
    let AppendDone { entry, outcome } = done;
    let result = AppendResult {
        stream_id: entry.stream,
        request_index: entry.request_index,
        stream_append_time_ms: now,
        ..AppendResult::default()
    };
    match outcome {
        Ok(stored) => AppendResult {
            base_offset: stored.base_offset,
            next_offset: Some(stored.next_offset),
            next_marks: stored.next_marks,
            duplicate: stored.duplicate,
            next_sequence: stored.next_sequence,
            ..result
        },
        Err(refused) => AppendResult {
            status: refused.refusal.into(),
            base_offset: None,
            next_offset: refused.next_offset,
            next_marks: refused.next_marks,
            next_sequence: refused.next_sequence,
            ..result
        },
    }
}

/// Reads the head of one batch and makes the job to append it.
fn read_entry(call: CallId, arrived: Instant, info: &AppendInfo, chunks: SmallVec<[Bytes; 1]>) -> AppendJob {
    let length = chunks.iter().map(Bytes::len).sum();
    let mut job = AppendJob {
        call,
        request_index: info.request_index,
        entry: AppendEntry {
            stream: info.stream_id,
            range: info.range_index,
            epoch: info.epoch,
            expected_offset: info.expected_offset,
            length,
            head: Ok(HeadFacts {
                record_count: 0,
                is_fence: false,
                columns: None,
                claim: None,
            }),
        },
        max_timestamp: TimestampMs(0),
        arrived,
        expires: None,
        gate: Gate::default(),
        chunks,
    };
    if length > sbp_record::MAX_BATCH_LENGTH {
        // The range server refuses this batch for its size, so its checksum is not computed.
        return job;
    }
    match inspect(&job.chunks, true) {
        Ok(head) => {
            let columns = (head.meta.body_encoding == BodyEncoding::ARROW).then_some(head.meta.schema_fingerprint);
            let claim = claim_of(&head);
            job.entry.head = Ok(HeadFacts {
                record_count: head.record_count,
                is_fence: head.is_fence(),
                columns,
                claim,
            });
            job.max_timestamp = largest_time(&head);
        }
        Err(error) => job.entry.head = Err(head_refusal(info, &error)),
    }
    job
}

/// The outcome of an entry that its peer may not append.
fn forbidden(call: CallId, arrived: Instant, info: &AppendInfo, refusal: Refusal) -> AppendDone {
    AppendDone {
        entry: EntryId {
            call,
            request_index: info.request_index,
            stream: info.stream_id,
            arrived,
        },
        outcome: Err(refusal.into()),
    }
}

/// Cuts a payload into the batches of its entries without copying.
struct Batches<'a> {
    chunks: std::slice::Iter<'a, Bytes>,
    rest: Bytes,
}

impl<'a> Batches<'a> {
    fn new(payload: &'a Payload) -> Self {
        Self {
            chunks: payload.chunks().iter(),
            rest: Bytes::new(),
        }
    }

    fn take(&mut self, mut length: usize) -> SmallVec<[Bytes; 1]> {
        let mut batch = SmallVec::new();
        while length > 0 {
            if self.rest.is_empty() {
                match self.chunks.next() {
                    Some(chunk) => self.rest = chunk.clone(),
                    None => break,
                }
            }
            let piece = self.rest.split_to(length.min(self.rest.len()));
            length -= piece.len();
            batch.push(piece);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_where_they_end_whatever_the_chunks() {
        let bytes: Vec<u8> = (0..100).collect();
        for chunk in [1, 3, 10, 33, 100] {
            let mut payload = Payload::new();
            for piece in bytes.chunks(chunk) {
                payload.push(Bytes::copy_from_slice(piece));
            }
            let mut batches = Batches::new(&payload);
            let mut seen = Vec::new();
            for length in [0, 1, 33, 0, 60, 6] {
                let batch = batches.take(length);
                assert!(batch.iter().all(|piece| !piece.is_empty()));
                let joined = batch.concat();
                assert_eq!(joined.len(), length, "chunks of {chunk}");
                seen.extend(joined);
            }
            assert_eq!(seen, bytes, "chunks of {chunk}");
        }
    }
}
