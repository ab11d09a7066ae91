//! Coalescing: the rows that go in are the rows that come out, in record batches of the promised sizes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use bytes::BytesMut;
use proptest::prelude::*;
use sbp_record::{
    AssemblyLimits, Batch, BatchError, ColumnSet, Compression, RowAssembler, Source, StreamSchema, encode_arrow,
    encode_raw,
};
use sbp_types::{Offset, StreamId};

use crate::round_trip::{every_type, row};
use crate::support::{Row, cases, encode_rows, options, rows_of, stamp};

fn source(name: &str, id: i64) -> Source {
    Source {
        name: name.into(),
        id: StreamId(id),
    }
}

fn decode_rows(rows: &[Row], base: i64) -> Batch {
    let mut bytes = match rows {
        [
            Row {
                time: None,
                key: None,
                value: Some(value),
                headers,
            },
        ] if headers.is_empty() => {
            let mut out = BytesMut::new();
            encode_raw(&options(Compression::NONE), value, &mut out).unwrap();
            out
        }
        rows => encode_rows(rows, &options(Compression::NONE)),
    };
    stamp(&mut bytes, base);
    Batch::decode(bytes.freeze(), None).unwrap()
}

fn drain(assembler: &mut RowAssembler) -> Vec<RecordBatch> {
    std::iter::from_fn(|| assembler.poll_batch()).collect()
}

/// Arrays begin at their own offset 0, down to the children.
fn assert_from_zero(array: &dyn Array) {
    let data = array.to_data();
    data.validate_full().unwrap();
    assert_eq!(data.offset(), 0);
    assert!(data.nulls().is_none_or(|nulls| nulls.offset() == 0));
    match array.data_type() {
        arrow_schema::DataType::Utf8 => assert_eq!(array.as_string::<i32>().value_offsets()[0], 0),
        arrow_schema::DataType::Binary => assert_eq!(array.as_binary::<i32>().value_offsets()[0], 0),
        arrow_schema::DataType::List(_) => {
            assert_eq!(array.as_list::<i32>().value_offsets()[0], 0);
            assert_from_zero(array.as_list::<i32>().values());
        }
        arrow_schema::DataType::Struct(_) => {
            array
                .as_struct()
                .columns()
                .iter()
                .for_each(|child| assert_from_zero(child));
        }
        _ => {}
    }
}

/// One row as the record columns show it: stream, id, offset, and the record.
type Shown = (String, i64, i64, Row);

fn shown(batch: &RecordBatch) -> Vec<Shown> {
    let column = |name| batch.column_by_name(name).unwrap();
    let headers = column("headers").as_list::<i32>();
    (0..batch.num_rows())
        .map(|row| {
            let bytes = |name| {
                let array = column(name).as_binary::<i32>();
                array.is_valid(row).then(|| array.value(row).to_vec())
            };
            let items = headers.value(row);
            let items = items.as_struct();
            let (names, values) = (items.column(0).as_string::<i32>(), items.column(1).as_binary::<i32>());
            let headers = (0..items.len())
                .map(|item| {
                    (
                        names.value(item).to_owned(),
                        values.is_valid(item).then(|| values.value(item).to_vec()),
                    )
                })
                .collect();
            let record = Row {
                time: Some(
                    column("timestamp")
                        .as_primitive::<TimestampMicrosecondType>()
                        .value(row),
                ),
                key: bytes("key"),
                value: bytes("value"),
                headers,
            };
            (
                column("stream").as_string::<i32>().value(row).to_owned(),
                column("stream_id").as_primitive::<Int64Type>().value(row),
                column("offset").as_primitive::<Int64Type>().value(row),
                record,
            )
        })
        .collect()
}

