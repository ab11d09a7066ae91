//! Reading batches, on whatever thread.

use bytes::Bytes;
use sbp_log::{ReadError, StoredBatch};
use sbp_messages::ErrorCode;
use sbp_types::{Offset, StreamId};
use smallvec::SmallVec;

use super::fetch::{Positions, Read, Search, time_elsewhere};
use super::found::{FetchOutcome, Found, ReadDone};
use super::log_errors::read_refusal;
use super::server::RangeServer;
use crate::refusal::Refusal;

/// What one call wants from the log, entry by entry.
#[derive(Debug)]
pub(crate) struct ReadJob {
    /// Payload the call may still spend, exceeded by one batch at most.
    pub(crate) budget: usize,
    /// Which entry, and what.
    pub(crate) reads: Vec<(usize, LogRead)>,
}

/// One look into the log.
#[derive(Clone, Debug)]
pub(crate) enum LogRead {
    /// Batches.
    Batches(Read),
    /// Where an entry begins.
    Start(StreamId, Search),
}

impl ReadJob {
    /// Bytes that the job may bring into memory.
    pub(crate) fn weight(&self) -> usize {
        let each = self.reads.iter().map(|(_, read)| match read {
            LogRead::Batches(read) => read.max_bytes,
            LogRead::Start(..) => 0,
        });
        each.fold(0, usize::saturating_add).min(self.budget)
    }

    /// Does what memory alone can answer; what is left has to be [`run`](Self::run) where the disk may be waited for.
    pub(crate) fn run_hot(self, ranges: &RangeServer) -> (ReadDone, Option<Self>) {
        let Self { mut budget, reads } = self;
        let mut found = Vec::with_capacity(reads.len());
        let mut cold = Vec::new();
        for (entry, read) in reads {
            let outcome = match &read {
                LogRead::Batches(read) if budget == 0 => Some(FetchOutcome::empty(read.positions)),
                LogRead::Batches(read) => ranges
                    .log
                    .read_hot(read.key, read.from, read.max_bytes.min(budget), true)
                    .map(|batches| finish_read(read, batches, &mut budget)),
                LogRead::Start(..) => None,
            };
            match outcome {
                Some(outcome) => found.push((entry, Found::Answer(outcome))),
                None => cold.push((entry, read)),
            }
        }
        let cold = (!cold.is_empty()).then_some(Self { budget, reads: cold });
        (ReadDone { budget, found }, cold)
    }

    /// Does it. May read from the disk.
    pub(crate) fn run(self, ranges: &RangeServer) -> ReadDone {
        let Self { mut budget, reads } = self;
        let mut found = Vec::with_capacity(reads.len());
        for (entry, read) in reads {
            found.push((
                entry,
                match read {
                    LogRead::Batches(read) => Found::Answer(read_batches(ranges, &read, &mut budget)),
                    LogRead::Start(stream, search) => find_start(ranges, stream, &search),
                },
            ));
        }
        ReadDone { budget, found }
    }
}

fn read_batches(ranges: &RangeServer, read: &Read, budget: &mut usize) -> FetchOutcome {
    if *budget == 0 {
        return FetchOutcome::empty(read.positions);
    }
    let batches = ranges.log.read(read.key, read.from, read.max_bytes.min(*budget), true);
    finish_read(read, batches, budget)
}

fn finish_read(read: &Read, batches: Result<Vec<StoredBatch>, ReadError>, budget: &mut usize) -> FetchOutcome {
    let Read {
        key,
        from,
        until,
        sealed_end,
        positions,
        ..
    } = *read;
    match batches {
        Ok(batches) if batches.is_empty() => {
            // Confirmed and not there: what would loop for ever has to end.
            let message = format!("the records of range {key} from offset {from} on are missing");
            FetchOutcome::refused(Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message), Some(positions))
        }
        Ok(batches) => {
            // The log may have synced more than was confirmed when this was judged; whoever was given that would ask next
            // for an offset that may be beyond the end still.
            let until = until.map_or(positions.high_watermark, |until| until.min(positions.high_watermark));
            let batches = batches.into_iter().take_while(|batch| batch.base_offset < until);
            let outcome = gather(batches, sealed_end, positions);
            *budget = budget.saturating_sub(outcome.length);
            outcome
        }
        Err(error) => {
            let bounds = Positions {
                base_offset: Offset(-1),
                ..positions
            };
            let bounds = match error {
                ReadError::Damaged { to, .. } => Positions {
                    next_offset: to,
                    ..bounds
                },
                ReadError::Released { first, .. } => Positions {
                    next_offset: first,
                    start_offset: first,
                    ..bounds
                },
                _ => bounds,
            };
            FetchOutcome::refused(read_refusal(&error), Some(bounds))
        }
    }
}

fn gather(
    batches: impl Iterator<Item = StoredBatch>,
    sealed_end: Option<Offset>,
    positions: Positions,
) -> FetchOutcome {
    let mut outcome = FetchOutcome::empty(positions);
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

fn find_start(ranges: &RangeServer, stream: StreamId, search: &Search) -> Found {
    for range in &search.ranges {
        match ranges.log.find_timestamp(range.key, range.from, search.time) {
            // The batch found may begin before the offset asked for; then the offset is the later of the two.
            Ok(Some(found)) if range.until.is_none_or(|until| found < until) => {
                return Found::Start(found.max(search.from));
            }
            Ok(_) => {}
            Err(error) => return Found::Answer(FetchOutcome::refused(read_refusal(&error), None)),
        }
    }
    match search.otherwise {
        Some(offset) => Found::Start(offset),
        None => Found::Answer(FetchOutcome::refused(time_elsewhere(stream), None)),
    }
}
