//! Watches how fast a frame arrives.

use std::time::{Duration, Instant};

use crate::{CloseReason, SessionConfig};

/// How much of the next frame has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing: the connection is between two frames.
    Nothing,
    /// Some of its first 16 bytes.
    Head,
    /// The first 16 bytes, and perhaps some of the rest.
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
/// Time during which this side did not read does not count.
#[derive(Debug)]
pub(crate) struct Arrival {
    patience: Duration,
    /// The frame's time grows by a second for this many bytes received.
    per_second: u32,
    /// When the present part of the frame began to arrive, and how many bytes had been received by then.
    begun: Option<Begun>,
    /// The number of the frame on this connection.
    frame: u64,
    /// Bytes received on this connection.
    received: u64,
    /// Whether this side has stopped reading.
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

    /// Called after parsing: `part` of frame number `frame` has arrived, and `received` bytes in all on this
    /// connection.
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

    /// Says whether this side reads. When it resumes, the time for the present part begins again.
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

    /// Whether part of a frame has arrived.
    pub(crate) fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }

    /// Stops watching until the next frame.
    pub(crate) fn stop(&mut self) {
        self.begun = None;
    }

    /// When the present frame is late if no more of it arrives.
    pub(crate) fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| !self.paused)?;
        let bought = match begun.part {
            Part::Nothing | Part::Head => Duration::ZERO,
            Part::Body => Duration::from_secs(self.received - begun.received) / self.per_second,
        };
        Some(begun.at + self.patience + bought)
    }

    /// The reason to close the connection, if the present frame is late.
    pub(crate) fn check(&self, now: Instant) -> Option<CloseReason> {
        let begun = self.begun.filter(|_| self.due().is_some_and(|due| due <= now))?;
        Some(CloseReason::TooSlow {
            bytes: self.received - begun.received,
            within: now.saturating_duration_since(begun.at),
        })
    }
}
