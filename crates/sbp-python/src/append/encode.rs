//! From what a caller appends to one encoded record batch.
//!
//! Everything that touches Python happens before the batch joins a client's submissions: no lock of ours is held while
//! the interpreter could run other code.

use std::cell::Cell;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use bytes::{Bytes, BytesMut};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};
use sbp_client::{Body, Submissions};
use sbp_record::{
    Compression, EncodeError, EncodeOptions, MAX_UNCOMPRESSED_LENGTH, RecordColumns, RecordsBuilder, SchemaError,
    SharedHeader, StreamSchema, encode_arrow, encode_raw, encode_raw_head, encode_rows, encode_values,
};
use sbp_types::StreamId;

use crate::append::input::AppendInput;
use crate::append::keys_and_headers::{KeysAndHeaders, in_list, is_keyed, of_one, of_rows};
use crate::errors;
use crate::interpreter::attach::attach;
use crate::memory::arrow::{self, Imported, Offered};
use crate::memory::buffer::{Payload, owned_bytes, type_name, with_bytes, with_value_and_key, with_values};
use crate::memory::scratch::{self, COPY_UP_TO};
use crate::time::now;

/// A builder that held more gives its memory back.
const KEPT_BUILDER: usize = 4 << 20;

thread_local! {
    /// Memory for collecting records, kept from call to call.
    static BUILDER: Cell<RecordsBuilder> = Cell::new(RecordsBuilder::new());
}

/// One encoded batch that has not joined any submissions yet.
pub(crate) struct Encoded {
    /// The whole batch, or its head.
    front: BytesMut,
    /// The body, where it travels by reference, and the zero bytes behind it.
    shared: Option<(Bytes, usize)>,
    /// How many records it holds.
    pub(crate) records: u32,
}

impl Encoded {
    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |(body, padding)| body.len() + padding);
        self.front.len() + shared
    }

    /// The whole batch in one piece.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        if let Some((body, padding)) = &self.shared {
            self.front.extend_from_slice(body);
            self.front.resize(self.front.len() + padding, 0);
        }
        if self.front.len() > COPY_UP_TO {
            scratch::freeze(self.front)
        } else {
            self.front.freeze()
        }
    }

    /// Puts the batch where `submissions` wants it.
    pub(crate) fn place(self, submissions: &mut Submissions) -> Body {
        if self.shared.is_none() && self.front.len() > COPY_UP_TO {
            return Body::Shared {
                head: 0..0,
                body: scratch::freeze(self.front),
                padding: 0,
            };
        }
        let placed = submissions.place_encoded(&self.front);
        scratch::give_back(self.front);
        match (placed, self.shared) {
            (Body::Copied(head), Some((body, padding))) => Body::Shared { head, body, padding },
            (placed, _) => placed,
        }
    }
}

/// Why data was not encoded as a batch.
pub(crate) enum NotEncoded {
    /// It cannot be.
    Raised(PyErr),
    /// It has columns that the schema does not have, which may have grown since it was read: the exception if it has not,
    /// and the data, which could be taken from its owner only once.
    Unknown(PyErr, Py<PyAny>),
}

impl NotEncoded {
    /// The exception.
    pub(crate) fn into_error(self) -> PyErr {
        match self {
            Self::Raised(error) | Self::Unknown(error, _) => error,
        }
    }
}

