//! Walking from group to group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::SegmentFile;
use super::tail::Tail;
use crate::files::{at, corrupt};
use crate::format::checkpoint::{Checkpoint, SegmentItem};
use crate::format::clean::GroupMark;
use crate::format::footer::{FooterRun, Trailer};
use crate::format::group::{GroupHeader, is_zero};
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{BLOCK, block_up};
use crate::index::Index;
use crate::shared::LiveSegment;
use crate::writers::Writers;
use crate::{Durability, OpenError};

/// A place in a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Which of the list.
    pub(crate) file: usize,
    pub(crate) position: u64,
}

/// The group that the next one has to follow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) number: u64,
    /// Unknown where the walk begins in the middle of the log.
    pub(crate) checksum: Option<u32>,
}

impl Chain {
    fn continues(&self, header: &GroupHeader) -> bool {
        self.number.checked_add(1) == Some(header.number)
            && self.checksum.is_none_or(|checksum| checksum == header.previous)
    }
}

/// Rebuilds the state from groups.
pub(crate) struct Scanner {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) clean: Option<GroupMark>,
    pub(crate) index: Index,
    /// As the checkpoint has them, then moved on by every later head.
    pub(crate) writers: Writers,
    pub(crate) live: BTreeMap<u64, LiveSegment>,
    /// Compacted files, made from older segments, which are no part of the chain.
    pub(crate) compacted: BTreeMap<u64, LiveSegment>,
    pub(crate) chain: Chain,
    /// The last valid group and its length.
    pub(crate) last: Option<(GroupMark, u32)>,
    pub(crate) notes: Vec<String>,
    pub(crate) damaged: bool,
    /// Whether what the checkpoint says about ranges has been taken over.
    settled: bool,
    /// The segment read last, by number; 0 for none.
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
        Self {
            checkpoint,
            clean,
            index,
            writers,
            live: BTreeMap::new(),
            compacted: BTreeMap::new(),
            chain: Chain {
                number: covered.number,
                checksum: Some(covered.checksum),
            },
            last: None,
            notes: Vec::new(),
            damaged: false,
            settled: false,
            image: (0, Arc::default()),
        }
    }

    /// The next group expected is this one, whatever came before it.
    pub(crate) fn begin_at(&mut self, group: u64) {
        self.chain = Chain {
            number: group.saturating_sub(1),
            checksum: None,
        };
    }

    pub(crate) fn image(&mut self, file: &SegmentFile) -> Result<Arc<Vec<u8>>, OpenError> {
        if self.image.0 != file.segment.number {
            // One after the other: a segment is as large as all other memory recovery needs.
            self.image = (0, Arc::default());
            self.image = (file.segment.number, Arc::new(file.read().map_err(at(&file.path))?));
        }
        Ok(self.image.1.clone())
    }

    /// A compacted file has been read: nothing of it is a place in the chain.
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
        self.chain = Chain {
            number: covered.number,
            checksum: Some(covered.checksum),
        };
    }

    /// Takes over a covered segment's footer.
    pub(crate) fn add_footer(&mut self, file: &SegmentFile, trailer: &Trailer, runs: &[FooterRun]) {
        for run in runs {
            self.index.get_or_insert(run.key).add_run(file.segment.number, run);
        }
        let live = LiveSegment {
            segment: file.segment.clone(),
            first_group: trailer.first_group,
            last: trailer.last,
            end: file.length,
            keys: runs.iter().map(|run| run.key).collect(),
            order: file.segment.number,
            sealed: true,
            damaged: false,
            left_alone: false,
        };
        self.live.insert(file.segment.number, live);
    }

    /// After walking a covered segment: it counts as live also if nothing in it could be read.
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

    /// Replays groups until no valid one follows. `to_end`: these are the newest segments, whose end has to be judged.
    pub(crate) fn walk(&mut self, files: &[SegmentFile], to_end: bool) -> Result<Tail, OpenError> {
        let mut cursor = Cursor {
            file: 0,
            position: FIRST_GROUP,
        };
        loop {
            if let Some(header) = self
                .group_at(files, cursor)?
                .filter(|header| self.chain.continues(header))
            {
                self.replay(files, cursor, &header)?;
                cursor.position += block_up(u64::from(header.length));
                continue;
            }
            match self.next_valid(files, cursor)? {
                // Between them is a footer, or a segment's unused end.
                Some((found, header)) if self.chain.continues(&header) => cursor = found,
                Some((found, _)) if to_end && self.may_cut(files, cursor, found)? => return Ok(Tail::Cut(cursor)),
                Some((found, header)) => {
                    self.salvage(files, cursor, Some((found, &header)))?;
                    self.chain = Chain {
                        number: header.number - 1,
                        checksum: Some(header.previous),
                    };
                    cursor = found;
                }
                None if to_end => return self.judge(files, cursor),
                None => {
                    self.salvage_covered(files, cursor)?;
                    return Ok(Tail::End);
                }
            }
        }
    }

    /// The whole, valid group at a place, if it comes after the last one.
    fn group_at(&mut self, files: &[SegmentFile], at: Cursor) -> Result<Option<GroupHeader>, OpenError> {
        let Some(file) = files.get(at.file) else {
            return Ok(None);
        };
        let image = self.image(file)?;
        Ok(self.valid_in(&image, at.position, file.segment.salt))
    }

    fn valid_in(&self, image: &[u8], position: u64, salt: u64) -> Option<GroupHeader> {
        let bytes = image.get(usize::try_from(position).ok()?..)?;
        let header = GroupHeader::parse(bytes, salt)?;
        (header.number > self.chain.number && header.is_whole(bytes)).then_some(header)
    }

    /// The next valid group from a place on, in this segment or a later one.
    pub(crate) fn next_valid(
        &mut self,
        files: &[SegmentFile],
        from: Cursor,
    ) -> Result<Option<(Cursor, GroupHeader)>, OpenError> {
        let mut position = from.position;
        for (number, file) in files.iter().enumerate().skip(from.file) {
            let image = self.image(file)?;
            while position < image.len() as u64 {
                if let Some(header) = self.valid_in(&image, position, file.segment.salt) {
                    return Ok(Some((Cursor { file: number, position }, header)));
                }
                position += BLOCK;
            }
            position = FIRST_GROUP;
        }
        Ok(None)
    }

    /// Whether the log may be cut at a bad place although valid groups follow: nothing behind it was ever promised to
    /// survive.
    fn may_cut(&mut self, files: &[SegmentFile], at: Cursor, found: Cursor) -> Result<bool, OpenError> {
        let promised = |file: &SegmentFile| file.segment.durability == Durability::Fsync;
        let covered = self.chain.number < self.checkpoint.covered.number;
        let here = files.get(at.file..=found.file).unwrap_or_default();
        if covered || self.clean.is_some() || here.iter().any(promised) {
            return Ok(false);
        }
        for file in files.iter().skip(found.file).filter(|file| promised(file)) {
            let start = Cursor {
                file: 0,
                position: FIRST_GROUP,
            };
            if self.next_valid(std::slice::from_ref(file), start)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn replay(&mut self, files: &[SegmentFile], at: Cursor, header: &GroupHeader) -> Result<(), OpenError> {
        let Some(file) = files.get(at.file) else { return Ok(()) };
        if header.number > self.checkpoint.covered.number {
            self.settle();
        }
        let mark = GroupMark {
            number: header.number,
            segment: file.segment.number,
            position: at.position,
            checksum: header.checksum,
        };
        self.touch(
            file,
            header.number,
            mark,
            at.position + block_up(u64::from(header.length)),
        );
        let image = self.image(file)?;
        let mut position = at.position + GroupHeader::LEN as u64;
        for _ in 0..header.records {
            let bytes = usize::try_from(position)
                .ok()
                .and_then(|position| image.get(position..))
                .unwrap_or_default();
            let Some(record) = RecordHead::parse(bytes, file.segment.mask) else {
                return Err(corrupt(
                    &file.path,
                    format!("group {} is whole, its records are not", header.number),
                ));
            };
            self.add(file, &record, position)?;
            self.note_writer(header.number, &record);
            position += RecordHead::stored_len(record.batch_len as usize) as u64;
        }
        self.chain = Chain {
            number: header.number,
            checksum: Some(header.checksum),
        };
        self.last = Some((mark, header.length));
        Ok(())
    }

    /// Lets a record move its writer on, unless the checkpoint's writers have it behind them.
    pub(crate) fn note_writer(&mut self, group: u64, record: &RecordHead) {
        if group > self.checkpoint.covered.number {
            self.writers.record(&record.head);
        }
    }

    pub(crate) fn add(&mut self, file: &SegmentFile, record: &RecordHead, position: u64) -> Result<(), OpenError> {
        let place = u32::try_from(position).unwrap_or(u32::MAX);
        match self.index.add(record, file.segment.number, place) {
            Ok(true) => {
                if let Some(live) = self.live.get_mut(&file.segment.number) {
                    live.keys.push(record.head.key);
                }
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(overlap) => Err(corrupt(
                &file.path,
                format!(
                    "range {} continues at {}, not at {}",
                    overlap.key, overlap.expected, overlap.offset
                ),
            )),
        }
    }

    /// The segment's entry, made if needed and moved on to a group.
    pub(crate) fn touch(&mut self, file: &SegmentFile, group: u64, mark: GroupMark, end: u64) -> &mut LiveSegment {
        let live = self.live.entry(file.segment.number).or_insert_with(|| LiveSegment {
            segment: file.segment.clone(),
            first_group: group,
            last: mark,
            end,
            keys: Vec::new(),
            order: file.segment.number,
            sealed: false,
            damaged: false,
            left_alone: false,
        });
        if mark.number >= live.last.number {
            live.last = mark;
            live.end = live.end.max(end);
        }
        live
    }

    /// Compares what was replayed so far with what the checkpoint says, once.
    pub(crate) fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        for item in &self.checkpoint.ranges {
            let range = self.index.get_or_insert(item.key);
            range.settle(item);
            self.damaged |= range.damage != item.damage;
        }
    }

    /// Records may be hidden behind the last known group: no end is certain until a later record proves it.
    pub(crate) fn doubt_ends(&mut self) {
        self.settle();
        for (_, range) in self.index.iter_mut() {
            range.proven = false;
        }
        self.index.unlisted_damage = true;
        self.damaged = true;
    }

    /// Where the log ends: the last group that is known, readable or not.
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
    usize::try_from(position)
        .ok()
        .and_then(|position| image.get(position..))
        .is_none_or(is_zero)
}
