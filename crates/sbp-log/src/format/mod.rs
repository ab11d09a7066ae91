//! The formats on the disk. This crate's `README.md` describes them with every constant.
//!
//! All integers are little-endian. Every structure has a CRC-32C of itself, which is checked before any other field is
//! used.

pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod footer;
pub(crate) mod group;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod superblock;
#[cfg(test)]
mod tests;

use crc_fast::{CrcAlgorithm, Digest};

/// The version of every structure except the superblock of a directory with fences.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The superblock's version in a directory whose groups may have fences, which a release that knows only version 1
/// would take for damage. A directory with a higher version is refused.
pub(crate) const FORMAT_WITH_FENCES: u32 = 2;

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

/// Writes a field of a structure of fixed size. The callers' offsets all lie inside.
pub(crate) fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

/// Reads fields one after the other. After the end of the bytes every field is zero and [`ok`](Self::ok) is false.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    short: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            short: false,
        }
    }

    /// Whether the bytes were long enough for all fields read.
    pub(crate) fn ok(&self) -> bool {
        !self.short
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, length: usize) -> &'a [u8] {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                taken
            }
            None => {
                self.short = true;
                self.rest = &[];
                &[]
            }
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap_or([0; N])
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }
}

/// Why a small file or a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is cut off, damaged, or not of the expected kind.
    Bad(&'static str),
    /// It was written by a newer release, with this version.
    Newer(u32),
}

/// Checks what all small structures have: magic, version, and a CRC-32C in the last four bytes. Returns the fields
/// between.
pub(crate) fn open_envelope<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Result<Fields<'a>, Unreadable> {
    open_envelope_of(bytes, magic, FORMAT_VERSION)
}

/// As [`open_envelope`], but accepts versions up to `newest`.
pub(crate) fn open_envelope_of<'a>(bytes: &'a [u8], magic: &[u8; 8], newest: u32) -> Result<Fields<'a>, Unreadable> {
    let mut fields = Fields::new(bytes);
    if fields.take(8) != magic {
        return Err(Unreadable::Bad("not the file its name says"));
    }
    let version = fields.u32();
    let Some((body, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(Unreadable::Bad("too short"));
    };
    if version > newest {
        // Checked before the checksum, which a newer release may keep elsewhere.
        return Err(Unreadable::Newer(version));
    }
    if crc32c(body) != u32::from_le_bytes(*sum) {
        return Err(Unreadable::Bad("checksum is wrong"));
    }
    let mut fields = Fields::new(body);
    fields.take(12);
    Ok(fields)
}

/// Begins a structure that [`open_envelope`] accepts.
pub(crate) fn begin_envelope(magic: &[u8; 8]) -> Vec<u8> {
    begin_envelope_of(magic, FORMAT_VERSION)
}

/// As [`begin_envelope`], with another version.
pub(crate) fn begin_envelope_of(magic: &[u8; 8], version: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(magic);
    out.extend_from_slice(&version.to_le_bytes());
    out
}

/// The version of a structure that was opened before.
pub(crate) fn envelope_version(bytes: &[u8]) -> u32 {
    let mut fields = Fields::new(bytes);
    fields.take(8);
    fields.u32()
}

/// Ends a structure with its checksum.
pub(crate) fn seal_envelope(mut out: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}
