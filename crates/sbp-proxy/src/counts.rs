//! The counters of a proxy.

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

    /// Counts a frame and what was done with it.
    pub(crate) const fn count_frame(&mut self, direction: Direction, action: Action) {
        match direction {
            Direction::ToServer => self.frames_to_server += 1,
            Direction::ToClient => self.frames_to_client += 1,
        }
        match action {
            Action::Passed => {}
            Action::Dropped => self.dropped += 1,
            Action::Delayed => self.delayed += 1,
            Action::Duplicated => self.duplicated += 1,
            Action::Reordered => self.reordered += 1,
            Action::Cut => self.cut += 1,
            Action::Held => self.held += 1,
        }
    }

    pub(crate) const fn count_bytes(&mut self, direction: Direction, count: usize) {
        match direction {
            Direction::ToServer => self.bytes_to_server += count as u64,
            Direction::ToClient => self.bytes_to_client += count as u64,
        }
    }
}
