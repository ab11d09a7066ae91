//! The ranges this server holds.

use std::collections::{HashMap, HashSet};

use sbp_log::{EntryHead, EntryKind};
use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeIndex, RangeKey, StreamId, WriterId};
use smallvec::SmallVec;

use super::append::{AppendDecision, AppendEntry, fenced, judge_append, put_off};
use super::command::{Command, Effect, SealStep};
use super::outcome::{NotStored, Stored};
use super::stream::{HeldRange, HostedStream, Phase, RangeState, StreamFacts};
use super::writers::{Writer, WriterQuestion};
use crate::refusal::Refusal;

/// Every range this server holds, by stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTable {
    streams: HashMap<StreamId, HostedStream>,
    deleted: HashSet<StreamId>,
    pub(crate) scope: Scope,
}

/// How much this server knows about ranges that it does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This server holds every range: a range that is not here does not exist.
    Everything,
    /// The placement driver is in this process, so an append to a range that is being sealed can wait for the next
    /// range. Other servers hold ranges too.
    Shared,
    /// The placement driver runs elsewhere: this server knows the ranges that it was told of.
    #[default]
    Told,
}

impl RangeTable {
    /// Applies one command. Pure: uses neither clock nor disk.
    pub(crate) fn apply(&mut self, command: Command<'_>) -> Effect {
        match command {
            Command::Open { stream, facts, range } => {
                self.open(stream, facts, range);
                Effect::None
            }
            Command::Describe { stream, facts } => {
                if let Some(hosted) = self.streams.get_mut(&stream) {
                    hosted.facts = facts;
                    hosted.withheld = false;
                }
                Effect::None
            }
            Command::Withhold { stream } => self.withhold(stream),
            Command::Recall { stream, writer, state } => {
                if let Some(hosted) = self.streams.get_mut(&stream) {
                    hosted.recall(writer, state);
                }
                Effect::None
            }
            Command::Forget { stream, writer } => {
                if let Some(hosted) = self.streams.get_mut(&stream)
                    && hosted.writer(writer).is_some_and(|writer| !writer.is_waiting())
                {
                    hosted.writers.remove(&writer);
                }
                Effect::None
            }
            Command::Append(entry) => Effect::Judged(self.append(entry)),
            Command::TakeBack { key, base } => self.take_back(key, base),
            Command::Abandon { key, base, generation } => {
                match self.range_mut(key).filter(|range| range.generation == generation) {
                    Some(range) => {
                        range.generation = generation.wrapping_add(1);
                        self.take_back(key, base)
                    }
                    None => Effect::None,
                }
            }
            Command::Fenced { stream, writer, epoch } => {
                if let Some(writer) = self.writer_mut(stream, writer) {
                    writer.fenced(epoch);
                }
                Effect::None
            }
            Command::Unfence { stream, writer, epoch } => {
                if let Some(hosted) = self.streams.get_mut(&stream) {
                    hosted.unfence(writer, epoch);
                }
                Effect::None
            }
            Command::Confirm { key, end } => match self.range_mut(key) {
                // The end of a sealed range is final.
                Some(range) if end > range.confirmed && range.phase != Phase::Sealed => {
                    range.confirmed = end;
                    range.next = range.next.max(end);
                    Effect::Advanced(key.stream)
                }
                _ => Effect::None,
            },
            Command::Seal { key } => Effect::Seal(self.seal(key)),
            Command::Drain { key } => Effect::Seal(self.drain(key)),
            Command::Publish { key, end } => self.publish(key, end),
            Command::Unseal { key } => self.unseal(key),
            Command::Place { key, set } => {
                if let Some(range) = self.range_mut(key) {
                    range.set = set;
                }
                Effect::None
            }
            Command::Trim { stream, start } => self.trim(stream, start),
            Command::Delete { stream } => self.delete(stream),
            Command::LetGo { key } => self.let_go(key),
        }
    }

    fn withhold(&mut self, stream: StreamId) -> Effect {
        match self.streams.get_mut(&stream).filter(|hosted| !hosted.withheld) {
            Some(hosted) => {
                hosted.withheld = true;
                Effect::Advanced(stream)
            }
            None => Effect::None,
        }
    }

    fn delete(&mut self, stream: StreamId) -> Effect {
        self.deleted.insert(stream);
        match self.streams.remove(&stream) {
            Some(hosted) => Effect::Deleted(hosted.keys(stream).collect()),
            None => Effect::None,
        }
    }

    fn let_go(&mut self, key: RangeKey) -> Effect {
        let Some(stream) = self.streams.get_mut(&key.stream) else {
            return Effect::None;
        };
        stream.ranges.retain(|range| range.index != key.range);
        if stream.ranges.is_empty() {
            self.streams.remove(&key.stream);
        }
        Effect::Advanced(key.stream)
    }

    /// The stream, if this server holds any range of it.
    pub(crate) fn stream(&self, id: StreamId) -> Option<&HostedStream> {
        self.streams.get(&id)
    }

    /// The stream, if this server holds any range of it and serves it.
    pub(crate) fn served(&self, id: StreamId) -> Option<&HostedStream> {
        self.stream(id).filter(|stream| !stream.withheld)
    }

