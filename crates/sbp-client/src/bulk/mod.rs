//! One idempotent writer to many streams, with the batches of many streams in a frame.
//!
//! For those who have all their rows at hand and write them in one go, as a task of Spark does. It only keeps the books:
//! which batches go into the next frame, and what an answer means for the rest. Whoever uses it encodes the batches,
//! hands the frames over and waits for their outcomes.

mod lane;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_messages::ErrorCode;
use sbp_record::WriterStamp;
use sbp_types::{Offset, StreamId, WriterId};
use smallvec::SmallVec;

use self::lane::{Lane, Piece};
use crate::codes;
use crate::config::RetryPolicy;
use crate::error::ClientError;
use crate::outcome::Ack;
use crate::submission::{AppendEntry, AppendResultOf, Body};

/// A frame with as many bytes of batches as this is complete.
const FRAME_BYTES: usize = 4 << 20;
/// Batches of one frame; servers take 1,024.
const FRAME_ENTRIES: usize = 512;

/// How a [`BulkWriter`] writes.
#[derive(Clone, Copy, Debug)]
pub struct BulkOptions {
    /// The writer's name.
    pub writer_id: WriterId,
    /// The instance of the writer: appends of a lower epoch are refused once one of this epoch is stored. Every stream
    /// begins at sequence 0, so the same rows in the same batches under the same name and epoch are stored once.
    pub epoch: i64,
    /// Batches of one stream that the server remembers, and so the most that may be on their way.
    pub window: usize,
    /// How long a batch is sent again after its first attempt.
    pub timeout: Duration,
    /// How long to wait before the next attempt.
    pub retry: RetryPolicy,
}

/// What one stream got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkStored {
    /// The lowest offset; `None` where the server no longer knows the places of what it had stored before.
    pub first: Option<Offset>,
    /// The highest offset.
    pub last: Option<Offset>,
    /// Records, in all.
    pub records: i64,
    /// Batches that somebody else had stored before, under the same name, epoch and sequence.
    pub repeats: u64,
}

/// Batches to be sent in one frame.
#[derive(Debug)]
pub struct BulkFrame {
    /// The frame's number, to be given back with its outcome.
    pub number: u64,
    /// One entry for each batch.
    pub entries: SmallVec<[AppendEntry; 1]>,
    /// When the frame's batches are out of time.
    pub deadline: Instant,
}

/// A batch that the server had stored before under the same name, epoch and sequence, with as many records. Whether it
/// holds the same ones, nobody has looked.
#[derive(Clone, Debug)]
pub struct BulkRepeat {
    /// The stream.
    pub stream: StreamId,
    /// Where it is stored; `None` where the server no longer knows.
    pub base_offset: Option<Offset>,
    /// Its records.
    pub records: i64,
    /// The batch as it was to be stored now.
    pub batch: Bytes,
}

/// The books of one writer.
#[derive(Debug)]
pub struct BulkWriter {
    options: BulkOptions,
    lanes: HashMap<StreamId, Lane>,
    /// A stream for each of its batches that waits.
    queue: VecDeque<StreamId>,
    /// What is in each frame on its way.
    frames: HashMap<u64, Vec<(StreamId, i64)>>,
    next_frame: u64,
    /// Bytes of batches that are not stored.
    bytes: usize,
    repeats: Vec<BulkRepeat>,
    failed: Option<ClientError>,
}

impl BulkWriter {
    /// A writer that has written nothing.
    #[must_use]
    pub fn new(options: BulkOptions) -> Self {
        Self {
            options,
            lanes: HashMap::new(),
            queue: VecDeque::new(),
            frames: HashMap::new(),
            next_frame: 0,
            bytes: 0,
            repeats: Vec::new(),
            failed: None,
        }
    }

    /// The stamp of the next batch for `stream`, which has to be encoded with it.
    #[must_use]
    pub fn stamp(&self, stream: StreamId) -> WriterStamp {
        WriterStamp {
            id: self.options.writer_id,
            epoch: self.options.epoch,
            base_sequence: self.lanes.get(&stream).map_or(0, |lane| lane.next_sequence),
        }
    }

    /// Takes a whole batch of `records` records, encoded with its [`stamp`](Self::stamp).
    pub fn push(&mut self, stream: StreamId, batch: Bytes, records: u32) {
        self.bytes += batch.len();
        self.lanes.entry(stream).or_default().push(batch, records);
        self.queue.push_back(stream);
    }

