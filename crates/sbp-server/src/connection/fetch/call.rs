//! One FETCH call.

use std::time::Instant;

use bytes::Bytes;
use sbp_messages::{FetchInfo, FetchRequest, FetchResult};
use sbp_replication::EndTold;
use sbp_types::{Offset, StreamId};
use smallvec::SmallVec;

use super::changed_entries::ChangedEntries;
use crate::range::{
    EndTicket, FetchEntry, FetchOutcome, Found, Limits, LogRead, RangeServer, Ranges, ReadDone, ReadJob, Readiness,
    Start, end_not_told, judge_fetch, resolve_start,
};
use crate::refusal::Refusal;
use crate::stats::{Counters, One};

/// The most payload bytes of an answer, over all its frames, when the request names no limit.
const DEFAULT_MAX_BYTES: usize = 32 << 20;

/// A FETCH call with entries that are not answered yet.
#[derive(Debug)]
pub(super) struct FetchCall {
    slots: SmallVec<[Slot; 1]>,
    /// The entries to judge next.
    changed_entries: ChangedEntries,
    /// The number of entries without a result.
    pub(super) unanswered: usize,
    min_bytes: u64,
    /// The payload bytes that the call may still return.
    budget: usize,
    /// Whether nothing is waited for any more.
    gives_up: bool,
    /// What of it the last read was not to use, because the quota of the peer's name did not let it.
    withheld: usize,
    /// When the connection's task had read it.
    since: Instant,
    /// When the first append arrived that the call was woken for.
    pub(super) arrived: Option<Instant>,
    /// When the remaining entries are answered with whatever is there.
    pub(super) deadline: Instant,
    /// The weight of a read that is under way on a reader thread. Until it is done, nothing else happens to the call.
    pub(super) reading: Option<usize>,
    /// Whether the session was told that the call waits for data. Such a call counts only against the limit of waiting
    /// calls.
    pub(super) waits: Option<One>,
    /// Whether the call waits until the peer has taken earlier answers.
    pub(super) stalled: bool,
    /// Results that are not sent yet.
    pub(super) ready: Vec<ReadyResult>,
}

#[derive(Debug)]
struct Slot {
    info: FetchInfo,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    /// The entry's start is not resolved.
    New,
    /// The placement driver is being asked about the entry's stream.
    Asking,
    /// Other servers are being asked whether this one may say where the entry's stream ends.
    AskingEnd(EndTicket),
    /// The entry's start is resolved to an offset.
    Resolved(FetchEntry),
    /// The entry's result is sent or in `ready`.
    Answered,
}

/// A result and the part of the payload that belongs to it.
#[derive(Debug)]
pub(super) struct ReadyResult {
    pub(super) result: FetchResult,
    pub(super) length: usize,
    pub(super) chunks: SmallVec<[Bytes; 1]>,
}

/// The next steps of a call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What has to be read.
    pub(super) job: Option<ReadJob>,
    /// The streams whose growth the call has to wait for.
    pub(super) waits_for: SmallVec<[StreamId; 4]>,
    /// The streams about which the placement driver has to be asked. They are in `waits_for` too.
    pub(super) asks: SmallVec<[StreamId; 1]>,
    /// Whether other servers have to be asked whether this one may say where a stream ends.
    pub(super) asks_end: bool,
}

impl FetchCall {
    /// A call that has just arrived.
    pub(super) fn new(request: &FetchRequest, now: Instant) -> Self {
        let slots: SmallVec<[Slot; 1]> = request
            .fetch_requests
            .iter()
            .map(|info| Slot {
                info: *info,
                state: SlotState::New,
            })
            .collect();
        Self {
            unanswered: slots.len(),
            changed_entries: ChangedEntries::to_all(),
            slots,
            min_bytes: u64::try_from(request.min_bytes).unwrap_or(0),
            budget: match usize::try_from(request.max_bytes) {
                Ok(0) | Err(_) => DEFAULT_MAX_BYTES,
                Ok(bytes) => bytes,
            },
            gives_up: false,
            withheld: 0,
            since: now,
            arrived: None,
            deadline: now + request.max_wait(),
            reading: None,
            waits: None,
            stalled: false,
            ready: Vec::new(),
        }
    }

