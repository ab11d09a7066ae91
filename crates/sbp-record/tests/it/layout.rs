//! Small batches, byte for byte.

use bytes::{Bytes, BytesMut};
use sbp_record::{
    Compression, EncodeOptions, PADDING, RecordsBuilder, WriterStamp, encode_empty, encode_raw, encode_raw_head,
    inspect,
};
use sbp_types::{Offset, StreamId, TimestampMs, WriterId};

use crate::support::slow_crc32c;

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Root offset, vtable and scalars of the head without a writer, for a body of `body` bytes.
fn head(encoding: u8, last_delta: i32, base_ms: i64, max_ms: i64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    concat(&[
        &[0x22],                                     // magic
        &[0; 8],                                     // base offset, for the server to fill in
        &[0, 0, 0, 99],                              // metadata length, big-endian: 112 - 13
        &[40, 0, 0, 0],                              // the table is 40 bytes on
        &[36, 0, 56, 0],                             // vtable of 36 bytes, table of 56
        &[8, 0, 44, 0, 0, 0, 4, 0, 16, 0, 0, 0],     // stream_id flags base_offset delta base_timestamp properties
        &[32, 0, 36, 0, 46, 0, 47, 0, 40, 0, 24, 0], // lengths, encoding, compression, crc, max_timestamp
        &[0, 0, 0, 0, 0, 0, 48, 0],                  // writer_id writer_epoch base_sequence schema_fingerprint
        &[36, 0, 0, 0],                              // the vtable is 36 bytes back
        &last_delta.to_le_bytes(),
        &9_i64.to_le_bytes(), // stream_id
        &base_ms.to_le_bytes(),
        &max_ms.to_le_bytes(),
        &length, // body_length
        &length, // uncompressed_length
        &slow_crc32c(body).to_le_bytes(),
        &[0, 0], // flags
        &[encoding],
        &[0],    // compression
        &[0; 8], // schema_fingerprint
        &[0; 3], // to a multiple of 16
    ])
}

fn options() -> EncodeOptions {
    EncodeOptions {
        stream_id: StreamId(9),
        timestamp: TimestampMs(5),
        ..EncodeOptions::default()
    }
}

#[test]
fn raw_batch() {
    let mut out = BytesMut::new();
    assert_eq!(encode_raw(&options(), b"hi", &mut out).unwrap(), 128);
    assert_eq!(out, concat(&[&head(1, 0, 5, 5, b"hi"), b"hi", &[0; 14]]));
}

#[test]
fn a_shared_body_gives_the_same_bytes() {
    for length in [0, 1, 15, 16, 17, 1_000] {
        let body = Bytes::from(vec![0xa5; length]);
        let (mut copied, mut shared) = (BytesMut::new(), BytesMut::new());
        encode_raw(&options(), &body, &mut copied).unwrap();
        let padding = encode_raw_head(&options(), &body, &mut shared).unwrap();
        shared.extend_from_slice(&body);
        shared.extend_from_slice(&PADDING[..padding]);
        assert_eq!(copied, shared);
    }
}

#[test]
fn empty_batch_with_a_writer() {
    let writer = WriterStamp {
        id: WriterId { high: 1, low: 2 },
        epoch: 3,
        base_sequence: 4,
    };
    let mut out = BytesMut::new();
    assert_eq!(
        encode_empty(
            &EncodeOptions {
                writer: Some(writer),
                ..options()
            },
            &mut out
        )
        .unwrap(),
        144
    );
    // The writer's fields stand behind the fingerprint: table at 53, fingerprint at 48 of it.
    let expected = concat(&[
        &1_u64.to_le_bytes(),
        &2_u64.to_le_bytes(),
        &3_i64.to_le_bytes(),
        &4_i64.to_le_bytes(),
        &[0; 3],
    ]);
    assert_eq!(&out[53 + 56..], expected);
    let head = inspect(&[out.freeze()], true).unwrap();
    assert_eq!(
        (head.record_count, head.body_length, head.base_offset),
        (0, 0, Offset(0))
    );
    assert_eq!(
        (head.meta.writer_id, head.meta.writer_epoch, head.meta.base_sequence),
        (writer.id, 3, 4)
    );
}

/// An index entry.
fn at(offset: u32, length: u32) -> Vec<u8> {
    concat(&[&offset.to_le_bytes(), &length.to_le_bytes()])
}

#[test]
fn records_batch_with_nulls_and_times() {
    let mut builder = RecordsBuilder::new();
    builder.push(Some(b"ab"), Some(b"k"), Some(7_001_999), &[]).unwrap();
    builder.push(None, None, None, &[]).unwrap();
    builder.push(Some(b"c"), None, Some(-1), &[]).unwrap();
    let mut out = BytesMut::new();
    builder.finish(&options(), &mut out).unwrap();

    let none = at(0, 0);
    let body = concat(&[
        &[3, 0, 0, 0, 0, 0, 0, 0], // records, flags
        &at(112, 24),              // timestamp
        &at(144, 1),               // key validity
        &at(160, 16),              // key offsets
        &at(176, 1),               // key data
        &at(192, 1),               // value validity
        &at(208, 16),              // value offsets
        &at(224, 3),               // value data
        &none.repeat(6),           // headers
        &7_001_999_i64.to_le_bytes(),
        &5_000_i64.to_le_bytes(),
        &(-1_i64).to_le_bytes(),
        &[0; 8],
        &[0b001],
        &[0; 15],
        &[0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
        b"k",
        &[0; 15],
        &[0b101],
        &[0; 15],
        &[0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
        b"abc",
    ]);
    // The largest time is 7,001.999 ms, rounded down.
    let expected = concat(&[&head(2, 2, 5, 7_001, &body), &body, &[0; 13]]);
    assert_eq!(out, expected);
}

#[test]
fn records_batch_with_headers() {
    let mut builder = RecordsBuilder::new();
    builder.push(Some(b""), None, None, &[]).unwrap();
    builder
        .push(Some(b""), None, None, &[("n", Some(b"xy")), ("m", None)])
        .unwrap();
    let mut out = BytesMut::new();
    builder.finish(&options(), &mut out).unwrap();

    let none = at(0, 0);
    let body = concat(&[
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &none.repeat(5), // no times, no keys, no null values
        &at(112, 12),    // value offsets
        &none,           // value data: all empty
        &at(128, 12),    // header list offsets
        &at(144, 12),    // header key offsets
        &at(160, 2),     // header key data
        &at(176, 1),     // header value validity
        &at(192, 12),    // header value offsets
        &at(208, 2),     // header value data
        &[0; 12],
        &[0; 4],
        &[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        &[0; 4],
        &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],
        &[0; 4],
        b"nm",
        &[0; 14],
        &[0b01],
        &[0; 15],
        &[0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0],
        &[0; 4],
        b"xy",
    ]);
    let expected = concat(&[&head(2, 1, 5, 5, &body), &body, &[0; 14]]);
    assert_eq!(out, expected);
}

#[test]
fn a_body_that_does_not_shrink_is_stored_as_it_is() {
    for compression in [Compression::LZ4, Compression::ZSTD] {
        let mut out = BytesMut::new();
        encode_raw(
            &EncodeOptions {
                compression,
                ..options()
            },
            b"hi",
            &mut out,
        )
        .unwrap();
        assert_eq!(out, concat(&[&head(1, 0, 5, 5, b"hi"), b"hi", &[0; 14]]));
    }
}
