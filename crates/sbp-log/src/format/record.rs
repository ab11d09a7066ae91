//! The heads of records. A record is one entry of a range in a group: a batch, or a mark.

use bytes::Buf;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use super::{crc32c, put, record_up};
use crate::{EntryHead, EntryKind};

/// The bit of the count that says that the range has copies elsewhere.
const SHARED: u64 = 1 << 63;

/// The 96 bytes before the bytes of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) head: EntryHead,
    /// The batch's length in bytes.
    pub(crate) batch_len: u32,
    /// The batch's CRC-32C.
    pub(crate) batch_crc: u32,
}

impl RecordHead {
    pub(crate) const LEN: usize = 96;

    /// A number that is mixed into the checksums of all heads of a segment, so that a head copied from another segment,
    /// or sent by a client within a batch, is not mistaken for one of this segment.
    pub(crate) fn mask(salt: u64) -> u32 {
        crc32c(&salt.to_le_bytes())
    }

    /// The bytes that a record with a batch of this length takes in a group.
    pub(crate) const fn stored_len(batch_len: usize) -> usize {
        Self::LEN + record_up(batch_len)
    }

    /// The bytes of the record that begins with this head.
    pub(crate) fn batch_in<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        record.get(Self::LEN..Self::LEN + self.batch_len as usize)
    }

    pub(crate) fn encode(&self, mask: u32) -> [u8; Self::LEN] {
        let head = &self.head;
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.batch_len.to_le_bytes());
        put(&mut out, 4, head.key.range.0.to_le_bytes());
        put(&mut out, 8, head.key.stream.0.to_le_bytes());
        put(&mut out, 16, head.epoch.0.to_le_bytes());
        put(&mut out, 24, head.base_offset.0.to_le_bytes());
        let shared = if head.shared { SHARED } else { 0 };
        put(&mut out, 32, (head.count.cast_unsigned() | shared).to_le_bytes());
        put(&mut out, 40, head.append_time.0.to_le_bytes());
        match mark_word(head) {
            Some(word) => put(&mut out, 48, word.to_le_bytes()),
            None => put(&mut out, 48, head.max_timestamp.0.to_le_bytes()),
        }
        put(&mut out, 56, head.writer.high.to_le_bytes());
        put(&mut out, 64, head.writer.low.to_le_bytes());
        put(&mut out, 72, head.writer_epoch.to_le_bytes());
        put(&mut out, 80, head.base_sequence.to_le_bytes());
        put(&mut out, 88, self.batch_crc.to_le_bytes());
        let own = crc32c(&out[..92]) ^ mask;
        put(&mut out, 92, own.to_le_bytes());
        out
    }

    /// Reads a head whose checksum is right and whose numbers are possible.
    pub(crate) fn parse(bytes: &[u8], mask: u32) -> Option<Self> {
        let (body, own) = bytes.get(..Self::LEN)?.split_last_chunk::<4>()?;
        if crc32c(body) ^ mask != u32::from_le_bytes(*own) {
            return None;
        }
        // All fields are there: the body has a fixed length.
        let mut fields = body;
        let batch_len = fields.get_u32_le();
        let mut head = EntryHead {
            key: RangeKey {
                range: RangeIndex(fields.get_i32_le()),
                stream: StreamId(fields.get_i64_le()),
            },
            epoch: Epoch(fields.get_i64_le()),
            base_offset: Offset(fields.get_i64_le()),
            ..EntryHead::default()
        };
        let count = fields.get_u64_le();
        (head.shared, head.count) = (count & SHARED != 0, (count & !SHARED).cast_signed());
        head.append_time = TimestampMs(fields.get_i64_le());
        let word = fields.get_u64_le();
        head.writer = WriterId {
            high: fields.get_u64_le(),
            low: fields.get_u64_le(),
        };
        head.writer_epoch = fields.get_i64_le();
        head.base_sequence = fields.get_i64_le();
        if head.count == 0 {
            (head.kind, head.marks) = read_mark(word);
        } else {
            head.max_timestamp = TimestampMs(word.cast_signed());
        }
        let sane = head.is_whole(batch_len as usize) && head.end_offset().is_some();
        sane.then_some(Self {
            head,
            batch_len,
            batch_crc: fields.get_u32_le(),
        })
    }
}

/// What the head of a mark has in the place of the largest record time: one more than the number of marks before it at
/// its offset, in the lower half; part and number of parts of the writers' state above it. A fence without a number was
/// written by a release that did not count them.
fn mark_word(head: &EntryHead) -> Option<u64> {
    let (part, parts) = match head.kind {
        EntryKind::Batch => return None,
        EntryKind::Fence => (0, 0),
        EntryKind::Writers { part, parts } => (part, parts),
    };
    let number = head.marks.map_or(0, |marks| marks.saturating_add(1));
    Some(u64::from(number) | u64::from(part) << 32 | u64::from(parts) << 48)
}

fn read_mark(word: u64) -> (EntryKind, Option<u32>) {
    let number = (word & u64::from(u32::MAX)) as u32;
    let (part, parts) = ((word >> 32) as u16, (word >> 48) as u16);
    let kind = match parts {
        0 => EntryKind::Fence,
        _ => EntryKind::Writers { part, parts },
    };
    (kind, number.checked_sub(1))
}
