//! The range server around its pure half: the log, and those who wait for it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use sbp_frame::CallId;
use sbp_locks::Mutex;
use sbp_log::{Clock, EntryHead, Log, LogEntry, Queued, WriterKey, WriterState};
use sbp_messages::ErrorCode;
use sbp_record::{stamp_base_offset, without_stamp};
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Fence, Verdict};
use super::command::{Command, Effect};
use super::letters::Letters;
use super::log_errors;
use super::parked::{Parked, ParkedJob};
use super::pending::{Answer, Pending};
use super::pressure::Pressure;
use super::seals::Seals;
use super::stream::{RangeState, StreamFacts};
use super::table::{RangeTable, Scope};
use super::upstream::Upstream;
use super::waiting::Waiting;
use super::writers::{Claim, Question, Until};
use crate::connection::{AppendDone, NotStored, Port, Stored};
use crate::failure::Health;
use crate::refusal::Refusal;
use crate::stats::Counters;

/// One batch on its way from a connection to the log.
#[derive(Debug)]
pub(crate) struct AppendJob {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) entry: AppendEntry,
    pub(crate) max_timestamp: TimestampMs,
    /// When it is no longer worth starting, where the peer said so.
    pub(crate) expires: Option<Instant>,
    /// The batch as it was received.
    pub(crate) chunks: SmallVec<[bytes::Bytes; 1]>,
}

/// What the log gives back.
#[derive(Debug)]
pub(crate) enum LogContext {
    /// A batch has ended.
    Append(AppendContext),
    /// A writer's fence has ended.
    Fence(FenceContext),
    /// Everything that a range accepted before its seal has ended.
    Drained(RangeKey),
}

/// Whom to tell what about a batch.
#[derive(Debug)]
pub(crate) struct AppendContext {
    pub(super) port: Arc<Port>,
    pub(super) call: CallId,
    pub(super) request_index: i32,
    pub(super) key: RangeKey,
    pub(super) generation: u32,
    pub(super) base_offset: Offset,
    pub(super) next_offset: Offset,
    /// The writer's, behind the batch; -1 without a writer.
    pub(super) next_sequence: i64,
}

/// Whom to tell what about a writer's fence.
#[derive(Clone, Debug)]
pub(crate) struct FenceContext {
    pub(super) port: Arc<Port>,
    call: CallId,
    request_index: i32,
    pub(super) stream: StreamId,
    pub(super) writer: WriterId,
    pub(super) epoch: i64,
    next_offset: Offset,
    next_sequence: i64,
}

impl FenceContext {
    /// What its sender is told.
    pub(super) fn done(&self, failed: Option<&Refusal>) -> AppendDone {
        let stored = Stored {
            base_offset: Offset(-1),
            next_offset: self.next_offset,
            duplicate: false,
            next_sequence: self.next_sequence,
        };
        AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream: self.stream,
            outcome: failed.map_or(Ok(stored), |refusal| Err(refusal.clone().into())),
        }
    }
}

/// Ranges and those who wait for them, under one lock: a fetch that looks, sees nothing and registers cannot miss what
/// is confirmed in between. Held for moments, never across a read or a write.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) table: RangeTable,
    pub(crate) waiting: Waiting,
    pub(super) parked: Parked,
    pub(super) pending: Pending,
    pub(super) seals: Seals,
    /// Whether there is somebody to ask.
    pub(super) has_upstream: bool,
    /// Streams that the placement driver is being asked about.
    pub(super) asking: HashSet<StreamId>,
    /// Ranges that are gone, until the log holds nothing of them.
    pub(super) given_up: Vec<RangeKey>,
}

/// The part of the range server that the log's writer thread calls back.
#[derive(Debug)]
pub(crate) struct RangeHub {
    pub(crate) ranges: Mutex<Ranges>,
    pub(super) health: Arc<Health>,
    pub(super) counters: Arc<Counters>,
}

