//! Parses received bytes into frames.

use std::mem;

use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};
use sbp_buffers::Recycler;
use sbp_frame::{Checksum, MAGIC, PRELUDE_LENGTH, Payload, Prelude, aligned_buffer, checksum};
use sbp_wire::Part;

/// The first receive block of a connection, and of an idle one. Small, because there may be thousands of those; a read
/// that fills its block doubles the next one.
const SMALLEST_BLOCK: usize = 2 * 1024;
/// The largest receive block of a busy connection.
const BUSY_BLOCK: usize = 64 * 1024;
/// The largest receive block within a large header or payload that arrives in pieces.
const LARGE_BLOCK: usize = 256 * 1024;
/// Bodies, and headers of larger bodies, up to this many bytes are received into one block. It bounds the memory that
/// is allocated only because a peer claims a length.
const CONTIGUOUS: usize = 32 * 1024;
/// A block with less room than this is replaced, because a read into it would not be worth the system call.
const LEAST_ROOM: usize = 4 * 1024;
/// Own allocations for payloads of at least this size are reused, and their sizes are multiples of it.
const AGAIN_FROM: usize = 64 * 1024;
/// Bytes of such a payload to read at once. They are checksummed right after, while they are in the processor's cache.
const OWN_AT_ONCE: usize = 256 * 1024;
/// How much memory of such allocations is kept for reuse while the connection is busy.
const KEPT: usize = 32 << 20;
/// Bytes of the checksum after a payload.
const CHECKSUM_LENGTH: usize = 4;

/// Where the payload of a frame is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the receive blocks in which it arrives; a large one is in several pieces.
    Blocks,
    /// In an allocation of its own, aligned to 64 bytes. Only for payloads that are small or for which memory was set
    /// aside.
    Own,
}

/// The result of parsing the bytes received so far.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More bytes are needed.
    NeedBytes,
    /// The next frame has an impossible length, so parsing cannot go on.
    ImpossibleLength(u32),
    /// The next frame does not have the magic byte of the protocol. Next call: [`Receiver::skip`].
    ForeignMagic {
        /// Bytes of the frame, including its length field.
        wire_length: u64,
    },
    /// The prelude of the next frame. Next call: [`Receiver::read`] or [`Receiver::skip`].
    Head(Prelude),
    /// A frame was skipped to its end.
    Skipped,
    /// A frame is complete.
    Complete(Received),
}

/// A complete frame whose checksum is not compared yet.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) prelude: Prelude,
    pub(crate) header: Bytes,
    pub(crate) payload: Payload,
    /// The checksum that the frame states.
    pub(crate) stated: u32,
    /// The checksum computed from the payload.
    pub(crate) found: u32,
}

/// The parser's state.
///
/// ```text
/// Prelude -> Skip ------------------------------------> Prelude
/// Prelude -> Whole -----------------------------------> Prelude     bodies up to CONTIGUOUS
/// Prelude -> Header -> Blocks ---------> Trailer -----> Prelude     larger ones
///                   -> Own (checksum included) -------> Prelude
/// ```
#[derive(Debug)]
enum Stage {
    Prelude,
    Skip {
        left: u64,
    },
    Whole {
        prelude: Prelude,
        placement: Placement,
    },
    Header {
        prelude: Prelude,
        placement: Placement,
        gathered: Vec<Bytes>,
        left: usize,
    },
    Blocks {
        prelude: Prelude,
        header: Bytes,
        payload: Payload,
        sum: Checksum,
        left: usize,
    },
    Own {
        prelude: Prelude,
        header: Bytes,
        buffer: BytesMut,
        sum: Checksum,
        summed: usize,
    },
    Trailer {
        prelude: Prelude,
        header: Bytes,
        payload: Payload,
        found: u32,
    },
}

/// Parses frames out of a stream of bytes that arrives in pieces of any size.
///
/// The receiver checks only what it needs to find the next frame. Everything else is decided by its caller, when the
/// first 16 bytes have arrived and before memory is spent on the rest.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The largest *Frame Length* accepted.
    max_frame_length: u32,
    /// Received bytes that are not parsed yet, followed by room for more.
    block: BytesMut,
    stage: Stage,
    block_size: usize,
    largest_block: usize,
    /// The room offered by the last [`Receiver::buffer`]: a read that fills it shows that larger blocks are worthwhile.
    offered: usize,
    copied: u64,
    /// Whether [`Receiver::take_begun`] has returned the present frame.
    told: bool,
    /// Allocations of payloads, to be reused when nothing refers to them any more.
    payloads: Recycler,
}

