//! The error codes, and the table of their rules.

use std::fmt;

use crate::error_rule::{ErrorRule, Retry};

/// Why a call, or one entry of it, has failed. 0 is success.
///
/// Unknown numbers are kept. Numbers from [`ErrorCode::FIRST_LOCAL`] on are never sent: they stand for errors on a
/// client's own side, and the client crate has their rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// Makes constants and rules from the same rows: number, name, when to retry, whether the call may have been carried
/// out, meaning, advice. Used in `impl ErrorCode` here for the codes that a peer can send, and in a module of its own
/// for local codes.
#[macro_export]
macro_rules! error_codes {
    ($( $number:literal $name:ident $retry:ident $done:ident $meaning:literal $advice:literal )*) => {
        $(
            #[doc = $meaning]
            pub const $name: $crate::ErrorCode = $crate::ErrorCode($number);
        )*

        /// Every code in this table, ordered by number.
        pub const ALL: &'static [$crate::ErrorCode] = &[$( $crate::ErrorCode($number) ),*];

        fn row(code: $crate::ErrorCode) -> Option<$crate::ErrorRule> {
            match code.0 {
                $( $number => Some($crate::ErrorRule {
                    name: stringify!($name),
                    retry: $crate::Retry::$retry,
                    may_have_been_done: $crate::error_codes!(@$done),
                    meaning: $meaning,
                    advice: $advice,
                }), )*
                _ => None,
            }
        }
    };
    (@not_done) => { false };
    (@maybe) => { true };
}

