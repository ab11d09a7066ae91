//! Why a request, or one entry of it, was not carried out.

use bytes::Bytes;
use sbp_messages::{ErrorCode, Status};
use sbp_types::{Epoch, Offset, Position, RangeKey, StreamId};

/// An error code of the protocol with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code, for programs.
    pub(crate) code: ErrorCode,
    /// The message, for people.
    pub(crate) message: String,
    /// Further data for programs, for codes that define it.
    pub(crate) detail: Bytes,
}

/// A callback for the result of an operation, called once on whatever thread has the result; must not block. Where
/// somebody waits for the result, dropping the callback counts as a refusal.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: Bytes::new(),
        }
    }

    /// Adds the data that the code defines.
    pub(crate) fn with_detail(self, detail: [u8; 8]) -> Self {
        Self {
            detail: Bytes::copy_from_slice(&detail),
            ..self
        }
    }

    /// The request can be decoded but is wrong, so repeating it cannot help.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// The request's timeout passed before anything was done.
    pub(crate) fn expired() -> Self {
        Self::new(
            ErrorCode::REQUEST_TIMEOUT,
            "the timeout of the request passed before it was started",
        )
    }

    /// A part of the server did not report the result of the operation, which may have been carried out.
    pub(crate) fn unanswered() -> Self {
        Self::new(
            ErrorCode::PD_INTERNAL_SERVER_ERROR,
            "a part of the server did not report the result; the request may have been carried out",
        )
    }

    /// The stream is unknown or deleted.
    pub(crate) fn no_stream(stream: StreamId) -> Self {
        Self::new(ErrorCode::NOT_FOUND, format!("there is no stream {stream}"))
    }

    /// A range server cannot judge grants, which are about names.
    pub(crate) fn names_unknown(stream: StreamId) -> Self {
        let message = format!(
            "this range server cannot tell what you may do with stream {stream}, if there is one, because it has lost the \
             placement driver that tells it the names of streams; try again"
        );
        Self::new(ErrorCode::RANGE_NOT_FOUND, message)
    }

    /// A range server cannot judge grants on a name that it does not know yet.
    pub(crate) fn name_unknown(stream: StreamId) -> Self {
        let message = format!(
            "this range server cannot tell yet what you may do with stream {stream}, if there is one: no range of it is here, \
             and the placement driver is being asked for its name; list its ranges and try again"
        );
        Self::new(ErrorCode::RANGE_NOT_FOUND, message)
    }

    /// The range is not on this server.
    pub(crate) fn range_not_here(key: RangeKey) -> Self {
        Self::new(ErrorCode::RANGE_NOT_FOUND, format!("range {key} is not here"))
    }

    /// The placement driver has ceased to lead its cluster, and has not begun what was asked.
    pub(crate) fn not_leader_any_more() -> Self {
        let message = "this placement driver has just ceased to lead its cluster, and did not begin the request";
        Self::new(ErrorCode::PD_NOT_LEADER, message)
    }

    /// This server does not begin anything any more.
    pub(crate) fn shutting_down() -> Self {
        Self::new(ErrorCode::SHUTTING_DOWN, "the server is shutting down")
    }

    /// Refuses an entry for what is wrong with it by itself.
    pub(crate) fn check(fault: Option<Status>) -> Result<(), Self> {
        match fault {
            None => Ok(()),
            Some(fault) => Err(Self::new(fault.code, fault.message)),
        }
    }

    /// Compares the epoch that a requester believes a range to have with its real epoch.
    pub(crate) fn check_epoch(key: RangeKey, epoch: Epoch, believed: Option<Epoch>) -> Result<(), Self> {
        match believed {
            Some(believed) if believed != epoch => Err(Self::other_epoch(key, epoch, believed)),
            _ => Ok(()),
        }
    }

    /// The range does not have the epoch that the requester believes it to have.
    pub(crate) fn other_epoch(key: RangeKey, epoch: Epoch, believed: Epoch) -> Self {
        let message = format!("range {key} has epoch {epoch}, not {believed}");
        Self::new(ErrorCode::EXPIRED_RANGE_EPOCH, message)
    }

    /// Compares the end that a requester expects with the range's real end.
    pub(crate) fn check_end(key: RangeKey, end: Offset, expected: Option<Offset>) -> Result<(), Self> {
        match expected {
            Some(expected) if expected != end => Err(Self::other_end(key, end, expected)),
            _ => Ok(()),
        }
    }

    /// Somebody else than the placement driver wants to end a range that several servers hold.
    pub(crate) fn sealed_by_driver(key: RangeKey) -> Self {
        let message =
            format!("range {key} has several copies: its placement driver alone seals it, and opens the next one");
        Self::new(ErrorCode::UNSUPPORTED_OPERATION, message)
    }

    /// A range that was to be written back up to `end` was sealed with another one.
    pub(crate) fn not_the_end(key: RangeKey, end: Position) -> Self {
        let message = format!("range {key} was sealed with another end than {end}");
        Self::new(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, message)
    }

    /// The range does not have the end that the requester expects.
    pub(crate) fn other_end(key: RangeKey, end: Offset, expected: Offset) -> Self {
        let message = format!("range {key} ends at {end}, not at {expected}");
        Self::new(ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS, message)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code,
            message: refusal.message,
            detail: refusal.detail,
        }
    }
}

/// What the result of an entry says on the wire: its value, if it has one, and its status.
pub(crate) fn value_and_status<T>(result: Result<T, Refusal>) -> (Option<T>, Status) {
    match result {
        Ok(value) => (Some(value), Status::success()),
        Err(refusal) => (None, refusal.into()),
    }
}