impl RangeHub {
    pub(crate) fn new(health: Arc<Health>, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            ranges: Mutex::default(),
            health,
            counters,
        })
    }

    /// Opens a range as it was found at the start.
    pub(crate) fn open(&self, stream: StreamId, facts: StreamFacts, range: RangeState) {
        self.ranges.lock().table.apply(Command::Open { stream, facts, range });
    }

    /// Takes over the writers that the log remembers, after their streams' ranges are [open](Self::open).
    pub(crate) fn recall(&self, writers: Vec<(WriterKey, WriterState)>) {
        let mut ranges = self.ranges.lock();
        for (WriterKey { stream, writer }, state) in writers {
            ranges.table.apply(Command::Recall { stream, writer, state });
        }
    }

    /// Says whether every range that exists is here, so that what is not here does not exist.
    pub(crate) fn set_knows_all(&self, knows_all: bool) {
        self.ranges.lock().table.scope = if knows_all { Scope::Everything } else { Scope::Told };
    }

    /// The placement driver in this process has placed a range on another server.
    pub(crate) fn share(&self) {
        let scope = &mut self.ranges.lock().table.scope;
        if *scope == Scope::Everything {
            *scope = Scope::Shared;
        }
    }
}

/// The range server.
#[derive(Debug)]
pub(crate) struct RangeServer {
    pub(crate) hub: Arc<RangeHub>,
    pub(crate) log: Log<LogContext>,
    clock: Arc<dyn Clock>,
    pub(super) upstream: OnceLock<Arc<dyn Upstream>>,
    /// Bytes that may wait for the disk.
    pub(super) max_pending: AtomicU64,
}

impl RangeServer {
    pub(crate) fn new(hub: Arc<RangeHub>, log: Log<LogContext>, clock: Arc<dyn Clock>) -> Self {
        Self {
            hub,
            log,
            clock,
            upstream: OnceLock::new(),
            max_pending: AtomicU64::new(u64::MAX),
        }
    }

    /// Lets so many bytes wait for the disk, over all connections. There is no limit before.
    pub(crate) fn set_max_pending(&self, bytes: u64) {
        self.max_pending.store(bytes, Ordering::Relaxed);
    }

