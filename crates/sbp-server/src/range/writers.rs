//! Idempotent writers: which batch of a writer may be stored next, and which are repeats.

use std::cmp::Ordering;
use std::collections::VecDeque;

use sbp_log::{EntryHead, WRITER_WINDOW, WriterState};
use sbp_types::{Offset, WriterId};

/// The writer, epoch and sequence in a batch's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriterSequence {
    pub(crate) writer: WriterId,
    pub(crate) epoch: i64,
    /// Sequence of the batch's first record.
    pub(crate) sequence: i64,
}

/// An empty batch that waits for unsynced batches or fences of its writer before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriterQuestion {
    pub(crate) claim: WriterSequence,
    /// Whether the batch is a fence: a repeat of one that is not known to be synced yet.
    pub(crate) is_fence: bool,
}

/// What has to be synced, or have failed, before a waiting entry can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// All records before this offset.
    Synced(Offset),
    /// The fence of this writer and epoch.
    Fenced { writer: WriterId, epoch: i64 },
}

/// One writer of one stream.
///
/// Stored and promised batches are kept apart: if the log fails to store what was promised, the writer's state is as if
/// those batches and fences had never come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    /// The state that follows from the writer's synced batches and fences, computed as the log does.
    stored: WriterState,
    /// Batches and fences handed to the log and not known to be synced, oldest first.
    promised: VecDeque<EntryHead>,
}

/// How a batch's sequence relates to what its writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceCheck {
    /// The batch continues the sequence.
    Next,
    /// The batch is stored already, at this offset if that is still remembered.
    Repeat { base_offset: Option<Offset> },
    /// The writer has a higher epoch, `by`.
    Fenced { by: i64 },
    /// Records before this batch are missing.
    Gap { expected: i64 },
    /// Some of the batch's records are stored already.
    Overlap { expected: i64 },
}

impl Writer {
    /// A writer as the log remembers it, without its batches at `end` or later.
    pub(super) fn recovered(mut stored: WriterState, end: Option<Offset>) -> Self {
        while let Some(batch) = stored
            .window
            .pop_back_if(|batch| end.is_some_and(|end| batch.base_offset >= end))
        {
            stored.next_sequence = batch.base_sequence;
        }
        Self {
            stored,
            promised: VecDeque::new(),
        }
    }

    /// A batch or fence of this writer is being handed to the log.
    pub(super) fn promise(&mut self, head: EntryHead) {
        self.promised.push_back(head);
    }

    /// All records before `confirmed` are synced: what was promised of them counts as stored.
    pub(super) fn settle(&mut self, confirmed: Offset) {
        while let Some(head) = self.promised.pop_front_if(|head| head.base_offset < confirmed) {
            self.stored.record(&head);
        }
    }

    /// The fence with this epoch is synced, and so is everything promised before it.
    pub(super) fn fenced(&mut self, epoch: i64) {
        let Some(place) = self.place_of_fence(epoch) else {
            return;
        };
        for head in self.promised.drain(..=place) {
            self.stored.record(&head);
        }
    }

    /// The log did not store the fence with this epoch.
    pub(super) fn unfence(&mut self, epoch: i64) {
        if let Some(place) = self.place_of_fence(epoch) {
            self.promised.remove(place);
        }
    }

    fn place_of_fence(&self, epoch: i64) -> Option<usize> {
        let is_it = |head: &EntryHead| head.is_fence() && head.writer_epoch == epoch;
        self.promised.iter().position(is_it)
    }

    /// The log did not store the records from `from` on. Fences have no offsets: the log reports the outcome of each.
    pub(super) fn take_back(&mut self, from: Offset) {
        self.promised.retain(|head| head.is_fence() || head.base_offset < from);
    }

    /// Whether the writer has nothing stored and nothing promised.
    pub(super) fn is_blank(&self) -> bool {
        self.promised.is_empty() && self.stored.is_unknown()
    }

    /// Whether none of the writer's records is left in a stream that begins at `start`.
    pub(super) fn is_trimmed(&self, start: Offset) -> bool {
        !self.is_waiting() && self.stored.last_offset <= start
    }

