//! Frames with the batches of many streams: one that is gathered, and those on their way.

use std::collections::HashMap;
use std::time::Instant;

use smallvec::SmallVec;

use crate::submission::{AppendEntry, Tokens};

/// A frame with as many bytes of batches as this is complete.
const FRAME_BYTES: usize = 4 << 20;
/// Batches of one frame; servers take 1,024.
const FRAME_ENTRIES: usize = 512;
/// The lower part of an entry's token is its place in its frame, the upper part the frame's number.
const PLACE_BITS: u32 = 16;

/// The place of a stream's queue, and the token by which its machine knows the attempt.
type Attempt = (usize, u64);

/// Batches to be sent together.
#[derive(Debug)]
pub(super) struct Frame {
    /// An entry for each batch.
    pub(super) entries: SmallVec<[AppendEntry; 1]>,
    /// The tokens of the entries, in their order.
    pub(super) tokens: Tokens,
    /// When the first of its batches is out of time.
    pub(super) deadline: Instant,
    number: u64,
    attempts: Vec<Attempt>,
    bytes: usize,
}

impl Frame {
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= FRAME_ENTRIES || self.bytes >= FRAME_BYTES
    }

    /// Whether a batch of this length fits; one that is too large for any frame goes alone.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.entries.is_empty() || self.bytes + length <= FRAME_BYTES
    }

    pub(super) fn add(&mut self, entry: AppendEntry, attempt: Attempt, deadline: Instant) {
        let place = u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        self.tokens.push((self.number << PLACE_BITS) | place);
        self.bytes += entry.body.len();
        self.deadline = self.deadline.min(deadline);
        self.entries.push(entry);
        self.attempts.push(attempt);
    }
}

/// The frames on their way: which attempt each of their entries is.
#[derive(Debug, Default)]
pub(super) struct Frames {
    sent: HashMap<u64, Sent>,
    next: u64,
}

#[derive(Debug)]
struct Sent {
    attempts: Vec<Attempt>,
    /// Entries whose attempts have not ended.
    left: usize,
}

impl Frames {
    /// How many are on their way: an entry of theirs has not ended.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// An empty frame whose batches have time until `deadline`, or less.
    pub(super) fn begin(&self, deadline: Instant) -> Frame {
        Frame {
            entries: SmallVec::new(),
            tokens: Tokens::new(),
            deadline,
            number: self.next,
            attempts: Vec::new(),
            bytes: 0,
        }
    }

    /// The frame is sent, unless there is nothing in it.
    pub(super) fn finish(&mut self, mut frame: Frame) -> Option<Frame> {
        let left = frame.entries.len();
        if left == 0 {
            return None;
        }
        let attempts = std::mem::take(&mut frame.attempts);
        self.sent.insert(frame.number, Sent { attempts, left });
        self.next += 1;
        Some(frame)
    }

    /// An entry is over. Returns which attempt it was.
    pub(super) fn ended(&mut self, token: u64) -> Option<Attempt> {
        let number = token >> PLACE_BITS;
        let place = usize::try_from(token & ((1 << PLACE_BITS) - 1)).ok()?;
        let sent = self.sent.get_mut(&number)?;
        let attempt = *sent.attempts.get(place)?;
        sent.left -= 1;
        if sent.left == 0 {
            self.sent.remove(&number);
        }
        Some(attempt)
    }
}
