//! Error codes: one open number, and one table that says everything about it.

use std::fmt;

use crate::error_rule::{ErrorRule, Retry};

/// Why a call, or one entry of it, did not succeed. 0 is success.
///
/// Numbers that this build does not know are kept. Numbers from [`ErrorCode::FIRST_LOCAL`] never travel: they name what
/// went wrong on this side of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// Makes the constants and the table out of the same rows, so that there is no second list to forget.
macro_rules! error_codes {
    ($( $number:literal $name:ident $retry:ident $done:ident $class:literal $meaning:literal $advice:literal )*) => {
        #[allow(missing_docs, reason = "each constant's meaning is the one of its row")]
        impl ErrorCode {
            $(
                #[doc = concat!("`", $class, "`: ", $meaning)]
                pub const $name: Self = Self($number);
            )*

            /// Every code with a row of its own, in order of number.
            pub const ALL: &'static [Self] = &[$( Self::$name ),*];

            fn row(self) -> Option<ErrorRule> {
                match self.0 {
                    $( $number => Some(ErrorRule {
                        name: stringify!($name),
                        retry: Retry::$retry,
                        may_have_been_done: error_codes!(@$done),
                        python_class: $class,
                        meaning: $meaning,
                        advice: $advice,
                    }), )*
                    _ => None,
                }
            }
        }
    };
    (@not_done) => { false };
    (@maybe) => { true };
}

