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
use smallvec::SmallVec;

use super::Context;
use super::completion::Completions;
use super::entries;
use super::in_flight::{InFlight, refused};
use crate::channel::slab::Slab;
use crate::channel::throttle::Window;
use crate::error::ClientError;
use crate::failure::{Cause, Failure};
use crate::features::Features;
use crate::outcome::{Ack, AppendOutcome};
use crate::submission::attempt::AttemptEnd;
use crate::submission::failed::{NextStep, after_failed_append};
use crate::submission::{AppendEntry, AppendOp, AppendResultOf, Body, Submissions};

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
        user: u32,
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
            user: u64::from(user),
            deadline: Some(op.deadline),
            receive_charge: 0,
        };
        session.send_request(now, outgoing).map(|_call| ())
    }
}

/// All appends of one connection.
pub(super) struct AppendPipeline {
    batches: Slab<Batch>,
    /// Batches with appends that have not been given to the session, in order.
    queue: VecDeque<u32>,
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
    pub(super) fn new() -> Self {
        Self {
            batches: Slab::new(),
            queue: VecDeque::new(),
            queue_deadline: None,
            calls: 0,
            bytes: 0,
            writing: RequestWriter::default(),
            completions: Completions::new(),
            unsent: Submissions::new(),
            released: (0, 0),
            stored: false,
            paused_until: None,
            window: Window::new(),
        }
    }

