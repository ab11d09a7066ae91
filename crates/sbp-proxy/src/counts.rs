//! The counters of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Action, Direction};

/// What a proxy has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Connections closed at once, because there was no target or it could not be reached.
    pub refused: u64,
    /// Directions of a connection in which bytes came that are not a frame; everything after them was passed on
    /// unexamined.
    pub foreign: u64,
    /// Frames seen on their way to the server.
    pub frames_to_server: u64,
    /// Frames seen on their way to a client.
    pub frames_to_client: u64,
    /// Bytes received for the server.
    pub bytes_to_server: u64,
    /// Bytes received for a client.
    pub bytes_to_client: u64,
    /// Frames that were not passed on.
    pub dropped: u64,
    /// Frames that were passed on later.
    pub delayed: u64,
    /// Frames that were passed on twice.
    pub duplicated: u64,
    /// Answers that were overtaken by later ones.
    pub reordered: u64,
    /// Connections that a rule has cut.
    pub cut: u64,
    /// Frames that were given to a hook.
    pub held: u64,
}

impl ProxyCounts {
    /// The number of frames that were not simply passed on.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.dropped + self.delayed + self.duplicated + self.reordered + self.cut + self.held
    }
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter for each direction.
#[derive(Debug, Default)]
pub(crate) struct BothWays {
    to_server: Counter,
    to_client: Counter,
}

impl BothWays {
    pub(crate) const fn of(&self, direction: Direction) -> &Counter {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) closed: Counter,
    pub(crate) refused: Counter,
    pub(crate) foreign: Counter,
    pub(crate) frames: BothWays,
    pub(crate) bytes: BothWays,
    dropped: Counter,
    delayed: Counter,
    duplicated: Counter,
    reordered: Counter,
    cut: Counter,
    held: Counter,
}

impl Counters {
    /// Counts what was done with a frame.
    pub(crate) fn count(&self, action: Action) {
        match action {
            Action::Passed => {}
            Action::Dropped => self.dropped.add(1),
            Action::Delayed => self.delayed.add(1),
            Action::Duplicated => self.duplicated.add(1),
            Action::Reordered => self.reordered.add(1),
            Action::Cut => self.cut.add(1),
            Action::Held => self.held.add(1),
        }
    }

    pub(crate) fn snapshot(&self) -> ProxyCounts {
        // `closed` is read first, so that it never exceeds `connections`.
        let closed = self.closed.value();
        let connections = self.connections.value();
        ProxyCounts {
            connections,
            open: connections.saturating_sub(closed),
            refused: self.refused.value(),
            foreign: self.foreign.value(),
            frames_to_server: self.frames.to_server.value(),
            frames_to_client: self.frames.to_client.value(),
            bytes_to_server: self.bytes.to_server.value(),
            bytes_to_client: self.bytes.to_client.value(),
            dropped: self.dropped.value(),
            delayed: self.delayed.value(),
            duplicated: self.duplicated.value(),
            reordered: self.reordered.value(),
            cut: self.cut.value(),
            held: self.held.value(),
        }
    }
}
