//! Received memory that callers keep: counted by frame, and bounded.
//!
//! A batch is a slice of the frame it came in, so who keeps a batch keeps the frame. That is what makes large data free
//! of copies, and what would let a few bytes hold megabytes. So small batches are copied out, and beyond a bound all are:
//! a reader never has to wait for its consumer to let go of something, which a consumer that collects would never do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sbp_frame::aligned_buffer;

/// Frames below this lie in a block that is read for many frames at once, and would keep the whole of it.
const OWN_MEMORY: usize = 64 * 1024;
/// Copying as much costs no more than a view of it.
const SMALL: usize = 16 * 1024;

/// The frames that callers keep, of one client.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    most: u64,
    bytes: AtomicU64,
    copied: AtomicU64,
}

impl PinnedMemory {
    /// Keeps frames of up to `most` bytes together.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: widen(most),
            bytes: AtomicU64::new(0),
            copied: AtomicU64::new(0),
        })
    }

    /// Bytes of frames of which something is kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were copied out instead.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Room for `length` bytes more, unless that would be too many.
    fn take(&self, length: u64) -> bool {
        let more = |now: u64| Some(now + length).filter(|&sum| sum <= self.most);
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Whether what is kept has come near the bound, so that a part of a frame is not worth the whole.
    fn is_crowded(&self) -> bool {
        self.bytes() > self.most / 2
    }

    /// A batch's bytes, to keep: a view of the frame it came in, or a copy.
    pub(crate) fn keep(self: &Arc<Self>, bytes: Bytes, frame: &Arc<FrameMemory>) -> Bytes {
        if self.is_worth_a_view(bytes.len(), frame) && frame.is_counted_by(self) {
            return Bytes::from_owner(Pinned {
                bytes,
                _frame: Arc::clone(frame),
            });
        }
        self.copied.fetch_add(widen(bytes.len()), Ordering::Relaxed);
        let mut copy = aligned_buffer(bytes.len());
        copy.extend_from_slice(&bytes);
        copy.freeze()
    }

    fn is_worth_a_view(&self, length: usize, frame: &FrameMemory) -> bool {
        if frame.length < OWN_MEMORY || length <= SMALL {
            return false;
        }
        let is_part = length < frame.length / 4;
        !(is_part && self.is_crowded()) || frame.counted.get().is_some()
    }
}

/// The payload of one frame, as all batches know it that lie in it.
#[derive(Debug)]
pub(crate) struct FrameMemory {
    length: usize,
    /// Set when the first of them is kept.
    counted: OnceLock<Arc<PinnedMemory>>,
}

impl FrameMemory {
    /// The memory of a frame that has just been received.
    pub(crate) fn new(payload: &Bytes) -> Arc<Self> {
        Arc::new(Self {
            length: payload.len(),
            counted: OnceLock::new(),
        })
    }

    /// Whether the account counts this frame, from now on if there is room.
    fn is_counted_by(&self, account: &Arc<PinnedMemory>) -> bool {
        if self.counted.get().is_some() {
            return true;
        }
        let length = widen(self.length);
        if !account.take(length) {
            return false;
        }
        if self.counted.set(Arc::clone(account)).is_err() {
            // Another thread was faster.
            account.bytes.fetch_sub(length, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        if let Some(account) = self.counted.get() {
            account.bytes.fetch_sub(widen(self.length), Ordering::Relaxed);
        }
    }
}

/// A view that is kept; the frame counts as long as one exists.
struct Pinned {
    bytes: Bytes,
    _frame: Arc<FrameMemory>,
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn widen(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{FrameMemory, PinnedMemory};

    const KIB: usize = 1024;

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![7; length])
    }

    fn is_view(view: &Bytes, frame: &Bytes) -> bool {
        frame.as_ptr_range().contains(&view.as_ptr())
    }

    #[test]
    fn a_frame_counts_once_and_until_its_last_view_is_gone() {
        let account = PinnedMemory::new(10 * KIB * KIB);
        let payload = frame(1024 * KIB);
        let memory = FrameMemory::new(&payload);
        let one = account.keep(payload.slice(..100 * KIB), &memory);
        let two = account.keep(payload.slice(100 * KIB..), &memory);
        assert!(is_view(&one, &payload) && is_view(&two, &payload));
        drop(memory);
        assert_eq!((account.bytes(), account.copied()), (1024 * 1024, 0));
        let part = one.slice(5..10);
        drop((one, two));
        assert_eq!(account.bytes(), 1024 * 1024, "a slice of a view keeps the frame");
        drop(part);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn what_is_small_is_copied_out() {
        let account = PinnedMemory::new(10 * KIB * KIB);
        let large = frame(1024 * KIB);
        let memory = FrameMemory::new(&large);
        let record = account.keep(large.slice(3..16 * KIB), &memory);
        assert!(!is_view(&record, &large));
        assert_eq!(record, large.slice(3..16 * KIB));
        // A frame this small lies in a block of others.
        let small = frame(40 * KIB);
        let batch = account.keep(small.clone(), &FrameMemory::new(&small));
        assert!(!is_view(&batch, &small));
        assert_eq!((account.bytes(), account.copied()), (0, (56 * KIB - 3) as u64));
    }

    #[test]
    fn what_is_copied_lies_aligned_for_columns() {
        let account = PinnedMemory::new(0);
        let payload = frame(100 * KIB);
        let copy = account.keep(payload.slice(5..), &FrameMemory::new(&payload));
        assert_eq!(copy.as_ptr().align_offset(16), 0);
    }

    #[test]
    fn beyond_the_bound_everything_is_copied_until_something_is_let_go() {
        let account = PinnedMemory::new(2_000 * KIB);
        let payloads: Vec<Bytes> = (0..3).map(|_| frame(1_000 * KIB)).collect();
        let keep = |payload: &Bytes| account.keep(payload.clone(), &FrameMemory::new(payload));
        let mut kept: Vec<Bytes> = payloads.iter().map(keep).collect();
        let views: Vec<bool> = kept
            .iter()
            .zip(&payloads)
            .map(|(view, frame)| is_view(view, frame))
            .collect();
        assert_eq!(views, [true, true, false]);
        assert_eq!(account.bytes(), (2_000 * KIB) as u64);
        kept.remove(0);
        assert_eq!(account.bytes(), (1_000 * KIB) as u64);
        assert!(is_view(&keep(&payloads[2]), &payloads[2]));
    }

    #[test]
    fn near_the_bound_a_part_of_a_frame_is_not_worth_the_whole() {
        let account = PinnedMemory::new(2_000 * KIB);
        let (first, second) = (frame(1_001 * KIB), frame(900 * KIB));
        let whole = account.keep(first.clone(), &FrameMemory::new(&first));
        assert!(is_view(&whole, &first));
        let memory = FrameMemory::new(&second);
        let part = account.keep(second.slice(..200 * KIB), &memory);
        assert!(!is_view(&part, &second));
        let most = account.keep(second.slice(..500 * KIB), &memory);
        assert!(is_view(&most, &second));
        let part = account.keep(second.slice(..200 * KIB), &memory);
        assert!(is_view(&part, &second), "the frame is kept anyway");
    }
}
