//! The FETCHes of one connection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::{DecodeError, ErrorCode, FetchRequest, FetchResponse, Message, Status};
use sbp_types::StreamId;
use smallvec::SmallVec;

use super::call::FetchCall;
use super::frames::send_results;
use crate::access::Direction;
use crate::connection::handle::Turn;
use crate::node::Node;
use crate::range::{ReadDone, ReadJob, Requester};

/// So many deadlines are kept without a look whether their calls have ended.
const KEPT_DEADLINES: usize = 64;

/// The FETCHes of one connection that are not completely answered.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    calls: HashMap<CallId, FetchCall>,
    /// The calls that wait for each stream. A stream is a key here exactly while this connection is registered for it.
    waiting: HashMap<StreamId, SmallVec<[CallId; 2]>>,
    /// The deadlines of waiting calls. Deadlines of calls that have ended are skipped.
    deadlines: BinaryHeap<Reverse<(Instant, CallId)>>,
    /// Calls that wait until the peer has taken earlier answers, in the order in which they go on.
    stalled: VecDeque<CallId>,
    /// The bytes that reads under way on reader threads may bring into memory.
    reading: usize,
}

impl Fetches {
    /// Takes a request, and answers what can be answered at once.
    pub(crate) fn handle_request(&mut self, turn: &mut Turn<'_>, frame: &Frame) -> Result<(), DecodeError> {
        let request = FetchRequest::decode(&frame.header)?;
        request.validate()?;
        if let Some(withdrawn) = request.withdrawn() {
            self.withdraw(turn, withdrawn);
            turn.finish(frame.call_id, &FetchResponse::default());
            return Ok(());
        }
        if let Some(presence) = &turn.replier.presence
            && let Err(refusal) = presence.check_out(turn.now)
        {
            refuse(turn, frame.call_id, refusal.into());
            return Ok(());
        }
        let mut call = FetchCall::new(&request, turn.now);
        if !turn.gate.is_open() {
            call.refuse_entries(|stream| turn.check_stream(OpCode::FETCH, stream));
        }
        self.calls.insert(frame.call_id, call);
        self.advance(turn, frame.call_id);
        Ok(())
    }

    /// Ends a call whose answers the peer does not want any more, with results without data. Any other number, also one
    /// of another operation, is no call of these, and nothing happens.
    fn withdraw(&mut self, turn: &mut Turn<'_>, raw_call_id: u32) {
        let Some(call) = CallId::from_raw(raw_call_id) else {
            return;
        };
        if let Some(state) = self.calls.get_mut(&call) {
            state.end_without_data(turn.now);
            self.advance(turn, call);
        }
    }

    /// Streams that calls wait for have changed.
    pub(crate) fn handle_advanced(&mut self, turn: &mut Turn<'_>, streams: &[StreamId], arrived: Option<Instant>) {
        let mut calls: Vec<CallId> = streams
            .iter()
            .flat_map(|stream| self.waiting.remove(stream).unwrap_or_default())
            .collect();
        // A call that waits for several of the streams is judged once.
        calls.sort_unstable();
        calls.dedup();
        for call in calls {
            if let Some(state) = self.calls.get_mut(&call) {
                state.notice(streams);
                state.arrived = state.arrived.or(arrived);
            }
            self.advance(turn, call);
        }
    }

    /// A reader thread has finished a read.
    pub(crate) fn handle_read(&mut self, turn: &mut Turn<'_>, call: CallId, done: ReadDone) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        self.reading = self.reading.saturating_sub(state.reading.take().unwrap_or(0));
        state.handle_read(done);
        // The data is in memory now. Queued for sending, it counts against the limit of untaken answers at once, even
        // if the call itself has to wait its turn.
        self.send(turn, call);
        self.advance(turn, call);
    }

