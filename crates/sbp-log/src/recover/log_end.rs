//! Judges the end of the log, and salvages records of damaged groups.

use super::directory::SegmentFile;
use super::read_footer;
use super::scan::{Chain, LogEnd, Scanner, SegmentPosition, is_zero_from};
use crate::format::clean::GroupMark;
use crate::format::group::{GroupHeader, UnreadableGroup, judge_unreadable};
use crate::format::record::RecordHead;
use crate::format::segment::FIRST_GROUP;
use crate::format::{block_up, bytes_from, crc32c};
use crate::segments::files::{at, corrupt};
use crate::{Durability, OpenError};

impl Scanner {
    /// Judges the bytes after the last valid group, which ends at `cursor`.
    pub(crate) fn judge(&mut self, files: &[SegmentFile], cursor: SegmentPosition) -> Result<LogEnd, OpenError> {
        let Some(file) = files.get(cursor.file) else {
            return Ok(if self.is_short_of_promised() {
                LogEnd::Corrupt(cursor)
            } else {
                LogEnd::Clean
            });
        };
        let sealed = self.is_footer_of_last(file)?;
        let mut torn = Vec::new();
        for (number, file) in files.iter().enumerate().skip(cursor.file) {
            let here = number == cursor.file;
            let start = if here { cursor.position } else { FIRST_GROUP };
            let empty = (here && sealed) || is_zero_from(&self.image(file)?, start);
            if !empty {
                torn.push((number, start));
            }
        }
        let unsynced = file.segment.durability == Durability::None;
        let mut behind = files.iter().skip(cursor.file + usize::from(sealed));
        let short = behind.find(|file| file.is_short());
        // With `fsync`, a segment gets its footer when a group of the next one is synced.
        let promised = self.is_short_of_promised() || (sealed && !unsynced);
        let may_cut = unsynced && self.clean.is_none() && self.chain.number >= self.checkpoint.covered.number;
        if let Some(short) = short.filter(|_| !may_cut) {
            // The part that was cut off may have had groups, and nothing tells how many.
            return Err(corrupt(
                &short.path,
                "the segment is shorter than it was made, and it has no footer",
            ));
        }
        if torn.is_empty() && !promised && short.is_none() {
            return Ok(if self.clean_mark_holds() {
                LogEnd::Clean
            } else {
                LogEnd::Corrupt(cursor)
            });
        }
        if self.clean.is_some() {
            return Ok(LogEnd::Corrupt(cursor));
        }
        if may_cut {
            return Ok(LogEnd::Cut(cursor));
        }
        let [(number, start)] = torn.as_slice() else {
            return Ok(LogEnd::Corrupt(cursor));
        };
        let Some(file) = files.get(*number).filter(|_| !promised) else {
            return Ok(LogEnd::Corrupt(cursor));
        };
        let image = self.image(file)?;
        Ok(match judge_unreadable(bytes_from(&image, *start), file.segment.salt) {
            UnreadableGroup::Torn => LogEnd::Torn(cursor),
            UnreadableGroup::Corrupt => LogEnd::Corrupt(cursor),
        })
    }

    /// Whether a checkpoint or the mark of a clean end names a later group than the last one found.
    fn is_short_of_promised(&self) -> bool {
        let clean = self.clean.map_or(0, |mark| mark.number);
        self.chain.number < self.checkpoint.covered.number.max(clean)
    }

    fn clean_mark_holds(&self) -> bool {
        let last = self.last.map_or(GroupMark::default(), |(mark, _)| mark);
        self.clean.is_none_or(|mark| mark == last)
    }

    fn is_footer_of_last(&self, file: &SegmentFile) -> Result<bool, OpenError> {
        let footer = read_footer(&file.segment).map_err(at(&file.path))?;
        Ok(footer.is_some_and(|(trailer, _)| trailer.last.number == self.chain.number))
    }

    /// Finishes the walk: salvages what can be read of a damaged end, and takes over the checkpoint's ranges.
    pub(crate) fn finish(&mut self, files: &[SegmentFile], log_end: LogEnd) -> Result<LogEnd, OpenError> {
        match log_end {
            LogEnd::Clean => {}
            LogEnd::Torn(_) => self
                .notes
                .push(format!("cut an interrupted write behind group {}", self.chain.number)),
            LogEnd::Cut(_) => {
                self.notes.push(format!(
                    "durability none: cut everything behind group {}",
                    self.chain.number
                ));
            }
            LogEnd::Corrupt(cursor) => {
                self.damaged = true;
                self.salvage(files, cursor, None)?;
            }
        }
        self.settle();
        Ok(log_end)
    }

