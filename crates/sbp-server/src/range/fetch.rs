//! What happens to one entry of a FETCH.

use sbp_messages::ErrorCode;
use sbp_record::MAX_BATCH_LENGTH;
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs};
use smallvec::SmallVec;

use super::stream::{HostedStream, Phase, RangeState};
use super::table::RangeTable;
use crate::refusal::Refusal;

/// Bytes returned for an entry that names no limit.
const DEFAULT_BATCH_BYTES: usize = 1 << 20;

/// One entry, once its beginning is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchEntry {
    pub(crate) stream: StreamId,
    /// First record wanted: an absolute offset.
    pub(crate) offset: Offset,
    /// One past the last record wanted.
    pub(crate) end: Option<Offset>,
    /// As requested: 0 is the default, -1 is "positions only".
    pub(crate) batch_max_bytes: i32,
}

impl FetchEntry {
    fn wants_data(&self) -> bool {
        self.batch_max_bytes >= 0
    }

    /// Most bytes returned, but for a first batch that is larger.
    fn max_bytes(&self) -> usize {
        match usize::try_from(self.batch_max_bytes) {
            Ok(0) | Err(_) => DEFAULT_BATCH_BYTES,
            Ok(bytes) => bytes.min(MAX_BATCH_LENGTH),
        }
    }
}

/// What the whole request says about when an entry is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Stored bytes worth an answer.
    pub(crate) min_bytes: u64,
    /// The time is up: answer with what there is.
    pub(crate) last_call: bool,
    /// Payload the request may still spend; 0: the rest is answered empty.
    pub(crate) budget: usize,
}

/// Where a stream stands, as a result tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positions {
    /// Where the entry stands: first batch returned, or the resolved offset without data.
    pub(crate) base_offset: Offset,
    /// Where the next fetch starts.
    pub(crate) next_offset: Offset,
    /// First offset that is kept.
    pub(crate) start_offset: Offset,
    /// Behind the last record that readers may see.
    pub(crate) high_watermark: Offset,
    /// The range is sealed and `next_offset` is its end.
    pub(crate) end_of_range: bool,
}

/// Batches to read for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) key: RangeKey,
    pub(crate) from: Offset,
    /// Batches that begin here or behind are not wanted.
    pub(crate) until: Option<Offset>,
    pub(crate) max_bytes: usize,
    /// The end of the range, when it is sealed.
    pub(crate) sealed_end: Option<Offset>,
    /// Where the stream stands, for a result without data.
    pub(crate) positions: Positions,
}

/// What to do with an entry now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Answer: success without data.
    Empty(Positions),
    /// Answer: an error; with the stream's bounds where it has any.
    Refused(Refusal, Option<Positions>),
    /// Read at most this much, but at least one batch, then answer.
    Read(Read),
    /// Nothing yet.
    Wait,
}

/// Where an entry begins, looked at once, when the request arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At this offset.
    At(Offset),
    /// At the first batch that reaches a time.
    Search(Search),
}

/// A search for the first batch at or behind `from` that reaches `time`, range by range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) ranges: SmallVec<[SearchedRange; 1]>,
    pub(crate) from: Offset,
    pub(crate) time: TimestampMs,
    /// Where the entry begins when there is none; `None`: somewhere else, in a range that is not here.
    pub(crate) otherwise: Option<Offset>,
}

/// The part of a range that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchedRange {
    pub(crate) key: RangeKey,
    pub(crate) from: Offset,
    /// The end of a sealed range.
    pub(crate) until: Option<Offset>,
}

/// Resolves -2 (earliest), -1 (the confirmed end now) and a time.
pub(crate) fn resolve_start(
    table: &RangeTable,
    id: StreamId,
    fetch_offset: Offset,
    time: Option<TimestampMs>,
) -> Result<Start, (Refusal, Option<Positions>)> {
    let stream = hosted(table, id)?;
    let view = View::of(table, id, stream);
    let from = match fetch_offset {
        Offset::EARLIEST if view.knows_start => stream.start,
        Offset::LATEST if view.knows_end => view.end,
        Offset::EARLIEST | Offset::LATEST => return Err((view.elsewhere(fetch_offset), None)),
        absolute => absolute,
    };
    let Some(time) = time else { return Ok(Start::At(from)) };
    let first = view.locate(from)?;
    let searched = stream.ranges.iter().filter(|range| range.index >= first.index);
    let ranges = searched.map(|range| SearchedRange {
        key: range.key(id),
        from: from.max(range.start),
        until: (range.phase == Phase::Sealed).then_some(range.confirmed),
    });
    Ok(Start::Search(Search {
        ranges: ranges.collect(),
        from,
        time,
        otherwise: view.knows_end.then_some(view.end),
    }))
}

