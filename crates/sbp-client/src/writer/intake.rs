//! What callers have added and the machine has not taken yet.

use std::time::Instant;

use super::pending::PendingBatch;
use crate::codes;
use crate::error::{ClientError, ErrorKind};

/// Behind a lock of its own, held for moments: callers never wait while a connection's task works on the machine.
#[derive(Debug)]
pub(super) struct Intake {
    /// Batches in their order, each with the end of its time.
    added: Vec<(Box<PendingBatch>, Instant)>,
    next: NextStamp,
    closed: bool,
    /// Why the machine takes no more.
    stopped: Option<ClientError>,
}

/// What a batch is stamped with, as far as is known when it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextStamp {
    pub(super) epoch: i64,
    pub(super) sequence: i64,
}

impl Intake {
    pub(super) fn new(next: NextStamp) -> Self {
        Self {
            added: Vec::new(),
            next,
            closed: false,
            stopped: None,
        }
    }

    /// The place of the next batch.
    pub(super) fn next(&self) -> NextStamp {
        self.next
    }

    /// The machine has other numbers than were thought when the places up to `thought` were told.
    pub(super) fn correct(&mut self, thought: NextStamp, found: NextStamp) {
        let ahead = self.next.sequence.saturating_sub(thought.sequence);
        self.next = NextStamp {
            epoch: found.epoch,
            sequence: found.sequence.saturating_add(ahead),
        };
    }

    /// Why nothing more is accepted.
    pub(super) fn check_open(&self) -> Result<(), ClientError> {
        if self.closed {
            let what = "the writer is closed";
            return Err(ClientError::new(ErrorKind::Closed, codes::CLOSED, what));
        }
        self.stopped.clone().map_or(Ok(()), Err)
    }

    pub(super) fn push(&mut self, pending: Box<PendingBatch>, deadline: Instant) {
        self.next.sequence = self.next.sequence.saturating_add(pending.records());
        self.added.push((pending, deadline));
    }

    /// Moves what was added into `taken`, which must be empty, and tells the place behind it.
    pub(super) fn take(&mut self, taken: &mut Vec<(Box<PendingBatch>, Instant)>) -> NextStamp {
        debug_assert!(taken.is_empty(), "what was taken before has gone to the machine");
        std::mem::swap(&mut self.added, taken);
        self.next
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn stop(&mut self, error: ClientError) {
        self.stopped = Some(error);
    }
}
