//! Memory that batches are encoded into.
//!
//! A thread encodes one batch at a time. Small ones are copied on, so one buffer serves them all; large ones are handed
//! over as they are, and their buffers come back when the connection has sent them and the server has answered.

use std::cell::{Cell, RefCell};

use bytes::{Bytes, BytesMut};
use sbp_buffers::Recycler;

/// Batches up to this length are copied next to each other; longer ones travel by reference.
pub(crate) const COPY_UP_TO: usize = 16 * 1024;

/// What a thread keeps for large batches: as much as sixteen of a megabyte, which is a busy loop's, and room for more.
const KEPT: usize = 32 << 20;
/// Large buffers grow in these steps, so that batches that differ a little fit into each other's.
const STEP: usize = 64 * 1024;

thread_local! {
    static SMALL: Cell<BytesMut> = Cell::new(BytesMut::new());
    static LARGE: RefCell<Recycler> = const { RefCell::new(Recycler::new(KEPT)) };
}

/// An empty buffer for a batch of about `expected` bytes.
pub(crate) fn take(expected: usize) -> BytesMut {
    if expected <= COPY_UP_TO {
        return SMALL.take();
    }
    // Room for a head and for padding.
    let capacity = expected.saturating_add(1_024).next_multiple_of(STEP);
    let back = LARGE.with_borrow_mut(|large| large.take(capacity));
    back.map_or_else(
        || BytesMut::with_capacity(capacity),
        |mut buffer| {
            buffer.clear();
            buffer
        },
    )
}

/// Makes bytes of a large batch.
pub(crate) fn freeze(batch: BytesMut) -> Bytes {
    LARGE.with_borrow_mut(|large| large.freeze(batch))
}

/// Forgets the large buffers of this thread.
pub(crate) fn clear() {
    LARGE.with_borrow_mut(Recycler::clear);
}

/// Takes back the buffer of a batch that was copied, or came to nothing.
pub(crate) fn give_back(mut buffer: BytesMut) {
    if buffer.capacity() > STEP {
        drop(freeze(buffer));
    } else {
        buffer.clear();
        SMALL.set(buffer);
    }
}
