//! Arguments of calls, from Python objects to the types that the client takes.

pub(crate) mod relative_position;

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyMapping, PyString};
use sbp_client::{Position, ReadFrom};
use sbp_messages::{KeyValue, Stream};
use sbp_record::{Compression, StreamSchema};
use sbp_types::{Offset, TimestampMs};

use crate::append::input::{AppendInput, AppendOptions};
use crate::arguments::relative_position::Relative;
use crate::errors;
use crate::memory::arrow;
use crate::requests::{Key, StreamChange};
use crate::time;

/// One stream or several.
pub(crate) fn keys(streams: &Bound<'_, PyAny>) -> PyResult<Vec<Key>> {
    if let Ok(one) = streams.extract::<Key>() {
        return Ok(vec![one]);
    }
    streams.try_iter()?.map(|key| key?.extract()).collect()
}

/// A place in a stream.
pub(crate) fn position(value: &Bound<'_, PyAny>) -> PyResult<Position> {
    if let Ok(word) = value.cast::<PyString>() {
        let word = word.to_str()?;
        return Position::parse(word).ok_or_else(|| no_position(value));
    }
    if let Ok(relative) = value.cast::<Relative>() {
        return Ok(relative.get().position());
    }
    if value.is_instance_of::<PyBool>() {
        return Err(no_position(value));
    }
    if let Ok(offset) = value.extract::<i64>() {
        return match offset {
            0.. => Ok(Position::At(Offset(offset))),
            _ => Err(no_position(value)),
        };
    }
    if value.is_instance_of::<PyDelta>() {
        let ago = value.extract::<Duration>().map_err(|_| no_position(value))?;
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        return Ok(Position::Time(TimestampMs(time::now().0.saturating_sub(ago))));
    }
    if !value.hasattr("tzinfo")? {
        return Err(no_position(value));
    }
    Ok(Position::Time(time::timestamp(value)?))
}

fn no_position(value: &Bound<'_, PyAny>) -> PyErr {
    let given = value
        .repr()
        .map_or_else(|_| "something else".to_owned(), |text| text.to_string());
    errors::invalid(
        value.py(),
        &format!(
            "a place in a stream is an offset from 0, \"earliest\", \"latest\", one of them with a number of records \
             (\"latest-1000\"), a datetime with a zone, or a timedelta (that long ago), not {given}"
        ),
    )
}

/// A place in a stream, or the default.
pub(crate) fn position_or(value: Option<&Bound<'_, PyAny>>, default: Position) -> PyResult<Position> {
    value.map_or(Ok(default), position)
}

/// Streams and places: every stream from one place, or each from its own.
pub(crate) fn places_of(
    keys: Vec<Key>,
    start: Option<&Bound<'_, PyAny>>,
    default: Position,
) -> PyResult<Vec<(Key, Position)>> {
    let mapping = start.and_then(|start| start.cast::<PyMapping>().ok());
    let mut wanted = Vec::with_capacity(keys.len());
    for key in keys {
        let place = match (mapping, start) {
            (Some(mapping), _) => position(&place_of(mapping, &key)?)?,
            (None, start) => position_or(start, default)?,
        };
        wanted.push((key, place));
    }
    Ok(wanted)
}

fn place_of<'py>(places: &Bound<'py, PyMapping>, key: &Key) -> PyResult<Bound<'py, PyAny>> {
    let found = match key {
        Key::Name(name) => places.get_item(name),
        Key::Id(id) => places.get_item(id.0),
        Key::Known(stream) => places
            .get_item(&*stream.name)
            .or_else(|_| places.get_item(stream.stream.stream_id.0)),
    };
    found.map_err(|_| PyTypeError::new_err(format!("start names no place for stream {key}")))
}

/// How records are to be stored.
pub(crate) fn append_options(
    timestamp: Option<&Bound<'_, PyAny>>,
    expected_offset: Option<i64>,
    compression: Option<&str>,
) -> PyResult<AppendOptions> {
    if expected_offset.is_some_and(|offset| offset < 0) {
        return Err(PyValueError::new_err("expected_offset is an offset from 0"));
    }
    Ok(AppendOptions {
        timestamp: timestamp.map(time::timestamp).transpose()?,
        expected_offset: expected_offset.map(Offset),
        compression: self::compression(compression)?,
    })
}

/// What one append is given: data with its key and headers, and how it is to be stored.
pub(crate) fn append_input<'a, 'py>(
    (data, key, headers): Given<'a, 'py>,
    timestamp: Option<&Bound<'_, PyAny>>,
    expected_offset: Option<i64>,
    compression: Option<&str>,
) -> PyResult<AppendInput<'a, 'py>> {
    Ok(AppendInput {
        data,
        key,
        headers,
        options: append_options(timestamp, expected_offset, compression)?,
    })
}

/// Data, and the key and headers that belong to it.
type Given<'a, 'py> = (
    &'a Bound<'py, PyAny>,
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
);

/// One FETCH: from where on, how much it brings, and how long the server waits for that.
pub(crate) struct FetchRequest {
    pub(crate) from: Position,
    pub(crate) max_bytes: u32,
    pub(crate) min_bytes: u32,
    pub(crate) max_wait: Duration,
}