impl From<PyErr> for NotEncoded {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// Encodes `data` for a stream: bytes become one record, a list one record per item, Arrow data one record per row.
///
/// # Errors
///
/// `TypeError` for anything else; the exceptions of the error table for data that the stream cannot take.
pub(crate) fn encode(
    input: &AppendInput<'_, '_>,
    stream: StreamId,
    schema: Option<&StreamSchema>,
) -> Result<Encoded, NotEncoded> {
    let data = input.data;
    let options = EncodeOptions {
        stream_id: stream,
        timestamp: input.options.timestamp.unwrap_or_else(now),
        compression: input.options.compression,
        writer: None,
    };
    let py = data.py();
    if let Ok(items) = data.cast::<PyList>() {
        if !is_keyed(input) && !items.is_empty() {
            let encoded = with_values(items, |values, bytes| {
                let mut front = scratch::take(bytes.saturating_add(values.len().saturating_mul(4)));
                encode_values(&options, values, &mut front).map(|_| front)
            });
            if let Some(done) = encoded {
                return Ok(Encoded {
                    front: done.map_err(|error| refused(py, error))?,
                    shared: None,
                    records: count(items.len())?,
                });
            }
        }
        return Ok(encode_items(py, items.iter(), input, &options)?);
    }
    if is_plain_bytes(data) {
        return Ok(encode_one(data, input, &options)?);
    }
    if let Ok(items) = data.cast::<PyTuple>() {
        return Ok(encode_items(py, items.iter(), input, &options)?);
    }
    if data.is_none() && input.key.is_some() {
        return Ok(encode_keyed(None, input, &options)?);
    }
    if data.is_instance_of::<PyString>() || data.is_instance_of::<PyDict>() || data.is_none() {
        return Err(not_appendable(data).into());
    }
    if arrow::is_arrow(data)? {
        if input.key.is_some() {
            return Err(PyTypeError::new_err("keys of Arrow data are a column of it: leave out key=").into());
        }
        let headers = input.headers.map(|headers| of_rows(headers, schema.is_some()));
        let headers = headers.transpose()?.flatten();
        return encode_columns(data, schema, headers.map(|headers| headers.shared()), &options);
    }
    let encoded = encode_one(data, input, &options).map_err(|error| {
        if error.is_instance_of::<PyTypeError>(py) {
            not_appendable(data)
        } else {
            error
        }
    });
    Ok(encoded?)
}

fn is_plain_bytes(data: &Bound<'_, PyAny>) -> bool {
    data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<Payload>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>()
}

fn encode_one(data: &Bound<'_, PyAny>, input: &AppendInput<'_, '_>, options: &EncodeOptions) -> PyResult<Encoded> {
    if is_keyed(input) {
        encode_keyed(Some(data), input, options)
    } else {
        encode_bytes(data, options)
    }
}

/// One value by itself. Large ones travel by reference, unless they are compressed.
fn encode_bytes(data: &Bound<'_, PyAny>, options: &EncodeOptions) -> PyResult<Encoded> {
    let mut front = scratch::take(0);
    let by_value = options.compression != Compression::NONE;
    let copied = with_bytes(data, |bytes| {
        (by_value || bytes.len() < COPY_UP_TO).then(|| encode_raw(options, bytes, &mut front))
    })?;
    let shared = match copied {
        Some(done) => {
            done.map_err(|error| refused(data.py(), error))?;
            None
        }
        None => {
            let body = owned_bytes(data)?;
            let padding = encode_raw_head(options, &body, &mut front).map_err(|error| refused(data.py(), error))?;
            Some((body, padding))
        }
    };
    Ok(Encoded {
        front,
        shared,
        records: 1,
    })
}

/// One record with a key or headers; without `data` its value is null.
fn encode_keyed(
    data: Option<&Bound<'_, PyAny>>,
    input: &AppendInput<'_, '_>,
    options: &EncodeOptions,
) -> PyResult<Encoded> {
    let (key, headers) = of_one(input)?;
    let mut builder = BUILDER.take();
    push(&mut builder, data, key, &headers.pairs())?;
    finish(builder, options).map_err(|error| attach(|py| refused(py, error)))
}

/// The items of a list: a record each, `None` for a null value.
fn encode_items<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
    input: &AppendInput<'_, 'py>,
    options: &EncodeOptions,
) -> PyResult<Encoded> {
    let keys_and_headers = KeysAndHeaders::of_list(input, items.len())?;
    let mut builder = BUILDER.take();
    for (index, item) in items.enumerate() {
        let value = (!item.is_none()).then_some(&item);
        let (key, headers) = keys_and_headers.at(index)?;
        let pushed = push(&mut builder, value, key.as_ref(), &headers.pairs());
        pushed.map_err(|error| in_list(py, index, error))?;
    }
    if builder.is_empty() {
        return Err(errors::invalid(py, "the list is empty; append at least one record"));
    }
    finish(builder, options).map_err(|error| refused(py, error))
}

/// Copies one record into the builder.
fn push(
    builder: &mut RecordsBuilder,
    value: Option<&Bound<'_, PyAny>>,
    key: Option<&Bound<'_, PyAny>>,
    headers: &[(&str, Option<&[u8]>)],
) -> PyResult<()> {
    let pushed = with_value_and_key(value, key, |value, key| builder.push(value, key, None, headers))?;
    pushed.map_err(|error| attach(|py| refused(py, error)))
}

/// Writes what was collected as one batch.
fn finish(mut builder: RecordsBuilder, options: &EncodeOptions) -> Result<Encoded, EncodeError> {
    let records = u32::try_from(builder.len()).map_err(|_| EncodeError::TooManyRecords(builder.len() as u64))?;
    let is_large = builder.body_length() > KEPT_BUILDER;
    let mut front = scratch::take(builder.body_length());
    builder.finish(options, &mut front)?;
    if !is_large {
        BUILDER.set(builder);
    }
    Ok(Encoded {
        front,
        shared: None,
        records,
    })
}

