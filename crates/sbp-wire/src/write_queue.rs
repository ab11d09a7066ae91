//! The queue of bytes that wait to be written to a socket.

use std::{collections::VecDeque, io::IoSlice, mem};

use bytes::Bytes;

use crate::Checksum;

/// Bytes that are pushed by reference are kept so where there are as many as this; fewer are copied, because that costs less
/// than one more entry in a vectored write.
pub const SHARE_FROM: usize = 16 * 1024;

/// The size of a block in a busy queue. A frame may continue in the next block.
const BLOCK: usize = 32 * 1024;

/// The size of the first block, if no frame needs more; each further one is twice as large, up to [`BLOCK`]. Most
/// connections never queue more at once, and there may be thousands of them.
const FIRST_BLOCK: usize = 1024;

/// Frames up to this size can be kept in one block, so that they are copied after a single check of the room. Less than
/// [`SHARE_FROM`], so that no part of them is kept by reference.
pub const WHOLE_UP_TO: usize = 4 * 1024;

/// How many emptied blocks are kept for reuse.
const SPARE_BLOCKS: usize = 8;

/// The most shared bytes in one write. They are checksummed right before it, so that they are written from the
/// processor's cache.
const SHARED_AT_ONCE: usize = 256 * 1024;

#[derive(Debug)]
enum Segment {
    /// Copied bytes. Never filled beyond the block's first capacity, so that it is never reallocated.
    Block(Vec<u8>),
    /// Bytes that are kept by reference.
    Plain(Bytes),
    /// Bytes of a payload that are kept by reference and belong to its checksum.
    Shared {
        /// The checksum of the payload's copied bytes since the last shared ones.
        before: Checksum,
        bytes: Bytes,
        /// How many of the bytes the queue's checksum includes.
        summed: usize,
    },
    /// The checksum of a payload with shared bytes.
    Trailer {
        /// The checksum of the payload's copied bytes since the last shared ones.
        before: Checksum,
        /// The bytes to write. Valid once they were offered for writing.
        bytes: [u8; 4],
        known: bool,
    },
}

impl Segment {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Block(bytes) => bytes,
            Self::Plain(bytes) | Self::Shared { bytes, .. } => bytes,
            Self::Trailer { bytes, .. } => bytes,
        }
    }
}

/// The bytes that a connection has yet to write, in order.
///
/// Bytes are appended at the end. The driver takes slices for a vectored write from the front, and reports how many
/// bytes were written. Blocks are reused, so that small frames need no allocation once the queue has had its usual
/// length.
#[derive(Debug, Default)]
pub struct WriteQueue {
    /// The queued segments. Only the first one can be partly written; none is empty.
    segments: VecDeque<Segment>,
    /// How many bytes of the first segment are written.
    front_written: usize,
    /// The checksum of the payload that is being offered for writing, as far as it was offered.
    sum: Checksum,
    spare: Vec<Vec<u8>>,
    /// The size of the last block that was allocated; 0 before the first.
    made: usize,
    pushed: u64,
    written: u64,
}

