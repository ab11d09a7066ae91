//! Offsets of Arrow columns.

use arrow_buffer::{OffsetBuffer, ScalarBuffer};

/// Whether the numbers begin at 0 and never fall; without a branch per number, so that the loop is vectorised.
pub(crate) fn checked_offsets(offsets: ScalarBuffer<i32>) -> Option<OffsetBuffer<i32>> {
    let rising = offsets
        .iter()
        .zip(offsets.iter().skip(1))
        .fold(true, |ok, (a, b)| ok & (a <= b));
    (rising && offsets.first() == Some(&0)).then(|| OffsetBuffer::new(offsets))
}
