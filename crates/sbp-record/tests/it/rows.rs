//! Records taken from Arrow columns are the records taken one by one.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field};
use bytes::BytesMut;
use proptest::prelude::*;
use sbp_record::{Batch, Compression, RecordColumns, RecordsBuilder};

use crate::round_trip::row;
use crate::support::{Row, cases, encode_rows, options, rows_of, with_times};

fn binary(items: impl Iterator<Item = Option<Vec<u8>>>) -> ArrayRef {
    Arc::new(BinaryArray::from_iter(items))
}

fn headers(rows: &[Row]) -> ArrayRef {
    let fields = vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ];
    let mut lists = ListBuilder::new(StructBuilder::from_fields(fields, 0));
    for row in rows {
        for (name, value) in &row.headers {
            let items = lists.values();
            items.field_builder::<StringBuilder>(0).unwrap().append_value(name);
            items
                .field_builder::<BinaryBuilder>(1)
                .unwrap()
                .append_option(value.as_deref());
            items.append(true);
        }
        // No headers may be an empty list or none at all.
        lists.append(!row.headers.is_empty());
    }
    Arc::new(lists.finish())
}

fn columns(rows: &[Row], with_headers: bool) -> RecordColumns {
    let value = binary(rows.iter().map(|row| row.value.clone()));
    let key = binary(rows.iter().map(|row| row.key.clone()));
    let times: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.time)).with_timezone("Etc/UTC"));
    let headers = with_headers.then(|| headers(rows));
    RecordColumns::new(&value, Some(&key), Some(&times), headers.as_ref()).unwrap()
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn rows_at_once_are_rows_one_by_one(
        mut rows in prop::collection::vec(row(), 1..60),
        with_headers in any::<bool>(),
        cuts in prop::collection::vec(1_usize..20, 0..5),
    ) {
        if !with_headers {
            rows.iter_mut().for_each(|row| row.headers.clear());
        }
        let columns = columns(&rows, with_headers);
        prop_assert_eq!(columns.len(), rows.len());
        let mut builder = RecordsBuilder::new();
        let mut from = 0;
        for step in cuts.into_iter().chain([rows.len()]) {
            let to = (from + step).min(rows.len());
            prop_assert_eq!(builder.push_rows(&columns, from..to, usize::MAX).unwrap(), to - from);
            from = to;
        }
        let mut at_once = BytesMut::new();
        builder.finish(&options(Compression::NONE), &mut at_once).unwrap();
        prop_assert_eq!(at_once, encode_rows(&rows, &options(Compression::NONE)));
    }

    #[test]
    fn a_limit_cuts_rows_into_batches(rows in prop::collection::vec(row(), 1..60), limit in 1_usize..2_000) {
        let columns = columns(&rows, true);
        let mut builder = RecordsBuilder::new();
        let mut read = Vec::new();
        let mut from = 0;
        while from < rows.len() {
            let count = builder.push_rows(&columns, from..rows.len(), limit).unwrap();
            prop_assert!(count > 0);
            from += count;
            let mut out = BytesMut::new();
            builder.finish(&options(Compression::NONE), &mut out).unwrap();
            read.extend(rows_of(&Batch::decode(out.freeze(), None).unwrap()));
        }
        prop_assert_eq!(read, with_times(&rows));
    }
}

#[test]
fn a_full_builder_takes_no_more() {
    let value = binary((0..100).map(|_| Some(vec![1; 100])));
    let columns = RecordColumns::new(&value, None, None, None).unwrap();
    let mut builder = RecordsBuilder::new();
    let first = builder.push_rows(&columns, 0..100, 4_096).unwrap();
    assert!((25..40).contains(&first), "{first}");
    assert!(builder.body_length() <= 4_096);
    assert_eq!(builder.push_rows(&columns, first..100, 4_096).unwrap(), 0);
    assert_eq!(builder.push_rows(&columns, 100..100, 4_096).unwrap(), 0);
}

#[test]
fn text_is_bytes_and_other_types_are_refused_with_the_cast() {
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("\u{e4}")]));
    let columns = RecordColumns::new(&text, None, None, None).unwrap();
    let mut builder = RecordsBuilder::new();
    builder.push_rows(&columns, 0..3, usize::MAX).unwrap();
    let mut out = BytesMut::new();
    builder.finish(&options(Compression::NONE), &mut out).unwrap();
    let values: Vec<_> = rows_of(&Batch::decode(out.freeze(), None).unwrap())
        .into_iter()
        .map(|row| row.value)
        .collect();
    assert_eq!(values, [Some(b"a".to_vec()), None, Some("\u{e4}".as_bytes().to_vec())]);

    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let error = RecordColumns::new(&numbers, None, None, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column \"value\": binary or string is wanted, the data has int64; cast it to binary"
    );
    assert!(RecordColumns::new(&text, None, Some(&numbers), None).is_err());
    assert!(RecordColumns::new(&text, None, None, Some(&numbers)).is_err());
    let short = text.slice(0, 2);
    assert!(
        RecordColumns::new(&text, Some(&short), None, None)
            .unwrap_err()
            .to_string()
            .contains("2 rows")
    );
}
