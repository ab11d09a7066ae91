//! What JSON lacks and records have: bytes that are no text. They are written in base 16, under names that end with
//! `_hex`, and read back from there.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StructArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use serde_json::{Map, Value};

use crate::error::CliError;

const SUFFIX: &str = "_hex";

/// Names of headers and their values, in their order.
pub(crate) type Headers = Vec<(String, Option<Vec<u8>>)>;

/// Text as text, other bytes in base 16 under a name that says so. A name that looks as if it said so already is marked
/// whatever it has.
pub(crate) fn insert_bytes(line: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let looks_marked = name.ends_with(SUFFIX);
    let marked = || format!("{name}{SUFFIX}");
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None if looks_marked => line.insert(marked(), Value::Null),
        None => line.insert(name.to_owned(), Value::Null),
        Some((_, Ok(text))) if !looks_marked => line.insert(name.to_owned(), text.into()),
        Some((bytes, _)) => line.insert(marked(), hex::encode(bytes).into()),
    };
}

/// What [`insert_bytes`] wrote under this name, taken out. The outer `None`: nothing; the inner one: a null.
///
/// # Errors
/// What is there is no text, or no base 16.
pub(crate) fn take_bytes(line: &mut Map<String, Value>, name: &str) -> Result<Option<Option<Vec<u8>>>, String> {
    match line.remove(&format!("{name}{SUFFIX}")) {
        None => {}
        Some(Value::Null) => return Ok(Some(None)),
        Some(value) => {
            let bytes = value.as_str().and_then(|text| hex::decode(text).ok());
            return bytes
                .map(|bytes| Some(Some(bytes)))
                .ok_or_else(|| format!("{name}{SUFFIX} is not base 16"));
        }
    }
    match line.remove(name) {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(None)),
        Some(Value::String(text)) => Ok(Some(Some(text.into_bytes()))),
        Some(_) => Err(format!("{name} is neither text nor null")),
    }
}

/// Headers as an object; where two have the same name, as a list of objects with one each.
pub(crate) fn headers<'a>(all: impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone) -> Value {
    let mut names = HashSet::new();
    let are_distinct = all.clone().all(|(name, _)| names.insert(name));
    if are_distinct {
        let mut object = Map::new();
        all.for_each(|(name, value)| insert_bytes(&mut object, name, value));
        return object.into();
    }
    let one = |(name, value)| {
        let mut object = Map::new();
        insert_bytes(&mut object, name, value);
        Value::from(object)
    };
    all.map(one).collect::<Vec<_>>().into()
}

/// The headers that [`headers`] wrote.
///
/// # Errors
/// What is there is neither an object nor a list of such, or has values that are no bytes.
pub(crate) fn take_headers(said: Value) -> Result<Headers, String> {
    let objects = match said {
        Value::Array(all) => all,
        one => vec![one],
    };
    let mut headers = Headers::new();
    for object in objects {
        let Value::Object(mut object) = object else {
            return Err("\"headers\" is neither an object nor a list of objects".to_owned());
        };
        let names: Vec<_> = object
            .keys()
            .map(|name| name.strip_suffix(SUFFIX).unwrap_or(name).to_owned())
            .collect();
        for name in names {
            let value = take_bytes(&mut object, &name)?.flatten();
            headers.push((name, value));
        }
    }
    Ok(headers)
}

/// Whether the values of a type are bytes, in lists and maps too. What a struct has in it has names of its own.
fn holds_bytes(data_type: &DataType) -> bool {
    match data_type {
        DataType::Binary => true,
        DataType::List(item) => holds_bytes(item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.last().is_some_and(|value| holds_bytes(value.data_type())),
            _ => false,
        },
        _ => false,
    }
}

/// Columns, or fields of a struct, as JSON has them: names of bytes are marked, as often as it takes until no other has the
/// name.
fn json_fields(fields: &Fields) -> Fields {
    let mut taken: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
    let named = fields.iter().map(|field| {
        let mut name = field.name().clone();
        if holds_bytes(field.data_type()) {
            while !taken.insert(name.clone()) {
                name.push_str(SUFFIX);
            }
        }
        json_field(field).with_name(name)
    });
    named.collect()
}

fn json_field(field: &Field) -> Field {
    field.clone().with_data_type(json_type(field.data_type()))
}

/// The type as JSON has it: with the offset of UTC for every time zone, because without a database of zones their names cannot
/// be read.
fn json_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(item) => DataType::List(Arc::new(json_field(item))),
        DataType::Struct(fields) => DataType::Struct(json_fields(fields)),
        DataType::Map(entries, sorted) => {
            // The names of keys and values are in no JSON.
            let pair = match entries.data_type() {
                DataType::Struct(pair) => DataType::Struct(pair.iter().map(|field| json_field(field)).collect()),
                other => other.clone(),
            };
            let entries = entries.as_ref().clone().with_data_type(pair);
            DataType::Map(Arc::new(entries), *sorted)
        }
        other => other.clone(),
    }
}

