//! Finds groups and rebuilds the log's state from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::SegmentFile;
use bytes::Bytes;
use sbp_types::Position;

use crate::OpenError;
use crate::format::checkpoint::{Checkpoint, SegmentItem};
use crate::format::clean::GroupMark;
use crate::format::footer::{FooterRun, Trailer};
use crate::format::group::{GroupHeader, is_zero};
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{BLOCK, bytes_from};
use crate::segments::files::{at, corrupt};
use crate::state::folds::Folds;
use crate::state::index::{Index, KeyMap};
use crate::state::shared::LiveSegment;
use crate::writers::Writers;

/// A position in a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentPosition {
    /// The index of the segment in the list.
    pub(crate) file: usize,
    pub(crate) position: u64,
}

/// What follows the last valid group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// Nothing, or only the footer of its segment.
    Clean,
    /// A write that was interrupted by a power cut and never acknowledged.
    Torn(SegmentPosition),
    /// Groups that were only handed to the operating system, of which the first is damaged or missing.
    Cut(SegmentPosition),
    /// Damage. Nothing may be cut off, and the log goes on in another segment.
    Corrupt(SegmentPosition),
}

/// The last group, which the next one has to follow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) number: u64,
    /// `None` where the walk begins in the middle of the log.
    pub(crate) checksum: Option<u32>,
}

impl Chain {
    pub(crate) fn after(number: u64, checksum: u32) -> Self {
        Self {
            number,
            checksum: Some(checksum),
        }
    }

    pub(crate) fn continues(&self, header: &GroupHeader) -> bool {
        self.number.checked_add(1) == Some(header.number)
            && self.checksum.is_none_or(|checksum| checksum == header.previous)
    }
}

/// Rebuilds the state from groups.
pub(crate) struct Scanner {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) clean: Option<GroupMark>,
    pub(crate) index: Index,
    /// The checkpoint's writers, brought forward by every later head.
    pub(crate) writers: Writers,
    /// What of those heads counts.
    pub(crate) folds: Folds,
    pub(crate) live: BTreeMap<u64, LiveSegment>,
    /// Compacted files, made from older segments. They are not part of the chain of groups.
    pub(crate) compacted: BTreeMap<u64, LiveSegment>,
    pub(crate) chain: Chain,
    /// The last group that was replayed, and its length.
    pub(crate) last: Option<(GroupMark, u32)>,
    pub(crate) notes: Vec<String>,
    pub(crate) damaged: bool,
    /// Whether the checkpoint's ranges have been taken over.
    settled: bool,
    /// The number and bytes of the segment read last; 0 for none.
    image: (u64, Arc<Vec<u8>>),
}

impl Scanner {
    pub(crate) fn new(checkpoint: Checkpoint, clean: Option<GroupMark>) -> Self {
        let mut index = Index::default();
        index.unlisted_damage = checkpoint.unlisted_damage;
        for item in &checkpoint.ranges {
            index.get_or_insert(item.key).released = item.released;
        }
        let covered = checkpoint.covered;
        let writers = Writers::new(checkpoint.writers.iter().cloned(), checkpoint.newest_append);
        let folds = Folds::restored(&checkpoint.waiting, &checkpoint.folded);
        Self {
            checkpoint,
            clean,
            index,
            writers,
            folds,
            live: BTreeMap::new(),
            compacted: BTreeMap::new(),
            chain: Chain::after(covered.number, covered.checksum),
            last: None,
            notes: Vec::new(),
            damaged: false,
            settled: false,
            image: (0, Arc::default()),
        }
    }

    /// Expects this group next, whatever came before it.
    pub(crate) fn begin_at(&mut self, group: u64) {
        self.chain = Chain {
            number: group.saturating_sub(1),
            checksum: None,
        };
    }

    pub(crate) fn image(&mut self, file: &SegmentFile) -> Result<Arc<Vec<u8>>, OpenError> {
        if self.image.0 != file.segment.number {
            // The old image is dropped first, because a segment takes as much memory as everything else in recovery.
            self.image = (0, Arc::default());
            self.image = (file.segment.number, Arc::new(file.read().map_err(at(&file.path))?));
        }
        Ok(self.image.1.clone())
    }

    /// Moves a file that has been read to the compacted files, which are not part of the chain: that goes on behind the
    /// checkpoint.
    pub(crate) fn set_aside(&mut self, number: u64, order: u64) {
        if let Some(live) = self.live.remove(&number) {
            self.compacted.insert(
                number,
                LiveSegment {
                    order,
                    sealed: true,
                    ..live
                },
            );
        }
        let covered = self.checkpoint.covered;
        self.last = None;
        self.chain = Chain::after(covered.number, covered.checksum);
    }

