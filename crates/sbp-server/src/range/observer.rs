//! What the range server does when the log has synced a group, or failed to.

use std::sync::Arc;

use sbp_log::{GroupObserver, LogError};
use sbp_types::{Offset, RangeKey, StreamId, WriterId};

use super::command::{Command, Effect, SealStep};
use super::hub::RangeHub;
use super::job::{LogContext, Promise};
use super::log_errors;
use super::notifications::Notifications;
use super::outcome::AppendDone;
use super::ranges::Ranges;
use super::requester::Requester;
use super::seals::{SealAnswers, seal_end};
use crate::refusal::Refusal;
use crate::stats::Counters;

impl GroupObserver<LogContext> for RangeHub {
    fn group_ended(&self, contexts: Vec<LogContext>, outcome: Result<(), Arc<LogError>>) {
        let (notifications, seals) = self.end_group(contexts, outcome);
        notifications.send();
        seals.give();
    }
}

impl RangeHub {
    /// As [`group_ended`](GroupObserver::group_ended), but called on the task of a connection, `requester`: the
    /// outcomes of its own appends are added to `done` instead of being posted to it.
    pub(super) fn group_ended_here(
        &self,
        requester: &Arc<dyn Requester>,
        contexts: Vec<LogContext>,
        outcome: Result<(), Arc<LogError>>,
        done: &mut Vec<AppendDone>,
    ) {
        let (mut notifications, seals) = self.end_group(contexts, outcome);
        done.append(&mut notifications.take_appended(requester));
        notifications.send();
        seals.give();
    }

    /// Applies a group's outcome and collects whom to tell.
    fn end_group(&self, contexts: Vec<LogContext>, outcome: Result<(), Arc<LogError>>) -> (Notifications, SealAnswers) {
        if let Err(error) = &outcome
            && log_errors::is_final(error)
        {
            self.health.fail("the log", error.to_string());
        }
        let mut notifications = Notifications::default();
        let failed = outcome.as_ref().err().map(|error| log_errors::append_refusal(error));
        let contexts = self.settle_copies(contexts, failed.as_ref(), &mut notifications);
        let seals = self.settle(&contexts, failed.as_ref(), &mut notifications);
        // Of the requesters that are told so far, fetches of theirs wait for what these appends brought.
        let arrivals = contexts.iter().filter_map(LogContext::arrived);
        notifications.arrived(arrivals.min());
        let (mut records, mut batches) = (0_u64, 0);
        for context in contexts {
            let LogContext::Append(context) = context else { continue };
            let stored = context.stored;
            if let Promise::Batch { base, .. } = context.promise {
                batches += 1;
                records += stored.next_offset.distance_from(base);
            }
            let outcome = failed.clone().map_or(Ok(stored), |refusal| Err(refusal.into()));
            notifications.push(context.requester, context.entry.done(outcome));
        }
        count_group(&self.counters, batches, records, failed.is_none());
        (notifications, seals)
    }

    /// As [`settle`](Self::settle), for the entries of ranges that other servers hold too. Returns the other entries.
    fn settle_copies(
        &self,
        contexts: Vec<LogContext>,
        failed: Option<&Refusal>,
        notifications: &mut Notifications,
    ) -> Vec<LogContext> {
        if !contexts.iter().any(LogContext::is_of_copy) {
            return contexts;
        }
        let (of_copies, others): (Vec<_>, Vec<_>) = contexts.into_iter().partition(LogContext::is_of_copy);
        let mut ranges = self.ranges.lock();
        ranges.copies_ended(of_copies, failed, notifications);
        self.finish(ranges);
        others
    }

    /// Makes a group visible to readers, or takes its offsets back, and collects notifications for the requests that
    /// wait. Returns the answers to seals whose end is now known.
    fn settle(
        &self,
        contexts: &[LogContext],
        failed: Option<&Refusal>,
        notifications: &mut Notifications,
    ) -> SealAnswers {
        let mut ranges = self.ranges.lock();
        let mut contexts_left = contexts.iter().peekable();
        while let Some(context) = contexts_left.next() {
            let LogContext::Append(context) = context else { continue };
            let (key, generation, base) = match context.promise {
                Promise::Batch { key, generation, base } => (key, generation, base),
                Promise::Fence { writer, epoch } => {
                    ranges.fence_ended(context.entry.stream, writer, epoch, failed, notifications);
                    continue;
                }
            };
            if let Some(why) = failed {
                let abandon = Command::Abandon { key, base, generation };
                if let Effect::TakenBack { from, .. } = ranges.table.apply(abandon) {
                    ranges.answer_lost(key.stream, from, why, notifications);
                }
                continue;
            }
            // Of consecutive entries in one range, confirming the last one confirms all.
            let in_range = |promise| matches!(promise, Promise::Batch { key: next, .. } if next == key);
            let same = |next: &&LogContext| matches!(next, LogContext::Append(next) if in_range(next.promise));
            if !contexts_left.peek().is_some_and(same) {
                ranges.confirm(key, context.stored.next_offset, notifications);
            }
        }
        let mut seals = SealAnswers::default();
        for context in contexts {
            if let LogContext::Drained(key) = *context {
                // Also after a failure: the range then ends with what is synced.
                ranges.drain(key, &mut seals);
            }
        }
        seals
    }
}

/// Counts the batches of a group, and what was in them.
///
/// A function of its own in the program, so that what it costs can be seen: `python -m tests.bench --only counting`.
#[inline(never)]
fn count_group(counters: &Counters, batches: usize, records: u64, stored: bool) {
    if stored {
        counters.appends.add(batches);
        counters
            .records_appended
            .add(usize::try_from(records).unwrap_or(usize::MAX));
    } else {
        counters.appends_refused.add(batches);
    }
}

impl Ranges {
    fn confirm(&mut self, key: RangeKey, end: Offset, notifications: &mut Notifications) {
        if let Effect::Advanced(stream) = self.table.apply(Command::Confirm { key, end }) {
            self.wake(stream, notifications);
            self.answer_synced(stream, end, notifications);
        }
    }

    /// The log has synced a writer's fence or, with `failed`, did not store it.
    pub(super) fn fence_ended(
        &mut self,
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
        failed: Option<&Refusal>,
        notifications: &mut Notifications,
    ) {
        self.table.apply(match failed {
            None => Command::Fenced { stream, writer, epoch },
            Some(_) => Command::Unfence { stream, writer, epoch },
        });
        self.answer_fenced(stream, writer, epoch, failed, notifications);
    }

    /// The log has ended everything that a range accepted before it was sealed: answers the seals that wait.
    pub(super) fn drain(&mut self, key: RangeKey, seals: &mut SealAnswers) {
        let Effect::Seal(step) = self.table.apply(Command::Drain { key }) else {
            return;
        };
        if step != SealStep::UnderWay {
            seals.take(&mut self.seals, key, seal_end(step, key, &self.table));
        }
    }
}
