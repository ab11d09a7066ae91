//! The calls that both faces make: one function each, over Rust data only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use sbp_client::{Client, ClientError, Position, Positions};
use sbp_messages::{ErrorCode, Stream};
use sbp_record::{BatchError, SchemaError, StreamSchema};
use sbp_types::{Offset, StreamId, TimestampMs};

use crate::describe::Described;
use crate::{encode, errors};

/// Why a call failed: the client's reason, or something wrong with what it was given or got.
pub(crate) enum Failure {
    Client(ClientError),
    /// The same, about a stream whose name the caller used.
    Named(ClientError, Option<Arc<str>>),
    /// A tail had nothing to return for so long.
    NothingCame(Duration),
    /// A stream of this name exists already.
    Exists(String),
    /// Received data cannot be read.
    Corrupt(String),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl Failure {
    /// The exception it becomes.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Client(error) => errors::from_client(py, error, None),
            Self::Named(error, name) => errors::from_client(py, error, name.as_deref()),
            Self::NothingCame(limit) => errors::nothing_came(py, limit),
            Self::Exists(name) => errors::already_exists(py, &name),
            Self::Corrupt(what) => errors::corrupt(py, &what),
        }
    }
}

/// The text of the exception it becomes, for where only text goes.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) | Self::Named(error, _) => error.fmt(f),
            Self::NothingCame(limit) => write!(f, "nothing was appended for {limit:?}"),
            Self::Exists(name) => write!(f, "stream {name} exists already"),
            Self::Corrupt(what) => {
                let code = ErrorCode::CORRUPT_ON_ARRIVAL;
                write!(f, "[SBP-{:04}] {what}; {}", code.0, code.rule().advice)
            }
        }
    }
}

/// A stream as callers name it.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Name(String),
    Id(StreamId),
}

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.extract::<String>() {
            return Ok(Self::Name(name));
        }
        match object.extract::<i64>() {
            Ok(id) if !object.is_instance_of::<PyBool>() => Ok(Self::Id(StreamId(id))),
            _ => Err(PyTypeError::new_err(
                "a stream is named by its name (str) or its id (int)",
            )),
        }
    }
}

/// A place in a stream as callers give it.
pub(crate) fn position(value: &Bound<'_, PyAny>) -> PyResult<Position> {
    let wrong = || {
        let given = value
            .repr()
            .map_or_else(|_| "something else".to_owned(), |text| text.to_string());
        errors::invalid(
            value.py(),
            &format!(
                "a place in a stream is an offset, \"earliest\", \"latest\" or a datetime with a zone, not {given}"
            ),
        )
    };
    if let Ok(word) = value.extract::<String>() {
        return match word.as_str() {
            "earliest" => Ok(Position::Earliest),
            "latest" => Ok(Position::Latest),
            _ => Err(wrong()),
        };
    }
    match value.extract::<i64>() {
        Ok(offset) if offset >= 0 => Ok(Position::At(Offset(offset))),
        Ok(_) => Err(wrong()),
        Err(_) => Ok(Position::Time(encode::timestamp(value)?)),
    }
}

/// The stream with this name or id.
pub(crate) async fn find(client: &Client, key: &Key, timeout: Option<Duration>) -> Result<Arc<Described>, Failure> {
    let stream = match key {
        Key::Name(name) => client.find_stream(name, timeout).await?,
        Key::Id(id) => match client.describe_streams(&[*id], &[], timeout).await?.pop() {
            Some(stream) => stream?,
            None => return Err(Failure::Corrupt("the server described no stream".to_owned())),
        },
    };
    Ok(Described::new(stream)?)
}

/// The streams with these names or ids.
pub(crate) async fn find_all(
    client: &Client,
    keys: &[Key],
    timeout: Option<Duration>,
) -> Result<Vec<Arc<Described>>, Failure> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        found.push(find(client, key, timeout).await?);
    }
    Ok(found)
}

/// All streams, by id.
pub(crate) async fn list(client: &Client, timeout: Option<Duration>) -> Result<Vec<Arc<Described>>, Failure> {
    let streams = client.list_streams(timeout).await?;
    Ok(streams.into_iter().map(Described::new).collect::<Result<_, _>>()?)
}

/// Creates a stream. Servers take the same creation twice, so that it can be repeated; whether a stream that is there
/// already will do is the caller's to say.
pub(crate) async fn create(
    client: &Client,
    name: String,
    schema: Option<StreamSchema>,
    exist_ok: bool,
    timeout: Option<Duration>,
) -> Result<Arc<Described>, Failure> {
    if !exist_ok {
        match client.describe_streams(&[], &[&name], timeout).await?.pop() {
            Some(Err(error)) if error.code() == ErrorCode::NOT_FOUND => {}
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(_)) | None => return Err(Failure::Exists(name)),
        }
    }
    let wanted = Stream {
        name,
        schema: schema.map(|schema| schema.to_ipc().into()),
        ..Stream::default()
    };
    match client.create_streams(vec![wanted], timeout).await?.pop() {
        Some(created) => Ok(Described::new(created?)?),
        None => Err(Failure::Corrupt("the server created no stream".to_owned())),
    }
}

/// What streams hold now; of all streams without `keys`.
pub(crate) async fn positions(
    client: &Client,
    keys: Option<Vec<Key>>,
    timeout: Option<Duration>,
) -> Result<Vec<(Arc<Described>, Positions)>, Failure> {
    let streams = match keys {
        Some(keys) => find_all(client, &keys, timeout).await?,
        None => list(client, timeout).await?,
    };
    let ids: Vec<_> = streams.iter().map(|stream| stream.stream.stream_id).collect();
    let found = client.positions(&ids, timeout).await?;
    streams
        .into_iter()
        .zip(found)
        .map(|(stream, positions)| Ok((stream, positions?)))
        .collect()
}

/// For each stream the first offset whose batch is as new as a time; the stream's end where there is none.
pub(crate) async fn offsets_for_time(
    client: &Client,
    keys: &[Key],
    time: TimestampMs,
    timeout: Option<Duration>,
) -> Result<Vec<(Arc<Described>, Offset)>, Failure> {
    let streams = find_all(client, keys, timeout).await?;
    let times: Vec<_> = streams.iter().map(|stream| (stream.stream.stream_id, time)).collect();
    let found = client.offsets_for_times(&times, timeout).await?;
    streams
        .into_iter()
        .zip(found)
        .map(|(stream, offset)| Ok((stream, offset?)))
        .collect()
}
