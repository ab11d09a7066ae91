//! What an append came to.

use std::fmt;

use sbp_types::{Offset, StreamId, TimestampMs};
use smallvec::SmallVec;

use crate::error::ClientError;
use crate::features::Durability;

/// One batch is stored: its records have these offsets for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream.
    pub stream: StreamId,
    /// The first record's offset. `None` where the server has stored this batch before, so long ago that it does not
    /// remember where.
    pub base_offset: Option<Offset>,
    /// How many records the batch has; 0 for a fence.
    pub records: u32,
    /// The stream's next offset when this batch was stored, where the server says it.
    pub next_offset: Option<Offset>,
    /// The server's clock when it answered.
    pub append_time: TimestampMs,
    /// Whether the answer came after the data was synced to disk.
    pub durability: Durability,
    /// Whether the server had stored this very batch before and answered with its old place.
    pub duplicate: bool,
    /// The sequence that the server expects next of the batch's writer, where it said so: not of a writer that it does not know.
    pub next_sequence: Option<i64>,
}

impl Ack {
    /// The last record's offset; one below `base_offset` for an empty batch.
    #[must_use]
    pub fn last_offset(&self) -> Option<Offset> {
        let behind = self.base_offset?.0.saturating_add(i64::from(self.records));
        Some(Offset(behind.saturating_sub(1)))
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.base_offset, self.last_offset()) {
            (Some(base), Some(last)) => write!(f, "stored at {base} to {last}"),
            _ => f.write_str("stored by an earlier append, whose offsets the server does not remember"),
        }
    }
}

/// One outcome per entry of an append, in the order of its entries: several streams in one frame can fare differently.
///
/// That the append as a whole failed (refused, timed out, connection lost) is the `Err` around this.
#[derive(Debug)]
pub struct AppendOutcome {
    /// Acknowledgement or refusal of each entry.
    pub entries: SmallVec<[Result<Ack, ClientError>; 1]>,
}

impl AppendOutcome {
    /// The outcome of an append that had one entry.
    ///
    /// # Errors
    ///
    /// The entry's refusal.
    pub fn single(self) -> Result<Ack, ClientError> {
        match self.entries.into_iter().next() {
            Some(outcome) => outcome,
            None => Err(ClientError::protocol("an append without entries was answered")),
        }
    }

    /// All acknowledgements.
    ///
    /// # Errors
    ///
    /// The first entry's refusal, in the order of entries; the others may have been stored.
    pub fn all(self) -> Result<Vec<Ack>, ClientError> {
        self.entries.into_iter().collect()
    }
}