/// The columns of a stream with the names that they and their fields have in JSON, and all times in UTC.
pub(crate) fn json_schema(schema: &Schema) -> Schema {
    Schema::new(json_fields(schema.fields()))
}

/// A column with the names and zones of another type.
pub(crate) fn as_type(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    Ok(match (column.data_type(), to) {
        (from, to) if from == to => Arc::clone(column),
        (DataType::List(_), DataType::List(item)) => {
            let list = column.as_list::<i32>();
            let values = as_type(list.values(), item.data_type())?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => Arc::new(with_fields(column.as_struct(), fields)?),
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = column.as_map();
            let DataType::Struct(pair) = entries.data_type() else {
                return cast(column, to);
            };
            let pairs = with_fields(map.entries(), pair)?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, *sorted)?)
        }
        _ => cast(column, to)?,
    })
}

fn with_fields(column: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let columns = column.columns().iter().zip(fields);
    let columns: Result<Vec<_>, _> = columns
        .map(|(column, field)| as_type(column, field.data_type()))
        .collect();
    StructArray::try_new(fields.clone(), columns?, column.nulls().cloned())
}

/// The rows with [these columns](json_schema).
pub(crate) fn in_json_schema(rows: &RecordBatch) -> Result<RecordBatch, CliError> {
    let schema = json_schema(rows.schema_ref());
    let columns = rows.columns().iter().zip(schema.fields());
    let columns: Result<Vec<_>, _> = columns
        .map(|(column, field)| as_type(column, field.data_type()))
        .collect();
    let rows = columns.and_then(|columns| RecordBatch::try_new(Arc::new(schema), columns));
    rows.map_err(CliError::columns)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use arrow_schema::{DataType, Field, Fields, Schema};

    use super::{headers, insert_bytes, json_schema, take_bytes, take_headers};

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
    fn headers_are_read_back_whichever_names_they_have() {
        for written in [
            &[("a", Some(&b"1"[..])), ("b", None)][..],
            &[("a", Some(b"1")), ("a", Some(b"2"))],
            &[("a", Some(b"\xff")), ("b", None), ("a", Some(b"2"))],
            &[("a", Some(b"\xff")), ("a_hex", Some(b"61"))],
            &[("a", None), ("a_hex", None), ("a_hex_hex", Some(b"\xff"))],
        ] {
            let said = headers(written.iter().copied());
            let mut read = take_headers(said.clone()).unwrap();
            if said.is_object() {
                read.sort();
            }
            let written: Vec<_> = written
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect();
            assert_eq!(read, written, "{said}");
        }
        assert_eq!(
            headers([("a", Some(&b"1"[..]))].into_iter()).to_string(),
            r#"{"a":"1"}"#
        );
        let twice = headers([("a", Some(&b"1"[..])), ("a", Some(b"2"))].into_iter());
        assert_eq!(twice.to_string(), r#"[{"a":"1"},{"a":"2"}]"#);
        assert!(take_headers(serde_json::json!([["a", "1"]])).is_err());
    }

    #[test]
    fn bytes_are_marked_wherever_they_are_and_no_two_names_are_the_same() {
        let field = |name: &str, kind: DataType| Field::new(name, kind, true);
        let pair = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            field("values", DataType::Binary),
        ]);
        let map = DataType::Map(Field::new("entries", DataType::Struct(pair), false).into(), false);
        let inner = Fields::from(vec![field("b", DataType::Binary), field("n", DataType::Int32)]);
        let schema = Schema::new(vec![
            field("bin", DataType::Binary),
            field("bin_hex", DataType::Utf8),
            field("raw_hex", DataType::Binary),
            field("list", DataType::new_list(DataType::Binary, true)),
            field("map", map),
            field("st", DataType::Struct(inner.clone())),
            field("sts", DataType::new_list(DataType::Struct(inner), true)),
        ]);
        let written = json_schema(&schema);
        let names: Vec<_> = written.fields().iter().map(|field| field.name().as_str()).collect();
        let marked = [
            "bin_hex_hex",
            "bin_hex",
            "raw_hex_hex",
            "list_hex",
            "map_hex",
            "st",
            "sts",
        ];
        assert_eq!(names, marked);
        let DataType::Struct(inner) = written.field(5).data_type() else {
            panic!("a struct")
        };
        assert_eq!((inner[0].name().as_str(), inner[1].name().as_str()), ("b_hex", "n"));
        let DataType::List(item) = written.field(6).data_type() else {
            panic!("a list")
        };
        assert_eq!(item.data_type(), written.field(5).data_type());
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
