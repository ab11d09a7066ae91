//! The streams, ranges and servers that exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use sbp_types::{RangeIndex, RangeKey, ServerId, StreamId};

use super::on_servers::OnServers;
use super::records::{RangeRecord, ServerRecord, StreamRecord};

/// One change of a metadata record, made durable together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The stream's record is this one from now on.
    PutStream(Arc<StreamRecord>),
    /// The range's record is this one from now on.
    PutRange(Arc<RangeRecord>),
    /// The range was trimmed away. Its index is not used again.
    RemoveRange(RangeKey),
    /// The next stream gets this id. Ids are never reused, so this number never decreases.
    NextStreamId(StreamId),
    /// The stream is deleted. Its id is remembered until no restart can find its records.
    PutTombstone(StreamId),
    /// These servers have not said yet that they have nothing of the deleted stream any more. Placement drivers alone note
    /// that.
    BuriedOn(StreamId, BTreeSet<ServerId>),
    /// The deletion of the stream may be forgotten: no restart can find its records any more.
    DropTombstone(StreamId),
    /// The range server's record is this one from now on.
    PutServer(Arc<ServerRecord>),
    /// The next range server gets this id. This number never decreases.
    NextServerId(ServerId),
}

/// All metadata of the placement driver, in memory.
///
/// Invariants: names are unique; each stream has at least one range, its ranges tile its offsets, and at most the last
/// one is open; `next_stream_id` and `next_server_id` are above every id in use.
#[derive(Clone, Debug)]
pub(crate) struct PlacementState {
    next_stream_id: StreamId,
    next_server_id: ServerId,
    streams: BTreeMap<StreamId, Arc<StreamRecord>>,
    names: HashMap<Arc<str>, StreamId>,
    ranges: BTreeMap<RangeKey, Arc<RangeRecord>>,
    /// How many streams each name has made that exist; no count is 0.
    made_by: HashMap<Arc<str>, u32>,
    /// The deleted streams, with the servers that may still have something of them.
    tombstones: BTreeMap<StreamId, BTreeSet<ServerId>>,
    servers: BTreeMap<ServerId, Arc<ServerRecord>>,
    /// The open ranges that are on several servers, or whose streams are to have several replicas.
    shared: BTreeSet<RangeKey>,
    on_servers: OnServers,
}

/// No range comes before this one.
const FIRST_RANGE: RangeKey = RangeKey {
    stream: StreamId(i64::MIN),
    range: RangeIndex(i32::MIN),
};

impl Default for PlacementState {
    fn default() -> Self {
        Self {
            next_stream_id: StreamId(1),
            next_server_id: ServerId(1),
            streams: BTreeMap::new(),
            names: HashMap::new(),
            ranges: BTreeMap::new(),
            made_by: HashMap::new(),
            tombstones: BTreeMap::new(),
            servers: BTreeMap::new(),
            shared: BTreeSet::new(),
            on_servers: OnServers::default(),
        }
    }
}

impl PlacementState {
    /// Applies a change that is durable.
    pub(crate) fn install(&mut self, change: Change) {
        match change {
            Change::PutStream(record) => {
                let old = self.streams.insert(record.id, Arc::clone(&record));
                self.forget(old.as_deref());
                if let Some(owner) = &record.owner {
                    *self.made_by.entry(Arc::clone(owner)).or_default() += 1;
                }
                if let Some(name) = &record.name {
                    self.names.insert(Arc::clone(name), record.id);
                }
                if let Some(last) = self.last_range(record.id).map(|last| last.key) {
                    self.note_shared(last);
                }
                let replicas = record.settings.replica_count;
                if old.is_none_or(|old| old.settings.replica_count != replicas) {
                    let ranges: Vec<_> = self.ranges_of(record.id).cloned().collect();
                    ranges.iter().for_each(|range| self.on_servers.judge(range, replicas));
                }
            }
            Change::PutRange(record) => {
                self.uncount(record.key);
                let key = record.key;
                let replicas = self
                    .streams
                    .get(&key.stream)
                    .map(|stream| stream.settings.replica_count);
                self.on_servers.add(&record, replicas.unwrap_or(record.replica_count));
                self.ranges.insert(key, record);
                self.note_shared(key);
            }
            Change::RemoveRange(key) => {
                self.uncount(key);
                self.ranges.remove(&key);
                self.shared.remove(&key);
            }
            Change::NextStreamId(next) => self.next_stream_id = self.next_stream_id.max(next),
            Change::PutTombstone(stream) => {
                let old = self.streams.remove(&stream);
                self.forget(old.as_deref());
                let keys: Vec<_> = self.ranges_of(stream).map(|range| range.key).collect();
                for key in keys {
                    self.uncount(key);
                    self.ranges.remove(&key);
                    self.shared.remove(&key);
                }
                self.tombstones.entry(stream).or_default();
            }
            Change::BuriedOn(stream, servers) => {
                self.tombstones.insert(stream, servers);
            }
            Change::DropTombstone(stream) => {
                self.tombstones.remove(&stream);
            }
            Change::PutServer(record) => {
                self.servers.insert(record.id, record);
            }
            Change::NextServerId(next) => self.next_server_id = self.next_server_id.max(next),
        }
    }

