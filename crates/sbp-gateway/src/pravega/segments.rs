//! Where the bytes of segments are in their streams.
//!
//! Each batch says in its first record where in the segment it begins. So a segment ends where its last batch does, and an offset is
//! found by bisection. Nothing has to be kept for that: what is remembered of places saves questions.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use sbp_client::{Client, ClientError, FetchEntry, FetchOptions, Position, Positions};
use sbp_locks::Mutex;
use sbp_record::Batch;
use sbp_types::{Offset, StreamId};

use super::ahead::{Ahead, Chunk, Coming};
use super::segment::{End, Place, begin_of, put_bytes, record_of};
use crate::records::{decode, positions};

/// How long a record is waited for that is stored, though it may not be confirmed yet.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of batches that are looked through at once.
const LOOKED_THROUGH: u32 = 1 << 20;
/// Batches that are looked through at first for the last one that is the segment's; four times as many then.
const LOOKED_BACK: i64 = 64;
/// Bytes of an answer from which on it is not worth another FETCH to make it larger.
const ENOUGH: usize = 256 << 10;
/// Bytes that are fetched at once for who reads on, however few are asked for.
const LEAST_AHEAD: usize = 256 << 10;
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
        /// What is worth to be fetched for the read that follows, once this one is answered.
        next: Option<Advance>,
    },
    /// Nothing is there: it ends before.
    Nothing(End),
    /// What is there is not kept any more, but what is from here on.
    Gone { start: i64 },
}

/// What is to be fetched for a read that will come.
#[derive(Debug)]
pub(super) struct Advance {
    coming: Coming,
    /// What is at hand of it.
    chunk: Chunk,
    stream: StreamId,
    /// Where the stream ended when the read before it was answered.
    latest: Offset,
    wanted: usize,
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

    /// Bytes of a segment from an offset on: as many as there are, but no more than `most`, and fewer where [many](ENOUGH) are at hand.
    /// `ahead` is what is kept for the connection that reads.
    pub(super) async fn read(
        &self,
        ahead: &Arc<Ahead>,
        stream: StreamId,
        offset: i64,
        most: usize,
    ) -> Result<Found, ClientError> {
        let held = positions(&self.client, stream).await?;
        let kept = ahead.take(stream, offset).await.filter(|chunk| chunk.is_kept(&held));
        let (reads_on, mut chunk) = match kept {
            Some(chunk) => (true, chunk),
            None => match self.find(held, offset, at_once(most)).await? {
                Seeking::Found(pieces) => {
                    let mut chunk = self.put(stream, &pieces, offset, &[])?;
                    // What is gone of the first batch lies in front of the offset.
                    chunk.base = chunk.base.max(held.earliest);
                    (false, chunk)
                }
                Seeking::Before(start) => return Ok(Found::Gone { start }),
                Seeking::Behind => (false, Chunk::at_end(offset, held.latest)),
            },
        };
        let wanted = match reads_on {
            true => most.max(LEAST_AHEAD),
            false => most,
        };
        while chunk.bytes.len() < most.min(ENOUGH) && chunk.next < held.latest {
            self.extend(stream, &mut chunk, held.latest, wanted).await?;
        }
        if chunk.bytes.is_empty() {
            let tail = self.end(stream, Some(held.latest)).await?;
            // What was appended in between is read at once.
            return match tail.end.length > offset && tail.held.latest > held.latest {
                true => Box::pin(self.read(ahead, stream, offset, most)).await,
                false => {
                    if tail.end.length == offset {
                        ahead.keep(stream, chunk);
                    }
                    Ok(Found::Nothing(tail.end))
                }
            };
        }
        let data = chunk.split(most);
        let is_tail = chunk.bytes.is_empty() && chunk.next >= held.latest;
        let is_short = chunk.bytes.len() < most && chunk.next < held.latest;
        let coming = match reads_on && is_short {
            true => ahead.announce(stream, chunk.at, wanted + chunk.bytes.len()),
            false => None,
        };
        let next = match coming {
            Some(coming) => Some(Advance {
                coming,
                chunk,
                stream,
                latest: held.latest,
                wanted,
            }),
            None => {
                ahead.keep(stream, chunk);
                None
            }
        };
        Ok(Found::Bytes { data, is_tail, next })
    }

    /// Fetches what the next read of a segment will want.
    pub(super) async fn advance(&self, advance: Advance) -> Result<(), ClientError> {
        let Advance {
            coming,
            mut chunk,
            stream,
            latest,
            wanted,
        } = advance;
        self.extend(stream, &mut chunk, latest, wanted).await?;
        coming.arrived(chunk);
        Ok(())
    }

    /// Adds what follows of the segment in records up to `latest`: about `wanted` bytes, if there are as many.
    async fn extend(
        &self,
        stream: StreamId,
        chunk: &mut Chunk,
        latest: Offset,
        wanted: usize,
    ) -> Result<(), ClientError> {
        let pieces = self.first(stream, chunk.next, latest, at_once(wanted)).await?;
        if pieces.is_empty() {
            // Records of others are behind it.
            chunk.next = latest;
            if chunk.bytes.is_empty() {
                *chunk = Chunk::at_end(chunk.at, latest);
            }
            return Ok(());
        }
        let end = chunk.at.saturating_add(wide(chunk.bytes.len()));
        if pieces.first().is_some_and(|piece| piece.place.at != end) {
            return Err(nothing_read(stream, chunk.next));
        }
        let before = mem::take(&mut chunk.bytes);
        let base = (!before.is_empty()).then_some(chunk.base);
        let added = self.put(stream, &pieces, end, &before)?;
        *chunk = Chunk {
            at: chunk.at,
            base: base.unwrap_or(added.base),
            ..added
        };
        Ok(())
    }

    /// The bytes of batches from an offset on, which is in the first of them, behind others.
    fn put(&self, stream: StreamId, pieces: &[Piece], offset: i64, before: &[u8]) -> Result<Chunk, ClientError> {
        let length: i64 = pieces.iter().map(|piece| piece.place.length).sum();
        let length = before.len() + usize::try_from(length).unwrap_or(0);
        let mut bytes = BytesMut::with_capacity(length);
        bytes.put_slice(before);
        let mut end = None;
        let (mut base, mut next) = (Offset::ZERO, Offset::ZERO);
        for Piece { place, batch } in pieces {
            match end {
                None => base = place.base,
                Some(end) if end == place.at => {}
                // They do not follow one another: some in between are gone.
                Some(_) => break,
            }
            let from = bytes.len();
            put_bytes(batch, &mut bytes)?;
            let skipped = match end {
                None => usize::try_from(offset.saturating_sub(place.at)).unwrap_or(0),
                Some(_) => 0,
            };
            if skipped > 0 {
                let (first, length) = ((from + skipped).min(bytes.len()), bytes.len());
                bytes.copy_within(first..length, from);
                bytes.truncate(from + (length - first));
            }
            end = Some(place.end());
            next = place.next;
            self.remember(stream, place);
        }
        Ok(Chunk {
            at: offset,
            memory: bytes.len(),
            bytes: bytes.freeze(),
            base,
            next,
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

    /// The batch with the byte at an offset, and some that follow: about so many bytes.
    async fn find(&self, held: Positions, offset: i64, wanted: u32) -> Result<Seeking, ClientError> {
        let (mut low, mut high) = (held.earliest, held.latest);
        let mut guess = self
            .recall(held.stream, offset)
            .or((offset == 0).then_some(low))
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

/// Bytes to be asked for at once.
fn at_once(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn wide(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
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
