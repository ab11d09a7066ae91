//! The ranges this server holds.

use std::collections::{HashMap, HashSet};

use sbp_log::{EntryHead, WriterState};
use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, StreamId, WriterId};
use smallvec::SmallVec;

use super::append::{AppendEntry, Verdict, judge_append};
use super::writers::{Claim, Writer};
use crate::connection::{NotStored, Stored};
use crate::refusal::Refusal;

/// One range.
///
/// Invariants: `start <= confirmed <= next`; a sealed range has `confirmed == next == end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeState {
    pub(crate) index: RangeIndex,
    pub(crate) epoch: Epoch,
    /// First offset of the range.
    pub(crate) start: Offset,
    /// The offset the next record gets: behind everything handed to the log.
    pub(crate) next: Offset,
    /// Behind everything that is synced: what readers see.
    pub(crate) confirmed: Offset,
    pub(crate) phase: Phase,
    /// Counts how often promised offsets were taken back, so that a late failure cannot take back newer ones.
    pub(crate) generation: u32,
}

impl RangeState {
    /// Its name.
    pub(crate) fn key(&self, stream: StreamId) -> RangeKey {
        RangeKey {
            stream,
            range: self.index,
        }
    }
}

/// Whether a range takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does.
    Open,
    /// It does not, and readers do not know yet: the log still works on what was accepted (no end), or the end is being
    /// made durable. Ends in `Sealed`, or in `Open` when that fails.
    Sealing { end: Option<Offset> },
    /// It never will again; the end is in `confirmed`.
    Sealed,
    /// It would, but its last records are damaged on disk, so that nobody knows which offset is next.
    EndDamaged,
}

/// What a range server has to know about a stream itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamFacts {
    /// What a typed batch may say it was written with; empty: an opaque stream.
    pub(crate) fingerprints: SmallVec<[u64; 1]>,
    /// Milliseconds a record is kept after its append; 0: for ever.
    pub(crate) retention_period_ms: i64,
    /// Bytes kept; 0 and less: no bound.
    pub(crate) retention_bytes: i64,
}

/// The ranges of one stream, and what its appends must look like.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostedStream {
    pub(crate) facts: StreamFacts,
    /// First offset that is kept.
    pub(crate) start: Offset,
    /// Whether `start` is where the stream begins, not just the ranges of it that are here.
    pub(crate) start_known: bool,
    /// By index, never empty.
    pub(crate) ranges: SmallVec<[RangeState; 1]>,
    // Clients choose the names, so the hash is keyed.
    writers: HashMap<WriterId, Writer>,
}

impl HostedStream {
    /// The range that takes appends, or the last one when none does.
    pub(crate) fn last(&self) -> Option<&RangeState> {
        self.ranges.last()
    }

    /// Behind the last record that readers may see.
    pub(crate) fn confirmed_end(&self) -> Offset {
        self.last().map_or(self.start, |range| range.confirmed)
    }

    /// An idempotent writer, unless it is unknown.
    pub(super) fn writer(&self, id: WriterId) -> Option<&Writer> {
        self.writers.get(&id)
    }

    /// The writers that have nothing left in the stream.
    pub(super) fn trimmed_writers(&self) -> impl Iterator<Item = WriterId> {
        let trimmed = self.writers.iter().filter(|(_, writer)| writer.is_trimmed(self.start));
        trimmed.map(|(id, _)| *id)
    }

    /// The log was given a batch.
    fn promise(&mut self, head: EntryHead) {
        if let Some(range) = self.range_mut(head.key.range) {
            range.next = head.end_offset().unwrap_or(range.next);
        }
        if head.writer.is_some() {
            self.writers.entry(head.writer).or_default().promise(head);
        }
    }

    /// Nothing from `from` on is there.
    fn take_back(&mut self, from: Offset) {
        self.writers.retain(|_, writer| {
            writer.take_back(from);
            !writer.is_blank()
        });
    }

    /// The names of its ranges.
    pub(crate) fn keys(&self, id: StreamId) -> impl Iterator<Item = RangeKey> {
        self.ranges.iter().map(move |range| range.key(id))
    }

    /// What is held of one of its ranges.
    pub(crate) fn held(&self, key: RangeKey, range: &RangeState) -> HeldRange {
        HeldRange {
            key,
            epoch: range.epoch,
            start: range.start.max(self.start),
            end: (range.phase == Phase::Sealed).then_some(range.confirmed),
        }
    }

