//! Judges one entry of a FETCH: read, answered without data, refused, or kept waiting.

use sbp_messages::ErrorCode;
use sbp_record::MAX_BATCH_LENGTH;
use sbp_types::{Offset, RangeKey, StreamId, TimestampMs};
use smallvec::SmallVec;

use super::not_taken::cut_off;
use super::stream::{HostedStream, Phase, RangeState};
use super::table::RangeTable;
use crate::refusal::Refusal;

/// Bytes returned for an entry that names no limit.
const DEFAULT_BATCH_BYTES: usize = 1 << 20;

/// A FETCH entry whose start is resolved to an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchEntry {
    pub(crate) stream: StreamId,
    /// The first record wanted.
    pub(crate) offset: Offset,
    /// One past the last record wanted.
    pub(crate) end: Option<Offset>,
    /// The limit as requested: 0 is the default, -1 asks for positions only.
    pub(crate) batch_max_bytes: i32,
}

impl FetchEntry {
    fn wants_data(&self) -> bool {
        self.batch_max_bytes >= 0
    }

    /// The most bytes to return; a first batch that is larger is returned whole.
    fn max_bytes(&self) -> usize {
        match usize::try_from(self.batch_max_bytes) {
            Ok(0) | Err(_) => DEFAULT_BATCH_BYTES,
            Ok(bytes) => bytes.min(MAX_BATCH_LENGTH),
        }
    }
}

/// The limits that hold for all entries of a FETCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// An entry is answered only once this many stored bytes are there to return, or the end it asks for is.
    pub(crate) min_bytes: u64,
    /// The FETCH's waiting time is over: answer with whatever is there.
    pub(crate) last_call: bool,
    /// Bytes of payload that the FETCH may still return; at 0 the remaining entries are answered without data.
    pub(crate) budget: usize,
}

/// The offsets in the result of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positions {
    /// The first batch returned; without data, the offset the entry resolved to; `None` with an error.
    pub(crate) base_offset: Option<Offset>,
    /// Where the next fetch starts.
    pub(crate) next_offset: Offset,
    /// The stream's first offset that is kept.
    pub(crate) start_offset: Offset,
    /// The stream's confirmed end: one past the last record that readers may see.
    pub(crate) high_watermark: Offset,
    /// The range is sealed and `next_offset` is its end.
    pub(crate) end_of_range: bool,
}

/// A read of batches for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) key: RangeKey,
    pub(crate) from: Offset,
    /// Batches that begin at this offset or later are left out.
    pub(crate) until: Option<Offset>,
    pub(crate) max_bytes: usize,
    /// The end of the range, when it is sealed.
    pub(crate) sealed_end: Option<Offset>,
    /// The stream's offsets, for a result without data.
    pub(crate) positions: Positions,
}

/// What to do with an entry now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Answer with success and without data.
    Empty(Positions),
    /// Answer with an error, and with the stream's bounds where these are known.
    Refused(Refusal, Option<Positions>),
    /// Read batches within these limits, but at least one, then answer.
    Read(Read),
    /// Keep waiting: too few bytes are there.
    Wait,
}

/// Where an entry begins. Resolved once, when the request arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The entry begins at this offset.
    At(Offset),
    /// The entry begins at the first batch with a record at or after a time; the log has to be searched for it.
    Search(Search),
}

/// A search for the first batch with a record at or after `time`, from offset `from` on, range by range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) ranges: SmallVec<[SearchedRange; 1]>,
    pub(crate) from: Offset,
    pub(crate) time: TimestampMs,
    /// Where the entry begins when no batch here reaches `time`; an error where the stream goes on in ranges of other servers,
    /// so that this server cannot say: its `high_watermark` is how far was searched.
    pub(crate) otherwise: Result<Offset, Positions>,
}

/// The part of a range that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchedRange {
    pub(crate) key: RangeKey,
    pub(crate) from: Offset,
    /// The end of a sealed range.
    pub(crate) until: Option<Offset>,
}

/// Resolves where an entry begins: -2 is the stream's start, -1 its confirmed end now; with a time, a search from
/// there.
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
    let mut searched_to = first.confirmed;
    let mut ranges = SmallVec::new();
    for range in stream.ranges.iter().filter(|range| range.index >= first.index) {
        // A range between the two is on other servers.
        if range.start > searched_to {
            break;
        }
        searched_to = range.confirmed;
        ranges.push(SearchedRange {
            key: range.key(id),
            from: from.max(range.start),
            until: (range.phase == Phase::Sealed || range.replica.is_some()).then_some(range.confirmed),
        });
    }
    let goes_on = !view.knows_end || searched_to < view.end;
    Ok(Start::Search(Search {
        ranges,
        from,
        time,
        otherwise: match goes_on {
            true => Err(Positions {
                base_offset: None,
                next_offset: searched_to,
                start_offset: stream.start,
                high_watermark: searched_to,
                end_of_range: false,
            }),
            false => Ok(view.end),
        },
    }))
}

