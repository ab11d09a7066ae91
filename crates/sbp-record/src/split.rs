//! Splits the payload of a FETCH into batches.

use bytes::Bytes;

use crate::cursor::{ChunkCursor, widen};
use crate::error::BatchError;
use crate::framing::{ALIGNMENT, BATCH_MAGIC};
use crate::head::BatchHead;

/// The batches in `payload`, which follow one another; each is a slice with its padding.
///
/// After an error the iterator ends, because the start of the next batch is unknown.
#[must_use]
pub fn split_batches(payload: &Bytes) -> SplitBatches {
    SplitBatches { rest: payload.clone() }
}

/// Iterator of [`split_batches`].
#[derive(Clone, Debug)]
pub struct SplitBatches {
    rest: Bytes,
}

impl Iterator for SplitBatches {
    type Item = Result<Bytes, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = take_batch(&mut self.rest);
        if found.is_err() {
            self.rest.clear();
        }
        Some(found.map(|(_, bytes)| bytes))
    }
}

/// Splits the first batch off `rest`. The zeros after it are its padding, because no batch begins with a zero.
pub(crate) fn take_batch(rest: &mut Bytes) -> Result<(BatchHead, Bytes), BatchError> {
    let mut cursor = ChunkCursor::contiguous(rest);
    let mut head = BatchHead::parse(&mut cursor)?;
    let behind = rest.get(head.total_length..).unwrap_or_default();
    let zeros = behind.iter().take_while(|&&byte| byte == 0).count();
    match behind.get(zeros) {
        _ if zeros >= ALIGNMENT => return Err(BatchError::Padding { length: widen(zeros) }),
        Some(&byte) if byte != BATCH_MAGIC => return Err(BatchError::Magic(byte)),
        _ => {}
    }
    head.total_length = head.total_length.saturating_add(zeros);
    let batch = rest.split_to(head.total_length.min(rest.len()));
    Ok((head, batch))
}
