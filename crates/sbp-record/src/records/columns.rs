//! Arrow columns as a source of records, of which many rows are copied at once.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, BinaryArray, ListArray, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use sbp_types::TimestampMs;

use crate::error::SchemaError;
use crate::layout::{plain_array, recast};
use crate::offsets::span;
use crate::schema::words;
use crate::time::{is_calendar_time, other_unit};

/// The columns to write records from: values, and optionally keys, times and headers.
#[derive(Clone, Debug)]
pub struct RecordColumns {
    pub(super) value: BinaryArray,
    pub(super) key: Option<BinaryArray>,
    pub(super) timestamp: Option<PrimitiveArray<TimestampMicrosecondType>>,
    pub(super) headers: Option<ListArray>,
    /// Headers of all rows, each behind those that it has itself.
    pub(super) shared: Arc<[SharedHeader]>,
}

/// A header of all rows: its name and value.
pub type SharedHeader = (Box<str>, Option<Box<[u8]>>);

impl RecordColumns {
    /// Takes `value` and `key` as `binary` or `string`, `timestamp` as `timestamp[us]` of any zone, and `headers` as
    /// `list<struct<string, binary>>`. A null time means the time of the batch, null headers mean none.
    ///
    /// # Errors
    /// A column has another type, which the error names with the cast to use, or another length than `value`.
    pub fn new(
        value: &ArrayRef,
        key: Option<&ArrayRef>,
        timestamp: Option<&ArrayRef>,
        headers: Option<&ArrayRef>,
    ) -> Result<Self, SchemaError> {
        let others = [("key", key), ("timestamp", timestamp), ("headers", headers)];
        for (name, array) in others {
            if let Some(array) = array.filter(|array| array.len() != value.len()) {
                let (found, expected) = (array.len(), value.len());
                return Err(SchemaError::Shape(format!(
                    "column \"{name}\" has {found} rows instead of {expected}"
                )));
            }
        }
        Ok(Self {
            value: byte_strings("value", value)?,
            key: key.map(|array| byte_strings("key", array)).transpose()?,
            timestamp: timestamp.map(micros).transpose()?,
            headers: headers.map(header_lists).transpose()?,
            shared: Arc::default(),
        })
    }

    /// The same rows with headers that each of them gets, unless it has one of that name.
    #[must_use]
    pub fn with_headers(self, shared: Arc<[SharedHeader]>) -> Self {
        Self { shared, ..self }
    }

    /// Whether a row may have headers.
    pub(super) fn has_headers(&self) -> bool {
        self.headers.is_some() || !self.shared.is_empty()
    }

    /// Finds the columns by name, as in a table that was read from a stream of records: `value`, and if present `key`,
    /// `timestamp` and `headers`. `offset`, `stream` and `stream_id` are ignored. Other layouts of the same values are
    /// converted, and so are times in coarser units.
    ///
    /// # Errors
    /// `value` is missing, there are other columns, or one has another type, which the error names with the cast to use.
    pub fn of(columns: &RecordBatch) -> Result<Self, SchemaError> {
        const KNOWN: [&str; 7] = ["value", "key", "timestamp", "headers", "offset", "stream", "stream_id"];
        let fields = columns.schema_ref().fields();
        if let Some(extra) = fields.iter().find(|field| !KNOWN.contains(&field.name().as_str())) {
            return Err(SchemaError::Shape(format!(
                "column \"{}\" is none of a stream without a schema, which has value, key, timestamp and headers; drop \
                 it, or create the stream with a schema",
                extra.name()
            )));
        }
        let plain = |name: &str| match columns.column_by_name(name) {
            Some(array) if *array.data_type() == DataType::Null && name != "value" => Ok(None),
            Some(array) => plain_array(array)
                .map(Some)
                .map_err(|error| SchemaError::Shape(format!("column \"{name}\" cannot be stored: {error}"))),
            None => Ok(None),
        };
        let value = plain("value")?.ok_or_else(|| {
            SchemaError::Shape("column \"value\" is missing: a stream without a schema needs it".to_owned())
        })?;
        let timestamp = plain("timestamp")?.map(|array| exact_micros(&array)).transpose()?;
        Self::new(
            &value,
            plain("key")?.as_ref(),
            timestamp.as_ref(),
            plain("headers")?.as_ref(),
        )
    }

    /// Uses one column, in any layout, as values.
    ///
    /// # Errors
    ///
    /// The column has neither bytes nor text.
    pub fn of_values(values: &ArrayRef) -> Result<Self, SchemaError> {
        let plain = plain_array(values).map_err(|error| SchemaError::Shape(error.to_string()))?;
        Self::new(&plain, None, None, None)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of keys and values of all rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.byte_length(&(0..self.len()))
    }

    /// Time of a row in microseconds, unless it is null or there is no such column.
    pub(super) fn time(&self, row: usize) -> Option<i64> {
        self.timestamp
            .as_ref()
            .filter(|times| times.is_valid(row))
            .map(|times| times.value(row))
    }

    /// Bytes of keys and values in `rows`.
    pub(super) fn byte_length(&self, rows: &Range<usize>) -> usize {
        span(&self.value, rows).len() + self.key.as_ref().map_or(0, |key| span(key, rows).len())
    }
}

/// A column of type binary or string.
fn byte_strings(column: &str, array: &ArrayRef) -> Result<BinaryArray, SchemaError> {
    match array.data_type() {
        DataType::Binary => Ok(array.as_binary().clone()),
        DataType::Utf8 => Ok(array.as_string::<i32>().clone().into()),
        found => Err(refuse(column, "binary or string", found, "binary")),
    }
}

fn micros(array: &ArrayRef) -> Result<PrimitiveArray<TimestampMicrosecondType>, SchemaError> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => in_calendar(array.as_primitive()),
        found => Err(refuse("timestamp", "timestamp[us]", found, "timestamp('us', tz='UTC')")),
    }
}

/// The times, if all are in the range that readers can show.
fn in_calendar(
    times: &PrimitiveArray<TimestampMicrosecondType>,
) -> Result<PrimitiveArray<TimestampMicrosecondType>, SchemaError> {
    let outside = |time: &i64| !is_calendar_time(TimestampMs(time.div_euclid(1_000)));
    match times.iter().flatten().find(outside) {
        None => Ok(times.clone()),
        Some(time) => Err(SchemaError::Shape(format!(
            "column \"timestamp\" holds {time} microseconds, which is not in the years 1 to 9999{}",
            other_unit(time.div_euclid(1_000))
        ))),
    }
}

/// Converts times in coarser units to microseconds; others are returned as they are.
fn exact_micros(array: &ArrayRef) -> Result<ArrayRef, SchemaError> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            recast(array, &micros).map_err(|error| SchemaError::Shape(format!("column \"timestamp\": {error}")))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn header_lists(array: &ArrayRef) -> Result<ListArray, SchemaError> {
    let fits = |item: &DataType| match item {
        DataType::Struct(pair) => {
            let types: Vec<&DataType> = pair.iter().map(|field| field.data_type()).collect();
            types == [&DataType::Utf8, &DataType::Binary]
        }
        _ => false,
    };
    match array.data_type() {
        DataType::List(item) if fits(item.data_type()) => Ok(array.as_list().clone()),
        found => {
            let wanted = "list<struct<key: string, value: binary>>";
            Err(refuse("headers", wanted, found, wanted))
        }
    }
}

fn refuse(column: &str, expected: &str, found: &DataType, cast: &str) -> SchemaError {
    SchemaError::column(column, expected, words(found), format!("cast it to {cast}"))
}
