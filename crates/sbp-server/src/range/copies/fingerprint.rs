//! What is compared of an entry that a server has and is sent again.

use sbp_log::{EntryHead, EntryKind};
use sbp_record::checksum;
use sbp_types::WriterId;

/// What is compared of an entry that a server has and is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::range) struct Fingerprint {
    kind: EntryKind,
    count: i64,
    writer: (WriterId, i64, i64),
    /// Of its bytes as they are stored.
    checksum: u32,
}

impl Fingerprint {
    /// That of an entry that is stored as these bytes.
    pub(in crate::range) fn of<'a>(head: &EntryHead, bytes: impl Iterator<Item = &'a [u8]>) -> Self {
        Self {
            kind: head.kind,
            count: head.count,
            writer: (head.writer, head.writer_epoch, head.base_sequence),
            checksum: checksum(bytes),
        }
    }
}