    fn range_mut(&mut self, index: RangeIndex) -> Option<&mut RangeState> {
        self.ranges.iter_mut().find(|range| range.index == index)
    }
}

/// What the range server remembers of a range it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) key: RangeKey,
    pub(crate) epoch: Epoch,
    /// Its first offset.
    pub(crate) start: Offset,
    /// One past its last offset, once it is sealed.
    pub(crate) end: Option<Offset>,
}

/// What can happen to the table.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// The range exists from now on.
    Open {
        stream: StreamId,
        facts: StreamFacts,
        range: RangeState,
    },
    /// The log remembers this writer.
    Recall {
        stream: StreamId,
        writer: WriterId,
        state: WriterState,
    },
    /// The log has forgotten this writer.
    Forget { stream: StreamId, writer: WriterId },
    /// The stream's settings have changed.
    Describe { stream: StreamId, facts: StreamFacts },
    /// Somebody wants to append.
    Append(&'a AppendEntry),
    /// The log did not queue what appends were promised from `base` on; nothing was promised since.
    TakeBack { key: RangeKey, base: Offset },
    /// The log did not write what it had queued under this generation: nothing from `base` on is there.
    Abandon {
        key: RangeKey,
        base: Offset,
        generation: u32,
    },
    /// Everything before `end` is synced.
    Confirm { key: RangeKey, end: Offset },
    /// The range takes no more appends.
    Seal { key: RangeKey },
    /// The log has ended everything that the range accepted before it was sealed.
    Drain { key: RangeKey },
    /// The end is durable: everybody may know it.
    Publish { key: RangeKey, end: Offset },
    /// The end could not be made durable: the range goes on.
    Unseal { key: RangeKey },
    /// Nothing below `start` is needed any more.
    Trim { stream: StreamId, start: Offset },
    /// The stream is gone.
    Delete { stream: StreamId },
}

/// What a command comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that anybody waits for.
    None,
    /// What to do with the append.
    Judged(Verdict),
    /// Who waits for this stream has to look again.
    Advanced(StreamId),
    /// Nothing that was promised in the range from here on is, or will be, there.
    TakenBack { key: RangeKey, from: Offset },
    /// How far a seal is.
    Seal(SealStep),
    /// The stream begins later: `gone` are the ranges that went, `first` the first one left.
    Trimmed {
        first: RangeKey,
        gone: SmallVec<[RangeKey; 1]>,
    },
    /// The stream went, with these ranges.
    Deleted(SmallVec<[RangeKey; 1]>),
}

/// How far a seal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealStep {
    /// It begins now: the log has to be waited for.
    Begun,
    /// It began before; the log is being waited for.
    UnderWay,
    /// The end is known, and stays.
    Done(Offset),
    /// There is no such range here.
    Unknown,
    /// Nobody knows where the range ends.
    EndDamaged,
    /// The range is open: the seal was undone.
    Undone,
}

/// Every range this server holds, by stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeTable {
    streams: HashMap<StreamId, HostedStream>,
    deleted: HashSet<StreamId>,
    /// Whether every range that exists is here: what is not here does not exist.
    pub(crate) knows_all: bool,
}

