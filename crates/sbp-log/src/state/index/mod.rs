//! The index: the positions of all batches, by range and segment.
//!
//! It has only what readers may see. It is changed once per group, after the sync, under one lock together with the hot
//! tail.

mod range;

use std::collections::HashMap;

use sbp_types::{Offset, Position, RangeKey};

use crate::key_hash::BuildKeyHasher;
pub(crate) use range::{Entries, RangeState, Resident, Run};

pub(crate) use crate::format::checkpoint::MarkPlace;

use crate::format::record::RecordHead;

/// A map from ranges.
pub(crate) type KeyMap<V> = HashMap<RangeKey, V, BuildKeyHasher>;

/// All ranges of which the log has records or remembers the end.
#[derive(Debug, Default)]
pub(crate) struct Index {
    ranges: KeyMap<RangeState>,
    /// Whether damage may hide the only records of ranges that are not listed.
    pub(crate) unlisted_damage: bool,
}

/// A record that is in the index now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    /// Whether it may be the range's first in the segment.
    pub(crate) is_first: bool,
    /// The place behind it.
    pub(crate) end: Position,
}

/// A record that does not continue its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) key: RangeKey,
    pub(crate) expected: Offset,
    pub(crate) offset: Offset,
}

impl Index {
    pub(crate) fn get(&self, key: RangeKey) -> Option<&RangeState> {
        self.ranges.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: RangeKey) -> Option<&mut RangeState> {
        self.ranges.get_mut(&key)
    }

    pub(crate) fn get_or_insert(&mut self, key: RangeKey) -> &mut RangeState {
        self.ranges.entry(key).or_default()
    }

    pub(crate) fn remove(&mut self, key: RangeKey) {
        self.ranges.remove(&key);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RangeKey, &RangeState)> {
        self.ranges.iter().map(|(key, state)| (*key, state))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (RangeKey, &mut RangeState)> {
        self.ranges.iter_mut().map(|(key, state)| (*key, state))
    }

    /// The keys of ranges that fulfil a condition, ordered.
    pub(crate) fn keys_where(&self, mut keep: impl FnMut(&RangeState) -> bool) -> Vec<RangeKey> {
        let mut keys: Vec<_> = self
            .ranges
            .iter()
            .filter(|(_, state)| keep(state))
            .map(|(key, _)| *key)
            .collect();
        keys.sort_unstable();
        keys
    }

    /// Adds a record, in the order of the log. A gap before it is marked as damage, because an undamaged log has none. What
    /// lies behind the range's end is left out: `None`.
    pub(crate) fn add(&mut self, record: &RecordHead, segment: u64, position: u32) -> Result<Option<Added>, Overlap> {
        let head = &record.head;
        let state = self.ranges.entry(head.key).or_default();
        state.check_order(head.key, head.base_offset)?;
        if state.ends_before(head) {
            return Ok(None);
        }
        state.shared |= head.shared;
        let is_first = match head.is_mark() {
            true => state.add_mark(record, segment, position),
            false => state.add(record, segment, position),
        };
        let end = state.end_position();
        Ok(Some(Added { is_first, end }))
    }
}
