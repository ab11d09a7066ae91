//! The index of one range: its runs, its end and its damage.

use sbp_types::{Epoch, Offset, Position, RangeKey, TimestampMs};

use super::{MarkPlace, Overlap};
use crate::EntryHead;
use crate::format::checkpoint::{PositionsItem, RangeItem};
use crate::format::footer::{FooterRun, IndexEntry};
use crate::format::record::RecordHead;

/// The records of one range, as readers see them.
#[derive(Debug)]
pub(crate) struct RangeState {
    /// One run per segment that has records of the range, in the order of the offsets.
    pub(crate) runs: Vec<Run>,
    /// One past the offset of the last record; without meaning until `known`.
    pub(crate) end: Offset,
    /// How many marks stand at `end`.
    pub(crate) end_marks: u32,
    /// The marks that can be read, in their order. They are few: one for each new epoch of a writer, and the state of the
    /// writers.
    pub(crate) marks: Vec<MarkPlace>,
    /// Where the range ends, once the owner has said so. What lies behind is not here.
    pub(crate) ended: Option<Position>,
    /// Whether other servers have copies of it.
    pub(crate) shared: bool,
    /// The epoch of the last record.
    pub(crate) epoch: Epoch,
    /// Records below this offset are not needed any more.
    pub(crate) released: Offset,
    /// Offsets that cannot be read, as ordered intervals that do not touch.
    pub(crate) damage: Vec<(Offset, Offset)>,
    /// False when damage may hide records after `end`.
    pub(crate) proven: bool,
    /// Whether `end` is known, from a record or a checkpoint.
    pub(crate) known: bool,
    /// The append time of the batch at an offset, where retention last looked.
    pub(crate) oldest: Option<(Offset, TimestampMs)>,
}

/// The records of one range in one segment.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) segment: u64,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    /// Batch bytes.
    pub(crate) bytes: u64,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) entries: Entries,
    /// Whether `entries` has some that lie behind `end`, which do not count.
    pub(crate) is_cut: bool,
}

/// Where a run's entries are.
#[derive(Clone, Debug)]
pub(crate) enum Entries {
    /// In memory: the segment is being written, or was until recently.
    Resident(Vec<Resident>),
    /// In the segment's footer.
    Stored {
        /// Their position in the file.
        position: u64,
        /// Their number.
        count: u32,
        /// Their CRC-32C.
        crc: u32,
    },
}

impl Entries {
    /// The entries of a run that a footer lists.
    pub(crate) fn stored(run: &FooterRun) -> Self {
        Self::Stored {
            position: run.position,
            count: run.count,
            crc: run.crc,
        }
    }
}

/// An entry in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) entry: IndexEntry,
    /// The batch bytes before it in the same run.
    pub(crate) before: u64,
}

impl Default for RangeState {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            end: Offset(0),
            end_marks: 0,
            marks: Vec::new(),
            ended: None,
            shared: false,
            epoch: Epoch(0),
            released: Offset(i64::MIN),
            damage: Vec::new(),
            proven: true,
            known: false,
            oldest: None,
        }
    }
}

impl RangeState {
    /// The first offset that can be read; the end if there is none.
    pub(crate) fn first(&self) -> Offset {
        self.runs.first().map_or(self.end, |run| run.first)
    }

    /// The place behind the last entry; without meaning until `known`.
    pub(crate) fn end_position(&self) -> Position {
        Position {
            offset: self.end,
            marks: self.end_marks,
        }
    }

    /// Whether the range ends before this entry.
    pub(crate) fn ends_before(&self, head: &EntryHead) -> bool {
        self.ended.is_some_and(|end| match head.is_mark() {
            true => head.position(head.marks.unwrap_or(self.end_marks)) >= end,
            false => head.base_offset >= end.offset,
        })
    }

    pub(crate) fn check_order(&self, key: RangeKey, offset: Offset) -> Result<(), Overlap> {
        if self.known && offset < self.end {
            Err(Overlap {
                key,
                expected: self.end,
                offset,
            })
        } else {
            Ok(())
        }
    }

    /// Adds a record whose order has been checked. Returns whether it begins a run.
    pub(crate) fn add(&mut self, record: &RecordHead, segment: u64, position: u32) -> bool {
        let head = &record.head;
        let Some(end) = head.end_offset() else { return false };
        self.reach(head.base_offset, end);
        self.epoch = head.epoch;
        let entry = IndexEntry {
            base: head.base_offset,
            end,
            max_timestamp: head.max_timestamp,
            position,
            length: record.batch_len,
        };
        match self.runs.last_mut() {
            Some(run) if run.segment == segment => {
                run.push(entry);
                false
            }
            _ => {
                self.runs.push(Run::begin(segment, entry));
                true
            }
        }
    }

