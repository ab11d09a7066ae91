//! The phases of a connection.

use std::time::Instant;

use crate::CloseReason;

/// ```text
/// Open ----------------> Draining: one side sent GOAWAY, what was started goes on
///   |                       |
///   +-----------+-----------+
///               v
///           Flushing: nothing more is read or started, the last bytes are written
///               v
///            Closed
/// ```
#[derive(Debug)]
pub(crate) enum Phase {
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
            (Self::Open | Self::Draining { until: None }, Step::Announce { until }) => {
                Some(Self::Draining { until: Some(until) })
            }
            (Self::Open, Step::PeerAnnounces) => Some(Self::Draining { until: None }),
            (Self::Draining { until }, Step::NothingLeft { flush_by }) => Some(Self::Flushing {
                until: until.unwrap_or(flush_by),
                reason: CloseReason::WentAway,
            }),
            (Self::Open | Self::Draining { .. }, Step::End { reason, flush_by }) => Some(Self::Flushing {
                until: flush_by,
                reason,
            }),
            (Self::Open | Self::Draining { .. }, Step::Cut { reason }) => Some(Self::Closed { reason }),
            (Self::Draining { until: Some(_) }, Step::TimeIsUp { flush_by }) => Some(Self::Flushing {
                until: flush_by,
                reason: CloseReason::GraceExpired,
            }),
            // The first reason is kept.
            (Self::Flushing { reason, .. }, Step::Cut { .. } | Step::TimeIsUp { .. }) => {
                Some(Self::Closed { reason: reason.clone() })
            }
            (Self::Open, Step::NothingLeft { .. } | Step::TimeIsUp { .. })
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
        matches!(self, Self::Open | Self::Draining { .. })
    }

    /// The time limit of the phase.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self {
            Self::Open | Self::Closed { .. } => None,
            Self::Draining { until } => *until,
            Self::Flushing { until, .. } => Some(*until),
        }
    }

    pub(crate) fn reason(&self) -> Option<&CloseReason> {
        match self {
            Self::Open | Self::Draining { .. } => None,
            Self::Flushing { reason, .. } | Self::Closed { reason } => Some(reason),
        }
    }
}
