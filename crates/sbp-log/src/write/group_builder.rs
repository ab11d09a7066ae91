//! Builds groups: lays out records one after the other; small ones are copied, large ones are referenced.

use std::io::IoSlice;
use std::mem;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::LogEntry;
use crate::format::clean::GroupMark;
use crate::format::group::GroupHeader;
use crate::format::record::RecordHead;
use crate::format::{Crc32c, block_up, crc32c, record_up};
use crate::fs::File;
use crate::segments::segment::Segment;
use crate::state::hot_tail::{GroupPart, HotGroup};
use crate::write::queue::{Item, Roll};

/// Smaller chunks are copied: keeping a network buffer in memory and writing one more part costs more than the copy.
const SHARE_FROM: usize = 32 << 10;

/// The size of the blocks that small records are copied into. Groups share them.
const COPY_BLOCK: usize = 1 << 20;

/// Zeros to pad the last block of a group.
static PADDING: [u8; 4096] = [0; 4096];

/// Builds groups. Its block of memory is used for several groups.
#[derive(Debug, Default)]
pub(crate) struct GroupBuilder {
    block: BytesMut,
    /// Batch bytes copied so far.
    pub(crate) copied: u64,
}

/// A group with its position, ready to be written.
#[derive(Debug)]
pub(crate) struct EncodedGroup<T> {
    pub(crate) segment: Arc<Segment>,
    pub(crate) mark: GroupMark,
    pub(crate) length: u32,
    header: [u8; GroupHeader::LEN],
    parts: Vec<GroupPart>,
    /// The records for the index, with the positions of their heads in the segment.
    pub(crate) records: Vec<(RecordHead, u32)>,
    pub(crate) contexts: Vec<T>,
    /// Batch bytes.
    pub(crate) bytes: u64,
    /// Whether the group has a barrier and must be synced whatever the durability.
    pub(crate) barrier: bool,
    /// Who wants to know that the log goes on in another segment.
    pub(crate) rolled: Vec<Roll>,
}

/// The position of the next group.
#[derive(Clone, Debug)]
pub(crate) struct GroupPosition {
    pub(crate) segment: Arc<Segment>,
    pub(crate) position: u64,
    pub(crate) number: u64,
    pub(crate) previous: u32,
}

impl GroupBuilder {
    /// Lays out `items`, which must fit into the segment from this position on.
    pub(crate) fn build<T>(&mut self, place: GroupPosition, items: Vec<Item<T>>) -> EncodedGroup<T> {
        let mut layout = Layout {
            block: &mut self.block,
            copied: &mut self.copied,
            parts: Vec::new(),
            closed: GroupHeader::LEN,
            sum: Crc32c::new(),
        };
        let mut records = Vec::with_capacity(items.len());
        let mut contexts = Vec::with_capacity(items.len());
        let (mut barrier, mut bytes, mut rolled) = (false, 0, Vec::new());
        let start = u32::try_from(place.position).unwrap_or(u32::MAX);
        for item in items {
            match item {
                Item::Barrier(context) => {
                    barrier = true;
                    contexts.push(context);
                }
                Item::Roll(roll) => rolled.push(roll),
                Item::Append(entry) => {
                    let at = start.saturating_add(layout.at());
                    let record = layout.add(&entry, place.segment.mask);
                    bytes += u64::from(record.batch_len);
                    records.push((record, at));
                    contexts.push(entry.context);
                }
            }
        }
        layout.close();
        let Layout { parts, closed, sum, .. } = layout;
        let length = u32::try_from(closed).unwrap_or(u32::MAX);
        let mut header = GroupHeader {
            number: place.number,
            salt: place.segment.salt,
            length,
            previous: place.previous,
            records: u32::try_from(records.len()).unwrap_or(u32::MAX),
            durability: place.segment.durability,
            checksum: 0,
        };
        let written = header.seal(sum);
        let mark = GroupMark {
            number: place.number,
            segment: place.segment.number,
            position: place.position,
            checksum: header.checksum,
        };
        EncodedGroup {
            segment: place.segment,
            mark,
            length,
            header: written,
            parts,
            records,
            contexts,
            bytes,
            barrier,
            rolled,
        }
    }
}

impl<T> EncodedGroup<T> {
    /// The bytes that the group takes on the disk, including padding.
    pub(crate) fn disk_len(&self) -> u64 {
        block_up(u64::from(self.length))
    }

