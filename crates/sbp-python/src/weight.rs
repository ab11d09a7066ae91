//! What rows weigh: a number of bytes that depends on what they hold and on nothing else.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use sbp_record::largest_fitting;

/// What a row of a type of unknown width counts.
const UNKNOWN: usize = 16;

/// Bytes of `rows` of a column: what they hold, and the offsets to it. The weight of two ranges next to each other is
/// the sum of theirs.
pub(crate) fn weight(array: &ArrayRef, rows: &Range<usize>) -> usize {
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
            offsets + weight(list.values(), &spanned(list.value_offsets()))
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries = spanned(map.value_offsets());
            offsets + weight(map.keys(), &entries) + weight(map.values(), &entries)
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|part| weight(part, rows)).sum(),
        // Counted as a byte, so that two ranges weigh what they weigh together.
        DataType::Boolean | DataType::Null => count,
        DataType::FixedSizeBinary(width) => count.saturating_mul(usize::try_from(*width).unwrap_or(UNKNOWN)),
        other => count.saturating_mul(other.primitive_width().unwrap_or(UNKNOWN)),
    }
}

/// How many of the first of `rows` weigh at most `room` together.
pub(crate) fn fitting(rows: &Range<usize>, room: usize, weight: impl Fn(&Range<usize>) -> usize) -> usize {
    largest_fitting(0, rows.len(), |count| weight(&(rows.start..rows.start + count)) <= room)
}
