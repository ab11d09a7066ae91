//! One server: its copies of the ranges, its log, and what it remembers of the writers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sbp_replication::{
    Contact, Foldable, Folding, HighestTerm, Offered, Order, PATIENCE, Replica, ReplicatedRange, Rule, Rules, Term,
    Verdict, presumed_confirmed,
};
use sbp_types::{Offset, Position, RangeIndex, ServerId};

use crate::driver::RangeRecord;
use crate::entries::{Append, Content, Judgement, Logged, Writers};
use crate::held::{Held, Waiting};
use crate::scenario::Scenario;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Its number; `None` until a placement driver has given it one.
    pub(crate) id: Option<ServerId>,
    pub(crate) is_up: bool,
    /// The highest term of an order that it followed.
    term: HighestTerm,
    /// The same, on the disk.
    durable_term: Term,
    pub(crate) ranges: Vec<Held>,
    /// The stream's first offset, as far as it was told.
    pub(crate) start: Offset,
    writers: Writers,
    folding: Folding,
    /// Both of these, on the disk: what was folded of entries that are trimmed, or came with a copy.
    checkpoint: (Writers, Folding),
    /// Servers that it did not hear for too long.
    pub(crate) missed: BTreeSet<ServerId>,
}

impl Node {
    pub(crate) fn new(id: Option<ServerId>) -> Self {
        Self {
            id,
            is_up: true,
            term: HighestTerm::default(),
            durable_term: Term::default(),
            ranges: Vec::new(),
            start: Offset::ZERO,
            writers: Writers::default(),
            folding: Folding::default(),
            checkpoint: Default::default(),
            missed: BTreeSet::new(),
        }
    }

    pub(crate) fn held(&self, range: RangeIndex) -> Option<&Held> {
        self.ranges.iter().find(|held| held.index() == range)
    }

    pub(crate) fn held_mut(&mut self, range: RangeIndex) -> Option<&mut Held> {
        self.ranges.iter_mut().find(|held| held.index() == range)
    }

    /// Whether it would follow an order of this term.
    pub(crate) fn would_follow(&self, term: Option<Term>, rules: Rules) -> bool {
        term.is_some_and(|term| !matches!(self.term.judge(term, rules), Order::Refuse(_)))
    }

    /// Follows an order of this term, or refuses it.
    pub(crate) fn follows(&mut self, term: Term, rules: Rules) -> bool {
        !matches!(self.term.follow(term, rules), Order::Refuse(_))
    }

    /// Whether this server goes on with new appends of a range, by whom it has heard of late.
    pub(crate) fn serves(&self, range: &ReplicatedRange, rules: Rules) -> bool {
        let Some(me) = self.id else { return false };
        let (begun, now) = (Duration::ZERO, PATIENCE * 2);
        let mut contact = Contact::new(me, begun, PATIENCE);
        let heard = range.servers.iter().filter(|server| !self.missed.contains(server));
        heard.for_each(|server| contact.heard(*server, now));
        contact.serves(range, now, rules)
    }

    /// A placement driver says what it has stored of a range.
    pub(crate) fn told(&mut self, record: &RangeRecord, scenario: &Scenario) {
        let Some(me) = self.id else { return };
        if !record.is_on(me) {
            return;
        }
        let index = record.range.key.range;
        if self.held(index).is_none() {
            self.hold(&record.range, scenario);
            let opens = record.end.is_none() && record.range.primary() == Some(me);
            if let Some(held) = self.held_mut(index) {
                held.opens = opens;
            }
            self.open(scenario);
        }
        if let (Some(end), Some(held)) = (record.end, self.held_mut(index)) {
            held.end_told(end);
        }
        self.fold(scenario.rules);
    }

    /// A placement driver orders a fence. A range that was not known is known from then on, but never opened: its
    /// primary may not have been told where the range before it ends.
    pub(crate) fn fence(&mut self, range: &Arc<ReplicatedRange>, scenario: &Scenario) {
        let index = range.key.range;
        if self.held(index).is_none() {
            self.hold(range, scenario);
        }
        if let Some(held) = self.held_mut(index) {
            // Another epoch is another range.
            let _other = held.replica.fence(range.epoch);
        }
    }

