//! The log's answers for retention: how much of a range is stored, and where it begins if kept for some time or size.

use sbp_types::{Offset, RangeKey, TimestampMs};

use crate::ReadError;
use crate::format::footer::IndexEntry;
use crate::read::Look;
use crate::state::index::{Entries, Run};
use crate::state::shared::Shared;

/// A batch and when it was appended.
#[derive(Clone, Copy, Debug)]
struct Dated {
    base: Offset,
    end: Offset,
    /// `None` where the head cannot be read.
    append_time: Option<TimestampMs>,
}

impl Shared {
    /// See [`Log::stored_bytes`](crate::Log::stored_bytes).
    pub(crate) fn stored_bytes(&self, key: RangeKey) -> u64 {
        let state = self.state.read();
        let Some(range) = state.index.get(key) else { return 0 };
        range.runs.iter().map(|run| self.run_bytes(run, range.released)).sum()
    }

    /// See [`Log::bytes_from`](crate::Log::bytes_from).
    pub(crate) fn bytes_from(&self, key: RangeKey, from: Offset) -> u64 {
        let state = self.state.read();
        let Some(range) = state.index.get(key) else { return 0 };
        let behind = range.runs.iter().rev().take_while(|run| run.end > from);
        behind.map(|run| self.run_bytes(run, from)).sum()
    }

    /// Batch bytes of a run from the batch that holds `from` on.
    fn run_bytes(&self, run: &Run, from: Offset) -> u64 {
        let divided = run.first < from && from < run.end && matches!(run.entries, Entries::Stored { .. });
        match divided.then(|| self.entries_of(run)).flatten() {
            Some(entries) => entries.from(from).map(|entry| u64::from(entry.length)).sum(),
            None => run.bytes_from(from),
        }
    }

    /// See [`Log::offset_keeping_bytes`](crate::Log::offset_keeping_bytes).
    pub(crate) fn offset_keeping_bytes(&self, key: RangeKey, keep: u64) -> Offset {
        loop {
            let load = {
                let state = self.state.read();
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
                match self.entries_of(run) {
                    Some(entries) => return newest_keeping(rest, entries.from(run.first)).unwrap_or(run.first),
                    None => match state.load_of(run) {
                        Some(load) => load,
                        None => return run.first,
                    },
                }
            };
            if self.load(key, &load).is_err() {
                return load.run.0;
            }
        }
    }

    /// See [`Log::offset_appended_since`](crate::Log::offset_appended_since).
    pub(crate) fn offset_appended_since(&self, key: RangeKey, cutoff: TimestampMs) -> Result<Offset, ReadError> {
        let (mut low, mut high) = {
            let state = self.state.read();
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
            let Some(batch) = self.dated(key, at, high)? else {
                // The batches between cannot be read, so their age is unknown and they are kept.
                high = at;
                at = middle(low, high);
                continue;
            };
            match batch.append_time {
                Some(time) if time >= cutoff => {
                    if batch.base <= low {
                        self.remember_oldest(key, batch.base, time);
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

    /// The batch that contains `at`, or the first readable one after it; `None` if none begins before `high`.
    fn dated(&self, key: RangeKey, at: Offset, high: Offset) -> Result<Option<Dated>, ReadError> {
        let mut from = at;
        while from < high {
            let read = || {
                let found = self.find(key, &Look::one_at(from))?;
                let head = found.first().map(|found| self.read_head(found)).transpose()?;
                Ok(found.first().map(|found| found.entry).zip(head))
            };
            let (entry, head) = match self.again_if_moved(read) {
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
            return Ok(Some(Dated {
                base: entry.base,
                end: entry.end,
                append_time: head
                    .filter(|record| record.head.key == key && record.head.base_offset == entry.base)
                    .map(|record| record.head.append_time),
            }));
        }
        Ok(None)
    }

    fn remember_oldest(&self, key: RangeKey, base: Offset, time: TimestampMs) {
        if let Some(range) = self.state.write().index.get_mut(key) {
            range.oldest = Some((base, time));
        }
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
