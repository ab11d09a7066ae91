//! The ranges held by a range server in a process of its own, and how news from its placement driver change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sbp_replication::{HighestTerm, Term};
use sbp_types::{Offset, RangeIndex, RangeKey, StreamId};

use crate::meta::MetadataChange;
use crate::placement::{Change, PlacementState, StreamRecord};
use crate::range::{CopyRecord, HeldRange};
use crate::refusal::Refusal;

/// The ranges held here and their streams, as they are durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedRanges {
    /// The placement driver's records of streams with ranges here, and the tombstones of deleted ones.
    pub(crate) streams: PlacementState,
    pub(crate) ranges: BTreeMap<RangeKey, HeldRange>,
    /// The ranges that the server was let go of, and of which it may still have something. None of them is held.
    pub(crate) let_go: BTreeSet<RangeKey>,
    /// Which time the present one is that each range is held, counted over all ranges since the start.
    times: BTreeMap<RangeKey, u64>,
    last_time: u64,
    /// The latest description of each stream that the placement driver has told since the start, durable here or not.
    described: BTreeMap<StreamId, Described>,
    /// The highest range with which each stream was told to begin since the start.
    begun_at: BTreeMap<StreamId, RangeIndex>,
    /// The highest term of a placement driver that was followed.
    pub(crate) followed: HighestTerm,
}

#[derive(Clone, Debug)]
struct Described {
    question: u64,
    stream: Arc<StreamRecord>,
}

/// What the placement driver has told about one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// The stream; `None` if only ranges were told.
    pub(crate) stream: Option<Arc<StreamRecord>>,
    /// The number of the question that `stream` answers. Of two answers about a stream, that to the question asked later
    /// counts: the placement driver orders a look at a stream after each change of it.
    pub(crate) question: u64,
    /// The ranges that belong on this server.
    pub(crate) ranges: Vec<HeldRange>,
    /// The stream's first remaining range, on whatever server, and its first offset.
    pub(crate) first: Option<(RangeIndex, Offset)>,
    /// The term of the placement driver that told it; of several the lowest. 0: not told.
    pub(crate) term: Term,
}

impl Update {
    /// Adds what the placement driver has said unasked about one range: a range to hold, or a raised start.
    pub(crate) fn tell(&mut self, told: HeldRange) -> Result<(), Refusal> {
        let Some(range) = self.ranges.iter_mut().find(|range| range.key == told.key) else {
            self.ranges.push(told);
            return Ok(());
        };
        if told.epoch < range.epoch {
            return Err(Refusal::other_epoch(told.key, range.epoch, told.epoch));
        }
        range.epoch = told.epoch;
        range.copy.opened = opened(range, &told);
        range.start = range.start.max(told.start);
        if range.end.is_none() {
            range.end = told.end;
            range.copy.end_marks = told.copy.end_marks;
        }
        if let Some((first, start)) = &mut self.first
            && *first == told.key.range
        {
            *start = told.start.max(*start);
        }
        Ok(())
    }
}

impl HostedRanges {
    /// The ranges and streams found when the server started.
    pub(crate) fn new(
        streams: PlacementState,
        ranges: Vec<HeldRange>,
        let_go: BTreeSet<RangeKey>,
        followed: Term,
    ) -> Self {
        Self {
            streams,
            ranges: ranges.into_iter().map(|held| (held.key, held)).collect(),
            let_go,
            times: BTreeMap::new(),
            last_time: 0,
            described: BTreeMap::new(),
            begun_at: BTreeMap::new(),
            followed: HighestTerm::new(followed),
        }
    }

    /// Notes what an update says of its stream, unless the answer to a later question is known.
    pub(crate) fn note_description(&mut self, id: StreamId, update: &Update) {
        if let Some((first, _)) = update.first {
            let begun_at = self.begun_at.entry(id).or_insert(first);
            *begun_at = first.max(*begun_at);
        }
        let Some(stream) = &update.stream else { return };
        let later = self.described.get(&id).map_or(0, |known| known.question);
        if update.question >= later && !self.streams.has_tombstone(id) {
            let described = Described {
                question: update.question,
                stream: Arc::clone(stream),
            };
            self.described.insert(id, described);
        }
    }

