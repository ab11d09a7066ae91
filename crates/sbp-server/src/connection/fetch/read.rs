//! Reading batches, on whatever thread.

use bytes::Bytes;
use sbp_log::{ReadError, StoredBatch};
use sbp_types::{Offset, RangeKey, TimestampMs};
use smallvec::SmallVec;

use super::call::Outcome;
use crate::range::{Positions, RangeServer, Read, read_refusal};

/// Bytes from the places that are read to the ends of their ranges, up to which a job counts as quick.
const QUICK_BYTES: u64 = 1 << 20;

/// What one call wants from the log, entry by entry.
#[derive(Debug)]
pub(crate) struct ReadJob {
    /// Payload the call may still spend, exceeded by one batch at most.
    pub(super) budget: usize,
    /// Which entry, and what.
    pub(super) reads: Vec<(usize, LogRead)>,
}

/// One look into the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum LogRead {
    /// Batches.
    Batches(Read),
    /// The first batch at or behind `from` that reaches `time`, or else `otherwise`.
    Start {
        key: RangeKey,
        from: Offset,
        time: TimestampMs,
        otherwise: Offset,
    },
}

/// What a [`ReadJob`] found.
#[derive(Debug)]
pub(crate) struct ReadDone {
    pub(super) budget: usize,
    pub(super) found: Vec<(usize, Found)>,
}

#[derive(Debug)]
pub(super) enum Found {
    /// The entry is answered.
    Answer(Outcome),
    /// The entry begins here.
    Start(Offset),
}

impl ReadJob {
    /// Bytes that the job may bring into memory.
    pub(super) fn weight(&self) -> usize {
        let each = self.reads.iter().map(|(_, read)| match read {
            LogRead::Batches(read) => read.max_bytes,
            LogRead::Start { .. } => 0,
        });
        each.fold(0, usize::saturating_add).min(self.budget)
    }

    /// Whether the job takes no time to speak of: it looks only at the ends of ranges, which are in memory unless other
    /// ranges have grown much since, and at so little that a disk would not be long over it either.
    pub(super) fn is_quick(&self, ranges: &RangeServer) -> bool {
        let behind = self.reads.iter().map(|(_, read)| match read {
            LogRead::Batches(read) => ranges.log.bytes_from(read.key, read.from),
            LogRead::Start { key, from, .. } => ranges.log.bytes_from(*key, *from),
        });
        behind.fold(0, u64::saturating_add) <= QUICK_BYTES
    }

    /// Does it. May read from the disk.
    pub(crate) fn run(self, ranges: &RangeServer) -> ReadDone {
        let Self { mut budget, reads } = self;
        let mut found = Vec::with_capacity(reads.len());
        for (entry, read) in reads {
            found.push((
                entry,
                match read {
                    LogRead::Batches(read) => Found::Answer(read_batches(ranges, read, &mut budget)),
                    LogRead::Start {
                        key,
                        from,
                        time,
                        otherwise,
                    } => find_start(ranges, key, from, time, otherwise),
                },
            ));
        }
        ReadDone { budget, found }
    }
}

fn read_batches(ranges: &RangeServer, read: Read, budget: &mut usize) -> Outcome {
    let Read {
        key,
        from,
        until,
        max_bytes,
        sealed_end,
        positions,
    } = read;
    if *budget == 0 {
        return Outcome::empty(positions);
    }
    match ranges.log.read(key, from, max_bytes.min(*budget), true) {
        Ok(batches) => {
            let batches = batches
                .into_iter()
                .take_while(|batch| until.is_none_or(|until| batch.base_offset < until));
            let outcome = gather(batches, sealed_end, positions);
            *budget = budget.saturating_sub(outcome.length);
            outcome
        }
        Err(error) => {
            let refusal = read_refusal(&error);
            let next_offset = match error {
                ReadError::Damaged { to, .. } => to,
                ReadError::Released { first, .. } => first,
                _ => positions.next_offset,
            };
            Outcome::refused(
                refusal,
                Some(Positions {
                    base_offset: Offset(-1),
                    next_offset,
                    ..positions
                }),
            )
        }
    }
}

fn gather(batches: impl Iterator<Item = StoredBatch>, sealed_end: Option<Offset>, positions: Positions) -> Outcome {
    let mut outcome = Outcome::empty(positions);
    let mut records = 0_i64;
    let mut chunks: SmallVec<[Bytes; 1]> = SmallVec::new();
    for batch in batches {
        if chunks.is_empty() {
            outcome.positions.base_offset = batch.base_offset;
        }
        outcome.positions.next_offset = batch.base_offset.checked_add(batch.count).unwrap_or(batch.base_offset);
        outcome.length = outcome.length.saturating_add(batch.bytes.len());
        records = records.saturating_add(batch.count);
        chunks.extend(batch.bytes.chunks().iter().cloned());
    }
    outcome.positions.end_of_range = sealed_end == Some(outcome.positions.next_offset);
    outcome.record_count = i32::try_from(records).unwrap_or(i32::MAX);
    outcome.chunks = chunks;
    outcome
}

fn find_start(ranges: &RangeServer, key: RangeKey, from: Offset, time: TimestampMs, otherwise: Offset) -> Found {
    match ranges.log.find_timestamp(key, from, time) {
        // The batch found may begin before the offset asked for; then the offset is the later of the two.
        Ok(found) => Found::Start(found.map_or(otherwise, |found| found.max(from))),
        Err(error) => Found::Answer(Outcome::refused(read_refusal(&error), None)),
    }
}