pub(crate) fn fetch_request(
    from: &Bound<'_, PyAny>,
    max_bytes: i64,
    min_bytes: i64,
    max_wait: f64,
) -> PyResult<FetchRequest> {
    let bytes = |name: &str, given: i64| {
        let wrong = format!("{name} is a number of bytes from 0 to 4294967295, not {given}");
        u32::try_from(given).map_err(|_| errors::invalid(from.py(), &wrong))
    };
    Ok(FetchRequest {
        from: position(from)?,
        max_wait: match max_wait {
            0.0 => Duration::ZERO,
            wait => time::seconds(wait)?,
        },
        max_bytes: bytes("max_bytes", max_bytes)?,
        min_bytes: bytes("min_bytes", min_bytes)?,
    })
}

/// How bodies are to be compressed.
pub(crate) fn compression(word: Option<&str>) -> PyResult<Compression> {
    match word {
        None | Some("none") => Ok(Compression::NONE),
        Some("lz4") => Ok(Compression::LZ4),
        Some("zstd") => Ok(Compression::ZSTD),
        Some(other) => Err(PyValueError::new_err(format!(
            "compression is None, \"lz4\" or \"zstd\", not {other:?}"
        ))),
    }
}

/// A schema, checked against what streams carry.
fn schema(schema: &Bound<'_, PyAny>) -> PyResult<StreamSchema> {
    let columns = arrow::import_schema(schema)?;
    StreamSchema::from_arrow(&columns).map_err(|error| errors::schema_mismatch(schema.py(), &error.to_string()))
}

/// How long records are kept, in milliseconds; 0: for ever.
fn retention(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let wrong = || PyValueError::new_err("retention is a timedelta or seconds, at least a millisecond, or \"forever\"");
    if let Ok(word) = value.cast::<PyString>() {
        return if word.to_str()? == "forever" {
            Ok(0)
        } else {
            Err(wrong())
        };
    }
    let time = if value.is_instance_of::<PyDelta>() {
        value.extract::<Duration>().map_err(|_| wrong())?
    } else {
        Duration::try_from_secs_f64(value.extract::<f64>().map_err(|_| wrong())?).map_err(|_| wrong())?
    };
    match i64::try_from(time.as_millis()) {
        Ok(millis) if millis > 0 => Ok(millis),
        _ => Err(wrong()),
    }
}

/// How many bytes are kept, as a request says it.
fn retention_bytes(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let wrong = || PyValueError::new_err("retention_bytes is a number of bytes from 1, or \"unlimited\"");
    if let Ok(word) = value.cast::<PyString>() {
        return if word.to_str()? == "unlimited" {
            Ok(Stream::UNBOUNDED)
        } else {
            Err(wrong())
        };
    }
    match value.extract::<i64>() {
        Ok(bytes) if bytes > 0 && !value.is_instance_of::<PyBool>() => Ok(bytes),
        _ => Err(wrong()),
    }
}

/// What a stream is to be like.
pub(crate) fn change(
    name: Option<String>,
    schema: Option<&Bound<'_, PyAny>>,
    retention: Option<&Bound<'_, PyAny>>,
    retention_bytes: Option<&Bound<'_, PyAny>>,
    properties: Option<&Bound<'_, PyDict>>,
) -> PyResult<StreamChange> {
    Ok(StreamChange {
        name,
        schema: schema.map(self::schema).transpose()?,
        retention: retention.map(self::retention).transpose()?,
        retention_bytes: retention_bytes.map(self::retention_bytes).transpose()?,
        properties: properties.map(self::properties).transpose()?,
        replicas: None,
        acks: None,
    })
}

/// A stream's properties.
fn properties(value: &Bound<'_, PyDict>) -> PyResult<Vec<KeyValue>> {
    let wrong = |_| PyTypeError::new_err("properties are a dict from str to str");
    value
        .iter()
        .map(|(key, value)| {
            Ok(KeyValue {
                key: key.extract().map_err(wrong)?,
                value: value.extract().map_err(wrong)?,
            })
        })
        .collect()
}

/// Which of the servers that hold a range are read from.
pub(crate) fn read_from(value: &str) -> PyResult<ReadFrom> {
    match value {
        "primary" => Ok(ReadFrom::Primary),
        "any" => Ok(ReadFrom::Any),
        other => Err(PyValueError::new_err(format!(
            "read_from is \"primary\" or \"any\", not {other:?}"
        ))),
    }
}

/// The servers to connect to: a string, a list, or what the environment says.
pub(crate) fn servers(value: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    const VARIABLE: &str = "SBP_SERVERS";
    let Some(value) = value else {
        return match std::env::var(VARIABLE) {
            Ok(servers) if !servers.trim().is_empty() => Ok(servers),
            _ => Err(PyValueError::new_err(format!(
                "no servers were given: pass \"host:port\", or set {VARIABLE}"
            ))),
        };
    };
    if let Ok(one) = value.cast::<PyString>() {
        return Ok(one.to_str()?.to_owned());
    }
    let wrong = |_| PyTypeError::new_err("servers are \"host:port\", several separated by commas, or a list of them");
    let several = value.try_iter().map_err(wrong)?;
    let several: Vec<String> = several
        .map(|server| server?.extract::<String>().map_err(wrong))
        .collect::<PyResult<_>>()?;
    Ok(several.join(","))
}
