//! The footer of a sealed segment: the positions of all its batches.
//!
//! A footer only saves reading the segment. One that is missing or wrong is rebuilt from the groups.

use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, TimestampMs};

use super::clean::GroupMark;
use super::{Fields, begin_envelope, crc32c, open_envelope, seal_envelope};

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
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.end.0.to_le_bytes());
        out.extend_from_slice(&self.max_timestamp.0.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }

    /// The entries in `bytes`, if their checksum is `crc`.
    pub(crate) fn parse_all(bytes: &[u8], crc: u32) -> Option<Vec<Self>> {
        if crc32c(bytes) != crc {
            return None;
        }
        let mut fields = Fields::new(bytes);
        let mut entries = Vec::with_capacity(bytes.len() / Self::LEN);
        while !fields.is_at_end() {
            entries.push(Self {
                base: Offset(fields.i64()),
                end: Offset(fields.i64()),
                max_timestamp: TimestampMs(fields.i64()),
                position: fields.u32(),
                length: fields.u32(),
            });
        }
        fields.ok().then_some(entries)
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
        out.extend_from_slice(&self.key.stream.0.to_le_bytes());
        out.extend_from_slice(&self.key.range.0.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        for word in [self.epoch.0, self.first.0, self.end.0, self.max_timestamp.0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
    }

    fn take(fields: &mut Fields<'_>) -> Self {
        let stream = StreamId(fields.i64());
        let key = RangeKey {
            stream,
            range: RangeIndex(fields.i32()),
        };
        let count = fields.u32();
        let epoch = Epoch(fields.i64());
        let first = Offset(fields.i64());
        let end = Offset(fields.i64());
        let max_timestamp = TimestampMs(fields.i64());
        let bytes = fields.u64();
        let position = fields.u64();
        let crc = fields.u32();
        fields.take(4);
        Self {
            key,
            epoch,
            first,
            end,
            bytes,
            max_timestamp,
            position,
            count,
            crc,
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
        out.extend_from_slice(&self.runs.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.first_group.to_le_bytes());
        self.last.put(&mut out);
        out.extend_from_slice(&self.directory.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        seal_envelope(out)
    }

    /// Reads a trailer from a segment's last [`LEN`](Self::LEN) bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = open_envelope(bytes, MAGIC).ok()?;
        let runs = fields.u32();
        let salt = fields.u64();
        let first_group = fields.u64();
        let last = GroupMark::take(&mut fields);
        let directory = fields.u64();
        let crc = fields.u32();
        fields.ok().then_some(Self {
            salt,
            first_group,
            last,
            directory,
            runs,
            crc,
        })
    }

    /// The length of all runs in bytes.
    pub(crate) fn directory_len(&self) -> usize {
        self.runs as usize * FooterRun::LEN
    }

    /// The runs in `bytes`, if their checksum is right.
    pub(crate) fn parse_runs(&self, bytes: &[u8]) -> Option<Vec<FooterRun>> {
        if crc32c(bytes) != self.crc {
            return None;
        }
        let mut fields = Fields::new(bytes);
        let runs = (0..self.runs).map(|_| FooterRun::take(&mut fields)).collect();
        fields.ok().then_some(runs)
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

    /// Adds the entries of a range; position, count and checksum of `run` are filled in here.
    pub(crate) fn push(&mut self, mut run: FooterRun, entries: impl Iterator<Item = IndexEntry>) {
        let start = self.out.len();
        for entry in entries {
            entry.put(&mut self.out);
        }
        let bytes = &self.out[start..];
        run.position = self.position + start as u64;
        run.count = u32::try_from(bytes.len() / IndexEntry::LEN).unwrap_or(u32::MAX);
        run.crc = crc32c(bytes);
        self.runs.push(run);
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
