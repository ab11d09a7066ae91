//! The framing of a batch: magic, base offset, lengths, and padding.

use sbp_types::Offset;

/// First byte of every batch.
pub const BATCH_MAGIC: u8 = 0x22;
/// The length of magic, base offset and metadata length.
pub(crate) const FIXED_LENGTH: usize = 13;
/// The heads and batches that this crate writes end at multiples of this, so that columns can be used in place.
pub(crate) const ALIGNMENT: usize = 16;

/// Bytes at the start of a batch that a server replaces: the magic and the base offset.
pub const STAMP_LENGTH: usize = 9;

/// The first [`STAMP_LENGTH`] bytes of a batch that begins at `base_offset`.
#[must_use]
pub fn stamp_base_offset(base_offset: Offset) -> [u8; STAMP_LENGTH] {
    let mut stamp = [BATCH_MAGIC; STAMP_LENGTH];
    if let Some((_, offset)) = stamp.split_first_mut() {
        offset.copy_from_slice(&base_offset.0.to_be_bytes());
    }
    stamp
}

/// The number of zero bytes that pad `length` bytes to a multiple of 16.
#[must_use]
pub fn padding_after(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT) - length
}
