//! The header of a segment, its first block.

use bytes::{Buf, BufMut};

use super::{BLOCK, Unreadable, begin_envelope, open_envelope, seal_envelope};
use crate::Durability;

const MAGIC: &[u8; 8] = b"SBPLOGSG";

/// The bytes of the header that are not padding.
const LEN: usize = 64;

/// The position of the first group.
pub(crate) const FIRST_GROUP: u64 = BLOCK;

/// The contents of a segment's header. It is written before the file gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The segment's number in the life of the directory, from 1; also the file's name.
    pub(crate) number: u64,
    /// A random number, repeated in every group, so that bytes of another segment are not mistaken for this one's.
    pub(crate) salt: u64,
    /// The length that the file was created with. A sealed segment may have another one.
    pub(crate) capacity: u64,
    /// When the segment was created, in milliseconds; only for people.
    pub(crate) created: i64,
    /// The start of the directory that created the segment; only for people.
    pub(crate) boot_id: u64,
    /// The durability of every group in the segment.
    pub(crate) durability: Durability,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        out.put_u32_le(durability_word(self.durability));
        out.put_u64_le(self.number);
        out.put_u64_le(self.salt);
        out.put_u64_le(self.capacity);
        out.put_i64_le(self.created);
        out.put_u64_le(self.boot_id);
        out.resize(LEN - 4, 0);
        seal_envelope(out)
    }

    /// Reads a header from the first bytes of a file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, Unreadable> {
        let header = file.get(..LEN).ok_or(Unreadable::Bad("too short for a header"))?;
        let mut fields = open_envelope(header, MAGIC)?;
        Ok(Self {
            durability: match fields.try_get_u32_le()? {
                0 => Durability::Fsync,
                1 => Durability::None,
                _ => return Err(Unreadable::Bad("unknown durability")),
            },
            number: fields.try_get_u64_le()?,
            salt: fields.try_get_u64_le()?,
            capacity: fields.try_get_u64_le()?,
            created: fields.try_get_i64_le()?,
            boot_id: fields.try_get_u64_le()?,
        })
    }

    /// How many bytes this header occupies in the file, padding left out.
    pub(crate) const LEN: usize = LEN;
}

/// The number for a durability in headers.
pub(crate) fn durability_word(durability: Durability) -> u32 {
    match durability {
        Durability::Fsync => 0,
        Durability::None => 1,
    }
}
