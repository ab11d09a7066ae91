//! Rows of record columns, sorted by the stream they go to and cut into batches.
//!
//! Where a batch ends is decided by the rows before it alone: by their number and their bytes, never by how they arrive
//! or by time. So a task that is repeated makes the same batches, which the server then recognises.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;
use sbp_record::{EncodeError, MAX_UNCOMPRESSED_LENGTH, RecordColumns, RecordsBuilder};
use sbp_types::StreamId;

use crate::spark::row_bytes::{row_bytes, rows_within};

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

/// When a batch is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// It has so many rows.
    pub(crate) rows: usize,
    /// The next row would give it more bytes than this.
    pub(crate) bytes: usize,
}

/// Rows next to each other, several times.
type Runs = Vec<Range<usize>>;

/// A target whose rows come in runs that are shorter on average has them gathered first.
const RUN: usize = 8;

/// With rows for many streams: before the row that makes it more bytes than this, every batch that was begun is complete. Bounds what they take
/// together.
const SWEEP_BYTES: usize = 16 << 20;

/// Builders that are kept for the batches to come: one incoming batch completes few.
const SPARE: usize = 4;

/// Collects rows into batches, one for each stream at a time.
#[derive(Debug)]
pub(crate) struct RowGatherer {
    limits: BatchLimits,
    has_target: bool,
    open: BTreeMap<Target, Open>,
    /// Bytes of rows since the last sweep.
    swept: usize,
    /// Builders of batches that were complete, without their rows.
    spare: Vec<RecordsBuilder>,
}

/// A batch that was begun.
#[derive(Debug, Default)]
struct Open {
    builder: RecordsBuilder,
    bytes: usize,
}

/// Complete batches, in the order in which they became so.
pub(crate) type Complete = Vec<(Target, RecordsBuilder)>;

impl RowGatherer {
    pub(crate) fn new(limits: BatchLimits, has_target: bool) -> Self {
        Self {
            limits,
            has_target,
            open: BTreeMap::new(),
            swept: 0,
            spare: Vec::new(),
        }
    }

    /// Takes the rows of `batch`; adds the batches that are complete with them to `complete`.
    pub(crate) fn push(&mut self, batch: &RecordBatch, complete: &mut Complete) -> Result<(), RowError> {
        let columns = Columns::of(batch, self.has_target)?;
        let mut rows = 0..batch.num_rows();
        if self.has_target {
            let records = columns.records()?;
            return self.add(&Target::Given, &columns, &records, rows, complete);
        }
        while !rows.is_empty() {
            let room = SWEEP_BYTES.saturating_sub(self.swept);
            let fits = rows_within(&rows, room, |rows| columns.row_bytes(rows));
            if fits == 0 && self.swept > 0 {
                self.sweep(complete);
                continue;
            }
            let taken = rows.start..rows.start + fits.max(1);
            self.swept = self.swept.saturating_add(columns.row_bytes(&taken));
            rows.start = taken.end;
            self.sort(&columns, taken, complete)?;
        }
        Ok(())
    }

    /// Completes every batch that was begun.
    pub(crate) fn sweep(&mut self, complete: &mut Complete) {
        self.swept = 0;
        let open = std::mem::take(&mut self.open);
        // A batch that was complete with its last row has left an empty one behind.
        let begun = open.into_iter().filter(|(_, open)| !open.builder.is_empty());
        complete.extend(begun.map(|(target, open)| (target, open.builder)));
    }

    /// Takes back a builder whose batch was written: the next one finds its memory there.
    pub(crate) fn give_back(&mut self, builder: RecordsBuilder) {
        if builder.is_empty() && self.spare.len() < SPARE {
            self.spare.push(builder);
        }
    }

    /// Gives rows to their streams.
    fn sort(&mut self, columns: &Columns, rows: Range<usize>, complete: &mut Complete) -> Result<(), RowError> {
        for (target, runs) in columns.runs(rows)? {
            let rows: usize = runs.iter().map(Range::len).sum();
            if runs.len() * RUN <= rows || runs.len() == 1 {
                let records = columns.records()?;
                for run in runs {
                    self.add(&target, columns, &records, run, complete)?;
                }
            } else {
                let gathered = columns.gathered(&runs)?;
                let records = gathered.records()?;
                self.add(&target, &gathered, &records, 0..rows, complete)?;
            }
        }
        Ok(())
    }

    /// Gives rows to one stream.
    fn add(
        &mut self,
        target: &Target,
        columns: &Columns,
        records: &RecordColumns,
        mut rows: Range<usize>,
        complete: &mut Complete,
    ) -> Result<(), RowError> {
        let BatchLimits { rows: most, bytes } = self.limits;
        while !rows.is_empty() {
            let open = match self.open.get_mut(target) {
                Some(open) => open,
                None => self.open.entry(target.clone()).or_default(),
            };
            let room = most.saturating_sub(open.builder.len()).min(rows.len());
            let near = rows.start..rows.start + room;
            let fits = rows_within(&near, bytes.saturating_sub(open.bytes), |rows| columns.row_bytes(rows));
            // A batch takes one row, however large.
            let count = if open.builder.is_empty() { fits.max(1) } else { fits };
            if count > 0 {
                let taken = rows.start..rows.start + count;
                open.bytes = open.bytes.saturating_add(columns.row_bytes(&taken));
                rows.start = taken.end;
                push_all(&mut open.builder, records, taken)?;
            }
            if !rows.is_empty() || open.builder.len() >= most {
                let next = Open {
                    builder: self.spare.pop().unwrap_or_default(),
                    bytes: 0,
                };
                let full = std::mem::replace(open, next);
                complete.push((target.clone(), full.builder));
            }
        }
        Ok(())
    }
}

fn push_all(builder: &mut RecordsBuilder, records: &RecordColumns, mut rows: Range<usize>) -> Result<(), EncodeError> {
    while !rows.is_empty() {
        match builder.push_rows(records, rows.clone(), MAX_UNCOMPRESSED_LENGTH)? {
            0 => {
                let limit = MAX_UNCOMPRESSED_LENGTH as u64;
                return Err(EncodeError::TooLarge { length: limit, limit });
            }
            taken => rows.start += taken,
        }
    }
    Ok(())
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

    /// Bytes of what some rows hold, and of what it takes to hold them.
    fn row_bytes(&self, rows: &Range<usize>) -> usize {
        let columns = [Some(&self.value), self.key.as_ref(), self.headers.as_ref()];
        let times = self.timestamp.as_ref().map_or(0, |_| rows.len().saturating_mul(8));
        let others = columns.into_iter().flatten();
        others
            .map(|column| row_bytes(column, rows))
            .fold(times, usize::saturating_add)
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
    fn runs(&self, rows: Range<usize>) -> Result<Vec<(Target, Runs)>, RowError> {
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
            (None, None) => Ok(vec![(Target::Given, std::iter::once(rows).collect())]),
        }
    }
}

/// Rows by what `key` says of them, as runs; the first row without a key is the error.
fn runs_of<K: Copy + Eq + Hash>(
    rows: Range<usize>,
    key: impl Fn(usize) -> Option<K>,
) -> Result<HashMap<K, Runs>, usize> {
    let mut sorted: HashMap<K, Runs> = HashMap::new();
    let mut row = rows.start;
    while row < rows.end {
        let this = key(row).ok_or(row)?;
        let end = (row + 1..rows.end)
            .find(|&next| key(next) != Some(this))
            .unwrap_or(rows.end);
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
