//! Where partitions are being read: which requests come next, and what their answers change. No clock, no sockets.
//!
//! A partition is either idle or part of one request that is under way. A request names partitions with the same leader, as
//! many as it may; its answer moves them on, and they are idle again or at their end.
//!
//! What all requests under way may bring is bounded: each partition has an equal share of [`ALL_FETCHED`]. Where a bundle is
//! larger than that, its partition asks for more; such requests follow each other, one at a time.
//!
//! # When a reading with an end is over
//!
//! Messages below the end may be missing for good, because compaction has left them out, the last ones too. That nothing is
//! left below the end is shown by
//!
//! - a bundle that begins at the end or behind it: those of a partition come in the order of their numbers; or
//! - an answer without any bundle to a request for this partition alone, that was sent when the broker had already said that
//!   its last message is at the end or behind it. All numbers below the end were given before the request was sent, and a
//!   broker has no reason to keep back what was there before.
//!
//! An empty answer shows nothing otherwise. Where a request names several partitions, those that fill an answer leave no room
//! for others; and what is produced while a request waits may be missing in its answer.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddrV4;
use std::time::Duration;

use bytes::Bytes;
use sbp_tank::{BundleHead, ConsumedFrom, ConsumedPartition, Numbering, PARTITIONS, PartitionState};

use super::bundles::ReadBundle;
use super::error::{Gap, TankError, TankErrorKind};
use super::shared::Fetched;
use crate::calls::BACK_OFF;

/// Bytes asked for of one partition at first.
const FETCH_SIZE: u32 = 4 << 20;
/// Bytes asked for of all partitions: at least 1 KiB of each, as there are 65,536 at most.
pub(super) const ALL_FETCHED: u32 = 64 << 20;
/// Bytes asked for of one partition at most: no bundle has as many.
const MOST_FETCHED: u32 = 128 << 20;

/// A part of a partition that is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) partition: u16,
    /// The first message wanted.
    pub(super) next: u64,
    /// In front of which number reading ends.
    pub(super) until: u64,
    /// The last message there is, as its leader has said.
    pub(super) high_water: u64,
    /// Who leads it, where that is not the broker that was named.
    pub(super) leader: Option<SocketAddrV4>,
}

/// A partition that is being read.
#[derive(Debug)]
struct Position {
    part: Part,
    fetch_size: u32,
    /// Whether the last answer named the leader: brokers that name each other are not followed any further.
    was_redirected: bool,
    /// The request that is under way for it.
    request: Option<u64>,
    /// Whether the next request is for it alone, to find out whether anything is left below the end.
    is_alone: bool,
    /// Requests in a row that brought nothing and did not wait for it.
    misses: u32,
}

/// A request that is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) id: u64,
    /// Who is asked, where that is not the broker that was named.
    pub(super) leader: Option<SocketAddrV4>,
    pub(super) from: Vec<ConsumedFrom>,
    /// How long to wait before it is sent.
    pub(super) pause: Duration,
}

/// A request that is over.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) from: Vec<ConsumedFrom>,
    pub(super) fetched: Result<Fetched, TankError>,
    /// How long that took, without the pause.
    pub(super) took: Duration,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) bundles: Vec<ReadBundle>,
    pub(super) errors: Vec<TankError>,
}

/// The partitions of a topic that are being read.
#[derive(Debug)]
pub(super) struct Positions {
    topic: String,
    all: BTreeMap<u16, Position>,
    /// Those that no request is under way for, first those that have been for longest.
    idle: VecDeque<u16>,
    /// Bytes of each partition that requests which are under way side by side may ask for.
    share: u32,
    /// The request that asks for more.
    large: Option<u64>,
    last: u64,
}

impl Positions {
    pub(super) fn new(topic: &str, parts: impl IntoIterator<Item = Part>) -> Self {
        Self::sharing(topic, parts, ALL_FETCHED)
    }

