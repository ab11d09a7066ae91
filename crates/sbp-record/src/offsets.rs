//! Checks the offsets of Arrow columns.

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