    fn hold(&mut self, range: &Arc<ReplicatedRange>, scenario: &Scenario) {
        let Some(me) = self.id else { return };
        let replica = Replica::open(me, Arc::clone(range), scenario.rules);
        let mut held = Held::open(replica.with_most_unconfirmed(scenario.most_unconfirmed));
        held.trimmed(self.start);
        self.ranges.push(held);
        self.ranges.sort_by_key(Held::index);
    }

    /// The primary of a new range begins it, once it is known to be here whatever happens.
    fn open(&mut self, scenario: &Scenario) {
        let rules = scenario.rules;
        for held in &mut self.ranges {
            let is_known = held.is_known || !rules.hold(Rule::KnownBeforeOpened);
            if !held.opens || !is_known || held.replica.is_fenced() {
                continue;
            }
            held.opens = false;
            if held.replica.range().begins_with_writers() && rules.hold(Rule::WritersTravel) {
                held.replica.begin_with_writers(scenario.parts);
                for content in self.writers.parts(scenario.parts) {
                    held.queue(Logged::new(held.replica.next(), content));
                }
            }
        }
    }

    /// What the writers have stored, with what is queued in this range.
    fn writers_of(&self, held: &Held) -> Writers {
        let (mut writers, from) = match self.folding.newest() {
            Some((range, at)) if range == held.index() => (self.writers.clone(), at),
            // It goes on with the writers as they are known here.
            Some(_) if held.replica.range().goes_on_alone() => (self.writers.clone(), held.replica.range().beginning()),
            _ => (Writers::default(), held.replica.range().beginning()),
        };
        for logged in held.log.iter().filter(|logged| logged.at >= from) {
            writers.fold(logged);
        }
        writers
    }

    /// Whether a writer's append to a range would be taken.
    pub(crate) fn takes_appends(&self, held: &Held, rules: Rules) -> bool {
        let is_known = held.is_known || !rules.hold(Rule::KnownBeforeOpened);
        self.is_up && is_known && held.replica.takes_appends().is_ok() && self.serves(held.replica.range(), rules)
    }

    /// A writer's append arrives. `fenced` is the highest epoch of that writer of which a fence was acknowledged.
    pub(crate) fn append(&mut self, range: RangeIndex, what: Append, fenced: u8, rules: Rules) {
        let Some(held) = self.held(range) else { return };
        if !self.takes_appends(held, rules) {
            return;
        }
        let writers = self.writers_of(held);
        let Some(held) = self.held_mut(range) else { return };
        let at = held.replica.next();
        let (content, is_late) = match what {
            Append::Batch(batch) => match writers.judge(batch) {
                Judgement::Next => (Content::Batch(batch), batch.epoch < fenced),
                Judgement::Repeat(offset) => return held.repeat(what, offset),
                Judgement::Gap | Judgement::Fenced => return,
            },
            Append::Fence { writer, epoch } => (Content::Fence { writer, epoch }, false),
        };
        let until = held.queue(Logged {
            is_late,
            ..Logged::new(at, content)
        });
        held.waiting.push(Waiting {
            what,
            until,
            offset: Some(at.offset),
        });
    }

    /// Another server sends an entry; `None` if nothing is said to it.
    pub(crate) fn offered(
        &mut self,
        range: RangeIndex,
        offered: &Offered,
        logged: &Logged,
        rules: Rules,
    ) -> Option<Verdict> {
        let held = self.held_mut(range)?;
        if !held.is_known && rules.hold(Rule::KnownBeforeOpened) {
            return None;
        }
        let verdict = held.replica.offered(offered);
        held.take(verdict, offered, logged);
        self.fold(rules);
        Some(verdict)
    }

    /// The log syncs its first `entries` that are not synced yet in each range.
    pub(crate) fn sync(&mut self, entries: usize, rules: Rules) {
        self.ranges.iter_mut().for_each(|held| held.sync(entries));
        self.fold(rules);
    }

    /// What is known of ranges, their fences and ends, and the term, are made durable.
    pub(crate) fn commit(&mut self, scenario: &Scenario) {
        self.durable_term = self.term.get();
        self.ranges.iter_mut().for_each(Held::commit);
        self.open(scenario);
        self.fold(scenario.rules);
    }

    /// The log syncs what this server follows, and everything where a range is being sealed.
    pub(crate) fn sync_followed(&mut self, scenario: &Scenario) {
        let me = self.id;
        let seals = self.ranges.iter().any(Held::has_new_fence);
        let wanted = |held: &&mut Held| seals || held.replica.range().primary() != me;
        self.ranges
            .iter_mut()
            .filter(wanted)
            .for_each(|held| held.sync(usize::MAX));
        self.commit(scenario);
    }