impl RangeTable {
    /// Applies one command. Pure: neither clock nor disk is looked at.
    pub(crate) fn apply(&mut self, command: Command<'_>) -> Effect {
        match command {
            Command::Open { stream, facts, range } => {
                self.open(stream, facts, range);
                Effect::None
            }
            Command::Describe { stream, facts } => {
                if let Some(hosted) = self.streams.get_mut(&stream) {
                    hosted.facts = facts;
                }
                Effect::None
            }
            Command::Recall { stream, writer, state } => {
                if let Some(hosted) = self.streams.get_mut(&stream) {
                    hosted.writers.insert(writer, Writer::recovered(state));
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
            Command::Confirm { key, end } => match self.range_mut(key) {
                Some(range) if end > range.confirmed => {
                    range.confirmed = end;
                    range.next = range.next.max(end);
                    Effect::Advanced(key.stream)
                }
                _ => Effect::None,
            },
            Command::Seal { key } => Effect::Seal(self.seal(key)),
            Command::Drain { key } => Effect::Seal(self.drain(key)),
            Command::Publish { key, end } => self.publish(key, end),
            Command::Unseal { key } => match self.range_mut(key) {
                Some(range) if matches!(range.phase, Phase::Sealing { .. }) => {
                    range.phase = Phase::Open;
                    Effect::Advanced(key.stream)
                }
                _ => Effect::None,
            },
            Command::Trim { stream, start } => self.trim(stream, start),
            Command::Delete { stream } => {
                self.deleted.insert(stream);
                match self.streams.remove(&stream) {
                    Some(hosted) => Effect::Deleted(hosted.keys(stream).collect()),
                    None => Effect::None,
                }
            }
        }
    }

    /// The stream, if any range of it is here.
    pub(crate) fn stream(&self, id: StreamId) -> Option<&HostedStream> {
        self.streams.get(&id)
    }

    /// Every stream with a range here, in no order.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &HostedStream)> {
        self.streams.iter().map(|(id, stream)| (*id, stream))
    }

    /// Whether nothing is known about a stream that may exist.
    pub(crate) fn is_unknown(&self, id: StreamId) -> bool {
        !self.knows_all && id.is_valid() && !self.streams.contains_key(&id) && !self.deleted.contains(&id)
    }

    /// Why there is nothing to say about a stream that is not here.
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

    /// Confirmed end of an open range, end of a sealed one; `None` when it is not here.
    pub(crate) fn next_offset(&self, key: RangeKey) -> Option<Offset> {
        self.range(key).map(|range| range.confirmed)
    }

    /// What is held of all ranges, in order.
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

    fn open(&mut self, id: StreamId, facts: StreamFacts, range: RangeState) {
        let is_first = range.index == RangeIndex(0);
        let stream = self.streams.entry(id).or_insert_with(|| HostedStream {
            start: range.start,
            ..Default::default()
        });
        stream.facts = facts;
        match stream.ranges.binary_search_by_key(&range.index, |held| held.index) {
            // Known already: opening twice changes nothing, least of all the offsets.
            Ok(_) => return,
            Err(0) if !stream.start_known => stream.start = range.start,
            Err(_) => {}
        }
        stream.start_known |= is_first;
        let place = stream.ranges.partition_point(|held| held.index < range.index);
        stream.ranges.insert(place, range);
    }

    fn append(&mut self, entry: &AppendEntry) -> Verdict {
        let Some(stream) = self.streams.get_mut(&entry.stream) else {
            return Verdict::Refuse(self.missing(entry.stream).into());
        };
        let claim = entry.head.as_ref().ok().and_then(|facts| facts.claim);
        let confirmed = stream.confirmed_end();
        if let Some(writer) = claim.and_then(|claim| stream.writers.get_mut(&claim.writer)) {
            writer.settle(confirmed);
        }
        let verdict = judge_append(stream, self.knows_all, entry);
        if let Verdict::Store {
            key,
            base_offset,
            next_offset,
            ..
        } = &verdict
        {
            let claim = claim.unwrap_or_default();
            // The times are of no matter here.
            stream.promise(EntryHead {
                key: *key,
                base_offset: *base_offset,
                count: next_offset.0 - base_offset.0,
                writer: claim.writer,
                writer_epoch: claim.epoch,
                base_sequence: claim.sequence,
                ..EntryHead::default()
            });
        }
        verdict
    }

    /// Where a writer stands by what is synced, for an empty batch that has waited for what was under way.
    pub(super) fn answer_question(&mut self, id: StreamId, claim: &Claim) -> Result<Stored, NotStored> {
        let missing = self.missing(id);
        let stream = self.streams.get_mut(&id).ok_or(missing)?;
        let confirmed = stream.confirmed_end();
        let next_sequence = match stream.writers.get_mut(&claim.writer) {
            Some(writer) => {
                writer.settle(confirmed);
                let fenced = || Refusal::new(ErrorCode::WRITER_FENCED, "a newer writer has taken over meanwhile");
                writer.stored_sequence(claim.epoch).ok_or_else(fenced)?
            }
            None => -1,
        };
        Ok(Stored {
            base_offset: Offset(-1),
            next_offset: stream.last().map_or(stream.start, |last| last.next),
            duplicate: false,
            next_sequence,
        })
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
            // A range that was unsealed in between, took appends and is sealed again waits for its next turn.
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
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| start > stream.start) else {
            return Effect::None;
        };
        stream.start = start;
        stream.start_known = true;
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

    fn range_mut(&mut self, key: RangeKey) -> Option<&mut RangeState> {
        self.streams.get_mut(&key.stream)?.range_mut(key.range)
    }
}
