//! The payload of a frame that is being collected.

use bytes::{Bytes, BytesMut};

use crate::{SHARE_FROM, WriteQueue};

/// Collects a frame's payload: what is copied, and what is kept by reference.
#[derive(Debug, Default)]
pub struct Collector {
    /// Where the next bytes to be copied are put.
    pub head: BytesMut,
    parts: Vec<Bytes>,
    length: usize,
}

impl Collector {
    /// Adds bytes, by reference where they are [many](SHARE_FROM).
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_FROM {
            self.head.extend_from_slice(bytes);
            return;
        }
        self.flush();
        self.length += bytes.len();
        self.parts.push(bytes.clone());
    }

    fn flush(&mut self) {
        if !self.head.is_empty() {
            self.length += self.head.len();
            self.parts.push(self.head.split().freeze());
        }
    }

    /// Bytes so far.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length + self.head.len()
    }

    /// Queues the frame: its head, and what was collected.
    pub fn queue(mut self, head: &[u8], queue: &mut WriteQueue) {
        self.flush();
        queue.push(head);
        for part in self.parts {
            queue.push_shared(part);
        }
    }
}
