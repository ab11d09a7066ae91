//! Writes the heads of batches: `RecordBatchMeta` with fields at fixed positions, without a FlatBuffers builder.
//!
//! A small append is mostly head, so building the table field by field would take most of its time. The bytes are an
//! ordinary FlatBuffers table that every reader accepts; a test reads them back through the generated code. A head
//! without a writer has 112 bytes, one with a writer 144.

use bytes::{Buf, BufMut};
use sbp_types::{Offset, StreamId, TimestampMs, WriterId};

use crate::error::BatchError;
use crate::framing::{FIXED_LENGTH, stamp_base_offset};
use crate::meta::{BatchMeta, BodyEncoding, Compression};

/// The layout: root offset, vtable of 16 fields, table.
const TABLE_FROM: u8 = 40;
const VTABLE_FROM: u8 = 4;
const VTABLE_LENGTH: u8 = 36;
const TABLE_LENGTH: u8 = 56;
const TABLE_LENGTH_WITH_WRITER: u8 = 88;

/// 13 + 40 + 56, padded with zeros to a multiple of 16.
const HEAD_LENGTH: usize = 112;
/// 13 + 40 + 88, padded with zeros to a multiple of 16.
const HEAD_LENGTH_WITH_WRITER: usize = 144;

/// The positions of the fields in the table, by field id; 0 = absent. Eight-byte fields are at multiples of eight.
const PLACES: [u8; 16] = [
    8,  // stream_id
    44, // flags
    0,  // base_offset: stale on the wire
    4,  // last_offset_delta
    16, // base_timestamp
    0,  // properties
    32, // body_length
    36, // uncompressed_length
    46, // body_encoding
    47, // compression
    40, // body_crc32c
    24, // max_timestamp
    0,  // writer_id: 56
    0,  // writer_epoch: 72
    0,  // base_sequence: 80
    48, // schema_fingerprint
];
const FIRST_WRITER_FIELD: usize = 12;
const WRITER_PLACES: [u8; 3] = [56, 72, 80];

/// The bytes before the first field: root offset, vtable, and the table's offset to the vtable.
const PREFIX: [u8; 44] = prefix(false);
const PREFIX_WITH_WRITER: [u8; 44] = prefix(true);

#[allow(
    clippy::indexing_slicing,
    reason = "evaluated when compiling: an index out of bounds does not build"
)]
const fn prefix(writer: bool) -> [u8; 44] {
    // All numbers are below 256, so only the first byte of each is set.
    let mut out = [0; 44];
    out[0] = TABLE_FROM;
    out[VTABLE_FROM as usize] = VTABLE_LENGTH;
    out[VTABLE_FROM as usize + 2] = if writer { TABLE_LENGTH_WITH_WRITER } else { TABLE_LENGTH };
    let mut field = 0;
    while field < PLACES.len() {
        let with_writer = writer && field >= FIRST_WRITER_FIELD;
        let place = if with_writer && field < FIRST_WRITER_FIELD + WRITER_PLACES.len() {
            WRITER_PLACES[field - FIRST_WRITER_FIELD]
        } else {
            PLACES[field]
        };
        out[VTABLE_FROM as usize + 4 + 2 * field] = place;
        field += 1;
    }
    out[TABLE_FROM as usize] = TABLE_FROM - VTABLE_FROM;
    out
}

/// Reads the metadata of a batch, in whatever layout it was written. `bytes` may end with zeros.
pub(crate) fn read_meta(bytes: &[u8]) -> Result<BatchMeta, BatchError> {
    match read_own_meta(bytes) {
        Some(meta) => Ok(meta),
        None => BatchMeta::verify(bytes),
    }
}

/// Reads metadata in the layout of [`write_head`]; `None` for any other layout, which may be valid as well.
///
/// With an equal vtable every field is at its known position, so comparing the prefix and the length replaces the
/// verifier: all that is accepted here is valid, and has the same values when read with it.
fn read_own_meta(bytes: &[u8]) -> Option<BatchMeta> {
    let (prefix, mut fields) = bytes.split_first_chunk::<44>()?;
    let writer = *prefix == PREFIX_WITH_WRITER;
    if !writer && *prefix != PREFIX {
        return None;
    }
    let table_length = if writer { TABLE_LENGTH_WITH_WRITER } else { TABLE_LENGTH };
    if fields.len() < usize::from(table_length) - 4 {
        return None;
    }
    let mut meta = BatchMeta {
        last_offset_delta: fields.get_i32_le(),
        stream_id: StreamId(fields.get_i64_le()),
        base_timestamp: TimestampMs(fields.get_i64_le()),
        max_timestamp: TimestampMs(fields.get_i64_le()),
        body_length: fields.get_i32_le(),
        uncompressed_length: fields.get_i32_le(),
        body_crc32c: Some(fields.get_u32_le()),
        flags: fields.get_i16_le(),
        body_encoding: BodyEncoding(fields.get_i8()),
        compression: Compression(fields.get_i8()),
        schema_fingerprint: fields.get_u64_le(),
        ..BatchMeta::default()
    };
    if writer {
        meta.writer_id = WriterId {
            high: fields.get_u64_le(),
            low: fields.get_u64_le(),
        };
        meta.writer_epoch = fields.get_i64_le();
        meta.base_sequence = fields.get_i64_le();
    }
    Some(meta)
}