/// What a time is told that is reached somewhere else.
pub(crate) fn time_elsewhere(id: StreamId) -> Refusal {
    let message = format!("stream {id} reaches this time in a range that is not here; list its ranges again");
    Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
}

/// Decides over one entry. `bytes_from` tells how many stored bytes of a range lie at and behind an offset.
pub(crate) fn judge_fetch(
    table: &RangeTable,
    entry: &FetchEntry,
    limits: Limits,
    bytes_from: impl FnOnce(RangeKey, Offset) -> u64,
) -> Readiness {
    let located = hosted(table, entry.stream).and_then(|stream| {
        let range = View::of(table, entry.stream, stream).locate(entry.offset)?;
        Ok((stream, range))
    });
    let (stream, range) = match located {
        Ok(found) => found,
        Err((refusal, bounds)) => return Readiness::Refused(refusal, bounds),
    };
    let sealed = range.phase == Phase::Sealed;
    let is_last = stream.last().is_some_and(|last| last.index == range.index);
    let positions = Positions {
        base_offset: entry.offset,
        next_offset: entry.offset,
        start_offset: stream.start,
        high_watermark: stream.confirmed_end(),
        end_of_range: sealed && entry.offset == range.confirmed,
    };
    let nothing_wanted = entry.end.is_some_and(|end| end <= entry.offset);
    if nothing_wanted || (positions.end_of_range && is_last) {
        return Readiness::Empty(positions);
    }
    let key = range.key(entry.stream);
    let end_in_reach = sealed || entry.end.is_some_and(|end| end <= range.confirmed);
    let enough = end_in_reach || limits.min_bytes == 0 || bytes_from(key, entry.offset) >= limits.min_bytes;
    if !enough && !limits.last_call {
        return Readiness::Wait;
    }
    if !entry.wants_data() || entry.offset >= range.confirmed || limits.budget == 0 {
        return Readiness::Empty(positions);
    }
    let sealed_end = sealed.then_some(range.confirmed);
    let max_bytes = entry.max_bytes().min(limits.budget);
    Readiness::Read(Read {
        key,
        from: entry.offset,
        // Behind the end of a range that was sealed after a failure of the log there may be batches nobody was promised.
        until: entry.end.into_iter().chain(sealed_end).min(),
        max_bytes,
        sealed_end,
        positions,
    })
}

type Refused = (Refusal, Option<Positions>);

fn hosted(table: &RangeTable, id: StreamId) -> Result<&HostedStream, Refused> {
    table.stream(id).ok_or_else(|| (table.missing(id), None))
}

/// What this server can say about the bounds of a stream.
struct View<'a> {
    id: StreamId,
    stream: &'a HostedStream,
    end: Offset,
    /// Whether the stream begins where the ranges here do.
    knows_start: bool,
    /// Whether it ends where they do.
    knows_end: bool,
}

impl<'a> View<'a> {
    fn of(table: &RangeTable, id: StreamId, stream: &'a HostedStream) -> Self {
        let goes_on = stream.last().is_some_and(|last| last.phase == Phase::Sealed);
        Self {
            id,
            stream,
            end: stream.confirmed_end(),
            knows_start: table.knows_all() || stream.start_known,
            knows_end: table.knows_all() || !goes_on,
        }
    }

    /// The range that `offset` belongs to; between two ranges it belongs to the later one.
    fn locate(&self, offset: Offset) -> Result<&'a RangeState, Refused> {
        let Self { id, stream, end, .. } = *self;
        let range = stream.ranges.iter().rev().find(|range| range.start <= offset);
        match range {
            Some(range) if offset >= stream.start && offset <= range.confirmed => return Ok(range),
            _ => {}
        }
        let nearer = if offset < stream.start && self.knows_start {
            stream.start
        } else if offset > end && self.knows_end {
            end
        } else {
            return Err((self.elsewhere(offset), None));
        };
        let message = format!(
            "stream {id} has offsets {} up to {end}; {offset} is outside",
            stream.start
        );
        let bounds = Positions {
            base_offset: Offset(-1),
            next_offset: nearer,
            start_offset: stream.start,
            high_watermark: end,
            end_of_range: false,
        };
        Err((
            Refusal::new(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, message),
            Some(bounds),
        ))
    }

    fn elsewhere(&self, offset: Offset) -> Refusal {
        let place = match offset {
            Offset::EARLIEST => "the beginning".to_owned(),
            Offset::LATEST => "the end".to_owned(),
            offset => format!("offset {offset}"),
        };
        let message = format!(
            "{place} of stream {} is in no range that is here; list its ranges again",
            self.id
        );
        Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
    }
}