    /// Judges the batches in order and hands those that are to be stored to the log, which tells `port` when they are
    /// synced. What is answered at once goes into `done`: also what the log stores at once, being few and without a disk
    /// to wait for.
    pub(crate) fn append(&self, port: &Arc<Port>, jobs: &mut Vec<AppendJob>, done: &mut Vec<AppendDone>) {
        if self.pressure() == Pressure::TooHigh {
            let message = "too many bytes wait for the disk; send again later";
            let refuse = |job: AppendJob| job.refuse(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message));
            done.extend(jobs.drain(..).map(refuse));
            self.hub.counters.appends_refused.add(done.len());
            return;
        }
        let append_time = self.clock.now();
        let mut entries = Vec::with_capacity(jobs.len());
        let mut letters = Letters::default();
        let mut asks = Vec::new();
        let mut queued = None;
        {
            // The lock is held until the log has them: batches enter it in the order of their offsets.
            let mut ranges = self.hub.ranges.lock();
            for job in jobs.drain(..) {
                let stream = job.entry.stream;
                if ranges.worth_asking(stream) {
                    if ranges.begin_asking(stream) {
                        asks.push(stream);
                    }
                    done.extend(ranges.park(port, job, true));
                    continue;
                }
                done.extend(ranges.judge(port, job, append_time, &mut entries));
            }
            let refused = done.iter().filter(|done| done.outcome.is_err()).count();
            self.hub.counters.appends_refused.add(refused);
            if !entries.is_empty() {
                match self.queue(&mut ranges, entries, &mut letters) {
                    Ok(taken) => queued = Some(taken),
                    Err(mut refused) => done.append(&mut refused),
                }
            }
        }
        letters.post();
        if let Some(queued) = queued {
            let hub = &self.hub;
            self.log.write_here(queued, &mut |contexts, outcome| {
                hub.group_ended_here(port, contexts, outcome, done);
            });
        }
        for stream in asks {
            self.ask(stream);
        }
    }

    /// Judges again, in order, the appends that waited for what happens to a stream. What is queued is announced once the
    /// letters are sent, so that refusals come first whoever is faster.
    pub(super) fn judge_parked(&self, ranges: &mut Ranges, stream: StreamId, letters: &mut Letters) -> Option<Queued> {
        let parked = ranges.parked.take(stream);
        if parked.is_empty() {
            return None;
        }
        let append_time = self.clock.now();
        let now = Instant::now();
        let mut entries = Vec::with_capacity(parked.len());
        let mut ports = Vec::with_capacity(parked.len());
        for ParkedJob { port, job, asked } in parked {
            if asked && ranges.is_asking(stream) && ranges.worth_asking(stream) {
                // Something else happened to the stream meanwhile.
                letters
                    .to(Arc::clone(&port))
                    .appended
                    .extend(ranges.park(&port, job, true));
                continue;
            }
            let expired = job.expires.is_some_and(|expires| now >= expires);
            let before = entries.len();
            let done = if expired {
                Some(job.refuse(Refusal::expired()))
            } else {
                ranges.judge(&port, job, append_time, &mut entries)
            };
            if entries.len() > before {
                ports.push(Arc::clone(&port));
            }
            letters.to(port).appended.extend(done);
        }
        if entries.is_empty() {
            return None;
        }
        let refused = match self.queue(ranges, entries, letters) {
            Ok(queued) => return Some(queued),
            Err(refused) => refused,
        };
        for (port, done) in ports.into_iter().zip(refused) {
            letters.to(port).appended.push(done);
        }
        None
    }

    /// Sends letters, and has written what was queued before.
    pub(super) fn post(&self, letters: Letters, queued: Option<Queued>) {
        letters.post();
        if let Some(queued) = queued {
            self.log.announce(queued);
        }
    }

    /// Queues entries; when the log refuses them all, takes back what they were promised and says so, in their order.
    fn queue(
        &self,
        ranges: &mut Ranges,
        entries: Vec<LogEntry<LogContext>>,
        letters: &mut Letters,
    ) -> Result<Queued, Vec<AppendDone>> {
        let promised: SmallVec<[Promised; 8]> = entries.iter().filter_map(|entry| entry.context.promised()).collect();
        let error = match self.log.queue(entries) {
            Ok(queued) => return Ok(queued),
            Err(error) => error,
        };
        if log_errors::is_final(&error) {
            self.hub.health.fail("the log", error.to_string());
        }
        self.hub.counters.appends_refused.add(promised.len());
        let refusal = log_errors::append_refusal(&error);
        let mut refused = Vec::with_capacity(promised.len());
        for promised in promised {
            let (call, request_index, key, base_offset) = match promised {
                Promised::Fence(fence) => {
                    ranges.fence_ended(&fence, Some(&refusal), letters);
                    refused.push(fence.done(Some(&refusal)));
                    continue;
                }
                Promised::Batch {
                    call,
                    request_index,
                    key,
                    base_offset,
                } => (call, request_index, key, base_offset),
            };
            if let Effect::TakenBack { from, .. } = ranges.table.apply(Command::TakeBack { key, base: base_offset }) {
                ranges.answer_lost(key.stream, from, &refusal, letters);
            }
            refused.push(AppendDone {
                call,
                request_index,
                stream: key.stream,
                outcome: Err(refusal.clone().into()),
            });
        }
        Err(refused)
    }
}

