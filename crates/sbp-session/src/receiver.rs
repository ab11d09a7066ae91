//! From bytes to frames.

use std::mem;

use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};
use sbp_buffers::Recycler;
use sbp_frame::{Checksum, MAGIC, PRELUDE_LENGTH, Payload, Prelude, aligned_buffer, checksum};

use crate::arrival::Part;

/// The first receive block of a connection, and that of an idle one. There may be thousands of those; a read that fills
/// its block doubles the next.
const SMALLEST_BLOCK: usize = 2 * 1024;
/// The receive block of a busy connection.
const BUSY_BLOCK: usize = 64 * 1024;
/// The receive block in the middle of a large part that arrives piece by piece.
const LARGE_BLOCK: usize = 256 * 1024;
/// Bodies, and headers of larger bodies, up to this many bytes are waited for in one block. It bounds what is ever
/// allocated because of a length that a peer merely claims.
const CONTIGUOUS: usize = 32 * 1024;
/// With less room than this in a block a read is not worth its system call.
const LEAST_ROOM: usize = 4 * 1024;
/// Payloads with memory of their own from this size on get memory that others had before them, in steps of as much.
const AGAIN_FROM: usize = 64 * 1024;
/// Bytes of such a payload that are read at once: summed right after, they are still in the processor's cache.
const OWN_AT_ONCE: usize = 256 * 1024;
/// The memory that is kept for that while the connection is busy.
const KEPT: usize = 32 << 20;
/// Bytes of the checksum behind a payload.
const CHECKSUM_LENGTH: usize = 4;

/// How the payload of a frame is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the receive blocks it arrives in, in pieces where it is large.
    Blocks,
    /// In one allocation of its own, aligned to 64. Only for payloads that are small or whose memory was set aside.
    Own,
}

/// What came of the bytes so far.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing more until bytes come.
    NeedBytes,
    /// The next frame has an impossible length. There is no next step.
    ImpossibleLength(u32),
    /// The next frame, of so many bytes on the wire, is none of ours. Next: [`Receiver::skip`].
    ForeignMagic {
        /// Bytes of the frame, its length field included.
        wire_length: u64,
    },
    /// The prelude of the next frame. Next: [`Receiver::read`] or [`Receiver::skip`].
    Head(Prelude),
    /// A frame was skipped to its end.
    Skipped,
    /// A frame is complete.
    Complete(Received),
}

/// A complete frame, its checksum not yet judged.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) prelude: Prelude,
    pub(crate) header: Bytes,
    pub(crate) payload: Payload,
    /// The checksum in the frame.
    pub(crate) stated: u32,
    /// The checksum of the payload.
    pub(crate) found: u32,
}

/// Where the receiver is in the stream of bytes.
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

/// Reads frames out of a stream of bytes, of which it may get any number at a time.
///
/// It judges only what decides where the next frame starts; everything else is its caller's decision, taken when the
/// first 16 bytes are there and before any memory is spent on the rest.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The largest *Frame Length* that is taken for one.
    max_frame_length: u32,
    /// Received bytes that are not consumed, and behind them the room for the next.
    block: BytesMut,
    stage: Stage,
    block_size: usize,
    /// The room offered by the last [`Receiver::buffer`]: a read that fills it shows that larger blocks pay.
    offered: usize,
    copied: u64,
    /// [`Receiver::take_begun`] has told of the frame at hand.
    told: bool,
    /// Memory of payloads, for when nobody holds them any more.
    payloads: Recycler,
}

impl Receiver {
    pub(crate) fn new(max_frame_length: u32) -> Self {
        Self {
            max_frame_length,
            block: BytesMut::new(),
            stage: Stage::Prelude,
            block_size: SMALLEST_BLOCK,
            offered: 0,
            copied: 0,
            told: false,
            payloads: Recycler::new(KEPT),
        }
    }

