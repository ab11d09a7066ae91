//! The walk over groups, those after a checkpoint and those of a covered segment without a footer: valid groups are
//! replayed, and of what lies between them as much as possible is salvaged.

use super::directory::SegmentFile;
use super::scan::{Chain, LogEnd, Scanner, SegmentPosition};
use crate::format::clean::GroupMark;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{block_up, bytes_from};
use crate::segments::files::corrupt;
use crate::{Durability, OpenError};

impl Scanner {
    /// Replays groups until no valid one follows. With `to_end` the files are the newest segments, whose end has to be
    /// judged.
    pub(crate) fn walk(&mut self, files: &[SegmentFile], to_end: bool) -> Result<LogEnd, OpenError> {
        let mut cursor = SegmentPosition {
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
                // A footer or the unused end of a segment lies between the two groups.
                Some((found, header)) if self.chain.continues(&header) => cursor = found,
                Some((found, _)) if to_end && self.may_cut(files, cursor, found)? => return Ok(LogEnd::Cut(cursor)),
                Some((found, header)) => {
                    self.salvage(files, cursor, Some((found, &header)))?;
                    self.chain = Chain::after(header.number - 1, header.previous);
                    cursor = found;
                }
                None if to_end => return self.judge(files, cursor),
                None => {
                    self.salvage_covered(files, cursor)?;
                    return Ok(LogEnd::Clean);
                }
            }
        }
    }

    /// Whether the log may be cut at a bad place although valid groups follow: only if nothing after it was ever
    /// promised to be durable.
    fn may_cut(
        &mut self,
        files: &[SegmentFile],
        at: SegmentPosition,
        found: SegmentPosition,
    ) -> Result<bool, OpenError> {
        let promised = |file: &SegmentFile| file.segment.durability == Durability::Fsync;
        let covered = self.chain.number < self.checkpoint.covered.number;
        let here = files.get(at.file..=found.file).unwrap_or_default();
        if covered || self.clean.is_some() || here.iter().any(promised) {
            return Ok(false);
        }
        for file in files.iter().skip(found.file).filter(|file| promised(file)) {
            let start = SegmentPosition {
                file: 0,
                position: FIRST_GROUP,
            };
            if self.next_valid(std::slice::from_ref(file), start)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn replay(&mut self, files: &[SegmentFile], at: SegmentPosition, header: &GroupHeader) -> Result<(), OpenError> {
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
            let Some(record) = RecordHead::parse(bytes_from(&image, position), file.segment.mask) else {
                return Err(corrupt(
                    &file.path,
                    format!("group {} is whole, its records are not", header.number),
                ));
            };
            let end = self.add(file, header.number, &record, position)?;
            let bytes = record.batch_in(bytes_from(&image, position));
            self.note_writer(header.number, &record, end, bytes.unwrap_or_default());
            position += RecordHead::stored_len(record.batch_len as usize) as u64;
        }
        self.chain = Chain::after(header.number, header.checksum);
        self.last = Some((mark, header.length));
        Ok(())
    }
}
