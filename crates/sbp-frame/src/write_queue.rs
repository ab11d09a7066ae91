//! Frames on their way to a socket.

use std::{collections::VecDeque, io::IoSlice, mem};

use bytes::Bytes;

use crate::{Checksum, Flags, FrameTooLarge, OpCode, Prelude};

/// Payload parts of this many bytes and more are kept by reference; smaller ones are copied behind their header.
///
/// Copying a small part costs less than the extra entry in a vectored write.
pub const SHARE_FROM: usize = 16 * 1024;

/// Bytes of one block of a busy queue. A frame's bytes may continue in the next one.
const BLOCK: usize = 32 * 1024;

/// Bytes of the first block, if no frame needs more; each new one has twice as many, up to [`BLOCK`]. Most connections
/// never have more to say at once, and there may be thousands of them.
const FIRST_BLOCK: usize = 1024;

/// Frames up to this many bytes are not split over blocks, and so are copied with one look at the room. Below
/// [`SHARE_FROM`], so that none of their parts is kept by reference.
const WHOLE_UP_TO: usize = 4 * 1024;

/// Emptied blocks that are kept for the next frames.
const SPARE_BLOCKS: usize = 8;

/// Shared bytes in one write. They are summed right before, and written out of the processor's cache.
const SHARED_AT_ONCE: usize = 256 * 1024;

/// The fields of a frame to be sent that its lengths do not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// The operation.
    pub opcode: OpCode,
    /// The flags.
    pub flags: Flags,
    /// The *Stream Identifier*: a CallId, or the number that an unusable request came with.
    pub raw_call_id: u32,
    /// Encoding of the header.
    pub format: u8,
}

/// A piece of a payload to be sent.
#[derive(Debug, Clone)]
pub enum PayloadPart<'a> {
    /// Bytes that are copied.
    Copy(&'a [u8]),
    /// Bytes that are kept by reference until they are written, if there are [`SHARE_FROM`] of them or more.
    Share(Bytes),
}

impl PayloadPart<'_> {
    /// The part's bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Copy(bytes) => bytes,
            Self::Share(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
enum Segment {
    /// Copied bytes. Never filled beyond the capacity it was made with, so that it never moves.
    Block(Vec<u8>),
    /// Bytes of somebody else, which belong to a payload.
    Shared {
        /// Of the payload's copied bytes since its last shared ones.
        before: Checksum,
        bytes: Bytes,
        /// How many of them are part of the queue's checksum.
        summed: usize,
    },
    /// The checksum of a payload with shared bytes.
    Trailer {
        /// Of the payload's copied bytes since its last shared ones.
        before: Checksum,
        /// Right once it was offered.
        bytes: [u8; 4],
        known: bool,
    },
}

impl Segment {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Block(bytes) => bytes,
            Self::Shared { bytes, .. } => bytes,
            Self::Trailer { bytes, .. } => bytes,
        }
    }
}

/// The bytes that a connection has yet to write, in order.
///
/// Frames are appended at the back; the driver takes slices for a vectored write from the front and tells how far it
/// came. Blocks are used again, so that small frames allocate nothing once the queue has seen its usual depth.
#[derive(Debug, Default)]
pub struct WriteQueue {
    /// Only the first segment can be partly written; none is empty.
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are written already.
    front_written: usize,
    /// Of the payload that is being offered, as far as it was.
    sum: Checksum,
    spare: Vec<Vec<u8>>,
    /// Bytes of the last block that was made; 0 before the first.
    made: usize,
    pushed: u64,
    written: u64,
}