impl Ranges {
    /// Keeps an append until it can be judged.
    fn park(&mut self, port: &Arc<Port>, job: AppendJob, asked: bool) -> Option<AppendDone> {
        if !self.parked.has_room(job.entry.length) {
            let message = "too many appends wait to learn which range is theirs; send again later";
            return Some(job.refuse(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message)));
        }
        self.parked.park(port, job, asked);
        None
    }

    /// Decides over one append: it goes into `entries`, or waits, or is answered at once.
    fn judge(
        &mut self,
        port: &Arc<Port>,
        job: AppendJob,
        append_time: TimestampMs,
        entries: &mut Vec<LogEntry<LogContext>>,
    ) -> Option<AppendDone> {
        let Effect::Judged(verdict) = self.table.apply(Command::Append(&job.entry)) else {
            return None;
        };
        match verdict {
            Verdict::Store {
                key,
                epoch,
                generation,
                base_offset,
                next_offset,
                next_sequence,
            } => {
                let claim = job.entry.head.as_ref().ok().and_then(|facts| facts.claim);
                let Claim {
                    writer,
                    epoch: writer_epoch,
                    sequence,
                } = claim.unwrap_or_default();
                let head = EntryHead {
                    key,
                    epoch,
                    base_offset,
                    count: next_offset.0 - base_offset.0,
                    append_time,
                    max_timestamp: job.max_timestamp,
                    writer,
                    writer_epoch,
                    base_sequence: sequence,
                };
                let context = LogContext::Append(AppendContext {
                    port: Arc::clone(port),
                    call: job.call,
                    request_index: job.request_index,
                    key,
                    generation,
                    base_offset,
                    next_offset,
                    next_sequence,
                });
                let prefix = SmallVec::from_slice(&stamp_base_offset(base_offset));
                entries.push(LogEntry {
                    head,
                    prefix,
                    chunks: without_stamp(&job.chunks),
                    context,
                });
                None
            }
            Verdict::Done(stored) => Some(job.done(Ok(stored))),
            Verdict::Fence(fence) => {
                entries.push(fence_entry(port, &job, append_time, &fence));
                None
            }
            Verdict::After { until, stored } => {
                self.pending
                    .wait(port, &job, Until::Synced(until), Answer::Repeat(stored));
                None
            }
            Verdict::Ask { until } => {
                let facts = job.entry.head.as_ref().ok();
                let question = Question {
                    claim: facts.and_then(|facts| facts.claim).unwrap_or_default(),
                    is_fence: facts.is_some_and(|facts| facts.is_fence),
                };
                self.pending.wait(port, &job, until, Answer::Question(question));
                None
            }
            Verdict::Park => self.park(port, job, false),
            Verdict::Refuse(refused) => Some(job.done(Err(refused))),
        }
    }
}

/// What is kept of an entry until the log has taken it.
enum Promised {
    Batch {
        call: CallId,
        request_index: i32,
        key: RangeKey,
        base_offset: Offset,
    },
    Fence(FenceContext),
}

/// What the log is given for a fence.
fn fence_entry(port: &Arc<Port>, job: &AppendJob, append_time: TimestampMs, fence: &Fence) -> LogEntry<LogContext> {
    let Fence {
        key,
        epoch,
        base_offset,
        claim,
        next_sequence,
    } = *fence;
    LogEntry {
        head: EntryHead {
            key,
            epoch,
            base_offset,
            count: 0,
            append_time,
            max_timestamp: TimestampMs(0),
            writer: claim.writer,
            writer_epoch: claim.epoch,
            base_sequence: next_sequence,
        },
        prefix: SmallVec::new(),
        chunks: SmallVec::new(),
        context: LogContext::Fence(FenceContext {
            port: Arc::clone(port),
            call: job.call,
            request_index: job.request_index,
            stream: key.stream,
            writer: claim.writer,
            epoch: claim.epoch,
            next_offset: base_offset,
            next_sequence,
        }),
    }
}

impl LogContext {
    fn promised(&self) -> Option<Promised> {
        match self {
            Self::Append(context) => Some(Promised::Batch {
                call: context.call,
                request_index: context.request_index,
                key: context.key,
                base_offset: context.base_offset,
            }),
            Self::Fence(context) => Some(Promised::Fence(context.clone())),
            Self::Drained(_) => None,
        }
    }
}

impl AppendJob {
    fn done(&self, outcome: Result<Stored, NotStored>) -> AppendDone {
        AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream: self.entry.stream,
            outcome,
        }
    }

    fn refuse(&self, refusal: Refusal) -> AppendDone {
        self.done(Err(refusal.into()))
    }
}
