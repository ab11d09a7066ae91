//! Columns that collect the rows of several small batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{BinaryType, ByteArrayType, Int32Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, PrimitiveArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::arrays;
use super::names::NameColumns;
use super::piece::{Piece, int64};
use super::set::Column;
use crate::batch::Body;
use crate::offsets::span;
use crate::records::HeadersColumn;

/// One column of the collected rows.
pub(super) enum Growing {
    /// The names of the streams, each with its number of consecutive rows.
    Names(Vec<(Arc<str>, usize)>),
    Int64(Vec<i64>),
    Timestamps(Vec<i64>),
    Zeros(usize),
    Bytes(GrowingBytes),
    Headers {
        list: Vec<i32>,
        names: GrowingBytes,
        values: GrowingBytes,
    },
    Typed(Vec<ArrayRef>),
}

impl Growing {
    pub(super) fn new(column: Column) -> Self {
        match column {
            Column::Stream => Self::Names(Vec::new()),
            Column::StreamId | Column::Offset => Self::Int64(Vec::new()),
            Column::Timestamp => Self::Timestamps(Vec::new()),
            Column::Key | Column::Value => Self::Bytes(GrowingBytes::default()),
            Column::Headers => Self::Headers {
                list: vec![0],
                names: GrowingBytes::default(),
                values: GrowingBytes::default(),
            },
            Column::Partition | Column::TimestampType => Self::Zeros(0),
            Column::Typed(_) => Self::Typed(Vec::new()),
        }
    }

    /// Adds the rows of a batch. `place` is the index of the column in the set.
    pub(super) fn append(
        &mut self,
        place: usize,
        column: Column,
        piece: &Piece<'_>,
        rows: &Range<usize>,
    ) -> Result<(), ArrowError> {
        let records = match piece.batch.body() {
            Body::Records { view, .. } => Some(view),
            _ => None,
        };
        match self {
            Self::Names(runs) => match runs.last_mut() {
                Some((name, count)) if *name == piece.source.name => *count += rows.len(),
                _ => runs.push((Arc::clone(&piece.source.name), rows.len())),
            },
            Self::Int64(values) if column == Column::Offset => {
                piece.batch.positions().extend(rows, values);
            }
            Self::Int64(values) => values.resize(values.len() + rows.len(), piece.source.id.0),
            Self::Timestamps(values) => match records.and_then(|view| view.timestamps.as_ref()) {
                Some(times) => values.extend_from_slice(times.get(rows.clone()).unwrap_or_default()),
                None => values.resize(values.len() + rows.len(), piece.batch.base_micros()),
            },
            Self::Zeros(count) => *count += rows.len(),
            Self::Bytes(bytes) => match (piece.batch.body(), column, records) {
                (Body::Raw(value), Column::Value, _) => bytes.push(value),
                (_, Column::Value, Some(view)) => bytes.append(view.value.as_ref(), rows),
                (_, _, view) => bytes.append(view.and_then(|view| view.key.as_ref()), rows),
            },
            Self::Headers { list, names, values } => {
                let column = records.and_then(|view| view.headers.as_ref());
                append_headers(list, names, values, column, rows);
            }
            Self::Typed(arrays) => arrays.push(piece.typed(place, rows)?),
        }
        Ok(())
    }

    /// Takes the collected rows out as an array.
    pub(super) fn finish(&mut self, names: &mut NameColumns) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Names(runs) => names.column(&std::mem::take(runs)),
            Self::Int64(values) => Ok(int64(take(values))),
            Self::Timestamps(values) => arrays::timestamps(take(values).into()),
            Self::Zeros(count) => {
                let zeros = ScalarBuffer::from(vec![0_i32; std::mem::take(count)]);
                Ok(Arc::new(PrimitiveArray::<Int32Type>::try_new(zeros, None)?))
            }
            Self::Bytes(bytes) => Ok(Arc::new(bytes.finish::<BinaryType>()?)),
            Self::Headers { list, names, values } => {
                let list = OffsetBuffer::new(std::mem::replace(list, vec![0]).into());
                arrays::header_list(list, names.finish()?, Arc::new(values.finish::<BinaryType>()?))
            }
            Self::Typed(arrays) => {
                let arrays = std::mem::take(arrays);
                let parts: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
                arrow_select::concat::concat(&parts)
            }
        }
    }
}

fn append_headers(
    list: &mut Vec<i32>,
    names: &mut GrowingBytes,
    values: &mut GrowingBytes,
    column: Option<&HeadersColumn>,
    rows: &Range<usize>,
) {
    let end = list.last().copied().unwrap_or_default();
    let Some(column) = column else {
        list.resize(list.len() + rows.len(), end);
        return;
    };
    let ends = column.list.get(rows.start..=rows.end).unwrap_or_default();
    let (Some(&first), Some(&last)) = (ends.first(), ends.last()) else {
        return;
    };
    list.extend(ends.iter().skip(1).map(|&at| at - first + end));
    let at = |offset: i32| usize::try_from(offset).unwrap_or_default();
    let items = at(first)..at(last);
    names.append(Some(&column.key), &items);
    values.append(column.value.as_ref(), &items);
}

/// Takes the values out and leaves a vector of the same capacity, because as many rows are likely to follow.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(values.len());
    std::mem::replace(values, next)
}

/// A growing column of byte strings.
pub(super) struct GrowingBytes {
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Default for GrowingBytes {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            data: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl GrowingBytes {
    /// The end of the data. Fits, because the collected bytes stay below the assembler's limit plus one batch, far
    /// below 2 GiB.
    fn end(&self) -> i32 {
        self.offsets.last().copied().unwrap_or_default()
    }

    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.offsets.push(i32::try_from(self.data.len()).unwrap_or(i32::MAX));
        self.nulls.append_non_null();
    }

    /// Adds `rows` of a column; nulls if there is no column.
    fn append<T>(&mut self, column: Option<&GenericByteArray<T>>, rows: &Range<usize>)
    where
        T: ByteArrayType<Offset = i32>,
    {
        let end = self.end();
        let ends = column.and_then(|column| column.value_offsets().get(rows.start..=rows.end));
        let (Some(column), Some(ends)) = (column, ends) else {
            self.offsets.resize(self.offsets.len() + rows.len(), end);
            self.nulls.append_n_nulls(rows.len());
            return;
        };
        let first = ends.first().copied().unwrap_or_default();
        // Cannot overflow: `end` and the batch's own length are both far below 1 GiB.
        self.offsets.extend(ends.iter().skip(1).map(|&at| at - first + end));
        let bytes = column.value_data().get(span(column, rows));
        self.data.extend_from_slice(bytes.unwrap_or_default());
        match column.nulls() {
            Some(nulls) => self.nulls.append_buffer(&nulls.slice(rows.start, rows.len())),
            None => self.nulls.append_n_non_nulls(rows.len()),
        }
    }

    fn finish<T: ByteArrayType<Offset = i32>>(&mut self) -> Result<GenericByteArray<T>, ArrowError> {
        let offsets = OffsetBuffer::new(take(&mut self.offsets).into());
        self.offsets.push(0);
        GenericByteArray::try_new(offsets, Buffer::from_vec(take(&mut self.data)), self.nulls.finish())
    }
}