    /// The earliest deadline of a waiting call.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Answers the calls whose deadline has passed.
    pub(crate) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        while let Some(Reverse((deadline, call))) = self.deadlines.peek().copied() {
            if deadline > turn.now {
                break;
            }
            self.deadlines.pop();
            // A deadline may belong to an earlier call with the same id.
            if self.calls.get(&call).is_some_and(|state| state.deadline <= turn.now) {
                self.advance(turn, call);
            }
        }
    }

    /// Goes on with the calls that waited for the peer to take earlier answers.
    pub(crate) fn finish_turn(&mut self, turn: &mut Turn<'_>) {
        for _call in 0..self.stalled.len() {
            if self.is_full(turn) {
                break;
            }
            let Some(call) = self.stalled.pop_front() else { break };
            if let Some(state) = self.calls.get_mut(&call) {
                state.stalled = false;
            }
            self.go_on(turn, call, true);
        }
    }

    /// Answers all entries with whatever is there, because the connection is shutting down.
    pub(crate) fn end_all(&mut self, turn: &mut Turn<'_>) {
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for call in calls {
            if let Some(state) = self.calls.get_mut(&call) {
                state.end(turn.now);
            }
            self.advance(turn, call);
        }
    }

    /// The peer may do other things than before: entries of streams that it may not read any more are refused, also of
    /// calls that wait for the peer to take earlier answers.
    pub(crate) fn judge_again(&mut self, turn: &mut Turn<'_>) {
        for call in self.calls.values_mut() {
            call.refuse_entries(|stream| turn.check_stream(OpCode::FETCH, stream));
        }
    }

    /// The peer is gone and takes no answers: no reads are begun, and queued ones are skipped.
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>) {
        self.stalled.clear();
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for call in calls {
            self.forget(call);
            // On a closing connection this sends nothing; it tells the session that the call has ended.
            turn.session.send_system_error(call.raw(), OpCode::FETCH, &[]);
        }
    }

    /// The connection is closed: removes its registrations.
    pub(crate) fn handle_closed(&mut self, node: &Node, requester: &Arc<dyn Requester>) {
        let Ok(ranges) = node.ranges() else { return };
        let mut ranges = ranges.hub.ranges.lock();
        for (stream, _) in self.waiting.drain() {
            ranges.waiting.forget(stream, requester);
        }
        self.calls.clear();
    }

    /// The bytes that reads under way on reader threads may bring into memory.
    pub(crate) fn reading(&self) -> usize {
        self.reading
    }

    /// Whether as many bytes of answers wait for the peer as may; when memory is short, a single byte is too many.
    fn is_full(&self, turn: &Turn<'_>) -> bool {
        let most = if turn.session.is_tight() {
            1
        } else {
            turn.node.limits.answer_bytes
        };
        turn.session.transmit_len().saturating_add(self.reading) >= most
            // What is being read is not charged yet.
            || (self.reading != 0 && Self::quota(turn).is_some_and(|quota| self.reading >= quota))
    }

    /// How many bytes the peer's name may read now, by its quota.
    fn quota(turn: &Turn<'_>) -> Option<usize> {
        let presence = turn.replier.presence.as_ref()?;
        presence.may_read(turn.now)
    }

    /// Takes a call as far as it can go now, unless other calls wait for the peer before it.
    fn advance(&mut self, turn: &mut Turn<'_>, call: CallId) {
        self.go_on(turn, call, self.stalled.is_empty());
    }

    fn go_on(&mut self, turn: &mut Turn<'_>, call: CallId, its_turn: bool) {
        let Ok(server) = turn.node.ranges() else { return };
        loop {
            let full = !its_turn || self.is_full(turn);
            let Some(state) = self.calls.get_mut(&call) else { return };
            if state.reading.is_some() || state.stalled {
                return;
            }
            if full {
                state.stalled = true;
                self.stalled.push_back(call);
                return;
            }
            let plan = {
                let quota = Self::quota(turn).map(|quota| quota.saturating_sub(self.reading));
                let mut ranges = server.hub.ranges.lock();
                let mut plan = state.plan(&mut ranges, server, turn.now, quota);
                plan.asks.retain(|stream| ranges.begin_asking(*stream));
                // Under the same lock as the judgement, so that no confirmation in between is missed.
                for stream in &plan.waits_for {
                    let calls = self.waiting.entry(*stream).or_insert_with(|| {
                        ranges.waiting.register(*stream, turn.requester);
                        SmallVec::new()
                    });
                    if !calls.contains(&call) {
                        calls.push(call);
                    }
                }
                if plan.asks_end {
                    server.hub.finish(ranges);
                }
                plan
            };
            for stream in &plan.asks {
                server.ask(*stream);
            }
            if !plan.waits_for.is_empty() && state.waits.is_none() {
                let may_wait = turn.session.mark_waiting(call);
                state.waits = may_wait.then(|| turn.node.counters.fetches_waiting.one());
                if state.waits.is_none() {
                    self.refuse_to_wait(turn, call);
                    return;
                }
                self.deadlines.push(Reverse((state.deadline, call)));
            }
            let Some(job) = plan.job else { break };
            let (done, cold) = job.run_hot(server);
            let again = state.handle_read(done);
            if let Some(job) = cold {
                if state.deadline > turn.now {
                    // What memory has is sent without waiting for the disk: a client that waits for a busy stream wants
                    // its data now.
                    self.send(turn, call);
                }
                self.read_elsewhere(turn, call, job);
                return;
            }
            if !again {
                break;
            }
        }
        self.send(turn, call);
    }

    /// Has a reader thread do the reads that memory cannot answer. Until they are done nothing else happens to the
    /// call, so that its results stay in order.
    fn read_elsewhere(&mut self, turn: &mut Turn<'_>, call: CallId, job: ReadJob) {
        if let (Some(state), Some(readers)) = (self.calls.get_mut(&call), &turn.node.readers) {
            let weight = job.weight();
            state.reading = Some(weight);
            self.reading += weight;
            readers.submit(Arc::clone(turn.requester), call, job, turn.now);
        }
    }

    /// Refuses a call as a whole, because the limit of waiting calls is reached.
    fn refuse_to_wait(&mut self, turn: &mut Turn<'_>, call: CallId) {
        self.forget(call);
        let message = format!("{} fetches wait on this connection already", turn.node.limits.waits);
        let status = Status::error(ErrorCode::TOO_MANY_REQUESTS, message);
        refuse(turn, call, status);
    }

    fn send(&mut self, turn: &mut Turn<'_>, call: CallId) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        if !turn.gate.is_open() {
            // A stream may have got another name since the call arrived. The name is looked up after the read, so
            // nothing that is appended after a rename goes to those who might read by the old name.
            state.refuse_ready(|stream| turn.check_stream(OpCode::FETCH, stream));
        }
        let end = state.unanswered == 0;
        let with_data = state.ready.iter().filter(|ready| ready.length != 0).count();
        let mut refused = 0;
        for ready in state.ready.iter().filter(|ready| !ready.result.status.is_success()) {
            refused += 1;
            turn.note_entry(OpCode::FETCH, (Some(ready.result.stream_id), ""), &ready.result.status);
        }
        turn.node.counters.fetches.add(with_data);
        turn.node.counters.fetches_refused.add(refused);
        let bytes = state.ready.iter().map(|ready| ready.length).sum();
        turn.node.counters.bytes_fetched.add(bytes);
        if let Some(presence) = &turn.replier.presence {
            presence.charge_out(bytes, turn.now);
        }
        if end {
            state.count_time(&turn.node.counters, with_data != 0);
        }
        let throttle_ms = || {
            turn.node
                .readers
                .as_ref()
                .map_or(0, |readers| readers.throttle_ms(turn.now))
                .max(turn.quota_wait_ms(Direction::Out))
        };
        let last = end.then(throttle_ms);
        send_results(turn.session, turn.replier, call, &mut state.ready, last);
        if end {
            self.forget(call);
        }
    }

    fn forget(&mut self, call: CallId) {
        let Some(state) = self.calls.remove(&call) else { return };
        if state.waits.is_some() {
            for stream in state.streams() {
                if let Some(calls) = self.waiting.get_mut(&stream) {
                    calls.retain(|waiting| *waiting != call);
                }
            }
            self.drop_old_deadlines();
        }
    }

    /// Forgets deadlines of calls that have ended, once they are the most: a peer may withdraw what it asks for as fast
    /// as it asks.
    fn drop_old_deadlines(&mut self) {
        if self.deadlines.len() > 2 * self.calls.len() + KEPT_DEADLINES {
            let calls = &self.calls;
            self.deadlines
                .retain(|Reverse((deadline, call))| calls.get(call).is_some_and(|state| state.deadline == *deadline));
        }
    }
}

/// Whether a request ends an earlier FETCH, and begins none.
pub(in crate::connection) fn is_withdrawal(frame: &Frame) -> bool {
    frame.opcode == OpCode::FETCH
        && FetchRequest::decode(&frame.header).is_ok_and(|request| request.withdrawn().is_some())
}

/// Refuses a call as a whole.
fn refuse(turn: &mut Turn<'_>, call: CallId, status: Status) {
    turn.note(OpCode::FETCH, &status);
    let response = FetchResponse {
        status,
        throttle_time_ms: turn.quota_wait_ms(Direction::Out),
        ..Default::default()
    };
    turn.finish(call, &response);
}
