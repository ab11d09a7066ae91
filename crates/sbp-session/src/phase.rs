//! The phases of a connection.

use std::time::Instant;

use crate::CloseReason;

/// ```text
/// Unauthenticated: who the peer is has to be known first
///   |
///   v
/// Open ----------------> Draining: one side sent GOAWAY, what was started goes on
///   |                       |
///   +-----------+-----------+
///               v
///           Flushing: nothing more is read or started, the last bytes are written
///               v
///            Closed
/// ```
///
/// A connection that is not authenticated also drains, flushes and closes.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The peer has not said who it is, and has to by the time `until`: it may send HEARTBEAT and PING alone.
    Unauthenticated { until: Instant },
    /// The connection is in normal use.
    Open,
    /// No new requests are started. `until` is the time limit, if this side has announced the end.
    Draining { until: Option<Instant> },
    /// Queued bytes are written, until the queue is empty or the time is `until`.
    Flushing { until: Instant, reason: CloseReason },
    /// The connection is closed.
    Closed { reason: CloseReason },
}

/// An event that can change the phase.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is known who the peer is.
    Authenticate,
    /// This side announces the end. Calls in flight may go on until `until`.
    Announce { until: Instant },
    /// The peer has announced the end.
    PeerAnnounces,
    /// No calls are in flight. Queued bytes may be written until `flush_by`, unless a limit is set already.
    NothingLeft { flush_by: Instant },
    /// The connection is to be closed when the queued bytes are written.
    End { reason: CloseReason, flush_by: Instant },
    /// The connection is to be closed at once.
    Cut { reason: CloseReason },
    /// The time limit of the phase has passed.
    TimeIsUp { flush_by: Instant },
}

impl Phase {
    /// The phase after `step`; `None` if the step changes nothing. This table has all changes of phase.
    pub(crate) fn after(&self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Unauthenticated { .. }, Step::Authenticate) => Some(Self::Open),
            (Self::Unauthenticated { .. } | Self::Open | Self::Draining { until: None }, Step::Announce { until }) => {
                Some(Self::Draining { until: Some(until) })
            }
            (Self::Unauthenticated { .. } | Self::Open, Step::PeerAnnounces) => Some(Self::Draining { until: None }),
            (Self::Draining { until }, Step::NothingLeft { flush_by }) => Some(Self::Flushing {
                until: until.unwrap_or(flush_by),
                reason: CloseReason::WentAway,
            }),
            (Self::Unauthenticated { .. } | Self::Open | Self::Draining { .. }, Step::End { reason, flush_by }) => {
                Some(Self::Flushing {
                    until: flush_by,
                    reason,
                })
            }
            (Self::Unauthenticated { .. } | Self::Open | Self::Draining { .. }, Step::Cut { reason }) => {
                Some(Self::Closed { reason })
            }
            (Self::Draining { until: Some(_) }, Step::TimeIsUp { flush_by }) => Some(Self::Flushing {
                until: flush_by,
                reason: CloseReason::GraceExpired,
            }),
            // The first reason is kept.
            (Self::Flushing { reason, .. }, Step::Cut { .. } | Step::TimeIsUp { .. }) => {
                Some(Self::Closed { reason: reason.clone() })
            }
            // The session ends such a connection itself, with a word to the peer.
            (Self::Unauthenticated { .. }, Step::NothingLeft { .. } | Step::TimeIsUp { .. })
            | (Self::Open | Self::Draining { .. } | Self::Flushing { .. }, Step::Authenticate)
            | (Self::Open, Step::NothingLeft { .. } | Step::TimeIsUp { .. })
            | (Self::Draining { .. }, Step::PeerAnnounces)
            | (Self::Draining { until: Some(_) }, Step::Announce { .. })
            | (Self::Draining { until: None }, Step::TimeIsUp { .. })
            | (
                Self::Flushing { .. },
                Step::Announce { .. } | Step::PeerAnnounces | Step::NothingLeft { .. } | Step::End { .. },
            )
            | (Self::Closed { .. }, _) => None,
        }
    }

    /// Whether received bytes are still parsed and calls can be answered.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self, Self::Unauthenticated { .. } | Self::Open | Self::Draining { .. })
    }

    /// The time limit of the phase.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self {
            Self::Open | Self::Closed { .. } => None,
            Self::Draining { until } => *until,
            Self::Unauthenticated { until } | Self::Flushing { until, .. } => Some(*until),
        }
    }

    pub(crate) fn reason(&self) -> Option<&CloseReason> {
        match self {
            Self::Unauthenticated { .. } | Self::Open | Self::Draining { .. } => None,
            Self::Flushing { reason, .. } | Self::Closed { reason } => Some(reason),
        }
    }
}
