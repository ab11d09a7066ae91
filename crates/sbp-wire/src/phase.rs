//! Whether a connection is open, and why it is not.

use std::time::{Duration, Instant};

/// How long the last bytes may take to leave.
const FLUSH: Duration = Duration::from_secs(5);

/// Where a connection stands between its beginning and its end.
///
/// ```text
/// Open -> Flushing -> Closed    what is queued is still written
///      -------------> Closed    it is dropped
/// ```
#[derive(Debug)]
pub enum Phase<R> {
    /// Everything goes on.
    Open,
    /// What is queued is still written.
    Flushing {
        /// Why the connection ends.
        reason: R,
        /// Until when the last bytes have to be written.
        until: Instant,
    },
    /// It is over.
    Closed {
        /// Why it has ended.
        reason: R,
    },
}

impl<R: Clone> Phase<R> {
    /// The end of a connection whose queued bytes are still written.
    pub fn flushing(reason: R, now: Instant) -> Self {
        let until = now + FLUSH;
        Self::Flushing { reason, until }
    }

    /// Whether the connection is neither over nor about to be.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether it is over, where `is_written` says that nothing is queued any more.
    pub fn is_over(&self, is_written: bool) -> bool {
        match self {
            Self::Open => false,
            Self::Flushing { .. } => is_written,
            Self::Closed { .. } => true,
        }
    }

    /// Why it ends, once that is decided.
    pub fn reason(&self) -> Option<&R> {
        match self {
            Self::Open => None,
            Self::Flushing { reason, .. } | Self::Closed { reason } => Some(reason),
        }
    }

    /// Why it ends, where the last bytes have not left in time.
    pub fn overdue(&self, now: Instant) -> Option<R> {
        match self {
            Self::Flushing { reason, until } if *until <= now => Some(reason.clone()),
            _ => None,
        }
    }
}
