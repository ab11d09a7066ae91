//! Canonical form, fingerprint, and the casts that refusals name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};

use super::StreamSchema;
use crate::error::SchemaError;

fn schema(fields: Vec<Field>) -> StreamSchema {
    StreamSchema::from_arrow(&Schema::new(fields)).unwrap()
}

fn nested() -> Vec<Field> {
    vec![
        Field::new("id", DataType::Int64, false),
        Field::new("tags", DataType::new_list(DataType::Utf8, true), true),
        Field::new("paid", DataType::Decimal128(9, 2), true),
    ]
}

#[test]
fn canonical_form_byte_for_byte() {
    let expected = [
        &[0, 0, 0, 2][..],
        b"id",
        &[0, 0, 0, 5],
        b"int64",
        &[0, 0, 0, 0, 0],
        &[0, 0, 0, 4],
        b"tags",
        &[0, 0, 0, 4],
        b"list",
        &[1, 0, 0, 0, 1],
        &[0, 0, 0, 4],
        b"item",
        &[0, 0, 0, 6],
        b"string",
        &[1, 0, 0, 0, 0],
        &[0, 0, 0, 4],
        b"paid",
        &[0, 0, 0, 15],
        b"decimal128(9,2)",
        &[1, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(schema(nested()).canonical(), expected);
}

#[test]
fn fingerprints_are_what_sha256_says() {
    // Computed from the canonical bytes by Python's hashlib.
    let whole = schema(nested());
    assert_eq!(whole.prefix_with_fingerprint(GOLDEN_ID), Some(1));
    assert_eq!(whole.fingerprint(), GOLDEN_ALL);
    assert_eq!(whole.prefix_with_fingerprint(GOLDEN_ALL), Some(3));
    assert_eq!(whole.prefix_with_fingerprint(0), None);
}

const GOLDEN_ID: u64 = 0xf888_b7eb_050e_fa27;
const GOLDEN_ALL: u64 = 0xade4_c2a6_6330_f345;

#[test]
fn metadata_does_not_count() {
    let note = HashMap::from([("note".to_owned(), "x".to_owned())]);
    let fields: Vec<Field> = nested()
        .into_iter()
        .map(|field| field.with_metadata(note.clone()))
        .collect();
    let noted = StreamSchema::from_arrow(&Schema::new_with_metadata(fields, note)).unwrap();
    assert_eq!(noted, schema(nested()));
    assert_eq!(noted.arrow(), schema(nested()).arrow());
}

#[test]
fn only_nullable_columns_at_the_end_extend_a_schema() {
    let old = schema(nested());
    let with = |field: Field| schema(nested().into_iter().chain([field]).collect());
    let wider = with(Field::new("added", DataType::Boolean, true));
    assert!(wider.is_extension_of(&old) && old.is_extension_of(&old));
    assert!(!old.is_extension_of(&wider));
    assert!(!with(Field::new("added", DataType::Boolean, false)).is_extension_of(&old));
    let mut first = nested();
    first.insert(0, Field::new("added", DataType::Boolean, true));
    assert!(!schema(first).is_extension_of(&old));
    // Batches of the old schema go with the new one, and not the other way round.
    assert_eq!(wider.prefix_with_fingerprint(old.fingerprint()), Some(3));
    assert_eq!(old.prefix_with_fingerprint(wider.fingerprint()), None);
}

#[test]
fn refusals_name_the_column_and_the_cast() {
    let list = |data_type| Arc::new(Field::new("item", data_type, true));
    for (data_type, cast) in [
        (DataType::LargeUtf8, "string"),
        (DataType::Utf8View, "string"),
        (DataType::LargeBinary, "binary"),
        (DataType::BinaryView, "binary"),
        (DataType::FixedSizeBinary(16), "binary"),
        (DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp('us')"),
        (
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            "timestamp('us', tz='UTC')",
        ),
        (
            DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Paris".into())),
            "timestamp('us', tz='UTC')",
        ),
        (
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            "its value type, string",
        ),
        (
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::LargeUtf8)),
            "its value type, string",
        ),
        (DataType::UInt8, "int16"),
        (DataType::UInt16, "int32"),
        (DataType::UInt32, "int64"),
        (DataType::UInt64, "decimal128(20, 0)"),
        (DataType::Float16, "float32"),
        (DataType::Date64, "date32"),
        (DataType::Time64(TimeUnit::Microsecond), "int64"),
        (DataType::Duration(TimeUnit::Second), "int64"),
        (DataType::Interval(IntervalUnit::YearMonth), "int64"),
        (DataType::Decimal256(40, 2), "decimal128"),
        (DataType::Decimal128(5, 6), "decimal128"),
        (DataType::Decimal128(5, -1), "decimal128"),
        (DataType::LargeList(list(DataType::Int64)), "list_(Int64)"),
        (DataType::FixedSizeList(list(DataType::Int64), 3), "list_(Int64)"),
        (DataType::Null, "the type"),
    ] {
        let fields = vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", data_type.clone(), true),
        ];
        let error = StreamSchema::from_arrow(&Schema::new(fields)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, SchemaError::Type { .. }), "{text}");
        assert!(
            text.starts_with("column \"b\": ") && text.contains(&format!("cast it to {cast}")),
            "{text}"
        );
    }
}