    /// Counts how long the call took, which has ended: since it arrived, or since an append arrived that it waited for.
    pub(super) fn count_time(&self, counters: &Counters, has_data: bool) {
        if !has_data {
            return;
        }
        match self.arrived {
            Some(arrived) => counters.end_to_end_seconds.observe(arrived.elapsed(), 1),
            None if self.waits.is_none() => counters.fetch_seconds.observe(self.since.elapsed(), 1),
            None => {}
        }
    }

    /// Refuses the entries of the streams that `check` refuses.
    pub(super) fn refuse_entries(&mut self, check: impl Fn(StreamId) -> Result<(), Refusal>) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else { continue };
            if let Err(refusal) = check(slot.info.stream_id) {
                self.answer(index, FetchOutcome::refused(refusal, None));
            }
        }
    }

    /// Refuses what is ready of streams that `check` refuses, with all that it tells of them.
    pub(super) fn refuse_ready(&mut self, check: impl Fn(StreamId) -> Result<(), Refusal>) {
        for ready in &mut self.ready {
            let tells = ready.result.status.is_success() || ready.result.high_watermark.is_some();
            if tells && let Err(refusal) = check(ready.result.stream_id) {
                ready.result = FetchResult {
                    stream_id: ready.result.stream_id,
                    request_index: ready.result.request_index,
                    status: refusal.into(),
                    ..FetchResult::default()
                };
                ready.length = 0;
                ready.chunks.clear();
            }
        }
    }

    /// The peer wants nothing of the call any more: what is not answered is, without data.
    pub(super) fn end_without_data(&mut self, now: Instant) {
        self.budget = 0;
        self.end(now);
    }

    /// What is not answered is, with whatever is there.
    pub(super) fn end(&mut self, now: Instant) {
        self.deadline = now;
        self.gives_up = true;
    }

    /// Streams that the call waits for have changed: their entries are judged again.
    pub(super) fn notice(&mut self, streams: &[StreamId]) {
        let streams_of_slots = self.slots.iter().map(|slot| slot.info.stream_id);
        self.changed_entries.add(streams, streams_of_slots);
    }

    /// Judges the entries whose streams have changed. Answers those that need no read, and returns what to read and
    /// what to wait for. `quota`: the bytes that the peer's name may read now.
    pub(super) fn plan(
        &mut self,
        ranges: &mut Ranges,
        server: &RangeServer,
        now: Instant,
        quota: Option<usize>,
    ) -> Plan {
        let unsent = || self.ready.iter().map(|ready| ready.length).sum();
        let budget = quota.map_or(self.budget, |most| self.budget.min(most.saturating_sub(unsent())));
        // When the budget is spent, waiting for more data is pointless.
        let last_call = now >= self.deadline || budget == 0;
        let limits = Limits {
            min_bytes: self.min_bytes,
            last_call,
            budget,
        };
        if last_call {
            self.changed_entries = ChangedEntries::to_all();
        }
        let mut plan = Plan::default();
        let mut reads = Vec::new();
        for index in self.changed_entries.take(self.slots.len()) {
            let Some(slot) = self.slots.get_mut(index) else {
                continue;
            };
            let outcome = match slot.look(ranges, server, limits, self.gives_up) {
                Look::Nothing => continue,
                Look::Wait => {
                    plan.waits_for.push(slot.info.stream_id);
                    continue;
                }
                Look::AskEnd(ticket) => {
                    slot.state = SlotState::AskingEnd(ticket);
                    plan.asks_end = true;
                    plan.waits_for.push(slot.info.stream_id);
                    continue;
                }
                Look::Ask => {
                    slot.state = SlotState::Asking;
                    plan.asks.push(slot.info.stream_id);
                    plan.waits_for.push(slot.info.stream_id);
                    continue;
                }
                Look::Read(read) => {
                    reads.push((index, read));
                    continue;
                }
                Look::Answer(outcome) => outcome,
            };
            self.answer(index, outcome);
        }
        if !reads.is_empty() {
            self.withheld = self.budget - budget;
            plan.job = Some(ReadJob { budget, reads });
        }
        plan
    }

    /// Takes the results of a read. Returns whether to plan again: the start of an entry was found, or the budget is
    /// spent and the waiting entries have to be answered.
    pub(super) fn handle_read(&mut self, done: ReadDone) -> bool {
        self.budget = done.budget + self.withheld;
        let mut again = false;
        for (index, found) in done.found {
            match found {
                Found::Answer(outcome) => self.answer(index, outcome),
                Found::Start(offset) => {
                    if let Some(slot) = self.slots.get_mut(index) {
                        slot.resolve(offset);
                        self.changed_entries.add_slot(index);
                        again = true;
                    }
                }
            }
        }
        again || (done.budget == 0 && self.unanswered > 0)
    }

    /// The streams of all entries.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.slots.iter().map(|slot| slot.info.stream_id)
    }

    fn answer(&mut self, index: usize, outcome: FetchOutcome) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if matches!(slot.state, SlotState::Answered) {
            return;
        }
        slot.state = SlotState::Answered;
        self.unanswered -= 1;
        let FetchOutcome {
            status,
            positions,
            record_count,
            length,
            chunks,
        } = outcome;
        let result = FetchResult {
            stream_id: slot.info.stream_id,
            request_index: slot.info.request_index,
            batch_length: i32::try_from(length).unwrap_or(i32::MAX),
            status,
            base_offset: positions.and_then(|known| known.base_offset),
            next_offset: positions.map(|known| known.next_offset),
            start_offset: positions.map(|known| known.start_offset),
            high_watermark: positions.map(|known| known.high_watermark),
            end_of_range: positions.is_some_and(|known| known.end_of_range),
            record_count,
        };
        self.ready.push(ReadyResult { result, length, chunks });
    }
}