    /// The stream as it was last described, durable here or not.
    pub(crate) fn description(&self, id: StreamId) -> Option<&Arc<StreamRecord>> {
        let told = self.described.get(&id).map(|described| &described.stream);
        told.or_else(|| self.streams.stream(id))
    }

    /// Applies a change that is durable.
    pub(crate) fn install(&mut self, change: MetadataChange) {
        match change {
            MetadataChange::Placement(change) => {
                match &change {
                    Change::RemoveRange(key) => {
                        self.ranges.remove(key);
                    }
                    Change::PutTombstone(stream) => {
                        self.ranges.retain(|key, _| key.stream != *stream);
                        self.let_go.retain(|key| key.stream != *stream);
                        self.described.remove(stream);
                        self.begun_at.remove(stream);
                    }
                    _ => {}
                }
                self.streams.install(change);
            }
            MetadataChange::Hold(range) => {
                let key = range.key;
                if self.ranges.insert(key, range).is_none() {
                    self.last_time += 1;
                    self.times.insert(key, self.last_time);
                }
            }
            MetadataChange::LetGo(key) => {
                self.ranges.remove(&key);
                self.let_go.insert(key);
            }
            MetadataChange::Cleared(key) => {
                self.let_go.remove(&key);
            }
            MetadataChange::Followed(term) => self.followed = HighestTerm::new(term),
            MetadataChange::Started(_) | MetadataChange::Cluster(_) => {}
        }
    }

    /// Which time it is that a range is held; `None` if it is not. What was asked about it at another time is not about this copy.
    pub(crate) fn time(&self, key: RangeKey) -> Option<u64> {
        let is_held = self.ranges.contains_key(&key);
        is_held.then(|| self.times.get(&key).copied().unwrap_or(0))
    }

    /// Those of the ranges of which something is here.
    pub(crate) fn left_of(&self, keys: &[RangeKey]) -> Vec<RangeKey> {
        let is_here = |key: &&RangeKey| self.ranges.contains_key(key) || self.let_go.contains(key);
        keys.iter().filter(is_here).copied().collect()
    }

    /// The ranges of a stream that are held here.
    pub(crate) fn of(&self, stream: StreamId) -> Vec<HeldRange> {
        let range = |index| RangeKey {
            stream,
            range: RangeIndex(index),
        };
        let held = self.ranges.range(range(i32::MIN)..=range(i32::MAX));
        held.map(|(_, range)| range.clone()).collect()
    }

    /// The changes that trim the ranges held before `first`, the stream's first range. The last range held of the
    /// stream stays, without records, even if the stream goes on elsewhere only: a restart that found records of a
    /// stream with no range in the metadata would take the metadata for an old copy and refuse to start. Where this server
    /// never heard where that range ends, it leaves the disk as one that others have.
    fn trimmed(&self, id: StreamId, first: RangeIndex, update: &Update) -> Vec<MetadataChange> {
        let held = self.of(id);
        let told = update.ranges.iter().map(|told| told.key);
        let last = held.iter().map(|held| held.key).chain(told).max();
        let in_front = held.into_iter().filter(|held| held.key.range < first);
        let change = |held: HeldRange| {
            if Some(held.key) != last {
                return Some(MetadataChange::Placement(Change::RemoveRange(held.key)));
            }
            match held.end {
                None => Some(MetadataChange::LetGo(held.key)),
                Some(end) => (end > held.start).then(|| MetadataChange::Hold(HeldRange { start: end, ..held })),
            }
        };
        in_front.filter_map(change).collect()
    }