    /// Takes over the footer of a file that the checkpoint covers.
    pub(crate) fn add_footer(&mut self, file: &SegmentFile, trailer: &Trailer, runs: &[FooterRun]) {
        // Earlier builds repeated the run of a range that went on behind a release in the same segment.
        for run in runs.chunk_by(|one, next| one.key == next.key).filter_map(<[_]>::first) {
            self.index.get_or_insert(run.key).add_run(file.segment.number, run);
        }
        let live = LiveSegment {
            keys: runs.iter().map(|run| run.key).collect(),
            sealed: true,
            ..LiveSegment::new(file.segment.clone(), trailer.first_group, trailer.last, file.length)
        };
        self.live.insert(file.segment.number, live);
    }

    /// Ends the walk over a covered segment. It counts as live even if nothing in it could be read.
    pub(crate) fn close_covered(&mut self, file: &SegmentFile, item: &SegmentItem) {
        let whole = self.chain.number == item.last_group;
        let mark = GroupMark {
            number: item.last_group,
            segment: item.number,
            ..GroupMark::default()
        };
        let live = self.touch(file, item.first_group, mark, FIRST_GROUP);
        live.last.number = item.last_group;
        live.damaged |= !whole;
        self.damaged |= !whole;
    }

    /// The complete, valid group at a position, if its number is above the last one.
    pub(crate) fn group_at(
        &mut self,
        files: &[SegmentFile],
        at: SegmentPosition,
    ) -> Result<Option<GroupHeader>, OpenError> {
        let Some(file) = files.get(at.file) else {
            return Ok(None);
        };
        let image = self.image(file)?;
        Ok(self.valid_in(&image, at.position, file.segment.salt))
    }

    fn valid_in(&self, image: &[u8], position: u64, salt: u64) -> Option<GroupHeader> {
        let bytes = bytes_from(image, position);
        let header = GroupHeader::parse(bytes, salt)?;
        (header.number > self.chain.number && header.is_whole(bytes)).then_some(header)
    }

    /// The next valid group from a position on, in this segment or a later one.
    pub(crate) fn next_valid(
        &mut self,
        files: &[SegmentFile],
        from: SegmentPosition,
    ) -> Result<Option<(SegmentPosition, GroupHeader)>, OpenError> {
        let mut position = from.position;
        for (number, file) in files.iter().enumerate().skip(from.file) {
            let image = self.image(file)?;
            while position < image.len() as u64 {
                if let Some(header) = self.valid_in(&image, position, file.segment.salt) {
                    return Ok(Some((SegmentPosition { file: number, position }, header)));
                }
                position += BLOCK;
            }
            position = FIRST_GROUP;
        }
        Ok(None)
    }

    /// Has a record that ends at `end` count for its writer, unless the checkpoint's state of the writers has it already.
    pub(crate) fn note_writer(&mut self, group: u64, record: &RecordHead, end: Option<Position>, bytes: &[u8]) {
        if group > self.checkpoint.covered.number
            && let Some(end) = end
        {
            let bytes = || Bytes::copy_from_slice(bytes).into();
            self.folds.store(&mut self.writers, &record.head, end, bytes);
        }
    }

    /// Adds a record of a group to the index, and returns the place behind it; `None` if it is left out. Where the marks up
    /// to the checkpoint are, the checkpoint says.
    pub(crate) fn add(
        &mut self,
        file: &SegmentFile,
        group: u64,
        record: &RecordHead,
        position: u64,
    ) -> Result<Option<Position>, OpenError> {
        if record.head.is_mark() && group <= self.checkpoint.covered.number {
            return Ok(None);
        }
        let place = u32::try_from(position).unwrap_or(u32::MAX);
        let added = self.index.add(record, file.segment.number, place).map_err(|overlap| {
            let (key, expected, offset) = (overlap.key, overlap.expected, overlap.offset);
            corrupt(
                &file.path,
                format!("range {key} continues at {expected}, not at {offset}"),
            )
        })?;
        if let Some(live) = self.live.get_mut(&file.segment.number) {
            live.batches += usize::from(!record.head.is_mark());
            if added.is_none_or(|added| added.is_first) {
                live.keys.push(record.head.key);
            }
        }
        Ok(added.map(|added| added.end))
    }