enum Look {
    /// The entry is answered already.
    Nothing,
    Wait,
    /// The stream is unknown to this server; the placement driver may know it.
    Ask,
    /// Whether this server may say where the stream ends, other servers have to be asked.
    AskEnd(EndTicket),
    Read(LogRead),
    Answer(FetchOutcome),
}

impl Slot {
    fn look(&mut self, ranges: &mut Ranges, server: &RangeServer, limits: Limits, gives_up: bool) -> Look {
        let stream = self.info.stream_id;
        let first_look = matches!(self.state, SlotState::New);
        if first_look && let Some(status) = self.info.fault() {
            return Look::Answer(FetchOutcome::refused(Refusal::new(status.code, status.message), None));
        }
        if first_look && ranges.worth_asking(stream) {
            return Look::Ask;
        }
        if first_look || matches!(self.state, SlotState::Asking | SlotState::AskingEnd(_)) {
            if ranges.is_asking(stream) {
                return Look::Wait;
            }
            if let SlotState::AskingEnd(ticket) = self.state {
                match ranges.end_told(ticket) {
                    EndTold::At(_) => {}
                    EndTold::NotYet if !gives_up => return Look::Wait,
                    EndTold::NotYet | EndTold::Elsewhere => {
                        return Look::Answer(FetchOutcome::refused(end_not_told(ticket.key), None));
                    }
                }
            } else if self.needs_end(ranges)
                && let Some(ticket) = ranges.ask_end(stream)
            {
                return Look::AskEnd(ticket);
            }
            let time = self.info.start_timestamp_ms;
            match resolve_start(&ranges.table, stream, self.info.fetch_offset, time) {
                Err((refusal, bounds)) => return Look::Answer(FetchOutcome::refused(refusal, bounds)),
                Ok(Start::At(offset)) => self.resolve(offset),
                Ok(Start::Search(search)) => return Look::Read(LogRead::Start(stream, search)),
            }
        }
        let SlotState::Resolved(entry) = &self.state else {
            return Look::Nothing;
        };
        match judge_fetch(&ranges.table, entry, limits, |key, from| {
            server.log.bytes_from(key, from)
        }) {
            Readiness::Wait => Look::Wait,
            Readiness::Empty(positions) => Look::Answer(FetchOutcome::empty(positions)),
            Readiness::Refused(refusal, bounds) => Look::Answer(FetchOutcome::refused(refusal, bounds)),
            Readiness::Read(read) => Look::Read(LogRead::Batches(read)),
        }
    }

    /// Whether the answer may say where the stream ends.
    fn needs_end(&self, ranges: &Ranges) -> bool {
        let FetchInfo {
            stream_id,
            fetch_offset,
            ..
        } = self.info;
        fetch_offset == Offset::LATEST
            || self.info.start_timestamp_ms.is_some()
            || ranges.is_behind_end(stream_id, fetch_offset)
    }

    fn resolve(&mut self, offset: Offset) {
        self.state = SlotState::Resolved(FetchEntry {
            stream: self.info.stream_id,
            offset,
            end: self.info.end_offset,
            batch_max_bytes: self.info.batch_max_bytes,
        });
    }
}
