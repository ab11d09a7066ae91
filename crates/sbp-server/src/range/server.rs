//! The range server around its pure half: the log, and those who wait for it.

use std::sync::Arc;

use parking_lot::Mutex;
use sbp_frame::CallId;
use sbp_log::{Clock, EntryHead, GroupObserver, Log, LogEntry, LogError};
use sbp_messages::ErrorCode;
use sbp_record::{stamp_base_offset, without_stamp};
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Verdict};
use super::log_errors;
use super::table::{Command, Effect, RangeState, RangeTable};
use super::waiting::Waiting;
use crate::connection::{AppendDone, ConnectionCommand, Port, Stored};
use crate::failure::Health;
use crate::refusal::Refusal;
use crate::stats::Counters;

/// Bytes that may wait for the disk, over all connections; each has its own, smaller bound.
const MAX_PENDING: u64 = 512 << 20;

/// One batch on its way from a connection to the log.
#[derive(Debug)]
pub(crate) struct AppendJob {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) entry: AppendEntry,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) writer: WriterId,
    pub(crate) writer_epoch: i64,
    pub(crate) base_sequence: i64,
    /// The batch as it was received.
    pub(crate) chunks: SmallVec<[bytes::Bytes; 1]>,
}

/// What the log gives back when a batch is synced: whom to tell what.
#[derive(Debug)]
pub(crate) struct AppendContext {
    port: Arc<Port>,
    call: CallId,
    request_index: i32,
    key: RangeKey,
    generation: u32,
    base_offset: Offset,
    next_offset: Offset,
}

/// Ranges and waiting connections, under one lock: a fetch that looks, sees nothing and registers cannot miss what is
/// confirmed in between. Held for moments, never across a read or a write.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) table: RangeTable,
    pub(crate) waiting: Waiting,
}

/// The part of the range server that the log's writer thread calls back.
#[derive(Debug)]
pub(crate) struct RangeHub {
    pub(crate) ranges: Mutex<Ranges>,
    health: Arc<Health>,
    counters: Arc<Counters>,
}

impl RangeHub {
    pub(crate) fn new(health: Arc<Health>, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            ranges: Mutex::default(),
            health,
            counters,
        })
    }

    /// Opens a range, after it is durable in the metadata.
    pub(crate) fn open(&self, stream: StreamId, fingerprints: SmallVec<[u64; 1]>, range: RangeState) {
        self.ranges.lock().table.apply(Command::Open {
            stream,
            fingerprints,
            range,
        });
    }
}

/// The range server.
#[derive(Debug)]
pub(crate) struct RangeServer {
    pub(crate) hub: Arc<RangeHub>,
    pub(crate) log: Log<AppendContext>,
    clock: Arc<dyn Clock>,
}

impl RangeServer {
    pub(crate) fn new(hub: Arc<RangeHub>, log: Log<AppendContext>, clock: Arc<dyn Clock>) -> Self {
        Self { hub, log, clock }
    }

    /// Judges the batches in order and hands those that are to be stored to the log, which tells `port` when they are
    /// synced. What is answered at once goes into `done`.
    pub(crate) fn append(&self, port: &Arc<Port>, jobs: &mut Vec<AppendJob>, done: &mut Vec<AppendDone>) {
        if self.log.pending_bytes() > MAX_PENDING {
            let message = "too many bytes wait for the disk; send again later";
            done.extend(jobs.drain(..).map(|job| {
                let outcome = Err((Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message), None));
                job.entry.done(job.call, job.request_index, outcome)
            }));
            self.hub.counters.appends_refused.add(done.len());
            return;
        }
        let append_time = self.clock.now();
        let mut entries = Vec::with_capacity(jobs.len());
        // The lock is held until the log has them: batches enter it in the order of their offsets.
        let mut ranges = self.hub.ranges.lock();
        for job in jobs.drain(..) {
            let Effect::Judged(verdict) = ranges.table.apply(Command::Append(&job.entry)) else {
                continue;
            };
            match verdict {
                Verdict::Store {
                    key,
                    epoch,
                    generation,
                    base_offset,
                    next_offset,
                } => {
                    let head = EntryHead {
                        key,
                        epoch,
                        base_offset,
                        count: next_offset.0 - base_offset.0,
                        append_time,
                        max_timestamp: job.max_timestamp,
                        writer: job.writer,
                        writer_epoch: job.writer_epoch,
                        base_sequence: job.base_sequence,
                    };
                    let context = AppendContext {
                        port: Arc::clone(port),
                        call: job.call,
                        request_index: job.request_index,
                        key,
                        generation,
                        base_offset,
                        next_offset,
                    };
                    let prefix = SmallVec::from_slice(&stamp_base_offset(base_offset));
                    entries.push(LogEntry {
                        head,
                        prefix,
                        chunks: without_stamp(&job.chunks),
                        context,
                    });
                }
                Verdict::Empty { next_offset } => {
                    let outcome = Ok(Stored {
                        base_offset: Offset(-1),
                        next_offset,
                    });
                    done.push(job.entry.done(job.call, job.request_index, outcome));
                }
                Verdict::Refuse { refusal, next_offset } => {
                    let outcome = Err((refusal, next_offset));
                    done.push(job.entry.done(job.call, job.request_index, outcome));
                }
            }
        }
        self.hub
            .counters
            .appends_refused
            .add(done.iter().filter(|done| done.outcome.is_err()).count());
        if !entries.is_empty() {
            self.hand_over(&mut ranges, entries, done);
        }
    }

    /// Queues entries; when the log refuses them all, takes back what they were promised.
    fn hand_over(&self, ranges: &mut Ranges, entries: Vec<LogEntry<AppendContext>>, done: &mut Vec<AppendDone>) {
        let promised: SmallVec<[AppendDoneKey; 8]> = entries.iter().map(|entry| entry.context.key()).collect();
        let Err(error) = self.log.append(entries) else { return };
        if log_errors::is_final(&error) {
            self.hub.health.fail("the log", error.to_string());
        }
        for AppendDoneKey {
            call,
            request_index,
            key,
            generation,
            base_offset,
        } in promised
        {
            ranges.table.apply(Command::Abandon {
                key,
                base: base_offset,
                generation,
            });
            let outcome = Err((log_errors::append_refusal(&error), None));
            done.push(AppendDone {
                call,
                request_index,
                stream: key.stream,
                outcome,
            });
        }
    }
}