impl ErrorCode {
    error_codes! {
        // Codes of all servers.
        0 NONE Never not_done
            "the call succeeded"
            "success"
        1 UNKNOWN Never maybe
            "the server failed in a way that it has no code for"
            "look at the server's log"
        2 INVALID_REQUEST Never not_done
            "the server can read the request, and it makes no sense"
            "correct the request; the message says which part of it"
        3 UNSUPPORTED_VERSION Never not_done
            "the request has a form that the server does not read"
            "client and server speak different revisions; upgrade the older one"
        5 PD_NOT_LEADER Elsewhere not_done
            "the placement driver that was asked is not the leader of its cluster"
            "the client goes to the leader by itself where the answer names it; where not, give the leader among the servers"

        // Refused by a placement driver or range server because of the caller.
        1401 UNAUTHORIZED Never not_done
            "the server does not know who is calling"
            "give credentials that this server knows"
        1403 FORBIDDEN Never not_done
            "the server knows the caller, who may not do this"
            "ask the operator for the right to do this"
        1404 NOT_FOUND Never not_done
            "the stream is unknown, or was deleted"
            "create the stream first, or check its name or id"
        1408 REQUEST_TIMEOUT Now not_done
            "the time was over before the server began"
            "nothing was done; give a longer timeout or send less at once"
        1409 ALREADY_EXISTS Never not_done
            "the name is taken by a stream with other settings"
            "choose another name, or ask for the settings that the stream has"
        1412 PRECONDITION_FAILED Never not_done
            "what the call made its condition is not so: the next offset is another one"
            "someone else appended; read on from the next offset that the error names and decide anew"
        1413 PAYLOAD_TOO_LARGE Never not_done
            "the batch is larger than a server stores"
            "append fewer records at once: one batch takes a little under 16 MiB, and 64 MiB before it is compressed (lz4, zstd); split a single record that is larger into several, or keep it elsewhere and append where it is"
        1429 TOO_MANY_REQUESTS Later not_done
            "the server has as much to do as it takes on, or the quota of who asks is used up"
            "send less, or wait"
        1431 HEADER_FIELDS_TOO_LARGE Never not_done
            "the request's header is larger than the server reads"
            "send fewer entries in one request"
        1460 RANGE_ALREADY_SEALED Refresh not_done
            "the range is sealed and takes no more records"
            "the stream goes on in a newer range; send again, the client asks where it is"
        1461 OFFSET_OVERFLOW Never not_done
            "the offset lies beyond what the range can hold"
            "ask for an offset below the range's end"
        1462 RANGE_NOT_FOUND Refresh not_done
            "the range is unknown, or not on the server that was asked"
            "send again, the client asks where it is; if it stays so, check that the range's server is up"
        1463 OFFSET_OUT_OF_RANGE_BOUNDS Never not_done
            "the offset lies before the first record kept or behind the end"
            "ask for an offset between the bounds that the error names"
        1464 APPEND_TO_COMMITTED_OFFSET Never maybe
            "the server already has data at this offset"
            "see whether the data there is yours"
        1465 APPEND_TO_PENDING_OFFSET Never maybe
            "the server is writing at this offset"
            "see a little later whether the data there is yours"
        1466 APPEND_TO_OVERTAKEN_OFFSET Never maybe
            "the server is past this offset"
            "see whether the data there is yours"
        1470 CREATE_RANGE_BEFORE_SEAL Never not_done
            "a range was to be made while the one before it takes records"
            "seal the last range before the next one is made"
        1471 EXPIRED_RANGE_EPOCH Never not_done
            "the range has another epoch than the one named"
            "ask for the range as it now is, and decide anew"
        1480 SEQUENCE_GAP Never not_done
            "records of the writer are missing before this batch"
            "resend in order from the next sequence that the error names"
        1481 SEQUENCE_OVERLAP Never not_done
            "a part of the batch is stored already, another part is not"
            "go on from the next sequence that the error names"
        1482 WRITER_FENCED Never not_done
            "a newer instance of this writer has taken over"
            "stop this one; if it is the one that is to write, open its writer again, which takes over"
        1483 SCHEMA_MISMATCH Never not_done
            "the data does not have the stream's columns"
            "cast the data to the stream's schema"
        1484 BATCH_CORRUPT Never not_done
            "the batch does not add up, or its checksum is wrong"
            "encode it again, and check the memory it came from"
        1498 UNSUPPORTED_OPERATION Never not_done
            "this server does not serve the operation"
            "ask a server that does, or do without"
        1499 UNKNOWN_OPERATION Never not_done
            "this server does not know the operation"
            "upgrade the server"

        // Failures of a placement driver.
        1500 PD_INTERNAL_SERVER_ERROR Now maybe
            "the placement driver failed inside"
            "look at its log"
        1501 PD_NOT_IMPLEMENTED Never not_done
            "this placement driver does not serve the operation"
            "ask one that does, or upgrade it"
        1502 PD_NO_AVAILABLE_RS Now not_done
            "too few range servers are up"
            "start more range servers, or ask for fewer replicas"

        // Failures of a range server.
        2500 RS_INTERNAL_SERVER_ERROR Now maybe
            "the server failed inside"
            "look at its log"
        2501 RS_NOT_IMPLEMENTED Never not_done
            "this range server does not serve the operation"
            "ask one that does, or upgrade it"
        2502 RS_DATA_CORRUPTED Elsewhere not_done
            "the server's disk holds damaged data at this place"
            "read on behind the damage, have `sbp verify` name all of it, and restore a backup where there is one"
        2503 SHUTTING_DOWN Now not_done
            "the server is going away and did not begin"
            "try again when it, or another one, is up"
        2507 INSUFFICIENT_STORAGE Later not_done
            "the server's disk is full"
            "free space or trim streams"
        2508 LOG_FAILED Elsewhere maybe
            "the server could not make data durable and takes no more"
            "check its disk and restart it"
    }
}

/// The rule for an unknown number: the call is not retried and may have been carried out.
const UNKNOWN_NUMBER: ErrorRule = ErrorRule {
    name: "UNKNOWN_CODE",
    retry: Retry::Never,
    may_have_been_done: true,
    meaning: "the server answered with a code that this client does not know",
    advice: "upgrade the client",
};

impl ErrorCode {
    /// The first number of local codes.
    pub const FIRST_LOCAL: i16 = 9000;

    /// The code of a number on the wire.
    ///
    /// Other dialects have their own numbers for success, an invalid request and a follower, which are mapped to the
    /// codes here.
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

    /// Whether the error occurred on this side of the connection.
    #[must_use]
    pub fn is_local(self) -> bool {
        self.0 >= Self::FIRST_LOCAL
    }

    /// The code's row in the table of codes that a peer can send. The rule for other numbers, including local codes, is
    /// that the call is not retried and may have been carried out.
    #[must_use]
    pub fn rule(self) -> ErrorRule {
        Self::row(self).unwrap_or(UNKNOWN_NUMBER)
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
