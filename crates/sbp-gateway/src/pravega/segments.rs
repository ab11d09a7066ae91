//! Where the bytes of segments are in their streams.
//!
//! Each batch says in its first record where in the segment it begins. So a segment ends where its last batch does, and an offset is
//! found by bisection. Nothing has to be kept for that: what is remembered of places saves questions.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sbp_client::{Client, ClientError, FetchEntry, FetchOptions, Position, Positions};
use sbp_locks::Mutex;
use sbp_record::Batch;
use sbp_types::{Offset, StreamId};

use super::segment::{End, Place, begin_of, put_bytes, record_of};
use crate::records::{decode, positions};

/// How long a record is waited for that is stored, though it may not be confirmed yet.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of batches that are looked through at once.
const LOOKED_THROUGH: u32 = 1 << 20;
/// Batches that are looked through at first for the last one that is the segment's; four times as many then.
const LOOKED_BACK: i64 = 64;
/// Places that are remembered of a segment, and segments of which some are.
const PLACES: usize = 256;
const SEGMENTS: usize = 4_096;
/// A segment has no more bytes for each record, as a power of two: where nothing of it is left, it goes on at the offset of the
/// first record that is kept, times this, which lies behind all that it has ever had.
const MOST_PER_RECORD: u32 = 24;

/// Where a segment ends, and what is known with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) end: End,
    /// The last batch of it that is kept.
    pub(super) last: Option<Place>,
    /// What the stream holds.
    pub(super) held: Positions,
    /// Microseconds since 1970 of its last record.
    pub(super) modified_us: Option<i64>,
}

/// What was read of a segment.
#[derive(Debug)]
pub(super) enum Found {
    Bytes {
        data: Bytes,
        /// Whether the segment ends behind them, for now.
        is_tail: bool,
    },
    /// Nothing is there: it ends before.
    Nothing(End),
    /// What is there is not kept any more, but what is from here on.
    Gone { start: i64 },
}

/// A batch of the segment.
#[derive(Debug)]
struct Piece {
    place: Place,
    batch: Batch,
}

/// Finds the bytes of segments.
#[derive(Debug)]
pub(super) struct Segments {
    client: Client,
    /// Of segments by their streams, where in the stream an offset is: the first record at or behind it.
    known: Mutex<HashMap<StreamId, BTreeMap<i64, Offset>>>,
}

