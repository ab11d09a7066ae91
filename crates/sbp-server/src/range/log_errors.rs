//! The log's errors in the protocol's words.

use sbp_log::{LogError, ReadError};
use sbp_messages::ErrorCode;

use crate::refusal::Refusal;

/// What an append is told whose entry the log did not store.
pub(crate) fn append_refusal(error: &LogError) -> Refusal {
    let code = match error {
        // Behind an append that found the disk full, the offsets that were promised next have no place either.
        LogError::DiskFull | LogError::OutOfOrder { .. } => ErrorCode::INSUFFICIENT_STORAGE,
        LogError::TooLarge { .. } => ErrorCode::PAYLOAD_TOO_LARGE,
        LogError::EndUnknown { .. } => ErrorCode::RS_DATA_CORRUPTED,
        LogError::Closed => ErrorCode::SHUTTING_DOWN,
        _ => ErrorCode::LOG_FAILED,
    };
    Refusal::new(code, error.to_string())
}

/// Whether the log takes nothing more after this error.
pub(crate) fn is_final(error: &LogError) -> bool {
    matches!(error, LogError::Failed { .. } | LogError::Indeterminate { .. })
}

/// What a fetch is told whose batches cannot be read.
pub(crate) fn read_refusal(error: &ReadError) -> Refusal {
    let code = match error {
        ReadError::Released { .. } => ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        _ => ErrorCode::RS_DATA_CORRUPTED,
    };
    Refusal::new(code, error.to_string())
}
