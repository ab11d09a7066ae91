//! The range server around its pure half: the log, the clock and the requests that wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_log::{Clock, Log, LogEntry, Queued};
use sbp_messages::ErrorCode;
use sbp_types::{StreamId, TimestampMs};
use smallvec::SmallVec;

use super::address_book::AddressBook;
use super::command::{Command, Effect};
use super::hub::RangeHub;
use super::job::{AppendJob, LogContext, Promise};
use super::log_errors;
use super::notifications::Notifications;
use super::outcome::{AppendDone, EntryId};
use super::parked::ParkedJob;
use super::pressure::{MAX_THROTTLE, Pressure, pressure};
use super::ranges::Ranges;
use super::requester::Requester;
use super::tombstones::Tombstones;
use super::upstream::Upstream;
use crate::access::Gate;
use crate::refusal::Refusal;

/// The shortest time that a client is asked to wait after a refused append.
const MIN_THROTTLE: Duration = Duration::from_millis(10);

/// The range server: judges appends and fetches, and has the log store and read batches.
#[derive(Debug)]
pub(crate) struct RangeServer {
    pub(crate) hub: Arc<RangeHub>,
    pub(crate) log: Log<LogContext>,
    clock: Arc<dyn Clock>,
    began: Instant,
    pub(super) upstream: OnceLock<Arc<dyn Upstream>>,
    /// The most bytes that may wait for the disk before appends are refused.
    max_pending: AtomicU64,
    pub(super) tombstones: Mutex<Tombstones>,
    /// Where the other servers are that have replicas of ranges held here.
    pub(crate) addresses: AddressBook,
}

impl RangeServer {
    pub(crate) fn new(hub: Arc<RangeHub>, log: Log<LogContext>, clock: Arc<dyn Clock>) -> Self {
        Self {
            hub,
            log,
            clock,
            began: Instant::now(),
            upstream: OnceLock::new(),
            max_pending: AtomicU64::new(u64::MAX),
            tombstones: Mutex::default(),
            addresses: AddressBook::default(),
        }
    }

    /// Sets how many bytes may wait for the disk, over all connections. Without this call there is no limit.
    pub(crate) fn set_max_pending(&self, bytes: u64) {
        self.max_pending.store(bytes, Ordering::Relaxed);
    }

    /// The time now, by this server's clock.
    pub(super) fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    /// How long this server has been running, by a clock that never goes back.
    pub(crate) fn running_for(&self) -> Duration {
        self.began.elapsed()
    }

    fn pressure(&self) -> Pressure {
        pressure(self.log.pending_bytes(), self.max_pending.load(Ordering::Relaxed))
    }

    /// How long a client whose append was refused is asked to wait, in milliseconds; never 0.
    pub(crate) fn refused_throttle_ms(&self) -> i32 {
        self.throttle_ms()
            .max(i32::try_from(MIN_THROTTLE.as_millis()).unwrap_or(i32::MAX))
    }

    /// How long a client is asked to wait before its next append, in milliseconds; 0: not at all.
    pub(crate) fn throttle_ms(&self) -> i32 {
        let asked = match self.pressure() {
            Pressure::None => Duration::ZERO,
            Pressure::Throttled(asked) => asked,
            Pressure::TooHigh => MAX_THROTTLE,
        };
        i32::try_from(asked.as_millis()).unwrap_or(i32::MAX)
    }

    /// Judges the batches in order and hands the accepted ones to the log, which notifies `requester` when they are
    /// synced. `done` gets the outcomes that are known on return: refusals and repeats, and batches that the log wrote
    /// on this thread (a few appends without durability).
    pub(crate) fn append(&self, requester: &Arc<dyn Requester>, jobs: &mut Vec<AppendJob>, done: &mut Vec<AppendDone>) {
        if self.pressure() == Pressure::TooHigh {
            let message = "too many bytes wait for the disk; send again later";
            let refuse = |job: AppendJob| job.refuse(Refusal::new(ErrorCode::TOO_MANY_REQUESTS, message));
            done.extend(jobs.drain(..).map(refuse));
            self.hub.counters.appends_refused.add(done.len());
            return;
        }
        let append_time = self.clock.now();
        let mut entries = Vec::with_capacity(jobs.len());
        let mut notifications = Notifications::default();
        let mut asks = Vec::new();
        let mut queued = None;
        {
            // Held until the log has queued the entries, so that they are queued in the order of their offsets.
            let mut ranges = self.hub.ranges.lock();
            for job in jobs.drain(..) {
                let stream = job.entry.stream;
                if ranges.worth_asking(stream) {
                    if ranges.begin_asking(stream) {
                        asks.push(stream);
                    }
                    done.extend(ranges.park(requester, job, true));
                    continue;
                }
                done.extend(ranges.judge(requester, job, append_time, &mut entries));
            }
            let refused = done.iter().filter(|done| done.outcome.is_err()).count();
            self.hub.counters.appends_refused.add(refused);
            if !entries.is_empty() {
                match self.queue(&mut ranges, entries, &mut notifications) {
                    Ok(taken) => queued = Some(taken),
                    Err(mut refused) => done.append(&mut refused),
                }
            }
            self.hub.finish(ranges);
        }
        notifications.send();
        if let Some(queued) = queued {
            self.write_here(requester, queued, done);
        }
        for stream in asks {
            self.ask(stream);
        }
    }

