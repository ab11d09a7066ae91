//! The append pipeline: appends from their submissions to the session, and their answers to those who wait.
//!
//! In steady state a frame allocates nothing: the header is encoded into a buffer that is used again, small bodies are
//! copied from the submissions' arena straight into the session's write queue, large ones go by reference, and the
//! submissions themselves return to their pool when the last of their appends has been answered.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;
use sbp_frame::{OpCode, PayloadPart};
use sbp_messages::{AppendInfo, AppendRequest, AppendResponse, AppendResult, Encoder, Message};
use sbp_session::{Outgoing, SendError, Session};
use sbp_types::Offset;
use slab::Slab;
use smallvec::SmallVec;

use super::Context;
use super::completion::Completions;
use super::entries;
use super::in_flight::{AppendId, InFlight, token};
use crate::channel::header::millis;
use crate::channel::throttle::Window;
use crate::clock::earlier;
use crate::error::ClientError;
use crate::failure::{Cause, fencing_epoch};
use crate::features::Features;
use crate::outcome::{Ack, AppendOutcome};
use crate::submission::attempt::AttemptEnd;
use crate::submission::failed::{NextStep, after_failed_append};
use crate::submission::{AppendEntry, AppendOp, AppendResultOf, Body, Reply, Submissions};

/// Zeros for padding behind bodies that go by reference.
static ZEROS: [u8; 16] = [0; 16];

/// Submissions of which some appends are not over.
struct Batch {
    submissions: Submissions,
    /// The first append that has not been given to the session.
    next: usize,
    /// Appends that are not over.
    remaining: usize,
}

/// Writes APPEND requests, with memory that is used again.
#[derive(Default)]
struct RequestWriter {
    encoder: Encoder,
    request: AppendRequest,
    header: BytesMut,
}

impl RequestWriter {
    /// Gives the session one append, whose bodies lie in `arena`.
    fn send(
        &mut self,
        session: &mut Session,
        op: &AppendOp,
        arena: &[u8],
        call: usize,
        now: Instant,
    ) -> Result<(), SendError> {
        fill_request(&mut self.request, op, now);
        self.header.clear();
        self.request.encode(&mut self.encoder, &mut self.header);
        let parts = payload_parts(op, arena);
        let outgoing = Outgoing {
            opcode: AppendRequest::OPCODE,
            header: &self.header,
            payload: &parts,
            user: token(call),
            deadline: Some(op.deadline),
            receive_charge: 0,
        };
        session.send_request(now, outgoing).map(drop)
    }
}

/// All appends of one connection.
#[derive(Default)]
pub(super) struct AppendPipeline {
    batches: Slab<Batch>,
    /// Batches with appends that have not been given to the session, in order.
    queue: VecDeque<usize>,
    /// No append in the queue has an earlier deadline. May be too early after appends have left the queue.
    queue_deadline: Option<Instant>,
    /// Appends given to the session and not answered, and their bytes.
    calls: usize,
    bytes: usize,
    writing: RequestWriter,
    completions: Completions,
    /// Appends of which nothing was sent or started here: they go to another connection, before all that came later.
    unsent: Submissions,
    /// Appends and bytes that ended in this turn.
    released: (usize, usize),
    /// Something was stored in this turn.
    stored: bool,
    /// The server asked for a pause, which keeps the queue waiting.
    paused_until: Option<Instant>,
    /// How many of them the server is given at once.
    window: Window,
}