impl Receiver {
    pub(crate) fn new(max_frame_length: u32) -> Self {
        Self {
            max_frame_length,
            block: BytesMut::new(),
            stage: Stage::Prelude,
            block_size: SMALLEST_BLOCK,
            largest_block: BUSY_BLOCK,
            offered: 0,
            copied: 0,
            told: false,
            payloads: Recycler::new(KEPT),
        }
    }

    /// Whether the receive blocks stay small, however much comes: for peers that are not known.
    pub(crate) fn keep_small(&mut self, small: bool) {
        self.largest_block = if small { SMALLEST_BLOCK } else { BUSY_BLOCK };
    }

    /// The buffer to read into, which always has room.
    pub(crate) fn buffer(&mut self) -> Limit<&mut BytesMut> {
        if matches!(self.stage, Stage::Own { .. }) {
            return self.own_buffer();
        }
        let length = self.block.len();
        let room = self.block.capacity() - length;
        match &mut self.stage {
            // All bytes in the block belong to this part and do not complete it, else they would have been taken out.
            Stage::Header {
                prelude,
                gathered,
                left,
                ..
            } if is_gathered(prelude) => {
                if room < LEAST_ROOM.min(*left - length) {
                    *left -= length;
                    gathered.push(replace_block(&mut self.block, *left));
                }
            }
            Stage::Blocks { payload, sum, left, .. } => {
                if room < LEAST_ROOM.min(*left + CHECKSUM_LENGTH - length) {
                    *left -= length;
                    let chunk = replace_block(&mut self.block, *left);
                    sum.update(&chunk);
                    payload.push(chunk);
                }
            }
            stage => {
                let missing = stage.contiguous().saturating_sub(length);
                if room < missing.max(self.block_size / 4) {
                    self.block.reserve(missing.max(self.block_size.saturating_sub(length)));
                }
            }
        }
        let room = self.block.capacity() - self.block.len();
        self.offered = room;
        (&mut self.block).limit(room)
    }

    /// `count` bytes were read into the last buffer.
    pub(crate) fn note_received(&mut self, count: usize) {
        if count >= self.offered {
            self.block_size = (self.block_size * 2).min(self.largest_block);
        }
    }

    /// Whether no part of the next frame has been taken out of the block.
    pub(crate) fn is_between_frames(&self) -> bool {
        matches!(self.stage, Stage::Prelude)
    }

    /// The prelude and header of a frame whose payload is arriving in an allocation of its own. Returned once per
    /// frame.
    pub(crate) fn take_begun(&mut self) -> Option<(Prelude, Bytes)> {
        match &self.stage {
            Stage::Own { prelude, header, .. } if !self.told => {
                self.told = true;
                Some((*prelude, header.clone()))
            }
            _ => None,
        }
    }

    /// Whether part of an unfinished frame has arrived.
    pub(crate) fn is_mid_frame(&self) -> bool {
        !self.is_between_frames() || !self.block.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn stage_name(&self) -> &'static str {
        self.stage.name()
    }

    /// How much of the next frame has arrived.
    pub(crate) fn part(&self) -> Part {
        match self.stage {
            Stage::Prelude if self.block.is_empty() => Part::Nothing,
            Stage::Prelude => Part::Head,
            _ => Part::Body,
        }
    }

    /// Payload bytes that were copied out of the blocks in which they arrived.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// The number of received bytes that are kept here.
    pub(crate) fn held(&self) -> usize {
        let gathered = match &self.stage {
            Stage::Header { gathered, .. } => gathered.iter().map(Bytes::len).sum(),
            Stage::Blocks { header, payload, .. } | Stage::Trailer { header, payload, .. } => {
                header.len() + payload.len()
            }
            Stage::Own { header, buffer, .. } => header.len() + buffer.len(),
            Stage::Prelude | Stage::Skip { .. } | Stage::Whole { .. } => 0,
        };
        gathered + self.block.len()
    }

    /// Frees memory, for an idle connection.
    pub(crate) fn shrink(&mut self) {
        if !self.is_mid_frame() {
            self.block = BytesMut::new();
            self.block_size = SMALLEST_BLOCK;
            self.payloads.clear();
        }
    }

    /// Drops all bytes and stops parsing.
    pub(crate) fn stop(&mut self) {
        self.block = BytesMut::new();
        self.payloads.clear();
        self.stage = Stage::Prelude;
    }

    /// Skips the present frame, of `wire_length` bytes.
    pub(crate) fn skip(&mut self, wire_length: u64) {
        self.stage = Stage::Skip { left: wire_length };
    }