error_codes! {
    // Everywhere.
    0 NONE Never not_done "SbpError"
        "the call succeeded"
        "success"
    1 UNKNOWN Never maybe "ServerError"
        "the server failed in a way that it has no code for"
        "look at the server's log"
    2 INVALID_REQUEST Never not_done "InvalidRequestError"
        "the server can read the request, and it makes no sense"
        "correct the request; the message says which part of it"
    3 UNSUPPORTED_VERSION Never not_done "UnsupportedError"
        "the request has a form that the server does not read"
        "client and server speak different revisions; upgrade the older one"
    5 PD_NOT_LEADER Elsewhere not_done "UnavailableError"
        "the placement driver that was asked is not the leader of its cluster"
        "the client goes to the leader by itself where the answer names it; where not, give the leader among the servers"

    // Refused by the placement driver or the range server: the caller's side.
    1401 UNAUTHORIZED Never not_done "AccessDeniedError"
        "the server does not know who is calling"
        "give credentials that this server knows"
    1403 FORBIDDEN Never not_done "AccessDeniedError"
        "the server knows the caller, who may not do this"
        "ask the operator for the right to do this"
    1404 NOT_FOUND Never not_done "StreamNotFoundError"
        "the stream is unknown, or was deleted"
        "create the stream first, or check its name or id"
    1408 REQUEST_TIMEOUT Now not_done "DeadlineExceededError"
        "the time was over before the server began"
        "nothing was done; give a longer timeout or send less at once"
    1409 ALREADY_EXISTS Never not_done "AlreadyExistsError"
        "the name is taken by a stream with other settings"
        "choose another name, or ask for the settings that the stream has"
    1412 PRECONDITION_FAILED Never not_done "PreconditionFailedError"
        "what the call made its condition is not so: the next offset is another one"
        "someone else appended; read on from the next offset that the error names and decide anew"
    1413 PAYLOAD_TOO_LARGE Never not_done "PayloadTooLargeError"
        "the batch is larger than a server stores"
        "append fewer records at once: one batch takes a little under 16 MiB, and 64 MiB before it is compressed (lz4, zstd); split a single record that is larger into several, or keep it elsewhere and append where it is"
    1429 TOO_MANY_REQUESTS Later not_done "ThrottledError"
        "the server has as much to do as it takes on"
        "send less, or wait"
    1431 HEADER_FIELDS_TOO_LARGE Never not_done "InvalidRequestError"
        "the request's header is larger than the server reads"
        "send fewer entries in one request"
    1460 RANGE_ALREADY_SEALED Refresh not_done "RangeSealedError"
        "the range is sealed and takes no more records"
        "the stream goes on in a newer range; send again, the client asks where it is"
    1461 OFFSET_OVERFLOW Never not_done "OffsetOutOfRangeError"
        "the offset lies beyond what the range can hold"
        "ask for an offset below the range's end"
    1462 RANGE_NOT_FOUND Refresh not_done "RangeNotFoundError"
        "the range is unknown, or not on the server that was asked"
        "send again, the client asks where it is; if it stays so, check that the range's server is up"
    1463 OFFSET_OUT_OF_RANGE_BOUNDS Never not_done "OffsetOutOfRangeError"
        "the offset lies before the first record kept or behind the end"
        "ask for an offset between the bounds that the error names"
    1464 APPEND_TO_COMMITTED_OFFSET Never maybe "IndeterminateError"
        "the server already has data at this offset"
        "see whether the data there is yours"
    1465 APPEND_TO_PENDING_OFFSET Never maybe "IndeterminateError"
        "the server is writing at this offset"
        "see a little later whether the data there is yours"
    1466 APPEND_TO_OVERTAKEN_OFFSET Never maybe "IndeterminateError"
        "the server is past this offset"
        "see whether the data there is yours"
    1470 CREATE_RANGE_BEFORE_SEAL Never not_done "PreconditionFailedError"
        "a range was to be made while the one before it takes records"
        "seal the last range before the next one is made"
    1471 EXPIRED_RANGE_EPOCH Never not_done "PreconditionFailedError"
        "the range has another epoch than the one named"
        "ask for the range as it now is, and decide anew"
    1480 SEQUENCE_GAP Never not_done "SequenceError"
        "records of the writer are missing before this batch"
        "resend in order from the next sequence that the error names"
    1481 SEQUENCE_OVERLAP Never not_done "SequenceError"
        "a part of the batch is stored already, another part is not"
        "go on from the next sequence that the error names"
    1482 WRITER_FENCED Never not_done "WriterFencedError"
        "a newer instance of this writer has taken over"
        "stop this one; if it is the one that is to write, open its writer again, which takes over"
    1483 SCHEMA_MISMATCH Never not_done "SchemaMismatchError"
        "the data does not have the stream's columns"
        "cast the data to the stream's schema"
    1484 BATCH_CORRUPT Never not_done "BatchCorruptError"
        "the batch does not add up, or its checksum is wrong"
        "encode it again, and check the memory it came from"
    1498 UNSUPPORTED_OPERATION Never not_done "UnsupportedError"
        "this server does not serve the operation"
        "ask a server that does, or do without"
    1499 UNKNOWN_OPERATION Never not_done "UnsupportedError"
        "this server does not know the operation"
        "upgrade the server"

    // The placement driver's side.
    1500 PD_INTERNAL_SERVER_ERROR Now maybe "ServerError"
        "the placement driver failed inside"
        "look at its log"
    1501 PD_NOT_IMPLEMENTED Never not_done "UnsupportedError"
        "this placement driver does not serve the operation"
        "ask one that does, or upgrade it"
    1502 PD_NO_AVAILABLE_RS Now not_done "UnavailableError"
        "too few range servers are up"
        "start more range servers, or ask for fewer replicas"

    // The range server's side.
    2500 RS_INTERNAL_SERVER_ERROR Now maybe "ServerError"
        "the server failed inside"
        "look at its log"
    2501 RS_NOT_IMPLEMENTED Never not_done "UnsupportedError"
        "this range server does not serve the operation"
        "ask one that does, or upgrade it"
    2502 RS_DATA_CORRUPTED Elsewhere not_done "DataCorruptedError"
        "the server's disk holds damaged data at this place"
        "start behind the damage; where the stream has several copies, read another one"
    2503 SHUTTING_DOWN Now not_done "UnavailableError"
        "the server is going away and did not begin"
        "try again when it, or another one, is up"
    2507 INSUFFICIENT_STORAGE Later not_done "StorageFullError"
        "the server's disk is full"
        "free space or trim streams"
    2508 LOG_FAILED Elsewhere maybe "LogFailedError"
        "the server could not make data durable and takes no more"
        "check its disk and restart it"

    // This side. Never on the wire.
    9001 CONNECTION_FAILED Later not_done "ConnectionFailedError"
        "no server could be reached, or the connection broke under a call that changes nothing"
        "check the address, and that the server runs and can be reached"
    9002 CONNECTION_LOST Now maybe "ConnectionLostError"
        "the connection broke before the answer came"
        "use a writer, which may send again without harm"
    9003 DEADLINE_BEFORE_SEND Later not_done "DeadlineExceededError"
        "the time was over before anything was done, or under a call that changes nothing"
        "give a longer timeout, or do less at once"
    9004 DEADLINE_AFTER_SEND Never maybe "OutcomeUnknownTimeoutError"
        "the time was over while the answer was awaited"
        "give a longer timeout, or use a writer, which may send again without harm"
    9005 CANCELLED Never maybe "IndeterminateError"
        "the call was given up after it was sent"
        "wait for what is under way before everything is shut down"
    9006 FEATURE_NOT_OFFERED Never not_done "UnsupportedError"
        "the server lacks a feature that the call needs"
        "upgrade the server, or do without"
    9007 BAD_ARGUMENT Never not_done "InvalidRequestError"
        "an argument is one that no server could accept"
        "correct the argument; the message names it"
    9008 BACK_PRESSURE Later not_done "BackPressureError"
        "this client has as much under way as it may"
        "wait for earlier calls, or raise the client's limits"
    9009 CLOSED Never not_done "ClosedError"
        "the object was closed"
        "make a new one"
    9010 PROTOCOL_VIOLATION Never maybe "ProtocolError"
        "the peer broke the protocol"
        "check that the address is an SBP server's, and its version"
    9011 CORRUPT_ON_ARRIVAL Now not_done "DataCorruptedError"
        "data arrived damaged"
        "read it again, and check the network and the memory if it stays so"
    9012 FORKED_CLIENT Never not_done "ForkedClientError"
        "the object was made before a fork, by the parent process"
        "make a new one in the child"
    9013 DATA_LOSS Never not_done "DataLossError"
        "records between the place reached and the first one kept are gone"
        "decide whether to go on behind the gap"
    9014 CURSOR_TAKEN Never not_done "CursorTakenError"
        "another holder of this cursor has committed"
        "open the cursor anew and go on from its positions, or stop"
    9015 SERVER_NOT_STARTED Never not_done "ServerStartError"
        "the embedded server did not start"
        "correct what the message names, and start it again"
    9016 PORT_TAKEN Never not_done "PortTakenError"
        "something else listens on the server's address"
        "stop it, or listen on another port; port 0 picks a free one"
    9017 DIRECTORY_LOCKED Never not_done "DirectoryLockedError"
        "another server owns the data directory"
        "stop that one, or choose another directory"
    9018 BAD_SERVER_CONFIG Never not_done "ServerConfigError"
        "the server was told something that cannot be"
        "correct the argument that the message names"
    9019 STREAM_REPLACED Never not_done "StreamReplacedError"
        "another stream has the number of the one that was meant: the server lost its data, or was set up anew"
        "ask for the stream by its name, and decide where to begin: offsets kept for the old one mean nothing in it"
}

