//! Reading from the log, and its answers for retention: how much of a range is stored, and where it begins if kept for
//! some time or size.

use sbp_types::{Offset, Position, RangeKey, TimestampMs};

use super::Log;
use crate::format::footer::IndexEntry;
use crate::read::{Look, Reach, Step};
use crate::state::index::{Entries, Run};
use crate::{ReadError, StoredBatch, StoredEntry};

impl<T: Send + 'static> Log<T> {
    /// Reads synced batches, beginning with the one that contains `from`, of at most `max_bytes` together; with
    /// `at_least_one` the first batch is returned whatever its size. Empty at and beyond the synced end, and for an
    /// unknown range. Batches before damage are returned; a read that begins in damage is [`ReadError::Damaged`].
    pub fn read(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<StoredBatch>, ReadError> {
        let look = Look {
            from,
            max_bytes,
            at_least_one,
            reach: Reach::Disk,
        };
        let shared = &self.shared;
        shared.again_if_moved(|| shared.fetch(key, shared.find(key, &look)?))
    }

    /// As [`read`](Self::read), but from memory only: `None` if the first batch or its position has to be read from the
    /// disk. Never touches the disk.
    #[must_use]
    pub fn read_hot(
        &self,
        key: RangeKey,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Option<Result<Vec<StoredBatch>, ReadError>> {
        let look = Look {
            from,
            max_bytes,
            at_least_one,
            reach: Reach::Memory,
        };
        match self.shared.look(key, &look) {
            Ok(Step::Batches(found)) => Some(self.shared.fetch(key, found)),
            Ok(Step::Load(_) | Step::Cold) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads synced entries from a place on, heads and bytes, marks included, in their order. At most `max_bytes` together, a
    /// head counted as 96 bytes, but at least one if there is one. Empty at and beyond the synced end, and for an unknown
    /// range.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if the first entry cannot be read: with `from` equal to `to` if it is a mark, which takes no
    /// offset. [`ReadError::Released`] if it was released: what is left begins at `Position::start(first)`.
    pub fn entries(&self, key: RangeKey, from: Position, max_bytes: usize) -> Result<Vec<StoredEntry>, ReadError> {
        let shared = &self.shared;
        shared.again_if_moved(|| shared.entries(key, from, max_bytes))
    }

    /// The base offset of the first synced batch that ends after `from` and whose `max_timestamp` is at least `time`.
    pub fn find_timestamp(&self, key: RangeKey, from: Offset, time: TimestampMs) -> Result<Option<Offset>, ReadError> {
        self.shared.again_if_moved(|| self.find_timestamp_once(key, from, time))
    }

    fn find_timestamp_once(&self, key: RangeKey, from: Offset, time: TimestampMs) -> Result<Option<Offset>, ReadError> {
        loop {
            let load = {
                let state = self.shared.state.read();
                let Some(range) = state.index.get(key) else {
                    return Ok(None);
                };
                let candidates = range
                    .runs
                    .iter()
                    .filter(|run| run.end > from && run.max_timestamp >= time);
                let mut load = None;
                for run in candidates {
                    let Some(entries) = self.shared.entries_of(run) else {
                        load = state.load_of(run);
                        break;
                    };
                    if let Some(entry) = entries.from(from).find(|entry| entry.max_timestamp >= time) {
                        return Ok(Some(entry.base));
                    }
                }
                load
            };
            let Some(load) = load else { return Ok(None) };
            self.shared.load(key, &load)?;
        }
    }

    /// The bytes of a range's batches that are synced and not released. Exact, except around the released offset, or
    /// an end that the owner told, in an older segment whose footer is not in memory, where it is estimated by proportion. Never touches the disk.
    #[must_use]
    pub fn stored_bytes(&self, key: RangeKey) -> u64 {
        let state = self.shared.state.read();
        let Some(range) = state.index.get(key) else { return 0 };
        range.runs.iter().map(|run| self.run_bytes(run, range.released)).sum()
    }

    /// How many bytes of synced batches a read from `from` on could return. Exact, except within an older segment whose
    /// footer is not in memory, where it is estimated by proportion. Never touches the disk.
    #[must_use]
    pub fn bytes_from(&self, key: RangeKey, from: Offset) -> u64 {
        let state = self.shared.state.read();
        let Some(range) = state.index.get(key) else { return 0 };
        let behind = range.runs.iter().rev().take_while(|run| run.end > from);
        behind.map(|run| self.run_bytes(run, from)).sum()
    }

    /// Batch bytes of a run from the batch that holds `from` on.
    fn run_bytes(&self, run: &Run, from: Offset) -> u64 {
        let divided = run.first < from && from < run.end && matches!(run.entries, Entries::Stored { .. });
        match divided.then(|| self.shared.entries_of(run)).flatten() {
            Some(entries) => entries.from(from).map(|entry| u64::from(entry.length)).sum(),
            None => run.bytes_from(from),
        }
    }

    /// The base offset of the newest batch from which on at least `keep` bytes of batches are stored; the first offset
    /// if there are fewer. So a limit of `keep` bytes is kept, and exceeded by less than a batch. May touch the disk;
    /// if that fails, more is kept.
    #[must_use]
    pub fn offset_keeping_bytes(&self, key: RangeKey, keep: u64) -> Offset {
        loop {
            let load = {
                let state = self.shared.state.read();
                let Some(range) = state.index.get(key) else {
                    return Offset::ZERO;
                };
                if keep == 0 {
                    return range.end;
                }
                let mut rest = keep;
                let boundary = range.runs.iter().rev().find(|run| {
                    let enough = run.bytes >= rest;
                    rest = if enough { rest } else { rest - run.bytes };
                    enough
                });
                let Some(run) = boundary else { return range.first() };
                match self.shared.entries_of(run) {
                    Some(entries) => return newest_keeping(rest, entries.from(run.first)).unwrap_or(run.first),
                    None => match state.load_of(run) {
                        Some(load) => load,
                        None => return run.first,
                    },
                }
            };
            if self.shared.load(key, &load).is_err() {
                return load.run.0;
            }
        }
    }

    /// The base offset of the first batch that was appended at or after `cutoff`; the synced end if there is none.
    /// Batches that cannot be read count as newer. May touch the disk.
    ///
    /// Append times are assumed to grow with the offsets. Where the server's clock went back, the result is some batch
    /// that is new enough and follows one that is not.
    pub fn offset_appended_since(&self, key: RangeKey, cutoff: TimestampMs) -> Result<Offset, ReadError> {
        let (mut low, mut high) = {
            let state = self.shared.state.read();
            let Some(range) = state.index.get(key) else {
                return Ok(Offset::ZERO);
            };
            let first = range.first();
            if range.oldest.is_some_and(|(base, time)| base == first && time >= cutoff) {
                return Ok(first);
            }
            (first, range.end)
        };
        // All batches before `low` are older than the cutoff, all from `high` on are not. The search begins at the
        // start of the range, because most of the time nothing is old enough.
        let mut at = low;
        while low < high {
            let Some((batch, append_time)) = self.dated(key, at, high)? else {
                // The batches between cannot be read, so their age is unknown and they are kept.
                high = at;
                at = middle(low, high);
                continue;
            };
            match append_time {
                Some(time) if time >= cutoff => {
                    if batch.base <= low
                        && let Some(range) = self.shared.state.write().index.get_mut(key)
                    {
                        range.oldest = Some((batch.base, time));
                    }
                    high = batch.base.max(low);
                    at = middle(low, high);
                }
                Some(_) => {
                    low = batch.end;
                    at = middle(low, high);
                }
                None if batch.end < high => at = batch.end,
                None => {
                    high = batch.base.max(low);
                    at = middle(low, high);
                }
            }
        }
        Ok(high)
    }

    /// The batch that contains `at`, or the first readable one after it, and when it was appended, if its head can be
    /// read; `None` if none begins before `high`.
    fn dated(
        &self,
        key: RangeKey,
        at: Offset,
        high: Offset,
    ) -> Result<Option<(IndexEntry, Option<TimestampMs>)>, ReadError> {
        let mut from = at;
        while from < high {
            let look = Look {
                from,
                max_bytes: 0,
                at_least_one: true,
                reach: Reach::Disk,
            };
            let read = || {
                let found = self.shared.find(key, &look)?;
                let head = found.first().map(|found| self.shared.read_head(found)).transpose()?;
                Ok(found.first().map(|found| found.entry).zip(head))
            };
            let (entry, head) = match self.shared.again_if_moved(read) {
                Ok(Some((entry, head))) if entry.base < high => (entry, head),
                Ok(_) => return Ok(None),
                Err(ReadError::Damaged { to, .. }) => {
                    from = to;
                    continue;
                }
                Err(ReadError::Released { first, .. }) => {
                    from = first;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let head = head.filter(|record| record.head.key == key && record.head.base_offset == entry.base);
            return Ok(Some((entry, head.map(|record| record.head.append_time))));
        }
        Ok(None)
    }
}

/// The base offset of the newest entry from which on there are at least `keep` bytes.
fn newest_keeping(keep: u64, entries: impl DoubleEndedIterator<Item = IndexEntry>) -> Option<Offset> {
    let mut kept = 0u64;
    entries.rev().find_map(|entry| {
        kept += u64::from(entry.length);
        (kept >= keep).then_some(entry.base)
    })
}

fn middle(low: Offset, high: Offset) -> Offset {
    let half = i64::try_from(high.distance_from(low) / 2).unwrap_or(i64::MAX);
    low.checked_add(half).unwrap_or(low)
}
