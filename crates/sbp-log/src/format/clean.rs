//! The position of a group, and the file that marks a clean end of the log.

use bytes::{Buf, BufMut, TryGetError};

use super::{Unreadable, begin_envelope, open_envelope, seal_envelope};

const MAGIC: &[u8; 8] = b"SBPCLEAN";

/// The position of a group in the log; all zero before the first group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupMark {
    /// The group's number.
    pub(crate) number: u64,
    /// The segment it is in.
    pub(crate) segment: u64,
    /// The position of its header in the file.
    pub(crate) position: u64,
    /// Its checksum.
    pub(crate) checksum: u32,
}

impl GroupMark {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.number);
        out.put_u64_le(self.segment);
        out.put_u64_le(self.position);
        out.put_u32_le(self.checksum);
    }

    pub(crate) fn take(fields: &mut &[u8]) -> Result<Self, TryGetError> {
        Ok(Self {
            number: fields.try_get_u64_le()?,
            segment: fields.try_get_u64_le()?,
            position: fields.try_get_u64_le()?,
            checksum: fields.try_get_u32_le()?,
        })
    }

    /// The contents of the file that marks a clean end of the log after this group.
    pub(crate) fn encode_clean(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        self.put(&mut out);
        seal_envelope(out)
    }

    /// Reads the file that marks a clean end.
    pub(crate) fn parse_clean(bytes: &[u8]) -> Result<Self, Unreadable> {
        Ok(Self::take(&mut open_envelope(bytes, MAGIC)?)?)
    }
}
