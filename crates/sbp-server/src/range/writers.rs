//! What idempotent writers may append.

use std::cmp::Ordering;
use std::collections::VecDeque;

use sbp_log::{EntryHead, WRITER_WINDOW, WriterState};
use sbp_types::{Offset, WriterId};

/// What a batch says of its writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) writer: WriterId,
    pub(crate) epoch: i64,
    /// Sequence of the batch's first record.
    pub(crate) sequence: i64,
}

/// An empty batch that waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) claim: Claim,
    /// It was to make the claim's epoch current, and something else is about to.
    pub(crate) is_fence: bool,
}

/// What has to be over before something can be said for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Everything before this offset.
    Synced(Offset),
    /// This writer's fence of this epoch.
    Fenced { writer: WriterId, epoch: i64 },
}

/// One writer of one stream.
///
/// What is stored and what is only promised stay apart, so that a promise which the log does not keep leaves nothing
/// behind, not even a fence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    /// By its synced batches and fences, as the log folds them.
    stored: WriterState,
    /// Batches and fences handed to the log and not known to be synced, oldest first.
    promised: VecDeque<EntryHead>,
}

/// How a batch fits to what its writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the next one.
    Next,
    /// It is stored already, at this offset; -1: the offset is not remembered any more.
    Repeat { base_offset: Offset },
    /// A higher epoch was stored.
    Fenced { by: i64 },
    /// Something before it is missing.
    Gap { expected: i64 },
    /// Part of it is there already.
    Overlap { expected: i64 },
}

impl Writer {
    /// A writer as the log remembers it, but for batches at `end` or behind.
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

    /// The log was given a batch or fence of this writer.
    pub(super) fn promise(&mut self, head: EntryHead) {
        self.promised.push_back(head);
    }

    /// Everything before `confirmed` is synced.
    pub(super) fn settle(&mut self, confirmed: Offset) {
        while let Some(head) = self.promised.pop_front_if(|head| head.base_offset < confirmed) {
            self.stored.record(&head);
        }
    }

    /// Its fence of this epoch is synced, and so is everything that was promised before.
    pub(super) fn fenced(&mut self, epoch: i64) {
        let Some(place) = self.place_of_fence(epoch) else {
            return;
        };
        for head in self.promised.drain(..=place) {
            self.stored.record(&head);
        }
    }

    /// Its fence of this epoch is not there and will not be.
    pub(super) fn unfence(&mut self, epoch: i64) {
        if let Some(place) = self.place_of_fence(epoch) {
            self.promised.remove(place);
        }
    }

    fn place_of_fence(&self, epoch: i64) -> Option<usize> {
        let is_it = |head: &EntryHead| head.is_fence() && head.writer_epoch == epoch;
        self.promised.iter().position(is_it)
    }

    /// Nothing from `from` on is there. Fences take no offsets: what became of each, the log tells by itself.
    pub(super) fn take_back(&mut self, from: Offset) {
        self.promised.retain(|head| head.is_fence() || head.base_offset < from);
    }

    /// Whether it has stored nothing and nothing is under way.
    pub(super) fn is_blank(&self) -> bool {
        self.promised.is_empty() && self.stored.is_unknown()
    }

    /// Whether nothing of it is left in a stream that begins at `start`.
    pub(super) fn is_trimmed(&self, start: Offset) -> bool {
        !self.is_waiting() && self.stored.last_offset <= start
    }

    /// Whether something is under way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.promised.is_empty()
    }

    /// What is under way, if anything: when it is over, it is certain where the writer stands.
    pub(super) fn promised_until(&self) -> Option<Until> {
        let last = self.promised.back()?;
        if last.is_fence() {
            let (writer, epoch) = (last.writer, last.writer_epoch);
            return Some(Until::Fenced { writer, epoch });
        }
        last.end_offset().map(Until::Synced)
    }

    /// Its epoch, as far as is known.
    pub(super) fn epoch(&self) -> i64 {
        self.promised.back().map_or(self.stored.epoch, |head| head.writer_epoch)
    }

    /// The sequence behind all that it has stored or has under way.
    pub(super) fn next_sequence(&self) -> i64 {
        self.promised.back().map_or(self.stored.next_sequence, |head| {
            head.base_sequence.saturating_add(head.count)
        })
    }

    /// The sequence that a batch of this epoch goes on at; `None` where a higher epoch was stored. A new epoch may begin at
    /// 0 instead.
    pub(super) fn expected(&self, epoch: i64) -> Option<i64> {
        (epoch >= self.epoch()).then(|| self.next_sequence())
    }

    /// The same by what is synced alone; -1 where that is nothing. The other way: the epoch to beat.
    pub(super) fn stored_sequence(&self, epoch: i64) -> Result<i64, i64> {
        if self.stored.is_unknown() {
            Ok(-1)
        } else if epoch < self.stored.epoch {
            Err(self.stored.epoch)
        } else {
            Ok(self.stored.next_sequence)
        }
    }

    /// The epoch of what is synced, if anything is.
    pub(super) fn stored_epoch(&self) -> Option<i64> {
        (!self.stored.is_unknown()).then_some(self.stored.epoch)
    }

    /// How a batch of `count` records, at least 1, fits.
    pub(super) fn stand(&self, claim: &Claim, count: i64) -> Standing {
        let (epoch, expected) = (self.epoch(), self.next_sequence());
        match (claim.epoch.cmp(&epoch), claim.sequence.cmp(&expected)) {
            (Ordering::Less, _) => Standing::Fenced { by: epoch },
            (_, Ordering::Equal) => Standing::Next,
            (Ordering::Greater, _) if claim.sequence == 0 => Standing::Next,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Greater) => Standing::Gap { expected },
            (Ordering::Equal, Ordering::Less) => self.look_back(claim, count, expected),
        }
    }

    /// What is said of a batch that begins before the next sequence.
    fn look_back(&self, claim: &Claim, count: i64, expected: i64) -> Standing {
        let mut oldest = expected;
        for (sequence, records, base_offset) in self.window() {
            if (sequence, records) == (claim.sequence, count) {
                return Standing::Repeat { base_offset };
            }
            oldest = sequence;
        }
        // The end of a batch is within the number: that is judged with its head.
        if claim.sequence.saturating_add(count) <= oldest {
            return Standing::Repeat {
                base_offset: Offset(-1),
            };
        }
        Standing::Overlap { expected }
    }

    /// Sequence, records and offset of the batches that are remembered, newest first: whatever is not synced, and the
    /// window. Each ends where the next one begins, or before; what was numbered before an epoch began anew does not.
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

/// The same for a writer that may be unknown, and may then start anywhere.
pub(super) fn stand(writer: Option<&Writer>, claim: &Claim, count: i64) -> Standing {
    writer.map_or(Standing::Next, |writer| writer.stand(claim, count))
}

/// What an answer tells a writer: the sequence expected of its epoch; -1 where there is no such thing.
pub(super) fn expected(writer: Option<&Writer>, claim: Option<&Claim>) -> i64 {
    claim
        .zip(writer)
        .and_then(|(claim, writer)| writer.expected(claim.epoch))
        .unwrap_or(-1)
}
