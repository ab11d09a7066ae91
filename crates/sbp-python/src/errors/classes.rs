//! Which code is raised as which class of `sbp_native.errors`.
//!
//! Below its root that tree has two halves, so that a caller can tell what became of an append: everything that was certainly
//! not done is a `RejectedError`, everything that may have been done an `IndeterminateError`. The tests in Python check that
//! each code has a class of its half.

use sbp_client::codes;
use sbp_messages::ErrorCode;

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
        codes::TLS_FAILED => "TlsError",
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
        codes::TANK_FRAMING => "TankFramingError",
        codes::TANK_LIMIT => "TankLimitError",
        codes::TANK_COMPRESSION => "TankCompressionError",
        codes::TANK_PEER => "TankPeerError",
        codes::TANK_REFUSED => "TankRefusedError",
        codes::TANK_LOST => "TankLostError",
        codes::TANK_UNKNOWN_NAME => "TankUnknownNameError",
        codes::TANK_OUT_OF_RANGE => "TankOutOfRangeError",
        codes::SEASTAR_FRAMING => "SeastarFramingError",
        codes::SEASTAR_LIMIT => "SeastarLimitError",
        codes::SEASTAR_COMPRESSION => "SeastarCompressionError",
        codes::SEASTAR_PEER => "SeastarPeerError",
        codes::SEASTAR_REFUSED => "SeastarRefusedError",
        codes::SEASTAR_LOST => "SeastarLostError",
        codes::SEASTAR_UNKNOWN_VERB => "SeastarUnknownVerbError",
        codes::SEASTAR_OUT_OF_RANGE => "SeastarOutOfRangeError",
        codes::PRAVEGA_FRAMING => "PravegaFramingError",
        codes::PRAVEGA_LIMIT => "PravegaLimitError",
        codes::PRAVEGA_PEER => "PravegaPeerError",
        codes::PRAVEGA_REFUSED => "PravegaRefusedError",
        codes::PRAVEGA_LOST => "PravegaLostError",
        codes::PRAVEGA_UNKNOWN_NAME => "PravegaUnknownNameError",
        codes::PRAVEGA_OUT_OF_RANGE => "PravegaOutOfRangeError",
        // The server failed inside, or has a number that this build does not know.
        _ => "ServerError",
    }
}