    /// Salvages records of the groups between a bad place and the next valid group, or the end.
    pub(crate) fn salvage(
        &mut self,
        files: &[SegmentFile],
        from: SegmentPosition,
        until: Option<(SegmentPosition, &GroupHeader)>,
    ) -> Result<(), OpenError> {
        let after = self.chain.number;
        let mut known = true;
        let last = until.map_or(files.len(), |(found, _)| found.file + 1);
        for (number, file) in files.iter().enumerate().take(last).skip(from.file) {
            let start = if number == from.file {
                from.position
            } else {
                FIRST_GROUP
            };
            let end = match until {
                Some((found, _)) if found.file == number => found.position,
                _ => u64::MAX,
            };
            known &= self.salvage_segment(file, start, end)?;
        }
        known &= match until {
            Some((_, header)) => self.chain.number.checked_add(1) == Some(header.number),
            None => !self.is_short_of_promised(),
        };
        self.damaged = true;
        self.notes.push(format!(
            "damage behind group {after}: {}",
            if known {
                "every record's head was readable"
            } else {
                "some records' heads are lost"
            }
        ));
        let lost_up_to = until.map_or(u64::MAX, |(_, header)| header.number - 1);
        if !known && lost_up_to > self.checkpoint.covered.number {
            self.doubt_ends();
        }
        Ok(())
    }

    /// Salvages records at the end of a segment that the checkpoint covers. The checkpoint knows where each range ends.
    pub(crate) fn salvage_covered(&mut self, files: &[SegmentFile], from: SegmentPosition) -> Result<(), OpenError> {
        let Some(file) = files.get(from.file) else {
            return Ok(());
        };
        let before = self.chain.number;
        self.salvage_segment(file, from.position, u64::MAX)?;
        if self.chain.number != before {
            self.damaged = true;
        }
        Ok(())
    }

    /// Salvages the records between two positions. Returns whether every head was readable.
    fn salvage_segment(&mut self, file: &SegmentFile, start: u64, end: u64) -> Result<bool, OpenError> {
        let image = self.image(file)?;
        let end = end.min(image.len() as u64);
        let area = image.get(..usize::try_from(end).unwrap_or(0)).unwrap_or_default();
        let mut position = start;
        while position < end && !is_zero_from(area, position) {
            if self.is_footer_of_last(file)? {
                return Ok(true);
            }
            let header = GroupHeader::parse(bytes_from(area, position), file.segment.salt);
            let header = header.filter(|header| header.number > self.chain.number);
            let number = header.map_or(self.chain.number.saturating_add(1), |header| header.number);
            let checksum = header.map_or(0, |header| header.checksum);
            let mark = GroupMark {
                number,
                segment: file.segment.number,
                position,
                checksum,
            };
            let length = header.map_or(end - position, |header| block_up(u64::from(header.length)));
            self.touch(file, number, mark, position + length).damaged = true;
            let whole = self.salvage_records(file, area, position, header.as_ref())?;
            let Some(header) = header else {
                // The lost group keeps its number, so that the next start finds the same gap in the chain.
                self.chain = Chain::after(number, 0);
                return Ok(false);
            };
            let follows = self.chain.number.checked_add(1) == Some(header.number);
            self.chain = Chain::after(header.number, header.checksum);
            if !whole || !follows {
                return Ok(false);
            }
            position += length;
        }
        Ok(true)
    }

    /// Adds the records of a damaged group up to the first whose head cannot be read, or does not continue its range.
    /// Returns whether there is no such record.
    fn salvage_records(
        &mut self,
        file: &SegmentFile,
        area: &[u8],
        group: u64,
        header: Option<&GroupHeader>,
    ) -> Result<bool, OpenError> {
        let mut position = group + GroupHeader::LEN as u64;
        let mut left = header.map_or(u32::MAX, |header| header.records);
        while left > 0 {
            let bytes = bytes_from(area, position);
            let Some(record) = RecordHead::parse(bytes, file.segment.mask) else {
                return Ok(false);
            };
            let number = self
                .chain
                .number
                .max(header.map_or(0, |header| header.number.saturating_sub(1)))
                .saturating_add(1);
            if number > self.checkpoint.covered.number {
                self.settle();
            }
            let head = &record.head;
            let batch = record.batch_in(bytes);
            let batch = batch.filter(|batch| crc32c(batch) == record.batch_crc);
            let known = self.index.get(head.key).filter(|range| range.known);
            if known.is_some_and(|range| head.base_offset < range.end) {
                return Ok(false);
            }
            let end = if head.is_mark() || batch.is_some() {
                self.add(file, number, &record, position)?
            } else {
                let range = self.index.get_or_insert(head.key);
                range.add_damaged(&record);
                let end = range.end_position();
                self.notes.push(format!(
                    "range {}: {} records at {} are damaged",
                    head.key, head.count, head.base_offset
                ));
                Some(end)
            };
            self.note_writer(number, &record, end, batch.unwrap_or_default());
            position += RecordHead::stored_len(record.batch_len as usize) as u64;
            left -= 1;
        }
        Ok(true)
    }
}