    /// Removes the range, as it is stored now, from what is counted of ranges.
    fn uncount(&mut self, key: RangeKey) {
        let Some(range) = self.ranges.get(&key) else { return };
        self.on_servers.remove(range);
    }

    /// Notes whether the range is open and shared, or to be.
    fn note_shared(&mut self, key: RangeKey) {
        let to_be = |stream: &Arc<StreamRecord>| stream.settings.replica_count > 1;
        let is_shared = |range: &Arc<RangeRecord>| {
            let is_open = range.end_offset.is_none();
            is_open && (range.servers.len() > 1 || self.streams.get(&key.stream).is_some_and(to_be))
        };
        if self.ranges.get(&key).is_some_and(is_shared) {
            self.shared.insert(key);
        } else {
            self.shared.remove(&key);
        }
    }

    /// The open ranges that are on several servers, or whose streams are to have several replicas.
    pub(crate) fn shared_ranges(&self) -> impl Iterator<Item = &Arc<RangeRecord>> {
        self.shared.iter().filter_map(|key| self.ranges.get(key))
    }

    /// The sealed ranges of which several servers have copies and that may need another one: a server may lack some of them,
    /// they are on too few servers, or on one of `gone`.
    pub(crate) fn sealed_and_wanting(&self, gone: &[ServerId]) -> impl Iterator<Item = &Arc<RangeRecord>> {
        let keys = self.on_servers.sealed_and_wanting(gone);
        keys.filter_map(|key| self.ranges.get(&key))
    }

    /// How many sealed ranges are on a server, whole or not.
    pub(crate) fn sealed_ranges_on(&self, server: ServerId) -> usize {
        self.on_servers.on(server).map_or(0, |on| on.sealed.len())
    }

    /// How many of those the server may lack some of.
    pub(crate) fn incomplete_ranges_on(&self, server: ServerId) -> usize {
        self.on_servers.on(server).map_or(0, |on| on.incomplete)
    }

    /// The ranges of which a copy on this server counts: open ones, then sealed ones.
    pub(crate) fn ranges_on(&self, server: ServerId) -> impl Iterator<Item = &Arc<RangeRecord>> {
        let on = self.on_servers.on(server).into_iter();
        let keys = on.flat_map(|on| on.open.iter().chain(&on.sealed));
        keys.filter_map(|key| self.ranges.get(key))
    }

