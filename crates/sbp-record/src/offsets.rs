//! Columns of byte strings and text, and the offsets of Arrow columns.

use std::ops::Range;

use arrow_array::types::ByteArrayType;
use arrow_array::{Array, BinaryArray, GenericByteArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};

/// Returns the offsets if they begin at 0 and never decrease. Without a branch per number, so that the loop is
/// vectorised.
pub(crate) fn checked_offsets(offsets: ScalarBuffer<i32>) -> Option<OffsetBuffer<i32>> {
    let rising = offsets
        .iter()
        .zip(offsets.iter().skip(1))
        .fold(true, |ok, (a, b)| ok & (a <= b));
    (rising && offsets.first() == Some(&0)).then(|| OffsetBuffer::new(offsets))
}

/// The item at `row`; `None` if it is null or `row` is beyond the end.
pub(crate) fn item(column: &BinaryArray, row: usize) -> Option<&[u8]> {
    (row < column.len() && column.is_valid(row)).then(|| column.value(row))
}

/// The position of the bytes of `rows` in the column's data.
pub(crate) fn span<T: ByteArrayType<Offset = i32>>(column: &GenericByteArray<T>, rows: &Range<usize>) -> Range<usize> {
    let at = |row: usize| {
        let offset = column.value_offsets().get(row).copied().unwrap_or_default();
        usize::try_from(offset).unwrap_or_default()
    };
    at(rows.start)..at(rows.end)
}

/// Whether none of `rows` is null.
pub(crate) fn all_valid(column: &BinaryArray, rows: &Range<usize>) -> bool {
    let nulls = column.nulls();
    nulls.is_none_or(|nulls| nulls.slice(rows.start, rows.len()).null_count() == 0)
}
