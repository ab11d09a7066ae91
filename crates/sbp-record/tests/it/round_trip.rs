//! What is written is what is read, for every encoding and compression, wherever the bytes lie.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Fields, Schema};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sbp_record::{Batch, Compression, EncodeError, StreamSchema, encode_arrow, encode_raw, split_batches};
use sbp_types::{Offset, TimestampMs};

use crate::support::{BASE_MS, Row, cases, consume, encode_rows, options, rows_of, stamp, with_times};

pub(crate) fn row() -> impl Strategy<Value = Row> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..12);
    let header = ("[a-z\u{e4}]{0,4}", prop::option::of(bytes()));
    (
        prop::option::of(-1_000_000_000_000_i64..4_000_000_000_000_000),
        prop::option::of(bytes()),
        prop::option::weighted(0.8, bytes()),
        prop::collection::vec(header, 0..3),
    )
        .prop_map(|(time, key, value, headers)| Row {
            time,
            key,
            value,
            headers,
        })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(Compression::NONE), Just(Compression::LZ4), Just(Compression::ZSTD)]
}

/// The bytes at `shift` bytes from where they could be used as they are.
fn misplaced(bytes: &[u8], shift: usize) -> Bytes {
    let mut room = vec![0; bytes.len() + 64];
    let from = room.as_ptr().align_offset(16) + shift;
    room[from..from + bytes.len()].copy_from_slice(bytes);
    Bytes::from(room).slice(from..from + bytes.len())
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn records(rows in prop::collection::vec(row(), 1..40), compression in compression(), shift in 0_usize..16) {
        let mut bytes = encode_rows(&rows, &options(compression));
        prop_assert_eq!(bytes.len() % 16, 0);
        stamp(&mut bytes, 1_000);
        let batch = Batch::decode(misplaced(&bytes, shift), None).unwrap();
        prop_assert_eq!(batch.base_offset(), Offset(1_000));
        prop_assert_eq!(rows_of(&batch), with_times(&rows));
        let latest = with_times(&rows).iter().filter_map(|row| row.time).max().unwrap();
        prop_assert_eq!(batch.head().meta.max_timestamp.0, latest.div_euclid(1_000));
        consume(&batch).unwrap();
        if shift == 0 && batch.head().meta.compression == Compression::NONE {
            prop_assert_eq!(batch.copied_bytes(), 0);
        }
    }

    #[test]
    fn raw(body in prop::collection::vec(any::<u8>(), 0..300), compression in compression(), shift in 0_usize..16) {
        let mut bytes = BytesMut::new();
        encode_raw(&options(compression), &body, &mut bytes).unwrap();
        let batch = Batch::decode(misplaced(&bytes, shift), None).unwrap();
        prop_assert_eq!(rows_of(&batch), with_times(&[Row::value(&body)]));
        consume(&batch).unwrap();
    }

    #[test]
    fn columns(from in 0_usize..6, rows in 1_usize..6, compression in compression(), shift in 0_usize..16) {
        let all = every_type();
        let part = all.slice(from.min(all.num_rows() - 1), rows.min(all.num_rows() - from.min(all.num_rows() - 1)));
        let schema = StreamSchema::from_arrow(all.schema_ref()).unwrap();
        let mut bytes = BytesMut::new();
        encode_arrow(&options(compression), &schema, &part, &mut bytes).unwrap();
        prop_assert_eq!(bytes.len() % 16, 0);
        let batch = Batch::decode(misplaced(&bytes, shift), Some(&schema)).unwrap();
        let read = batch.to_record_batch(Offset(0), Offset(i64::MAX)).unwrap();
        prop_assert_eq!(read.columns(), part.columns());
        consume(&batch).unwrap();
        if shift == 0 && compression == Compression::NONE {
            prop_assert_eq!(batch.copied_bytes(), 0);
        }
    }

    #[test]
    fn payloads_of_many_batches(batches in prop::collection::vec(prop::collection::vec(row(), 1..4), 0..6)) {
        let mut payload = BytesMut::new();
        let mut offset = 5;
        for rows in &batches {
            let mut bytes = encode_rows(rows, &options(Compression::NONE));
            stamp(&mut bytes, offset);
            offset += i64::try_from(rows.len()).unwrap();
            payload.extend_from_slice(&bytes);
        }
        let payload = payload.freeze();
        let read: Vec<Batch> = split_batches(&payload).map(|bytes| Batch::decode(bytes.unwrap(), None).unwrap()).collect();
        prop_assert_eq!(read.len(), batches.len());
        let mut next = Offset(5);
        for (batch, rows) in read.iter().zip(&batches) {
            prop_assert_eq!(batch.base_offset(), next);
            prop_assert_eq!(rows_of(batch), with_times(rows));
            next = batch.end_offset();
        }
        let split: Vec<Bytes> = split_batches(&payload).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(split.concat(), payload);
    }
}