impl AppendPipeline {
    /// Appends that were given to the session and are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.calls
    }

    /// Whether no append is left at all.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes submissions over; they are sent by [`Self::send`].
    pub(super) fn accept(&mut self, mut submissions: Submissions, now: Instant) {
        if submissions.ops.is_empty() {
            return;
        }
        // A writer's are submitted here.
        submissions.submitted(now);
        let earliest = submissions.ops.iter().map(|op| op.deadline).min();
        self.queue_deadline = earlier(self.queue_deadline, earliest);
        let remaining = submissions.ops.len();
        let key = self.batches.insert(Batch {
            submissions,
            next: 0,
            remaining,
        });
        self.queue.push_back(key);
    }

    /// When the first append in the queue may expire, or when the pause that the server asked for is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.queue.is_empty() {
            return None;
        }
        earlier(self.queue_deadline, self.paused_until)
    }

    /// Gives the session as much of the queue as both sides' budgets allow.
    pub(super) fn send(
        &mut self,
        context: &Context,
        session: &mut Session,
        calls: &mut Slab<InFlight>,
        features: Option<&Features>,
        now: Instant,
    ) {
        let config = &context.channel.config;
        // Nothing that must not be done twice goes to a server that has not shown that it serves: a listener that is closed
        // resets connections that it never accepted, and nobody knows then what became of requests.
        let Some(features) = features else { return };
        let max_calls = config.max_calls.min(features.max_calls);
        let window = self.window.calls();
        let max_bytes = config.send_credit.min(features.max_bytes);
        self.paused_until = context.channel.throttles.until(OpCode::APPEND, now);
        if self.paused_until.is_some() {
            return;
        }
        while let Some(&key) = self.queue.front() {
            let Some(batch) = self.batches.get_mut(key) else {
                self.queue.pop_front();
                continue;
            };
            let Some(op) = batch.submissions.ops.get(batch.next) else {
                self.queue.pop_front();
                continue;
            };
            if op.reply.is_told() {
                batch.next += 1;
                continue;
            }
            let bytes = op.bytes();
            if calls.len() >= max_calls
                || self.calls >= window
                || (self.bytes > 0 && self.bytes.saturating_add(bytes) > max_bytes)
            {
                return;
            }
            let id = AppendId {
                batch: key,
                op: batch.next,
            };
            batch.next += 1;
            if let Some(cause) = obstacle(op, features) {
                self.fail(context, id, cause, None);
                continue;
            }
            let (sent, results) = (now, Vec::new());
            let call = calls.insert(InFlight::Append { id, sent, results });
            match self.writing.send(session, op, &batch.submissions.arena, call, now) {
                Ok(()) => {
                    self.calls += 1;
                    self.bytes += bytes;
                    context.channel.counters.add_call(bytes);
                }
                Err(error) => {
                    calls.try_remove(call);
                    let Some(cause) = super::send_failure(&error) else {
                        // The session takes no more: what waits here goes to the next connection.
                        batch.next = id.op;
                        return;
                    };
                    self.fail(context, id, cause, None);
                }
            }
        }
        self.queue_deadline = None;
    }

    /// Judges the whole answer to an append.
    pub(super) fn answered(
        &mut self,
        context: &Context,
        now: Instant,
        id: AppendId,
        results: Vec<AppendResult>,
        answer: Result<AppendResponse, Cause>,
    ) {
        let in_flight = self.calls;
        self.left_session(id);
        if let Ok(answer) = &answer {
            self.window.note(answer.throttle_time_ms, in_flight, now);
            let throttles = &context.channel.throttles;
            throttles.note(OpCode::APPEND, answer.throttle_time_ms, now);
        }
        let mut answer = match answer {
            Ok(answer) if answer.status.is_success() => answer,
            Ok(answer) => {
                let cause = Cause::refused(&answer.status, answer.throttle_time_ms);
                return self.fail(context, id, cause, None);
            }
            Err(cause) => return self.fail(context, id, cause, None),
        };
        if !results.is_empty() {
            answer.append_responses.insert_many(0, results);
        }
        let Some(op) = find(&mut self.batches, id) else { return };
        if op.reply.is_attempt() {
            return self.attempts_answered(context, now, id, &answer);
        }
        // An append with one entry whose refusal may pass is as good as one that was refused as a whole.
        if let ([result], [_]) = (answer.append_responses.as_slice(), op.entries.as_slice())
            && !result.status.is_success()
        {
            let cause = Cause::refused(&result.status, answer.throttle_time_ms);
            return self.fail(context, id, cause, Some(result));
        }
        self.stored = true;
        match outcome(op, &answer, context) {
            Ok(outcome) => match entries::to_repeat(op, &answer, now) {
                // Some entries were refused for the moment: they are made again by themselves, and their caller is told
                // when the last one is over.
                Some(repeats) => {
                    let moved = take_op(op);
                    let arena = self.batches.get(id.batch).map(|batch| &batch.submissions.arena);
                    let arena = arena.map_or(&[][..], |arena| arena);
                    entries::repeat(context, moved, arena, outcome, repeats);
                    self.forget(context, id);
                }
                None => {
                    count_time(context, op, now);
                    self.finish(context, id, Ok(outcome));
                }
            },
            Err(cause) => self.fail(context, id, cause, None),
        }
    }

    /// Tells writers what became of each entry, at the end of the turn.
    fn attempts_answered(&mut self, context: &Context, now: Instant, id: AppendId, answer: &AppendResponse) {
        let Some(op) = find(&mut self.batches, id) else { return };
        let results = match in_order(&op.entries, answer) {
            Ok(results) => results,
            Err(cause) => return self.fail(context, id, cause, None),
        };
        if results.iter().any(|result| result.status.is_success()) {
            self.stored = true;
            count_time(context, op, now);
        }
        let reply = release(op, &mut self.released);
        let ends = op.entries.iter().zip(results).map(|(entry, result)| {
            if result.status.is_success() {
                return AttemptEnd::stored(acknowledged(entry, result, context), result);
            }
            let cause = Cause::refused(&result.status, answer.throttle_time_ms);
            AttemptEnd::refused(context.failure(cause).at(told_offset(result)), Some(result))
        });
        self.completions.push_attempts(reply, ends);
        self.forget(context, id);
    }

    /// Whether others can go on with an append.
    pub(super) fn is_held_elsewhere(&self, context: &Context, id: AppendId) -> bool {
        let batch = self.batches.get(id.batch);
        let op = batch.and_then(|batch| batch.submissions.ops.get(id.op));
        op.is_some_and(|op| context.channel.is_held_elsewhere(op))
    }

    /// An append ended in the session without an answer.
    pub(super) fn failed(&mut self, context: &Context, id: AppendId, cause: Cause) {
        self.left_session(id);
        self.fail(context, id, cause, None);
    }

    fn left_session(&mut self, id: AppendId) {
        let bytes = find(&mut self.batches, id).map_or(0, |op| op.bytes());
        self.bytes = self.bytes.saturating_sub(bytes);
        self.calls = self.calls.saturating_sub(1);
    }

    /// Decides about an append that failed: told to its caller, or tried again. A writer decides itself.
    fn fail(&mut self, context: &Context, id: AppendId, cause: Cause, told: Option<&AppendResult>) {
        let Some(op) = find(&mut self.batches, id) else { return };
        op.attempts += 1;
        let fenced_by = told.and_then(|told| fencing_epoch(&told.status));
        let failure = context
            .failure(cause)
            .at(told.and_then(told_offset))
            .fenced_by(fenced_by);
        if op.reply.is_attempt() {
            let reply = release(op, &mut self.released);
            let ends = std::iter::repeat_with(|| AttemptEnd::failed(failure.clone()));
            self.completions.push_attempts(reply, ends);
            return self.forget(context, id);
        }
        let channel = &context.channel;
        channel.note_failed(op, &failure.cause);
        let failure = op.reason(failure);
        let step = after_failed_append(
            &failure,
            op.attempts,
            op.deadline,
            &channel.config.retry,
            &channel.retries,
        );
        match step {
            NextStep::Fail(error) => {
                let error = match op.entries.as_slice() {
                    [entry] => error.with_stream(entry.stream),
                    _ => error,
                };
                self.finish(context, id, Err(error));
            }
            NextStep::NextConnection => self.leave(context, id),
            NextStep::Again { wait, at } => {
                let is_refusal = matches!(failure.cause, Cause::Refused { .. });
                op.refusal = is_refusal.then(|| Box::new(failure));
                let mut again = Submissions::new();
                move_op(&mut self.batches, id, &mut again);
                channel.clone().submit_again(again, wait, at);
                self.forget(context, id);
            }
        }
    }

    /// Tells an append's outcome, at the end of the turn.
    fn finish(&mut self, context: &Context, id: AppendId, result: AppendResultOf) {
        let Some(op) = find(&mut self.batches, id) else { return };
        let reply = release(op, &mut self.released);
        self.completions.push(reply, result);
        self.forget(context, id);
    }

    /// Leaves an append to the next connection, before all that came later.
    fn leave(&mut self, context: &Context, id: AppendId) {
        move_op(&mut self.batches, id, &mut self.unsent);
        self.forget(context, id);
    }

    /// An append has left its batch. When it was the last one, the batch's memory is used again.
    fn forget(&mut self, context: &Context, id: AppendId) {
        let Some(batch) = self.batches.get_mut(id.batch) else {
            return;
        };
        batch.remaining = batch.remaining.saturating_sub(1);
        if batch.remaining == 0
            && let Some(batch) = self.batches.try_remove(id.batch)
        {
            self.queue.retain(|&queued| queued != id.batch);
            context.channel.recycle(batch.submissions);
        }
    }

    /// Fails the appends in the queue whose time is over; nothing of them was sent.
    pub(super) fn expire(&mut self, context: &Context, now: Instant) {
        let mut earliest = None;
        let mut expired = Vec::new();
        for &key in &self.queue {
            let Some(batch) = self.batches.get_mut(key) else {
                continue;
            };
            for (index, op) in batch.submissions.ops.iter().enumerate().skip(batch.next) {
                if op.reply.is_told() {
                    continue;
                }
                if op.deadline <= now {
                    expired.push(AppendId { batch: key, op: index });
                } else {
                    earliest = earlier(earliest, Some(op.deadline));
                }
            }
        }
        for id in expired {
            self.fail(context, id, Cause::deadline(false), None);
        }
        self.queue_deadline = earliest;
    }

    /// Ends all that were not given to the session, because no server would take them.
    pub(super) fn fail_waiting(&mut self, context: &Context, cause: &Cause) {
        let mut waiting = Vec::new();
        for &key in &self.queue {
            let Some(batch) = self.batches.get(key) else { continue };
            waiting.extend((batch.next..batch.submissions.ops.len()).map(|op| AppendId { batch: key, op }));
        }
        for id in waiting {
            if find(&mut self.batches, id).is_some_and(|op| !op.reply.is_told()) {
                self.fail(context, id, cause.clone(), None);
            }
        }
    }

    /// Delivers what the turn completed, and gives the channel what must go on elsewhere. With `leave`, the whole queue too.
    pub(super) fn finish_turn(&mut self, context: &Context, leave: bool) {
        if leave {
            self.leave_queue(context);
        }
        if !self.unsent.is_empty() {
            context.channel.requeue(std::mem::take(&mut self.unsent));
        }
        if self.released.0 > 0 {
            context.channel.budget.release(self.released.0, self.released.1);
            self.released = (0, 0);
        }
        if std::mem::take(&mut self.stored) {
            context.channel.retries.refund();
        }
        let told = self.completions.deliver();
        context.channel.counters.add_completions(told);
    }

    /// Moves what is still in the queue behind the appends that came back unsent.
    fn leave_queue(&mut self, context: &Context) {
        while let Some(key) = self.queue.pop_front() {
            let Some(batch) = self.batches.get_mut(key) else {
                continue;
            };
            let waiting = batch.next..batch.submissions.ops.len();
            batch.next = waiting.end;
            for op in waiting {
                let id = AppendId { batch: key, op };
                match find(&mut self.batches, id) {
                    Some(op) if op.reply.is_told() => {}
                    // Writers send theirs again, in order with what was under way.
                    Some(op) if op.reply.is_attempt() => self.fail(context, id, Cause::NotStarted, None),
                    Some(_) => self.leave(context, id),
                    None => break,
                }
            }
        }
    }
}