    /// Adds a mark whose order has been checked. Returns whether it may be the range's first entry in the segment.
    ///
    /// A number that was written counts more than one that was counted here: releases that did not number their fences
    /// did not count those of before a checkpoint either.
    pub(crate) fn add_mark(&mut self, record: &RecordHead, segment: u64, place: u32) -> bool {
        let head = &record.head;
        self.reach(head.base_offset, head.base_offset);
        self.epoch = head.epoch;
        let position = head.position(head.marks.unwrap_or(self.end_marks));
        while self.marks.pop_if(|mark| mark.position >= position).is_some() {}
        let is_first = self.marks.last().is_none_or(|mark| mark.segment != segment)
            && self.runs.last().is_none_or(|run| run.segment != segment);
        self.marks.push(MarkPlace {
            position,
            segment,
            place,
            length: record.batch_len,
        });
        self.end_marks = position.marks.saturating_add(1);
        is_first
    }

    /// Adds a record of which only the head can be read.
    pub(crate) fn add_damaged(&mut self, record: &RecordHead) {
        let head = &record.head;
        let Some(end) = head.end_offset() else { return };
        self.reach(head.base_offset, end);
        self.epoch = head.epoch;
        self.shared |= head.shared;
        self.mark(head.base_offset, end);
    }

    /// Adds a range's run from a segment's footer.
    pub(crate) fn add_run(&mut self, segment: u64, run: &FooterRun) {
        self.reach(run.first, run.end);
        self.epoch = run.epoch;
        self.runs.push(Run::stored(segment, run));
    }

    /// Moves the end to `end`. A gap between the old end and `base` is marked as damaged.
    fn reach(&mut self, base: Offset, end: Offset) {
        if self.known && self.end < base {
            self.mark(self.end, base);
        }
        if !self.known || self.end != end {
            self.end_marks = 0;
        }
        self.known = true;
        self.proven = true;
        self.end = end;
    }

    /// Takes over a range from the checkpoint: its proven end, its damage, and marks for records that should be there
    /// and are not.
    pub(crate) fn settle(&mut self, item: &RangeItem, positions: Option<&PositionsItem>) {
        for &(from, to) in &item.damage {
            self.mark(from, to);
        }
        let (first, have) = if self.known {
            (self.first(), self.end)
        } else {
            (item.end, item.first)
        };
        if self.known && item.first < first {
            self.mark(item.first, first);
        }
        if have < item.end {
            self.mark(have, item.end);
        }
        if !self.known || have < item.end {
            self.end = item.end;
            self.epoch = item.epoch;
        }
        self.known = true;
        self.proven = item.proven;
        if let Some(positions) = positions {
            if self.end == item.end {
                self.end_marks = positions.end_marks;
            }
            self.marks.clone_from(&positions.marks);
            self.shared = positions.shared;
            if let Some(end) = positions.ended {
                self.end_at(end);
            }
        }
        self.release(item.released);
        if let Some(run) = self.runs.first_mut().filter(|_| item.first <= item.released) {
            run.begin_at(item.first);
        }
    }

    /// The range ends at `end`: what lies behind it is dropped, now and when it is added later.
    pub(crate) fn end_at(&mut self, end: Position) {
        self.ended = Some(end);
        // Where a copy ends is known from now on, also if damage hides what it has: the rest can be added.
        self.proven = true;
        if !self.known || self.end_position() <= end {
            return;
        }
        self.marks.retain(|mark| mark.position < end);
        while self.runs.pop_if(|run| run.first >= end.offset).is_some() {}
        if let Some(run) = self.runs.last_mut() {
            run.cut(end.offset);
        }
        self.damage.retain(|&(from, _)| from < end.offset);
        if let Some((_, to)) = self.damage.last_mut() {
            *to = end.offset.min(*to);
        }
        (self.end, self.end_marks) = (end.offset, end.marks);
    }

    /// Marks offsets as damaged, joining neighbours.
    pub(crate) fn mark(&mut self, from: Offset, to: Offset) {
        let from = from.max(self.released);
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        self.damage.retain(|&(a, b)| {
            let apart = b < from || to < a;
            if !apart {
                from = from.min(a);
                to = to.max(b);
            }
            apart
        });
        let at = self.damage.partition_point(|&(a, _)| a < from);
        self.damage.insert(at, (from, to));
    }

    /// Takes a mark off offsets that can be read again.
    pub(crate) fn unmark(&mut self, from: Offset, to: Offset) {
        let damage = std::mem::take(&mut self.damage);
        let left = |(a, b): (Offset, Offset)| [(a, b.min(from)), (a.max(to), b)];
        self.damage = damage.into_iter().flat_map(left).filter(|(a, b)| a < b).collect();
    }

    /// Has these batches in its run in a segment: those that are there, and some that could not be read before.
    pub(crate) fn list(&mut self, segment: u64, entries: &[IndexEntry]) {
        let Some((first, rest)) = entries.split_first() else {
            return;
        };
        let mut whole = Run::begin(segment, *first);
        rest.iter().for_each(|entry| whole.push(*entry));
        match self.runs.iter_mut().find(|run| run.segment == segment) {
            Some(run) => *run = whole,
            None => {
                let at = self.runs.partition_point(|run| run.first < first.base);
                self.runs.insert(at, whole);
            }
        }
    }

