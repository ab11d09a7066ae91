//! Copies of sealed ranges: which server is to have which range too, who sends it, and whose copy is done without.
//!
//! A sealed range never changes, so a copy of it can be made at any time, from any server that has all of it. It is made in
//! three steps, each durable before the next one: the server is written down as one that may lack some of the range, it is
//! sent what it lacks, and it is written down as complete. Whatever ends in between is begun again. A server that is away is
//! done without when there are as many whole copies elsewhere as wanted, whoever has made them, and when. So is one that is to be
//! emptied, which may still send its copies.
//!
//! A copy that cannot be made whole, because what the disk of its server has lost cannot be put back there, is done without too, when as
//! many servers have all of the range as have to acknowledge an append. It is made anew when the server has nothing of it any more, or
//! elsewhere.
//!
//! A server that is done without removes what it has of the range. It is written down who has not said yet that it has nothing
//! of it any more: until then the range is not given to it again, so that no order to remove it can ever be about a copy that
//! counts.
//!
//! Whoever opens the next range of a stream has to know its writers. All copies of a range say what they are at its end, but for two
//! kinds: of a range that one server alone had, which went on with the writers as it knew them; and of one that was trimmed. Who has
//! such a copy is written down as not knowing them, as long as nothing shows that a later range has the state of the writers: until
//! then nobody of those opens a range, and the last server that does know them is not done without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sbp_messages::ErrorCode;
use sbp_types::{Epoch, Position, RangeKey, ServerId, StreamId};

use super::choose::{Candidate, rank_behind};
use super::effects::{Effects, Order, Outcome};
use super::next_range::{known_range, next_key};
use super::records::RangeRecord;
use super::registry::Registry;
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// The most copies that are made at once.
const MOST_AT_ONCE: usize = 16;
/// When a copy that could not be made is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest until one is tried again that was refused, because of what the disk has lost there: twice as long each time.
const AGAIN_AFTER_AT_MOST: Duration = Duration::from_secs(60);

/// A step of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyStep {
    /// The server is to have a copy of the range.
    Add,
    /// `source` sends the server what that lacks of the range up to its end.
    Send {
        source: ServerId,
        epoch: Epoch,
        end: Position,
    },
    /// The servers that are `away`, or to be emptied, are not counted on any more: others have all of the range.
    Release { away: Vec<ServerId> },
    /// The copy cannot be made whole: it is removed, and made anew.
    Replace,
}

/// How many copies are being made and how many wait, for other threads.
#[derive(Debug, Default)]
pub(super) struct CopyCounts {
    made: AtomicUsize,
    waiting: AtomicUsize,
}

