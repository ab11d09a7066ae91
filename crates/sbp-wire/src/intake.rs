//! Bytes that have arrived, until frames are cut out of them.

use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};

/// The first block of a connection, and of an idle one. Small, because there may be thousands of those; a read that fills its
/// block doubles the next one.
const SMALLEST_BLOCK: usize = 2 * 1024;
/// The largest block of a busy connection, while no frame needs more.
const BUSY_BLOCK: usize = 64 * 1024;

/// Received bytes that are not parsed yet, in one piece.
///
/// Frames are cut out as views, without a copy. The memory grows with what arrives: however long a frame claims to be, no
/// more than as much again as is there of it is set aside.
#[derive(Debug)]
pub struct Intake {
    block: BytesMut,
    block_size: usize,
    /// The room offered by the last [`Self::buffer`]: a read that fills it shows that larger blocks are worthwhile.
    offered: usize,
    /// Bytes of the part that is being received, as far as that is known.
    needed: usize,
}

impl Intake {
    /// Nothing has arrived. It allocates memory when the first bytes are read.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer to read into, which always has room.
    pub fn buffer(&mut self) -> Limit<&mut BytesMut> {
        let length = self.block.len();
        let missing = self.needed.saturating_sub(length);
        let wanted = missing.min(length.max(self.block_size)).max(1);
        if self.block.capacity() - length < wanted.max(self.block_size / 4) {
            self.block.reserve(wanted.max(self.block_size.saturating_sub(length)));
        }
        self.offered = self.block.capacity() - length;
        let room = self.offered;
        (&mut self.block).limit(room)
    }

    /// `count` bytes were read into the last buffer.
    pub fn note_received(&mut self, count: usize) {
        if count >= self.offered {
            self.block_size = (self.block_size * 2).min(BUSY_BLOCK);
        }
    }

    /// What has arrived and was not taken out.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        &self.block
    }

    /// Nothing more can be taken out before this many bytes, all that is there included, have arrived.
    pub fn wait_for(&mut self, length: usize) {
        self.needed = length;
    }

    /// Takes the first `length` bytes out; `None`, with nothing taken, while fewer have arrived. It then waits for them.
    pub fn take(&mut self, length: usize) -> Option<Bytes> {
        if self.block.len() < length {
            self.wait_for(length);
            return None;
        }
        self.needed = 0;
        Some(self.block.split_to(length).freeze())
    }

    /// Drops up to `length` of the first bytes. How many.
    pub fn skip(&mut self, length: usize) -> usize {
        let here = length.min(self.block.len());
        self.block.advance(here);
        self.needed = 0;
        here
    }

    /// Frees memory, for an idle connection.
    pub fn shrink(&mut self) {
        if self.block.is_empty() {
            self.clear();
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            block: BytesMut::new(),
            block_size: SMALLEST_BLOCK,
            offered: 0,
            needed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(intake: &mut Intake, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            let mut buffer = intake.buffer();
            let count = left.len().min(buffer.remaining_mut());
            assert!(count > 0, "a buffer always has room");
            buffer.put_slice(&left[..count]);
            intake.note_received(count);
            left = &left[count..];
        }
    }

    #[test]
    fn frames_are_cut_out_where_they_end() {
        let mut intake = Intake::new();
        receive(&mut intake, b"abcdef");
        assert_eq!(intake.take(2).as_deref(), Some(&b"ab"[..]));
        assert_eq!(intake.take(5), None);
        assert_eq!(intake.received(), b"cdef");
        receive(&mut intake, b"gh");
        assert_eq!(intake.take(5).as_deref(), Some(&b"cdefg"[..]));
        assert_eq!(intake.skip(9), 1);
        assert_eq!(intake.received(), b"");
    }

    #[test]
    fn memory_grows_with_what_arrives_and_not_with_what_is_claimed() {
        let mut intake = Intake::new();
        let piece = [7; 1_000];
        for pieces in 1..2_000 {
            receive(&mut intake, &piece);
            assert_eq!(intake.take(256 << 20), None);
            let _ = intake.buffer();
            let held = pieces * piece.len();
            assert!(
                intake.block.capacity() <= 4 * held + 2 * BUSY_BLOCK,
                "{} bytes set aside for {held}",
                intake.block.capacity()
            );
        }
    }

    #[test]
    fn an_idle_connection_keeps_nothing() {
        let mut intake = Intake::new();
        receive(&mut intake, &[1; 100_000]);
        intake.shrink();
        assert_eq!(intake.received().len(), 100_000, "only what is not in use");
        drop(intake.take(100_000));
        intake.shrink();
        assert_eq!(intake.block.capacity(), 0);
    }
}