    /// The damaged interval that contains the offset, or the next one after it.
    pub(crate) fn damage_at_or_after(&self, offset: Offset) -> Option<(Offset, Offset)> {
        let at = self.damage.partition_point(|&(_, to)| to <= offset);
        self.damage.get(at).copied()
    }

    /// Records below `below` are not needed any more. Runs that end at or below it leave the index at once, so that
    /// readers see no gaps when some of their segments are removed before others.
    pub(crate) fn release(&mut self, below: Offset) {
        self.released = self.released.max(below);
        self.runs.retain(|run| run.end > self.released);
        // A mark before a batch that can still be read is needed with it: else nobody could tell where the batch stands.
        let needed = self
            .runs
            .first()
            .map_or(self.released, |run| self.released.min(run.first));
        self.marks.retain(|mark| mark.position.offset >= needed);
        self.damage.retain(|&(_, to)| to > self.released);
    }
}

impl Run {
    /// A run whose entries are in its segment's footer.
    pub(crate) fn stored(segment: u64, run: &FooterRun) -> Self {
        Self {
            segment,
            first: run.first,
            end: run.end,
            bytes: run.bytes,
            max_timestamp: run.max_timestamp,
            entries: Entries::stored(run),
            is_cut: false,
        }
    }

    fn begin(segment: u64, entry: IndexEntry) -> Self {
        Self {
            segment,
            first: entry.base,
            end: entry.end,
            bytes: u64::from(entry.length),
            max_timestamp: entry.max_timestamp,
            entries: Entries::Resident(vec![Resident { entry, before: 0 }]),
            is_cut: false,
        }
    }

    fn push(&mut self, entry: IndexEntry) {
        if let Entries::Resident(entries) = &mut self.entries {
            entries.push(Resident {
                entry,
                before: self.bytes,
            });
        }
        self.end = entry.end;
        self.bytes += u64::from(entry.length);
        self.max_timestamp = self.max_timestamp.max(entry.max_timestamp);
    }

    /// Leaves out the batches before `first`, where one begins: they were released before those behind them came.
    fn begin_at(&mut self, first: Offset) {
        if first <= self.first || self.end <= first {
            return;
        }
        let left = self.bytes_from(first);
        if let Entries::Resident(entries) = &mut self.entries {
            let gone = self.bytes - left;
            entries.retain(|resident| resident.entry.base >= first);
            entries.iter_mut().for_each(|resident| resident.before -= gone);
        }
        (self.first, self.bytes) = (first, left);
    }

    /// Leaves out the batches from `end` on, where one begins.
    fn cut(&mut self, end: Offset) {
        if self.end <= end {
            return;
        }
        self.bytes -= self.bytes_from(end).min(self.bytes);
        if let Entries::Resident(entries) = &mut self.entries {
            entries.truncate(entries.partition_point(|resident| resident.entry.base < end));
        } else {
            self.is_cut = true;
        }
        self.end = end;
    }

    /// The batch bytes from the batch that contains `from` on: exact if the entries are in memory, else estimated by
    /// proportion.
    pub(crate) fn bytes_from(&self, from: Offset) -> u64 {
        if from <= self.first {
            return self.bytes;
        }
        if from >= self.end {
            return 0;
        }
        if let Entries::Resident(entries) = &self.entries {
            let at = entries.partition_point(|resident| resident.entry.end <= from);
            return entries.get(at).map_or(0, |resident| self.bytes - resident.before);
        }
        let part = u128::from(self.end.distance_from(from)) * u128::from(self.bytes);
        u64::try_from(part / u128::from(self.end.distance_from(self.first)).max(1))
            .unwrap_or(self.bytes)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::RangeState;
    use sbp_types::Offset;

    fn marked(marks: &[(i64, i64)], released: i64) -> Vec<(i64, i64)> {
        let mut range = RangeState {
            released: Offset(released),
            ..RangeState::default()
        };
        for (from, to) in marks {
            range.mark(Offset(*from), Offset(*to));
        }
        range.damage.iter().map(|(from, to)| (from.0, to.0)).collect()
    }

    #[test]
    fn marks_stay_ordered_and_apart() {
        assert_eq!(marked(&[(5, 8), (1, 2), (10, 12)], 0), [(1, 2), (5, 8), (10, 12)]);
        assert_eq!(marked(&[(5, 8), (8, 9), (1, 5)], 0), [(1, 9)]);
        assert_eq!(marked(&[(5, 8), (1, 20), (6, 7)], 0), [(1, 20)]);
        assert_eq!(marked(&[(5, 8), (3, 3)], 0), [(5, 8)]);
        assert_eq!(
            marked(&[(5, 8), (1, 4)], 6),
            [(6, 8)],
            "nothing is damaged that nobody needs"
        );
    }

    #[test]
    fn damage_is_found_at_an_offset_or_behind_it() {
        let mut range = RangeState::default();
        range.mark(Offset(5), Offset(8));
        assert_eq!(range.damage_at_or_after(Offset(0)), Some((Offset(5), Offset(8))));
        assert_eq!(range.damage_at_or_after(Offset(7)), Some((Offset(5), Offset(8))));
        assert_eq!(range.damage_at_or_after(Offset(8)), None);
    }
}
