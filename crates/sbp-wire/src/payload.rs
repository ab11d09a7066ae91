//! A received payload, in one or several chunks.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

/// The alignment of [`aligned_buffer`], at which columnar readers want data to start.
const ALIGNMENT: usize = 64;

/// The payload of a frame.
///
/// A large payload without memory set aside for it is kept in the blocks in which it arrives. It can be written in
/// pieces as it is; only a reader that needs one slice has to join them.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    chunks: SmallVec<[Bytes; 1]>,
}

impl Payload {
    /// A payload without bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of bytes in all chunks.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The chunks in order, none of them empty.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// Appends a chunk, unless it is empty.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.chunks.push(chunk);
        }
    }

    /// The payload as one slice. Several chunks are copied once, into memory aligned to 64 bytes.
    pub fn into_contiguous(self) -> Bytes {
        match self.chunks.as_slice() {
            [] => Bytes::new(),
            [whole] => whole.clone(),
            chunks => {
                let mut joined = aligned_buffer(self.len());
                for chunk in chunks {
                    joined.put_slice(chunk);
                }
                joined.freeze()
            }
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(bytes);
        payload
    }
}

/// An empty buffer aligned to 64 bytes, which takes `capacity` bytes without being moved.
///
/// Columns that start at multiples of 16 in such a buffer can be used in place.
pub fn aligned_buffer(capacity: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(capacity.saturating_add(ALIGNMENT - 1));
    let skip = buffer.spare_capacity_mut().as_ptr().align_offset(ALIGNMENT);
    if skip < ALIGNMENT {
        buffer.put_bytes(0, skip);
        buffer.advance(skip);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_stay_apart_until_joined() {
        let mut payload = Payload::from(Bytes::from_static(b"ab"));
        payload.push(Bytes::new());
        payload.push(Bytes::from_static(b"cde"));
        assert_eq!(payload.chunks().len(), 2);
        assert_eq!(payload.len(), 5);
        assert_eq!(payload.into_contiguous(), Bytes::from_static(b"abcde"));
    }

    #[test]
    fn one_chunk_is_handed_out_as_it_is() {
        let bytes = Bytes::from(vec![7; 100]);
        let place = bytes.as_ptr();
        assert_eq!(Payload::from(bytes).into_contiguous().as_ptr(), place);
        assert!(Payload::from(Bytes::new()).is_empty());
    }

    #[test]
    fn aligned_buffers_start_aligned_and_do_not_move() {
        for capacity in [1, 63, 64, 65, 4096, 100_001] {
            let mut buffer = aligned_buffer(capacity);
            buffer.put_bytes(1, capacity);
            let place = buffer.as_ptr();
            assert_eq!(place.align_offset(ALIGNMENT), 0, "capacity {capacity}");
            assert_eq!(buffer.freeze().as_ptr(), place);
        }
    }
}