    /// Appends that were given to the session and are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.calls
    }

    /// Whether no append is left at all.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.len() == 0
    }

    /// Takes submissions over; they are sent by [`Self::send`].
    pub(super) fn accept(&mut self, submissions: Submissions) {
        if submissions.ops.is_empty() {
            return;
        }
        let earliest = submissions.ops.iter().map(|op| op.deadline).min();
        self.queue_deadline = [self.queue_deadline, earliest].into_iter().flatten().min();
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
        [self.queue_deadline, self.paused_until].into_iter().flatten().min()
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
            if let Some(cause) = obstacle(op, features) {
                let index = batch.next;
                batch.next += 1;
                self.fail(context, key, index, cause, None);
                continue;
            }
            let index = batch.next;
            batch.next += 1;
            let user = calls.insert(InFlight::Append {
                batch: key,
                op: to_u32(index),
                sent: now,
                results: Vec::new(),
            });
            match self.writing.send(session, op, &batch.submissions.arena, user, now) {
                Ok(()) => {
                    self.calls += 1;
                    self.bytes += bytes;
                    context.counters.add_call(bytes);
                }
                Err(error) => {
                    calls.remove(user);
                    if let Some(cause) = super::send_failure(&error) {
                        self.fail(context, key, index, cause, None);
                    } else {
                        // The session takes no more: what waits here goes to the next connection.
                        if let Some(batch) = self.batches.get_mut(key) {
                            batch.next = index;
                        }
                        return;
                    }
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
        batch: u32,
        op: u32,
        results: Vec<AppendResult>,
        answer: Result<AppendResponse, Cause>,
    ) {
        let index = to_usize(op);
        let in_flight = self.calls;
        self.left_session(batch, index);
        if let Ok(answer) = &answer {
            self.window.note(answer.throttle_time_ms, in_flight, now);
            context
                .channel
                .throttles
                .note(OpCode::APPEND, answer.throttle_time_ms, now);
        }
        let mut answer = match answer {
            Ok(answer) if answer.status.is_success() => answer,
            Ok(answer) => {
                let cause = refused(&answer.status, answer.throttle_time_ms);
                return self.fail(context, batch, index, cause, None);
            }
            Err(cause) => return self.fail(context, batch, index, cause, None),
        };
        if !results.is_empty() {
            answer.append_responses.insert_many(0, results);
        }
        let Some(found) = self
            .batches
            .get_mut(batch)
            .and_then(|batch| batch.submissions.ops.get(index))
        else {
            return;
        };
        if found.reply.is_attempt() {
            return self.attempts_answered(context, batch, index, &answer);
        }
        // An append with one entry whose refusal may pass is as good as one that was refused as a whole.
        if let ([result], [_]) = (answer.append_responses.as_slice(), found.entries.as_slice())
            && !result.status.is_success()
        {
            let cause = refused(&result.status, answer.throttle_time_ms);
            return self.fail(context, batch, index, cause, Some(result));
        }
        self.stored = true;
        match outcome(found, &answer, context) {
            Ok(outcome) => match entries::to_repeat(found, &answer, now) {
                Some(repeats) => self.repeat_entries(context, batch, index, outcome, repeats),
                None => self.finish(context, batch, index, Ok(outcome)),
            },
            Err(cause) => self.fail(context, batch, index, cause, None),
        }
    }

    /// Tells writers what became of each entry, at the end of the turn.
    fn attempts_answered(&mut self, context: &Context, key: u32, index: usize, answer: &AppendResponse) {
        let Some(op) = self
            .batches
            .get_mut(key)
            .and_then(|batch| batch.submissions.ops.get_mut(index))
        else {
            return;
        };
        let results = match in_order(&op.entries, answer) {
            Ok(results) => results,
            Err(cause) => return self.fail(context, key, index, cause, None),
        };
        self.stored |= results.iter().any(|result| result.status.is_success());
        self.released.0 += 1;
        self.released.1 += op.bytes();
        let reply = op.reply.replace_with_told();
        let ends = op.entries.iter().zip(results).map(|(entry, result)| {
            if result.status.is_success() {
                return AttemptEnd::stored(acknowledged(entry, result, context), result);
            }
            let cause = refused(&result.status, answer.throttle_time_ms);
            let next_offset = Some(result.next_offset).filter(|next| next.0 >= 0);
            let failure = Failure::new(cause, Some(&context.endpoint)).at(next_offset);
            AttemptEnd::refused(failure, Some(result))
        });
        self.completions.push_attempts(reply, ends);
        self.forget(context, key);
    }

    /// Some entries were refused for the moment: they are made again by themselves, and their caller is told when the
    /// last one is over.
    fn repeat_entries(
        &mut self,
        context: &Context,
        key: u32,
        index: usize,
        outcome: AppendOutcome,
        repeats: Vec<(usize, Cause)>,
    ) {
        let Some(batch) = self.batches.get_mut(key) else { return };
        let Some(op) = batch.submissions.ops.get_mut(index) else {
            return;
        };
        let moved = take_op(op);
        entries::repeat(context, moved, &batch.submissions.arena, outcome, repeats);
        self.forget(context, key);
    }

    /// An append ended in the session without an answer.
    pub(super) fn failed(&mut self, context: &Context, batch: u32, op: u32, cause: Cause) {
        let index = to_usize(op);
        self.left_session(batch, index);
        self.fail(context, batch, index, cause, None);
    }

    fn left_session(&mut self, batch: u32, index: usize) {
        let op = self
            .batches
            .get_mut(batch)
            .and_then(|batch| batch.submissions.ops.get(index));
        self.bytes = self.bytes.saturating_sub(op.map_or(0, AppendOp::bytes));
        self.calls = self.calls.saturating_sub(1);
    }

    /// Decides about an append that failed: told to its caller, or tried again. A writer decides itself.
    fn fail(&mut self, context: &Context, key: u32, index: usize, cause: Cause, told: Option<&AppendResult>) {
        let Some(batch) = self.batches.get_mut(key) else { return };
        let Some(op) = batch.submissions.ops.get_mut(index) else {
            return;
        };
        op.attempts += 1;
        let next_offset = told.map(|result| result.next_offset).filter(|next| next.0 >= 0);
        let failure = Failure::new(cause, Some(&context.endpoint)).at(next_offset);
        if op.reply.is_attempt() {
            return self.fail_attempts(context, key, index, &failure);
        }
        let channel = &context.channel;
        let failure = op.reason(failure);
        let is_refusal = matches!(failure.cause, Cause::Refused { .. });
        let step = after_failed_append(
            &failure,
            op.attempts,
            op.deadline,
            &channel.config.retry,
            &channel.retries,
        );
        let stream = op.entries.first().map(|entry| entry.stream);
        match step {
            NextStep::Fail(error) => {
                let error = match stream {
                    Some(stream) if op.entries.len() == 1 => error.with_stream(stream),
                    _ => error,
                };
                self.finish(context, key, index, Err(error));
            }
            NextStep::NextConnection => {
                let moved = take_op(op);
                self.unsent.adopt(moved, &batch.submissions.arena);
                self.forget(context, key);
            }
            NextStep::After { wait, elsewhere } => {
                op.refusal = is_refusal.then(|| Box::new(failure));
                let moved = take_op(op);
                let mut again = Submissions::new();
                again.adopt(moved, &batch.submissions.arena);
                context.channel.clone().resubmit_after(again, wait, elsewhere);
                self.forget(context, key);
            }
            NextStep::Reroute { wait } => {
                op.refusal = is_refusal.then(|| Box::new(failure));
                let moved = take_op(op);
                let mut again = Submissions::new();
                again.adopt(moved, &batch.submissions.arena);
                context.channel.clone().reroute(again, wait);
                self.forget(context, key);
            }
        }
    }

    /// Tells writers that the attempts at all entries failed, at the end of the turn.
    fn fail_attempts(&mut self, context: &Context, key: u32, index: usize, failure: &Failure) {
        let Some(batch) = self.batches.get_mut(key) else { return };
        let Some(op) = batch.submissions.ops.get_mut(index) else {
            return;
        };
        self.released.0 += 1;
        self.released.1 += op.bytes();
        let reply = op.reply.replace_with_told();
        let ends = std::iter::repeat_with(|| AttemptEnd::failed(failure.clone()));
        self.completions.push_attempts(reply, ends);
        self.forget(context, key);
    }

    /// Tells an append's outcome, at the end of the turn.
    fn finish(&mut self, context: &Context, key: u32, index: usize, result: AppendResultOf) {
        let Some(batch) = self.batches.get_mut(key) else { return };
        let Some(op) = batch.submissions.ops.get_mut(index) else {
            return;
        };
        self.released.0 += 1;
        self.released.1 += op.bytes();
        let reply = op.reply.replace_with_told();
        self.completions.push(reply, result);
        self.forget(context, key);
    }

    /// One append less in a batch; the last one returns the batch's memory.
    fn forget(&mut self, context: &Context, key: u32) {
        let Some(batch) = self.batches.get_mut(key) else { return };
        batch.remaining = batch.remaining.saturating_sub(1);
        if batch.remaining == 0
            && let Some(batch) = self.batches.remove(key)
        {
            self.queue.retain(|&queued| queued != key);
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
                    expired.push((key, index));
                } else {
                    earliest = [earliest, Some(op.deadline)].into_iter().flatten().min();
                }
            }
        }
        for (key, index) in expired {
            self.fail(context, key, index, Cause::deadline(false), None);
        }
        self.queue_deadline = earliest;
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
        context.counters.add_completions(told);
    }

    /// Moves what is still in the queue behind the appends that came back unsent.
    fn leave_queue(&mut self, context: &Context) {
        while let Some(key) = self.queue.pop_front() {
            let Some(batch) = self.batches.get_mut(key) else {
                continue;
            };
            let from = batch.next;
            batch.next = batch.submissions.ops.len();
            // Writers send theirs again, in order with what was under way.
            let of_writers: Vec<usize> = (from..batch.submissions.ops.len())
                .filter(|&index| batch.submissions.ops.get(index).is_some_and(|op| op.reply.is_attempt()))
                .collect();
            for index in of_writers {
                self.fail(context, key, index, Cause::NotStarted, None);
            }
            let Some(batch) = self.batches.get_mut(key) else {
                continue;
            };
            let mut moved = 0;
            for index in from..batch.submissions.ops.len() {
                let Some(op) = batch.submissions.ops.get_mut(index) else {
                    break;
                };
                if !op.reply.is_told() {
                    let op = take_op(op);
                    self.unsent.adopt(op, &batch.submissions.arena);
                    moved += 1;
                }
            }
            for _ in 0..moved {
                self.forget(context, key);
            }
        }
    }
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
        refusal: op.refusal.take(),
    }
}