/// Length of the head that [`write_head`] writes for `meta`.
pub(crate) fn head_length(meta: &BatchMeta) -> usize {
    if meta.writer_id.is_some() {
        HEAD_LENGTH_WITH_WRITER
    } else {
        HEAD_LENGTH
    }
}

/// Writes the head of a batch, including zeros. `base_offset` and `properties` of the metadata are not written.
pub(crate) fn write_head(meta: &BatchMeta, out: &mut impl BufMut) {
    let writer = meta.writer_id.is_some();
    let table_length = if writer { TABLE_LENGTH_WITH_WRITER } else { TABLE_LENGTH };
    let meta_length = head_length(meta) - FIXED_LENGTH;

    out.put_slice(&stamp_base_offset(Offset::ZERO));
    out.put_i32(i32::try_from(meta_length).unwrap_or_default());
    out.put_slice(if writer { &PREFIX_WITH_WRITER } else { &PREFIX });
    out.put_i32_le(meta.last_offset_delta);
    out.put_i64_le(meta.stream_id.0);
    out.put_i64_le(meta.base_timestamp.0);
    out.put_i64_le(meta.max_timestamp.0);
    out.put_i32_le(meta.body_length);
    out.put_i32_le(meta.uncompressed_length);
    out.put_u32_le(meta.body_crc32c.unwrap_or_default());
    out.put_i16_le(meta.flags);
    out.put_i8(meta.body_encoding.0);
    out.put_i8(meta.compression.0);
    out.put_u64_le(meta.schema_fingerprint);
    if writer {
        out.put_u64_le(meta.writer_id.high);
        out.put_u64_le(meta.writer_id.low);
        out.put_i64_le(meta.writer_epoch);
        out.put_i64_le(meta.base_sequence);
    }
    out.put_bytes(0, meta_length - usize::from(TABLE_FROM) - usize::from(table_length));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use sbp_types::{StreamId, TimestampMs, WriterId};

    use super::{HEAD_LENGTH, HEAD_LENGTH_WITH_WRITER, read_own_meta, write_head};
    use crate::framing::FIXED_LENGTH;
    use crate::meta::{BatchMeta, BodyEncoding, Compression};

    fn meta() -> BatchMeta {
        BatchMeta {
            stream_id: StreamId(0x0102_0304_0506_0708),
            flags: -2,
            last_offset_delta: 41,
            base_timestamp: TimestampMs(-3),
            body_length: 99,
            uncompressed_length: 1_000,
            body_encoding: BodyEncoding::ARROW,
            compression: Compression::ZSTD,
            body_crc32c: Some(0xdead_beef),
            max_timestamp: TimestampMs(i64::MAX),
            schema_fingerprint: u64::MAX - 7,
            ..BatchMeta::default()
        }
    }

    #[test]
    fn generated_code_reads_back_every_field() {
        let without = meta();
        let with = BatchMeta {
            writer_id: WriterId { high: 7, low: u64::MAX },
            writer_epoch: 12,
            base_sequence: i64::MAX - 1,
            ..meta()
        };
        for (meta, length) in [(without, HEAD_LENGTH), (with, HEAD_LENGTH_WITH_WRITER)] {
            let mut out = Vec::new();
            write_head(&meta, &mut out);
            assert_eq!(out.len(), length);
            assert_eq!(
                out.get(9..13),
                Some(&i32::try_from(length - FIXED_LENGTH).unwrap().to_be_bytes()[..])
            );
            assert_eq!(BatchMeta::verify(&out[FIXED_LENGTH..]).unwrap(), meta);
            assert_eq!(read_own_meta(&out[FIXED_LENGTH..]), Some(meta));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2_000,
            rng_seed: RngSeed::Fixed(0x5b9),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Whatever the quick way reads, the verifier accepts and reads the same.
        #[test]
        fn the_quick_way_reads_what_the_verifier_reads(
            writer in any::<bool>(),
            patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            length in any::<prop::sample::Index>(),
            cut in prop::bool::weighted(0.2),
        ) {
            let writer_id = if writer { WriterId { high: 1, low: 2 } } else { WriterId::NONE };
            let mut out = Vec::new();
            write_head(&BatchMeta { writer_id, ..meta() }, &mut out);
            let mut bytes = out.split_off(FIXED_LENGTH);
            for (at, byte) in patches {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(length.index(bytes.len()));
            }
            if let Some(quick) = read_own_meta(&bytes) {
                prop_assert_eq!(BatchMeta::verify(&bytes).unwrap(), quick);
            }
        }
    }
}
