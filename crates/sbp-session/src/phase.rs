//! How far a connection is from its end.

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
    /// Everything goes.
    Open,
    /// No new requests. `until` limits the time where this side announced the end.
    Draining { until: Option<Instant> },
    /// Ends when the queue is empty, at the latest at `until`.
    Flushing { until: Instant, reason: CloseReason },
    /// Over.
    Closed { reason: CloseReason },
}

/// What can move a connection from one phase to another.
#[derive(Debug)]
pub(crate) enum Step {
    /// This side announces the end, and gives what was started until then.
    Announce { until: Instant },
    /// The peer has announced the end.
    PeerAnnounces,
    /// Nothing is in flight any more; queued bytes may take until `flush_by` where no limit is set.
    NothingLeft { flush_by: Instant },
    /// The connection is to end when what is queued is written.
    End { reason: CloseReason, flush_by: Instant },
    /// The connection is to end at once.
    Cut { reason: CloseReason },
    /// The phase's own time is up.
    TimeIsUp { flush_by: Instant },
}

impl Phase {
    /// The phase behind `step`, or nothing where it changes nothing. All moves of a connection are in this table.
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
            // The first reason counts.
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

    /// Whether bytes of the peer are still looked at, and calls still answered.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self, Self::Open | Self::Draining { .. })
    }

    /// When this phase ends of itself.
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