/// What is kept of an entry until the log has taken it.
struct AppendDoneKey {
    call: CallId,
    request_index: i32,
    key: RangeKey,
    generation: u32,
    base_offset: Offset,
}

impl AppendContext {
    fn key(&self) -> AppendDoneKey {
        let Self {
            call,
            request_index,
            key,
            generation,
            base_offset,
            ..
        } = *self;
        AppendDoneKey {
            call,
            request_index,
            key,
            generation,
            base_offset,
        }
    }
}

impl AppendEntry {
    fn done(&self, call: CallId, request_index: i32, outcome: Result<Stored, (Refusal, Option<Offset>)>) -> AppendDone {
        AppendDone {
            call,
            request_index,
            stream: self.stream,
            outcome,
        }
    }
}

impl GroupObserver<AppendContext> for RangeHub {
    fn group_ended(&self, contexts: Vec<AppendContext>, outcome: Result<(), Arc<LogError>>) {
        if let Err(error) = &outcome
            && log_errors::is_final(error)
        {
            self.health.fail("the log", error.to_string());
        }
        let mut letters = Letters::default();
        self.settle(&contexts, outcome.is_ok(), &mut letters);
        let mut records = 0_u64;
        for context in contexts {
            let result = match &outcome {
                Ok(()) => {
                    records += context.next_offset.distance_from(context.base_offset);
                    Ok(Stored {
                        base_offset: context.base_offset,
                        next_offset: context.next_offset,
                    })
                }
                Err(error) => Err((log_errors::append_refusal(error), None)),
            };
            letters.to(context.port).appended.push(AppendDone {
                call: context.call,
                request_index: context.request_index,
                stream: context.key.stream,
                outcome: result,
            });
        }
        self.counters
            .records_appended
            .add(usize::try_from(records).unwrap_or(usize::MAX));
        letters.post(&self.counters, outcome.is_ok());
    }
}

impl RangeHub {
    /// Makes a group visible to readers, or takes its offsets back; notes who waited for the streams that grew.
    fn settle(&self, contexts: &[AppendContext], synced: bool, letters: &mut Letters) {
        let mut ranges = self.ranges.lock();
        let Ranges { table, waiting } = &mut *ranges;
        let mut contexts = contexts.iter().peekable();
        while let Some(context) = contexts.next() {
            let AppendContext {
                key,
                base_offset,
                generation,
                next_offset,
                ..
            } = *context;
            if !synced {
                table.apply(Command::Abandon {
                    key,
                    base: base_offset,
                    generation,
                });
                continue;
            }
            // Of neighbours in one range the last one says it all.
            if contexts.peek().is_some_and(|next| next.key == key) {
                continue;
            }
            if let Effect::Advanced(stream) = table.apply(Command::Confirm { key, end: next_offset }) {
                for port in waiting.take(stream) {
                    letters.to(port).advanced.push(stream);
                }
            }
        }
    }
}

/// What one group has to tell, gathered by connection so that each is woken once.
#[derive(Default)]
struct Letters {
    letters: Vec<Letter>,
    /// Where the last one was found: neighbours in a group mostly come from the same connection.
    last: usize,
}

struct Letter {
    port: Arc<Port>,
    appended: Vec<AppendDone>,
    advanced: Vec<StreamId>,
}

impl Letters {
    fn to(&mut self, port: Arc<Port>) -> &mut Letter {
        let same = |letter: &Letter| Arc::ptr_eq(&letter.port, &port);
        if !self.letters.get(self.last).is_some_and(same) {
            self.last = self.letters.iter().position(same).unwrap_or_else(|| {
                self.letters.push(Letter {
                    port: Arc::clone(&port),
                    appended: Vec::new(),
                    advanced: Vec::new(),
                });
                self.letters.len() - 1
            });
        }
        self.letters
            .get_mut(self.last)
            .expect("the place was just found or made")
    }

    fn post(self, counters: &Counters, synced: bool) {
        for Letter {
            port,
            appended,
            advanced,
        } in self.letters
        {
            if synced {
                counters.appends.add(appended.len());
            } else {
                counters.appends_refused.add(appended.len());
            }
            let mut commands = Vec::with_capacity(2);
            if !appended.is_empty() {
                commands.push(ConnectionCommand::Appended(appended));
            }
            if !advanced.is_empty() {
                commands.push(ConnectionCommand::Advanced(advanced));
            }
            // A connection that is gone needs no answer: what was synced stays.
            let _gone = port.mailbox.post_all(&mut commands);
        }
    }
}
