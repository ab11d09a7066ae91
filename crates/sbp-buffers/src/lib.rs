//! Large buffers that are used again.
//!
//! An allocator gives a buffer of a megabyte back to the system, and the next one is new memory: each of its pages is
//! missed once, cleared and mapped. That costs as much as two copies of the data. A [`Recycler`] remembers buffers it has
//! handed out, and hands out again those that nobody holds any more.
//!
//! ```
//! use bytes::BytesMut;
//! use sbp_buffers::Recycler;
//!
//! let mut recycler = Recycler::new(1 << 20);
//! let mut buffer = recycler.take(100_000).unwrap_or_else(|| BytesMut::with_capacity(100_000));
//! buffer.extend_from_slice(b"data");
//! let place = buffer.as_ptr();
//!
//! // The receiver of the bytes knows nothing of all this; it drops them when it has done with them.
//! let sent = recycler.freeze(buffer);
//! assert!(recycler.take(100_000).is_none());
//! drop(sent);
//! assert_eq!(recycler.take(100_000).map(|buffer| buffer.as_ptr()), Some(place));
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Buffers that were handed out, until somebody asks for one of their size again.
///
/// It holds on to no more than its bound, and forgets a buffer that has not been of use for as many others as it
/// remembers at most.
#[derive(Debug)]
pub struct Recycler {
    known: VecDeque<Known>,
    bytes: usize,
    most: usize,
    /// Buffers handed out so far.
    count: u64,
}

/// A buffer that somebody may still hold.
#[derive(Debug)]
struct Known {
    memory: Bytes,
    capacity: usize,
    /// The count when it was handed out.
    at: u64,
}

/// How many buffers are remembered.
const REMEMBERED: u64 = 64;
/// A buffer this many times as large as is asked for would be wasted on it.
const WASTE: usize = 8;

impl Recycler {
    /// A recycler that remembers buffers of `most` bytes together.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            known: VecDeque::new(),
            bytes: 0,
            most,
            count: 0,
        }
    }

    /// A buffer that takes `capacity` bytes without moving and is aligned as it was when it was handed out, if one is
    /// back. It is not empty: it begins with what it last held, so that it can be read into without being cleared first.
    pub fn take(&mut self, capacity: usize) -> Option<BytesMut> {
        // What was handed out last is most likely still in the processor's cache.
        for place in (0..self.known.len()).rev() {
            let fits = |known: &Known| {
                known.capacity >= capacity && known.capacity / WASTE <= capacity && known.memory.is_unique()
            };
            if !self.known.get(place).is_some_and(fits) {
                continue;
            }
            let Known { memory, capacity, .. } = self.known.remove(place)?;
            self.bytes -= capacity;
            if let Ok(buffer) = memory.try_into_mut() {
                return Some(buffer);
            }
        }
        None
    }

    /// Makes bytes of a buffer, and remembers it.
    pub fn freeze(&mut self, buffer: BytesMut) -> Bytes {
        let capacity = buffer.capacity();
        let memory = buffer.freeze();
        self.remember(&memory, capacity);
        memory
    }

    /// Remembers a buffer that is handed out, which takes `capacity` bytes from its first one on.
    pub fn remember(&mut self, memory: &Bytes, capacity: usize) {
        self.count += 1;
        self.known.push_back(Known {
            memory: memory.clone(),
            capacity,
            at: self.count,
        });
        self.bytes += capacity;
        while let Some(oldest) = self.known.front() {
            if self.bytes <= self.most && self.count - oldest.at < REMEMBERED {
                break;
            }
            self.bytes -= oldest.capacity;
            self.known.pop_front();
        }
    }

    /// Forgets all buffers.
    pub fn clear(&mut self) {
        self.known = VecDeque::new();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BytesMut};

    use super::{REMEMBERED, Recycler, WASTE};

    fn buffer(capacity: usize) -> BytesMut {
        let mut buffer = BytesMut::with_capacity(capacity);
        buffer.resize(capacity / 2, 7);
        buffer
    }

    #[test]
    fn a_buffer_is_back_when_the_last_part_of_it_is_dropped() {
        let mut recycler = Recycler::new(1 << 20);
        let whole = recycler.freeze(buffer(1_000));
        let place = whole.as_ptr();
        let part = whole.slice(10..20);
        drop(whole);
        assert!(recycler.take(1_000).is_none());
        assert_eq!(part[..], [7; 10]);
        drop(part);
        let again = recycler.take(1_000).unwrap();
        assert_eq!(again.as_ptr(), place);
        assert_eq!(again[..], [7; 500]);
        assert!(again.capacity() >= 1_000);
        assert!(recycler.take(1).is_none());
    }

    #[test]
    fn a_buffer_comes_back_at_the_place_where_it_began() {
        let mut recycler = Recycler::new(1 << 20);
        for _ in 0..3 {
            let mut aligned = recycler.take(900).unwrap_or_else(|| {
                let mut fresh = BytesMut::with_capacity(1_000);
                fresh.resize(64, 0);
                fresh.advance(64);
                fresh
            });
            aligned.clear();
            let place = aligned.as_ptr();
            aligned.resize(904, 1);
            let capacity = aligned.capacity();
            let payload = aligned.split_to(900).freeze();
            recycler.remember(&payload, capacity);
            assert_eq!(payload.as_ptr(), place);
            drop((payload, aligned));
            let again = recycler.take(900).unwrap();
            assert_eq!(again.as_ptr(), place);
            assert!(again.capacity() >= 904);
            let memory = recycler.freeze(again);
            drop(memory);
        }
    }

    #[test]
    fn small_wishes_do_not_get_large_buffers() {
        let mut recycler = Recycler::new(1 << 20);
        drop(recycler.freeze(buffer(8_000)));
        assert!(recycler.take(8_001).is_none());
        assert!(recycler.take(8_000 / WASTE - 1).is_none());
        assert!(recycler.take(8_000 / WASTE).is_some());
    }

    #[test]
    fn no_more_is_held_than_the_bound_says() {
        let mut recycler = Recycler::new(10_000);
        for _ in 0..5 {
            drop(recycler.freeze(buffer(3_000)));
        }
        assert_eq!((recycler.known.len(), recycler.bytes), (3, 9_000));
        drop(recycler.freeze(buffer(20_000)));
        assert_eq!((recycler.known.len(), recycler.bytes), (0, 0));
    }

    #[test]
    fn what_is_of_no_use_is_forgotten() {
        let mut recycler = Recycler::new(1 << 20);
        drop(recycler.freeze(buffer(100_000)));
        let kept = recycler.freeze(buffer(1_000));
        for _ in 0..REMEMBERED {
            let small = recycler.take(200).unwrap_or_else(|| buffer(200));
            drop(recycler.freeze(small));
        }
        assert!(recycler.take(100_000).is_none());
        assert_eq!(recycler.known.len(), 1);
        assert_eq!(kept.len(), 500);
        recycler.clear();
        assert!(recycler.take(200).is_none());
    }
}
