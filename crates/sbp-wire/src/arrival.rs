//! Watches how fast a frame arrives.

use std::time::{Duration, Instant};

/// How fast a frame has to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long the head of a frame may take to arrive, from its first byte on, and again the rest.
    pub head_timeout: Duration,
    /// For each so many bytes of the rest, another second is allowed.
    pub bytes_per_second: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(5),
            bytes_per_second: 16 * 1024,
        }
    }
}

/// How much of the next frame has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing: the connection is between two frames.
    Nothing,
    /// Some of its head, which tells how long it is.
    Head,
    /// The head, and perhaps some of the rest.
    Body,
}

/// A frame arrives too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSlow {
    /// Bytes received of the present part of the frame (the head, or the rest) after its first bytes.
    pub bytes: u64,
    /// The time since those first bytes.
    pub within: Duration,
}

/// Watches that a frame, once begun, arrives within its time.
///
/// ```text
/// Between -> Head: the first byte is here, the whole head is due within `head_timeout`
/// Between, Head -> Body: the rest is due within `head_timeout` plus the time that the received bytes buy
/// any -> Between: the frame is complete
/// ```
///
/// Time during which this side did not read does not count.
#[derive(Debug)]
pub struct Arrival {
    pace: Pace,
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
    /// Nothing has arrived.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            begun: None,
            frame: 0,
            received: 0,
            paused: false,
        }
    }

    /// Called after parsing: `part` of frame number `frame` has arrived, and `received` bytes in all on this
    /// connection.
    pub fn note(&mut self, part: Part, frame: u64, received: u64, now: Instant) {
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
    pub fn set_reading(&mut self, reading: bool, now: Instant) {
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
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.begun.is_some()
    }

    /// Stops watching until the next frame.
    pub fn stop(&mut self) {
        self.begun = None;
    }

    /// When the present frame is late if no more of it arrives.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| !self.paused)?;
        let bought = match begun.part {
            Part::Nothing | Part::Head => Duration::ZERO,
            Part::Body => Duration::from_secs(self.received - begun.received) / self.pace.bytes_per_second.max(1),
        };
        Some(begun.at + self.pace.head_timeout + bought)
    }

    /// Whether the present frame is late, which is a reason to close the connection.
    #[must_use]
    pub fn check(&self, now: Instant) -> Option<TooSlow> {
        let begun = self.begun.filter(|_| self.due().is_some_and(|due| due <= now))?;
        Some(TooSlow {
            bytes: self.received - begun.received,
            within: now.saturating_duration_since(begun.at),
        })
    }
}
