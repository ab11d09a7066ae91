//! Reading batches: the newest from memory, the others from the disk, neighbouring ones together. All are checked.

mod entries;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use sbp_buffers::Recycler;
use sbp_locks::Mutex;
use sbp_types::{Offset, RangeKey};

use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::format::{Crc32c, crc32c};
use crate::fs::File;
use crate::segments::footers::rebuild;
use crate::segments::segment::Segment;
use crate::state::index::{Entries, RangeState, Run};
use crate::state::shared::{Shared, State, count};
use crate::{BatchBytes, EntryHead, ReadError, StoredBatch};

/// Batches of a range with at most this many bytes between them are read together.
const READ_THROUGH: u64 = 16 << 10;

/// The most that is read at once, unless a single batch is larger.
const READ_AT_ONCE: u64 = 4 << 20;

/// Bytes to read per system call. They are checksummed right after, while they are in the processor's cache.
const READ_STEP: usize = 256 << 10;

/// Buffers of at least this size are reused.
const READ_AGAIN: usize = 64 << 10;

/// The memory kept for reuse, for the whole log.
const READ_BUFFERS: usize = 16 << 20;

/// The buffers that a log reuses for reading.
pub(crate) fn buffers() -> Mutex<Recycler> {
    Mutex::new(Recycler::new(READ_BUFFERS))
}

/// A batch and its position.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: IndexEntry,
    pub(crate) segment: Arc<Segment>,
    hot: Option<BatchBytes>,
}

/// The batches to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) from: Offset,
    pub(crate) max_bytes: usize,
    /// Whether the first batch is taken whatever its size.
    pub(crate) at_least_one: bool,
    pub(crate) reach: Reach,
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In memory only.
    Memory,
    Disk,
}

/// The result of one look at the index.
pub(crate) enum Step {
    /// The batches found.
    Batches(Vec<Found>),
    /// The entries of this run have to be loaded from the disk first.
    Load(Load),
    /// The first batch is not in memory, and only memory was to be searched.
    Cold,
}

/// A run whose entries are in a footer on the disk.
#[derive(Debug)]
pub(crate) struct Load {
    segment: Arc<Segment>,
    position: u64,
    count: u32,
    crc: u32,
    /// Its first offset and its end.
    pub(crate) run: (Offset, Offset),
}

impl State {
    /// How to load the entries of a run; `None` if they are in memory.
    pub(crate) fn load_of(&self, run: &Run) -> Option<Load> {
        let Entries::Stored { position, count, crc } = run.entries else {
            return None;
        };
        Some(Load {
            segment: self.live(run.segment)?.segment.clone(),
            position,
            count,
            crc,
            run: (run.first, run.end),
        })
    }
}

impl Shared {
    /// Repeats a read that failed while batches were moved to another file, because its file may have been removed.
    pub(crate) fn again_if_moved<R>(&self, read: impl Fn() -> Result<R, ReadError>) -> Result<R, ReadError> {
        loop {
            let before = self.moved.load(Ordering::Acquire);
            match read() {
                Err(ReadError::Io { .. }) if self.moved.load(Ordering::Acquire) != before => {}
                other => return other,
            }
        }
    }

    /// Finds the positions of batches; loads footers from the disk if needed.
    pub(crate) fn find(&self, key: RangeKey, look: &Look) -> Result<Vec<Found>, ReadError> {
        loop {
            match self.look(key, look)? {
                Step::Batches(found) => return Ok(found),
                Step::Load(load) => self.load(key, &load)?,
                Step::Cold => return Ok(Vec::new()),
            }
        }
    }

    /// Finds the positions of batches in the index, under the lock and without touching the disk.
    pub(crate) fn look(&self, key: RangeKey, look: &Look) -> Result<Step, ReadError> {
        let from = look.from;
        let state = self.state.read();
        let Some(range) = state.index.get(key) else {
            return Ok(Step::Batches(Vec::new()));
        };
        let stop = readable_until(key, range, from, state.index.unlisted_damage)?;
        let mut found = Vec::new();
        let mut room = look.max_bytes;
        let first = range.runs.partition_point(|run| run.end <= from);
        for run in range.runs.get(first..).unwrap_or_default() {
            if run.first >= stop {
                break;
            }
            let Some(live) = state.live(run.segment) else {
                break;
            };
            let Some(entries) = self.entries_of(run) else {
                // The batches found so far are enough for one answer; the next read begins at this run.
                let load = state.load_of(run).filter(|_| found.is_empty());
                return Ok(load.map_or(Step::Batches(found), Step::Load));
            };
            for entry in entries.from(from) {
                let length = entry.length as usize;
                let must = look.at_least_one && found.is_empty();
                if entry.base >= stop || (length > room && !must) {
                    return Ok(Step::Batches(found));
                }
                room = room.saturating_sub(length);
                let place = locate(&state, &live.segment, entry);
                if look.reach == Reach::Memory && place.hot.is_none() {
                    return Ok(if found.is_empty() {
                        Step::Cold
                    } else {
                        Step::Batches(found)
                    });
                }
                found.push(place);
            }
        }
        Ok(Step::Batches(found))
    }