impl CopyCounts {
    pub(super) fn note(&self, (made, waiting): (usize, usize)) {
        self.made.store(made, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// How many copies are being made, and how many sealed ranges wait for one.
    pub(super) fn read(&self) -> (usize, usize) {
        (self.made.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }
}

/// A copy that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copy {
    pub(super) key: RangeKey,
    /// The server that gets it.
    pub(super) to: ServerId,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// A step was begun and has not ended. If it is refused, the next one is begun so long afterwards.
    UnderWay { source: Option<ServerId>, pause: Duration },
    /// The last step did not succeed; the next one is begun then. The pause after it, if it is refused.
    Again(Instant, Duration),
}

/// The copies that are being made.
#[derive(Debug)]
pub(super) struct Copies {
    /// How long a server is away before its copies are made elsewhere.
    replace_after: Duration,
    made: BTreeMap<Copy, Progress>,
    /// Since when servers have not taken what they were sent, because of what their disks have lost.
    refused: BTreeMap<Copy, Instant>,
    /// How many sealed ranges wait for a copy.
    waiting: usize,
}

impl Copies {
    pub(super) fn new(replace_after: Duration) -> Self {
        Self {
            replace_after,
            made: BTreeMap::new(),
            refused: BTreeMap::new(),
            waiting: 0,
        }
    }

    /// The steps to begin now. Each is under way until it has [`ended`](Self::ended). Copies of which a server may lack some
    /// come first, then those of servers that are away.
    ///
    /// `may_note`: whether every placement driver that could lead next reads who does not know the writers.
    pub(super) fn due(
        &mut self,
        state: &PlacementState,
        registry: &Registry,
        may_note: bool,
        now: Instant,
    ) -> Vec<(Copy, CopyStep)> {
        let is_gone = |server: ServerId| self.is_gone(state, registry, server, now);
        let gone: Vec<_> = state
            .servers()
            .map(|record| record.id)
            .filter(|id| is_gone(*id))
            .collect();
        let mut candidates = registry.candidates(now);
        // What one server alone has it can send if it keeps copies for others.
        let senders: BTreeSet<ServerId> = candidates.iter().filter(|it| it.replicates).map(|it| it.id).collect();
        let can_hold = |candidate: &Candidate| candidate.replicates && !state.is_draining(candidate.id);
        candidates.retain(|candidate| can_hold(candidate) && self.is_settled(registry, candidate.id, now));
        let is_wanted = |copy: &Copy| {
            let range = state.range(copy.key);
            range.is_some_and(|range| range.incomplete.contains(&copy.to))
        };
        // One that is over, or that nobody wants any more, leaves its place to others.
        self.made
            .retain(|copy, progress| matches!(progress, Progress::UnderWay { .. }) || is_wanted(copy));
        self.refused.retain(|copy, _| is_wanted(copy));
        let mut steps = Vec::new();
        if may_note {
            self.replace_what_stays_damaged(state, now, &mut steps);
        }
        self.retry(state, registry, now, &mut steps);
        let has_source = |range: &&Arc<RangeRecord>| range.complete().any(|server| registry.is_up(server, now));
        let can_be_copied = |range: &&Arc<RangeRecord>| match range.servers[..] {
            [alone] => senders.contains(&alone) && may_note,
            _ => may_note || has_next(state, range),
        };
        let wanting = || state.sealed_and_wanting(&gone).filter(can_be_copied);
        let ranges = || wanting().filter(has_source);
        for range in ranges() {
            self.release_what_is_away(state, registry, range, now, &mut steps);
        }
        for range in ranges() {
            if !self.has_room() {
                break;
            }
            self.send_what_lacks(registry, range, now, &mut steps);
        }
        for range in ranges() {
            if !self.has_room() {
                break;
            }
            self.add_where_few(state, registry, &candidates, range, now, &mut steps);
        }
        let is_made = |range: &RangeRecord| self.made.keys().any(|copy| copy.key == range.key);
        let waits = |range: &&Arc<RangeRecord>| self.needs_copy(state, registry, range, now) && !is_made(range);
        self.waiting = wanting().filter(waits).count();
        steps
    }

    /// Whether more may be under way. Those that wait to be tried again keep no others from their turn.
    fn has_room(&self) -> bool {
        let under_way = self
            .made
            .values()
            .filter(|progress| matches!(progress, Progress::UnderWay { .. }));
        under_way.count() < MOST_AT_ONCE
    }

    fn release_what_is_away(
        &mut self,
        state: &PlacementState,
        registry: &Registry,
        range: &RangeRecord,
        now: Instant,
        steps: &mut Vec<(Copy, CopyStep)>,
    ) {
        let away = self.gone_of(state, range, registry, now);
        let Some(first) = away.first() else { return };
        let copy = Copy {
            key: range.key,
            to: *first,
        };
        if may_go(state, range, &away) && !self.made.contains_key(&copy) {
            self.begin(copy, CopyStep::Release { away }, steps);
        }
    }

    /// Copies that could not be made whole for as long as a server may be away are done without.
    fn replace_what_stays_damaged(&mut self, state: &PlacementState, now: Instant, steps: &mut Vec<(Copy, CopyStep)>) {
        let late = self
            .refused
            .iter()
            .filter(|(_, since)| **since + self.replace_after <= now);
        let late: Vec<Copy> = late.map(|(copy, _)| *copy).collect();
        for copy in late {
            let is_under_way = matches!(self.made.get(&copy), Some(Progress::UnderWay { .. }));
            let range = state.range(copy.key).filter(|_| !is_under_way);
            if range.is_some_and(|range| may_be_replaced(state, range, copy.to)) {
                self.begin(copy, CopyStep::Replace, steps);
            }
        }
    }

    fn send_what_lacks(
        &mut self,
        registry: &Registry,
        range: &RangeRecord,
        now: Instant,
        steps: &mut Vec<(Copy, CopyStep)>,
    ) {
        for to in range
            .incomplete
            .iter()
            .copied()
            .filter(|server| registry.is_up(*server, now))
        {
            let copy = Copy { key: range.key, to };
            if !self.made.contains_key(&copy)
                && let Some(step) = self.send(registry, range, now)
            {
                self.begin(copy, step, steps);
            }
        }
    }

    fn add_where_few(
        &mut self,
        state: &PlacementState,
        registry: &Registry,
        candidates: &[Candidate],
        range: &RangeRecord,
        now: Instant,
        steps: &mut Vec<(Copy, CopyStep)>,
    ) {
        let key = range.key;
        let has_few = self.has_few(state, registry, range, now);
        let is_added = self
            .made
            .keys()
            .any(|copy| copy.key == key && !range.servers.contains(&copy.to));
        if has_few
            && !is_added
            && let Some(to) = next_holder(state, candidates, range)
        {
            self.begin(Copy { key, to }, CopyStep::Add, steps);
        }
    }

    /// Begins those anew that did not succeed, when it is time.
    fn retry(&mut self, state: &PlacementState, registry: &Registry, now: Instant, steps: &mut Vec<(Copy, CopyStep)>) {
        let is_due = |(copy, progress): (&Copy, &Progress)| match progress {
            Progress::Again(at, _) if *at <= now && registry.is_up(copy.to, now) => Some(*copy),
            _ => None,
        };
        let due: Vec<_> = self.made.iter().filter_map(is_due).collect();
        for copy in due {
            if !self.has_room() {
                break;
            }
            let step = state.range(copy.key).and_then(|range| self.send(registry, range, now));
            if let Some(step) = step {
                self.begin(copy, step, steps);
            }
        }
    }

    /// The order to the server that has all of a range and sends the fewest others.
    fn send(&self, registry: &Registry, range: &RangeRecord, now: Instant) -> Option<CopyStep> {
        let sends = |server: ServerId| {
            let of =
                |progress: &&Progress| matches!(progress, Progress::UnderWay { source, .. } if *source == Some(server));
            self.made.values().filter(of).count()
        };
        let sources = range.complete().filter(|server| registry.is_up(*server, now));
        let source = sources.min_by_key(|server| sends(*server))?;
        Some(CopyStep::Send {
            source,
            epoch: range.epoch,
            end: range.end()?,
        })
    }

    fn begin(&mut self, copy: Copy, step: CopyStep, steps: &mut Vec<(Copy, CopyStep)>) {
        let source = match step {
            CopyStep::Add | CopyStep::Release { .. } | CopyStep::Replace => None,
            CopyStep::Send { source, .. } => Some(source),
        };
        let pause = match self.made.get(&copy) {
            Some(Progress::Again(_, pause) | Progress::UnderWay { pause, .. }) => *pause,
            None => AGAIN_AFTER,
        };
        self.made.insert(copy, Progress::UnderWay { source, pause });
        steps.push((copy, step));
    }

    /// A step has ended: well, or to be tried again.
    pub(super) fn ended(&mut self, copy: Copy, is_done: bool, now: Instant) {
        // One that only took too long may be taking now what it has refused before.
        self.refused.remove(&copy);
        if is_done {
            self.made.remove(&copy);
        } else {
            self.made.insert(copy, Progress::Again(now + AGAIN_AFTER, AGAIN_AFTER));
        }
    }

    /// The server does not take what it was sent, because of what its disk has lost: it is tried less and less often.
    pub(super) fn is_refused(&mut self, copy: Copy, now: Instant) {
        let pause = match self.made.get(&copy) {
            Some(Progress::UnderWay { pause, .. }) => *pause,
            _ => AGAIN_AFTER,
        };
        let next = AGAIN_AFTER_AT_MOST.min(pause * 2);
        self.refused.entry(copy).or_insert(now);
        self.made.insert(copy, Progress::Again(now + pause, next));
    }

    /// The servers of a range whose copies are not counted on.
    fn gone_of(&self, state: &PlacementState, range: &RangeRecord, registry: &Registry, now: Instant) -> Vec<ServerId> {
        let servers = range.servers.iter().copied();
        servers
            .filter(|server| self.is_gone(state, registry, *server, now))
            .collect()
    }

    /// Whether a range is on too few servers that are counted on.
    fn has_few(&self, state: &PlacementState, registry: &Registry, range: &RangeRecord, now: Instant) -> bool {
        let stays = |server: &&ServerId| !self.is_gone(state, registry, **server, now);
        range.servers.iter().filter(stays).count() < wanted(state, range.key.stream)
    }

    /// Whether a sealed range wants another copy, or more of one.
    fn needs_copy(&self, state: &PlacementState, registry: &Registry, range: &RangeRecord, now: Instant) -> bool {
        !range.incomplete.is_empty() || self.has_few(state, registry, range, now)
    }

    /// How many copies are being made, and how many sealed ranges wait for one, as it was when it was looked last.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.made.len(), self.waiting)
    }

    /// Whether copies on a server are not counted on: it is to be emptied, or has been away for long.
    fn is_gone(&self, state: &PlacementState, registry: &Registry, server: ServerId, now: Instant) -> bool {
        state.is_draining(server) || self.is_away(registry, server, now)
    }

    fn is_away(&self, registry: &Registry, server: ServerId, now: Instant) -> bool {
        let away = registry.away_for(server, now);
        away.is_some_and(|away| away >= self.replace_after)
    }

    /// Whether a server has been there for so long that it can be relied on.
    fn is_settled(&self, registry: &Registry, server: ServerId, now: Instant) -> bool {
        let up_for = registry.up_for(server, now);
        up_for.is_some_and(|up_for| up_for >= self.replace_after.min(SETTLED_AFTER))
    }
}

/// A server that has been there for so long can be relied on to get copies.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// How many servers are to have each range of a stream.
fn wanted(state: &PlacementState, stream: StreamId) -> usize {
    let wanted = state.stream(stream).map(|stream| stream.settings.replica_count);
    wanted.and_then(|wanted| usize::try_from(wanted).ok()).unwrap_or(0)
}

/// The server that is to have a range too: of those that have nothing of it, one with the fewest; one in a zone where nobody has the
/// range first.
fn next_holder(state: &PlacementState, candidates: &[Candidate], range: &RangeRecord) -> Option<ServerId> {
    let ranked = rank_behind(state, candidates, range.key).into_iter();
    let has_some = |server: &ServerId| range.servers.contains(server) || range.let_go.contains(server);
    let others = ranked.filter(|server| !has_some(server));
    let of = |server: ServerId| candidates.iter().find(|candidate| candidate.id == server);
    // Where those stand that keep the range: not those that are away, and not those that are to be emptied.
    let kept = range
        .servers
        .iter()
        .filter_map(|server| of(*server))
        .filter(|server| !server.avoided);
    let zones: Vec<_> = kept.filter_map(|server| server.zone).collect();
    let has_zone = |server: ServerId| {
        of(server)
            .and_then(|server| server.zone)
            .is_some_and(|zone| zones.contains(&zone))
    };
    others.min_by_key(|server| (has_zone(*server), state.sealed_ranges_on(*server)))
}

/// Writes down that a server is to have a copy of a sealed range, and tells it.
pub(super) fn add_copy(state: &PlacementState, copy: Copy) -> Result<Effects, Refusal> {
    let range = sealed(state, copy.key)?;
    let Some(stream) = state.stream(copy.key.stream) else {
        return Err(Refusal::no_stream(copy.key.stream));
    };
    if range.servers.contains(&copy.to) {
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(range))));
    }
    if range.let_go.contains(&copy.to) {
        let message = format!(
            "server {} still removes what it has of range {}: it gets it again when it has nothing of it any more",
            copy.to, copy.key
        );
        return Err(Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message));
    }
    let mut added = RangeRecord::clone(range);
    added.servers.push(copy.to);
    added.incomplete.push(copy.to);
    if (range.is_on_one() || !range.unknowing.is_empty()) && !went_on(state, copy.key) {
        added.unknowing.push(copy.to);
    }
    let added = Arc::new(added);
    Ok(Effects {
        orders: Order::install(stream, &[copy.to], &[&added]),
        changes: vec![Change::PutRange(Arc::clone(&added))],
        outcome: Outcome::Range(added),
    })
}