    /// Reads the present frame, whose prelude was returned by [`Receiver::poll`].
    pub(crate) fn read(&mut self, prelude: Prelude, placement: Placement) {
        self.block.advance(PRELUDE_LENGTH.min(self.block.len()));
        self.told = false;
        let left = prelude.header_length as usize;
        self.stage = if body_length(&prelude) <= CONTIGUOUS {
            Stage::Whole { prelude, placement }
        } else {
            Stage::Header {
                prelude,
                placement,
                gathered: Vec::new(),
                left,
            }
        };
    }

    /// Parses as far as the received bytes allow.
    pub(crate) fn poll(&mut self) -> Progress {
        loop {
            // `replace` resets the stage; every arm that is not finished puts its own stage back.
            match mem::replace(&mut self.stage, Stage::Prelude) {
                Stage::Prelude => return self.poll_prelude(),
                Stage::Skip { left } => return self.poll_skip(left),
                Stage::Whole { prelude, placement } => return self.poll_whole(prelude, placement),
                Stage::Header {
                    prelude,
                    placement,
                    gathered,
                    left,
                } if self.block.len() >= left => {
                    let header = join(gathered, self.take(left));
                    self.start_payload(prelude, placement, header);
                }
                Stage::Blocks {
                    prelude,
                    header,
                    mut payload,
                    mut sum,
                    left,
                } if self.block.len() >= left => {
                    let last = self.take(left);
                    sum.update(&last);
                    payload.push(last);
                    self.stage = Stage::Trailer {
                        prelude,
                        header,
                        payload,
                        found: sum.finish(),
                    };
                }
                Stage::Own {
                    prelude,
                    header,
                    buffer,
                    sum,
                    summed,
                } => return self.poll_own(prelude, header, buffer, sum, summed),
                Stage::Trailer {
                    prelude,
                    header,
                    payload,
                    found,
                } if self.block.len() >= CHECKSUM_LENGTH => {
                    let stated = self.block.get_u32();
                    return Progress::Complete(Received {
                        prelude,
                        header,
                        payload,
                        stated,
                        found,
                    });
                }
                incomplete @ (Stage::Header { .. } | Stage::Blocks { .. } | Stage::Trailer { .. }) => {
                    self.stage = incomplete;
                    return Progress::NeedBytes;
                }
            }
        }
    }

    fn poll_prelude(&mut self) -> Progress {
        let Some(length) = self.block.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return Progress::NeedBytes;
        };
        if !Prelude::is_possible_length(length) || length > self.max_frame_length {
            return Progress::ImpossibleLength(length);
        }
        match self.block.get(4) {
            None => Progress::NeedBytes,
            Some(&MAGIC) => match self.block.first_chunk::<PRELUDE_LENGTH>() {
                None => Progress::NeedBytes,
                Some(bytes) => Progress::Head(Prelude::parse(bytes)),
            },
            Some(_) => Progress::ForeignMagic {
                wire_length: u64::from(length) + 4,
            },
        }
    }

    fn poll_skip(&mut self, left: u64) -> Progress {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.block.len());
        self.block.advance(here);
        match left - here as u64 {
            0 => Progress::Skipped,
            left => {
                self.stage = Stage::Skip { left };
                Progress::NeedBytes
            }
        }
    }

    fn poll_whole(&mut self, prelude: Prelude, placement: Placement) -> Progress {
        if self.block.len() < body_length(&prelude) {
            self.stage = Stage::Whole { prelude, placement };
            return Progress::NeedBytes;
        }
        let header = self.take(prelude.header_length as usize);
        let length = payload_length(&prelude);
        let (payload, found) = match placement {
            Placement::Own => {
                let copy = Bytes::copy_from_slice(self.block.get(..length).unwrap_or_default());
                self.block.advance(length);
                self.copied += length as u64;
                let found = checksum(&copy);
                (copy, found)
            }
            Placement::Blocks => {
                let view = self.take(length);
                let found = checksum(&view);
                (view, found)
            }
        };
        let stated = self.block.get_u32();
        Progress::Complete(Received {
            prelude,
            header,
            payload: payload.into(),
            stated,
            found,
        })
    }

    fn start_payload(&mut self, prelude: Prelude, placement: Placement, header: Bytes) {
        let left = payload_length(&prelude);
        let sum = Checksum::new();
        self.stage = match placement {
            Placement::Blocks => Stage::Blocks {
                prelude,
                header,
                payload: Payload::new(),
                sum,
                left,
            },
            Placement::Own => {
                let mut buffer = self.own_memory(left + CHECKSUM_LENGTH);
                let here = (left + CHECKSUM_LENGTH).min(self.block.len());
                buffer.put_slice(self.block.get(..here).unwrap_or_default());
                self.block.advance(here);
                self.copied += here.min(left) as u64;
                Stage::Own {
                    prelude,
                    header,
                    buffer,
                    sum,
                    summed: 0,
                }
            }
        };
    }

    fn poll_own(
        &mut self,
        prelude: Prelude,
        header: Bytes,
        mut buffer: BytesMut,
        mut sum: Checksum,
        summed: usize,
    ) -> Progress {
        let length = payload_length(&prelude);
        // Checksummed as it arrives, while it is in the processor's cache.
        let arrived = buffer.len().min(length);
        sum.update(buffer.get(summed..arrived).unwrap_or_default());
        if buffer.len() < length + CHECKSUM_LENGTH {
            self.stage = Stage::Own {
                prelude,
                header,
                buffer,
                sum,
                summed: arrived,
            };
            return Progress::NeedBytes;
        }
        let capacity = buffer.capacity();
        let payload = buffer.split_to(length).freeze();
        if capacity >= AGAIN_FROM {
            self.payloads.remember(&payload, capacity);
        }
        let stated = buffer.get_u32();
        Progress::Complete(Received {
            prelude,
            header,
            payload: payload.into(),
            stated,
            found: sum.finish(),
        })
    }

    /// An empty buffer for a payload of its own, aligned to 64 bytes.
    fn own_memory(&mut self, length: usize) -> BytesMut {
        if length < AGAIN_FROM {
            return aligned_buffer(length);
        }
        match self.payloads.take(length) {
            Some(mut buffer) => {
                buffer.clear();
                buffer
            }
            None => aligned_buffer(length.next_multiple_of(AGAIN_FROM)),
        }
    }

    fn own_buffer(&mut self) -> Limit<&mut BytesMut> {
        match &mut self.stage {
            Stage::Own { prelude, buffer, .. } => {
                // Limited, so that no bytes of the next frame are read behind the payload, where they could not be
                // parsed.
                let left = payload_length(prelude) + CHECKSUM_LENGTH - buffer.len();
                self.offered = usize::MAX;
                buffer.limit(left.min(OWN_AT_ONCE))
            }
            _ => (&mut self.block).limit(0),
        }
    }

    /// Takes the next bytes out of the block, without copying. An empty part keeps no reference to the block.
    fn take(&mut self, count: usize) -> Bytes {
        if count == 0 {
            Bytes::new()
        } else {
            self.block.split_to(count.min(self.block.len())).freeze()
        }
    }
}