/// Counts how long an append took that is stored now.
///
/// A function of its own in the program, so that what it costs can be seen: `python -m tests.bench --only counting`.
#[inline(never)]
fn count_time(context: &Context, op: &AppendOp, now: Instant) {
    let since = op.since.unwrap_or(now);
    let histogram = &context.channel.counters.took.append;
    histogram.observe(now.saturating_duration_since(since), 1);
}

fn find(batches: &mut Slab<Batch>, id: AppendId) -> Option<&mut AppendOp> {
    batches.get_mut(id.batch)?.submissions.ops.get_mut(id.op)
}

/// Counts an append that is over among those that ended in this turn, and takes its reply.
fn release(op: &mut AppendOp, released: &mut (usize, usize)) -> Reply {
    released.0 += 1;
    released.1 += op.bytes();
    op.reply.replace_with_told()
}

/// Moves an append over to others.
fn move_op(batches: &mut Slab<Batch>, id: AppendId, to: &mut Submissions) {
    if let Some(Submissions { ops, arena }) = batches.get_mut(id.batch).map(|batch| &mut batch.submissions)
        && let Some(op) = ops.get_mut(id.op)
    {
        to.adopt(take_op(op), arena);
    }
}

/// Where a stream is, when a result says so.
fn told_offset(result: &AppendResult) -> Option<Offset> {
    result.next_offset.filter(|next| *next >= Offset::ZERO)
}

