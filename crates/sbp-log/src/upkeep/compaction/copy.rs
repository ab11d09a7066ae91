//! Writes a compacted file: reads every needed record of its sources, checks it, and writes it to its new place.

use std::io;
use std::sync::Arc;

use sbp_types::RangeKey;

use super::collect::{NotWritten, Piece, Sources};
use super::layout::GroupLayout;
use crate::Durability;
use crate::format::checkpoint::MarkPlace;
use crate::format::clean::GroupMark;
use crate::format::footer::{FooterBuilder, FooterRun, IndexEntry};
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::segment::SegmentHeader;
use crate::format::{Crc32c, block_up};
use crate::fs::File;
use crate::segments::files::{SegmentId, create};
use crate::segments::segment::Segment;
use crate::state::shared::{LiveSegment, Shared};

/// After this many bytes the file is synced, because one large sync would delay those of the log.
const SYNC_EVERY: u64 = 4 << 20;

/// A compacted file that is durable under its name.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) live: LiveSegment,
    pub(crate) runs: Vec<FooterRun>,
    /// The marks, at their new places.
    pub(crate) marks: Vec<(RangeKey, MarkPlace)>,
    pub(crate) bytes: u64,
}

/// Writes the pieces of `sources` as laid out. The file gets its name when all of it is durable.
pub(crate) fn write(shared: &Shared, sources: &Sources, groups: &[GroupLayout]) -> Result<Written, NotWritten> {
    let maker = &shared.maker;
    let capacity = groups.last().map_or(0, GroupLayout::end);
    if u32::try_from(capacity).is_err() {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
    }
    // The file is synced before it is used, whatever the durability of the log.
    let header = maker.header(capacity, Durability::Fsync);
    let name = SegmentId::Compacted(header.number).file_name();
    let directory = &shared.config.directory;
    let (output, runs, bytes) = create(&*shared.fs, directory, &name, |file| {
        let mut output = Output {
            file,
            header,
            mask: RecordHead::mask(header.salt),
            first_group: sources.last_group.saturating_sub(groups.len() as u64 - 1),
            mark: GroupMark::default(),
            entries: Vec::with_capacity(sources.pieces.len()),
            unsynced: 0,
        };
        let (runs, bytes) = output.fill(sources, groups)?;
        Ok::<_, NotWritten>((output, runs, bytes))
    })?;
    let handle = maker.files.handle(&directory.join(name), None);
    let segment = Arc::new(Segment::opened(handle, &header));
    let live = LiveSegment {
        keys: sources.parts.iter().map(|part| part.key).collect(),
        order: sources.order,
        sealed: true,
        ..LiveSegment::new(segment, output.first_group, output.mark, bytes)
    };
    let marks = output.marks_of(sources);
    Ok(Written {
        live,
        runs,
        marks,
        bytes,
    })
}

struct Output {
    file: Arc<dyn File>,
    header: SegmentHeader,
    mask: u32,
    first_group: u64,
    /// The last group written.
    mark: GroupMark,
    entries: Vec<IndexEntry>,
    unsynced: u64,
}

impl Output {
    fn fill(&mut self, sources: &Sources, groups: &[GroupLayout]) -> Result<(Vec<FooterRun>, u64), NotWritten> {
        self.file.write_at(0, &self.header.encode())?;
        for (number, group) in (self.first_group..).zip(groups) {
            self.write_group(sources, group, number)?;
        }
        let at = groups.last().map_or(0, GroupLayout::end);
        let mut footer = FooterBuilder::new(at);
        let mut entries = self.entries.as_slice();
        for part in &sources.parts {
            let (of_part, rest) = entries.split_at(part.pieces.min(entries.len()));
            entries = rest;
            // Marks take no offset, and are found without the footer.
            let batches: Vec<IndexEntry> = of_part.iter().filter(|entry| entry.base < entry.end).copied().collect();
            footer.push(part.key, part.epoch, &batches);
        }
        let (bytes, runs) = footer.finish(self.header.salt, self.first_group, self.mark);
        self.file.write_at(at, &bytes)?;
        self.file.sync_data()?;
        Ok((runs, at + bytes.len() as u64))
    }

    /// The marks among the pieces, at their places in this file.
    fn marks_of(&self, sources: &Sources) -> Vec<(RangeKey, MarkPlace)> {
        let parts = sources.parts.iter();
        let keys = parts.flat_map(|part| std::iter::repeat_n(part.key, part.pieces));
        let pieces = keys.zip(&sources.pieces).zip(&self.entries);
        let marks = pieces.filter_map(|((key, piece), entry)| {
            let place = MarkPlace {
                position: piece.mark?,
                segment: self.header.number,
                place: entry.position,
                length: entry.length,
            };
            Some((key, place))
        });
        marks.collect()
    }

    fn write_group(&mut self, sources: &Sources, group: &GroupLayout, number: u64) -> Result<(), NotWritten> {
        let length = usize::try_from(group.length).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(length.next_multiple_of(4_096));
        bytes.resize(GroupHeader::LEN, 0);
        let pieces = sources.pieces.get(group.records.clone()).unwrap_or_default();
        for piece in pieces {
            let position = group.position + bytes.len() as u64;
            append_record(&mut bytes, sources, piece, self.mask)?;
            self.entries.push(IndexEntry {
                position: u32::try_from(position).unwrap_or(u32::MAX),
                ..piece.entry
            });
        }
        let mut header = GroupHeader {
            number,
            salt: self.header.salt,
            length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            previous: self.mark.checksum,
            records: u32::try_from(pieces.len()).unwrap_or(u32::MAX),
            durability: Durability::Fsync,
            checksum: 0,
        };
        let mut sum = Crc32c::new();
        let (head, records) = bytes.split_at_mut(GroupHeader::LEN);
        sum.update(records);
        head.copy_from_slice(&header.seal(sum));
        self.mark = GroupMark {
            number,
            segment: self.header.number,
            position: group.position,
            checksum: header.checksum,
        };
        let padded = usize::try_from(block_up(group.length)).map_err(io::Error::other)?;
        bytes.resize(padded, 0);
        self.file.write_at(group.position, &bytes)?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Copies a record unchanged, except for the mask of its head's checksum.
fn append_record(out: &mut Vec<u8>, sources: &Sources, piece: &Piece, mask: u32) -> Result<(), NotWritten> {
    let Some(segment) = sources.segments.get(piece.source) else {
        return Err(io::Error::other("a piece without a source").into());
    };
    let Some((record, batch)) = piece.read(segment)? else {
        return Err(NotWritten::Damaged { source: segment.number });
    };
    let end = out.len() + RecordHead::stored_len(batch.len());
    out.extend_from_slice(&record.encode(mask));
    out.extend_from_slice(&batch);
    out.resize(end, 0);
    Ok(())
}
