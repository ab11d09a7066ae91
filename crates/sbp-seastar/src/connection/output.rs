//! Frames on their way out.

use bytes::Bytes;
use sbp_wire::SHARE_FROM;

use super::Connection;
use crate::fault::narrow;

impl Connection {
    /// Queues a frame, compressed where that was agreed.
    pub(super) fn queue_frame(&mut self, head: &[u8], payload: &Bytes) {
        match self.agreed.codec {
            None => {
                self.core.queue.push(head);
                self.core.queue.push_shared(payload.clone());
            }
            Some(codec) => {
                let compressed = codec.compress(&[head, payload].concat());
                self.core.queue.push(&narrow(compressed.len()).to_le_bytes());
                match compressed.len() < SHARE_FROM {
                    true => self.core.queue.push(&compressed),
                    false => self.core.queue.push_shared(compressed.into()),
                }
            }
        }
        self.core.keepalive.note_queued(self.core.now);
    }
}