/// A column of every type that streams carry, with nulls, six rows.
pub(crate) fn every_type() -> RecordBatch {
    let pick = |n: i64| (n % 3 != 1).then_some(n);
    let some = |n: i64| pick(n).is_some();
    let n = 0..6_i64;
    let texts = || StringArray::from_iter(n.clone().map(|n| pick(n).map(|n| "\u{e4}b".repeat(n as usize))));
    let mut list = ListBuilder::new(StringBuilder::new());
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for n in n.clone() {
        list.append_option(pick(n).map(|n| (0..n).map(|n| some(n).then(|| n.to_string())).collect::<Vec<_>>()));
        map.keys().append_value(n.to_string());
        map.values().append_option(pick(n).map(|n| n.to_string()));
        map.append(some(n + 1)).unwrap();
    }
    let fields = Fields::from(vec![
        Field::new("a", DataType::Utf8, true),
        Field::new("b", DataType::Int16, true),
    ]);
    let parts: Vec<ArrayRef> = vec![
        Arc::new(texts()),
        Arc::new(Int16Array::from_iter(n.clone().map(|n| pick(n + 1).map(|n| n as i16)))),
    ];
    let validity = n.clone().map(some).collect::<Vec<bool>>();
    let nested = StructArray::try_new(fields, parts, Some(validity.into())).unwrap();
    let decimals = Decimal128Array::from_iter(n.clone().map(|n| pick(n).map(i128::from)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "bool",
            Arc::new(BooleanArray::from_iter(n.clone().map(|n| pick(n).map(|n| n % 2 == 0)))),
        ),
        (
            "int8",
            Arc::new(Int8Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as i8)))),
        ),
        (
            "int16",
            Arc::new(Int16Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as i16)))),
        ),
        (
            "int32",
            Arc::new(Int32Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as i32)))),
        ),
        ("int64", Arc::new(Int64Array::from_iter(n.clone().map(pick)))),
        (
            "float32",
            Arc::new(Float32Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as f32)))),
        ),
        (
            "float64",
            Arc::new(Float64Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as f64)))),
        ),
        ("decimal", Arc::new(decimals.with_precision_and_scale(12, 3).unwrap())),
        (
            "date",
            Arc::new(Date32Array::from_iter(n.clone().map(|n| pick(n).map(|n| n as i32)))),
        ),
        (
            "local",
            Arc::new(TimestampMicrosecondArray::from_iter(n.clone().map(pick))),
        ),
        (
            "instant",
            Arc::new(TimestampMicrosecondArray::from_iter(n.clone().map(pick)).with_timezone("UTC")),
        ),
        ("string", Arc::new(texts())),
        (
            "binary",
            Arc::new(BinaryArray::from_iter(
                n.clone().map(|n| pick(n).map(|n| vec![7; n as usize])),
            )),
        ),
        ("list", Arc::new(list.finish())),
        ("struct", Arc::new(nested)),
        ("map", Arc::new(map.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

#[test]
fn a_batch_written_before_a_column_was_added_reads_null() {
    let old = every_type().project(&[3, 11]).unwrap();
    let mut fields: Vec<Field> = old
        .schema()
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    let older = StreamSchema::from_arrow(old.schema_ref()).unwrap();
    fields.push(Field::new_list(
        "added",
        Field::new("item", DataType::Int64, true),
        true,
    ));
    let newer = StreamSchema::from_arrow(&Schema::new(fields)).unwrap();

    let (mut by_older, mut by_newer) = (BytesMut::new(), BytesMut::new());
    encode_arrow(&options(Compression::NONE), &older, &old, &mut by_older).unwrap();
    encode_arrow(&options(Compression::NONE), &newer, &old, &mut by_newer).unwrap();
    assert_eq!(by_older, by_newer);

    let batch = Batch::decode(by_older.freeze(), Some(&newer)).unwrap();
    let read = batch.to_record_batch(Offset(1), Offset(4)).unwrap();
    assert_eq!(read.schema_ref(), newer.arrow());
    assert_eq!(read.project(&[0, 1]).unwrap().columns(), old.slice(1, 3).columns());
    assert_eq!(read.column(2).null_count(), 3);
}

#[test]
fn columns_that_differ_are_refused_with_the_cast_to_use() {
    let data = every_type().project(&[3, 11]).unwrap();
    let schema = StreamSchema::from_arrow(data.schema_ref()).unwrap();
    let mut out = BytesMut::from(&b"before"[..]);
    let mut refuse = |columns: Vec<(&str, ArrayRef)>| {
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let error = encode_arrow(&options(Compression::NONE), &schema, &columns, &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::Schema(_)));
        assert_eq!(out, b"before"[..]);
        error.to_string()
    };
    let int64: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let int32: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    assert_eq!(
        refuse(vec![("int32", Arc::clone(&int64)), ("string", Arc::clone(&text))]),
        "column \"int32\": int32 is wanted, the data has int64; cast it to int32"
    );
    assert!(refuse(vec![("string", Arc::clone(&text)), ("int32", Arc::clone(&int32))]).contains("in its order"));
    assert!(refuse(vec![("int32", int32), ("string", Arc::clone(&text)), ("more", text)]).contains("\"more\""));
}

#[test]
fn nulls_where_the_stream_allows_none() {
    let strict = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let schema = StreamSchema::from_arrow(&strict).unwrap();
    let column = |values: Vec<Option<i64>>| {
        let array: ArrayRef = Arc::new(Int64Array::from(values));
        RecordBatch::try_from_iter_with_nullable([("n", array, true)]).unwrap()
    };
    let mut out = BytesMut::new();
    encode_arrow(&options(Compression::NONE), &schema, &column(vec![Some(1)]), &mut out).unwrap();
    let error = encode_arrow(&options(Compression::NONE), &schema, &column(vec![None]), &mut out).unwrap_err();
    assert!(error.to_string().contains("fill or drop"), "{error}");
}

#[test]
fn trimming_keeps_only_the_offsets_asked_for() {
    let rows: Vec<Row> = (0..20_u8)
        .map(|n| Row {
            key: (n % 2 == 0).then(|| vec![n]),
            ..Row::value(&[n; 3])
        })
        .collect();
    let mut bytes = encode_rows(&rows, &options(Compression::NONE));
    stamp(&mut bytes, 100);
    let batch = Batch::decode(bytes.freeze(), None).unwrap();
    for (from, to, expected) in [
        (0, 1_000, 0..20),
        (103, 107, 3..7),
        (119, 120, 19..20),
        (120, 130, 0..0),
        (110, 105, 0..0),
    ] {
        let (from, to) = (Offset(from), Offset(to));
        let kept: Vec<_> = batch
            .records()
            .unwrap()
            .between(from, to)
            .map(|record| record.value.unwrap().to_vec())
            .collect();
        assert_eq!(
            kept,
            rows[expected.clone()]
                .iter()
                .filter_map(|row| row.value.clone())
                .collect::<Vec<_>>()
        );
        assert_eq!(batch.payloads().unwrap().between(from, to).count(), expected.len());
        let columns = batch.to_record_batch(from, to).unwrap();
        assert_eq!(
            (columns.num_rows(), columns.schema()),
            (expected.len(), Batch::record_schema())
        );
    }
}

#[test]
fn a_batch_that_is_too_large_is_refused_and_nothing_is_written() {
    let mut out = BytesMut::new();
    let body = vec![0; sbp_record::MAX_BATCH_LENGTH];
    assert!(matches!(
        encode_raw(&options(Compression::NONE), &body, &mut out),
        Err(EncodeError::TooLarge { .. })
    ));
    assert!(out.is_empty());
    // Zeros shrink, and then they fit.
    encode_raw(&options(Compression::LZ4), &body, &mut out).unwrap();
    let batch = Batch::decode(out.freeze(), None).unwrap();
    assert_eq!(batch.copied_bytes(), body.len());
}

#[test]
fn the_body_of_an_arrow_message_begins_at_a_multiple_of_16() {
    let all = every_type();
    for columns in [1, 2, 5, 16] {
        let part = all.project(&(0..columns).collect::<Vec<_>>()).unwrap();
        let schema = StreamSchema::from_arrow(part.schema_ref()).unwrap();
        let mut bytes = BytesMut::from(&b"something before"[..]);
        encode_arrow(&options(Compression::NONE), &schema, &part, &mut bytes).unwrap();
        let batch = &bytes[16..];
        assert_eq!(batch[112..116], [0xff; 4]);
        let metadata = i32::from_le_bytes(batch[116..120].try_into().unwrap());
        assert_eq!((112 + 8 + metadata) % 16, 0);
    }
}

#[test]
fn records_are_found_by_time() {
    let at = |time: Option<i64>| Row {
        time,
        ..Row::value(b"x")
    };
    let rows = [at(Some(5_000)), at(Some(3_999)), at(Some(7_001)), at(Some(7_000))];
    let mut bytes = encode_rows(&rows, &options(Compression::NONE));
    stamp(&mut bytes, 10);
    let batch = Batch::decode(bytes.freeze(), None).unwrap();
    for (time, offset) in [(0, 10), (5, 10), (6, 12), (7, 12), (8, 14)] {
        assert_eq!(batch.first_offset_at(TimestampMs(time)), Offset(offset), "{time} ms");
    }
    let mut bytes = BytesMut::new();
    encode_raw(&options(Compression::NONE), b"x", &mut bytes).unwrap();
    let batch = Batch::decode(bytes.freeze(), None).unwrap();
    assert_eq!(batch.first_offset_at(TimestampMs(BASE_MS)), Offset(0));
    assert_eq!(batch.first_offset_at(TimestampMs(BASE_MS + 1)), Offset(1));
}