    /// The changes to make durable for an update about a stream whose description is noted; empty if it brings nothing
    /// new.
    pub(crate) fn learn(&self, id: StreamId, update: &Update) -> Result<Vec<MetadataChange>, Refusal> {
        if self.streams.has_tombstone(id) {
            return Err(Refusal::no_stream(id));
        }
        let mut changes = Vec::new();
        if let Some(stream) = self.description(id)
            && self.streams.stream(id) != Some(stream)
        {
            changes.push(MetadataChange::Placement(Change::PutStream(Arc::clone(stream))));
        }
        let begun_at = self.begun_at.get(&id);
        for told in &update.ranges {
            // An outdated message about a range that was trimmed since.
            if begun_at.is_some_and(|first| told.key.range < *first) {
                continue;
            }
            // The log cannot take it before it has nothing of it any more: whoever sends it tries again.
            if self.let_go.contains(&told.key) {
                continue;
            }
            let Some(held) = self.ranges.get(&told.key) else {
                changes.push(MetadataChange::Hold(told.clone()));
                continue;
            };
            if told.epoch < held.epoch {
                return Err(Refusal::other_epoch(told.key, held.epoch, told.epoch));
            }
            let merged = HeldRange {
                key: held.key,
                epoch: told.epoch,
                start: held.start.max(told.start),
                // An end that is durable here is final.
                copy: CopyRecord {
                    end_marks: held.end.map_or(told.copy.end_marks, |_| held.copy.end_marks),
                    opened: opened(held, told),
                    ..held.copy
                },
                end: held.end.or(told.end),
                // The set of an open range never changes.
                set: match held.end.or(told.end) {
                    Some(_) => told.set.clone(),
                    None => held.set.clone(),
                },
            };
            if merged != *held {
                changes.push(MetadataChange::Hold(merged));
            }
        }
        if let Some((first, _)) = update.first {
            changes.extend(self.trimmed(id, first, update));
        }
        Ok(changes)
    }
}

