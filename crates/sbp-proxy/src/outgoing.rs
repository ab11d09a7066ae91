//! The bytes that a proxy has yet to send in one direction.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// The longest time that an answer is held back to be overtaken.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Bytes,
}

/// An answer that is held back until others have overtaken it.
#[derive(Debug)]
struct Aside {
    call_id: u32,
    /// How many frames have yet to overtake it.
    behind: u32,
    until: Instant,
    frame: Bytes,
}

/// Bytes that wait for their time or for the receiver, in order, and answers that are held back.
///
/// The caller marks the bounds of each frame with [`Outgoing::begin_frame`] and [`Outgoing::end_frame`], because an
/// answer that was held back may be inserted only between two frames.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    asides: Vec<Aside>,
    /// When the last chunk is due. Chunks never overtake each other.
    last_due: Option<Instant>,
}

impl Outgoing {
    /// Appends bytes that may leave at `due`, but not before earlier ones.
    pub(crate) fn push(&mut self, bytes: Bytes, due: Instant) {
        if bytes.is_empty() {
            return;
        }
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk { due, bytes });
    }

    /// Called before a frame of this call: inserts its held-back frames first, so that frames of one answer stay in
    /// order.
    pub(crate) fn begin_frame(&mut self, call_id: u32, now: Instant) {
        self.put_back(now, |aside| aside.call_id == call_id);
    }

    /// Called after a frame was appended, which has overtaken all answers held back.
    pub(crate) fn end_frame(&mut self, now: Instant) {
        for aside in &mut self.asides {
            aside.behind = aside.behind.saturating_sub(1);
        }
        self.put_back(now, |aside| aside.behind == 0 || aside.until <= now);
    }

    /// Holds a frame back until `behind` others have overtaken it.
    pub(crate) fn set_aside(&mut self, call_id: u32, behind: u32, frame: Bytes, now: Instant) {
        self.asides.push(Aside {
            call_id,
            behind,
            until: now + OVERTAKEN_WITHIN,
            frame,
        });
    }

    /// Inserts the frames that were held back for long enough.
    pub(crate) fn put_back_overdue(&mut self, now: Instant) {
        self.put_back(now, |aside| aside.until <= now);
    }

    /// Inserts all frames that are held back.
    pub(crate) fn put_back_all(&mut self, now: Instant) {
        self.put_back(now, |_| true);
    }

    fn put_back(&mut self, now: Instant, is_time: impl Fn(&Aside) -> bool) {
        let mut index = 0;
        while let Some(aside) = self.asides.get(index) {
            if is_time(aside) {
                let aside = self.asides.remove(index);
                self.push(aside.frame, now);
            } else {
                index += 1;
            }
        }
    }

    /// When the next answer has been held back for long enough.
    pub(crate) fn next_overdue(&self) -> Option<Instant> {
        self.asides.iter().map(|aside| aside.until).min()
    }

    /// When the first chunk is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.chunks.front().map(|chunk| chunk.due)
    }

    /// Fills `slices` with what is due and returns how many were set.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], now: Instant) -> usize {
        let due = self.chunks.iter().take_while(|chunk| chunk.due <= now);
        let mut count = 0;
        for (slot, chunk) in slices.iter_mut().zip(due) {
            *slot = IoSlice::new(&chunk.bytes);
            count += 1;
        }
        count
    }

    /// Removes the first `count` bytes, which were written.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        while let Some(front) = self.chunks.front_mut() {
            if count < front.bytes.len() {
                drop(front.bytes.split_to(count));
                return;
            }
            count -= front.bytes.len();
            self.chunks.pop_front();
        }
    }

    /// The number of bytes that wait, without frames held back.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}