    /// Whether there is something to sync.
    pub(crate) fn can_sync(&self) -> bool {
        self.is_up && self.ranges.iter().any(Held::can_sync)
    }

    /// Whether there is something to make durable of what is known of ranges.
    pub(crate) fn can_commit(&self) -> bool {
        let is_new = self.ranges.iter().any(Held::can_commit) || self.durable_term != self.term.get();
        self.is_up && is_new
    }

    /// The log drops what is queued.
    pub(crate) fn drop_queued(&mut self) {
        self.ranges.iter_mut().for_each(Held::drop_queued);
    }

    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        self.missed.clear();
        self.term = HighestTerm::new(self.durable_term);
        self.ranges.retain(|held| held.is_known);
        self.ranges.iter_mut().for_each(Held::crash);
    }

    pub(crate) fn start(&mut self, scenario: &Scenario) {
        let Some(me) = self.id else { return };
        self.is_up = true;
        (self.writers, self.folding) = self.checkpoint.clone();
        for held in &mut self.ranges {
            held.start(me, scenario);
            held.trimmed(self.start);
        }
        self.fold(scenario.rules);
        // A log knows no better of an open range than that all but its last entries are confirmed.
        let presumed: Vec<_> = self
            .ranges
            .iter()
            .map(|held| {
                let ends = held.log[..held.synced].iter().map(Logged::end);
                presumed_confirmed(ends, scenario.most_unconfirmed)
            })
            .collect();
        for (place, presumed) in presumed.into_iter().enumerate() {
            let mut copy = Foldable::of(&self.ranges[place].replica);
            copy.confirmed = copy.confirmed.max(presumed.unwrap_or(copy.confirmed));
            self.fold_copy(place, &copy, scenario.rules);
        }
    }

    /// Takes what is confirmed into what is remembered of the writers.
    pub(crate) fn fold(&mut self, rules: Rules) {
        for place in 0..self.ranges.len() {
            let copy = Foldable::of(&self.ranges[place].replica);
            self.fold_copy(place, &copy, rules);
            let held = &self.ranges[place];
            if let (Some(end), Some(closing)) = (held.replica.end(), held.closing())
                && self.folding.closed(held.index(), end)
            {
                self.writers = Writers::default();
                for content in closing {
                    self.writers.fold(&Logged::new(end, content.clone()));
                }
                self.checkpoint = (self.writers.clone(), self.folding.clone());
            }
        }
    }

    fn fold_copy(&mut self, place: usize, copy: &Foldable, rules: Rules) {
        let Some(fold) = self.folding.fold(copy, rules) else {
            return;
        };
        let log = self.ranges[place].log.iter();
        let wanted = log.filter(|one| one.at >= fold.from && one.end() <= fold.to);
        wanted.for_each(|logged| self.writers.fold(logged));
    }

    /// The stream is trimmed up to here. What was folded of it is durable before it goes.
    pub(crate) fn trimmed(&mut self, start: Offset, rules: Rules) {
        self.start = self.start.max(start);
        let start = self.start;
        self.ranges
            .iter_mut()
            .for_each(|held| held.replica.trimmed(start, Position::default()));
        self.fold(rules);
        let goes = |held: &Held| held.log.iter().any(|logged| logged.is_before(start));
        if self.ranges.iter().any(goes) {
            self.checkpoint = (self.writers.clone(), self.folding.clone());
        }
        self.ranges.iter_mut().for_each(|held| held.trimmed(start));
    }

    /// Begins to copy a sealed range to another server. Where it is the last one that is known to have entries, the state of
    /// the writers follows.
    pub(crate) fn copy_to(&mut self, server: ServerId, range: RangeIndex, scenario: &Scenario) {
        let closing = self.closing_state(range, scenario.parts);
        let Some(held) = self.held_mut(range) else { return };
        let parts = u32::try_from(closing.len()).expect("few parts");
        held.closes_with = closing;
        held.replica.copy([server], parts);
    }

    fn closing_state(&self, range: RangeIndex, parts: u32) -> Vec<Content> {
        let end = self.held(range).and_then(|held| held.replica.end());
        if end.is_some_and(|end| self.folding.newest() == Some((range, end))) {
            self.writers.parts(parts).collect()
        } else {
            Vec::new()
        }
    }
}
