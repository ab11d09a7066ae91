//! Maps the log's errors to error codes of the protocol.

use sbp_log::{LogError, ReadError};
use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey};

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
pub(crate) fn read_refusal(
    error: &ReadError,
    files_of: impl FnOnce(RangeKey, Offset, Offset) -> Vec<String>,
) -> Refusal {
    match error {
        ReadError::Released { .. } => Refusal::new(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, error.to_string()),
        ReadError::Damaged { key, from, to } => {
            let files = files_of(*key, *from, *to).join(" or ");
            let place = if files.is_empty() {
                files
            } else {
                format!(" in {files}")
            };
            let message = format!(
                "{error}{place}; `sbp verify` on the server's data directory, while that is stopped, names all damage"
            );
            Refusal::new(ErrorCode::RS_DATA_CORRUPTED, message)
        }
        _ => Refusal::new(ErrorCode::RS_DATA_CORRUPTED, error.to_string()),
    }
}