/// Why an append can never be sent to a server with these features.
fn obstacle(op: &AppendOp, features: &Features) -> Option<Cause> {
    let conditional = op.entries.iter().any(|entry| entry.expected_offset.is_some());
    let lacking = |feature| Some(Cause::Unsupported { feature });
    if conditional && !features.conditional_append {
        return lacking(sbp_messages::features::CONDITIONAL_APPEND);
    }
    if op.reply.is_attempt() && features.idempotence.is_none() {
        return lacking(sbp_messages::features::IDEMPOTENCE);
    }
    if op.entries.iter().any(|entry| entry.is_fence) && !features.fence {
        return lacking(sbp_messages::features::FENCE);
    }
    None
}

fn take_op(op: &mut AppendOp) -> AppendOp {
    AppendOp {
        entries: std::mem::take(&mut op.entries),
        deadline: op.deadline,
        reply: op.reply.replace_with_told(),
        attempts: op.attempts,
        since: op.since,
        refusal: op.refusal.take(),
    }
}

/// The request's header fields; the vector's memory is used again.
fn fill_request(request: &mut AppendRequest, op: &AppendOp, now: Instant) {
    request.timeout_ms = millis(op.deadline.saturating_duration_since(now));
    request.append_requests.clear();
    for (index, entry) in op.entries.iter().enumerate() {
        request.append_requests.push(AppendInfo {
            stream_id: entry.stream,
            request_index: i32::try_from(index).unwrap_or(i32::MAX),
            batch_length: i32::try_from(entry.body.len()).unwrap_or(i32::MAX),
            range_index: None,
            epoch: None,
            expected_offset: entry.expected_offset,
            ..AppendInfo::default()
        });
    }
}