    /// All streams with a range here, in no particular order.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &HostedStream)> {
        self.streams.iter().map(|(id, stream)| (*id, stream))
    }

    /// Whether every range that exists is here.
    pub(crate) fn knows_all(&self) -> bool {
        self.scope == Scope::Everything
    }

    /// Whether a stream may exist although this server knows nothing about it.
    pub(crate) fn is_unknown(&self, id: StreamId) -> bool {
        !self.knows_all() && id.is_valid() && !self.streams.contains_key(&id) && !self.deleted.contains(&id)
    }

    /// The refusal for a stream of which no range is here.
    pub(crate) fn missing(&self, id: StreamId) -> Refusal {
        if self.is_unknown(id) {
            let message = format!("no range of stream {id} is here; list its ranges again");
            Refusal::new(ErrorCode::RANGE_NOT_FOUND, message)
        } else {
            Refusal::no_stream(id)
        }
    }

    /// The range, if it is here.
    pub(crate) fn range(&self, key: RangeKey) -> Option<&RangeState> {
        let stream = self.streams.get(&key.stream)?;
        stream.ranges.iter().find(|range| range.index == key.range)
    }

    /// The confirmed end of an open range, the end of a sealed one; `None` when the range is not here.
    pub(crate) fn next_offset(&self, key: RangeKey) -> Option<Offset> {
        self.range(key).map(|range| range.confirmed)
    }

    /// All ranges held, sorted by key.
    pub(crate) fn all_held(&self) -> Vec<HeldRange> {
        let of_stream = |(id, stream): (StreamId, &HostedStream)| -> SmallVec<[HeldRange; 1]> {
            stream
                .ranges
                .iter()
                .map(|range| stream.held(range.key(id), range))
                .collect()
        };
        let mut held: Vec<_> = self.streams().flat_map(of_stream).collect();
        held.sort_unstable_by_key(|held| held.key);
        held
    }

    /// Whether it was told that no range of the stream before this one is left, on whatever server. The ranges held here do not
    /// show it: others may be elsewhere, also of a stream that was here from its beginning on.
    pub(crate) fn has_none_before(&self, key: RangeKey) -> bool {
        let first = self.streams.get(&key.stream).and_then(|stream| stream.first_range);
        first.is_some_and(|first| key.range <= first)
    }

    /// No range of the stream before this one is left.
    pub(crate) fn begins_with(&mut self, first: RangeKey) {
        if let Some(stream) = self.streams.get_mut(&first.stream) {
            stream.first_range = stream.first_range.max(Some(first.range));
        }
    }

    fn open(&mut self, id: StreamId, facts: StreamFacts, range: RangeState) {
        let is_first = range.index == RangeIndex(0);
        let stream = self.streams.entry(id).or_insert_with(|| HostedStream {
            start: range.start,
            ..Default::default()
        });
        stream.facts = facts;
        match stream.ranges.binary_search_by_key(&range.index, |held| held.index) {
            // Opening a range again changes nothing; above all its offsets stay.
            Ok(_) => return,
            Err(0) if !stream.start_known => stream.start = range.start,
            Err(_) => {}
        }
        stream.start_known |= is_first;
        let place = stream.ranges.partition_point(|held| held.index < range.index);
        stream.ranges.insert(place, range);
    }

    fn append(&mut self, entry: &AppendEntry) -> AppendDecision {
        let Some(stream) = self.streams.get_mut(&entry.stream).filter(|stream| !stream.withheld) else {
            return AppendDecision::Refuse(self.missing(entry.stream).into());
        };
        let claim = entry.head.as_ref().ok().and_then(|facts| facts.claim);
        let confirmed = stream.confirmed_end();
        if let Some(writer) = claim.and_then(|claim| stream.writers.get_mut(&claim.writer)) {
            writer.settle(confirmed);
        }
        let verdict = judge_append(stream, self.scope != Scope::Told, entry);
        let claim = claim.unwrap_or_default();
        let (kind, key, base_offset, count, base_sequence) = match &verdict {
            AppendDecision::Store {
                key,
                base_offset,
                next_offset,
                ..
            } => {
                let count = next_offset.0 - base_offset.0;
                (EntryKind::Batch, *key, *base_offset, count, claim.sequence)
            }
            AppendDecision::Fence(fence) => (EntryKind::Fence, fence.key, fence.base_offset, 0, fence.next_sequence),
            _ => return put_off(stream, entry, verdict),
        };
        // The times of the head are not used here.
        stream.promise(EntryHead {
            key,
            kind,
            base_offset,
            count,
            writer: claim.writer,
            writer_epoch: claim.epoch,
            base_sequence,
            ..EntryHead::default()
        });
        verdict
    }

    fn writer_mut(&mut self, stream: StreamId, writer: WriterId) -> Option<&mut Writer> {
        self.streams.get_mut(&stream)?.writers.get_mut(&writer)
    }

    /// The writers of which no stored batch is left in a stream.
    pub(super) fn trimmed_writers(&mut self, id: StreamId) -> Vec<WriterId> {
        let stream = self.streams.get_mut(&id);
        stream.map(HostedStream::trimmed_writers).unwrap_or_default()
    }

    /// Answers an empty batch that waited for unsynced batches or fences of its writer: the writer's next sequence by
    /// what is synced now. `None`: the empty batch repeats a fence, and that fence was not stored.
    pub(super) fn answer_question(
        &mut self,
        id: StreamId,
        question: &WriterQuestion,
    ) -> Option<Result<Stored, NotStored>> {
        let WriterQuestion { claim, is_fence } = question;
        let missing = self.missing(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return Some(Err(missing.into()));
        };
        let confirmed = stream.confirmed_end();
        let mut next_sequence = None;
        let mut epoch = None;
        if let Some(writer) = stream.writers.get_mut(&claim.writer) {
            writer.settle(confirmed);
            epoch = writer.stored_epoch();
            next_sequence = match writer.stored_sequence(claim.epoch) {
                Ok(next_sequence) => next_sequence,
                Err(by) => return Some(Err(fenced(id, by).into())),
            };
        }
        if *is_fence && epoch != Some(claim.epoch) {
            return None;
        }
        Some(Ok(Stored {
            base_offset: None,
            next_offset: stream.last().map_or(stream.start, |last| last.next),
            next_marks: 0,
            duplicate: *is_fence,
            next_sequence,
        }))
    }

    fn take_back(&mut self, key: RangeKey, base: Offset) -> Effect {
        let Some(stream) = self.streams.get_mut(&key.stream) else {
            return Effect::None;
        };
        let Some(range) = stream.range_mut(key.range) else {
            return Effect::None;
        };
        let from = base.max(range.confirmed);
        range.next = range.next.min(from);
        stream.take_back(from);
        Effect::TakenBack { key, from }
    }

    fn seal(&mut self, key: RangeKey) -> SealStep {
        let Some(range) = self.range_mut(key) else {
            return SealStep::Unknown;
        };
        match range.phase {
            Phase::Open => {
                range.phase = Phase::Sealing { end: None };
                SealStep::Begun
            }
            Phase::Sealing { end: None } => SealStep::UnderWay,
            Phase::Sealing { end: Some(end) } => SealStep::Done(end),
            Phase::Sealed => SealStep::Done(range.confirmed),
            Phase::EndDamaged => SealStep::EndDamaged,
        }
    }

    fn drain(&mut self, key: RangeKey) -> SealStep {
        let Some(range) = self.range_mut(key) else {
            return SealStep::Unknown;
        };
        match range.phase {
            // The range was unsealed, took appends and was sealed again since: the later seal has its own barrier in
            // the log.
            Phase::Sealing { end: None } if range.next != range.confirmed => SealStep::UnderWay,
            Phase::Sealing { end } => {
                let end = end.unwrap_or(range.confirmed);
                range.phase = Phase::Sealing { end: Some(end) };
                SealStep::Done(end)
            }
            Phase::Sealed => SealStep::Done(range.confirmed),
            Phase::Open => SealStep::Undone,
            Phase::EndDamaged => SealStep::EndDamaged,
        }
    }

    fn unseal(&mut self, key: RangeKey) -> Effect {
        match self.range_mut(key) {
            Some(range) if matches!(range.phase, Phase::Sealing { .. }) => {
                range.phase = Phase::Open;
                Effect::Advanced(key.stream)
            }
            _ => Effect::None,
        }
    }

    fn publish(&mut self, key: RangeKey, end: Offset) -> Effect {
        match self.range_mut(key) {
            Some(range) if range.phase != Phase::Sealed => {
                range.phase = Phase::Sealed;
                range.next = end;
                range.confirmed = end;
                Effect::Advanced(key.stream)
            }
            _ => Effect::None,
        }
    }

    fn trim(&mut self, id: StreamId, start: Offset) -> Effect {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| start >= stream.start) else {
            return Effect::None;
        };
        // Also when `start` does not change: after a restart, ranges that were trimmed away no longer show where the
        // stream begins.
        stream.start_known = true;
        if start == stream.start {
            return Effect::None;
        }
        stream.start = start;
        let stays = stream.ranges.len().saturating_sub(1);
        let leaves = |range: &RangeState| range.phase == Phase::Sealed && range.confirmed <= start;
        let count = stream
            .ranges
            .iter()
            .take(stays)
            .take_while(|range| leaves(range))
            .count();
        let gone = stream.ranges.drain(..count).map(|range| range.key(id)).collect();
        match stream.ranges.first() {
            Some(first) => Effect::Trimmed {
                first: first.key(id),
                gone,
            },
            None => Effect::None,
        }
    }

    /// All ranges held, with their streams.
    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut RangeState)> {
        let streams = self.streams.iter_mut();
        streams.flat_map(|(id, stream)| stream.ranges.iter_mut().map(|range| (*id, range)))
    }

    pub(super) fn stream_mut(&mut self, id: StreamId) -> Option<&mut HostedStream> {
        self.streams.get_mut(&id)
    }

    pub(super) fn range_mut(&mut self, key: RangeKey) -> Option<&mut RangeState> {
        self.streams.get_mut(&key.stream)?.range_mut(key.range)
    }
}
