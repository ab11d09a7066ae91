//! Maps the log's errors to error codes of the protocol.

use sbp_log::{LogError, ReadError};
use sbp_messages::ErrorCode;

use crate::refusal::Refusal;

/// The refusal of an append that the log did not store.
pub(crate) fn append_refusal(error: &LogError) -> Refusal {
    let code = match error {
        // After an append that found the disk full, the log refuses the appends behind it: their offsets would leave a
        // gap.
        LogError::DiskFull | LogError::OutOfOrder { .. } => ErrorCode::INSUFFICIENT_STORAGE,
        LogError::TooLarge { .. } => ErrorCode::PAYLOAD_TOO_LARGE,
        LogError::EndUnknown { .. } => ErrorCode::RS_DATA_CORRUPTED,
        LogError::Closed => ErrorCode::SHUTTING_DOWN,
        _ => ErrorCode::LOG_FAILED,
    };
    Refusal::new(code, error.to_string())
}

/// Whether the log takes no more appends after this error.
pub(crate) fn is_final(error: &LogError) -> bool {
    matches!(error, LogError::Failed { .. } | LogError::Indeterminate { .. })
}

/// The refusal of a fetch whose batches the log cannot read.
pub(crate) fn read_refusal(error: &ReadError) -> Refusal {
    let code = match error {
        ReadError::Released { .. } => ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS,
        _ => ErrorCode::RS_DATA_CORRUPTED,
    };
    Refusal::new(code, error.to_string())
}
