//! Group headers. A group is what one write and one sync have made durable together.

use bytes::Buf;

use super::segment::durability_word;
use super::{Crc32c, SECTOR, crc32c, put};
use crate::Durability;

const MAGIC: [u8; 4] = *b"SBPG";
const VERSION: u16 = 1;

/// The flag of groups that were handed to the operating system but not synced.
const FLAG_NOT_SYNCED: u16 = 1;

/// The part of the header that the group's checksum covers: all before the two checksums.
const SUMMED: usize = 56;

/// The 64 bytes before a group's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// The group's number, counted through all segments from 1.
    pub(crate) number: u64,
    /// The salt of the segment.
    pub(crate) salt: u64,
    /// The length of header and records, without the padding to the next block.
    pub(crate) length: u32,
    /// The checksum of group `number - 1`, 0 for the first.
    pub(crate) previous: u32,
    /// The number of records that follow.
    pub(crate) records: u32,
    /// The durability with which the group was written.
    pub(crate) durability: Durability,
    /// CRC-32C over the records and then this header up to here.
    pub(crate) checksum: u32,
}

impl GroupHeader {
    pub(crate) const LEN: usize = 64;

    /// Finishes the checksum that was begun over the records, and writes the header.
    pub(crate) fn seal(&mut self, mut records: Crc32c) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, MAGIC);
        put(&mut out, 4, VERSION.to_le_bytes());
        let flags = if durability_word(self.durability) == 0 {
            0
        } else {
            FLAG_NOT_SYNCED
        };
        put(&mut out, 6, flags.to_le_bytes());
        put(&mut out, 8, self.number.to_le_bytes());
        put(&mut out, 16, self.salt.to_le_bytes());
        put(&mut out, 24, self.length.to_le_bytes());
        put(&mut out, 28, self.previous.to_le_bytes());
        put(&mut out, 32, self.records.to_le_bytes());
        records.update(&out[..SUMMED]);
        self.checksum = records.finish();
        put(&mut out, SUMMED, self.checksum.to_le_bytes());
        let own = crc32c(&out[..SUMMED + 4]);
        put(&mut out, SUMMED + 4, own.to_le_bytes());
        out
    }

    /// Reads a header whose own checksum is right and whose salt is the segment's. The records are not checked.
    pub(crate) fn parse(bytes: &[u8], salt: u64) -> Option<Self> {
        let header = bytes.get(..Self::LEN)?;
        let (body, own) = header.split_last_chunk::<4>()?;
        let mut fields = body.strip_prefix(&MAGIC)?;
        if crc32c(body) != u32::from_le_bytes(*own) {
            return None;
        }
        // All fields are there: the body has a fixed length.
        let version = fields.get_u16_le();
        let flags = fields.get_u16_le();
        let number = fields.get_u64_le();
        let own_salt = fields.get_u64_le();
        let length = fields.get_u32_le();
        let previous = fields.get_u32_le();
        let records = fields.get_u32_le();
        fields.advance(20);
        let checksum = fields.get_u32_le();
        let durability = if flags & FLAG_NOT_SYNCED == 0 {
            Durability::Fsync
        } else {
            Durability::None
        };
        // No group can follow one with the largest number.
        let counted = number < u64::MAX && length as usize >= Self::LEN;
        let sane = version == VERSION && own_salt == salt && counted;
        sane.then_some(Self {
            number,
            salt,
            length,
            previous,
            records,
            durability,
            checksum,
        })
    }

    /// Whether the group at the start of `bytes` has the checksum that this header states.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        let (Some(header), Some(records)) = (bytes.get(..SUMMED), bytes.get(Self::LEN..self.length as usize)) else {
            return false;
        };
        let mut sum = Crc32c::new();
        sum.update(records);
        sum.update(header);
        sum.finish() == self.checksum
    }
}

/// Whether the bytes are all zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks.iter().all(|chunk| *chunk == [0; 64]) && rest.iter().all(|&byte| byte == 0)
}

/// What the bytes after the last valid group are, if they are not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadableGroup {
    /// A write that a power cut interrupted.
    Torn,
    /// Bytes that no interrupted write leaves behind.
    Corrupt,
}

/// Judges the bytes from the place of the next group to the end of the segment.
///
/// That part was all zeros before the write, and a disk writes whole sectors. So after an interrupted write, at least
/// one sector is zeros, the first sector is either zeros or a valid header, and all is zeros after the write's end.
pub(crate) fn judge_unreadable(bytes: &[u8], salt: u64) -> UnreadableGroup {
    let first = bytes.get(..SECTOR).unwrap_or(bytes);
    if is_zero(first) {
        return UnreadableGroup::Torn;
    }
    let Some(header) = GroupHeader::parse(bytes, salt) else {
        return UnreadableGroup::Corrupt;
    };
    let end = (header.length as usize).next_multiple_of(SECTOR);
    let Some((group, behind)) = bytes.split_at_checked(end) else {
        return UnreadableGroup::Corrupt;
    };
    if is_zero(behind) && group.chunks(SECTOR).any(is_zero) {
        UnreadableGroup::Torn
    } else {
        UnreadableGroup::Corrupt
    }
}