    /// The position of the next group.
    pub(crate) fn end(&self) -> u64 {
        self.mark.position + self.disk_len()
    }

    /// Writes the group in one call, without copying.
    pub(crate) fn write(&self) -> std::io::Result<()> {
        let mut slices = Vec::with_capacity(self.parts.len() + 2);
        slices.push(IoSlice::new(&self.header));
        slices.extend(self.parts.iter().map(|part| IoSlice::new(&part.bytes)));
        let padding = usize::try_from(self.disk_len() - u64::from(self.length)).unwrap_or(0);
        if let Some(zeros) = PADDING.get(..padding).filter(|zeros| !zeros.is_empty()) {
            // Pads to whole pages, because the system would first have to read a partial page that is not in memory.
            slices.push(IoSlice::new(zeros));
        }
        self.segment.file.write_vectored_at(self.mark.position, &mut slices)
    }

    /// Takes out the parts that the hot tail keeps.
    pub(crate) fn take_hot(&mut self) -> HotGroup {
        HotGroup {
            segment: self.mark.segment,
            position: self.mark.position,
            length: self.length,
            parts: mem::take(&mut self.parts),
        }
    }
}

/// A group that is being laid out.
struct Layout<'a> {
    /// The bytes copied since the last closed part.
    block: &'a mut BytesMut,
    copied: &'a mut u64,
    parts: Vec<GroupPart>,
    /// The bytes of the group in closed parts, including the header.
    closed: usize,
    /// The checksum of all closed parts.
    sum: Crc32c,
}

impl Layout<'_> {
    /// The length of the group so far.
    fn at(&self) -> u32 {
        u32::try_from(self.closed + self.block.len()).unwrap_or(u32::MAX)
    }

    /// Closes the part that bytes are being copied into.
    fn close(&mut self) {
        if !self.block.is_empty() {
            let bytes = self.block.split().freeze();
            self.push(bytes);
        }
    }

    fn push(&mut self, bytes: Bytes) {
        self.sum.update(&bytes);
        let at = u32::try_from(self.closed).unwrap_or(u32::MAX);
        self.closed += bytes.len();
        self.parts.push(GroupPart { at, bytes });
    }

    fn make_room(&mut self, length: usize) {
        if self.block.capacity() - self.block.len() < length {
            self.close();
            *self.block = BytesMut::with_capacity(length.max(COPY_BLOCK));
        }
    }

    fn add<T>(&mut self, entry: &LogEntry<T>, mask: u32) -> RecordHead {
        let length = entry.batch_len();
        let padding = record_up(length) - length;
        let mut record = RecordHead {
            head: entry.head,
            batch_len: u32::try_from(length).unwrap_or(u32::MAX),
            batch_crc: 0,
        };
        if entry.chunks.iter().all(|chunk| chunk.len() < SHARE_FROM) && length < COPY_BLOCK {
            self.make_room(RecordHead::LEN + length + padding);
            let head_at = self.block.len();
            self.block.put_bytes(0, RecordHead::LEN);
            self.block.extend_from_slice(&entry.prefix);
            for chunk in &entry.chunks {
                self.block.extend_from_slice(chunk);
            }
            *self.copied += length as u64;
            let (before, batch) = self.block.split_at_mut(head_at + RecordHead::LEN);
            record.batch_crc = crc32c(batch);
            if let Some(head) = before.get_mut(head_at..) {
                head.copy_from_slice(&record.encode(mask));
            }
        } else {
            self.add_large(entry, &mut record, mask);
        }
        self.make_room(padding);
        self.block.put_bytes(0, padding);
        record
    }

    fn add_large<T>(&mut self, entry: &LogEntry<T>, record: &mut RecordHead, mask: u32) {
        let mut sum = Crc32c::new();
        sum.update(&entry.prefix);
        for chunk in &entry.chunks {
            sum.update(chunk);
        }
        record.batch_crc = sum.finish();
        self.make_room(RecordHead::LEN + entry.prefix.len());
        self.block.extend_from_slice(&record.encode(mask));
        self.block.extend_from_slice(&entry.prefix);
        *self.copied += entry.prefix.len() as u64;
        for chunk in &entry.chunks {
            if chunk.len() < SHARE_FROM {
                self.make_room(chunk.len());
                self.block.extend_from_slice(chunk);
                *self.copied += chunk.len() as u64;
            } else {
                self.close();
                self.push(chunk.clone());
            }
        }
    }
}
