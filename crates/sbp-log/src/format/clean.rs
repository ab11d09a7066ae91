//! The position of a group, and the file that marks a clean end of the log.

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
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn take(fields: &mut super::Fields<'_>) -> Self {
        Self {
            number: fields.u64(),
            segment: fields.u64(),
            position: fields.u64(),
            checksum: fields.u32(),
        }
    }

    /// The contents of the file that marks a clean end of the log after this group.
    pub(crate) fn encode_clean(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        self.put(&mut out);
        seal_envelope(out)
    }

    /// Reads the file that marks a clean end.
    pub(crate) fn parse_clean(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut fields = open_envelope(bytes, MAGIC)?;
        let mark = Self::take(&mut fields);
        if fields.ok() {
            Ok(mark)
        } else {
            Err(Unreadable::Bad("too short"))
        }
    }
}
