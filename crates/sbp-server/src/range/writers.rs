//! What idempotent writers may append.

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

/// One writer of one stream.
///
/// What is stored and what is only promised stay apart, so that a promise which the log does not keep leaves nothing
/// behind, not even a fence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    /// By its synced batches, as the log folds them.
    stored: WriterState,
    /// Batches handed to the log and not known to be synced, oldest first.
    promised: VecDeque<EntryHead>,
}

/// How a batch fits to what its writer has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the next one.
    Next,
    /// It is there already, at this offset; -1: nobody remembers where.
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

    /// The log was given a batch of this writer.
    pub(super) fn promise(&mut self, head: EntryHead) {
        self.promised.push_back(head);
    }

    /// Everything before `confirmed` is synced.
    pub(super) fn settle(&mut self, confirmed: Offset) {
        while let Some(head) = self.promised.pop_front_if(|head| head.base_offset < confirmed) {
            self.stored.record(&head);
        }
    }

    /// Nothing from `from` on is there.
    pub(super) fn take_back(&mut self, from: Offset) {
        while self.promised.pop_back_if(|head| head.base_offset >= from).is_some() {}
    }

    /// Whether it has stored nothing and nothing is under way.
    pub(super) fn is_blank(&self) -> bool {
        self.promised.is_empty() && self.stored.window.is_empty()
    }

    /// Whether nothing of it is left in a stream that begins at `start`.
    pub(super) fn is_trimmed(&self, start: Offset) -> bool {
        !self.is_waiting() && self.stored.last_offset <= start
    }

    /// Whether something is under way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.promised.is_empty()
    }

    /// The offset behind what is under way in its epoch.
    pub(super) fn promised_end(&self) -> Option<Offset> {
        self.promised.back()?.end_offset()
    }

    fn epoch(&self) -> i64 {
        self.promised.back().map_or(self.stored.epoch, |head| head.writer_epoch)
    }

    fn next_sequence(&self) -> i64 {
        self.promised.back().map_or(self.stored.next_sequence, |head| {
            head.base_sequence.saturating_add(head.count)
        })
    }

    /// The sequence that a batch of this epoch has to have; `None` where a higher epoch was stored.
    pub(super) fn expected(&self, epoch: i64) -> Option<i64> {
        match epoch.cmp(&self.epoch()) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(self.next_sequence()),
            std::cmp::Ordering::Greater => Some(0),
        }
    }

    /// The same by what is synced alone; -1 where that is nothing.
    pub(super) fn stored_sequence(&self, epoch: i64) -> Option<i64> {
        match epoch.cmp(&self.stored.epoch) {
            _ if self.stored.window.is_empty() => Some(-1),
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(self.stored.next_sequence),
            std::cmp::Ordering::Greater => Some(0),
        }
    }

    /// How a batch of `count` records, at least 1, fits.
    pub(super) fn stand(&self, claim: &Claim, count: i64) -> Standing {
        let Some(expected) = self.expected(claim.epoch) else {
            return Standing::Fenced { by: self.epoch() };
        };
        match claim.sequence.cmp(&expected) {
            std::cmp::Ordering::Equal => Standing::Next,
            std::cmp::Ordering::Greater => Standing::Gap { expected },
            std::cmp::Ordering::Less => self.look_back(claim, count, expected),
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

    /// Sequence, records and offset of the batches of the current epoch that are remembered, newest first: the window,
    /// and whatever is not synced.
    fn window(&self) -> impl Iterator<Item = (i64, i64, Offset)> {
        let epoch = self.epoch();
        let promised = self
            .promised
            .iter()
            .rev()
            .filter(move |head| head.writer_epoch == epoch);
        let promised = promised.map(|head| (head.base_sequence, head.count, head.base_offset));
        let stored = (self.stored.epoch == epoch).then_some(&self.stored.window);
        let left = WRITER_WINDOW.saturating_sub(self.promised.len());
        let stored = stored.into_iter().flat_map(|window| window.iter().rev()).take(left);
        promised.chain(stored.map(|batch| (batch.base_sequence, batch.count, batch.base_offset)))
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