impl Stage {
    #[cfg(test)]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Prelude => "Prelude",
            Self::Skip { .. } => "Skip",
            Self::Whole { .. } => "Whole",
            Self::Header { .. } => "Header",
            Self::Blocks { .. } => "Blocks",
            Self::Own { .. } => "Own",
            Self::Trailer { .. } => "Trailer",
        }
    }

    /// Bytes that must be in the block together before this stage can be completed.
    fn contiguous(&self) -> usize {
        match self {
            Self::Prelude => PRELUDE_LENGTH,
            Self::Skip { .. } | Self::Blocks { .. } | Self::Own { .. } => 1,
            Self::Whole { prelude, .. } => body_length(prelude),
            Self::Header { left, .. } => *left,
            Self::Trailer { .. } => CHECKSUM_LENGTH,
        }
    }
}

/// Whether the header is too large to be received into one block.
fn is_gathered(prelude: &Prelude) -> bool {
    prelude.header_length as usize > CONTIGUOUS
}

/// Bytes of the payload. Not called for a header that exceeds its frame.
fn payload_length(prelude: &Prelude) -> usize {
    prelude.payload_length().unwrap_or_default() as usize
}

/// Bytes after the prelude.
fn body_length(prelude: &Prelude) -> usize {
    prelude.header_length as usize + payload_length(prelude) + CHECKSUM_LENGTH
}

/// Replaces the full block by one that fits what is `left` of the part, within bounds that do not depend on the length
/// a peer claims. Returns the full one.
fn replace_block(block: &mut BytesMut, left: usize) -> Bytes {
    let size = (left + CHECKSUM_LENGTH + LEAST_ROOM).clamp(BUSY_BLOCK, LARGE_BLOCK);
    mem::replace(block, BytesMut::with_capacity(size)).freeze()
}

/// Joins a header's pieces. All of it has been received, so its length is not a mere claim any more.
fn join(gathered: Vec<Bytes>, last: Bytes) -> Bytes {
    if gathered.is_empty() {
        return last;
    }
    let length = gathered.iter().map(Bytes::len).sum::<usize>() + last.len();
    let mut joined = BytesMut::with_capacity(length);
    for piece in gathered.iter().chain([&last]) {
        joined.put_slice(piece);
    }
    joined.freeze()
}
