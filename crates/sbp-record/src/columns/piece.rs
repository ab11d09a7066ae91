//! The columns of one batch that a column set asks for.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, PrimitiveArray, new_null_array};
use arrow_buffer::ScalarBuffer;
use arrow_data::transform::MutableArrayData;
use arrow_schema::ArrowError;
use sbp_types::StreamId;

use super::arrays;
use super::names::NameColumns;
use super::set::{Column, ColumnSet};
use crate::batch::{Batch, Body};
use crate::error::BatchError;
use crate::fitting::largest_fitting;
use crate::offsets::span;

/// The stream of some rows, for the columns that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The stream's name.
    pub name: Arc<str>,
    /// The stream's id.
    pub id: StreamId,
}

/// The columns of one batch that a column set asks for. Typed columns in the set are built once, others not at all.
pub(crate) struct Piece<'a> {
    pub(super) source: &'a Source,
    pub(super) batch: &'a Batch,
    set: &'a ColumnSet,
    /// The set's typed columns in its order. `None` for columns of other kinds, and for those that are newer than the
    /// batch.
    typed: Vec<Option<ArrayRef>>,
    /// Bytes of the typed columns.
    typed_bytes: usize,
    copied: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(set: &'a ColumnSet, source: &'a Source, batch: &'a Batch) -> Result<Self, BatchError> {
        let mut piece = Self {
            source,
            batch,
            set,
            typed: Vec::new(),
            typed_bytes: 0,
            copied: 0,
        };
        match (batch.body(), set.stream_schema()) {
            (Body::Empty, _) | (Body::Raw(_) | Body::Records { .. }, None) => {}
            (Body::Raw(_) | Body::Records { .. }, Some(_)) => {
                return Err(BatchError::TypedColumns(
                    "the batch holds records, not typed columns; read it as records",
                ));
            }
            (Body::Typed { .. }, None) => {
                return Err(BatchError::TypedColumns(
                    "the batch holds typed columns, not records; read it as Arrow",
                ));
            }
            (Body::Typed { view, schema }, Some(wanted)) => {
                // Schemas grow only at their ends, so a column that both have is at the same index in both.
                if !schema.goes_with(wanted) {
                    let fingerprint = schema.fingerprint();
                    return Err(BatchError::SchemaNeeded {
                        fingerprint,
                        given: "the reader's columns are of another",
                    });
                }
                for (column, field) in set.columns().iter().zip(set.schema().fields()) {
                    let Column::Typed(index) = column else {
                        piece.typed.push(None);
                        continue;
                    };
                    let (array, copied) = view.column(*index, field)?;
                    piece.copied = piece.copied.saturating_add(copied);
                    piece.typed_bytes = piece.typed_bytes.saturating_add(array.as_ref().map_or(0, slice_bytes));
                    piece.typed.push(array);
                }
            }
        }
        Ok(piece)
    }

    /// Bytes copied while the typed columns were built.
    pub(crate) fn copied(&self) -> usize {
        self.copied
    }

    /// The `rows` of the typed column at index `place` of the set; nulls if the batch does not have it.
    pub(super) fn typed(&self, place: usize, rows: &Range<usize>) -> Result<ArrayRef, ArrowError> {
        match self.typed.get(place).and_then(Option::as_ref) {
            Some(array) => from_first_row(array, rows),
            None => Ok(new_null_array(self.set.schema().field(place).data_type(), rows.len())),
        }
    }

    /// The columns of `rows`, each beginning at its own offset 0, with as little copying as possible.
    pub(crate) fn view(&self, rows: &Range<usize>, names: &mut NameColumns) -> Result<Vec<ArrayRef>, BatchError> {
        let columns = self.set.columns().iter().enumerate();
        let arrays = columns.map(|(place, column)| self.column(place, *column, rows, names));
        Ok(arrays.collect::<Result<_, ArrowError>>()?)
    }

    fn column(
        &self,
        place: usize,
        column: Column,
        rows: &Range<usize>,
        names: &mut NameColumns,
    ) -> Result<ArrayRef, ArrowError> {
        let records = match self.batch.body() {
            Body::Records { view, .. } => Some(view),
            _ => None,
        };
        match column {
            Column::Stream => names.column(&[(Arc::clone(&self.source.name), rows.len())]),
            Column::StreamId => Ok(int64(vec![self.source.id.0; rows.len()])),
            Column::Offset => Ok(Arc::new(PrimitiveArray::<Int64Type>::new(
                self.batch.positions().column(rows),
                None,
            ))),
            Column::Timestamp => arrays::timestamps(match records.and_then(|view| view.timestamps.as_ref()) {
                Some(times) => times.slice(rows.start, rows.len()),
                None => vec![self.batch.base_micros(); rows.len()].into(),
            }),
            Column::Key => arrays::binary(records.and_then(|view| view.key.as_ref()), rows),
            Column::Value => match self.batch.body() {
                Body::Raw(value) if *rows == (0..1) => arrays::one_binary(value),
                _ => arrays::binary(records.and_then(|view| view.value.as_ref()), rows),
            },
            Column::Headers => arrays::headers(records.and_then(|view| view.headers.as_ref()), rows),
            Column::Partition | Column::TimestampType => {
                let zeros = ScalarBuffer::from(vec![0_i32; rows.len()]);
                Ok(Arc::new(PrimitiveArray::<Int32Type>::try_new(zeros, None)?))
            }
            Column::Typed(_) => self.typed(place, rows),
        }
    }

    /// The bytes of `rows` in columns of the set: keys, values and headers, and a proportional part of typed columns.
    pub(crate) fn byte_length(&self, rows: &Range<usize>) -> usize {
        let wanted = |column| self.set.has(column);
        let length = |column: Option<&BinaryArray>, rows: &_| column.map_or(0, |column| span(column, rows).len());
        match self.batch.body() {
            Body::Empty => 0,
            Body::Raw(value) if wanted(Column::Value) => value.len(),
            Body::Raw(_) => 0,
            Body::Records { view, .. } => {
                let key = view.key.as_ref().filter(|_| wanted(Column::Key));
                let value = view.value.as_ref().filter(|_| wanted(Column::Value));
                let headers = view
                    .headers
                    .as_ref()
                    .filter(|_| wanted(Column::Headers))
                    .map_or(0, |headers| {
                        let items = headers.items(rows.start).start..headers.items(rows.end.saturating_sub(1)).end;
                        span(&headers.key, &items).len() + length(headers.value.as_ref(), &items)
                    });
                length(key, rows) + length(value, rows) + headers
            }
            Body::Typed { .. } => self.typed_bytes.saturating_mul(rows.len()) / self.batch.record_count().max(1),
        }
    }

    /// How many of `rows` fit into `max_rows` and `max_bytes`; at least one.
    pub(crate) fn fitting(&self, rows: &Range<usize>, max_rows: usize, max_bytes: usize) -> usize {
        largest_fitting(1, rows.len().min(max_rows), |count| {
            self.byte_length(&(rows.start..rows.start + count)) <= max_bytes
        })
    }
}

/// The bytes of an array's own part of its buffers, without what is outside its slice.
fn slice_bytes(array: &ArrayRef) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_default()
}

pub(super) fn int64(values: Vec<i64>) -> ArrayRef {
    Arc::new(PrimitiveArray::<Int64Type>::from(values))
}

/// The rows of an array, as an array whose own offsets begin at 0.
fn from_first_row(array: &ArrayRef, rows: &Range<usize>) -> Result<ArrayRef, ArrowError> {
    if rows.start == 0 {
        return Ok(array.slice(0, rows.len()));
    }
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, rows.len());
    copy.try_extend(0, rows.start, rows.end)?;
    Ok(arrow_array::make_array(copy.freeze()))
}
