//! The bytes of rows: a number that depends on what the rows hold and on nothing else.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sbp_record::largest_fitting;

/// Bytes that a row of a type of unknown width counts as.
const UNKNOWN: usize = 16;

/// Bytes of `rows` of a column: what they hold, and the offsets to it. Two ranges next to each other have
/// the sum of their bytes.
pub(crate) fn row_bytes(array: &ArrayRef, rows: &Range<usize>) -> usize {
    let count = rows.end.saturating_sub(rows.start);
    let spanned = |offsets: &[i32]| {
        let at = |row: usize| {
            offsets
                .get(row)
                .and_then(|&at| usize::try_from(at).ok())
                .unwrap_or_default()
        };
        at(rows.start)..at(rows.end)
    };
    let offsets = count.saturating_mul(4);
    match array.data_type() {
        DataType::Utf8 => offsets + spanned(array.as_string::<i32>().value_offsets()).len(),
        DataType::Binary => offsets + spanned(array.as_binary::<i32>().value_offsets()).len(),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            offsets + row_bytes(list.values(), &spanned(list.value_offsets()))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries = spanned(map.value_offsets());
            offsets + row_bytes(map.keys(), &entries) + row_bytes(map.values(), &entries)
        }
        DataType::Struct(_) => array
            .as_struct()
            .columns()
            .iter()
            .map(|part| row_bytes(part, rows))
            .sum(),
        // Counted as a byte, so that the bytes of two ranges add up.
        DataType::Boolean | DataType::Null => count,
        DataType::FixedSizeBinary(width) => count.saturating_mul(usize::try_from(*width).unwrap_or(UNKNOWN)),
        other => count.saturating_mul(other.primitive_width().unwrap_or(UNKNOWN)),
    }
}

/// How many of the first of `rows` have at most `room` bytes together.
pub(crate) fn rows_within(rows: &Range<usize>, room: usize, row_bytes: impl Fn(&Range<usize>) -> usize) -> usize {
    largest_fitting(0, rows.len(), |count| {
        row_bytes(&(rows.start..rows.start + count)) <= room
    })
}
