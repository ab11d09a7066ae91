//! Reading entries with their heads, marks included, as another server stores them.

use std::sync::Arc;

use bytes::Bytes;
use sbp_types::{Offset, Position, RangeKey};

use super::{Found, Load, locate, neighbours, readable_until};
use crate::format::checkpoint::MarkPlace;
use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::segments::segment::Segment;
use crate::state::index::RangeState;
use crate::state::shared::{Shared, State, count};
use crate::{BatchBytes, EntryHead, ReadError, StoredEntry};

/// The result of one look at the index.
enum Step {
    Entries(Wanted),
    /// The entries of this run have to be loaded from the disk first.
    Load(Load),
}

/// The places of the entries to read, one after the other.
#[derive(Default)]
struct Wanted {
    found: Vec<Found>,
    /// Where each stands in its range, and its head if that is in memory.
    places: Vec<(Position, Option<Bytes>)>,
}

/// Takes places up to a number of bytes.
struct Taking<'s> {
    state: &'s State,
    wanted: Wanted,
    room: usize,
    /// Where the next entry stands.
    next: Position,
    is_first: bool,
}

impl Shared {
    /// See [`Log::entries`](crate::Log::entries).
    pub(crate) fn entries(
        &self,
        key: RangeKey,
        from: Position,
        max_bytes: usize,
    ) -> Result<Vec<StoredEntry>, ReadError> {
        loop {
            match self.look_for_entries(key, from, max_bytes)? {
                Step::Entries(wanted) => return self.fetch_entries(key, &wanted),
                Step::Load(load) => self.load(key, &load)?,
            }
        }
    }

    fn look_for_entries(&self, key: RangeKey, from: Position, max_bytes: usize) -> Result<Step, ReadError> {
        let state = &*self.state.read();
        let Some(range) = state.index.get(key) else {
            return Ok(Step::Entries(Wanted::default()));
        };
        let stop = readable_until(key, range, from.offset, state.index.unlisted_damage)?;
        let mut taking = Taking {
            state,
            wanted: Wanted::default(),
            room: max_bytes,
            next: from,
            is_first: true,
        };
        let mut marks = range.marks.as_slice();
        marks = marks
            .get(marks.partition_point(|mark| mark.position < from)..)
            .unwrap_or_default();
        let first = range.runs.partition_point(|run| run.end <= from.offset);
        for run in range.runs.get(first..).unwrap_or_default() {
            let Some(live) = state.live(run.segment).filter(|_| run.first < stop) else {
                break;
            };
            let Some(entries) = self.entries_of(run) else {
                if taking.marks(key, &mut marks, run.first.min(stop))? {
                    // What was found so far is enough for one answer; the next read begins at this run.
                    let load = state.load_of(run).filter(|_| taking.wanted.found.is_empty());
                    return Ok(load.map_or(Step::Entries(taking.wanted), Step::Load));
                }
                return Ok(Step::Entries(taking.wanted));
            };
            for entry in entries.from(from.offset) {
                let goes_on = taking.marks(key, &mut marks, entry.base.min(stop))?;
                if !goes_on || entry.base >= stop || !taking.batch(range, &live.segment, entry) {
                    return Ok(Step::Entries(taking.wanted));
                }
            }
        }
        taking.marks(key, &mut marks, stop.min(range.end))?;
        Ok(Step::Entries(taking.wanted))
    }