/// The first offset that a range with copies had when it was opened, if a trim has raised it since.
fn opened(held: &HeldRange, told: &HeldRange) -> Option<Offset> {
    let opened = held.opened_at().min(told.opened_at());
    (!held.set.is_alone() && opened < held.start.max(told.start)).then_some(opened)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sbp_messages::ErrorCode;
    use sbp_types::{Epoch, ServerId, TimestampMs};

    use super::*;
    use crate::placement::Settings;
    use crate::range::ReplicaSet;

    const S: StreamId = StreamId(7);

    fn range(index: i32, start: i64, end: Option<i64>) -> HeldRange {
        HeldRange {
            key: RangeKey {
                stream: S,
                range: RangeIndex(index),
            },
            epoch: Epoch(i64::from(index)),
            start: Offset(start),
            end: end.map(Offset),
            set: ReplicaSet::alone(),
            copy: CopyRecord::default(),
        }
    }

    fn stream(retention: i64) -> Arc<StreamRecord> {
        Arc::new(StreamRecord {
            id: S,
            name: None,
            settings: Settings {
                replica_count: 1,
                ack_count: 1,
                retention_period_ms: retention,
                retention_bytes: None,
                schema: None,
                properties: BTreeMap::new(),
            },
            created_at: TimestampMs(0),
            identity: None,
            owner: None,
        })
    }

    fn learn(hosted_ranges: &mut HostedRanges, update: &Update) -> Result<usize, ErrorCode> {
        hosted_ranges.note_description(S, update);
        let changes = hosted_ranges.learn(S, update).map_err(|refusal| refusal.code)?;
        let count = changes.len();
        for change in changes {
            hosted_ranges.install(change);
        }
        assert_eq!(
            hosted_ranges.learn(S, update),
            Ok(Vec::new()),
            "what is known is no news: {update:?}"
        );
        Ok(count)
    }

    #[test]
    fn news_add_ranges_raise_starts_and_never_move_an_end() {
        let told = |ranges: &[HeldRange]| Update {
            ranges: ranges.to_vec(),
            ..Update::default()
        };
        let mut hosted_ranges = HostedRanges::default();
        let first = Update {
            stream: Some(stream(5)),
            ..told(&[range(0, 0, None)])
        };
        assert_eq!(learn(&mut hosted_ranges, &first), Ok(2));
        assert_eq!(learn(&mut hosted_ranges, &told(&[range(0, 3, None)])), Ok(1));
        assert_eq!(
            learn(&mut hosted_ranges, &told(&[range(0, 1, None)])),
            Ok(0),
            "a start stays raised"
        );
        assert_eq!(
            learn(&mut hosted_ranges, &told(&[range(0, 3, Some(10)), range(1, 10, None)])),
            Ok(2)
        );
        assert_eq!(learn(&mut hosted_ranges, &told(&[range(0, 3, Some(12))])), Ok(0));
        assert_eq!(hosted_ranges.of(S), [range(0, 3, Some(10)), range(1, 10, None)]);
        let settings = Update {
            stream: Some(stream(6)),
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &settings), Ok(1));
        assert_eq!(hosted_ranges.streams.stream(S), Some(&stream(6)));
    }

    #[test]
    fn the_servers_of_an_open_range_stay_and_those_of_a_sealed_one_may_change() {
        let on = |servers: [i32; 3], held: HeldRange| HeldRange {
            set: ReplicaSet::new(servers.map(ServerId), None),
            ..held
        };
        let told = |held: HeldRange| Update {
            ranges: vec![held],
            ..Update::default()
        };
        let mut hosted_ranges = HostedRanges::default();
        let open = on([1, 2, 3], range(0, 0, None));
        assert_eq!(learn(&mut hosted_ranges, &told(open.clone())), Ok(1));
        let other = told(on([2, 3, 4], range(0, 0, None)));
        assert_eq!(learn(&mut hosted_ranges, &other), Ok(0));
        assert_eq!(hosted_ranges.of(S), [open]);
        let moved = on([2, 3, 4], range(0, 0, Some(9)));
        assert_eq!(learn(&mut hosted_ranges, &told(moved.clone())), Ok(1));
        assert_eq!(hosted_ranges.of(S), [moved]);
    }

    #[test]
    fn the_answer_to_the_later_question_counts_also_while_the_disk_does_not_take_it() {
        let answer = |question, retention| Update {
            stream: Some(stream(retention)),
            question,
            ranges: vec![range(0, 0, None)],
            ..Update::default()
        };
        let mut hosted_ranges = HostedRanges::default();
        assert_eq!(learn(&mut hosted_ranges, &answer(1, 10)), Ok(2));
        // The disk is full: what is to become durable does not.
        hosted_ranges.note_description(S, &answer(3, 30));
        assert_eq!(
            hosted_ranges.learn(S, &answer(3, 30)).map(|changes| changes.len()),
            Ok(1)
        );
        assert_eq!(hosted_ranges.description(S), Some(&stream(30)));
        assert_eq!(hosted_ranges.streams.stream(S), Some(&stream(10)));
        // An answer to a question asked before comes late, and brings the newer one to the disk.
        assert_eq!(learn(&mut hosted_ranges, &answer(2, 20)), Ok(1));
        assert_eq!(hosted_ranges.streams.stream(S), Some(&stream(30)));
        assert_eq!(
            learn(&mut hosted_ranges, &answer(4, 20)),
            Ok(1),
            "what is asked later counts"
        );
        assert_eq!(hosted_ranges.description(S), Some(&stream(20)));
    }

    #[test]
    fn an_older_range_that_is_copied_here_is_taken_in_front_of_newer_ones() {
        let told = |ranges: &[HeldRange]| Update {
            ranges: ranges.to_vec(),
            first: Some((RangeIndex(1), Offset(4))),
            ..Update::default()
        };
        let mut hosted_ranges = HostedRanges::default();
        assert_eq!(learn(&mut hosted_ranges, &told(&[range(3, 12, None)])), Ok(1));
        assert_eq!(learn(&mut hosted_ranges, &told(&[range(1, 4, Some(8))])), Ok(1));
        assert_eq!(hosted_ranges.of(S), [range(1, 4, Some(8)), range(3, 12, None)]);
        assert_eq!(
            learn(&mut hosted_ranges, &told(&[range(0, 0, Some(4))])),
            Ok(0),
            "this one was trimmed"
        );
    }

    #[test]
    fn ranges_in_front_of_the_first_one_left_go() {
        let mut hosted_ranges = HostedRanges::default();
        let update = Update {
            ranges: vec![range(0, 0, Some(4)), range(1, 4, Some(8)), range(2, 8, None)],
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &update), Ok(3));
        let update = Update {
            first: Some((RangeIndex(2), Offset(8))),
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &update), Ok(2));
        assert_eq!(hosted_ranges.of(S), [range(2, 8, None)]);
        let late = Update {
            ranges: vec![range(1, 4, Some(8)), range(2, 8, None)],
            first: Some((RangeIndex(1), Offset(4))),
            ..Update::default()
        };
        assert_eq!(
            learn(&mut hosted_ranges, &late),
            Ok(0),
            "what was trimmed does not come back"
        );
    }

    #[test]
    fn of_a_stream_that_goes_on_elsewhere_the_last_range_stays_without_its_records() {
        let mut hosted_ranges = HostedRanges::default();
        let update = Update {
            ranges: vec![range(0, 0, Some(4)), range(1, 4, Some(8))],
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &update), Ok(2));
        let elsewhere = Update {
            first: Some((RangeIndex(2), Offset(8))),
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &elsewhere), Ok(2));
        assert_eq!(hosted_ranges.of(S), [range(1, 8, Some(8))]);
        let back = Update {
            ranges: vec![range(4, 12, None)],
            first: Some((RangeIndex(3), Offset(10))),
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &back), Ok(2));
        assert_eq!(
            hosted_ranges.of(S),
            [range(4, 12, None)],
            "there is a later one to know the stream by"
        );
    }

    #[test]
    fn a_range_that_was_trimmed_before_its_end_was_heard_leaves_the_disk() {
        let mut hosted_ranges = HostedRanges::default();
        let update = Update {
            ranges: vec![range(0, 0, Some(4)), range(1, 4, None)],
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &update), Ok(2));
        let elsewhere = Update {
            first: Some((RangeIndex(2), Offset(8))),
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &elsewhere), Ok(2));
        assert_eq!(hosted_ranges.of(S), []);
        assert_eq!(hosted_ranges.let_go, BTreeSet::from([range(1, 4, None).key]));
    }

    #[test]
    fn a_lower_epoch_is_refused_and_a_deleted_stream_does_not_come_back() {
        let mut hosted_ranges = HostedRanges::default();
        let update = Update {
            stream: Some(stream(0)),
            ranges: vec![range(3, 0, None)],
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &update), Ok(2));
        let older = Update {
            ranges: vec![HeldRange {
                epoch: Epoch(2),
                ..range(3, 5, None)
            }],
            ..Update::default()
        };
        assert_eq!(learn(&mut hosted_ranges, &older), Err(ErrorCode::EXPIRED_RANGE_EPOCH));
        assert_eq!(hosted_ranges.of(S), [range(3, 0, None)], "nothing of it was taken");
        hosted_ranges.install(MetadataChange::Placement(Change::PutTombstone(S)));
        assert_eq!(hosted_ranges.of(S), []);
        assert_eq!(learn(&mut hosted_ranges, &update), Err(ErrorCode::NOT_FOUND));
    }

    #[test]
    fn a_range_that_leaves_the_disk_is_not_taken_before_it_has_left_and_then_is_held_another_time() {
        let sealed = range(0, 0, Some(10));
        let told = Update {
            ranges: vec![sealed.clone(), range(1, 10, None)],
            ..Update::default()
        };
        let key = sealed.key;
        let mut hosted_ranges = HostedRanges::default();
        assert_eq!(learn(&mut hosted_ranges, &told), Ok(2));
        let time = hosted_ranges.time(key);
        assert!(time.is_some());
        hosted_ranges.install(MetadataChange::LetGo(key));
        assert_eq!(
            (hosted_ranges.time(key), hosted_ranges.left_of(&[key])),
            (None, vec![key])
        );
        assert_eq!(learn(&mut hosted_ranges, &told), Ok(0), "not yet");
        assert_eq!(hosted_ranges.of(S), [range(1, 10, None)]);
        hosted_ranges.install(MetadataChange::Cleared(key));
        assert_eq!(hosted_ranges.left_of(&[key]), []);
        assert_eq!(learn(&mut hosted_ranges, &told), Ok(1));
        assert!(
            hosted_ranges.time(key) > time,
            "what was asked about the first copy is not about this one"
        );
        hosted_ranges.install(MetadataChange::LetGo(key));
        hosted_ranges.install(MetadataChange::Placement(Change::PutTombstone(S)));
        assert_eq!(hosted_ranges.left_of(&[key]), []);
    }
}