    /// The same, where what all requests under way may bring is bounded otherwise.
    pub(super) fn sharing(topic: &str, parts: impl IntoIterator<Item = Part>, bytes: u32) -> Self {
        let left = parts.into_iter().filter(|part| part.next < part.until);
        let parts: BTreeMap<u16, Part> = left.map(|part| (part.partition, part)).collect();
        let share = bytes / u32::try_from(parts.len().max(1)).unwrap_or(u32::MAX);
        let mut positions = Self {
            topic: topic.to_owned(),
            all: BTreeMap::new(),
            idle: VecDeque::new(),
            share,
            large: None,
            last: 0,
        };
        parts.into_values().for_each(|part| positions.add(part));
        positions
    }

    fn add(&mut self, part: Part) {
        let position = Position {
            part,
            fetch_size: self.share.min(FETCH_SIZE),
            was_redirected: false,
            request: None,
            is_alone: false,
            misses: 0,
        };
        self.all.insert(part.partition, position);
        self.idle.push_back(part.partition);
    }

    /// The topic.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// The next request, for partitions that none is under way for.
    pub(super) fn next_request(&mut self) -> Option<Wanted> {
        let (share, is_large_free) = (self.share, self.large.is_none());
        let may = |position: &&Position| is_large_free || !position.is_large(share);
        let mut idle = self.idle.iter().filter_map(|partition| self.all.get(partition));
        let first = idle.find(may)?;
        let (company, partition, is_alone) = (first.company(share), first.part.partition, first.is_alone);
        let (leader, is_large, misses) = company;
        self.last += 1;
        let id = self.last;
        let mut left = ALL_FETCHED;
        let mut from = Vec::new();
        let mut others = Vec::new();
        while let Some(candidate) = self.idle.pop_front() {
            let Some(position) = self.all.get_mut(&candidate) else {
                continue;
            };
            let is_first = candidate == partition;
            if !is_first && (is_alone || position.is_alone || position.company(share) != company) {
                others.push(candidate);
                continue;
            }
            if !is_first && (from.len() >= PARTITIONS || position.fetch_size > left) {
                others.push(candidate);
                break;
            }
            left = left.saturating_sub(position.fetch_size);
            position.request = Some(id);
            from.push(ConsumedFrom {
                partition: candidate,
                sequence: position.part.next,
                fetch_size: position.fetch_size,
            });
            if is_alone {
                break;
            }
        }
        others.into_iter().rev().for_each(|other| self.idle.push_front(other));
        if is_large {
            self.large = Some(id);
        }
        let pause = match misses {
            0 => Duration::ZERO,
            misses => BACK_OFF.bound(misses),
        };
        Some(Wanted {
            id,
            leader,
            from,
            pause,
        })
    }

    /// Takes over what an answer has, and moves behind it.
    pub(super) fn take(&mut self, asked: Asked) -> Taken {
        let Asked {
            id,
            from,
            fetched,
            took,
        } = asked;
        if self.large == Some(id) {
            self.large = None;
        }
        let mut taken = Taken::default();
        // Whether the next requests are for something else than this one was; and for which partitions they are not.
        let (mut has_moved, mut refused) = (false, HashSet::new());
        let is_early = match fetched {
            Ok(fetched) => {
                for (partition, moved) in self.take_answer(id, &from, &fetched, &mut taken.bundles) {
                    match moved {
                        Ok(moved) => has_moved |= moved,
                        Err(error) => {
                            has_moved |= error.gap().is_some();
                            refused.extend(partition.filter(|_| error.gap().is_none()));
                            taken.errors.push(error);
                        }
                    }
                }
                took < BACK_OFF.longest
            }
            Err(error) => {
                taken.errors.push(error.about(&self.topic, None));
                true
            }
        };
        for from in from {
            let partition = from.partition;
            let found = self.all.get_mut(&partition).filter(|one| one.request == Some(id));
            let Some(position) = found else { continue };
            position.request = None;
            position.misses = match refused.contains(&partition) || !has_moved && is_early {
                true => position.misses.saturating_add(1),
                false => 0,
            };
            match position.part.next < position.part.until {
                true => self.idle.push_back(partition),
                false => drop(self.all.remove(&partition)),
            }
        }
        taken
    }

