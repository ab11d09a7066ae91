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

impl Phase {
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