    pub(crate) fn entries_of<'a>(&self, run: &'a Run) -> Option<RunEntries<'a>> {
        match &run.entries {
            Entries::Resident(entries) => Some(RunEntries::Resident(entries)),
            Entries::Stored { position, .. } => {
                let cached = self.footers.get(run.segment, *position)?;
                let count = match run.is_cut {
                    true => cached.partition_point(|entry| entry.base < run.end),
                    false => cached.len(),
                };
                Some(RunEntries::Cached(cached, count))
            }
        }
    }

    /// Loads a run's entries from the footer into the cache.
    pub(crate) fn load(&self, key: RangeKey, load: &Load) -> Result<(), ReadError> {
        let Load { segment, run, .. } = load;
        let mut bytes = vec![0; load.count as usize * IndexEntry::LEN];
        segment.file.read_at(load.position, &mut bytes).map_err(read_failed)?;
        let entries = match IndexEntry::parse_all(&bytes, load.crc) {
            Some(entries) => entries,
            None => {
                tracing::warn!(segment = segment.number, %key, "a footer is damaged; the groups are read instead");
                let entries = rebuild(segment, key, *run).map_err(read_failed)?;
                // The groups may be damaged as well. Batches that they have lost are marked as damaged.
                for (from, to) in holes(&entries, *run) {
                    self.mark_interval(key, from, to);
                }
                entries
            }
        };
        if entries.is_empty() {
            return Err(ReadError::Damaged {
                key,
                from: run.0,
                to: run.1,
            });
        }
        self.footers.put(segment.number, load.position, entries.into());
        Ok(())
    }

    /// Reads the head of a record; `None` if it is damaged.
    pub(crate) fn read_head(&self, found: &Found) -> Result<Option<RecordHead>, ReadError> {
        let position = u64::from(found.entry.position);
        let hot = self
            .state
            .read()
            .tail
            .find(found.segment.number, position, RecordHead::LEN);
        if let Some(hot) = hot {
            return Ok(RecordHead::parse(&hot.into_contiguous(), found.segment.mask));
        }
        let mut head = [0; RecordHead::LEN];
        found.segment.file.read_at(position, &mut head).map_err(read_failed)?;
        Ok(RecordHead::parse(&head, found.segment.mask))
    }

    /// Reads the batches at these positions.
    pub(crate) fn fetch(&self, key: RangeKey, found: Vec<Found>) -> Result<Vec<StoredBatch>, ReadError> {
        let mut batches = Vec::with_capacity(found.len());
        let mut rest = found.as_slice();
        while let Some(next) = rest.first() {
            if let Some(hot) = &next.hot {
                count(&self.counters.hot_reads, 1);
                batches.push(stored(key, next, hot.clone())?);
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let (together, behind) = rest.split_at(neighbours(rest));
            let keep = |found: &Found, _: EntryHead, bytes| {
                batches.push(stored(key, found, bytes)?);
                Ok(())
            };
            match self.fetch_cold(key, together, keep) {
                Ok(()) => rest = behind,
                // The batches before the damage are returned; the next read reports the error.
                Err(_) if !batches.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(batches)
    }

    /// Reads entries that lie close to each other in a file, and gives those before the first damaged one to `keep`.
    fn fetch_cold(
        &self,
        key: RangeKey,
        together: &[Found],
        mut keep: impl FnMut(&Found, EntryHead, BatchBytes) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let (Some(first), Some(last)) = (together.first(), together.last()) else {
            return Ok(());
        };
        let start = u64::from(first.entry.position);
        let span = usize::try_from(record_end(&last.entry) - start).unwrap_or(usize::MAX);
        let mut reading = Reading {
            segment: &first.segment,
            start,
            buffer: self.read_buffer(span),
            filled: 0,
        };
        let mut good = Vec::with_capacity(together.len());
        let mut damaged = None;
        for found in together {
            let at = (u64::from(found.entry.position) - start) as usize;
            match reading.check(key, found, at).map_err(read_failed)? {
                Some((head, batch)) => good.push((found, head, batch)),
                None => {
                    damaged = Some(found);
                    break;
                }
            }
        }
        let whole = self.freeze(reading.buffer);
        count(&self.counters.disk_reads, 1);
        let useful: usize = together.iter().map(|found| found.entry.length as usize).sum();
        for (found, head, batch) in good {
            let batch = whole.slice(batch);
            // A slice keeps the whole buffer in memory; where most of that belongs to other batches, a copy is smaller.
            let batch = if useful * 2 < span {
                Bytes::copy_from_slice(&batch)
            } else {
                batch
            };
            count(&self.counters.cold_reads, 1);
            keep(found, head, batch.into())?;
        }
        match damaged {
            Some(found) => Err(self.mark_damaged(key, &found.entry)),
            None => Ok(()),
        }
    }

    /// A buffer of `span` bytes; a large one is taken from those kept for reuse.
    fn read_buffer(&self, span: usize) -> BytesMut {
        let again = span >= READ_AGAIN;
        match again.then(|| self.read_buffers.lock().take(span)).flatten() {
            Some(mut buffer) => {
                buffer.resize(span, 0);
                buffer
            }
            None => BytesMut::zeroed(span),
        }
    }

    fn freeze(&self, buffer: BytesMut) -> Bytes {
        match buffer.len() >= READ_AGAIN {
            true => self.read_buffers.lock().freeze(buffer),
            false => buffer.freeze(),
        }
    }

    fn mark_interval(&self, key: RangeKey, from: Offset, to: Offset) {
        tracing::error!(%key, %from, %to, "stored batches are damaged");
        if let Some(range) = self.state.write().index.get_mut(key) {
            range.mark(from, to);
        }
    }

    pub(crate) fn mark_damaged(&self, key: RangeKey, entry: &IndexEntry) -> ReadError {
        self.mark_interval(key, entry.base, entry.end);
        ReadError::Damaged {
            key,
            from: entry.base,
            to: entry.end,
        }
    }
}

/// A batch's position, with its bytes if they are in memory.
fn locate(state: &State, segment: &Arc<Segment>, entry: IndexEntry) -> Found {
    let batch = u64::from(entry.position) + RecordHead::LEN as u64;
    let hot = state.tail.find(segment.number, batch, entry.length as usize);
    Found {
        entry,
        segment: segment.clone(),
        hot,
    }
}

/// The entries of a run, in memory or in the cache.
pub(crate) enum RunEntries<'a> {
    Resident(&'a [crate::state::index::Resident]),
    /// So many of them count.
    Cached(Arc<[IndexEntry]>, usize),
}

impl RunEntries<'_> {
    /// The entries from the one that contains `from` on.
    pub(crate) fn from(&self, from: Offset) -> impl DoubleEndedIterator<Item = IndexEntry> {
        let (resident, cached): (&[crate::state::index::Resident], &[IndexEntry]) = match self {
            Self::Resident(entries) => (entries, &[]),
            Self::Cached(entries, count) => (&[], entries.get(..*count).unwrap_or_default()),
        };
        let resident = resident
            .get(resident.partition_point(|r| r.entry.end <= from)..)
            .unwrap_or_default();
        let cached = cached
            .get(cached.partition_point(|entry| entry.end <= from)..)
            .unwrap_or_default();
        resident.iter().map(|r| r.entry).chain(cached.iter().copied())
    }
}

/// The offset at which a read from `from` has to stop: the next damage, if any. An error if it cannot begin at all.
fn readable_until(key: RangeKey, range: &RangeState, from: Offset, heads_lost: bool) -> Result<Offset, ReadError> {
    let mut stop = Offset(i64::MAX);
    if let Some((start, end)) = range.damage_at_or_after(from) {
        if start <= from {
            return Err(ReadError::Damaged {
                key,
                from: start,
                to: end,
            });
        }
        stop = start;
    }
    let first = range.first();
    if from >= first {
        return Ok(stop);
    }
    if heads_lost && from >= range.released {
        // These offsets were not released, and damage somewhere hides heads, which may be those of this range's first
        // records.
        return Err(ReadError::Damaged { key, from, to: first });
    }
    Err(ReadError::Released { key, first })
}

/// The offsets of a run for which there are no entries.
fn holes(entries: &[IndexEntry], (first, end): (Offset, Offset)) -> Vec<(Offset, Offset)> {
    let ends = std::iter::once(first).chain(entries.iter().map(|entry| entry.end));
    let starts = entries.iter().map(|entry| entry.base).chain(std::iter::once(end));
    ends.zip(starts).filter(|(end, start)| end < start).collect()
}

fn record_end(entry: &IndexEntry) -> u64 {
    u64::from(entry.position) + RecordHead::LEN as u64 + u64::from(entry.length)
}

/// The bytes from one record up to the end of a later one; `None` if that stands before it, as only a damaged index says.
fn together(first: &IndexEntry, last: &IndexEntry) -> Option<u64> {
    record_end(last).checked_sub(u64::from(first.position))
}

/// How many of the first positions are worth reading together.
fn neighbours(rest: &[Found]) -> usize {
    let Some(first) = rest.first() else { return 0 };
    let near = rest.windows(2).take_while(|pair| {
        let [one, next] = pair else { return false };
        next.hot.is_none()
            && next.segment.number == one.segment.number
            && u64::from(next.entry.position).saturating_sub(record_end(&one.entry)) <= READ_THROUGH
            && together(&first.entry, &next.entry).is_some_and(|length| length <= READ_AT_ONCE)
    });
    1 + near.count()
}

/// A part of a segment that is read step by step, so that its bytes are checked while they are in the processor's
/// cache.
struct Reading<'a> {
    segment: &'a Segment,
    start: u64,
    /// The buffer, of the length of the part.
    buffer: BytesMut,
    /// How many of its bytes have been read.
    filled: usize,
}

