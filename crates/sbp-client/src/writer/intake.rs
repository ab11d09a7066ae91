//! What callers have added and the machine has not taken yet.

use std::time::Instant;

use sbp_record::WriterStamp;

use super::pending::PendingBatch;
use crate::codes;
use crate::error::{ClientError, ErrorKind};

/// Behind a lock of its own, held for moments: callers never wait while a connection's task works on the machine.
#[derive(Debug)]
pub(super) struct Intake {
    /// Batches in their order, each with the end of its time.
    added: Vec<(Box<PendingBatch>, Instant)>,
    /// What the next batch is stamped with, as far as is known when it is encoded.
    pub(super) next: WriterStamp,
    /// The writer was closed.
    pub(super) closed: bool,
    /// Why the machine takes no more.
    pub(super) stopped: Option<ClientError>,
}

impl Intake {
    pub(super) fn new(next: WriterStamp) -> Self {
        Self {
            added: Vec::new(),
            next,
            closed: false,
            stopped: None,
        }
    }

    /// The machine has other numbers than were thought when the places up to `thought` were told.
    pub(super) fn correct(&mut self, thought: WriterStamp, found: WriterStamp) {
        let ahead = self.next.base_sequence.saturating_sub(thought.base_sequence);
        self.next = WriterStamp {
            base_sequence: found.base_sequence.saturating_add(ahead),
            ..found
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
        self.next.base_sequence = self.next.base_sequence.saturating_add(pending.records());
        self.added.push((pending, deadline));
    }

    /// Moves what was added into `taken`, which must be empty. Returns the stamp behind it.
    pub(super) fn take(&mut self, taken: &mut Vec<(Box<PendingBatch>, Instant)>) -> WriterStamp {
        debug_assert!(taken.is_empty(), "what was taken before has gone to the machine");
        std::mem::swap(&mut self.added, taken);
        self.next
    }
}
