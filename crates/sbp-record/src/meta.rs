//! `RecordBatchMeta`: the FlatBuffers table in the head of a batch. Only this module names generated types.

use std::fmt;

use flatbuffers::VerifierOptions;
use sbp_schema::v01 as wire;
use sbp_types::{Offset, StreamId, TimestampMs, WriterId};

use crate::error::BatchError;

/// The largest metadata that is read. This crate writes 144 bytes; more is allowed for properties.
pub(crate) const MAX_META_LENGTH: usize = 64 * 1024;

/// The layout of a batch's body ("Record batch" of the wire document). Unknown values of later revisions are preserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BodyEncoding(pub i8);

impl BodyEncoding {
    /// A list of records, as plain v0.1 peers write it. Read only.
    pub const RECORD_LIST: Self = Self(0);
    /// One opaque record: the whole body.
    pub const RAW: Self = Self(1);
    /// Many records as Arrow buffers.
    pub const RECORDS: Self = Self(2);
    /// Typed columns: one Arrow IPC RecordBatch message.
    pub const ARROW: Self = Self(3);
}

impl fmt::Display for BodyEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RECORD_LIST => f.write_str("RECORD_LIST"),
            Self::RAW => f.write_str("RAW"),
            Self::RECORDS => f.write_str("RECORDS"),
            Self::ARROW => f.write_str("ARROW"),
            Self(other) => write!(f, "body encoding {other}"),
        }
    }
}

/// The compression of a stored body. Unknown values of later revisions are preserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Compression(pub i8);

impl Compression {
    /// Not compressed.
    pub const NONE: Self = Self(0);
    /// One LZ4 block.
    pub const LZ4: Self = Self(1);
    /// One Zstandard frame.
    pub const ZSTD: Self = Self(2);
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::LZ4 => f.write_str("lz4"),
            Self::ZSTD => f.write_str("zstd"),
            Self(other) => write!(f, "compression {other}"),
        }
    }
}

/// The fields of `RecordBatchMeta`, owned. Absent fields have the defaults of the FlatBuffers schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchMeta {
    /// The stream that the writer meant. Not used: the request names the stream.
    pub stream_id: StreamId,
    /// Flags. [`FENCE`](crate::FENCE) has a meaning in empty batches; all others are kept unchanged.
    pub flags: i16,
    /// Not used: the base offset before the metadata is the valid one.
    pub base_offset: Offset,
    /// The number of records less one; -1 for an empty batch.
    pub last_offset_delta: i32,
    /// Time of records without a time of their own.
    pub base_timestamp: TimestampMs,
    /// Free properties of the batch.
    pub properties: Vec<(String, String)>,
    /// Bytes of the stored body, without padding.
    pub body_length: i32,
    /// Bytes of the body after decompression; 0 or `body_length` if it is not compressed.
    pub uncompressed_length: i32,
    /// Layout of the body.
    pub body_encoding: BodyEncoding,
    /// Compression of the body.
    pub compression: Compression,
    /// CRC-32C of the stored body; `None`: not protected.
    pub body_crc32c: Option<u32>,
    /// The largest time of the batch's records, rounded down.
    pub max_timestamp: TimestampMs,
    /// The idempotent writer; [`WriterId::NONE`] when there is none.
    pub writer_id: WriterId,
    /// The writer's epoch.
    pub writer_epoch: i64,
    /// The writer's sequence of the first record.
    pub base_sequence: i64,
    /// Fingerprint of the columns of an ARROW body, else 0.
    pub schema_fingerprint: u64,
}

impl BatchMeta {
    /// Verifies and reads the table, in whatever layout it was written.
    pub(crate) fn verify(bytes: &[u8]) -> Result<Self, BatchError> {
        // There is one table, one vector, and one table for each property, so valid metadata stays far below these
        // limits.
        let limits = VerifierOptions {
            max_depth: 4,
            max_tables: 4_096,
            max_apparent_size: 2 * MAX_META_LENGTH,
            ignore_missing_null_terminator: true,
        };
        let table = flatbuffers::root_with_opts::<wire::RecordBatchMeta<'_>>(&limits, bytes)
            .map_err(|error| BatchError::Meta(Box::new(error)))?;
        let properties = table.properties().map_or_else(Vec::new, |list| {
            list.iter()
                .map(|entry| {
                    (
                        entry.key().unwrap_or_default().to_owned(),
                        entry.value().unwrap_or_default().to_owned(),
                    )
                })
                .collect()
        });
        Ok(Self {
            stream_id: StreamId(table.stream_id()),
            flags: table.flags(),
            base_offset: Offset(table.base_offset()),
            last_offset_delta: table.last_offset_delta(),
            base_timestamp: TimestampMs(table.base_timestamp()),
            properties,
            body_length: table.body_length(),
            uncompressed_length: table.uncompressed_length(),
            body_encoding: BodyEncoding(table.body_encoding().0),
            compression: Compression(table.compression().0),
            body_crc32c: table.body_crc32c(),
            max_timestamp: TimestampMs(table.max_timestamp()),
            writer_id: table.writer_id().map_or(WriterId::NONE, |id| WriterId {
                high: id.high(),
                low: id.low(),
            }),
            writer_epoch: table.writer_epoch(),
            base_sequence: table.base_sequence(),
            schema_fingerprint: table.schema_fingerprint(),
        })
    }
}

/// One record's metadata in a RECORD_LIST body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordListMeta {
    pub(crate) offset_delta: i32,
    pub(crate) timestamp_delta: i32,
    pub(crate) headers: Vec<(String, Option<String>)>,
}

impl RecordListMeta {
    /// Verifies and reads the table. Properties are added after the headers, because both are names with values.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let limits = VerifierOptions {
            max_depth: 4,
            max_tables: 4_096,
            max_apparent_size: bytes.len().saturating_mul(2).saturating_add(64),
            ignore_missing_null_terminator: true,
        };
        let table = flatbuffers::root_with_opts::<wire::RecordMeta<'_>>(&limits, bytes)
            .map_err(|error| BatchError::body(format!("metadata of a record: {error}")))?;
        let headers = table
            .headers()
            .into_iter()
            .flatten()
            .chain(table.properties().into_iter().flatten())
            .map(|entry| {
                (
                    entry.key().unwrap_or_default().to_owned(),
                    entry.value().map(str::to_owned),
                )
            })
            .collect();
        Ok(Self {
            offset_delta: table.offset_delta(),
            timestamp_delta: table.timestamp_delta(),
            headers,
        })
    }
}
