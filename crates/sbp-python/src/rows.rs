//! Rows of record columns, sorted by the stream they go to.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use sbp_record::{EncodeError, RecordsBuilder};
use sbp_types::StreamId;

/// A stream as a row names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// By name, in the column `stream`.
    Name(String),
    /// By id, in the column `stream_id`.
    Id(StreamId),
    /// Every row goes to the stream the appender was made for.
    Given,
}

/// Why rows cannot be appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowError {
    #[error("column {0:?} is missing: a write of records needs it")]
    Missing(&'static str),
    #[error("column {column:?} is {found}: cast it to {wanted}")]
    Type {
        column: &'static str,
        found: String,
        wanted: &'static str,
    },
    #[error("column {0:?} is null in row {1}: every row needs a stream")]
    NoTarget(&'static str, usize),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A builder with as many bytes as this is complete; the rows that follow begin another batch.
const BATCH_BYTES: usize = 1 << 20;

/// The rows of `batch` as record builders, by stream and in the order of rows. Every builder has at least one record.
pub(crate) fn by_stream(
    batch: &RecordBatch,
    has_target: bool,
) -> Result<BTreeMap<Target, Vec<RecordsBuilder>>, RowError> {
    let columns = Columns::of(batch, has_target)?;
    let mut sorted: BTreeMap<Target, Vec<RecordsBuilder>> = BTreeMap::new();
    for row in 0..batch.num_rows() {
        let builders = sorted.entry(columns.target(row)?).or_default();
        if builders.last().is_none_or(|last| last.body_length() >= BATCH_BYTES) {
            builders.push(RecordsBuilder::new());
        }
        if let Some(builder) = builders.last_mut() {
            columns.push(row, builder)?;
        }
    }
    Ok(sorted)
}

/// The columns of records, in the types that records have.
struct Columns {
    value: Texts,
    key: Option<Texts>,
    timestamp: Option<TimestampMicrosecondArray>,
    headers: Option<ListArray>,
    stream: Option<StringArray>,
    stream_id: Option<Int64Array>,
}

/// A column of byte strings, or of text, which is stored as its UTF-8.
enum Texts {
    Bytes(BinaryArray),
    Text(StringArray),
}

impl Texts {
    fn of(batch: &RecordBatch, column: &'static str) -> Result<Option<Self>, RowError> {
        let Some(array) = batch.column_by_name(column) else {
            return Ok(None);
        };
        match array.data_type() {
            DataType::Binary => Ok(Some(Self::Bytes(array.as_binary().clone()))),
            DataType::Utf8 => Ok(Some(Self::Text(array.as_string().clone()))),
            other => Err(RowError::Type {
                column,
                found: other.to_string(),
                wanted: "binary or string",
            }),
        }
    }

    fn at(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Bytes(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Text(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
        }
    }
}

impl Columns {
    fn of(batch: &RecordBatch, has_target: bool) -> Result<Self, RowError> {
        let typed = |column: &'static str, wanted: &'static str, fits: fn(&DataType) -> bool| match batch
            .column_by_name(column)
        {
            Some(array) if !fits(array.data_type()) => Err(RowError::Type {
                column,
                found: array.data_type().to_string(),
                wanted,
            }),
            found => Ok(found),
        };
        let micros = |kind: &DataType| matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, Some(_)));
        let headers = |kind: &DataType| matches!(kind, DataType::List(item) if is_header(item.data_type()));
        let stream = typed("stream", "string", |kind| *kind == DataType::Utf8)?;
        let stream_id = typed("stream_id", "bigint", |kind| *kind == DataType::Int64)?;
        if !has_target && stream.is_none() && stream_id.is_none() {
            return Err(RowError::Missing("stream"));
        }
        Ok(Self {
            value: Texts::of(batch, "value")?.ok_or(RowError::Missing("value"))?,
            key: Texts::of(batch, "key")?,
            timestamp: typed("timestamp", "timestamp in microseconds with a zone", micros)?
                .map(|array| array.as_primitive::<TimestampMicrosecondType>().clone()),
            headers: typed("headers", "array<struct<key: string, value: binary>>", headers)?
                .map(|array| array.as_list().clone()),
            stream: stream.filter(|_| !has_target).map(|array| array.as_string().clone()),
            stream_id: stream_id
                .filter(|_| !has_target)
                .map(|array| array.as_primitive::<Int64Type>().clone()),
        })
    }

    fn target(&self, row: usize) -> Result<Target, RowError> {
        match (&self.stream, &self.stream_id) {
            (Some(names), _) if names.is_valid(row) => Ok(Target::Name(names.value(row).to_owned())),
            (Some(_), _) => Err(RowError::NoTarget("stream", row)),
            (None, Some(ids)) if ids.is_valid(row) => Ok(Target::Id(StreamId(ids.value(row)))),
            (None, Some(_)) => Err(RowError::NoTarget("stream_id", row)),
            (None, None) => Ok(Target::Given),
        }
    }

    fn push(&self, row: usize, builder: &mut RecordsBuilder) -> Result<(), RowError> {
        let key = self.key.as_ref().and_then(|keys| keys.at(row));
        let time = self
            .timestamp
            .as_ref()
            .filter(|times| times.is_valid(row))
            .map(|times| times.value(row));
        let value = self.value.at(row);
        let Some(lists) = self.headers.as_ref().filter(|lists| lists.is_valid(row)) else {
            return Ok(builder.push(value, key, time, &[])?);
        };
        let items = lists.value(row);
        let items = items.as_struct();
        let names = items.column(0).as_string::<i32>();
        let values = items.column(1).as_binary::<i32>();
        let headers: Vec<_> = (0..items.len())
            .map(|item| (names.value(item), values.is_valid(item).then(|| values.value(item))))
            .collect();
        Ok(builder.push(value, key, time, &headers)?)
    }
}

fn is_header(item: &DataType) -> bool {
    matches!(item, DataType::Struct(fields)
        if fields.len() == 2
            && *fields[0].data_type() == DataType::Utf8
            && *fields[1].data_type() == DataType::Binary)
}
