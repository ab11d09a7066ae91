//! The cached footers of sealed segments, and their reconstruction.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use sbp_locks::Mutex;
use sbp_types::{Epoch, Offset, RangeKey};

use crate::EntryHead;
use crate::format::footer::IndexEntry;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{BLOCK, block_up, bytes_from};
use crate::fs::File;
use crate::segments::segment::Segment;

/// How many footer entries are cached for readers of sealed segments.
const CACHED_ENTRIES: usize = 1 << 19;

/// Footer entries of sealed segments that readers have used recently.
#[derive(Debug, Default)]
pub(crate) struct FooterCache(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    /// By segment and position of the footer's run.
    runs: HashMap<(u64, u64), CachedRun>,
    entries: usize,
    clock: u64,
}

#[derive(Debug)]
struct CachedRun {
    entries: Arc<[IndexEntry]>,
    used: u64,
}

impl FooterCache {
    pub(crate) fn get(&self, segment: u64, position: u64) -> Option<Arc<[IndexEntry]>> {
        let cache = &mut *self.0.lock();
        cache.clock += 1;
        let run = cache.runs.get_mut(&(segment, position))?;
        run.used = cache.clock;
        Some(run.entries.clone())
    }

    pub(crate) fn put(&self, segment: u64, position: u64, entries: Arc<[IndexEntry]>) {
        self.put_all(segment, [(position, entries)]);
    }

    /// Caches runs of a segment, as many as fit.
    pub(crate) fn put_all(&self, segment: u64, runs: impl IntoIterator<Item = (u64, Arc<[IndexEntry]>)>) {
        let cache = &mut *self.0.lock();
        cache.clock += 1;
        for (position, entries) in runs {
            cache.entries += entries.len();
            let run = CachedRun {
                entries,
                used: cache.clock,
            };
            if let Some(old) = cache.runs.insert((segment, position), run) {
                cache.entries -= old.entries.len();
            }
        }
        cache.evict();
    }
}

impl Cache {
    /// Drops the least recently used runs, a few more than needed, because finding them takes a pass over all.
    fn evict(&mut self) {
        if self.entries <= CACHED_ENTRIES {
            return;
        }
        let mut by_use: Vec<_> = self.runs.iter().map(|(key, run)| (run.used, *key)).collect();
        by_use.sort_unstable();
        by_use.pop();
        for (_, key) in by_use {
            if self.entries <= CACHED_ENTRIES / 8 * 7 {
                return;
            }
            if let Some(old) = self.runs.remove(&key) {
                self.entries -= old.entries.len();
            }
        }
    }
}

/// Rebuilds a run's entries from the groups, as far as these can be read.
pub(crate) fn rebuild(segment: &Segment, key: RangeKey, run: (Offset, Offset)) -> io::Result<Vec<IndexEntry>> {
    let mut entries: Vec<IndexEntry> = Vec::new();
    each_batch(segment, segment.file.len()?, |head, entry| {
        let next = entries.last().map_or(run.0, |entry| entry.end);
        if head.key == key && entry.base >= next && entry.end <= run.1 {
            entries.push(entry);
        }
    })?;
    Ok(entries)
}

/// The entries of all batches in the groups before `end`, as far as these can be read: by range, with the epoch of its
/// last one.
pub(crate) fn rebuild_all(segment: &Segment, end: u64) -> io::Result<BTreeMap<RangeKey, (Epoch, Vec<IndexEntry>)>> {
    let mut ranges: BTreeMap<RangeKey, (Epoch, Vec<IndexEntry>)> = BTreeMap::new();
    each_batch(segment, end, |head, entry| {
        let (epoch, entries) = ranges.entry(head.key).or_default();
        *epoch = head.epoch;
        entries.push(entry);
    })?;
    Ok(ranges)
}

/// Calls `visit` with each batch in the groups before `end` whose head can be read.
pub(crate) fn each_batch(segment: &Segment, end: u64, mut visit: impl FnMut(&EntryHead, IndexEntry)) -> io::Result<()> {
    let length = end.min(segment.capacity);
    let mut image = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    segment.file.read_at(0, &mut image)?;
    let mut position = FIRST_GROUP;
    while position < image.len() as u64 {
        let bytes = bytes_from(&image, position);
        let Some(header) = GroupHeader::parse(bytes, segment.salt) else {
            position += BLOCK;
            continue;
        };
        let mut at = GroupHeader::LEN;
        for _ in 0..header.records {
            let Some(record) = bytes.get(at..).and_then(|bytes| RecordHead::parse(bytes, segment.mask)) else {
                break;
            };
            let place = position + at as u64;
            at += RecordHead::stored_len(record.batch_len as usize);
            let head = &record.head;
            let (Some(end), Ok(position)) = (head.end_offset(), u32::try_from(place)) else {
                break;
            };
            if !head.is_mark() {
                let entry = IndexEntry {
                    base: head.base_offset,
                    end,
                    max_timestamp: head.max_timestamp,
                    position,
                    length: record.batch_len,
                };
                visit(head, entry);
            }
        }
        position += block_up(u64::from(header.length));
    }
    Ok(())
}