impl Segments {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::new(HashMap::new()),
        }
    }

    /// Where a segment ends. Its stream has all records before `at_least`, though it may not have confirmed them yet.
    pub(super) async fn end(&self, stream: StreamId, at_least: Option<Offset>) -> Result<Tail, ClientError> {
        let mut held = positions(&self.client, stream).await?;
        let deadline = Instant::now() + CONFIRMED_WITHIN;
        while at_least.is_some_and(|at_least| at_least > held.latest) && Instant::now() < deadline {
            let options = FetchOptions {
                max_wait: CONFIRMED_WITHIN,
                min_bytes: 1,
                ..FetchOptions::default()
            };
            let next = entry(stream, held.latest, None, 1);
            self.client.fetch_one(next, options).await?;
            held = positions(&self.client, stream).await?;
        }
        let last = self.last(held).await?;
        let length = match &last {
            Some(piece) => piece.place.end(),
            None => length_without(held),
        };
        if let Some(piece) = &last {
            self.remember(stream, &piece.place);
        }
        let modified_us = match &last {
            Some(piece) => {
                let records = piece.batch.records();
                let last = records.ok().and_then(Iterator::last);
                last.map(|record| record.timestamp_us)
            }
            None => None,
        };
        Ok(Tail {
            end: End {
                next: held.latest,
                length,
            },
            last: last.map(|piece| piece.place),
            held,
            modified_us,
        })
    }

    /// Where what is kept of a segment begins, as far as its stream says.
    pub(super) async fn start(&self, held: Positions) -> Result<i64, ClientError> {
        let first = self.first(held.stream, held.earliest, held.latest, 1).await?;
        match first.into_iter().next() {
            Some(piece) => begin_of(&piece.batch, &piece.place, held.earliest),
            None => Ok(length_without(held)),
        }
    }

    /// Bytes of a segment from an offset on: as many as there are, but no more than `most`.
    pub(super) async fn read(&self, stream: StreamId, offset: i64, most: usize) -> Result<Found, ClientError> {
        let held = positions(&self.client, stream).await?;
        let wanted = u32::try_from(most).unwrap_or(u32::MAX);
        let mut bytes = BytesMut::new();
        let mut next = match self.find(held, offset, wanted).await? {
            Seeking::Found(pieces) => self.take(stream, pieces, offset, most, &mut bytes)?,
            Seeking::Before(start) => return Ok(Found::Gone { start }),
            Seeking::Behind => {
                let tail = self.end(stream, Some(held.latest)).await?;
                // What was appended in between is read at once.
                return match tail.end.length > offset && tail.held.latest > held.latest {
                    true => Box::pin(self.read(stream, offset, most)).await,
                    false => Ok(Found::Nothing(tail.end)),
                };
            }
        };
        while bytes.len() < most && next < held.latest {
            let missing = u32::try_from(most - bytes.len()).unwrap_or(u32::MAX);
            let pieces = self.first(stream, next, held.latest, missing).await?;
            if pieces.is_empty() {
                next = held.latest;
                break;
            }
            let at = offset.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            next = self.take(stream, pieces, at, most, &mut bytes)?;
        }
        let is_tail = bytes.len() <= most && next >= held.latest;
        bytes.truncate(most);
        Ok(Found::Bytes {
            data: bytes.freeze(),
            is_tail,
        })
    }

    /// The record that holds the byte at an offset; `None`: the segment ends there or before, or does not begin yet.
    pub(super) async fn record_at(&self, held: Positions, offset: i64) -> Result<Option<Offset>, ClientError> {
        match self.find(held, offset, 1).await? {
            Seeking::Found(pieces) => match pieces.first() {
                Some(piece) => record_of(&piece.batch, &piece.place, offset).map(Some),
                None => Ok(None),
            },
            Seeking::Before(_) | Seeking::Behind => Ok(None),
        }
    }

    /// Appends the bytes of batches from `offset` on, as long as `out` has fewer than `most`. Returns the record behind those that
    /// were taken.
    fn take(
        &self,
        stream: StreamId,
        pieces: Vec<Piece>,
        offset: i64,
        most: usize,
        out: &mut BytesMut,
    ) -> Result<Offset, ClientError> {
        let mut next = Offset::ZERO;
        for piece in pieces {
            if out.len() >= most && next > Offset::ZERO {
                break;
            }
            let before = out.len();
            put_bytes(&piece.batch, out)?;
            let skipped = usize::try_from(offset.saturating_sub(piece.place.at)).unwrap_or(0);
            if skipped > 0 {
                let (from, length) = ((before + skipped).min(out.len()), out.len());
                out.copy_within(from..length, before);
                out.truncate(before + (length - from));
            }
            next = piece.place.next;
            self.remember(stream, &piece.place);
        }
        Ok(next)
    }

    /// The batch with the byte at an offset, and some that follow: about so many bytes.
    async fn find(&self, held: Positions, offset: i64, wanted: u32) -> Result<Seeking, ClientError> {
        let (mut low, mut high) = (held.earliest, held.latest);
        let mut guess = self
            .recall(held.stream, offset)
            .filter(|guess| low <= *guess && *guess < high);
        // Where the first batch behind `high` begins.
        let mut start = None;
        while low < high {
            let (middle, most) = match guess.take() {
                Some(guess) => (guess, wanted),
                None => (Offset(low.0 + (high.0 - low.0) / 2), 1),
            };
            let mut pieces = self.first(held.stream, middle, high, most).await?;
            let Some(piece) = pieces.first() else {
                high = middle;
                continue;
            };
            let begin = begin_of(&piece.batch, &piece.place, held.earliest)?;
            if offset < begin {
                start = Some(begin);
                high = piece.place.base.min(middle);
            } else if offset < piece.place.end() {
                return Ok(Seeking::Found(pieces));
            } else {
                if let Some(place) = pieces.iter().position(|piece| offset < piece.place.end()) {
                    return Ok(Seeking::Found(pieces.split_off(place)));
                }
                low = pieces.last().map_or(low, |piece| piece.place.next);
            }
        }
        if let Some(start) = start {
            return Ok(Seeking::Before(start));
        }
        match offset < length_without(held) && self.first(held.stream, held.earliest, held.latest, 1).await?.is_empty()
        {
            true => Ok(Seeking::Before(length_without(held))),
            false => Ok(Seeking::Behind),
        }
    }

    /// The first batch of the segment in which there are records from `from` up to `to`, and some that follow: about so many bytes.
    async fn first(&self, stream: StreamId, from: Offset, to: Offset, wanted: u32) -> Result<Vec<Piece>, ClientError> {
        let (mut next, mut most) = (from, wanted.max(1));
        let mut pieces = Vec::new();
        while next < to && pieces.is_empty() {
            next = self.fetch(stream, next, to, most, &mut pieces).await?;
            most = most.max(LOOKED_THROUGH);
        }
        Ok(pieces)
    }

    /// The last batch of the segment.
    async fn last(&self, held: Positions) -> Result<Option<Piece>, ClientError> {
        let mut high = held.latest;
        let mut back = 1;
        while high > held.earliest {
            let low = Offset(high.0.saturating_sub(back)).max(held.earliest);
            let (mut next, mut last) = (low, None);
            while next < high {
                let mut pieces = Vec::new();
                next = self.fetch(held.stream, next, high, LOOKED_THROUGH, &mut pieces).await?;
                last = pieces.pop().or(last);
            }
            if last.is_some() {
                return Ok(last);
            }
            high = low;
            back = (back * 4).max(LOOKED_BACK);
        }
        Ok(None)
    }

    /// Reads once, from a record on. Returns the record behind those that were read.
    async fn fetch(
        &self,
        stream: StreamId,
        from: Offset,
        to: Offset,
        most: u32,
        pieces: &mut Vec<Piece>,
    ) -> Result<Offset, ClientError> {
        let entry = entry(stream, from, Some(to), most);
        let fetched = self.client.fetch_one(entry, FetchOptions::default()).await?;
        for fetched in &fetched.batches {
            let batch = decode(&fetched.bytes)?;
            if let Some(place) = Place::of(&batch)? {
                pieces.push(Piece { place, batch });
            }
        }
        // Records that are confirmed are there; where they are not any more, whoever asks is told so.
        match fetched.next_offset > from {
            true => Ok(fetched.next_offset),
            false => Err(nothing_read(stream, from)),
        }
    }

    /// Remembers where the bytes behind a batch are.
    fn remember(&self, stream: StreamId, place: &Place) {
        let mut known = self.known.lock();
        if known.len() >= SEGMENTS && !known.contains_key(&stream) {
            known.clear();
        }
        let places = known.entry(stream).or_default();
        if places.len() >= PLACES {
            // Those of readers that go on come again.
            places.clear();
        }
        places.insert(place.end(), place.next);
    }

    /// Where bytes from an offset on may be.
    fn recall(&self, stream: StreamId, offset: i64) -> Option<Offset> {
        let known = self.known.lock();
        let (_, place) = known.get(&stream)?.range(..=offset).next_back()?;
        Some(*place)
    }
}

/// What looking for an offset came to.
#[derive(Debug)]
enum Seeking {
    Found(Vec<Piece>),
    /// It lies before what is kept, which begins here.
    Before(i64),
    /// It lies behind the last batch.
    Behind,
}

fn entry(stream: StreamId, from: Offset, end: Option<Offset>, batch_max_bytes: u32) -> FetchEntry {
    FetchEntry {
        stream,
        from: Position::At(from),
        end,
        batch_max_bytes,
    }
}

/// The length of a segment that none of the batches kept belongs to.
fn length_without(held: Positions) -> i64 {
    held.earliest.0.saturating_mul(1 << MOST_PER_RECORD)
}

/// That there is nothing where there should be records.
pub(super) fn nothing_read(stream: StreamId, from: Offset) -> ClientError {
    let what = "a stream brings no records where it says that it has some";
    let error = ClientError::local(sbp_client::codes::CORRUPT_ON_ARRIVAL, what);
    error.with_stream(stream).with_offset(from)
}