#[test]
fn refusals_tell_the_path_of_nested_columns() {
    let inner = Field::new("inner", DataType::LargeUtf8, true);
    let fields = vec![Field::new("outer", DataType::Struct(vec![inner].into()), true)];
    let error = StreamSchema::from_arrow(&Schema::new(fields)).unwrap_err();
    assert!(error.to_string().starts_with("column \"outer.inner\":"), "{error}");
}

#[test]
fn shapes_that_are_no_schema() {
    let shape = |fields: Vec<Field>| StreamSchema::from_arrow(&Schema::new(fields)).unwrap_err().to_string();
    assert!(shape(Vec::new()).contains("no columns"));
    let twice = || Field::new("x", DataType::Int64, true);
    assert!(shape(vec![twice(), twice()]).contains("two columns named \"x\""));
    assert!(
        shape(vec![Field::new(
            "s",
            DataType::Struct(Vec::<Field>::new().into()),
            true
        )])
        .contains("no columns")
    );
    let deep = (0..20).fold(DataType::Int64, |inner, _| DataType::new_list(inner, true));
    assert!(shape(vec![Field::new("deep", deep, true)]).contains("nested deeper"));
    let wide: Vec<Field> = (0..5_000)
        .map(|n| Field::new(format!("c{n}"), DataType::Int64, true))
        .collect();
    assert!(shape(wide).contains("more than 4096 fields"));
}

#[test]
fn batches_may_lack_nullable_columns_at_the_end() {
    let schema = |nullable: &[bool]| {
        let fields: Vec<_> = nullable
            .iter()
            .enumerate()
            .map(|(place, nullable)| Field::new(format!("c{place}"), DataType::Int64, *nullable))
            .collect();
        StreamSchema::from_arrow(&Schema::new(fields)).unwrap()
    };
    for (columns, accepted) in [
        (&[false][..], 1),
        (&[true], 1),
        (&[false, true, true], 3),
        (&[true, false, true], 2),
        (&[true, true, false], 1),
    ] {
        let whole = schema(columns);
        let fingerprints: Vec<_> = whole.accepted_fingerprints().collect();
        assert_eq!(fingerprints.len(), accepted, "{columns:?}");
        assert_eq!(fingerprints.first(), Some(&whole.fingerprint()));
        for (missing, fingerprint) in fingerprints.iter().enumerate() {
            assert_eq!(
                whole.prefix_with_fingerprint(*fingerprint),
                Some(columns.len() - missing)
            );
        }
    }
}
