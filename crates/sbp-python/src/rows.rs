//! Rows of record columns, sorted by the stream they go to.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;
use sbp_record::{EncodeError, RecordColumns, RecordsBuilder};
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

/// Rows next to each other, several times.
type Runs = Vec<Range<usize>>;

/// A target whose rows come in runs that are shorter on average has them gathered first.
const RUN: usize = 8;

/// The rows of `batch` as record builders, by stream and in the order of rows. Every builder has at least one record.
pub(crate) fn by_stream(
    batch: &RecordBatch,
    has_target: bool,
) -> Result<BTreeMap<Target, Vec<RecordsBuilder>>, RowError> {
    let columns = Columns::of(batch, has_target)?;
    let mut sorted = BTreeMap::new();
    if batch.num_rows() == 0 {
        return Ok(sorted);
    }
    for (target, runs) in columns.runs(batch.num_rows())? {
        let rows: usize = runs.iter().map(Range::len).sum();
        let builders = if runs.len() * RUN <= rows || runs.len() == 1 {
            build(&columns.records()?, &runs)?
        } else {
            build(&columns.gathered(&runs)?.records()?, std::slice::from_ref(&(0..rows)))?
        };
        sorted.insert(target, builders);
    }
    Ok(sorted)
}

/// The rows in `runs` as builders of about [`BATCH_BYTES`].
fn build(columns: &RecordColumns, runs: &[Range<usize>]) -> Result<Vec<RecordsBuilder>, EncodeError> {
    let mut full = Vec::new();
    let mut builder = RecordsBuilder::new();
    for run in runs {
        let mut rows = run.clone();
        while !rows.is_empty() {
            // An empty builder takes at least one row.
            rows.start += builder.push_rows(columns, rows.clone(), BATCH_BYTES)?;
            if !rows.is_empty() {
                full.push(std::mem::take(&mut builder));
            }
        }
    }
    if !builder.is_empty() {
        full.push(builder);
    }
    Ok(full)
}

/// The columns of records, in the types that records have.
struct Columns {
    value: ArrayRef,
    key: Option<ArrayRef>,
    timestamp: Option<ArrayRef>,
    headers: Option<ArrayRef>,
    stream: Option<StringArray>,
    stream_id: Option<Int64Array>,
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
            found => Ok(found.cloned()),
        };
        let bytes = |kind: &DataType| matches!(kind, DataType::Binary | DataType::Utf8);
        let micros = |kind: &DataType| matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, Some(_)));
        let headers = |kind: &DataType| matches!(kind, DataType::List(item) if is_header(item.data_type()));
        let stream = typed("stream", "string", |kind| *kind == DataType::Utf8)?;
        let stream_id = typed("stream_id", "bigint", |kind| *kind == DataType::Int64)?;
        if !has_target && stream.is_none() && stream_id.is_none() {
            return Err(RowError::Missing("stream"));
        }
        Ok(Self {
            value: typed("value", "binary or string", bytes)?.ok_or(RowError::Missing("value"))?,
            key: typed("key", "binary or string", bytes)?,
            timestamp: typed("timestamp", "timestamp in microseconds with a zone", micros)?,
            headers: typed("headers", "array<struct<key: string, value: binary>>", headers)?,
            stream: stream.filter(|_| !has_target).map(|array| array.as_string().clone()),
            stream_id: stream_id
                .filter(|_| !has_target)
                .map(|array| array.as_primitive::<Int64Type>().clone()),
        })
    }

    fn records(&self) -> Result<RecordColumns, EncodeError> {
        let columns = RecordColumns::new(
            &self.value,
            self.key.as_ref(),
            self.timestamp.as_ref(),
            self.headers.as_ref(),
        );
        Ok(columns?)
    }

    /// The columns with these rows alone.
    fn gathered(&self, runs: &[Range<usize>]) -> Result<Self, RowError> {
        let rows = runs.iter().cloned().flatten();
        let rows: UInt64Array = rows.map(|row| row as u64).collect();
        let gather = |array: &ArrayRef| take(array, &rows, None).map_err(EncodeError::Arrow);
        let gather_some = |array: &Option<ArrayRef>| array.as_ref().map(gather).transpose();
        Ok(Self {
            value: gather(&self.value)?,
            key: gather_some(&self.key)?,
            timestamp: gather_some(&self.timestamp)?,
            headers: gather_some(&self.headers)?,
            stream: None,
            stream_id: None,
        })
    }

    /// The runs of rows that go to each stream.
    fn runs(&self, rows: usize) -> Result<Vec<(Target, Runs)>, RowError> {
        match (&self.stream, &self.stream_id) {
            (Some(names), _) => {
                let name = |row| names.is_valid(row).then(|| names.value(row));
                let runs = runs_of(rows, name).map_err(|row| RowError::NoTarget("stream", row))?;
                Ok(runs
                    .into_iter()
                    .map(|(name, runs)| (Target::Name(name.to_owned()), runs))
                    .collect())
            }
            (None, Some(ids)) => {
                let id = |row| ids.is_valid(row).then(|| ids.value(row));
                let runs = runs_of(rows, id).map_err(|row| RowError::NoTarget("stream_id", row))?;
                Ok(runs
                    .into_iter()
                    .map(|(id, runs)| (Target::Id(StreamId(id)), runs))
                    .collect())
            }
            (None, None) => Ok(vec![(Target::Given, std::iter::once(0..rows).collect())]),
        }
    }
}

/// Rows by what `key` says of them, as runs; the first row without a key is the error.
fn runs_of<K: Copy + Eq + Hash>(rows: usize, key: impl Fn(usize) -> Option<K>) -> Result<HashMap<K, Runs>, usize> {
    let mut sorted: HashMap<K, Runs> = HashMap::new();
    let mut row = 0;
    while row < rows {
        let this = key(row).ok_or(row)?;
        let end = (row + 1..rows).find(|&next| key(next) != Some(this)).unwrap_or(rows);
        sorted.entry(this).or_default().push(row..end);
        row = end;
    }
    Ok(sorted)
}

fn is_header(item: &DataType) -> bool {
    matches!(item, DataType::Struct(fields)
        if fields.len() == 2
            && *fields[0].data_type() == DataType::Utf8
            && *fields[1].data_type() == DataType::Binary)
}