impl WriteQueue {
    /// An empty queue. It allocates memory with its first bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.pushed += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = match self.segments.back() {
                Some(Segment::Block(block)) => block.capacity() - block.len(),
                _ => 0,
            };
            if room == 0 {
                self.start_block(bytes.len());
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(Segment::Block(block)) = self.segments.back_mut() {
                block.extend_from_slice(now);
            }
            bytes = later;
        }
    }

    /// Appends bytes that are kept by reference until they are written, if there are at least [`SHARE_FROM`].
    pub fn push_shared(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_FROM {
            return self.push(&bytes);
        }
        self.pushed += bytes.len() as u64;
        self.segments.push_back(Segment::Plain(bytes));
    }

    /// Appends `length` bytes, at most [`WHOLE_UP_TO`], that `fill` adds to a single block.
    #[inline]
    pub fn push_whole(&mut self, length: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        let room = match self.segments.back() {
            Some(Segment::Block(block)) => block.capacity() - block.len(),
            _ => 0,
        };
        if room < length {
            self.start_block(length);
        }
        let Some(Segment::Block(block)) = self.segments.back_mut() else {
            return;
        };
        let before = block.len();
        fill(block);
        let filled = block.len() - before;
        debug_assert_eq!(filled, length);
        self.pushed += filled as u64;
    }

    /// Appends bytes of a payload with a checksum, by reference. They are summed right before they are written, after
    /// `before`: the checksum of the payload's copied bytes since the last shared ones.
    pub fn push_summed(&mut self, before: Checksum, bytes: Bytes) {
        self.pushed += bytes.len() as u64;
        let summed = 0;
        self.segments.push_back(Segment::Shared { before, bytes, summed });
    }

    /// Appends the checksum, big-endian, of a payload of which bytes were [shared](Self::push_summed). `before` is the
    /// checksum of its copied bytes since the last of those.
    pub fn push_sum(&mut self, before: Checksum) {
        let bytes = [0; 4];
        self.pushed += bytes.len() as u64;
        let known = false;
        self.segments.push_back(Segment::Trailer { before, bytes, known });
    }

    /// Fills `slices` from the front of the queue and returns how many were set.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        let mut skip = self.front_written;
        let mut left = SHARED_AT_ONCE;
        for (slot, segment) in slices.iter_mut().zip(&mut self.segments) {
            let (end, whole) = offer(segment, skip, &mut left, &mut self.sum);
            *slot = IoSlice::new(segment.as_slice().get(skip..end).unwrap_or_default());
            skip = 0;
            count += 1;
            if !whole || left == 0 {
                break;
            }
        }
        count
    }

    /// Removes the first `count` bytes, which were written. `count` must not exceed what was offered, except to remove
    /// everything.
    pub fn advance(&mut self, count: usize) {
        let mut left = count.min(self.len());
        self.written += left as u64;
        while let Some(front) = self.segments.front() {
            let unwritten = front.as_slice().len() - self.front_written;
            if left < unwritten {
                self.front_written += left;
                return;
            }
            left -= unwritten;
            self.front_written = 0;
            match self.segments.pop_front() {
                Some(Segment::Block(block)) => self.recycle(block),
                Some(Segment::Trailer { known: false, .. }) => self.sum = Checksum::new(),
                _ => {}
            }
        }
    }

    /// The number of bytes yet to be written.
    pub fn len(&self) -> usize {
        usize::try_from(self.pushed - self.written).unwrap_or(usize::MAX)
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.pushed == self.written
    }

    /// The number of bytes ever appended, which is the position at which the next ones start.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The number of bytes ever written. When it exceeds `p`, part of the frame that starts at position `p` has reached
    /// the socket.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Drops everything queued.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.sum = Checksum::new();
        self.front_written = 0;
        self.pushed = self.written;
    }

    /// Frees spare blocks, for an idle connection.
    pub fn shrink(&mut self) {
        self.spare = Vec::new();
        if self.segments.is_empty() {
            self.segments.shrink_to_fit();
            self.made = 0;
        }
    }

    fn start_block(&mut self, wanted: usize) {
        let block = self.spare.pop().unwrap_or_else(|| {
            self.made = (self.made * 2).max(wanted).clamp(FIRST_BLOCK, BLOCK);
            Vec::with_capacity(self.made)
        });
        self.segments.push_back(Segment::Block(block));
    }

    fn recycle(&mut self, mut block: Vec<u8>) {
        // A queue that needed larger blocks does not keep the smaller ones from its beginning.
        if self.spare.len() < SPARE_BLOCKS && block.capacity() >= self.made {
            block.clear();
            self.spare.push(block);
        }
    }
}

/// Prepares a segment to be written from `skip` on: checksums its shared bytes, at most `left` of them. Returns where
/// the part to be written ends, and whether that is the end of the segment.
fn offer(segment: &mut Segment, skip: usize, left: &mut usize, sum: &mut Checksum) -> (usize, bool) {
    match segment {
        Segment::Block(bytes) => (bytes.len(), true),
        Segment::Plain(bytes) => (bytes.len(), true),
        Segment::Shared { before, bytes, summed } => {
            let end = bytes.len().min(skip.saturating_add(*left));
            if *summed == 0 {
                sum.append(before);
            }
            sum.update(bytes.get(*summed..end).unwrap_or_default());
            *summed = end.max(*summed);
            *left -= end - skip;
            (end, end == bytes.len())
        }
        Segment::Trailer { before, bytes, known } => {
            if !*known {
                sum.append(before);
                *bytes = mem::take(sum).finish().to_be_bytes();
                *known = true;
            }
            (bytes.len(), true)
        }
    }
}

#[cfg(test)]
mod tests;