    /// The segment's entry, created if needed and brought forward to this group.
    pub(crate) fn touch(&mut self, file: &SegmentFile, group: u64, mark: GroupMark, end: u64) -> &mut LiveSegment {
        let new = || LiveSegment::new(file.segment.clone(), group, mark, end);
        let live = self.live.entry(file.segment.number).or_insert_with(new);
        if mark.number >= live.last.number {
            live.last = mark;
            live.end = live.end.max(end);
        }
        live
    }

    /// Takes over the checkpoint's ranges, once. What they have and the groups replayed so far do not is damaged.
    pub(crate) fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let positions: KeyMap<_> = self.checkpoint.positions.iter().map(|item| (item.key, item)).collect();
        for item in &self.checkpoint.ranges {
            let range = self.index.get_or_insert(item.key);
            range.settle(item, positions.get(&item.key).copied());
            self.damaged |= range.damage != item.damage;
            for mark in &range.marks {
                let file = self.live.get_mut(&mark.segment);
                if let Some(live) = file.or_else(|| self.compacted.get_mut(&mark.segment)) {
                    live.keys.push(item.key);
                }
            }
        }
        for live in self.live.values_mut().chain(self.compacted.values_mut()) {
            live.keys.sort_unstable();
            live.keys.dedup();
        }
    }

    /// Records may be hidden after the last known group, so no range's end is certain until a later record proves it.
    pub(crate) fn doubt_ends(&mut self) {
        self.settle();
        for (_, range) in self.index.iter_mut() {
            range.proven = false;
        }
        self.index.unlisted_damage = true;
        self.damaged = true;
    }

    /// The end of the log: the last known group, whether or not it could be read.
    pub(crate) fn last_mark(&self) -> GroupMark {
        let read = self.last.map_or(GroupMark::default(), |(mark, _)| mark);
        let mut end = read;
        if self.chain.number > end.number {
            let segment = self.live.keys().next_back().copied().unwrap_or(end.segment);
            let checksum = self.chain.checksum.unwrap_or(0);
            end = GroupMark {
                number: self.chain.number,
                checksum,
                segment,
                ..end
            };
        }
        for known in [Some(self.checkpoint.covered), self.clean].into_iter().flatten() {
            if known.number > end.number {
                end = known;
            }
        }
        end
    }
}

/// Whether everything from `position` on is zero.
pub(crate) fn is_zero_from(image: &[u8], position: u64) -> bool {
    is_zero(bytes_from(image, position))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs};

    use super::{Scanner, SegmentFile};
    use crate::format::checkpoint::Checkpoint;
    use crate::format::clean::GroupMark;
    use crate::format::footer::{FooterBuilder, IndexEntry, Trailer};
    use crate::format::segment::SegmentHeader;
    use crate::segments::open_files::OpenFiles;
    use crate::segments::segment::Segment;
    use crate::{Durability, RealFileSystem};

    #[test]
    fn a_run_that_a_footer_repeats_counts_once() {
        let header = SegmentHeader {
            number: 1,
            salt: 7,
            capacity: 1 << 20,
            created: 0,
            boot_id: 1,
            durability: Durability::Fsync,
        };
        let path = PathBuf::from("segment");
        let handle = OpenFiles::new(Arc::new(RealFileSystem)).handle(&path, None);
        let file = SegmentFile {
            segment: Arc::new(Segment::opened(handle, &header)),
            path,
            length: 1 << 20,
        };
        let of = |stream| RangeKey {
            stream: StreamId(stream),
            range: RangeIndex(0),
        };
        let entry = IndexEntry {
            base: Offset(4),
            end: Offset(9),
            max_timestamp: TimestampMs(1),
            position: 4_160,
            length: 100,
        };
        let mut footer = FooterBuilder::new(8_192);
        for stream in [1, 2, 2, 2, 3] {
            footer.push(of(stream), Epoch(1), &[entry]);
        }
        let (bytes, runs) = footer.finish(7, 1, GroupMark::default());
        let trailer = Trailer::parse(&bytes[bytes.len() - Trailer::LEN..]).unwrap();
        let mut scanner = Scanner::new(Checkpoint::default(), None);
        scanner.add_footer(&file, &trailer, &runs);
        for stream in 1..4 {
            let range = scanner.index.get(of(stream)).unwrap();
            assert_eq!((range.runs.len(), range.end), (1, Offset(9)), "{stream}");
        }
    }
}
