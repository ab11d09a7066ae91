//! Damaged and hostile batches: an error, or exactly what was written. Never a panic.

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sbp_record::{Batch, Compression, StreamSchema, encode_arrow, encode_raw};
use sbp_types::Offset;

use crate::support::{Row, cases, consume, encode_rows, options, rows_of, wrap};

fn rows() -> Vec<Row> {
    let mut rows = vec![Row::value(b"abcabcabcabcabcabcabc"), Row::default(), Row::value(b"")];
    rows[0].key = Some(b"key".to_vec());
    rows[1].time = Some(5);
    rows[2].headers = vec![("h\u{e4}".to_owned(), Some(b"1".to_vec())), ("i".to_owned(), None)];
    rows
}

fn typed() -> (StreamSchema, RecordBatch) {
    let mut list = ListBuilder::new(Int64Builder::new());
    list.append_value([Some(1), None]);
    list.append_null();
    list.append_value([Some(3)]);
    let mut names = StringBuilder::new();
    names.append_value("\u{e4}\u{f6}");
    names.append_null();
    names.append_value("x");
    let amount = Decimal128Array::from(vec![Some(12_345), None, Some(-1)])
        .with_precision_and_scale(9, 2)
        .unwrap();
    let inner: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
    let fields = Fields::from(vec![Field::new("flag", DataType::Boolean, true)]);
    let nested = StructArray::try_new(fields, vec![inner], None).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("name", Arc::new(names.finish()) as ArrayRef, true),
        ("amount", Arc::new(amount), true),
        ("list", Arc::new(list.finish()), true),
        ("nested", Arc::new(nested), true),
    ])
    .unwrap();
    (StreamSchema::from_arrow(batch.schema_ref()).unwrap(), batch)
}

fn encode_typed(compression: Compression) -> (StreamSchema, RecordBatch, BytesMut) {
    let (schema, columns) = typed();
    let mut out = BytesMut::new();
    encode_arrow(&options(compression), &schema, &columns, &mut out).unwrap();
    (schema, columns, out)
}

/// Rows without their times: a damaged head may tell another base time, and the body's checksum does not cover it.
fn without_times(batch: &Batch) -> Vec<Row> {
    rows_of(batch)
        .into_iter()
        .map(|row| Row { time: None, ..row })
        .collect()
}

const ALL: [Compression; 3] = [Compression::NONE, Compression::LZ4, Compression::ZSTD];

