//! How long clients are asked to wait while the log is busy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::pressure::{MAX_THROTTLE, Pressure, pressure};
use super::server::RangeServer;

/// The shortest time that a client is asked to wait after a refused append.
const MIN_THROTTLE: Duration = Duration::from_millis(10);

impl RangeServer {
    pub(super) fn pressure(&self) -> Pressure {
        pressure(self.log.pending_bytes(), self.max_pending.load(Ordering::Relaxed))
    }

    /// How long a client whose append was refused is asked to wait, in milliseconds; never 0.
    pub(crate) fn refused_throttle_ms(&self) -> i32 {
        self.throttle_ms()
            .max(i32::try_from(MIN_THROTTLE.as_millis()).unwrap_or(i32::MAX))
    }

    /// How long a client is asked to wait before its next append, in milliseconds; 0: not at all.
    pub(crate) fn throttle_ms(&self) -> i32 {
        let asked = match self.pressure() {
            Pressure::None => Duration::ZERO,
            Pressure::Throttled(asked) => asked,
            Pressure::TooHigh => MAX_THROTTLE,
        };
        i32::try_from(asked.as_millis()).unwrap_or(i32::MAX)
    }
}