    /// The same for each partition that an answer tells of, in turn: which it is, and whether it is any further.
    fn take_answer(
        &mut self,
        id: u64,
        from: &[ConsumedFrom],
        fetched: &Fetched,
        taken: &mut Vec<ReadBundle>,
    ) -> Vec<(Option<u16>, Result<bool, TankError>)> {
        if fetched.partitions.len() > from.len() {
            return vec![(None, Err(not_asked().about(&self.topic, None)))];
        }
        let mut bundles = fetched.bundles.as_slice();
        let mut cuts = fetched.cut.iter().peekable();
        let mut outcomes = Vec::new();
        for (place, told) in fetched.partitions.iter().enumerate() {
            let here = bundles.partition_point(|(at, _)| *at <= place);
            let (own, behind) = bundles.split_at_checked(here).unwrap_or((bundles, &[]));
            bundles = behind;
            let chunk = Chunk {
                bundles: own,
                cut: cuts.next_if(|(at, _)| *at == place).map(|(_, length)| *length),
                is_alone: from.len() == 1,
            };
            let outcome = self.take_partition(id, from, told, &chunk, taken);
            let outcome = outcome.map_err(|error| error.about(&self.topic, told.partition));
            outcomes.push((told.partition, outcome));
        }
        outcomes
    }

    /// The same for one of them.
    fn take_partition(
        &mut self,
        id: u64,
        from: &[ConsumedFrom],
        told: &ConsumedPartition,
        chunk: &Chunk<'_>,
        taken: &mut Vec<ReadBundle>,
    ) -> Result<bool, TankError> {
        let Some(partition) = told.partition else {
            return Err(TankError::new(
                TankErrorKind::UnknownName,
                "the broker has no such topic",
            ));
        };
        let asked = from.iter().find(|from| from.partition == partition);
        let from = asked.filter(|_| told.topic == self.topic).ok_or_else(not_asked)?;
        // One that was sent back meanwhile wants something else by now.
        let is_current = |one: &&mut Position| one.request == Some(id) && one.part.next == from.sequence;
        match self.all.get_mut(&partition).filter(is_current) {
            Some(position) => position.take(told.state, chunk, self.share, taken),
            None => Ok(false),
        }
    }

    /// A request ended without even an error. Nobody knows which: what comes of the others is not looked at any more.
    pub(super) fn forget_requests(&mut self) {
        self.large = None;
        self.idle = self.all.keys().copied().collect();
        self.all.values_mut().for_each(|position| position.request = None);
    }

    /// Has a partition read again from a message on.
    pub(super) fn go_back(&mut self, partition: u16, from: u64, until: u64) {
        match self.all.get_mut(&partition) {
            Some(position) => position.part.next = from,
            None => self.add(Part {
                partition,
                next: from,
                until,
                high_water: 0,
                leader: None,
            }),
        }
    }
}

fn not_asked() -> TankError {
    TankError::new(TankErrorKind::Peer, "the broker answers what was not asked")
}

/// What an answer brings of one partition.
struct Chunk<'a> {
    /// Its bundles, each with the partition's place in the answer.
    bundles: &'a [(usize, Bytes)],
    /// The length of the bundle behind them, which is cut; 0: unknown.
    cut: Option<usize>,
    /// Whether nothing else was asked for.
    is_alone: bool,
}

impl Position {
    /// Whether it asks for more than its share.
    fn is_large(&self, share: u32) -> bool {
        self.fetch_size > share
    }

    /// Partitions go into one request where this is the same: the leader, the kind of request, and the pause before it.
    fn company(&self, share: u32) -> (Option<SocketAddrV4>, bool, u32) {
        (self.part.leader, self.is_large(share), self.misses)
    }

