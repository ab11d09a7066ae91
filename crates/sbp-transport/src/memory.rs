//! What all connections of a server hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A connection may always hold this much.
const LEAST_PART: u64 = 16 * 1024;

/// Memory that connections share: requests in progress, answers that nobody has taken yet.
///
/// Each connection tells what it holds after each of its turns. While all of them together hold more than they may,
/// those with more than their part begin no requests; those with little, who are most, notice nothing.
#[derive(Debug)]
pub struct Memory {
    most: u64,
    held: AtomicU64,
    connections: AtomicU64,
}

/// What a connection may do, as far as memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Everything.
    Plenty,
    /// Finish what was begun.
    Tight,
    /// Not even that: what comes in would go on to grow.
    None,
}

impl Memory {
    /// Memory for `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        })
    }

    /// Bytes held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn join(self: &Arc<Self>) -> Share {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Share {
            memory: Arc::clone(self),
            held: 0,
        }
    }
}

/// One connection's part.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    held: u64,
}

impl Share {
    /// The connection holds so much now.
    pub(crate) fn note(&mut self, held: usize) -> Room {
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        if held > self.held {
            self.memory.held.fetch_add(held - self.held, Ordering::Relaxed);
        } else if held < self.held {
            self.memory.held.fetch_sub(self.held - held, Ordering::Relaxed);
        }
        self.held = held;
        let connections = self.memory.connections.load(Ordering::Relaxed);
        room(self.memory.most, self.memory.held(), connections, held)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.held, Ordering::Relaxed);
        self.memory.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection may do that holds `own` bytes, when all `connections` hold `held` of `most`. Each part is such that
/// all parts together are half of it.
fn room(most: u64, held: u64, connections: u64, own: u64) -> Room {
    let part = (most / 2 / connections.max(1)).max(LEAST_PART);
    if held <= most || own <= part {
        Room::Plenty
    } else if held - most <= most / 4 {
        Room::Tight
    } else {
        Room::None
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Room, room};

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_those_with_more_than_their_part_are_held_up() {
        // Held by all, how many they are, held by one.
        let table = [
            (0, 1, 0, Room::Plenty),
            (100, 1, 100, Room::Plenty),
            (101, 1, 101, Room::Tight),
            (125, 1, 125, Room::Tight),
            (126, 1, 126, Room::None),
            (126, 2, 25, Room::Plenty),
            (126, 2, 26, Room::None),
            (110, 10, 5, Room::Plenty),
            (110, 10, 6, Room::Tight),
        ];
        for (held, connections, own, expected) in table {
            let found = room(100 * MIB, held * MIB, connections, own * MIB);
            assert_eq!(found, expected, "{own} of {held} MiB, {connections} connections");
        }
    }

    #[test]
    fn a_connection_may_always_hold_a_little() {
        assert_eq!(room(MIB, 100 * MIB, 10_000, 16 << 10), Room::Plenty);
        assert_eq!(room(MIB, 100 * MIB, 10_000, (16 << 10) + 1), Room::None);
        assert_eq!(room(0, 0, 0, 0), Room::Plenty);
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let memory = Memory::new(MIB);
        let (mut one, mut other) = (memory.join(), memory.join());
        assert_eq!(one.note(600 << 10), Room::Plenty);
        assert_eq!(other.note(500 << 10), Room::Tight);
        assert_eq!(one.note(100 << 10), Room::Plenty);
        assert_eq!(memory.held(), 600 << 10);
        drop(other);
        assert_eq!(memory.held(), 100 << 10);
        drop(one);
        assert_eq!(memory.held(), 0);
    }
}