    /// Whether promised batches or fences are not known to be synced yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.promised.is_empty()
    }

    /// What the writer's last promised batch or fence waits for, if there is one. When that is over, the writer's state
    /// is certain.
    pub(super) fn promised_until(&self) -> Option<Until> {
        let last = self.promised.back()?;
        if last.is_fence() {
            let (writer, epoch) = (last.writer, last.writer_epoch);
            return Some(Until::Fenced { writer, epoch });
        }
        last.end_offset().map(Until::Synced)
    }

    /// The writer's highest epoch, stored or promised.
    pub(super) fn epoch(&self) -> i64 {
        self.promised.back().map_or(self.stored.epoch, |head| head.writer_epoch)
    }

    /// The sequence after all records stored or promised.
    pub(super) fn next_sequence(&self) -> i64 {
        self.promised.back().map_or(self.stored.next_sequence, |head| {
            head.base_sequence.saturating_add(head.count)
        })
    }

    /// The sequence at which a batch with this epoch continues; `None` if the writer's epoch is higher. A higher epoch
    /// may also begin at 0.
    pub(super) fn expected(&self, epoch: i64) -> Option<i64> {
        (epoch >= self.epoch()).then(|| self.next_sequence())
    }

    /// As [`expected`](Self::expected), but from what is synced alone; `None` if nothing is. `Err` is the writer's higher
    /// epoch.
    pub(super) fn stored_sequence(&self, epoch: i64) -> Result<Option<i64>, i64> {
        if self.stored.is_unknown() {
            Ok(None)
        } else if epoch < self.stored.epoch {
            Err(self.stored.epoch)
        } else {
            Ok(Some(self.stored.next_sequence))
        }
    }

    /// The highest epoch that is synced, if any is.
    pub(super) fn stored_epoch(&self) -> Option<i64> {
        (!self.stored.is_unknown()).then_some(self.stored.epoch)
    }

    /// How a batch of `count` records, at least 1, relates to the writer's sequence.
    pub(super) fn stand(&self, claim: &WriterSequence, count: i64) -> SequenceCheck {
        let (epoch, expected) = (self.epoch(), self.next_sequence());
        match (claim.epoch.cmp(&epoch), claim.sequence.cmp(&expected)) {
            (Ordering::Less, _) => SequenceCheck::Fenced { by: epoch },
            (_, Ordering::Equal) => SequenceCheck::Next,
            (Ordering::Greater, _) if claim.sequence == 0 => SequenceCheck::Next,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Greater) => SequenceCheck::Gap { expected },
            (Ordering::Equal, Ordering::Less) => self.look_back(claim, count, expected),
        }
    }

    /// Judges a batch that begins before the next sequence: it is a repeat or overlaps.
    fn look_back(&self, claim: &WriterSequence, count: i64, expected: i64) -> SequenceCheck {
        let mut oldest = expected;
        for (sequence, records, base_offset) in self.window() {
            if (sequence, records) == (claim.sequence, count) {
                return SequenceCheck::Repeat {
                    base_offset: Some(base_offset),
                };
            }
            oldest = sequence;
        }
        // The sum cannot overflow: the head was checked for it when it was read.
        if claim.sequence.saturating_add(count) <= oldest {
            return SequenceCheck::Repeat { base_offset: None };
        }
        SequenceCheck::Overlap { expected }
    }

    /// Sequence, record count and offset of the remembered batches, newest first: the promised ones, then the stored
    /// window. Stops where a batch does not end at or before the one after it begins: that one was numbered before an
    /// epoch began at 0 again.
    fn window(&self) -> impl Iterator<Item = (i64, i64, Offset)> {
        let promised = self.promised.iter().rev().filter(|head| !head.is_fence());
        let promised = promised.map(|head| (head.base_sequence, head.count, head.base_offset));
        let stored = self.stored.window.iter().rev();
        let stored = stored.map(|batch| (batch.base_sequence, batch.count, batch.base_offset));
        let mut bound = self.next_sequence();
        let goes_on = move |batch: &(i64, i64, Offset)| {
            let fits = batch.0.saturating_add(batch.1) <= bound;
            bound = batch.0;
            fits
        };
        promised.chain(stored).take_while(goes_on).take(WRITER_WINDOW)
    }
}

/// As [`Writer::stand`]; an unknown writer may begin at any sequence.
pub(super) fn stand(writer: Option<&Writer>, claim: &WriterSequence, count: i64) -> SequenceCheck {
    writer.map_or(SequenceCheck::Next, |writer| writer.stand(claim, count))
}

/// The next sequence to answer a writer with; `None` for an unknown writer or one with too low an epoch.
pub(super) fn expected(writer: Option<&Writer>, claim: Option<&WriterSequence>) -> Option<i64> {
    claim
        .zip(writer)
        .and_then(|(claim, writer)| writer.expected(claim.epoch))
}
