//! Reading: from memory what was written last, from the disk the rest, neighbours together, everything checked.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use sbp_types::{Offset, RangeKey, TimestampMs};

use crate::footers::rebuild;
use crate::format::crc32c;
use crate::format::footer::IndexEntry;
use crate::format::record::RecordHead;
use crate::fs::File;
use crate::index::{Entries, RangeState, Run};
use crate::segment::Segment;
use crate::shared::{Shared, State, count};
use crate::{BatchBytes, ReadError, StoredBatch};

/// Neighbours of one range no further apart than this are read together.
const READ_THROUGH: u64 = 16 << 10;

/// No more than this is read at once, unless a single batch is larger.
const READ_AT_ONCE: u64 = 4 << 20;

/// A batch and where it is.
#[derive(Debug)]
struct Found {
    entry: IndexEntry,
    segment: Arc<Segment>,
    hot: Option<BatchBytes>,
}

/// What one look at the index gives.
enum Step {
    /// Batches, and where to go on if there is more to take.
    Batches(Vec<Found>),
    /// The entries of this run have to come from the disk first.
    Load {
        segment: Arc<Segment>,
        position: u64,
        count: u32,
        crc: u32,
        run: (Offset, Offset),
    },
}

impl Shared {
    /// See [`Log::read`](crate::Log::read).
    pub(crate) fn read(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<StoredBatch>, ReadError> {
        let found = loop {
            let step = self.look(key, from, max_bytes, at_least_one)?;
            match step {
                Step::Batches(found) => break found,
                Step::Load {
                    segment,
                    position,
                    count,
                    crc,
                    run,
                } => {
                    self.load(key, &segment, position, count, crc, run)?;
                }
            }
        };
        self.fetch(key, found)
    }

    /// Looks up what to return, under the lock, without touching the disk.
    fn look(&self, key: RangeKey, from: Offset, max_bytes: usize, at_least_one: bool) -> Result<Step, ReadError> {
        let state = self.state.read();
        let Some(range) = state.index.get(key) else {
            return Ok(Step::Batches(Vec::new()));
        };
        let stop = readable_until(key, range, from, state.index.unlisted_damage)?;
        let mut found = Vec::new();
        let mut room = max_bytes;
        let first = range.runs.partition_point(|run| run.end <= from);
        for run in range.runs.get(first..).unwrap_or_default() {
            if run.first >= stop {
                break;
            }
            let Some(live) = state.segments.get(&run.segment) else {
                break;
            };
            let Some(entries) = self.entries_of(run) else {
                let Entries::Stored { position, count, crc } = run.entries else {
                    break;
                };
                if !found.is_empty() {
                    // What there is is enough for one answer; the next read starts at that run.
                    break;
                }
                return Ok(Step::Load {
                    segment: live.segment.clone(),
                    position,
                    count,
                    crc,
                    run: (run.first, run.end),
                });
            };
            for entry in entries.from(from) {
                let length = entry.length as usize;
                let must = at_least_one && found.is_empty();
                if entry.base >= stop || (length > room && !must) {
                    return Ok(Step::Batches(found));
                }
                room = room.saturating_sub(length);
                found.push(self.locate(&state, &live.segment, entry));
            }
        }
        Ok(Step::Batches(found))
    }

    fn locate(&self, state: &State, segment: &Arc<Segment>, entry: IndexEntry) -> Found {
        let batch = u64::from(entry.position) + RecordHead::LEN as u64;
        let hot = state.tail.find(segment.number, batch, entry.length as usize);
        Found {
            entry,
            segment: segment.clone(),
            hot,
        }
    }

    fn entries_of<'a>(&self, run: &'a Run) -> Option<RunEntries<'a>> {
        match &run.entries {
            Entries::Resident(entries) => Some(RunEntries::Resident(entries)),
            Entries::Stored { position, .. } => self.footers.get(run.segment, *position).map(RunEntries::Cached),
        }
    }

    /// Brings a run's entries from the footer into the cache.
    fn load(
        &self,
        key: RangeKey,
        segment: &Segment,
        position: u64,
        count: u32,
        crc: u32,
        run: (Offset, Offset),
    ) -> Result<(), ReadError> {
        let mut bytes = vec![0; count as usize * IndexEntry::LEN];
        segment.file.read_at(position, &mut bytes).map_err(read_failed)?;
        let entries = match IndexEntry::parse_all(&bytes, crc) {
            Some(entries) => entries,
            None => {
                tracing::warn!(segment = segment.number, %key, "a footer is damaged; the groups are read instead");
                rebuild(segment, key, run).map_err(read_failed)?
            }
        };
        if entries.is_empty() {
            return Err(ReadError::Damaged {
                key,
                from: run.0,
                to: run.1,
            });
        }
        self.footers.put(segment.number, position, entries.into());
        Ok(())
    }

    /// Turns places into bytes.
    fn fetch(&self, key: RangeKey, found: Vec<Found>) -> Result<Vec<StoredBatch>, ReadError> {
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
            match self.fetch_cold(key, together, &mut batches) {
                Ok(()) => rest = behind,
                // What was read before the damage is worth an answer.
                Err(_) if !batches.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(batches)
    }

    fn fetch_cold(&self, key: RangeKey, together: &[Found], batches: &mut Vec<StoredBatch>) -> Result<(), ReadError> {
        let (Some(first), Some(last)) = (together.first(), together.last()) else {
            return Ok(());
        };
        let start = u64::from(first.entry.position);
        let span = usize::try_from(record_end(&last.entry) - start).unwrap_or(usize::MAX);
        let mut buffer = vec![0; span];
        first.segment.file.read_at(start, &mut buffer).map_err(read_failed)?;
        let useful: usize = together.iter().map(|found| found.entry.length as usize).sum();
        let whole = Bytes::from(buffer);
        for found in together {
            let at = (u64::from(found.entry.position) - start) as usize;
            let Some(batch) = check_record(key, found, &whole, at) else {
                return Err(self.mark_damaged(key, &found.entry));
            };
            // A slice keeps all that was read alive; where most of that is others' data, a copy is smaller.
            let batch = if useful * 2 < span {
                Bytes::copy_from_slice(&batch)
            } else {
                batch
            };
            count(&self.counters.cold_reads, 1);
            batches.push(stored(key, found, batch.into())?);
        }
        Ok(())
    }

    fn mark_damaged(&self, key: RangeKey, entry: &IndexEntry) -> ReadError {
        tracing::error!(%key, from = %entry.base, to = %entry.end, "a stored batch is damaged");
        if let Some(range) = self.state.write().index.get_mut(key) {
            range.mark(entry.base, entry.end);
        }
        ReadError::Damaged {
            key,
            from: entry.base,
            to: entry.end,
        }
    }

    /// See [`Log::find_timestamp`](crate::Log::find_timestamp).
    pub(crate) fn find_timestamp(
        &self,
        key: RangeKey,
        from: Offset,
        time: TimestampMs,
    ) -> Result<Option<Offset>, ReadError> {
        loop {
            let load = {
                let state = self.state.read();
                let Some(range) = state.index.get(key) else {
                    return Ok(None);
                };
                let candidates = range
                    .runs
                    .iter()
                    .filter(|run| run.end > from && run.max_timestamp >= time);
                let mut load = None;
                for run in candidates {
                    let Some(entries) = self.entries_of(run) else {
                        let Entries::Stored { position, count, crc } = run.entries else {
                            return Ok(None);
                        };
                        let segment = state.segments.get(&run.segment).map(|live| live.segment.clone());
                        load = segment.map(|segment| (segment, position, count, crc, (run.first, run.end)));
                        break;
                    };
                    if let Some(entry) = entries.from(from).find(|entry| entry.max_timestamp >= time) {
                        return Ok(Some(entry.base));
                    }
                }
                load
            };
            let Some((segment, position, count, crc, run)) = load else {
                return Ok(None);
            };
            self.load(key, &segment, position, count, crc, run)?;
        }
    }
}

