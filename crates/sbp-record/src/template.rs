//! The head that we write: `RecordBatchMeta` at fixed places, without a FlatBuffers builder.
//!
//! A small append is mostly head, so building the table field by field would cost more than everything else of it. The
//! bytes are an ordinary FlatBuffers table that every reader accepts; a test reads them back through the generated
//! code. Without a writer the table ends earlier and the head has 112 bytes, with one 144.

use bytes::BufMut;

use sbp_types::Offset;

use crate::head::{FIXED_LENGTH, stamp_base_offset};
use crate::meta::BatchMeta;

/// Root offset, then the vtable of 16 fields, then the table.
const TABLE_FROM: u8 = 40;
const VTABLE_FROM: u8 = 4;
const VTABLE_LENGTH: u8 = 36;
const TABLE_LENGTH: u8 = 56;
const TABLE_LENGTH_WITH_WRITER: u8 = 88;

/// 13 + 40 + 56, and zeros to a multiple of 16.
const HEAD_LENGTH: usize = 112;
/// 13 + 40 + 88, and zeros to a multiple of 16.
const HEAD_LENGTH_WITH_WRITER: usize = 144;

/// Places of the fields within the table, by field id; 0 = absent. The order of places puts eight-byte fields at
/// multiples of eight.
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
const WRITER_PLACES: [u8; 3] = [56, 72, 80];

/// Length of the head that [`write_head`] writes for `meta`.
pub(crate) fn head_length(meta: &BatchMeta) -> usize {
    if meta.writer_id.is_some() {
        HEAD_LENGTH_WITH_WRITER
    } else {
        HEAD_LENGTH
    }
}

/// Writes the whole head of a batch, zeros included. `base_offset` and `properties` of the metadata are not written.
pub(crate) fn write_head(meta: &BatchMeta, out: &mut impl BufMut) {
    let writer = meta.writer_id.is_some();
    let table_length = if writer { TABLE_LENGTH_WITH_WRITER } else { TABLE_LENGTH };
    let meta_length = head_length(meta) - FIXED_LENGTH;
    let mut places = PLACES;
    if writer {
        for (slot, place) in places.iter_mut().skip(12).zip(WRITER_PLACES) {
            *slot = place;
        }
    }

    out.put_slice(&stamp_base_offset(Offset::ZERO));
    out.put_i32(i32::try_from(meta_length).unwrap_or_default());

    out.put_u32_le(TABLE_FROM.into());
    out.put_u16_le(VTABLE_LENGTH.into());
    out.put_u16_le(table_length.into());
    for place in places {
        out.put_u16_le(place.into());
    }

    out.put_i32_le((TABLE_FROM - VTABLE_FROM).into());
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
    use sbp_types::{StreamId, TimestampMs, WriterId};

    use super::{HEAD_LENGTH, HEAD_LENGTH_WITH_WRITER, write_head};
    use crate::head::FIXED_LENGTH;
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
            assert_eq!(BatchMeta::parse(&out[FIXED_LENGTH..]).unwrap(), meta);
        }
    }
}