    /// Bytes of batches that are not stored.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frames on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.frames.len()
    }

    /// Whether everything is stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.queue.is_empty()
    }

    /// The next frame, if there is anything that may be sent now.
    ///
    /// The first batch of a stream goes alone, also the first one after trouble: a server that does not know the writer
    /// takes any sequence for its first, so nothing may overtake it.
    pub fn next_frame(&mut self, now: Instant) -> Option<BulkFrame> {
        if self.failed.is_some() {
            return None;
        }
        let mut entries = SmallVec::new();
        let mut content = Vec::new();
        let mut deadline = now + self.options.timeout;
        let mut bytes = 0;
        let mut passed = VecDeque::new();
        while let Some(stream) = self.queue.pop_front() {
            let lane = self.lanes.get_mut(&stream);
            let piece = match lane {
                Some(lane) if entries.len() < FRAME_ENTRIES => lane.take(now, self.options.window, |length| {
                    entries.is_empty() || bytes + length <= FRAME_BYTES
                }),
                _ => None,
            };
            let Some(piece) = piece else {
                passed.push_back(stream);
                continue;
            };
            bytes += piece.batch.len();
            deadline = deadline.min(piece.sent_first(now) + self.options.timeout);
            content.push((stream, piece.base_sequence));
            let body = Body::Shared {
                head: 0..0,
                body: piece.batch.clone(),
                padding: 0,
            };
            entries.push(AppendEntry::new(stream, body, piece.records));
        }
        self.queue = passed;
        if entries.is_empty() {
            return None;
        }
        let number = self.next_frame;
        self.next_frame += 1;
        self.frames.insert(number, content);
        Some(BulkFrame {
            number,
            entries,
            deadline,
        })
    }

    /// When something may be sent that may not be sent now, unless an outcome comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.lanes.values().filter_map(Lane::not_before).min()
    }

    /// Takes the outcome of a frame.
    pub fn handle(&mut self, number: u64, outcome: AppendResultOf, now: Instant) {
        let Some(content) = self.frames.remove(&number) else {
            return;
        };
        match outcome {
            Ok(outcome) => {
                for ((stream, sequence), result) in content.into_iter().zip(outcome.entries) {
                    self.settle(stream, sequence, result, now);
                }
            }
            Err(error) => {
                for (stream, sequence) in content {
                    self.settle(stream, sequence, Err(error.clone()), now);
                }
            }
        }
    }

    fn settle(&mut self, stream: StreamId, sequence: i64, result: Result<Ack, ClientError>, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return;
        };
        match result {
            Ok(ack) => {
                if let Some(repeat) = lane.stored(stream, sequence, &ack) {
                    self.repeats.push(repeat);
                }
            }
            Err(error) => {
                if let Some(error) = lane.failed(sequence, error, &self.options, now) {
                    self.failed.get_or_insert(error.with_stream(stream));
                }
            }
        }
        self.bytes = self.bytes.saturating_sub(lane.released());
        for _ in 0..lane.rewind(&self.options.retry, now) {
            self.queue.push_back(stream);
        }
    }

    /// Why the writer has given up, if it has. Nothing more is sent then.
    #[must_use]
    pub fn failure(&self) -> Option<&ClientError> {
        self.failed.as_ref()
    }

    /// Batches that turned out to be stored already since this was called last.
    pub fn take_repeats(&mut self) -> Vec<BulkRepeat> {
        std::mem::take(&mut self.repeats)
    }

    /// What each stream got so far.
    #[must_use]
    pub fn stored(&self) -> BTreeMap<StreamId, BulkStored> {
        self.lanes.iter().map(|(&stream, lane)| (stream, lane.stored)).collect()
    }
}

/// Whether a batch that failed so may be sent again under the same sequence.
fn is_worth_repeating(error: &ClientError, is_first: bool) -> bool {
    match error.code() {
        // One before it was refused for the moment; for the first that is missing, nobody can fill the gap.
        ErrorCode::SEQUENCE_GAP => !is_first,
        ErrorCode::SEQUENCE_OVERLAP | ErrorCode::WRITER_FENCED | codes::CLOSED => false,
        _ => error.is_indeterminate() || error.is_retriable() || error.is_timeout(),
    }
}

impl Piece {
    fn sent_first(&mut self, now: Instant) -> Instant {
        *self.sent_first.get_or_insert(now)
    }
}

#[cfg(test)]
mod tests;