impl Reading<'_> {
    /// The head of the record at `at` and the position of its bytes, if both match the index and their checksums are
    /// right.
    fn check(&mut self, key: RangeKey, found: &Found, at: usize) -> io::Result<Option<(EntryHead, Range<usize>)>> {
        let begin = at + RecordHead::LEN;
        while self.filled < begin.min(self.buffer.len()) {
            self.step()?;
        }
        let head = self.buffer.get(at..begin);
        let Some(record) = head.and_then(|head| RecordHead::parse(head, self.segment.mask)) else {
            return Ok(None);
        };
        let same = record.head.key == key
            && record.head.base_offset == found.entry.base
            && record.batch_len == found.entry.length
            && record.head.end_offset() == Some(found.entry.end);
        let end = begin.saturating_add(record.batch_len as usize);
        if !same || end > self.buffer.len() {
            return Ok(None);
        }
        Ok((self.sum(begin, end)? == record.batch_crc).then_some((record.head, begin..end)))
    }

    /// The checksum of these bytes; reads those that are not read yet.
    fn sum(&mut self, begin: usize, end: usize) -> io::Result<u32> {
        let mut sum = Crc32c::new();
        let mut place = begin;
        loop {
            let here = self.filled.min(end);
            let bytes = self.buffer.get(place..here).unwrap_or_default();
            if here == end && place == begin {
                return Ok(crc32c(bytes));
            }
            sum.update(bytes);
            place = here;
            if place == end {
                return Ok(sum.finish());
            }
            self.step()?;
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let until = self.buffer.len().min(self.filled + READ_STEP);
        if let Some(bytes) = self.buffer.get_mut(self.filled..until) {
            self.segment.file.read_at(self.start + self.filled as u64, bytes)?;
        }
        self.filled = until;
        Ok(())
    }
}

fn stored(key: RangeKey, found: &Found, bytes: BatchBytes) -> Result<StoredBatch, ReadError> {
    let entry = &found.entry;
    let count = i64::try_from(entry.end.distance_from(entry.base));
    let count = count.map_err(|_| ReadError::Damaged {
        key,
        from: entry.base,
        to: entry.end,
    })?;
    Ok(StoredBatch {
        base_offset: entry.base,
        count,
        max_timestamp: entry.max_timestamp,
        bytes,
    })
}

fn read_failed(error: io::Error) -> ReadError {
    ReadError::Io {
        source: Arc::new(error),
    }
}