/// Writes down that a server has all of a sealed range.
pub(super) fn finish_copy(state: &PlacementState, copy: Copy) -> Result<Effects, Refusal> {
    let range = sealed(state, copy.key)?;
    let mut finished = RangeRecord::clone(range);
    finished.incomplete.retain(|server| *server != copy.to);
    if range.incomplete.contains(&copy.to) && learns_no_writers(state, range, copy.to) {
        finished.unknowing.push(copy.to);
    }
    Ok(changed(range, finished))
}

/// Whether a server that is sent what it lacks of a range is to be written down as not knowing the writers by that, and is not yet:
/// what was trimmed when it was sent begins without what says who they are.
fn learns_no_writers(state: &PlacementState, range: &RangeRecord, server: ServerId) -> bool {
    let is_trimmed = range.start_offset > range.opened_offset;
    let is_new = !range.unknowing.contains(&server);
    is_new && (!range.unknowing.is_empty() || (is_trimmed && !has_next(state, range)))
}

/// Whether it is news that a server lacks some of a sealed range, of which it counts as having all.
///
/// Not where it is the last one that counts so: nobody has what it lacks, and it goes on being the one to ask. Nor where it would count as
/// one that does not know the writers once it was sent what it lacks: it may be the last one that does. Its records come back, but
/// meanwhile it counts as before.
pub(super) fn is_news(state: &PlacementState, server: ServerId, key: RangeKey, epoch: Epoch) -> bool {
    let range = state
        .range(key)
        .filter(|range| range.epoch == epoch && range.end_offset.is_some());
    range.is_some_and(|range| {
        let counts = range.complete().any(|holder| holder == server);
        let is_last = range.complete().all(|holder| holder == server);
        counts && !is_last && !learns_no_writers(state, range, server)
    })
}

