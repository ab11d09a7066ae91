//! For tests of protocols: bytes that arrive in pieces of every size.

use std::fmt::Debug;
use std::io::IoSlice;
use std::time::Instant;

use bytes::BufMut;

use crate::{Endpoint, WriteQueue};

/// Inputs up to this length are cut at every position, longer ones at the first and last so many.
const CUT_EVERYWHERE: usize = 8 * 1024;

/// Plays `bytes` whole, cut in two at every position, and byte by byte; what comes of it must never differ. Returns it.
///
/// # Panics
/// When it differs.
#[allow(clippy::panic, reason = "that is how a test fails")]
pub fn every_split<T: PartialEq + Debug>(bytes: &[u8], mut play: impl FnMut(&[&[u8]]) -> T) -> T {
    let whole = play(&[bytes]);
    let length = bytes.len();
    for cut in 1..length {
        if cut > CUT_EVERYWHERE && length - cut > CUT_EVERYWHERE {
            continue;
        }
        let (head, tail) = bytes.split_at(cut);
        assert_eq!(play(&[head, tail]), whole, "cut at {cut}");
    }
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(play(&single), whole, "byte by byte");
    whole
}

/// Hands bytes to an endpoint as a driver would: in as many reads as its buffers take.
pub fn receive<E: Endpoint>(endpoint: &mut E, mut bytes: &[u8], now: Instant) {
    while !bytes.is_empty() && endpoint.wants_read() {
        let mut buffer = endpoint.recv_buffer();
        let (head, tail) = bytes.split_at(bytes.len().min(buffer.remaining_mut()));
        buffer.put_slice(head);
        endpoint.handle_received(head.len(), now);
        bytes = tail;
    }
}

/// Everything that an endpoint has to write, written.
pub fn transmitted<E: Endpoint>(endpoint: &mut E, now: Instant) -> Vec<u8> {
    let mut written = Vec::new();
    while endpoint.transmit_len() > 0 {
        let mut slices = [IoSlice::new(&[]); 4];
        let count = endpoint.transmit(&mut slices);
        let before = written.len();
        for slice in slices.iter().take(count) {
            written.extend_from_slice(slice);
        }
        let count = written.len() - before;
        endpoint.handle_written(count, now);
    }
    written
}

/// All events that there are.
pub fn events<E: Endpoint>(endpoint: &mut E) -> Vec<E::Event> {
    std::iter::from_fn(|| endpoint.poll_event()).collect()
}

/// Writes everything that a queue has, at most `step` bytes and `iovecs` slices at a time, as a socket takes them.
///
/// # Panics
/// When the queue has bytes and offers none, or offers an empty slice.
#[allow(clippy::panic, reason = "that is how a test fails")]
pub fn write_out(queue: &mut WriteQueue, step: usize, iovecs: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while !queue.is_empty() {
        let mut slices = vec![IoSlice::new(&[]); iovecs];
        let count = queue.slices(&mut slices);
        assert!(count > 0, "a queue with bytes offers a slice");
        let mut left = step;
        for slice in slices.iter().take(count) {
            assert!(!slice.is_empty(), "no slice is empty");
            let taken = slice.len().min(left);
            out.extend(slice.iter().take(taken));
            left -= taken;
        }
        queue.advance(step - left);
    }
    out
}
