//! How fast the frame at hand comes in.

use std::time::{Duration, Instant};

use crate::{CloseReason, SessionConfig};

/// How much of the frame at hand is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Not a byte: the connection is between two frames.
    Nothing,
    /// Some of its first 16 bytes.
    Head,
    /// Those, and perhaps some of what follows.
    Body,
}

/// Watches that a frame, once begun, arrives within its time.
///
/// ```text
/// Between -> Head: the first byte is here, all 16 are due within `head_timeout`
/// Between, Head -> Body: the rest is due within `head_timeout` plus the time that the received bytes buy
/// any -> Between: the frame is complete
/// ```
///
/// A time in which this side did not read does not count.
#[derive(Debug)]
pub(crate) struct Arrival {
    patience: Duration,
    /// Bytes that buy a second.
    per_second: u32,
    /// Since when this part of a frame comes in, and how much had come by then.
    begun: Option<Begun>,
    /// Which frame of the connection it is.
    frame: u64,
    /// All bytes received so far.
    received: u64,
    /// This side does not read.
    paused: bool,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    part: Part,
    at: Instant,
    received: u64,
}

impl Arrival {
    pub(crate) fn new(config: &SessionConfig) -> Self {
        Self {
            patience: config.head_timeout,
            per_second: config.body_bytes_per_second.max(1),
            begun: None,
            frame: 0,
            received: 0,
            paused: false,
        }
    }

    /// After parsing: `part` of frame number `frame` is here, `received` bytes have come on this connection.
    pub(crate) fn note(&mut self, part: Part, frame: u64, received: u64, now: Instant) {
        self.received = received;
        if part == Part::Nothing {
            self.begun = None;
        } else if self.frame != frame || self.begun.is_none_or(|begun| begun.part != part) {
            self.frame = frame;
            self.begun = Some(Begun {
                part,
                at: now,
                received,
            });
        }
    }

    /// Whether this side reads. When it goes on reading, the peer's time begins anew.
    pub(crate) fn set_reading(&mut self, reading: bool, now: Instant) {
        if reading
            && self.paused
            && let Some(begun) = &mut self.begun
        {
            begun.at = now;
            begun.received = self.received;
        }
        self.paused = !reading;
    }

    /// Whether a part of a frame is here.
    pub(crate) fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }

    /// No frame is awaited any more.
    pub(crate) fn stop(&mut self) {
        self.begun = None;
    }

    /// When the frame at hand is late if nothing more of it comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| !self.paused)?;
        let bought = match begun.part {
            Part::Nothing | Part::Head => Duration::ZERO,
            Part::Body => Duration::from_secs(self.received - begun.received) / self.per_second,
        };
        Some(begun.at + self.patience + bought)
    }

    /// Why the connection is to end, if the frame at hand is late.
    pub(crate) fn check(&self, now: Instant) -> Option<CloseReason> {
        let begun = self.begun.filter(|_| self.due().is_some_and(|due| due <= now))?;
        Some(CloseReason::TooSlow {
            bytes: self.received - begun.received,
            within: now.saturating_duration_since(begun.at),
        })
    }
}
