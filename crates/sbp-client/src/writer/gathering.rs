//! Single records that become one batch.

use std::time::{Duration, Instant};

use sbp_record::{EncodeError, RecordsBuilder};

use super::pending::Waiter;

/// Records that are gathered, and who waits for each.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) records: RecordsBuilder,
    pub(super) waiters: Vec<Waiter>,
    bytes: usize,
    /// When it is sent.
    pub(super) due: Instant,
}

impl Gathering {
    pub(super) fn new(now: Instant, linger: Duration) -> Self {
        Self {
            records: RecordsBuilder::new(),
            waiters: Vec::new(),
            bytes: 0,
            due: now + linger,
        }
    }

    /// Whether a record of `length` goes into this batch, which always takes one.
    pub(super) fn has_room(&self, length: usize, batch_bytes: usize) -> bool {
        self.waiters.is_empty() || self.bytes.saturating_add(length) <= batch_bytes
    }

    /// Adds one record. On an error nothing was added.
    pub(super) fn push(&mut self, record: &[u8], waiter: Waiter) -> Result<(), EncodeError> {
        self.records.push(Some(record), None, None, &[])?;
        self.waiters.push(waiter);
        // What a record costs beside its bytes: its offset and its bit.
        self.bytes += record.len() + 5;
        Ok(())
    }
}
