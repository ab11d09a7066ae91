//! Bytes of segments for the next reads of a connection.
//!
//! Who reads a segment through asks again and again for what follows. What an answer has left of the batches that were fetched for it
//! waits here for the next read, and so does what is fetched in advance while the client has the answer. So a batch is fetched once
//! and made bytes once. All of it belongs to one connection, and ends with it.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use sbp_client::Positions;
use sbp_locks::Mutex;
use sbp_types::{Offset, StreamId};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Bytes that are kept for a connection, and with one batch more than these if that alone is larger.
const BYTES: usize = 16 << 20;
/// Places at which reads may go on.
const PLACES: usize = 64;
/// A place that so many others were used after is not read on: what is fetched for others takes its room.
const FORGOTTEN: u64 = 4 * PLACES as u64;

/// Bytes of a segment that follow one another, and where they are in its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Where in the segment they begin.
    pub(super) at: i64,
    pub(super) bytes: Bytes,
    /// Bytes of the memory in which they lie.
    pub(super) memory: usize,
    /// The first record of the batches that they were made of; without bytes, as `next`.
    pub(super) base: Offset,
    /// The record behind the last one of them.
    pub(super) next: Offset,
}

impl Chunk {
    /// Nothing, at the end of a segment whose stream ends here.
    pub(super) fn at_end(at: i64, latest: Offset) -> Self {
        Self {
            at,
            bytes: Bytes::new(),
            memory: 0,
            base: latest,
            next: latest,
        }
    }

    /// Whether a stream that holds this has all of its records, and none less than when it was read.
    pub(super) fn is_kept(&self, held: &Positions) -> bool {
        held.earliest <= self.base && self.next <= held.latest
    }

    /// Takes the first bytes, so many if there are as many.
    pub(super) fn split(&mut self, most: usize) -> Bytes {
        let taken = self.bytes.split_to(most.min(self.bytes.len()));
        self.at = self.at.saturating_add(i64::try_from(taken.len()).unwrap_or(i64::MAX));
        if self.bytes.is_empty() {
            // Nothing holds on to the memory any more.
            (self.bytes, self.memory, self.base) = (Bytes::new(), 0, self.next);
        }
        taken
    }
}

/// Where reads of a connection may go on, and what they will find there.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// The one that was used least lately first.
    all: Vec<Place>,
    bytes: usize,
    used: u64,
}

#[derive(Debug)]
struct Place {
    stream: StreamId,
    at: i64,
    /// Bytes of memory that it has, or is going to have.
    bytes: usize,
    /// How many had been used when it was.
    used: u64,
    /// Locked while it is being fetched.
    chunk: Arc<AsyncMutex<Option<Chunk>>>,
}

impl Ahead {
    /// What is kept for a read of a segment at an offset: waits for it while it is being fetched.
    pub(super) async fn take(&self, stream: StreamId, at: i64) -> Option<Chunk> {
        let place = self.0.lock().remove(|place| place.stream == stream && place.at == at)?;
        place.chunk.lock().await.take()
    }

    /// Keeps what a read at its beginning will want.
    pub(super) fn keep(&self, stream: StreamId, chunk: Chunk) {
        let (at, bytes) = (chunk.at, chunk.memory);
        let mut places = self.0.lock();
        places.remove(|place| place.stream == stream && place.at == at);
        places.add(stream, at, bytes, Arc::new(AsyncMutex::new(Some(chunk))));
        while places.all.len() > 1 && (places.all.len() > PLACES || places.bytes > BYTES) {
            places.remove(|_| true);
        }
    }

    /// That a read at an offset will find about so many bytes, which are being fetched. `None`: there is no room for them.
    pub(super) fn announce(self: &Arc<Self>, stream: StreamId, at: i64, bytes: usize) -> Option<Coming> {
        let mut places = self.0.lock();
        while places.all.len() >= PLACES || places.bytes.saturating_add(bytes) > BYTES {
            let used = places.used;
            places.remove(|place| used - place.used >= FORGOTTEN)?;
        }
        let chunk = Arc::new(AsyncMutex::new(None));
        let fetched = Arc::clone(&chunk).try_lock_owned().ok()?;
        places.remove(|place| place.stream == stream && place.at == at);
        places.add(stream, at, bytes, Arc::clone(&chunk));
        Some(Coming {
            ahead: Arc::clone(self),
            chunk,
            fetched,
        })
    }

    /// Bytes that are kept.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Places {
    /// Removes the first that is one, in the order of their use.
    fn remove(&mut self, is_one: impl FnMut(&Place) -> bool) -> Option<Place> {
        let place = self.all.iter().position(is_one)?;
        let removed = self.all.remove(place);
        self.bytes = self.bytes.saturating_sub(removed.bytes);
        Some(removed)
    }

    fn add(&mut self, stream: StreamId, at: i64, bytes: usize, chunk: Arc<AsyncMutex<Option<Chunk>>>) {
        self.used += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.all.push(Place {
            stream,
            at,
            bytes,
            used: self.used,
            chunk,
        });
    }
}

/// Something that is being fetched for a read that will come. Dropped before it is here, there is nothing at that place.
#[derive(Debug)]
pub(super) struct Coming {
    ahead: Arc<Ahead>,
    chunk: Arc<AsyncMutex<Option<Chunk>>>,
    fetched: OwnedMutexGuard<Option<Chunk>>,
}