/// The request's header fields; the vector's memory is used again.
fn fill_request(request: &mut AppendRequest, op: &AppendOp, now: Instant) {
    let left = op.deadline.saturating_duration_since(now).as_millis();
    request.timeout_ms = i32::try_from(left).unwrap_or(i32::MAX).max(1);
    request.append_requests.clear();
    for (index, entry) in op.entries.iter().enumerate() {
        request.append_requests.push(AppendInfo {
            stream_id: entry.stream,
            request_index: i32::try_from(index).unwrap_or(i32::MAX),
            batch_length: i32::try_from(entry.body.len()).unwrap_or(i32::MAX),
            range_index: None,
            epoch: None,
            expected_offset: entry.expected_offset,
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
    // A repeat from before the server's window has a place that is forgotten.
    let base = result.base_offset.0;
    let records = if base < 0 && entry.records > 0 {
        1
    } else {
        i64::from(entry.records)
    };
    Ack {
        stream: entry.stream,
        base_offset: result.base_offset,
        last_offset: Offset(base.saturating_add(records).saturating_sub(1)),
        next_offset: result.next_offset,
        append_time: result.stream_append_time_ms,
        durability: context.durability(),
        duplicate: result.duplicate,
    }
}

/// What became of each entry, in the order of the entries.
fn outcome(op: &AppendOp, answer: &AppendResponse, context: &Context) -> Result<AppendOutcome, Cause> {
    let mut entries = SmallVec::new();
    for (entry, result) in op.entries.iter().zip(in_order(&op.entries, answer)?) {
        if result.status.is_success() {
            entries.push(Ok(acknowledged(entry, result, context)));
        } else {
            let status = &result.status;
            let message = if status.message.is_empty() {
                status.code.name()
            } else {
                &status.message
            };
            let error = ClientError::entry(status.code, message, Some(&context.endpoint)).with_stream(entry.stream);
            entries.push(Err(match result.next_offset {
                // Where the stream is, for a caller whose condition was another place.
                next if next.0 >= 0 => error.with_offset(next),
                _ => error,
            }));
        }
    }
    Ok(AppendOutcome { entries })
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn to_usize(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
