//! What belongs to one shared range beside its [`Replica`](sbp_replication::Replica).

use std::collections::VecDeque;
use std::sync::Arc;

use sbp_log::{EntryKind, LogEntry};
use sbp_types::{Epoch, Position, RangeKey, TimestampMs};
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::kept::{ENTRY_BYTES, KeptOf};
use crate::range::job::{AppendContext, LogContext};
use crate::range::outcome::EntryId;
use crate::range::requester::Requester;

/// Entries that a range keeps in memory for its followers: older ones are read from the log. Also the most appends that are
/// not confirmed.
pub(in crate::range) const MOST_ENTRIES: usize = 1_024;
/// Bytes of them.
const MOST_BYTES: usize = 16 << 20;

/// What a server has in memory of a range that others hold too.
#[derive(Debug, Default)]
pub(crate) struct CopyWork {
    /// The newest entries that were given to the log here as primary, in their order and without gaps.
    recent: VecDeque<RecentEntry>,
    recent_bytes: usize,
    /// How many appends were given to the log here and have not ended there.
    pub(in crate::range) unsynced: usize,
    /// Appends that are synced here and not confirmed yet, with the places behind them.
    pub(in crate::range) unconfirmed: VecDeque<(Position, AppendContext)>,
    /// Entries that another server sent a second time and that are not synced yet.
    pub(in crate::range) repeated: Vec<Repeated>,
}

/// An entry of a range, as followers are sent it.
#[derive(Clone, Debug)]
pub(in crate::range) struct RecentEntry {
    pub(in crate::range) at: Position,
    pub(in crate::range) to: Position,
    pub(in crate::range) epoch: Epoch,
    pub(in crate::range) append_time: TimestampMs,
    /// The batch; of a fence, nothing.
    pub(in crate::range) chunks: SmallVec<[bytes::Bytes; 2]>,
    pub(in crate::range) head: sbp_log::EntryHead,
    bytes: usize,
    /// Counts all that is kept, over all ranges.
    number: u64,
}

/// An entry that another server has sent and that is here already. It is answered when the two were compared, for which
/// that which is here has to be synced; or when it was put in the place of one that the disk has lost.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(in crate::range) key: RangeKey,
    pub(in crate::range) at: Position,
    pub(in crate::range) to: Position,
    pub(in crate::range) fingerprint: Fingerprint,
    /// Its bytes as they are stored.
    pub(in crate::range) pieces: SmallVec<[bytes::Bytes; 2]>,
    pub(in crate::range) is_written_back: bool,
    pub(in crate::range) requester: Arc<dyn Requester>,
    pub(in crate::range) entry: EntryId,
}

impl RecentEntry {
    /// An entry that is about to be given to the log.
    pub(in crate::range) fn of(entry: &LogEntry<LogContext>, at: Position, to: Position) -> Self {
        let mut chunks = SmallVec::new();
        if !entry.prefix.is_empty() {
            chunks.push(bytes::Bytes::copy_from_slice(&entry.prefix));
        }
        chunks.extend(entry.chunks.iter().cloned());
        Self {
            at,
            to,
            epoch: entry.head.epoch,
            append_time: entry.head.append_time,
            chunks,
            head: entry.head,
            bytes: entry.batch_len(),
            number: 0,
        }
    }
}

impl RecentEntry {
    /// Whether a client waits for it.
    pub(in crate::range) fn is_append(&self) -> bool {
        !matches!(self.head.kind, EntryKind::Writers { .. })
    }
}

impl CopyWork {
    /// Keeps an entry for the followers, which has this number among all that is kept.
    pub(in crate::range) fn keep(&mut self, mut entry: RecentEntry, number: u64) {
        entry.number = number;
        if self.recent.back().is_some_and(|last| last.to != entry.at) {
            self.forget_recent();
        }
        self.recent_bytes += entry.bytes;
        self.recent.push_back(entry);
        while self.recent.len() > MOST_ENTRIES || self.recent_bytes > MOST_BYTES {
            self.forget_first();
        }
    }

    /// How many appends the log was given that are not confirmed: no more than [`MOST_ENTRIES`]. A log that is opened again
    /// takes all but so many for confirmed.
    pub(in crate::range) fn unconfirmed_appends(&self) -> usize {
        self.unsynced + self.unconfirmed.len()
    }

    /// The entry that stands here, if it is in memory.
    pub(in crate::range) fn recent(&self, at: Position) -> Option<&RecentEntry> {
        let index = self.recent.partition_point(|entry| entry.at < at);
        self.recent.get(index).filter(|entry| entry.at == at)
    }

    /// How much is kept for the followers.
    pub(in crate::range) fn kept(&self) -> KeptOf {
        KeptOf {
            entries: self.recent.len(),
            bytes: self.recent_bytes + self.recent.len() * ENTRY_BYTES,
        }
    }

    /// Whether the entry with this number is kept.
    pub(in crate::range) fn keeps(&self, number: u64) -> bool {
        self.recent.front().is_some_and(|first| first.number <= number)
    }

    /// Forgets the first entry, if it has this number.
    pub(in crate::range) fn forget_oldest(&mut self, number: u64) {
        if self.recent.front().is_some_and(|first| first.number == number) {
            self.forget_first();
        }
    }

    /// Forgets what every follower has synced.
    pub(in crate::range) fn forget_before(&mut self, needed: Position) {
        while self.recent.front().is_some_and(|entry| entry.to <= needed) {
            self.forget_first();
        }
    }

    /// Nothing of it will be stored.
    pub(in crate::range) fn forget_recent(&mut self) {
        self.recent.clear();
        self.recent_bytes = 0;
    }

    fn forget_first(&mut self) {
        if let Some(entry) = self.recent.pop_front() {
            self.recent_bytes = self.recent_bytes.saturating_sub(entry.bytes);
        }
    }

    /// The appends before this place, which are confirmed.
    pub(in crate::range) fn take_confirmed(&mut self, confirmed: Position) -> impl Iterator<Item = AppendContext> {
        let count = self.unconfirmed.partition_point(|(to, _)| *to <= confirmed);
        self.unconfirmed.drain(..count).map(|(_, context)| context)
    }

    /// Whether nothing waits and nothing is kept.
    pub(in crate::range) fn is_idle(&self) -> bool {
        self.recent.is_empty() && self.unsynced == 0 && self.unconfirmed.is_empty() && self.repeated.is_empty()
    }
}