impl WriteQueue {
    /// An empty queue; it allocates with its first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one frame and returns its bytes on the wire.
    ///
    /// # Errors
    /// [`FrameTooLarge`], and then nothing was appended.
    pub fn push_frame(
        &mut self,
        head: FrameHead,
        header: &[u8],
        payload: &[PayloadPart<'_>],
    ) -> Result<usize, FrameTooLarge> {
        let payload_length = payload
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.as_slice().len()));
        let prelude = Prelude::new(
            head.opcode,
            head.flags.bits(),
            head.raw_call_id,
            head.format,
            header.len(),
            payload_length,
        )?;
        let total = usize::try_from(prelude.wire_length()).unwrap_or(usize::MAX);
        if total <= WHOLE_UP_TO {
            self.push_whole(&prelude, header, payload, total);
            return Ok(total);
        }
        self.copy(&prelude.to_bytes());
        self.copy(header);
        let mut checksum = Checksum::new();
        let mut shares = false;
        for part in payload {
            match part {
                PayloadPart::Share(bytes) if bytes.len() >= SHARE_FROM => {
                    self.share(mem::take(&mut checksum), bytes.clone());
                    shares = true;
                }
                part => {
                    checksum.update(part.as_slice());
                    self.copy(part.as_slice());
                }
            }
        }
        if shares {
            self.end_shared(checksum);
        } else {
            self.copy(&checksum.finish().to_be_bytes());
        }
        Ok(total)
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

    /// Forgets the first `count` bytes: they are written. No more than were offered, or all; more than there are counts
    /// as all.
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

    /// Bytes yet to be written.
    pub fn len(&self) -> usize {
        usize::try_from(self.pushed - self.written).unwrap_or(usize::MAX)
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.pushed == self.written
    }

    /// All bytes that were ever appended: the position at which the next frame starts.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// All bytes that were ever written. A frame that starts at position `p` has reached the socket, if only in part,
    /// once this is over `p`.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Drops what is queued, unwritten.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.sum = Checksum::new();
        self.front_written = 0;
        self.pushed = self.written;
    }

    /// Gives the memory of spare blocks back, for a connection that has fallen idle.
    pub fn shrink(&mut self) {
        self.spare = Vec::new();
        if self.segments.is_empty() {
            self.segments.shrink_to_fit();
            self.made = 0;
        }
    }

    /// Appends a frame of `total` bytes that goes into one block as it is.
    fn push_whole(&mut self, prelude: &Prelude, header: &[u8], payload: &[PayloadPart<'_>], total: usize) {
        let room = match self.segments.back() {
            Some(Segment::Block(block)) => block.capacity() - block.len(),
            _ => 0,
        };
        if room < total {
            self.start_block(total);
        }
        let Some(Segment::Block(block)) = self.segments.back_mut() else {
            return;
        };
        block.extend_from_slice(&prelude.to_bytes());
        block.extend_from_slice(header);
        let mut checksum = Checksum::new();
        for part in payload {
            checksum.update(part.as_slice());
            block.extend_from_slice(part.as_slice());
        }
        block.extend_from_slice(&checksum.finish().to_be_bytes());
        self.pushed += total as u64;
    }

    fn start_block(&mut self, wanted: usize) {
        let block = self.spare.pop().unwrap_or_else(|| {
            self.made = (self.made * 2).max(wanted).clamp(FIRST_BLOCK, BLOCK);
            Vec::with_capacity(self.made)
        });
        self.segments.push_back(Segment::Block(block));
    }

    fn copy(&mut self, mut bytes: &[u8]) {
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

    fn share(&mut self, before: Checksum, bytes: Bytes) {
        self.pushed += bytes.len() as u64;
        let summed = 0;
        self.segments.push_back(Segment::Shared { before, bytes, summed });
    }

    fn end_shared(&mut self, before: Checksum) {
        let bytes = [0; 4];
        self.pushed += bytes.len() as u64;
        let known = false;
        self.segments.push_back(Segment::Trailer { before, bytes, known });
    }

    fn recycle(&mut self, mut block: Vec<u8>) {
        // A queue that has needed larger ones needs no small ones any more.
        if self.spare.len() < SPARE_BLOCKS && block.capacity() >= self.made {
            block.clear();
            self.spare.push(block);
        }
    }
}

/// Makes a segment ready to be written from `skip` on: sums what it shares, `left` bytes at most. Where the part to be
/// written now ends, and whether that is all of it.
fn offer(segment: &mut Segment, skip: usize, left: &mut usize, sum: &mut Checksum) -> (usize, bool) {
    match segment {
        Segment::Block(bytes) => (bytes.len(), true),
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
