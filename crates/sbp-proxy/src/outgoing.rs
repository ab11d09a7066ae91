//! Bytes on their way out of the proxy.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How long an answer waits for others to overtake it.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Bytes,
}

/// An answer that others are to overtake.
#[derive(Debug)]
struct Aside {
    call_id: u32,
    /// Frames that have yet to overtake it.
    behind: u32,
    until: Instant,
    frame: Bytes,
}

/// Bytes that wait for their time or for room, in the order they leave; and answers set aside.
///
/// Whoever pushes keeps frames whole: [`Outgoing::begin_frame`] and [`Outgoing::end_frame`] stand around each, because an
/// answer that was set aside may only return between two of them.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    asides: Vec<Aside>,
    /// When the last chunk is due: nothing leaves before what came before it.
    last_due: Option<Instant>,
}

impl Outgoing {
    /// Appends bytes that may leave at `due`, and not before those in front of them.
    pub(crate) fn push(&mut self, bytes: Bytes, due: Instant) {
        if bytes.is_empty() {
            return;
        }
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk { due, bytes });
    }

    /// A frame of that call comes next: frames of one answer do not overtake each other.
    pub(crate) fn begin_frame(&mut self, call_id: u32, now: Instant) {
        self.put_back(now, |aside| aside.call_id == call_id);
    }

    /// A frame was appended, and has overtaken those that were set aside.
    pub(crate) fn end_frame(&mut self, now: Instant) {
        for aside in &mut self.asides {
            aside.behind = aside.behind.saturating_sub(1);
        }
        self.put_back(now, |aside| aside.behind == 0 || aside.until <= now);
    }

    /// Sets a frame aside until others have overtaken it.
    pub(crate) fn set_aside(&mut self, call_id: u32, behind: u32, frame: Bytes, now: Instant) {
        self.asides.push(Aside {
            call_id,
            behind,
            until: now + OVERTAKEN_WITHIN,
            frame,
        });
    }

    /// Appends the frames set aside that have waited long enough.
    pub(crate) fn put_back_overdue(&mut self, now: Instant) {
        self.put_back(now, |aside| aside.until <= now);
    }

    /// Appends all frames set aside.
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

    /// When an answer set aside has waited long enough.
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

    /// Forgets the first `count` bytes: they are written.
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

    /// Bytes that wait, without those set aside.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}