    fn fetch_entries(&self, key: RangeKey, wanted: &Wanted) -> Result<Vec<StoredEntry>, ReadError> {
        let mut entries: Vec<StoredEntry> = Vec::with_capacity(wanted.found.len());
        while let Some((next, (position, head))) = wanted
            .found
            .get(entries.len()..)
            .and_then(<[Found]>::first)
            .zip(wanted.places.get(entries.len()))
        {
            let hot = head.as_ref().zip(next.hot.as_ref());
            let read = match hot {
                Some((head, bytes)) => {
                    count(&self.counters.hot_reads, 1);
                    let record = RecordHead::parse(head, next.segment.mask);
                    let record = record.ok_or_else(|| damaged(key, *position));
                    record.and_then(|record| {
                        entries.push(stored(key, *position, record.head, bytes.clone())?);
                        Ok(())
                    })
                }
                None => {
                    let rest = wanted.found.get(entries.len()..).unwrap_or_default();
                    let together = rest.get(..neighbours(rest)).unwrap_or_default();
                    self.fetch_cold(key, together, |_, head, bytes| {
                        let place = wanted.places.get(entries.len());
                        let position = place.map_or(*position, |(position, _)| *position);
                        entries.push(stored(key, position, head, bytes)?);
                        Ok(())
                    })
                }
            };
            match read {
                Ok(()) => {}
                // What lies before the damage is returned; the next read reports the error.
                Err(_) if !entries.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }
}

impl Taking<'_> {
    /// Takes the marks up to an offset, those at the offset included. Returns whether there is room for more; an error if
    /// the first entry wanted is one that is lost.
    fn marks(&mut self, key: RangeKey, marks: &mut &[MarkPlace], until: Offset) -> Result<bool, ReadError> {
        while let Some((mark, rest)) = marks.split_first().filter(|(mark, _)| mark.position.offset <= until) {
            let expected = if mark.position.offset == self.next.offset {
                self.next
            } else {
                Position::start(mark.position.offset)
            };
            let live = self.state.live(mark.segment);
            let Some(live) = live.filter(|_| mark.position == expected) else {
                return if self.is_first {
                    Err(damaged(key, expected))
                } else {
                    Ok(false)
                };
            };
            let entry = IndexEntry {
                base: mark.position.offset,
                end: mark.position.offset,
                max_timestamp: Default::default(),
                position: mark.place,
                length: mark.length,
            };
            if !self.take(&live.segment, entry, mark.position) {
                return Ok(false);
            }
            self.next = mark.position.behind_mark().unwrap_or(mark.position);
            *marks = rest;
        }
        Ok(true)
    }

    /// Takes a batch, if there is room for it.
    fn batch(&mut self, range: &RangeState, segment: &Arc<Segment>, entry: IndexEntry) -> bool {
        let behind = range.marks.partition_point(|mark| mark.position.offset <= entry.base);
        let last = behind.checked_sub(1).and_then(|last| range.marks.get(last));
        let marks = last
            .filter(|mark| mark.position.offset == entry.base)
            .map_or(0, |mark| mark.position.marks.saturating_add(1));
        let offset = entry.base;
        self.next = Position::start(entry.end);
        self.take(segment, entry, Position { offset, marks })
    }

    fn take(&mut self, segment: &Arc<Segment>, entry: IndexEntry, position: Position) -> bool {
        let bytes = RecordHead::LEN + entry.length as usize;
        if bytes > self.room && !self.is_first {
            return false;
        }
        self.room = self.room.saturating_sub(bytes);
        self.is_first = false;
        let place = u64::from(entry.position);
        let head = self.state.tail.find(segment.number, place, RecordHead::LEN);
        self.wanted.found.push(locate(self.state, segment, entry));
        let head = head.map(BatchBytes::into_contiguous);
        self.wanted.places.push((position, head));
        true
    }
}

/// The entry at a position, if its head is that of such an entry.
fn stored(key: RangeKey, position: Position, mut head: EntryHead, bytes: BatchBytes) -> Result<StoredEntry, ReadError> {
    if head.is_mark() && head.marks.is_some_and(|marks| marks != position.marks) {
        return Err(damaged(key, position));
    }
    head.marks = Some(position.marks);
    Ok(StoredEntry { position, head, bytes })
}

/// A mark at this position cannot be read. It takes no offset.
fn damaged(key: RangeKey, position: Position) -> ReadError {
    ReadError::Damaged {
        key,
        from: position.offset,
        to: position.offset,
    }
}
