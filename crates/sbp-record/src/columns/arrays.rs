//! Arrow arrays of parts of a batch. Values are never copied; offsets are copied when a part does not begin at the
//! first row.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{ByteArrayType, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, ListArray, PrimitiveArray, StringArray, StructArray, new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use super::set::{header_fields, header_item};
use crate::offsets::span;
use crate::records::HeadersColumn;
use crate::schema::UTC;

/// The rows of a column, with offsets from 0 and a bitmap that begins at its first bit.
fn part<T: ByteArrayType<Offset = i32>>(
    column: &GenericByteArray<T>,
    rows: &Range<usize>,
) -> Result<GenericByteArray<T>, ArrowError> {
    let bytes = span(column, rows);
    GenericByteArray::try_new(
        from_zero(column.offsets().slice(rows.start, rows.len())),
        column.values().slice_with_length(bytes.start, bytes.len()),
        column.nulls().and_then(|nulls| slice_nulls(nulls, rows)),
    )
}

fn from_zero(offsets: OffsetBuffer<i32>) -> OffsetBuffer<i32> {
    match offsets.first() {
        0 => offsets,
        first => offsets.subtract(first),
    }
}

/// The validity bitmap of the rows, shifted to begin at the first bit; `None` when no row is null.
fn slice_nulls(nulls: &NullBuffer, rows: &Range<usize>) -> Option<NullBuffer> {
    let bits = nulls.inner().slice(rows.start, rows.len());
    Some(NullBuffer::new(BooleanBuffer::new(bits.sliced(), 0, rows.len()))).filter(|nulls| nulls.null_count() > 0)
}

/// The binary column of `rows`; all null if there is no column.
pub(super) fn binary(column: Option<&BinaryArray>, rows: &Range<usize>) -> Result<ArrayRef, ArrowError> {
    let Some(column) = column else {
        return Ok(new_null_array(&DataType::Binary, rows.len()));
    };
    Ok(Arc::new(part(column, rows)?))
}

/// A binary column of one row.
pub(super) fn one_binary(value: &bytes::Bytes) -> Result<ArrayRef, ArrowError> {
    let length = i32::try_from(value.len()).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, length]));
    Ok(Arc::new(BinaryArray::try_new(
        offsets,
        Buffer::from(value.clone()),
        None,
    )?))
}

/// The headers column of `rows`; empty lists if there is no column.
pub(super) fn headers(column: Option<&HeadersColumn>, rows: &Range<usize>) -> Result<ArrayRef, ArrowError> {
    let Some(column) = column else {
        let none = StringArray::new_null(0);
        return header_list(OffsetBuffer::new_zeroed(rows.len()), none, binary(None, &(0..0))?);
    };
    let list = column.list.slice(rows.start, rows.len());
    let at = |offset: i32| usize::try_from(offset).unwrap_or_default();
    let items = at(list.first())..at(list.last());
    let values = binary(column.value.as_ref(), &items)?;
    header_list(from_zero(list), part(&column.key, &items)?, values)
}

/// Combines names and values into the headers of `list`.
pub(super) fn header_list(
    list: OffsetBuffer<i32>,
    names: StringArray,
    values: ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let items = StructArray::try_new(header_fields(), vec![Arc::new(names), values], None)?;
    Ok(Arc::new(ListArray::try_new(
        header_item(),
        list,
        Arc::new(items),
        None,
    )?))
}

/// A timestamp column in UTC.
pub(super) fn timestamps(micros: ScalarBuffer<i64>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(
        PrimitiveArray::<TimestampMicrosecondType>::try_new(micros, None)?.with_timezone(UTC),
    ))
}
