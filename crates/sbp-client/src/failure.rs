//! Why one attempt of a call failed: what the retry decision looks at.

use std::sync::Arc;
use std::time::Duration;

use sbp_frame::{Flags, Frame};
use sbp_messages::{DecodeError, ErrorCode, PlacementDriverCluster, Status, SystemErrorResponse};
use sbp_types::Offset;

use crate::address::ServerAddress;
use crate::codes;

/// Why one attempt failed. `sent` is the fact that decides most: whether any byte of the request was given to the socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    /// The server answered with an error code.
    #[error("the server answered {code}: {message}", code = code.0)]
    Refused {
        /// The server's code.
        code: ErrorCode,
        /// The server's words.
        message: String,
        /// How long it asks to be left alone.
        throttle: Duration,
        /// Whom it names as the placement driver's leader.
        leader: Option<ServerAddress>,
    },
    /// The deadline passed.
    #[error("{}", deadline(*sent, waited_for.as_deref()))]
    Deadline {
        /// Whether the request may have reached the server.
        sent: bool,
        /// Why there was no connection, when that is what the time was spent on.
        waited_for: Option<String>,
    },
    /// The connection ended first.
    #[error("the connection was lost: {reason}")]
    ConnectionLost {
        /// Whether the request may have reached the server.
        sent: bool,
        /// How it ended.
        reason: String,
    },
    /// The server has said nothing for so long that others are asked, though the connection is there.
    #[error("the server says nothing, though the connection to it is there")]
    Silent {
        /// Whether the request may have reached the server.
        sent: bool,
    },
    /// The server is going away and says that it did not start the request.
    #[error("the server is going away and did not start the request")]
    NotStarted,
    /// No server could be connected to.
    #[error("no server could be reached: {reason}")]
    Unreachable {
        /// The last attempt's error.
        reason: String,
        /// No server has ever been reached and the configured rounds are over.
        hopeless: bool,
    },
    /// The two sides do not talk to each other over TLS, and will not until somebody changes something.
    #[error("{reason}")]
    Tls {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The answer breaks the protocol.
    #[error("the server's answer breaks the protocol: {what}")]
    Protocol {
        /// What is wrong with it.
        what: String,
    },
    /// The server lacks something the call needs.
    #[error("the server does not offer {feature:?}")]
    Unsupported {
        /// The feature's name in HEARTBEAT.
        feature: &'static str,
    },
    /// The request cannot be sent at all, whatever the server.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl Cause {
    /// That the server refused, with the pause that it asks for.
    pub(crate) fn refused(status: &Status, throttle_ms: i32) -> Self {
        Self::Refused {
            code: status.code,
            message: words(status).to_owned(),
            throttle: Duration::from_millis(u64::try_from(throttle_ms).unwrap_or(0)),
            leader: leader(status),
        }
    }

    /// What a frame says that is a system error.
    pub(crate) fn system_error(frame: &Frame) -> Option<Self> {
        let is_error = frame.flags.contains(Flags::SYSTEM_ERROR);
        is_error.then(|| match SystemErrorResponse::decode(&frame.header) {
            Ok(answer) => Self::refused(&answer.status, 0),
            Err(error) => Self::undecodable(frame, &error),
        })
    }

    /// That an answer cannot be read.
    pub(crate) fn undecodable(frame: &Frame, error: &DecodeError) -> Self {
        let name = frame.opcode.name().unwrap_or("unknown operation");
        Self::Protocol {
            what: format!("the answer to {name} cannot be read: {error}"),
        }
    }

    /// That the deadline passed; `sent` as for the variant.
    pub(crate) fn deadline(sent: bool) -> Self {
        Self::Deadline { sent, waited_for: None }
    }

    /// Whether a repeat is more work for a service that failed at it, instead of the work that was not begun.
    pub(crate) fn burdens(&self) -> bool {
        match self {
            // The server itself says when to come back.
            Self::Refused { code, .. } => *code != ErrorCode::TOO_MANY_REQUESTS && !self.is_about_places(),
            Self::ConnectionLost { sent, .. } => *sent,
            _ => false,
        }
    }

    /// Whether a server refuses what another one does, or will do within seconds: after a takeover, an election, a restart.
    pub(crate) fn is_about_places(&self) -> bool {
        let Self::Refused { code, .. } = self else { return false };
        matches!(
            *code,
            ErrorCode::SHUTTING_DOWN
                | ErrorCode::RANGE_ALREADY_SEALED
                | ErrorCode::RANGE_NOT_FOUND
                | ErrorCode::PD_NOT_LEADER
                | ErrorCode::PD_NO_AVAILABLE_RS
                | ErrorCode::UNSUPPORTED_OPERATION
        )
    }

    /// Whether the server's disk holds damage in this place, which is there however often one asks.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == ErrorCode::RS_DATA_CORRUPTED)
    }

    /// Whether the server that was asked serves no such calls, as a placement driver serves no records.
    pub(crate) fn is_misdirected(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == ErrorCode::UNSUPPORTED_OPERATION)
    }

    /// Whether another server that has the same records may well answer.
    pub(crate) fn is_of_one_server(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(
                *code,
                ErrorCode::RANGE_NOT_FOUND | ErrorCode::RS_DATA_CORRUPTED | ErrorCode::SHUTTING_DOWN
            ),
            cause => cause.is_silence() || cause.is_loss(),
        }
    }

    /// Whether nothing was heard of the server for longer than it may take.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Silent { .. })
    }

    /// Whether there is no connection, or there was none.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost { .. } | Self::NotStarted | Self::Unreachable { .. }
        )
    }

    /// Whether the request may have taken effect in spite of it, or may yet.
    pub(crate) fn may_have_been_done(&self) -> bool {
        match self {
            Self::Refused { code, .. } => codes::rule(*code).may_have_been_done,
            Self::Deadline { sent, .. } | Self::ConnectionLost { sent, .. } | Self::Silent { sent } => *sent,
            Self::Protocol { .. } => true,
            Self::NotStarted
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::Unsupported { .. }
            | Self::Invalid { .. }
            | Self::Closed => false,
        }
    }
}

