//! What the server reads of the head of a batch that is appended.

use sbp_messages::{AppendInfo, ErrorCode};
use sbp_record::{BatchError, BatchHead, FaultKind};
use sbp_types::TimestampMs;

use crate::range::WriterSequence;
use crate::refusal::Refusal;

/// The writer of a batch, if it has one.
pub(super) fn claim_of(head: &BatchHead) -> Option<WriterSequence> {
    head.meta.writer_id.is_some().then_some(WriterSequence {
        writer: head.meta.writer_id,
        epoch: head.meta.writer_epoch,
        sequence: head.meta.base_sequence,
    })
}

/// The largest time among the records of a batch.
///
/// Batches of plain v0.1 peers have no maximum, only the base time. Where such records have times of their own, the base time
/// need not be that of any record.
pub(super) fn largest_time(head: &BatchHead) -> TimestampMs {
    match head.meta.max_timestamp {
        TimestampMs(0) => head.meta.base_timestamp,
        latest => latest,
    }
}

/// The refusal of a batch whose head cannot be read.
pub(super) fn head_refusal(info: &AppendInfo, error: &BatchError) -> Refusal {
    let code = match error.kind() {
        FaultKind::Invalid => ErrorCode::INVALID_REQUEST,
        FaultKind::Schema => ErrorCode::SCHEMA_MISMATCH,
        _ => ErrorCode::BATCH_CORRUPT,
    };
    Refusal::new(
        code,
        format!("the batch for stream {} is not stored: {error}", info.stream_id),
    )
}
