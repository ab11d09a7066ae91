//! The part of a range server that the log calls back when a group has ended.

use std::sync::{Arc, OnceLock};

use sbp_locks::{Mutex, MutexGuard};
use sbp_log::{WriterKey, WriterState};
use sbp_types::StreamId;

use super::command::Command;
use super::copies::Followers;
use super::ranges::Ranges;
use super::stream::{RangeState, StreamFacts};
use super::table::Scope;
use crate::failure::Health;
use crate::stats::Counters;

/// The ranges, health and counters, which the log's writer thread and connections share.
#[derive(Debug)]
pub(crate) struct RangeHub {
    pub(crate) ranges: Mutex<Ranges>,
    pub(super) health: Arc<Health>,
    pub(super) counters: Arc<Counters>,
    followers: OnceLock<Arc<dyn Followers>>,
}

impl RangeHub {
    pub(crate) fn new(health: Arc<Health>, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self {
            ranges: Mutex::default(),
            health,
            counters,
            followers: OnceLock::new(),
        })
    }

    /// Adds a range as it was found when the server started.
    pub(crate) fn open(&self, stream: StreamId, facts: StreamFacts, range: RangeState) {
        self.ranges.lock().table.apply(Command::Open { stream, facts, range });
    }

    /// Sets who sends to followers. Only the first call has an effect.
    pub(crate) fn set_followers(&self, followers: Arc<dyn Followers>) {
        let _already = self.followers.set(followers);
    }

    /// As [`finish`](Self::finish), where the lock was released before.
    pub(super) fn finish_later(&self) {
        if self.followers.get().is_some() {
            self.finish(self.ranges.lock());
        }
    }

    /// Releases the lock, and does what had to wait for that: answers seals of shared ranges, wakes those that send to
    /// followers, and has entries compared.
    pub(crate) fn finish(&self, mut ranges: MutexGuard<'_, Ranges>) {
        let woken = ranges.outboxes.take_woken();
        let answers = ranges.take_seal_answers();
        let to_compare = match self.followers.get() {
            Some(_) => std::mem::take(&mut ranges.to_compare),
            None => Vec::new(),
        };
        let answered = std::mem::take(&mut ranges.answered);
        drop(ranges);
        if answered.stored + answered.refused > 0 {
            self.counters.appends.add(answered.stored);
            self.counters.records_appended.add(answered.records);
            self.counters.appends_refused.add(answered.refused);
        }
        if let Some(answers) = answers {
            answers.give();
        }
        if let Some(followers) = self.followers.get() {
            for server in woken {
                followers.wake(server);
            }
            if !to_compare.is_empty() {
                followers.compare(to_compare);
            }
        }
    }

    /// Takes over the writers that the log remembers. The ranges of their streams must be [open](Self::open) already.
    pub(crate) fn recall(&self, writers: Vec<(WriterKey, WriterState)>) {
        let mut ranges = self.ranges.lock();
        for (WriterKey { stream, writer }, state) in writers {
            ranges.table.apply(Command::Recall { stream, writer, state });
        }
    }

    /// Says whether this server holds every range that exists, so that a stream without a range here does not exist.
    pub(crate) fn set_knows_all(&self, knows_all: bool) {
        self.ranges.lock().table.scope = if knows_all { Scope::Everything } else { Scope::Told };
    }

    /// The placement driver in this process has placed a range on another server: this server no longer holds all
    /// ranges.
    pub(crate) fn share(&self) {
        let scope = &mut self.ranges.lock().table.scope;
        if *scope == Scope::Everything {
            *scope = Scope::Shared;
        }
    }
}