/// What a refusal says, in words.
pub(crate) fn words(status: &Status) -> &str {
    if status.message.is_empty() {
        status.code.name()
    } else {
        &status.message
    }
}

/// Whom a refusal names as the leader. Its text is a peer's: what is no address is no hint.
fn leader(status: &Status) -> Option<ServerAddress> {
    if status.code != ErrorCode::PD_NOT_LEADER {
        return None;
    }
    let cluster = PlacementDriverCluster::from_detail(&status.detail).ok()?;
    ServerAddress::of_peer(&cluster.leader()?.advertise_addr)
}

/// The epoch that a refused writer would have to beat, where the server says it.
pub(crate) fn fencing_epoch(status: &Status) -> Option<i64> {
    let fenced = Some(status).filter(|status| status.code == ErrorCode::WRITER_FENCED)?;
    fenced.detail.first_chunk().map(|epoch| i64::from_be_bytes(*epoch))
}

fn deadline(sent: bool, waited_for: Option<&str>) -> String {
    match waited_for {
        None if sent => "the deadline passed while the answer was awaited".to_owned(),
        None => "the deadline passed before anything was sent".to_owned(),
        Some(reason) => format!("the deadline passed without a connection: {reason}"),
    }
}

/// A failed attempt and where it was made.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What happened.
    pub(crate) cause: Cause,
    /// The server's address, when one was chosen.
    pub(crate) endpoint: Option<Arc<str>>,
    /// Where the stream is, when the server said so.
    pub(crate) offset: Option<Offset>,
    /// The epoch of the writer's instance that has taken over, when the server said so.
    pub(crate) fenced_by: Option<i64>,
}

impl Failure {
    pub(crate) fn new(cause: Cause, endpoint: Option<&Arc<str>>) -> Self {
        Self {
            cause,
            endpoint: endpoint.cloned(),
            offset: None,
            fenced_by: None,
        }
    }

    /// Adds where the stream is.
    pub(crate) fn at(self, offset: Option<Offset>) -> Self {
        Self { offset, ..self }
    }

    /// Adds whom the writer has lost its stream to.
    pub(crate) fn fenced_by(self, fenced_by: Option<i64>) -> Self {
        Self { fenced_by, ..self }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            endpoint: None,
            offset: None,
            fenced_by: None,
        }
    }
}
