//! What JSON lacks and records have: bytes that are no text. They are written in base 16, under names that end with
//! `_hex`, and read back from there.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};

use crate::error::CliError;

const SUFFIX: &str = "_hex";

/// Text as text, other bytes in base 16 under a name that says so.
pub(crate) fn insert_bytes(line: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else {
        line.insert(name.to_owned(), Value::Null);
        return;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => line.insert(name.to_owned(), text.into()),
        Err(_not_text) => line.insert(format!("{name}{SUFFIX}"), hex::encode(bytes).into()),
    };
}

/// What [`insert_bytes`] wrote under this name, taken out. The outer `None`: nothing; the inner one: a null.
///
/// # Errors
/// What is there is no text, or no base 16.
pub(crate) fn take_bytes(line: &mut Map<String, Value>, name: &str) -> Result<Option<Option<Vec<u8>>>, String> {
    if let Some(value) = line.remove(&format!("{name}{SUFFIX}")) {
        let bytes = value.as_str().and_then(|text| hex::decode(text).ok());
        return bytes
            .map(|bytes| Some(Some(bytes)))
            .ok_or_else(|| format!("{name}{SUFFIX} is not base 16"));
    }
    match line.remove(name) {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(None)),
        Some(Value::String(text)) => Ok(Some(Some(text.into_bytes()))),
        Some(_) => Err(format!("{name} is neither text nor null")),
    }
}

/// The name that a column has in JSON. No other column of the schema has it.
fn json_name(field: &Field, schema: &Schema) -> String {
    let marked = format!("{}{SUFFIX}", field.name());
    let is_marked = field.data_type() == &DataType::Binary && schema.column_with_name(&marked).is_none();
    if is_marked { marked } else { field.name().clone() }
}

/// The columns of a stream with the names that they have in JSON, and all times in UTC.
pub(crate) fn json_schema(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let name = json_name(field, schema);
        field
            .as_ref()
            .clone()
            .with_name(name)
            .with_data_type(in_utc(field.data_type()))
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The type with the offset of UTC for every time zone: without a database of zones their names cannot be read.
fn in_utc(data_type: &DataType) -> DataType {
    let field = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(in_utc(field.data_type())));
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(item) => DataType::List(field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        other => other.clone(),
    }
}

/// The rows with [these columns](json_schema).
pub(crate) fn in_json_schema(rows: &RecordBatch) -> Result<RecordBatch, CliError> {
    let schema = json_schema(rows.schema_ref());
    let columns = rows.columns().iter().zip(schema.fields());
    let columns: Result<Vec<_>, _> = columns.map(|(column, field)| cast(column, field.data_type())).collect();
    let rows = columns.and_then(|columns| RecordBatch::try_new(Arc::new(schema), columns));
    rows.map_err(CliError::columns)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::{insert_bytes, take_bytes};

    #[test]
    fn what_is_written_is_read_back() {
        for bytes in [None, Some(&b"text"[..]), Some(b""), Some(b"\xff\x00\x10")] {
            let mut line = Map::new();
            insert_bytes(&mut line, "value", bytes);
            assert_eq!(take_bytes(&mut line, "value"), Ok(Some(bytes.map(<[u8]>::to_vec))));
            assert_eq!(take_bytes(&mut line, "value"), Ok(None));
        }
    }

    #[test]
    fn other_values_are_refused() {
        for wrong in [
            r#"{"value": 1}"#,
            r#"{"value_hex": "abc"}"#,
            r#"{"value_hex": "zz"}"#,
            r#"{"value_hex": 7}"#,
        ] {
            let mut line: Map<_, _> = serde_json::from_str(wrong).unwrap();
            assert!(take_bytes(&mut line, "value").is_err(), "{wrong}");
        }
    }
}
