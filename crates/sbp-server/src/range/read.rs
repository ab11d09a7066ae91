//! Reading batches from the log, on a connection's thread (memory only) or on a reader thread.

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

/// The reads that one FETCH needs from the log.
#[derive(Debug)]
pub(crate) struct ReadJob {
    /// Bytes of payload the FETCH may still return; the last batch may exceed them.
    pub(crate) budget: usize,
    /// Each read with the index of the FETCH entry that it is for.
    pub(crate) reads: Vec<(usize, LogRead)>,
}

/// One read of the log.
#[derive(Clone, Debug)]
pub(crate) enum LogRead {
    /// Reads batches.
    Batches(Read),
    /// Finds the offset at which an entry that names a time begins.
    Start(StreamId, Search),
}

impl ReadJob {
    /// The most bytes that the job brings into memory, but for a single larger batch.
    pub(crate) fn weight(&self) -> usize {
        let each = self.reads.iter().map(|(_, read)| match read {
            LogRead::Batches(read) => read.max_bytes,
            LogRead::Start(..) => 0,
        });
        each.fold(0, usize::saturating_add).min(self.budget)
    }

    /// Does the reads that memory alone can answer. Returns the others as a job to [`run`](Self::run) on a thread that
    /// may wait for the disk.
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
                    .map(|batches| finish_read(ranges, read, batches, &mut budget)),
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

    /// Does all reads. May read from the disk.
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
    finish_read(ranges, read, batches, budget)
}

fn finish_read(
    ranges: &RangeServer,
    read: &Read,
    batches: Result<Vec<StoredBatch>, ReadError>,
    budget: &mut usize,
) -> FetchOutcome {
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
            // These offsets are confirmed, so the log lost them. An empty answer would make the client fetch them for
            // ever.
            let message = format!("the records of range {key} from offset {from} on are missing");
            FetchOutcome::refused(Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message), Some(positions))
        }
        Ok(batches) => {
            // The log may have synced more since the entry was judged. A client that got such a batch would next ask
            // for an offset that may still be beyond the confirmed end, and be refused.
            let until = until.map_or(positions.high_watermark, |until| until.min(positions.high_watermark));
            let batches = batches.into_iter().take_while(|batch| batch.base_offset < until);
            let outcome = gather(batches, sealed_end, positions);
            *budget = budget.saturating_sub(outcome.length);
            outcome
        }
        Err(error) => {
            let bounds = Positions {
                base_offset: None,
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
            FetchOutcome::refused(refusal(ranges, &error), Some(bounds))
        }
    }
}

fn refusal(ranges: &RangeServer, error: &ReadError) -> Refusal {
    read_refusal(error, |key, from, to| ranges.log.files_of(key, from, to))
}

fn gather(
    batches: impl Iterator<Item = StoredBatch>,
    sealed_end: Option<Offset>,
    mut positions: Positions,
) -> FetchOutcome {
    let mut length = 0_usize;
    let mut records = 0_i64;
    let mut chunks: SmallVec<[Bytes; 1]> = SmallVec::new();
    for batch in batches {
        if chunks.is_empty() {
            positions.base_offset = Some(batch.base_offset);
        }
        positions.next_offset = batch.base_offset.checked_add(batch.count).unwrap_or(batch.base_offset);
        length = length.saturating_add(batch.bytes.len());
        records = records.saturating_add(batch.count);
        chunks.extend(batch.bytes.chunks().iter().cloned());
    }
    positions.end_of_range = sealed_end == Some(positions.next_offset);
    FetchOutcome {
        record_count: i32::try_from(records).unwrap_or(i32::MAX),
        length,
        chunks,
        ..FetchOutcome::empty(positions)
    }
}

fn find_start(ranges: &RangeServer, stream: StreamId, search: &Search) -> Found {
    for range in &search.ranges {
        match ranges.log.find_timestamp(range.key, range.from, search.time) {
            // The batch found may begin before the requested offset; the fetch then starts at that offset.
            Ok(Some(found)) if range.until.is_none_or(|until| found < until) => {
                return Found::Start(found.max(search.from));
            }
            Ok(_) => {}
            Err(error) => return Found::Answer(FetchOutcome::refused(refusal(ranges, &error), None)),
        }
    }
    match search.otherwise {
        Ok(offset) => Found::Start(offset),
        Err(searched) => Found::Answer(FetchOutcome::refused(time_elsewhere(stream), Some(searched))),
    }
}