/// The refusal of a fetch by time whose offset lies in a range of another server.
pub(crate) fn time_elsewhere(id: StreamId) -> Refusal {
    let message = format!("stream {id} reaches this time in a range that is not here; list its ranges again");
    Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
}

/// Judges one entry. `bytes_from` tells how many bytes the log stores of a range from an offset on.
pub(crate) fn judge_fetch(
    table: &RangeTable,
    entry: &FetchEntry,
    limits: Limits,
    bytes_from: impl FnOnce(RangeKey, Offset) -> u64,
) -> Readiness {
    let located = hosted(table, entry.stream).and_then(|stream| {
        let view = View::of(table, entry.stream, stream);
        let range = view.locate(entry.offset)?;
        let does_not_wait = limits.last_call || limits.min_bytes == 0;
        // Up to an end that is further than what is known here there is more, elsewhere: an empty answer would be asked for again.
        let is_open = range.phase != Phase::Sealed && !view.knows_end;
        let lacks_some = is_open && entry.offset == range.confirmed && entry.end > Some(range.confirmed);
        if does_not_wait && (entry.offset > range.confirmed || lacks_some) {
            return Err((view.elsewhere(entry.offset), None));
        }
        Ok((stream, range))
    });
    let (stream, range) = match located {
        Ok(found) => found,
        Err((refusal, bounds)) => return Readiness::Refused(refusal, bounds),
    };
    let sealed = range.phase == Phase::Sealed;
    let is_last = stream.last().is_some_and(|last| last.index == range.index);
    let positions = Positions {
        base_offset: Some(entry.offset),
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
        return match range.is_cut_off {
            true => Readiness::Refused(cut_off(key), None),
            false => Readiness::Wait,
        };
    }
    if !entry.wants_data() || entry.offset >= range.confirmed || limits.budget == 0 {
        return Readiness::Empty(positions);
    }
    let sealed_end = sealed.then_some(range.confirmed);
    let max_bytes = entry.max_bytes().min(limits.budget);
    Readiness::Read(Read {
        key,
        from: entry.offset,
        // After a failure of the log a range may have been sealed before its last batches in the log; those are not
        // part of the stream.
        until: entry.end.into_iter().chain(sealed_end).min(),
        max_bytes,
        sealed_end,
        positions,
    })
}

type Refused = (Refusal, Option<Positions>);

fn hosted(table: &RangeTable, id: StreamId) -> Result<&HostedStream, Refused> {
    table.served(id).ok_or_else(|| (table.missing(id), None))
}

/// A stream and what this server knows about its bounds.
struct View<'a> {
    id: StreamId,
    stream: &'a HostedStream,
    end: Offset,
    /// Whether the stream's start lies in the ranges of this server.
    knows_start: bool,
    /// Whether the stream's end lies in the ranges of this server.
    knows_end: bool,
}

impl<'a> View<'a> {
    fn of(table: &RangeTable, id: StreamId, stream: &'a HostedStream) -> Self {
        let knows_end = match stream.last() {
            Some(last) if last.replica.is_some() => last.knows_its_end(),
            last => table.knows_all() || last.is_none_or(|last| last.phase != Phase::Sealed),
        };
        Self {
            id,
            stream,
            end: stream.confirmed_end(),
            knows_start: table.knows_all() || stream.start_known,
            knows_end,
        }
    }

    /// The range to read `offset` from; the end of a range that is also the start of the next one belongs to the next.
    fn locate(&self, offset: Offset) -> Result<&'a RangeState, Refused> {
        let Self { id, stream, end, .. } = *self;
        let range = stream.ranges.iter().rev().find(|range| range.start <= offset);
        // A copy of a sealed range that lacks some of it serves what it has.
        let lacks = |range: &RangeState| {
            let replica = range.replica.as_ref().filter(|replica| replica.end().is_some());
            replica.is_some_and(|replica| !replica.is_complete() && offset >= replica.synced_end().offset)
        };
        if range.is_some_and(lacks) {
            return Err((self.elsewhere(offset), None));
        }
        match range {
            Some(range) if offset >= stream.start && offset <= range.confirmed => return Ok(range),
            // What other servers have confirmed reaches this one later, or never: then it is sealed.
            Some(range) if offset >= stream.start && range.phase != Phase::Sealed && !self.knows_end => {
                return Ok(range);
            }
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
            base_offset: None,
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
