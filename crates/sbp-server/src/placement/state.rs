//! The streams and ranges that exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use sbp_types::{RangeIndex, RangeKey, StreamId};

use super::records::{RangeRecord, StreamRecord};

/// One durable step of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A stream is as given from now on.
    PutStream(Arc<StreamRecord>),
    /// A range is as given from now on.
    PutRange(Arc<RangeRecord>),
    /// The next stream gets this id. Ids are never reused, so this never falls.
    NextStreamId(StreamId),
    /// The stream is gone; its id is remembered until no segment holds its records.
    BuryStream(StreamId),
}

/// All metadata of the placement driver, in memory.
///
/// Invariants: names are unique; each stream has at least one range; `next_stream_id` is above every id in use.
#[derive(Clone, Debug)]
pub(crate) struct PlacementState {
    next_stream_id: StreamId,
    streams: BTreeMap<StreamId, Arc<StreamRecord>>,
    names: HashMap<Arc<str>, StreamId>,
    ranges: BTreeMap<RangeKey, Arc<RangeRecord>>,
    buried: BTreeSet<StreamId>,
}

impl Default for PlacementState {
    fn default() -> Self {
        Self {
            next_stream_id: StreamId(1),
            streams: BTreeMap::new(),
            names: HashMap::new(),
            ranges: BTreeMap::new(),
            buried: BTreeSet::new(),
        }
    }
}

impl PlacementState {
    /// Makes a durable change visible.
    pub(crate) fn install(&mut self, change: Change) {
        match change {
            Change::PutStream(record) => {
                let old = self.streams.insert(record.id, Arc::clone(&record));
                if let Some(old_name) = old.and_then(|old| old.name.clone()) {
                    self.names.remove(&old_name);
                }
                if let Some(name) = &record.name {
                    self.names.insert(Arc::clone(name), record.id);
                }
            }
            Change::PutRange(record) => {
                self.ranges.insert(record.key, record);
            }
            Change::NextStreamId(next) => self.next_stream_id = self.next_stream_id.max(next),
            Change::BuryStream(stream) => {
                if let Some(old_name) = self.streams.remove(&stream).and_then(|old| old.name.clone()) {
                    self.names.remove(&old_name);
                }
                let keys: Vec<_> = self.ranges_of(stream).map(|range| range.key).collect();
                for key in keys {
                    self.ranges.remove(&key);
                }
                self.buried.insert(stream);
            }
        }
    }

    /// The id the next stream gets.
    pub(crate) fn next_stream_id(&self) -> StreamId {
        self.next_stream_id
    }

    /// How many streams exist.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The stream with this id.
    pub(crate) fn stream(&self, id: StreamId) -> Option<&Arc<StreamRecord>> {
        self.streams.get(&id)
    }

    /// The stream with this name.
    pub(crate) fn stream_named(&self, name: &str) -> Option<&Arc<StreamRecord>> {
        self.streams.get(self.names.get(name)?)
    }

    /// The streams with ids above `after`, by id.
    pub(crate) fn streams_after(&self, after: StreamId) -> impl Iterator<Item = &Arc<StreamRecord>> {
        self.streams
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(_, stream)| stream)
    }

    /// The range with this key.
    pub(crate) fn range(&self, key: RangeKey) -> Option<&Arc<RangeRecord>> {
        self.ranges.get(&key)
    }

    /// The ranges of a stream, by index.
    pub(crate) fn ranges_of(&self, stream: StreamId) -> impl DoubleEndedIterator<Item = &Arc<RangeRecord>> {
        let first = RangeKey {
            stream,
            range: RangeIndex(i32::MIN),
        };
        let last = RangeKey {
            stream,
            range: RangeIndex(i32::MAX),
        };
        self.ranges.range(first..=last).map(|(_, range)| range)
    }

    /// The stream's open range, or its last one when none is open.
    pub(crate) fn last_range(&self, stream: StreamId) -> Option<&Arc<RangeRecord>> {
        self.ranges_of(stream).next_back()
    }

    /// All ranges above `after`, by stream and index; all of them for `None`.
    pub(crate) fn ranges_after(&self, after: Option<RangeKey>) -> impl Iterator<Item = &Arc<RangeRecord>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ranges.range((from, Bound::Unbounded)).map(|(_, range)| range)
    }

    /// Whether the stream existed once and was deleted.
    pub(crate) fn is_buried(&self, stream: StreamId) -> bool {
        self.buried.contains(&stream)
    }
}