    /// A requester may do other things than before, or nothing any more, for this reason. Returns the outcomes of its appends
    /// that waited and may not be stored now.
    pub(crate) fn change_rights(
        &self,
        requester: &Arc<dyn Requester>,
        rights: Result<&Gate, &Refusal>,
    ) -> Vec<AppendDone> {
        let refused = self.hub.ranges.lock().change_rights(requester, rights);
        self.hub.counters.appends_refused.add(refused.len());
        refused
    }

    /// Judges a stream's parked appends again, in order. The caller announces what is queued after it has sent the
    /// notifications, so that refusals are told before the outcome of later batches.
    pub(super) fn judge_parked(
        &self,
        ranges: &mut Ranges,
        stream: StreamId,
        notifications: &mut Notifications,
    ) -> Option<Queued> {
        let parked = ranges.parked.take(stream);
        if parked.is_empty() {
            return None;
        }
        let append_time = self.clock.now();
        let now = Instant::now();
        let mut entries = Vec::with_capacity(parked.len());
        let mut requesters = Vec::with_capacity(parked.len());
        for ParkedJob { requester, job, asked } in parked {
            if asked && ranges.is_asking(stream) && ranges.worth_asking(stream) {
                // The stream changed for another reason; the placement driver's answer is still to come.
                notifications
                    .to(Arc::clone(&requester))
                    .appended
                    .extend(ranges.park(&requester, job, true));
                continue;
            }
            let expired = job.expires.is_some_and(|expires| now >= expires);
            let before = entries.len();
            let done = if expired {
                Some(job.refuse(Refusal::expired()))
            } else if let Err(refusal) = ranges.check_again(&job) {
                Some(job.refuse(refusal))
            } else {
                ranges.judge(&requester, job, append_time, &mut entries)
            };
            if entries.len() > before {
                requesters.push(Arc::clone(&requester));
            }
            notifications.to(requester).appended.extend(done);
        }
        if entries.is_empty() {
            return None;
        }
        let refused = match self.queue(ranges, entries, notifications) {
            Ok(queued) => return Some(queued),
            Err(refused) => refused,
        };
        for (requester, done) in requesters.into_iter().zip(refused) {
            notifications.push(requester, done);
        }
        None
    }

    /// Has the log write what a requester's task has queued. `done` gets the outcomes of what it wrote on this thread.
    pub(super) fn write_here(&self, requester: &Arc<dyn Requester>, queued: Queued, done: &mut Vec<AppendDone>) {
        let hub = &self.hub;
        self.log.write_here(queued, &mut |contexts, outcome| {
            hub.group_ended_here(requester, contexts, outcome, done);
        });
    }

    /// Sends the notifications, then has the log write what was queued.
    pub(super) fn post(&self, notifications: Notifications, queued: Option<Queued>) {
        notifications.send();
        if let Some(queued) = queued {
            self.log.announce(queued);
        }
        self.hub.finish_later();
    }

    /// Queues entries. If the log refuses them, takes their offsets back and returns their refusals, in order.
    fn queue(
        &self,
        ranges: &mut Ranges,
        entries: Vec<LogEntry<LogContext>>,
        notifications: &mut Notifications,
    ) -> Result<Queued, Vec<AppendDone>> {
        let promised: SmallVec<[(EntryId, Promise); 8]> = entries
            .iter()
            .filter_map(|entry| match &entry.context {
                LogContext::Append(context) => Some((context.entry, context.promise)),
                LogContext::Taken(_) | LogContext::Begun(..) | LogContext::Fenced(_) | LogContext::Drained(_) => None,
            })
            .collect();
        let mut entries = entries;
        let copied = ranges.place_copies(&mut entries);
        let error = match self.log.queue(entries) {
            Ok(queued) => {
                ranges.entries_queued(copied);
                return Ok(queued);
            }
            Err(error) => error,
        };
        if log_errors::is_final(&error) {
            self.hub.health.fail("the log", error.to_string());
        }
        self.hub.counters.appends_refused.add(promised.len());
        let refusal = log_errors::append_refusal(&error);
        let mut refused = Vec::with_capacity(promised.len());
        for (entry, promise) in promised {
            match promise {
                Promise::Fence { writer, epoch } => {
                    ranges.fence_ended(entry.stream, writer, epoch, Some(&refusal), notifications);
                }
                Promise::Batch { key, base, .. } => {
                    if let Effect::TakenBack { from, .. } = ranges.table.apply(Command::TakeBack { key, base }) {
                        ranges.answer_lost(key.stream, from, &refusal, notifications);
                    }
                }
            }
            refused.push(entry.done(Err(refusal.clone().into())));
        }
        Err(refused)
    }
}
