//! The footer of a sealed segment: the positions of all its batches.
//!
//! A footer only saves reading the segment. One that is missing or wrong is rebuilt from the groups.

use bytes::{Buf, BufMut};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs};

use super::clean::GroupMark;
use super::{begin_envelope, crc32c, open_envelope, seal_envelope};

const MAGIC: &[u8; 8] = b"SBPLOGFT";

/// The position of one batch in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The offset of its first record.
    pub(crate) base: Offset,
    /// One past the offset of its last record.
    pub(crate) end: Offset,
    /// The largest time among its records.
    pub(crate) max_timestamp: TimestampMs,
    /// The position of its head in the file.
    pub(crate) position: u32,
    /// The batch's length in bytes.
    pub(crate) length: u32,
}

impl IndexEntry {
    pub(crate) const LEN: usize = 32;

    fn put(&self, out: &mut Vec<u8>) {
        out.put_i64_le(self.base.0);
        out.put_i64_le(self.end.0);
        out.put_i64_le(self.max_timestamp.0);
        out.put_u32_le(self.position);
        out.put_u32_le(self.length);
    }

    /// The entries in `bytes`, if their checksum is `crc`.
    pub(crate) fn parse_all(bytes: &[u8], crc: u32) -> Option<Vec<Self>> {
        let (entries, []) = bytes.as_chunks::<{ Self::LEN }>() else {
            return None;
        };
        let parse = |entry: &[u8; Self::LEN]| {
            let mut fields = entry.as_slice();
            Self {
                base: Offset(fields.get_i64_le()),
                end: Offset(fields.get_i64_le()),
                max_timestamp: TimestampMs(fields.get_i64_le()),
                position: fields.get_u32_le(),
                length: fields.get_u32_le(),
            }
        };
        (crc32c(bytes) == crc).then(|| entries.iter().map(parse).collect())
    }
}

/// The records of one range in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterRun {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    /// Batch bytes.
    pub(crate) bytes: u64,
    pub(crate) max_timestamp: TimestampMs,
    /// The position of its entries in the file.
    pub(crate) position: u64,
    pub(crate) count: u32,
    /// The entries' CRC-32C.
    pub(crate) crc: u32,
}

impl FooterRun {
    const LEN: usize = 72;

    fn put(&self, out: &mut Vec<u8>) {
        out.put_i64_le(self.key.stream.0);
        out.put_i32_le(self.key.range.0);
        out.put_u32_le(self.count);
        for word in [self.epoch.0, self.first.0, self.end.0, self.max_timestamp.0] {
            out.put_i64_le(word);
        }
        out.put_u64_le(self.bytes);
        out.put_u64_le(self.position);
        out.put_u32_le(self.crc);
        out.put_u32_le(0);
    }

    fn parse(run: &[u8; Self::LEN]) -> Self {
        let mut fields = run.as_slice();
        Self {
            key: RangeKey {
                stream: StreamId(fields.get_i64_le()),
                range: RangeIndex(fields.get_i32_le()),
            },
            count: fields.get_u32_le(),
            epoch: Epoch(fields.get_i64_le()),
            first: Offset(fields.get_i64_le()),
            end: Offset(fields.get_i64_le()),
            max_timestamp: TimestampMs(fields.get_i64_le()),
            bytes: fields.get_u64_le(),
            position: fields.get_u64_le(),
            crc: fields.get_u32_le(),
        }
    }
}

/// The last bytes of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) salt: u64,
    pub(crate) first_group: u64,
    pub(crate) last: GroupMark,
    /// The position of the runs in the file.
    pub(crate) directory: u64,
    pub(crate) runs: u32,
    /// The runs' CRC-32C.
    pub(crate) crc: u32,
}

impl Trailer {
    pub(crate) const LEN: usize = 76;

    fn encode(&self) -> Vec<u8> {
        let mut out = begin_envelope(MAGIC);
        out.put_u32_le(self.runs);
        out.put_u64_le(self.salt);
        out.put_u64_le(self.first_group);
        self.last.put(&mut out);
        out.put_u64_le(self.directory);
        out.put_u32_le(self.crc);
        seal_envelope(out)
    }

    /// Reads a trailer from a segment's last [`LEN`](Self::LEN) bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = open_envelope(bytes, MAGIC).ok()?;
        Some(Self {
            runs: fields.try_get_u32_le().ok()?,
            salt: fields.try_get_u64_le().ok()?,
            first_group: fields.try_get_u64_le().ok()?,
            last: GroupMark::take(&mut fields).ok()?,
            directory: fields.try_get_u64_le().ok()?,
            crc: fields.try_get_u32_le().ok()?,
        })
    }

    /// The length of all runs in bytes.
    pub(crate) fn directory_len(&self) -> usize {
        self.runs as usize * FooterRun::LEN
    }

    /// The runs in `bytes`, if their checksum is right.
    pub(crate) fn parse_runs(&self, bytes: &[u8]) -> Option<Vec<FooterRun>> {
        let (runs, []) = bytes.as_chunks() else { return None };
        let whole = runs.len() == self.runs as usize && crc32c(bytes) == self.crc;
        whole.then(|| runs.iter().map(FooterRun::parse).collect())
    }
}

/// Builds a footer from runs, which must be added in the order of their keys.
pub(crate) struct FooterBuilder {
    position: u64,
    out: Vec<u8>,
    runs: Vec<FooterRun>,
}

impl FooterBuilder {
    /// A footer to be written at `position` in the file.
    pub(crate) fn new(position: u64) -> Self {
        Self {
            position,
            out: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Adds the entries of a range, if there are any.
    pub(crate) fn push(&mut self, key: RangeKey, epoch: Epoch, entries: &[IndexEntry]) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return;
        };
        let start = self.out.len();
        for entry in entries {
            entry.put(&mut self.out);
        }
        let times = entries.iter().map(|entry| entry.max_timestamp);
        self.runs.push(FooterRun {
            key,
            epoch,
            first: first.base,
            end: last.end,
            bytes: entries.iter().map(|entry| u64::from(entry.length)).sum(),
            max_timestamp: times.max().unwrap_or_default(),
            position: self.position + start as u64,
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            crc: crc32c(&self.out[start..]),
        });
    }

    /// The footer's bytes and its runs.
    pub(crate) fn finish(mut self, salt: u64, first_group: u64, last: GroupMark) -> (Vec<u8>, Vec<FooterRun>) {
        let start = self.out.len();
        for run in &self.runs {
            run.put(&mut self.out);
        }
        let trailer = Trailer {
            salt,
            first_group,
            last,
            directory: self.position + start as u64,
            runs: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            crc: crc32c(&self.out[start..]),
        };
        self.out.extend_from_slice(&trailer.encode());
        (self.out, self.runs)
    }
}
