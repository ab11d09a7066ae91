//! Appends that wait until it is known where their streams are.

use std::collections::HashMap;
use std::time::Instant;

use sbp_types::StreamId;

use crate::submission::{AppendOp, Submissions};

/// Streams that a placement driver is being asked for, and appends to them, in order.
#[derive(Debug, Default)]
pub(crate) struct Reroutes {
    pub(crate) asking: HashMap<StreamId, Submissions>,
    pub(crate) closed: bool,
}

impl Reroutes {
    pub(crate) fn is_asking(&self, stream: StreamId) -> bool {
        self.asking.contains_key(&stream)
    }

    /// Adds an append to those that wait for its stream. Returns whether nobody asked for it yet.
    pub(crate) fn wait(&mut self, op: AppendOp, arena: &[u8]) -> bool {
        let Some(stream) = op.entries.first().map(|entry| entry.stream) else {
            return false;
        };
        let is_first = !self.is_asking(stream);
        self.asking.entry(stream).or_default().adopt(op, arena);
        is_first
    }

    /// The client is closed: nothing waits here any more. Returns what did.
    pub(crate) fn close(&mut self) -> Vec<Submissions> {
        self.closed = true;
        self.asking.drain().map(|(_, submissions)| submissions).collect()
    }

    /// When the first of those that wait for a stream gives up; `None`: none waits.
    pub(crate) fn deadline(&self, stream: StreamId) -> Option<Instant> {
        self.asking.get(&stream)?.ops.iter().map(|op| op.deadline).min()
    }

    pub(crate) fn expired(&mut self, stream: StreamId, now: Instant) -> Vec<AppendOp> {
        let Some(waiting) = self.asking.get_mut(&stream) else {
            return Vec::new();
        };
        waiting.ops.extract_if(.., |op| op.deadline <= now).collect()
    }
}
