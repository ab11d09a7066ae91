//! How much is kept in memory for followers, over all ranges.

use std::collections::VecDeque;

use sbp_types::RangeKey;

/// Bytes that all ranges together keep for followers. What is dropped is read from the log when it is needed.
const MOST_BYTES: usize = 64 << 20;

/// What an entry takes beside its bytes.
pub(super) const ENTRY_BYTES: usize = 512;

/// So many places of entries that are gone are remembered at least before they are looked for.
const FEW: usize = 4_096;

/// What one range keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::range) struct KeptOf {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

/// The entries that all ranges keep for followers, the oldest first: a follower that is away must not take the room of those
/// that are there.
#[derive(Debug)]
pub(in crate::range) struct Kept {
    entries: usize,
    bytes: usize,
    most_bytes: usize,
    next: u64,
    /// The number of each entry, and its range. Those of entries that are gone may be here too.
    order: VecDeque<(u64, RangeKey)>,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            entries: 0,
            bytes: 0,
            most_bytes: MOST_BYTES,
            next: 0,
            order: VecDeque::new(),
        }
    }
}

impl Kept {
    /// Another bound.
    #[cfg(test)]
    pub(in crate::range) fn with_most_bytes(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            ..Self::default()
        }
    }

    /// The number of an entry that a range keeps from now on.
    pub(in crate::range) fn number(&mut self, key: RangeKey) -> u64 {
        self.next += 1;
        self.order.push_back((self.next, key));
        self.next
    }

    /// A range that kept so much keeps so much now.
    pub(in crate::range) fn changed(&mut self, from: KeptOf, to: KeptOf) {
        self.entries = (self.entries + to.entries).saturating_sub(from.entries);
        self.bytes = (self.bytes + to.bytes).saturating_sub(from.bytes);
    }

    /// The oldest entry, if more is kept than may be.
    pub(in crate::range) fn oldest(&mut self) -> Option<(u64, RangeKey)> {
        if self.is_full() { self.order.pop_front() } else { None }
    }

    /// Whether more is kept than may be.
    pub(in crate::range) fn is_full(&self) -> bool {
        self.bytes > self.most_bytes
    }

    /// Forgets the places of entries that are gone, once there are many of them.
    pub(in crate::range) fn tidy(&mut self, is_kept: impl Fn(u64, RangeKey) -> bool) {
        if self.order.len() > 2 * self.entries + FEW {
            self.order.retain(|(number, key)| is_kept(*number, *key));
        }
    }

    #[cfg(test)]
    pub(in crate::range) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use sbp_types::{RangeIndex, StreamId};

    use super::*;

    #[test]
    fn places_of_what_is_gone_are_forgotten() {
        let key = RangeKey {
            stream: StreamId(1),
            range: RangeIndex(0),
        };
        let mut kept = Kept::default();
        for _ in 0..100_000 {
            let number = kept.number(key);
            kept.tidy(|other, _| other == number);
            assert!(kept.order.len() <= FEW + 1);
        }
    }
}
