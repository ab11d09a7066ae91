//! The heads of records. A record is one batch in a group.

use bytes::Buf;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs, WriterId};

use super::{crc32c, put, record_up};
use crate::EntryHead;

/// The 96 bytes before each batch.
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

    pub(crate) fn encode(&self, mask: u32) -> [u8; Self::LEN] {
        let head = &self.head;
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.batch_len.to_le_bytes());
        put(&mut out, 4, head.key.range.0.to_le_bytes());
        put(&mut out, 8, head.key.stream.0.to_le_bytes());
        put(&mut out, 16, head.epoch.0.to_le_bytes());
        put(&mut out, 24, head.base_offset.0.to_le_bytes());
        put(&mut out, 32, head.count.to_le_bytes());
        put(&mut out, 40, head.append_time.0.to_le_bytes());
        put(&mut out, 48, head.max_timestamp.0.to_le_bytes());
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
        let head = EntryHead {
            key: RangeKey {
                range: RangeIndex(fields.get_i32_le()),
                stream: StreamId(fields.get_i64_le()),
            },
            epoch: Epoch(fields.get_i64_le()),
            base_offset: Offset(fields.get_i64_le()),
            count: fields.get_i64_le(),
            append_time: TimestampMs(fields.get_i64_le()),
            max_timestamp: TimestampMs(fields.get_i64_le()),
            writer: WriterId {
                high: fields.get_u64_le(),
                low: fields.get_u64_le(),
            },
            writer_epoch: fields.get_i64_le(),
            base_sequence: fields.get_i64_le(),
        };
        let is_fence = head.is_fence() && batch_len == 0 && head.writer.is_some();
        let sane = (head.count >= 1 || is_fence) && head.end_offset().is_some();
        sane.then_some(Self {
            head,
            batch_len,
            batch_crc: fields.get_u32_le(),
        })
    }
}
