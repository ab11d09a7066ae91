//! The state remembered of each idempotent writer, so that a batch that is sent again is not stored twice.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sbp_types::{Offset, RangeKey, StreamId, TimestampMs, WriterId};

use crate::EntryHead;
use crate::key_hash::BuildKeyHasher;

/// How many batches of a writer's current epoch are remembered.
pub const WRITER_WINDOW: usize = 64;

/// A writer of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterKey {
    /// The stream it writes to.
    pub stream: StreamId,
    /// The writer's id.
    pub writer: WriterId,
}

impl WriterKey {
    /// The writer that stored a batch; `None` if it had none.
    #[must_use]
    pub fn of(head: &EntryHead) -> Option<Self> {
        head.writer.is_some().then_some(Self {
            stream: head.key.stream,
            writer: head.writer,
        })
    }
}

/// One stored batch of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterBatch {
    /// The sequence number of its first record.
    pub base_sequence: i64,
    /// The number of records.
    pub count: i64,
    /// The offset it was stored at.
    pub base_offset: Offset,
}

/// The state of one writer of one stream. The default is that of a writer that has stored nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterState {
    /// Its current epoch; lower ones are fenced off.
    pub epoch: i64,
    /// The sequence number after its last record.
    pub next_sequence: i64,
    /// Its last batches, oldest first, at most [`WRITER_WINDOW`]. Each continues the sequence of the one before it,
    /// even if a new epoch began between them.
    pub window: VecDeque<WriterBatch>,
    /// The newest append time of its batches and fences.
    pub last_append: TimestampMs,
    /// The range that holds its last batch.
    pub last_range: RangeKey,
    /// One past the offset of its last batch.
    pub last_offset: Offset,
}

impl Default for WriterState {
    fn default() -> Self {
        Self {
            epoch: i64::MIN,
            next_sequence: 0,
            window: VecDeque::new(),
            last_append: TimestampMs(i64::MIN),
            last_range: RangeKey::default(),
            last_offset: Offset::ZERO,
        }
    }
}

impl WriterState {
    /// Whether the writer has never stored anything.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.last_append.0 == i64::MIN
    }

    /// Takes in a batch or fence that was stored. Used while the log runs and by recovery, so both reach the same
    /// state. It does not judge whether the batch should have been stored.
    pub fn record(&mut self, head: &EntryHead) {
        if self.is_unknown() || !head.is_fence() {
            self.last_range = head.key;
            self.last_offset = head.end_offset().unwrap_or(head.base_offset);
        }
        self.last_append = self.last_append.max(head.append_time);
        if head.writer_epoch < self.epoch {
            // Only logs from before writers were judged have such a batch; it does not change the writer's epoch.
            return;
        }
        self.epoch = head.writer_epoch;
        // Forgets batches that were numbered from here on: either a new epoch began at a lower number, or the end of
        // the log was lost and is written again.
        let past = |batch: &mut WriterBatch| batch.base_sequence.saturating_add(batch.count) > head.base_sequence;
        while self.window.pop_back_if(past).is_some() {}
        self.next_sequence = head.base_sequence.saturating_add(head.count);
        if head.is_fence() {
            return;
        }
        if self.window.len() == WRITER_WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(WriterBatch {
            base_sequence: head.base_sequence,
            count: head.count,
            base_offset: head.base_offset,
        });
    }
}

/// All writers that the log remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers {
    // Clients choose the writer ids, so the inner map's hash is seeded against chosen collisions.
    streams: HashMap<StreamId, HashMap<WriterId, WriterState>, BuildKeyHasher>,
    /// The newest append time in the log, by which the silence of writers is measured.
    newest: TimestampMs,
}

impl Writers {
    pub(crate) fn new(states: impl IntoIterator<Item = (WriterKey, WriterState)>, newest: TimestampMs) -> Self {
        let mut writers = Self {
            newest,
            ..Self::default()
        };
        for (key, state) in states {
            writers.streams.entry(key.stream).or_default().insert(key.writer, state);
        }
        writers
    }

    /// Takes in a stored batch, with or without a writer.
    pub(crate) fn record(&mut self, head: &EntryHead) {
        self.newest = self.newest.max(head.append_time);
        if let Some(key) = WriterKey::of(head) {
            let writers = self.streams.entry(key.stream).or_default();
            writers.entry(key.writer).or_default().record(head);
        }
    }

    pub(crate) fn get(&self, key: &WriterKey) -> Option<&WriterState> {
        self.streams.get(&key.stream)?.get(&key.writer)
    }

    pub(crate) fn newest(&self) -> TimestampMs {
        self.newest
    }

    /// All writers, ordered by key.
    pub(crate) fn ordered(&self) -> Vec<(WriterKey, WriterState)> {
        let mut writers: Vec<_> = self.streams.keys().flat_map(|stream| self.of(*stream)).collect();
        writers.sort_unstable_by_key(|(key, _)| *key);
        writers
    }