    /// Takes over what an answer has of it. Whether the next request is for something else than this one was.
    fn take(
        &mut self,
        state: PartitionState,
        chunk: &Chunk<'_>,
        share: u32,
        taken: &mut Vec<ReadBundle>,
    ) -> Result<bool, TankError> {
        let (base, high_water) = match state {
            PartitionState::Data { base, high_water, .. } => (base, high_water),
            state => return self.refused(state).map(|()| true),
        };
        self.was_redirected = false;
        let last_known = std::mem::replace(&mut self.part.high_water, high_water);
        if chunk.bundles.is_empty() && chunk.cut.is_none() {
            let has_end = self.part.until < u64::MAX;
            let is_complete = has_end && last_known.min(high_water).saturating_add(1) >= self.part.until;
            if is_complete && chunk.is_alone {
                self.part.next = self.part.until;
            }
            self.is_alone = is_complete;
            return Ok(is_complete);
        }
        self.is_alone = false;
        let before = self.part.next;
        self.take_bundles(base, chunk.bundles, taken)?;
        if self.part.next > before {
            self.fetch_size = self.fetch_size.min(share);
            return Ok(true);
        }
        // All that came is in front of what was asked for, or is cut.
        self.ask_for_more(chunk.cut.unwrap_or(0)).map(|()| true)
    }

    fn take_bundles(
        &mut self,
        base: Option<u64>,
        bundles: &[(usize, Bytes)],
        taken: &mut Vec<ReadBundle>,
    ) -> Result<(), TankError> {
        let mut numbering = Numbering::new(base);
        let part = &mut self.part;
        for (_, bytes) in bundles {
            let numbered = BundleHead::decode(bytes).and_then(|head| numbering.number_head(&head));
            let damaged = |fault| TankError::of_fault("a bundle", fault).with_sequence(part.next);
            let span = numbered.map_err(damaged)?;
            // The first bundle may begin, and even end, before what was asked for.
            if span.last < part.next {
                continue;
            }
            if span.first >= part.until {
                part.next = part.until;
                break;
            }
            taken.push(ReadBundle::new(
                part.partition,
                span,
                part.next,
                part.until,
                bytes.clone(),
            ));
            part.next = span.last.saturating_add(1);
        }
        Ok(())
    }

    /// The next bundle has so many bytes, and did not fit into what was asked for; 0: nobody knows how many.
    fn ask_for_more(&mut self, length: usize) -> Result<(), TankError> {
        if self.fetch_size >= MOST_FETCHED {
            let what = "the broker does not bring the next message although all of its bundle was asked for";
            return Err(TankError::new(TankErrorKind::Peer, what).with_sequence(self.part.next));
        }
        let wanted = u32::try_from(length).unwrap_or(u32::MAX);
        self.fetch_size = wanted.max(self.fetch_size.saturating_mul(2)).min(MOST_FETCHED);
        Ok(())
    }

    /// The broker does not serve what was asked for. Another one that leads the partition is asked next.
    fn refused(&mut self, state: PartitionState) -> Result<(), TankError> {
        let error = match state {
            PartitionState::OtherLeader(leader) if !self.was_redirected => {
                self.part.leader = Some(leader);
                self.part.high_water = 0;
                self.was_redirected = true;
                return Ok(());
            }
            PartitionState::OutOfBounds {
                high_water,
                first_available,
            } => return Err(self.out_of_bounds(high_water, first_available)),
            PartitionState::UnknownTopic | PartitionState::UnknownPartition => {
                TankError::new(TankErrorKind::UnknownName, "the broker has no such partition")
            }
            PartitionState::OtherLeader(leader) => {
                let what = format!("the broker that was named as the partition's leader names another one, {leader}");
                TankError::new(TankErrorKind::Refused, what).for_now()
            }
            _ => TankError::new(
                TankErrorKind::Refused,
                "the broker does not serve the partition at the moment",
            )
            .for_now(),
        };
        self.was_redirected = false;
        Err(error.with_sequence(self.part.next))
    }

    /// The next message is not there. Where it was, reading goes on at the first one that there is.
    fn out_of_bounds(&mut self, high_water: u64, first: u64) -> TankError {
        let next = self.part.next;
        self.part.high_water = high_water;
        self.was_redirected = false;
        let what = format!("message {next} is not there: the first is {first}, the last {high_water}");
        let error = TankError::new(TankErrorKind::OutOfRange, what).with_sequence(next);
        if next >= first {
            return error;
        }
        self.part.next = first;
        error.with_gap(Gap {
            partition: self.part.partition,
            from: next,
            // What is behind the end was not to be read.
            to: first.min(self.part.until),
        })
    }
}

#[cfg(test)]
mod tests;