/// What is known about a number without a row: nothing, so nothing is promised.
const UNKNOWN_NUMBER: ErrorRule = ErrorRule {
    name: "UNKNOWN_CODE",
    retry: Retry::Never,
    may_have_been_done: true,
    python_class: "ServerError",
    meaning: "the server answered with a code that this client does not know",
    advice: "upgrade the client",
};

impl ErrorCode {
    /// The first number that belongs to this side alone.
    pub const FIRST_LOCAL: i16 = 9000;

    /// The code that a number on the wire stands for.
    ///
    /// Other dialects have words of their own for success, for a bad request and for a follower; they are read as ours.
    #[must_use]
    pub fn from_wire(number: i16) -> Self {
        match number {
            1200 | 1204 => Self::NONE,
            1400 => Self::INVALID_REQUEST,
            1503 => Self::PD_NOT_LEADER,
            other => Self(other),
        }
    }

    /// Whether this is success.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::NONE
    }

    /// Whether the error arose on this side of the connection.
    #[must_use]
    pub fn is_local(self) -> bool {
        self.0 >= Self::FIRST_LOCAL
    }

    /// The code's row in the error table. A number without a row is never retried and may have been done.
    #[must_use]
    pub fn rule(self) -> ErrorRule {
        self.row().unwrap_or(UNKNOWN_NUMBER)
    }

    /// The code's name, or `UNKNOWN_CODE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.rule().name
    }
}

/// The name and the number: `NOT_FOUND (1404)`.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests;