/// Writes down that a server lacks some of a sealed range, of which it counted as having all: it is not counted on before it was sent
/// that.
pub(super) fn lacks_some(state: &PlacementState, copy: Copy) -> Result<Effects, Refusal> {
    let range = sealed(state, copy.key)?;
    if !is_news(state, copy.to, copy.key, range.epoch) {
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(range))));
    }
    let mut lacking = RangeRecord::clone(range);
    lacking.incomplete.push(copy.to);
    Ok(changed(range, lacking))
}

/// Writes down that the servers that are `away` are not counted on for a sealed range, unless too few others have all of it.
///
/// Unless it can be kept who has not removed what it has, nobody is told to: as in earlier versions it stays there, and is not used.
pub(super) fn release_copies(
    state: &PlacementState,
    key: RangeKey,
    away: &[ServerId],
    notes_copies: bool,
) -> Result<Effects, Refusal> {
    let range = sealed(state, key)?;
    let mut released = RangeRecord::clone(range);
    if may_go(state, range, away) {
        let stays = |server: &ServerId| !away.contains(server);
        released.servers.retain(stays);
        released.incomplete.retain(stays);
        released.unknowing.retain(stays);
    }
    let gone = range.servers.iter().filter(|server| !released.servers.contains(server));
    let gone: Vec<_> = gone.filter(|_| notes_copies).copied().collect();
    released.let_go.extend(&gone);
    let mut effects = changed(range, released);
    if let Outcome::Range(released) = &effects.outcome {
        let order = |server| Order::let_go(server, key.stream, [&**released]);
        effects.orders = gone.into_iter().map(order).collect();
    }
    Ok(effects)
}