/// Arrow data: the columns of a stream with a schema, or the records of one without.
fn encode_columns(
    data: &Bound<'_, PyAny>,
    schema: Option<&StreamSchema>,
    headers: Option<Arc<[SharedHeader]>>,
    options: &EncodeOptions,
) -> Result<Encoded, NotEncoded> {
    let py = data.py();
    let headers = headers.unwrap_or_default();
    let with_headers =
        |columns: Result<RecordColumns, _>| columns.map(|columns| columns.with_headers(Arc::clone(&headers)));
    let offered = match (schema, arrow::import(data)?) {
        (Some(schema), Offered::Rows(columns, batches)) => {
            if let Err(unknown) = schema.check_names(&columns) {
                let data = Bound::new(py, Imported::new(columns, batches))?.into_any().unbind();
                return Err(NotEncoded::Unknown(refused(py, unknown.into()), data));
            }
            Offered::Rows(columns, batches)
        }
        (_, offered) => offered,
    };
    // The data is not Python's any more: other threads may run while it is encoded.
    let encoded = py.detach(|| match (schema, offered) {
        (Some(schema), Offered::Rows(columns, batches)) => encode_typed(schema, columns, batches, options),
        (Some(_), Offered::Column(_)) => Err(SchemaError::Shape(
            "a column by itself was given, and the stream has a schema; give a table or a record batch".to_owned(),
        )
        .into()),
        (None, Offered::Rows(_, batches)) => {
            encode_records(batches.iter().map(RecordColumns::of).map(with_headers), options)
        }
        (None, Offered::Column(chunks)) => {
            encode_records(chunks.iter().map(RecordColumns::of_values).map(with_headers), options)
        }
    });
    match encoded {
        Err(EncodeError::NoRecords) => {
            Err(errors::invalid(py, "the table has no rows; append at least one record").into())
        }
        other => Ok(other.map_err(|error| refused(py, error))?),
    }
}

fn encode_typed(
    schema: &StreamSchema,
    offered: Schema,
    batches: Vec<RecordBatch>,
    options: &EncodeOptions,
) -> Result<Encoded, EncodeError> {
    let batch = match <[_; 1]>::try_from(batches) {
        Ok([batch]) => batch,
        Err(batches) => concat_batches(&offered.into(), &batches).map_err(EncodeError::Arrow)?,
    };
    let batch = schema.fit(&batch)?;
    let mut front = scratch::take(batch.get_array_memory_size());
    encode_arrow(options, schema, &batch, &mut front)?;
    Ok(Encoded {
        front,
        shared: None,
        records: u32::try_from(batch.num_rows()).unwrap_or(u32::MAX),
    })
}

fn encode_records(
    batches: impl Iterator<Item = Result<RecordColumns, SchemaError>>,
    options: &EncodeOptions,
) -> Result<Encoded, EncodeError> {
    let batches = batches.collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<_> = batches.iter().map(|columns| (columns, 0..columns.len())).collect();
    let bytes: usize = batches.iter().map(|columns| columns.bytes() + 16 * columns.len()).sum();
    let mut front = scratch::take(bytes);
    if encode_rows(options, &rows, &mut front)?.is_some() {
        let count: usize = batches.iter().map(RecordColumns::len).sum();
        return Ok(Encoded {
            front,
            shared: None,
            records: u32::try_from(count).map_err(|_| EncodeError::TooManyRecords(count as u64))?,
        });
    }
    scratch::give_back(front);
    let mut builder = BUILDER.take();
    for columns in &batches {
        let taken = builder.push_rows(columns, 0..columns.len(), usize::MAX)?;
        if taken < columns.len() {
            let told = builder.body_length() / taken.max(1) * columns.len();
            return Err(EncodeError::TooLarge {
                length: told as u64,
                limit: MAX_UNCOMPRESSED_LENGTH as u64,
            });
        }
    }
    finish(builder, options)
}

/// The exception for a batch that cannot be encoded.
pub(crate) fn refused(py: Python<'_>, error: EncodeError) -> PyErr {
    match error {
        EncodeError::TooLarge { .. } => errors::too_large(py, &error.to_string()),
        EncodeError::Schema(_) => errors::schema_mismatch(py, &error.to_string()),
        _ => errors::invalid(py, &error.to_string()),
    }
}

fn not_appendable(data: &Bound<'_, PyAny>) -> PyErr {
    let name = type_name(data);
    PyTypeError::new_err(format!(
        "append takes bytes, a list of bytes, or Arrow data (a table, a record batch, a data frame), not {name}"
    ))
}

fn count(records: usize) -> PyResult<u32> {
    u32::try_from(records).map_err(|_| PyOverflowError::new_err("more than 2^32 records in one append"))
}