#[test]
fn every_flipped_bit_of_records() {
    for compression in ALL {
        let bytes = encode_rows(&rows(), &options(compression));
        let expected = without_times(&Batch::decode(bytes.clone().freeze(), None).unwrap());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(batch) = Batch::decode(damaged.freeze(), None) {
                    assert_eq!(without_times(&batch), expected, "byte {at}, bit {bit}");
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_one_record() {
    let mut bytes = BytesMut::new();
    encode_raw(&options(Compression::NONE), b"a small record", &mut bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(batch) = Batch::decode(damaged.freeze(), None) {
                assert_eq!(
                    without_times(&batch),
                    [Row::value(b"a small record")],
                    "byte {at}, bit {bit}"
                );
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_columns() {
    for compression in ALL {
        let (schema, columns, bytes) = encode_typed(compression);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let decoded = Batch::decode(damaged.freeze(), Some(&schema));
                if let Ok(columns_read) = decoded.and_then(|batch| batch.to_record_batch(Offset(0), Offset(i64::MAX))) {
                    // A damaged base offset moves the batch, perhaps out of view, but changes no value.
                    assert!(columns_read == columns, "byte {at}, bit {bit}");
                }
            }
        }
    }
}

#[test]
fn truncated_anywhere() {
    let (schema, _, typed) = encode_typed(Compression::NONE);
    for bytes in [
        encode_rows(&rows(), &options(Compression::NONE)).freeze(),
        typed.freeze(),
    ] {
        let padding = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        for length in 0..bytes.len() - padding {
            assert!(
                Batch::decode(bytes.slice(..length), Some(&schema)).is_err(),
                "{length} bytes"
            );
        }
    }
}

/// Some bytes of the body replaced; lengths and checksum are right, so only the body's own rules are left.
fn patches() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            prop_oneof![any::<u8>(), Just(0), Just(255), Just(16)],
        ),
        1..6,
    )
}

fn patch(body: &[u8], patches: Vec<(prop::sample::Index, u8)>) -> Vec<u8> {
    let mut body = body.to_vec();
    for (at, byte) in patches {
        let at = at.index(body.len());
        body[at] = byte;
    }
    body
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn hostile_records_bodies(patches in patches()) {
        let bytes = encode_rows(&rows(), &options(Compression::NONE));
        let length = sbp_record::inspect(&[bytes.clone().freeze()], true).unwrap().body_length;
        let hostile = wrap(&patch(&bytes[112..112 + length], patches), 2, 3, 0);
        if let Ok(batch) = Batch::decode(hostile, None) {
            consume(&batch).unwrap();
        }
    }

    #[test]
    fn hostile_arrow_bodies(patches in patches()) {
        let (schema, _, bytes) = encode_typed(Compression::NONE);
        let length = sbp_record::inspect(&[bytes.clone().freeze()], true).unwrap().body_length;
        let hostile = wrap(&patch(&bytes[112..112 + length], patches), 3, 3, schema.fingerprint());
        if let Ok(batch) = Batch::decode(hostile, Some(&schema)) {
            let _either = consume(&batch);
        }
    }

    #[test]
    fn hostile_compressed_bodies(
        noise in prop::collection::vec(any::<u8>(), 1..60),
        patches in patches(),
        zstd in any::<bool>(),
        promised in prop_oneof![Just(480_i32), 0..2_000_i32],
    ) {
        let compression = if zstd { Compression::ZSTD } else { Compression::LZ4 };
        let mut packed = BytesMut::new();
        encode_raw(&options(compression), &b"repeated".repeat(60), &mut packed).unwrap();
        let length = sbp_record::inspect(&[packed.clone().freeze()], true).unwrap().body_length;
        let valid = packed[112..112 + length].to_vec();
        for body in [noise, patch(&valid, patches), valid] {
            let mut hostile = BytesMut::from(&wrap(&body, 1, 1, 0)[..]);
            hostile[53 + 47] = if zstd { 2 } else { 1 };
            hostile[53 + 36..53 + 40].copy_from_slice(&promised.to_le_bytes());
            if let Ok(batch) = Batch::decode(hostile.freeze(), None) {
                let value = batch.payloads().unwrap().next().unwrap().unwrap();
                prop_assert_eq!(value.len(), usize::try_from(promised).unwrap());
            }
        }
    }

    #[test]
    fn hostile_heads(bytes in prop::collection::vec(any::<u8>(), 0..200), patches in patches()) {
        let _either = Batch::decode(Bytes::from([&[0x22][..], &bytes].concat()), None);
        let batch = encode_rows(&rows(), &options(Compression::LZ4));
        let hostile = Bytes::from(patch(&batch, patches));
        let _either = sbp_record::inspect(std::slice::from_ref(&hostile), false);
        if let Ok(batch) = Batch::decode(hostile, None) {
            let _either = consume(&batch);
        }
    }

    #[test]
    fn hostile_schemas(patches in patches(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let (schema, _) = typed();
        let _either = StreamSchema::from_ipc(&bytes);
        let _either = StreamSchema::from_ipc(&patch(&schema.to_ipc(), patches));
    }
}

#[test]
fn a_promise_of_much_memory_costs_none() {
    // 12 bytes that claim to be 64 MiB.
    let mut bytes = BytesMut::from(&wrap(b"twelve bytes", 1, 1, 0)[..]);
    bytes[53 + 47] = 1;
    bytes[53 + 36..53 + 40].copy_from_slice(&(64_i32 << 20).to_le_bytes());
    let error = Batch::decode(bytes.clone().freeze(), None).unwrap_err();
    assert!(error.to_string().contains("uncompressed length"), "{error}");
    bytes[53 + 36..53 + 40].copy_from_slice(&((64_i32 << 20) + 1).to_le_bytes());
    bytes[53 + 47] = 2;
    assert!(Batch::decode(bytes.freeze(), None).is_err());
}

#[test]
fn what_unpacks_to_more_than_it_says_is_corrupt() {
    for compression in [Compression::LZ4, Compression::ZSTD] {
        // 32 MiB of zeros in a few KiB, or of a few bytes.
        let mut packed = BytesMut::new();
        encode_raw(&options(compression), &vec![0; 32 << 20], &mut packed).unwrap();
        let head = sbp_record::inspect(&[packed.clone().freeze()], true).unwrap();
        assert!(head.body_length < 256 << 10, "{compression:?}: {}", head.body_length);
        let body = &packed[head.head_length..head.head_length + head.body_length];
        for promised in [0_i32, 1, 1_000, (32 << 20) - 1] {
            let mut bytes = BytesMut::from(&wrap(body, 1, 1, 0)[..]);
            bytes[53 + 47] = if compression == Compression::ZSTD { 2 } else { 1 };
            bytes[53 + 36..53 + 40].copy_from_slice(&promised.to_le_bytes());
            let taken = Batch::decode(bytes.freeze(), None).and_then(|batch| {
                let value = batch.payloads()?.next().unwrap().unwrap();
                Ok(value.len())
            });
            assert!(taken.is_err(), "{compression:?}, {promised}: {taken:?}");
        }
    }
}

#[test]
fn a_count_that_the_body_is_too_small_for() {
    // An index without buffers: every record is null, so any count fits its rules.
    let body = |count: i32| [&count.to_le_bytes()[..], &[0; 108]].concat();
    let decode = |count| Batch::decode(wrap(&body(count), 2, count, 0), None);
    assert_eq!(decode(60_000).unwrap().record_count(), 60_000);
    for count in [100_000, i32::MAX] {
        let error = decode(count).unwrap_err();
        assert!(error.to_string().contains("record count"), "{error}");
    }
}