/// Writes down that a server, whose copy of a sealed range cannot be made whole, is to remove it. Once it has nothing of it any more it may
/// be given the range again.
pub(super) fn replace_copy(state: &PlacementState, copy: Copy) -> Result<Effects, Refusal> {
    let range = sealed(state, copy.key)?;
    if !may_be_replaced(state, range, copy.to) {
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(range))));
    }
    let stays = |server: &ServerId| *server != copy.to;
    let mut replaced = RangeRecord::clone(range);
    replaced.servers.retain(stays);
    replaced.incomplete.retain(stays);
    replaced.unknowing.retain(stays);
    replaced.let_go.push(copy.to);
    let replaced = Arc::new(replaced);
    Ok(Effects {
        orders: vec![Order::let_go(copy.to, copy.key.stream, [&*replaced])],
        changes: vec![Change::PutRange(Arc::clone(&replaced))],
        outcome: Outcome::Range(replaced),
    })
}

/// Whether a copy that does not count can be removed: as many servers have all of the range as acknowledge what is appended, and two at
/// least, because the last one counts although it may have lost some; and nobody has to learn of the writers from this one.
fn may_be_replaced(state: &PlacementState, range: &RangeRecord, server: ServerId) -> bool {
    let acks = state.stream(range.key.stream).map(|stream| stream.settings.ack_count);
    let acks = acks.and_then(|acks| usize::try_from(acks).ok()).unwrap_or(usize::MAX);
    let lacks_some = range.end_offset.is_some() && range.incomplete.contains(&server);
    lacks_some && whole_elsewhere(range, &[server]) >= acks.max(2) && are_writers_known_without(state, range, &[server])
}