    /// Where to read into; never without room.
    pub(crate) fn buffer(&mut self) -> Limit<&mut BytesMut> {
        if matches!(self.stage, Stage::Own { .. }) {
            return self.own_buffer();
        }
        let length = self.block.len();
        let room = self.block.capacity() - length;
        match &mut self.stage {
            // All that is in the block belongs to the part being gathered; if it were complete, it would be consumed.
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
            self.block_size = (self.block_size * 2).min(BUSY_BLOCK);
        }
    }

    /// Whether nothing of the next frame is consumed yet.
    pub(crate) fn is_between_frames(&self) -> bool {
        matches!(self.stage, Stage::Prelude)
    }

    /// The frame whose header is here, and whose payload comes into memory of its own; each frame once.
    pub(crate) fn take_begun(&mut self) -> Option<(Prelude, Bytes)> {
        match &self.stage {
            Stage::Own { prelude, header, .. } if !self.told => {
                self.told = true;
                Some((*prelude, header.clone()))
            }
            _ => None,
        }
    }

    /// Whether bytes of an unfinished frame are here.
    pub(crate) fn is_mid_frame(&self) -> bool {
        !self.is_between_frames() || !self.block.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn stage_name(&self) -> &'static str {
        self.stage.name()
    }

    /// How much of the next frame is here.
    pub(crate) fn part(&self) -> Part {
        match self.stage {
            Stage::Prelude if self.block.is_empty() => Part::Nothing,
            Stage::Prelude => Part::Head,
            _ => Part::Body,
        }
    }

    /// Payload bytes that were copied out of the block they arrived in.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// Received bytes that are kept here.
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

    /// Gives memory back, for a connection that has fallen idle.
    pub(crate) fn shrink(&mut self) {
        if !self.is_mid_frame() {
            self.block = BytesMut::new();
            self.block_size = SMALLEST_BLOCK;
            self.payloads.clear();
        }
    }

    /// Drops all bytes and takes no more.
    pub(crate) fn stop(&mut self) {
        self.block = BytesMut::new();
        self.payloads.clear();
        self.stage = Stage::Prelude;
    }

    /// Lets the frame at hand, of `wire_length` bytes, pass by unread.
    pub(crate) fn skip(&mut self, wire_length: u64) {
        self.stage = Stage::Skip { left: wire_length };
    }

    /// Reads the frame at hand, whose prelude was returned by [`Receiver::poll`].
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

    /// Goes as far as the bytes allow.
    pub(crate) fn poll(&mut self) -> Progress {
        loop {
            // Every arm that cannot go on puts its stage back.
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
        // Summed as it arrives, while it is in the cache.
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

    /// Empty memory for a payload of its own, aligned to 64.
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
                // Nothing of the next frame may end up behind the payload, where it could not be parsed in place.
                let left = payload_length(prelude) + CHECKSUM_LENGTH - buffer.len();
                self.offered = usize::MAX;
                buffer.limit(left.min(OWN_AT_ONCE))
            }
            _ => (&mut self.block).limit(0),
        }
    }

    /// The block's next bytes, as a view of it. Touches no reference count for nothing.
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

    /// Bytes that must lie together in the block before this stage can end.
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

/// Whether the header is too large to be waited for in one block.
fn is_gathered(prelude: &Prelude) -> bool {
    prelude.header_length as usize > CONTIGUOUS
}

/// Bytes of the payload. A prelude whose header reaches over the frame is never read.
fn payload_length(prelude: &Prelude) -> usize {
    prelude.payload_length().unwrap_or_default() as usize
}

/// Bytes behind the prelude.
fn body_length(prelude: &Prelude) -> usize {
    prelude.header_length as usize + payload_length(prelude) + CHECKSUM_LENGTH
}

/// Takes the full block out and puts one in its place that fits what is `left` of the part, within reason: the size
/// follows what has been received, never what is claimed.
fn replace_block(block: &mut BytesMut, left: usize) -> Bytes {
    let size = (left + CHECKSUM_LENGTH + LEAST_ROOM).clamp(BUSY_BLOCK, LARGE_BLOCK);
    mem::replace(block, BytesMut::with_capacity(size)).freeze()
}

/// A header in one piece. By now all of it was received, so its length is no longer a claim.
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
