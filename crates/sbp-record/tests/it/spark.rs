//! The types that Spark takes, name by name, and the canonical form of schemas.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use sbp_record::{ColumnSet, StreamSchema};

use crate::round_trip::every_type;

fn described(set: &ColumnSet) -> Vec<String> {
    let fields = set.schema().fields();
    fields
        .iter()
        .map(|field| {
            format!(
                "{}: {}{}",
                field.name(),
                field.data_type(),
                if field.is_nullable() { "" } else { " not null" }
            )
        })
        .collect()
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

#[test]
fn column_sets_have_sparks_types() {
    let item = Field::new_struct(
        "element",
        vec![
            Field::new("key", DataType::Utf8, true),
            Field::new("value", DataType::Binary, true),
        ],
        true,
    );
    let headers = Field::new("headers", DataType::List(Arc::new(item)), true);
    let nullable = |name: &str, data_type| Field::new(name, data_type, true);
    assert_eq!(
        **ColumnSet::records(true).schema(),
        Schema::new(vec![
            nullable("stream", DataType::Utf8),
            nullable("stream_id", DataType::Int64),
            nullable("offset", DataType::Int64),
            nullable("timestamp", utc()),
            nullable("key", DataType::Binary),
            nullable("value", DataType::Binary),
            headers.clone(),
        ])
    );
    assert_eq!(
        **ColumnSet::kafka(true).schema(),
        Schema::new(vec![
            nullable("key", DataType::Binary),
            nullable("value", DataType::Binary),
            nullable("topic", DataType::Utf8),
            nullable("partition", DataType::Int32),
            nullable("offset", DataType::Int64),
            nullable("timestamp", utc()),
            nullable("timestampType", DataType::Int32),
            headers,
        ])
    );
    assert_eq!(ColumnSet::records(false).schema().fields().len(), 6);
    assert_eq!(ColumnSet::kafka(false).schema().fields().len(), 7);
}

#[test]
fn typed_columns_become_nullable_and_get_sparks_inner_names() {
    let inner = Field::new(
        "item",
        DataType::Struct(vec![Field::new("x", DataType::Int64, false)].into()),
        false,
    );
    let entries = Field::new_struct(
        "entries",
        vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int64, false),
        ],
        false,
    );
    let schema = StreamSchema::from_arrow(&Schema::new(vec![
        Field::new("list", DataType::List(Arc::new(inner)), false),
        Field::new("map", DataType::Map(Arc::new(entries), true), false),
    ]))
    .unwrap();
    let element = Field::new(
        "element",
        DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into()),
        true,
    );
    let entries = Field::new_struct(
        "entries",
        vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int64, true),
        ],
        false,
    );
    assert_eq!(
        **ColumnSet::arrow(&schema, true).unwrap().schema(),
        Schema::new(vec![
            Field::new("list", DataType::List(Arc::new(element)), true),
            Field::new("map", DataType::Map(Arc::new(entries), false), true),
            Field::new("_stream", DataType::Utf8, true),
            Field::new("_offset", DataType::Int64, true),
            Field::new("_timestamp", utc(), true),
        ])
    );
}

#[test]
fn projection_is_any_subset_in_any_order() {
    let set = ColumnSet::kafka(false).project(&["offset", "topic", "key"]).unwrap();
    assert_eq!(described(&set), ["offset: Int64", "topic: Utf8", "key: Binary"]);
    assert!(
        ColumnSet::records(false)
            .project::<&str>(&[])
            .unwrap()
            .schema()
            .fields()
            .is_empty()
    );
    let error = ColumnSet::records(false).project(&["headers"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no column \"headers\"; there are stream, stream_id, offset, timestamp, key, value"
    );
    assert!(
        ColumnSet::records(false)
            .project(&["key", "key"])
            .unwrap_err()
            .to_string()
            .contains("twice")
    );
}

#[test]
fn a_stream_with_a_metadata_name_is_read_without_metadata() {
    let schema = StreamSchema::from_arrow(&Schema::new(vec![Field::new("_offset", DataType::Int64, true)])).unwrap();
    assert!(
        ColumnSet::arrow(&schema, true)
            .unwrap_err()
            .to_string()
            .contains("\"_offset\"")
    );
    assert!(ColumnSet::arrow(&schema, false).is_ok());
}

#[test]
fn every_allowed_type_survives_the_ipc_message() {
    let schema = StreamSchema::from_arrow(every_type().schema_ref()).unwrap();
    let message = schema.to_ipc();
    let read = StreamSchema::from_ipc(&message).unwrap();
    assert_eq!(read, schema);
    assert_eq!(read.arrow(), schema.arrow());
    assert_eq!(read.fingerprint(), schema.fingerprint());
    // The form without the continuation marker, as older writers have it.
    assert_eq!(StreamSchema::from_ipc(&message[4..]).unwrap(), schema);
    for length in 0..message.len() {
        let _either = StreamSchema::from_ipc(&message[..length]);
    }
}