/// A server has nothing any more of ranges that it was let go of.
pub(super) fn cleared_on(state: &PlacementState, server: ServerId, keys: &[RangeKey]) -> Effects {
    let ranges = keys.iter().filter_map(|key| state.range(*key));
    let changes = ranges.filter(|range| range.let_go.contains(&server)).map(|range| {
        let mut cleared = RangeRecord::clone(range);
        cleared.let_go.retain(|one| *one != server);
        Change::PutRange(Arc::new(cleared))
    });
    Effects {
        changes: changes.collect(),
        ..Effects::nothing(Outcome::Done)
    }
}

/// Whether the servers that are `away` can be done without: enough others have all of the range, and nobody has to learn of the
/// writers from these.
fn may_go(state: &PlacementState, range: &RangeRecord, away: &[ServerId]) -> bool {
    let is_enough = whole_elsewhere(range, away) >= wanted(state, range.key.stream).max(1);
    is_enough && are_writers_known_without(state, range, away)
}

/// Whether nobody has to learn of the writers from the servers that are `away`.
fn are_writers_known_without(state: &PlacementState, range: &RangeRecord, away: &[ServerId]) -> bool {
    let is_known_elsewhere = || range.knowing().any(|server| !away.contains(&server));
    went_on(state, range.key) || (has_next(state, range) && is_known_elsewhere())
}

fn has_next(state: &PlacementState, range: &RangeRecord) -> bool {
    next_key(range.key).is_some_and(|next| state.range(next).is_some())
}

/// Whether a later range of the stream has the state of the writers, or is on a server that knew it, as far as is known: an open
/// range of several servers may not have been begun.
fn went_on(state: &PlacementState, key: RangeKey) -> bool {
    let mut ranges = state.ranges_of(key.stream).rev();
    ranges.any(|later| later.key > key && later.was_begun())
}

/// How many servers have all of a range, without those that are `away`.
fn whole_elsewhere(range: &RangeRecord, away: &[ServerId]) -> usize {
    range.complete().filter(|server| !away.contains(server)).count()
}

/// The change of a range that is this one from now on.
fn changed(old: &Arc<RangeRecord>, new: RangeRecord) -> Effects {
    if **old == new {
        return Effects::nothing(Outcome::Range(Arc::clone(old)));
    }
    let new = Arc::new(new);
    Effects {
        changes: vec![Change::PutRange(Arc::clone(&new))],
        orders: Vec::new(),
        outcome: Outcome::Range(new),
    }
}

fn sealed(state: &PlacementState, key: RangeKey) -> Result<&Arc<RangeRecord>, Refusal> {
    let range = known_range(state, key)?;
    if range.end_offset.is_none() {
        let message = format!("range {key} is open: only sealed ranges are copied");
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
    }
    Ok(range)
}