fn payload_parts<'a>(op: &AppendOp, arena: &'a [u8]) -> SmallVec<[PayloadPart<'a>; 6]> {
    let mut parts = SmallVec::new();
    for entry in &op.entries {
        match &entry.body {
            Body::Copied(range) => parts.push(PayloadPart::Copy(arena.get(range.clone()).unwrap_or_default())),
            Body::Shared { head, body, padding } => {
                parts.push(PayloadPart::Copy(arena.get(head.clone()).unwrap_or_default()));
                parts.push(PayloadPart::Share(body.clone()));
                parts.push(PayloadPart::Copy(ZEROS.get(..*padding).unwrap_or_default()));
            }
        }
    }
    parts
}

/// The results in the order of the entries. Each entry must have exactly one.
fn in_order<'a>(entries: &[AppendEntry], answer: &'a AppendResponse) -> Result<SmallVec<[&'a AppendResult; 4]>, Cause> {
    let results = &answer.append_responses;
    let missing = || Cause::Protocol {
        what: format!("{} entries of an append got {} results", entries.len(), results.len()),
    };
    if results.len() != entries.len() {
        return Err(missing());
    }
    let of_entry = |index: usize| {
        let wanted = i32::try_from(index).unwrap_or(i32::MAX);
        // Results mostly come in order, so the search ends at once.
        let mut candidates = results.iter().cycle().skip(index).take(results.len());
        candidates.find(|result| result.request_index == wanted)
    };
    let ordered = (0..entries.len()).map(|index| of_entry(index).ok_or_else(missing));
    ordered.collect()
}

/// What is known of a batch that is stored.
fn acknowledged(entry: &AppendEntry, result: &AppendResult, context: &Context) -> Ack {
    Ack {
        stream: entry.stream,
        // A repeat from before the server's window has a place that is forgotten.
        base_offset: result.base_offset.filter(|base| *base >= Offset::ZERO),
        records: entry.records,
        next_offset: result.next_offset,
        append_time: result.stream_append_time_ms,
        durability: context.durability(),
        duplicate: result.duplicate,
        next_sequence: result.next_sequence.filter(|sequence| *sequence >= 0),
    }
}

/// What became of each entry, in the order of the entries.
fn outcome(op: &AppendOp, answer: &AppendResponse, context: &Context) -> Result<AppendOutcome, Cause> {
    let mut entries = SmallVec::new();
    for (entry, result) in op.entries.iter().zip(in_order(&op.entries, answer)?) {
        if result.status.is_success() {
            entries.push(Ok(acknowledged(entry, result, context)));
        } else {
            let error = ClientError::entry(&result.status, Some(&context.endpoint)).with_stream(entry.stream);
            // Where the stream is, for a caller whose condition was another place.
            entries.push(Err(told_offset(result)
                .into_iter()
                .fold(error, ClientError::with_offset)));
        }
    }
    Ok(AppendOutcome { entries })
}