/// A run's entries, wherever they are.
enum RunEntries<'a> {
    Resident(&'a [crate::index::Resident]),
    Cached(Arc<[IndexEntry]>),
}

impl RunEntries<'_> {
    /// The entries from the one that holds `from` on.
    fn from(&self, from: Offset) -> impl Iterator<Item = IndexEntry> {
        let (resident, cached): (&[crate::index::Resident], &[IndexEntry]) = match self {
            Self::Resident(entries) => (entries, &[]),
            Self::Cached(entries) => (&[], entries),
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

/// Where reading from `from` has to stop: the next damage, or nowhere. Errors where it cannot begin.
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
        // Nobody gave these offsets up, and somewhere heads are lost: they may have been this range's first.
        return Err(ReadError::Damaged { key, from, to: first });
    }
    Err(ReadError::Released { key, first })
}

fn record_end(entry: &IndexEntry) -> u64 {
    u64::from(entry.position) + RecordHead::LEN as u64 + u64::from(entry.length)
}

/// How many of the first places are worth one read.
fn neighbours(rest: &[Found]) -> usize {
    let Some(first) = rest.first() else { return 0 };
    let near = rest.windows(2).take_while(|pair| {
        let [one, next] = pair else { return false };
        next.hot.is_none()
            && next.segment.number == one.segment.number
            && u64::from(next.entry.position).saturating_sub(record_end(&one.entry)) <= READ_THROUGH
            && record_end(&next.entry) - u64::from(first.entry.position) <= READ_AT_ONCE
    });
    1 + near.count()
}

/// The batch of the record at `at`, if head and batch are what the index says and their checksums hold.
fn check_record(key: RangeKey, found: &Found, whole: &Bytes, at: usize) -> Option<Bytes> {
    let record = RecordHead::parse(whole.get(at..)?, found.segment.mask)?;
    let same = record.head.key == key
        && record.head.base_offset == found.entry.base
        && record.batch_len == found.entry.length
        && record.head.end_offset() == Some(found.entry.end);
    let start = at + RecordHead::LEN;
    let end = start
        .checked_add(record.batch_len as usize)
        .filter(|end| *end <= whole.len())?;
    let batch = whole.slice(start..end);
    (same && crc32c(&batch) == record.batch_crc).then_some(batch)
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
