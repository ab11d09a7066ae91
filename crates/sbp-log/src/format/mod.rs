//! The formats on the disk. This crate's `README.md` describes them with every constant.
//!
//! All integers are little-endian. Every structure has a CRC-32C of itself, which is checked before any other field is
//! used.

pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod footer;
pub(crate) mod group;
pub(crate) mod parts;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod superblock;
#[cfg(test)]
mod tests;

use bytes::{Buf, BufMut, TryGetError};
use crc_fast::{CrcAlgorithm, Digest};

/// The version of every structure except the superblock of a directory with marks.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The superblock's version in a directory whose groups may have fences that say not how many marks are before them. Not
/// written any more, because fences are marks now.
pub(crate) const FORMAT_WITH_BARE_FENCES: u32 = 2;

/// The superblock's version in a directory whose groups may have marks, or entries of ranges with copies elsewhere, which
/// a release that knows only lower versions would take for damage. A directory with a higher version is refused.
pub(crate) const FORMAT_WITH_MARKS: u32 = 3;

/// Groups begin at multiples of this size, so that two groups never share a page.
pub(crate) const BLOCK: u64 = 4096;

/// The size that a disk writes as a whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// Records begin at multiples of this size, so that columns in a batch stay aligned in memory.
pub(crate) const RECORD_ALIGN: usize = 16;

/// CRC-32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of bytes that come in pieces.
pub(crate) struct Crc32c(Digest);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u32 {
        // The digest has the width of the widest CRC; for this one its upper half is zero.
        (self.0.finalize() & u64::from(u32::MAX)) as u32
    }
}

/// `value` rounded up to a multiple of [`BLOCK`].
pub(crate) const fn block_up(value: u64) -> u64 {
    value.next_multiple_of(BLOCK)
}

/// `value` rounded up to a multiple of [`RECORD_ALIGN`].
pub(crate) const fn record_up(value: usize) -> usize {
    value.next_multiple_of(RECORD_ALIGN)
}

/// The bytes of a file's image from `position` on; none behind its end.
pub(crate) fn bytes_from(image: &[u8], position: u64) -> &[u8] {
    let start = usize::try_from(position).unwrap_or(usize::MAX);
    image.get(start..).unwrap_or_default()
}

/// Writes a field of a structure of fixed size. The callers' offsets all lie inside.
pub(crate) fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

/// Why a small file or a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is cut off, damaged, or not of the expected kind.
    Bad(&'static str),
    /// It was written by a newer release.
    Newer {
        /// The version it has.
        found: u32,
        /// The newest version of such a structure that this release knows.
        supported: u32,
    },
}

impl Unreadable {
    /// What is wrong, for a structure whose version may be damaged rather than newer.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Bad(what) => what,
            Self::Newer { .. } => "its version is unknown and its checksum is wrong",
        }
    }
}

impl From<TryGetError> for Unreadable {
    fn from(_short: TryGetError) -> Self {
        Self::Bad("too short")
    }
}

/// Checks what all small structures have: magic, version, and a CRC-32C in the last four bytes. Returns the fields
/// between.
pub(crate) fn open_envelope<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Result<&'a [u8], Unreadable> {
    open_envelope_of(bytes, magic, FORMAT_VERSION).map(|(_, fields)| fields)
}

/// As [`open_envelope`], but accepts versions up to `newest`, and returns the version as well.
pub(crate) fn open_envelope_of<'a>(
    bytes: &'a [u8],
    magic: &[u8; 8],
    newest: u32,
) -> Result<(u32, &'a [u8]), Unreadable> {
    let Some(mut fields) = bytes.strip_prefix(magic) else {
        return Err(Unreadable::Bad("not the file its name says"));
    };
    let version = fields.try_get_u32_le()?;
    if version > newest {
        // Checked before the checksum, which a newer release may keep elsewhere.
        return Err(Unreadable::Newer {
            found: version,
            supported: newest,
        });
    }
    let Some((fields, sum)) = fields.split_last_chunk::<4>() else {
        return Err(Unreadable::Bad("too short"));
    };
    let summed = &bytes[..bytes.len() - sum.len()];
    if crc32c(summed) != u32::from_le_bytes(*sum) {
        return Err(Unreadable::Bad("checksum is wrong"));
    }
    Ok((version, fields))
}

/// Whether the last four bytes are the checksum of all others.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    let parts = bytes.split_last_chunk::<4>();
    parts.is_some_and(|(summed, sum)| crc32c(summed) == u32::from_le_bytes(*sum))
}

/// Begins a structure that [`open_envelope`] accepts.
pub(crate) fn begin_envelope(magic: &[u8; 8]) -> Vec<u8> {
    begin_envelope_of(magic, FORMAT_VERSION)
}

/// As [`begin_envelope`], with another version.
pub(crate) fn begin_envelope_of(magic: &[u8; 8], version: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(magic);
    out.put_u32_le(version);
    out
}

/// Ends a structure with its checksum.
pub(crate) fn seal_envelope(mut out: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&out);
    out.put_u32_le(sum);
    out
}