fn batches() -> impl Strategy<Value = Vec<(bool, Vec<Row>, usize, usize)>> {
    let rows = prop_oneof![
        3 => prop::collection::vec(row(), 1..6),
        1 => prop::collection::vec(row(), 6..60),
    ];
    prop::collection::vec((any::<bool>(), rows, 0_usize..4, 0_usize..4), 1..14)
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn rows_in_are_rows_out(batches in batches(), max_bytes in prop_oneof![Just(64_usize), Just(400), Just(1 << 20)]) {
        let limits = AssemblyLimits { min_rows: 8, max_rows: 20, max_bytes };
        let mut assembler = RowAssembler::with_limits(ColumnSet::records(true), limits);
        let mut expected: Vec<Shown> = Vec::new();
        let mut next = 10_i64;
        for (second, rows, skip, leave) in &batches {
            let batch = decode_rows(rows, next);
            let source = if *second { source("two", 2) } else { source("a/one", 1) };
            let from = next + i64::try_from(*skip).unwrap();
            let to = batch.end_offset().0 - i64::try_from(*leave).unwrap();
            let all = (next..).zip(rows_of(&batch)).filter(|(offset, _)| (from..to).contains(offset));
            let all: Vec<Shown> =
                all.map(|(offset, row)| (source.name.to_string(), source.id.0, offset, row)).collect();
            prop_assert_eq!(assembler.push(&source, &batch, Offset(from), Offset(to)).unwrap(), all.len());
            expected.extend(all);
            next = batch.end_offset().0;
        }
        assembler.flush().unwrap();
        prop_assert_eq!(assembler.pending_rows(), 0);
        let out = drain(&mut assembler);
        for batch in &out {
            prop_assert!((1..=limits.max_rows).contains(&batch.num_rows()));
            prop_assert_eq!(batch.schema_ref(), assembler.schema());
            batch.columns().iter().for_each(|column| assert_from_zero(column));
        }
        prop_assert_eq!(out.iter().flat_map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn typed_rows_in_are_rows_out(parts in prop::collection::vec((0_usize..6, 1_usize..7, 0_i64..3), 1..12)) {
        let all = every_type();
        let schema = StreamSchema::from_arrow(all.schema_ref()).unwrap();
        let set = ColumnSet::arrow(&schema, true).unwrap();
        let limits = AssemblyLimits { min_rows: 4, max_rows: 9, max_bytes: 4_000 };
        let mut assembler = RowAssembler::with_limits(set, limits);
        let mut expected = Vec::new();
        let mut next = 0_i64;
        for (from, rows, skip) in parts {
            let part = all.slice(from, rows.min(6 - from));
            let mut bytes = BytesMut::new();
            encode_arrow(&options(Compression::NONE), &schema, &part, &mut bytes).unwrap();
            stamp(&mut bytes, next);
            let batch = Batch::decode(bytes.freeze(), Some(&schema)).unwrap();
            let first = next + skip;
            let taken = assembler.push(&source("s", 1), &batch, Offset(first), Offset::from(i64::MAX)).unwrap();
            expected.push(part.slice(part.num_rows() - taken, taken));
            next = batch.end_offset().0;
        }
        assembler.flush().unwrap();
        let out = drain(&mut assembler);
        for batch in &out {
            prop_assert!((1..=limits.max_rows).contains(&batch.num_rows()));
            batch.columns().iter().for_each(|column| assert_from_zero(column));
        }
        let out = concat_batches(assembler.schema(), &out).unwrap();
        let expected = concat_batches(all.schema_ref(), &expected).unwrap();
        prop_assert_eq!(out.num_rows(), expected.num_rows());
        for (name, column) in expected.schema().fields().iter().map(|field| field.name()).zip(expected.columns()) {
            let read = out.column_by_name(name).unwrap();
            for row in 0..expected.num_rows() {
                // Inner names and nullability differ by design, values do not.
                let text = |array: &dyn Array| format!("{:?}", array.slice(row, 1));
                let (read, written) = (text(read), text(column));
                prop_assert_eq!(inner_names(&read), inner_names(&written), "row {} of {}", row, name);
            }
        }
    }
}

/// The text of an array without what Spark calls otherwise.
fn inner_names(text: &str) -> String {
    text.replace("\"keys\"", "\"key\"").replace("\"values\"", "\"value\"")
}

fn many(count: usize) -> Vec<Row> {
    (0..count)
        .map(|n| Row::value(format!("value {n}").as_bytes()))
        .collect()
}

fn pushed(set: ColumnSet, counts: &[usize]) -> RowAssembler {
    let mut assembler = RowAssembler::new(set);
    let mut next = 0;
    for count in counts {
        let batch = decode_rows(&many(*count), next);
        next = batch.end_offset().0;
        assembler
            .push(&source("s", 1), &batch, Offset(0), Offset(i64::MAX))
            .unwrap();
    }
    assembler
}

fn sizes(assembler: &mut RowAssembler) -> Vec<usize> {
    drain(assembler).iter().map(RecordBatch::num_rows).collect()
}

#[test]
fn small_batches_are_collected_and_large_ones_cut() {
    let mut assembler = pushed(ColumnSet::records(false), &[1_000; 20]);
    assert_eq!(sizes(&mut assembler), [16_384]);
    assert_eq!(assembler.pending_rows(), 20_000 - 16_384);
    assembler.flush().unwrap();
    assert_eq!(sizes(&mut assembler), [20_000 - 16_384]);

    let mut assembler = pushed(ColumnSet::records(false), &[40_000, 10]);
    assert_eq!(sizes(&mut assembler), [16_384, 16_384, 40_000 - 2 * 16_384]);
    assembler.flush().unwrap();
    assert_eq!(sizes(&mut assembler), [10]);

    // A few rows before a large batch are filled up first, so that no small record batch is left in between.
    let mut assembler = pushed(ColumnSet::records(false), &[10, 10_000]);
    assert_eq!(sizes(&mut assembler), [4_096, 10_010 - 4_096]);
}

#[test]
fn large_batches_go_out_without_a_copy() {
    let assembler = pushed(ColumnSet::records(true), &[40_000]);
    assert_eq!(assembler.copied_bytes(), 0);
    let batch = decode_rows(&many(5_000), 0);
    let mut assembler = RowAssembler::new(ColumnSet::records(false));
    assembler
        .push(&source("s", 1), &batch, Offset(0), Offset(5_000))
        .unwrap();
    let out = assembler.poll_batch().unwrap();
    let value = out.column_by_name("value").unwrap().as_binary::<i32>();
    let first = batch.records().unwrap().next().unwrap().value.unwrap();
    assert_eq!(value.value(0).as_ptr(), first.as_ptr());
}

#[test]
fn bytes_bound_a_record_batch_too() {
    let mut assembler = RowAssembler::new(ColumnSet::records(false));
    let rows: Vec<Row> = (0..9_u8).map(|n| Row::value(&vec![n; 1_500_000])).collect();
    let batch = decode_rows(&rows, 0);
    assembler.push(&source("s", 1), &batch, Offset(0), Offset(9)).unwrap();
    assert_eq!(sizes(&mut assembler), [2, 2, 2, 2, 1]);
}

#[test]
fn columns_left_out_are_not_decoded() {
    let all = every_type();
    let schema = StreamSchema::from_arrow(all.schema_ref()).unwrap();
    let mut bytes = BytesMut::new();
    encode_arrow(&options(Compression::NONE), &schema, &all, &mut bytes).unwrap();
    // Make the text column invalid, with the right checksum: "äb" loses the second byte of its first letter.
    let text = "\u{e4}b\u{e4}b".as_bytes();
    let body_length = sbp_record::inspect(&[bytes.clone().freeze()], true)
        .unwrap()
        .body_length;
    let mut body = bytes[112..112 + body_length].to_vec();
    let mut broken = 0;
    for at in 0..body.len() - text.len() {
        if body[at..].starts_with(text) {
            body[at + 1] = b'x';
            broken += 1;
        }
    }
    assert!(broken > 0);
    let batch = Batch::decode(crate::support::wrap(&body, 3, 6, schema.fingerprint()), Some(&schema)).unwrap();
    let push = |columns: &[&str]| {
        let set = ColumnSet::arrow(&schema, true).unwrap().project(columns).unwrap();
        RowAssembler::new(set).push(&source("s", 1), &batch, Offset(0), Offset(6))
    };
    assert_eq!(push(&["int64", "_offset", "list"]).unwrap(), 6);
    assert!(matches!(push(&["int64", "string"]), Err(BatchError::Body(_))));
}

#[test]
fn kafka_columns_and_projection() {
    let set = ColumnSet::kafka(false)
        .project(&["timestampType", "offset", "topic", "partition"])
        .unwrap();
    let mut assembler = pushed(set, &[3, 1]);
    assembler.flush().unwrap();
    let out = assembler.poll_batch().unwrap();
    assert_eq!(out.num_rows(), 4);
    let zeros = |name| {
        out.column_by_name(name)
            .unwrap()
            .as_primitive::<arrow_array::types::Int32Type>()
            .values()
            .to_vec()
    };
    assert_eq!((zeros("partition"), zeros("timestampType")), (vec![0; 4], vec![0; 4]));
    assert_eq!(out.column(1).as_primitive::<Int64Type>().values(), &[0, 1, 2, 3]);
    assert!(out.column(2).as_string::<i32>().iter().all(|name| name == Some("s")));
}

#[test]
fn no_columns_still_count_rows() {
    let mut assembler = pushed(ColumnSet::records(false).project::<&str>(&[]).unwrap(), &[5_000, 3]);
    assembler.flush().unwrap();
    assert_eq!(sizes(&mut assembler), [5_000, 3]);
}

#[test]
fn records_and_columns_do_not_mix() {
    let all = every_type();
    let schema = StreamSchema::from_arrow(all.schema_ref()).unwrap();
    let mut bytes = BytesMut::new();
    encode_arrow(&options(Compression::NONE), &schema, &all, &mut bytes).unwrap();
    let typed = Batch::decode(bytes.freeze(), Some(&schema)).unwrap();
    let records = decode_rows(&many(2), 0);
    let mut of_records = RowAssembler::new(ColumnSet::records(false));
    let mut of_columns = RowAssembler::new(ColumnSet::arrow(&schema, false).unwrap());
    let (name, from, to) = (source("s", 1), Offset(0), Offset(9));
    assert!(matches!(
        of_records.push(&name, &typed, from, to),
        Err(BatchError::TypedColumns(_))
    ));
    assert!(matches!(
        of_columns.push(&name, &records, from, to),
        Err(BatchError::TypedColumns(_))
    ));
    assert!(matches!(typed.records(), Err(BatchError::TypedColumns(_))));
    assert!(Arc::ptr_eq(of_columns.schema(), of_columns.columns().schema()));
}

#[test]
fn only_the_columns_asked_for_count_as_bytes() {
    let rows: Vec<Row> = (0..9_u8).map(|n| Row::value(&vec![n; 1_500_000])).collect();
    let batch = decode_rows(&rows, 0);
    let mut assembler = RowAssembler::new(ColumnSet::records(false).project(&["offset"]).unwrap());
    assembler.push(&source("s", 1), &batch, Offset(0), Offset(9)).unwrap();
    assert_eq!(assembler.pending_rows(), 9);
    assert_eq!(assembler.copied_bytes(), 0);
}
