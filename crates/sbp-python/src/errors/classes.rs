//! The Python exception tree, and which code is raised as which class. The tests in Python compare the two.

use sbp_client::codes;
use sbp_messages::ErrorCode;

/// One class of the tree.
pub(crate) struct PythonClass {
    /// Its name.
    pub(crate) name: &'static str,
    /// The class of ours it derives from; empty for the root.
    pub(crate) base: &'static str,
    /// The built-in exception it also is, where Python has the word.
    pub(crate) builtin: Option<&'static str>,
}

const fn class(name: &'static str, base: &'static str, builtin: Option<&'static str>) -> PythonClass {
    PythonClass { name, base, builtin }
}

/// The tree, parents before children.
///
/// Below the root it has two halves, so that a caller can tell what became of an append: everything that was certainly
/// not done is a `RejectedError`, everything that may have been done an `IndeterminateError`.
pub(crate) const CLASSES: &[PythonClass] = &[
    class("SbpError", "", None),
    class("RejectedError", "SbpError", None),
    class("IndeterminateError", "SbpError", None),
    // Not done.
    class("InvalidRequestError", "RejectedError", Some("ValueError")),
    class("PayloadTooLargeError", "InvalidRequestError", None),
    class("SchemaMismatchError", "InvalidRequestError", None),
    class("BatchCorruptError", "InvalidRequestError", None),
    class("UnsupportedError", "RejectedError", None),
    class("AccessDeniedError", "RejectedError", Some("PermissionError")),
    class("NotFoundError", "RejectedError", Some("LookupError")),
    class("StreamNotFoundError", "NotFoundError", None),
    class("StreamReplacedError", "StreamNotFoundError", None),
    class("RangeNotFoundError", "NotFoundError", None),
    class("AlreadyExistsError", "RejectedError", None),
    class("PreconditionFailedError", "RejectedError", None),
    class("CursorTakenError", "PreconditionFailedError", None),
    class("SequenceError", "RejectedError", None),
    class("WriterFencedError", "RejectedError", None),
    class("RangeSealedError", "RejectedError", None),
    class("OffsetOutOfRangeError", "RejectedError", None),
    class("ThrottledError", "RejectedError", None),
    class("BackPressureError", "ThrottledError", None),
    class("UnavailableError", "RejectedError", None),
    class("ConnectionFailedError", "UnavailableError", Some("ConnectionError")),
    class("StorageFullError", "RejectedError", None),
    class("DataCorruptedError", "RejectedError", None),
    class("DataLossError", "RejectedError", None),
    class("DeadlineExceededError", "RejectedError", Some("TimeoutError")),
    class("ClosedError", "RejectedError", None),
    class("ForkedClientError", "ClosedError", None),
    class("ServerStartError", "RejectedError", None),
    class("PortTakenError", "ServerStartError", Some("OSError")),
    class("DirectoryLockedError", "ServerStartError", Some("OSError")),
    class("ServerConfigError", "ServerStartError", Some("ValueError")),
    // Perhaps done.
    class("ServerError", "IndeterminateError", None),
    class("LogFailedError", "ServerError", None),
    class("ProtocolError", "IndeterminateError", None),
    class("ConnectionLostError", "IndeterminateError", Some("ConnectionError")),
    class("OutcomeUnknownTimeoutError", "IndeterminateError", Some("TimeoutError")),
];

/// The class that a code is raised as.
pub(crate) fn of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NONE => "SbpError",
        ErrorCode::APPEND_TO_COMMITTED_OFFSET
        | ErrorCode::APPEND_TO_PENDING_OFFSET
        | ErrorCode::APPEND_TO_OVERTAKEN_OFFSET
        | codes::CANCELLED => "IndeterminateError",
        ErrorCode::INVALID_REQUEST | ErrorCode::HEADER_FIELDS_TOO_LARGE | codes::BAD_ARGUMENT => "InvalidRequestError",
        ErrorCode::PAYLOAD_TOO_LARGE => "PayloadTooLargeError",
        ErrorCode::SCHEMA_MISMATCH => "SchemaMismatchError",
        ErrorCode::BATCH_CORRUPT => "BatchCorruptError",
        ErrorCode::UNSUPPORTED_VERSION
        | ErrorCode::UNSUPPORTED_OPERATION
        | ErrorCode::UNKNOWN_OPERATION
        | ErrorCode::PD_NOT_IMPLEMENTED
        | ErrorCode::RS_NOT_IMPLEMENTED
        | codes::FEATURE_NOT_OFFERED => "UnsupportedError",
        ErrorCode::UNAUTHORIZED | ErrorCode::FORBIDDEN => "AccessDeniedError",
        ErrorCode::NOT_FOUND => "StreamNotFoundError",
        codes::STREAM_REPLACED => "StreamReplacedError",
        ErrorCode::RANGE_NOT_FOUND => "RangeNotFoundError",
        ErrorCode::ALREADY_EXISTS => "AlreadyExistsError",
        ErrorCode::PRECONDITION_FAILED | ErrorCode::CREATE_RANGE_BEFORE_SEAL | ErrorCode::EXPIRED_RANGE_EPOCH => {
            "PreconditionFailedError"
        }
        codes::CURSOR_TAKEN => "CursorTakenError",
        ErrorCode::SEQUENCE_GAP | ErrorCode::SEQUENCE_OVERLAP => "SequenceError",
        ErrorCode::WRITER_FENCED => "WriterFencedError",
        ErrorCode::RANGE_ALREADY_SEALED => "RangeSealedError",
        ErrorCode::OFFSET_OVERFLOW | ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS => "OffsetOutOfRangeError",
        ErrorCode::TOO_MANY_REQUESTS => "ThrottledError",
        codes::BACK_PRESSURE => "BackPressureError",
        ErrorCode::PD_NOT_LEADER | ErrorCode::PD_NO_AVAILABLE_RS | ErrorCode::SHUTTING_DOWN => "UnavailableError",
        codes::CONNECTION_FAILED => "ConnectionFailedError",
        ErrorCode::INSUFFICIENT_STORAGE => "StorageFullError",
        ErrorCode::RS_DATA_CORRUPTED | codes::CORRUPT_ON_ARRIVAL => "DataCorruptedError",
        codes::DATA_LOSS => "DataLossError",
        ErrorCode::REQUEST_TIMEOUT | codes::DEADLINE_BEFORE_SEND => "DeadlineExceededError",
        codes::CLOSED => "ClosedError",
        codes::FORKED_CLIENT => "ForkedClientError",
        codes::SERVER_NOT_STARTED => "ServerStartError",
        codes::PORT_TAKEN => "PortTakenError",
        codes::DIRECTORY_LOCKED => "DirectoryLockedError",
        codes::BAD_SERVER_CONFIG => "ServerConfigError",
        ErrorCode::LOG_FAILED => "LogFailedError",
        codes::PROTOCOL_VIOLATION => "ProtocolError",
        codes::CONNECTION_LOST => "ConnectionLostError",
        codes::DEADLINE_AFTER_SEND => "OutcomeUnknownTimeoutError",
        // The server failed inside, or has a number that this build does not know.
        _ => "ServerError",
    }
}

/// Whether a class of the tree is, or derives from, another.
pub(crate) fn is_below(class: &str, ancestor: &str) -> bool {
    let mut class = class;
    loop {
        if class == ancestor {
            return true;
        }
        match CLASSES.iter().find(|row| row.name == class) {
            Some(row) => class = row.base,
            None => return false,
        }
    }
}