    /// The ranges that this server was let go of, and of which it has not said that it has nothing any more; those behind `after`
    /// first.
    pub(crate) fn let_go_on(
        &self,
        server: ServerId,
        after: Option<RangeKey>,
    ) -> impl Iterator<Item = &Arc<RangeRecord>> {
        let on = self.on_servers.on(server).into_iter();
        let keys = on.flat_map(move |on| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let to = after.map_or(Bound::Excluded(FIRST_RANGE), Bound::Included);
            on.let_go
                .range((from, Bound::Unbounded))
                .chain(on.let_go.range((Bound::Unbounded, to)))
        });
        keys.filter_map(|key| self.ranges.get(key))
    }

    /// The servers that were let go of some range and have not said that they have nothing of it any more.
    pub(crate) fn with_let_go(&self) -> impl Iterator<Item = ServerId> {
        self.on_servers.with_let_go()
    }

    /// The open ranges of which a copy is on this server.
    pub(crate) fn open_ranges_with(&self, server: ServerId) -> impl Iterator<Item = &Arc<RangeRecord>> {
        let on = self.on_servers.on(server).into_iter();
        let keys = on.flat_map(|on| &on.open);
        keys.filter_map(|key| self.ranges.get(key))
    }

    /// The id the next stream gets.
    pub(crate) fn next_stream_id(&self) -> StreamId {
        self.next_stream_id
    }

    /// The id the next range server gets.
    pub(crate) fn next_server_id(&self) -> ServerId {
        self.next_server_id
    }

    /// How many streams exist.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The stream with this id.
    pub(crate) fn stream(&self, id: StreamId) -> Option<&Arc<StreamRecord>> {
        self.streams.get(&id)
    }

    /// The name of the stream with this id, if there is one and it has a name.
    pub(crate) fn name_of(&self, id: StreamId) -> Option<&str> {
        self.stream(id)?.name.as_deref()
    }

    /// How many streams a name has made that exist.
    pub(crate) fn streams_made_by(&self, name: &str) -> u32 {
        self.made_by.get(name).copied().unwrap_or(0)
    }

    /// A stream's record is not in force any more: its name is free, and whoever made it has one less.
    fn forget(&mut self, old: Option<&StreamRecord>) {
        let Some(old) = old else { return };
        if let Some(name) = &old.name {
            self.names.remove(name);
        }
        if let Some(owner) = &old.owner
            && let Some(count) = self.made_by.get_mut(owner)
        {
            *count -= 1;
            if *count == 0 {
                self.made_by.remove(owner);
            }
        }
    }

    /// The stream with this name.
    pub(crate) fn stream_named(&self, name: &str) -> Option<&Arc<StreamRecord>> {
        self.streams.get(self.names.get(name)?)
    }

    /// All streams, by id.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Arc<StreamRecord>> {
        self.streams.values()
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

    /// Whether the stream existed once, was deleted, and may still have records on a disk.
    pub(crate) fn has_tombstone(&self, stream: StreamId) -> bool {
        self.tombstones.contains_key(&stream)
    }

    /// The deleted streams that may still have records on a disk.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = StreamId> {
        self.tombstones.keys().copied()
    }

    /// The servers that have not said yet that they have nothing of a deleted stream any more.
    pub(crate) fn buried_on(&self, stream: StreamId) -> impl Iterator<Item = ServerId> {
        self.tombstones.get(&stream).into_iter().flatten().copied()
    }

    /// The deleted streams of which a server may still have something.
    pub(crate) fn buried_in_the_name_of(&self, server: ServerId) -> impl Iterator<Item = StreamId> {
        let buried = self.tombstones.iter();
        let its = buried.filter(move |(_, servers)| servers.contains(&server));
        its.map(|(stream, _)| *stream)
    }

    /// The range server with this id, if it ever said where it is.
    pub(crate) fn server(&self, id: ServerId) -> Option<&Arc<ServerRecord>> {
        self.servers.get(&id)
    }

    /// Every range server that ever said where it is.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<ServerRecord>> {
        self.servers.values()
    }

    /// How many open ranges send their appends to this server.
    pub(crate) fn open_ranges_on(&self, server: ServerId) -> usize {
        self.on_servers.on(server).map_or(0, |on| on.primary)
    }

    /// How many open ranges this server follows another one in.
    pub(crate) fn followed_ranges_on(&self, server: ServerId) -> usize {
        self.on_servers
            .on(server)
            .map_or(0, |on| on.open.len().saturating_sub(on.primary))
    }

    /// The servers that are to be emptied.
    pub(crate) fn draining(&self) -> impl Iterator<Item = ServerId> {
        let draining = self.servers.values().filter(|server| server.draining);
        draining.map(|server| server.id)
    }

    /// Whether a server is to be emptied.
    pub(crate) fn is_draining(&self, server: ServerId) -> bool {
        self.servers.get(&server).is_some_and(|server| server.draining)
    }

    /// How many open ranges whose appends this server takes are on fewer servers than their stream is to have replicas.
    pub(crate) fn ranges_lacking_replicas_on(&self, server: ServerId) -> usize {
        self.on_servers.on(server).map_or(0, |on| on.lacking)
    }
}