impl Coming {
    /// It is here.
    pub(super) fn arrived(mut self, chunk: Chunk) {
        let mut places = self.ahead.0.lock();
        let mut bytes = chunk.memory;
        if let Some(place) = places
            .all
            .iter_mut()
            .find(|place| Arc::ptr_eq(&place.chunk, &self.chunk))
        {
            mem::swap(&mut place.bytes, &mut bytes);
            places.bytes = places.bytes.saturating_add(chunk.memory).saturating_sub(bytes);
        }
        drop(places);
        *self.fetched = Some(chunk);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.fetched.is_none() {
            let mut places = self.ahead.0.lock();
            places.remove(|place| Arc::ptr_eq(&place.chunk, &self.chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const STREAM: StreamId = StreamId(7);

    fn chunk(at: i64, bytes: usize) -> Chunk {
        Chunk {
            at,
            bytes: Bytes::from(vec![1; bytes]),
            memory: bytes,
            base: Offset(0),
            next: Offset(1),
        }
    }

    #[test]
    fn bytes_are_taken_from_the_front_and_the_memory_is_free_with_the_last() {
        let mut chunk = chunk(10, 30);
        chunk.base = Offset(-1);
        assert_eq!(chunk.split(20).len(), 20);
        assert_eq!(
            (chunk.at, chunk.bytes.len(), chunk.memory, chunk.base),
            (30, 10, 30, Offset(-1))
        );
        assert_eq!(chunk.split(20).len(), 10);
        assert_eq!(chunk, Chunk::at_end(40, Offset(1)));
        assert_eq!(chunk.split(20).len(), 0);
    }

    #[tokio::test]
    async fn what_is_kept_is_taken_once_by_a_read_at_its_beginning() {
        let ahead = Arc::new(Ahead::default());
        ahead.keep(STREAM, chunk(5, 10));
        assert_eq!(ahead.take(STREAM, 6).await, None);
        assert_eq!(ahead.take(StreamId(8), 5).await, None);
        // The same place again takes the place of what was there.
        ahead.keep(STREAM, chunk(5, 12));
        assert_eq!(ahead.held_bytes(), 12);
        assert_eq!(ahead.take(STREAM, 5).await, Some(chunk(5, 12)));
        assert_eq!(ahead.held_bytes(), 0);
        assert_eq!(ahead.take(STREAM, 5).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_what_is_on_its_way_to_it() {
        let ahead = Arc::new(Ahead::default());
        let coming = ahead.announce(STREAM, 5, 100).expect("there is room");
        assert_eq!(ahead.held_bytes(), 100);
        let mut taking = Box::pin(ahead.take(STREAM, 5));
        assert!(timeout(Duration::from_secs(1), &mut taking).await.is_err());
        coming.arrived(chunk(5, 40));
        assert_eq!(taking.await, Some(chunk(5, 40)));
        assert_eq!(ahead.held_bytes(), 0);
        // What is here before it is wanted is counted as what it is.
        ahead
            .announce(STREAM, 5, 100)
            .expect("there is room")
            .arrived(chunk(5, 40));
        assert_eq!(ahead.held_bytes(), 40);
        assert_eq!(ahead.take(STREAM, 5).await, Some(chunk(5, 40)));
        // What does not come is not waited for, and takes no room.
        let coming = ahead.announce(STREAM, 5, 100).expect("there is room");
        let mut taking = Box::pin(ahead.take(STREAM, 5));
        assert!(timeout(Duration::from_secs(1), &mut taking).await.is_err());
        drop(coming);
        assert_eq!(taking.await, None);
        drop(ahead.announce(STREAM, 5, 100).expect("there is room"));
        assert_eq!(ahead.held_bytes(), 0);
        assert_eq!(ahead.take(STREAM, 5).await, None);
    }

    #[tokio::test]
    async fn no_more_is_kept_than_there_is_room_for() {
        let ahead = Arc::new(Ahead::default());
        for number in 0..100 {
            ahead.keep(StreamId(number), chunk(0, 1 << 20));
            assert!(ahead.held_bytes() <= BYTES);
        }
        assert_eq!(ahead.held_bytes(), BYTES);
        assert!(ahead.announce(STREAM, 0, 1).is_none());
        assert_eq!(ahead.take(StreamId(83), 0).await, None, "the oldest are gone");
        assert_eq!(ahead.take(StreamId(99), 0).await, Some(chunk(0, 1 << 20)));
        // One that is larger than all there may be is kept alone.
        ahead.keep(STREAM, chunk(0, BYTES + 1));
        assert_eq!(ahead.held_bytes(), BYTES + 1);
        ahead.keep(STREAM, chunk(1, 1));
        assert_eq!(ahead.held_bytes(), 1);
        for number in 0..1_000 {
            ahead.keep(STREAM, chunk(number, 0));
        }
        assert_eq!(ahead.0.lock().all.len(), PLACES);
    }

    #[test]
    fn places_that_nobody_reads_on_make_room() {
        let ahead = Arc::new(Ahead::default());
        ahead.keep(STREAM, chunk(0, BYTES));
        for number in 1..FORGOTTEN {
            assert!(ahead.announce(STREAM, 1, 1).is_none(), "{number}");
            ahead.keep(StreamId(8), chunk(1, 0));
        }
        assert!(ahead.announce(STREAM, 1, 1).is_none());
        ahead.keep(StreamId(8), chunk(1, 0));
        assert!(ahead.announce(STREAM, 1, 1).is_some());
    }
}