    /// The writers of a stream, ordered by key.
    pub(crate) fn of(&self, stream: StreamId) -> Vec<(WriterKey, WriterState)> {
        let writers = self.streams.get(&stream).into_iter().flatten();
        let mut writers: Vec<_> = writers
            .map(|(writer, state)| {
                (
                    WriterKey {
                        stream,
                        writer: *writer,
                    },
                    state.clone(),
                )
            })
            .collect();
        writers.sort_unstable_by_key(|(key, _)| *key);
        writers
    }

    /// These are all writers of a stream from now on.
    pub(crate) fn replace(&mut self, stream: StreamId, writers: impl IntoIterator<Item = (WriterKey, WriterState)>) {
        let writers: HashMap<_, _> = writers.into_iter().map(|(key, state)| (key.writer, state)).collect();
        let appended = writers.values().map(|state| state.last_append).max();
        self.newest = self.newest.max(appended.unwrap_or(self.newest));
        self.streams.insert(stream, writers);
    }

    /// Forgets writers whose last batch is released and that have been silent for `retention`.
    pub(crate) fn forget_silent(&mut self, retention: Duration, released: impl Fn(RangeKey, Offset) -> bool) {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let newest = self.newest.0;
        self.keep(|state| {
            newest.saturating_sub(state.last_append.0) < retention || !released(state.last_range, state.last_offset)
        });
    }

    /// Forgets the writers of a deleted stream.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    /// Forgets the writers that fulfil a condition.
    #[cfg(feature = "testing")]
    pub(crate) fn forget_where(&mut self, mut gone: impl FnMut(&WriterState) -> bool) {
        self.keep(|state| !gone(state));
    }

    fn keep(&mut self, mut keep: impl FnMut(&WriterState) -> bool) {
        self.streams.retain(|_, writers| {
            writers.retain(|_, state| keep(state));
            !writers.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sbp_types::{Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

    use super::{WRITER_WINDOW, WriterKey, WriterState, Writers};
    use crate::EntryHead;

    fn head(epoch: i64, base_sequence: i64, count: i64) -> EntryHead {
        EntryHead {
            key: RangeKey {
                stream: StreamId(1),
                range: RangeIndex(0),
            },
            base_offset: Offset(1_000 + base_sequence),
            count,
            append_time: TimestampMs(base_sequence),
            writer: WriterId { high: 0, low: 7 },
            writer_epoch: epoch,
            base_sequence,
            ..EntryHead::default()
        }
    }

    #[test]
    fn batches_move_the_sequence_and_a_new_epoch_begins_a_new_window() {
        let mut state = WriterState::default();
        // An unknown writer may start anywhere.
        state.record(&head(3, 40, 2));
        state.record(&head(3, 42, 5));
        assert_eq!((state.epoch, state.next_sequence, state.window.len()), (3, 47, 2));
        assert_eq!((state.last_append, state.last_offset), (TimestampMs(42), Offset(1_047)));
        state.record(&head(4, 0, 1));
        assert_eq!((state.epoch, state.next_sequence, state.window.len()), (4, 1, 1));
        assert_eq!(
            state.last_append,
            TimestampMs(42),
            "a clock that steps back makes nobody older"
        );
        state.record(&head(3, 47, 1));
        assert_eq!((state.epoch, state.next_sequence, state.window.len()), (4, 1, 1));
        let mut lowest = WriterState::default();
        lowest.record(&head(i64::MIN, 0, 1));
        assert_eq!(lowest.window.len(), 1);
    }

    #[test]
    fn the_window_keeps_the_last_ones() {
        let mut state = WriterState::default();
        for sequence in 0..200 {
            state.record(&head(0, sequence, 1));
        }
        assert_eq!(state.window.len(), WRITER_WINDOW);
        assert_eq!(state.window.front().map(|batch| batch.base_sequence), Some(200 - 64));
        assert_eq!(state.window.back().map(|batch| batch.base_offset), Some(Offset(1_199)));
    }

    #[test]
    fn forgotten_is_who_is_released_and_silent() {
        let key = WriterKey::of(&head(0, 0, 1)).expect("a writer");
        let mut writers = Writers::default();
        writers.record(&head(0, 0, 1));
        let day = Duration::from_millis(100);
        writers.forget_silent(day, |_, _| true);
        assert!(writers.get(&key).is_some(), "not silent");
        // Time passes by what others append.
        writers.record(&EntryHead {
            append_time: TimestampMs(100),
            ..EntryHead::default()
        });
        writers.forget_silent(day, |_, end| end <= Offset(1_000));
        assert!(writers.get(&key).is_some(), "its last batch is still there");
        writers.forget_silent(day, |range, end| range.stream == StreamId(1) && end <= Offset(1_001));
        assert!(writers.get(&key).is_none());
        writers.record(&head(0, 0, 1));
        writers.forget_stream(StreamId(2));
        assert_eq!(writers.ordered().len(), 1);
        writers.forget_stream(StreamId(1));
        assert!(writers.ordered().is_empty());
    }
}
