//! One server: its copies of the ranges, its log, and what it remembers of the writers.

use std::sync::Arc;

use sbp_replication::{Folding, Offered, Recovered, Replica, ReplicatedRange, Rule, Rules, Verdict};
use sbp_types::{Position, RangeIndex, ServerId};

use crate::driver::RangeRecord;
use crate::entries::{Batch, Content, Judgement, Logged, Writers};

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Its number; `None` until a placement driver has given it one.
    pub(crate) id: Option<ServerId>,
    pub(crate) is_up: bool,
    /// The highest term of an order that it followed, durable.
    pub(crate) term: u8,
    pub(crate) ranges: Vec<Held>,
    writers: Writers,
    folding: Folding,
}

/// A server's copy of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) replica: Replica,
    pub(crate) log: Vec<Logged>,
    /// So many entries of the log are on the disk.
    pub(crate) synced: usize,
    /// Where the copy ended when it was fenced, once that is on the disk.
    fenced_at: Option<Position>,
    /// Appends that wait to be confirmed.
    pub(crate) waiting: Vec<Waiting>,
    /// The most that readers were shown in this life of the server.
    pub(crate) shown: Position,
    /// A reader's question where the stream ends.
    pub(crate) question: Option<Question>,
}

/// An append that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) what: Append,
    pub(crate) until: Position,
    /// Where it is; `None` for a repeat of which that is not remembered.
    pub(crate) offset: Option<sbp_types::Offset>,
}

/// What a writer asks to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Append {
    Batch(Batch),
    Fence { writer: u8, epoch: u8 },
}

/// A reader asks where the stream ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// Who has said since that it is not fenced.
    pub(crate) said: Vec<ServerId>,
    /// What had been acknowledged when the question came.
    pub(crate) must_see: sbp_types::Offset,
}

impl Held {
    fn open(replica: Replica) -> Self {
        let shown = replica.range().beginning();
        Self {
            replica,
            log: Vec::new(),
            synced: 0,
            fenced_at: None,
            waiting: Vec::new(),
            shown,
            question: None,
        }
    }

    /// Gives an entry to the log.
    fn queue(&mut self, logged: Logged) -> Position {
        let end = logged.end();
        self.log.push(logged);
        self.replica.queued(end);
        end
    }

    /// The entry that begins at a place.
    pub(crate) fn entry_at(&self, at: Position) -> Option<&Logged> {
        self.log.iter().find(|logged| logged.at == at)
    }
}

impl Node {
    pub(crate) fn new(id: Option<ServerId>) -> Self {
        Self {
            id,
            is_up: true,
            term: 0,
            ranges: Vec::new(),
            writers: Writers::default(),
            folding: Folding::default(),
        }
    }

    pub(crate) fn held(&self, range: RangeIndex) -> Option<&Held> {
        self.ranges.iter().find(|held| held.replica.range().key.range == range)
    }

    pub(crate) fn held_mut(&mut self, range: RangeIndex) -> Option<&mut Held> {
        self.ranges
            .iter_mut()
            .find(|held| held.replica.range().key.range == range)
    }

    /// Whether it would follow an order of this term.
    pub(crate) fn would_follow(&self, term: Option<u8>, rules: Rules) -> bool {
        term.is_some_and(|term| term >= self.term || !rules.hold(Rule::OlderTermsRefused))
    }

    /// Follows an order of this term, or refuses it.
    pub(crate) fn follows(&mut self, term: u8, rules: Rules) -> bool {
        let is_old = term < self.term && rules.hold(Rule::OlderTermsRefused);
        self.term = self.term.max(term);
        !is_old
    }

    /// A placement driver says what it has stored of a range.
    pub(crate) fn told(&mut self, record: &RangeRecord, rules: Rules) {
        let Some(me) = self.id else { return };
        if !record.range.servers.contains(&me) {
            return;
        }
        let index = record.range.key.range;
        if self.held(index).is_none() {
            self.hold(&record.range, rules);
            if record.end.is_none() && record.range.primary() == Some(me) {
                self.begin_with_writers(index, rules);
            }
        }
        if let (Some(end), Some(held)) = (record.end, self.held_mut(index)) {
            held.end_told(end);
        }
        self.fold(rules);
    }

    /// A placement driver orders a fence. A range that was not known is known from then on, but never opened: its
    /// primary may not have been told where the range before it ends.
    pub(crate) fn fence(&mut self, range: &Arc<ReplicatedRange>, rules: Rules) {
        let index = range.key.range;
        if self.held(index).is_none() {
            self.hold(range, rules);
        }
        if let Some(held) = self.held_mut(index) {
            held.replica.fence();
        }
    }

    fn hold(&mut self, range: &Arc<ReplicatedRange>, rules: Rules) {
        let Some(me) = self.id else { return };
        self.ranges
            .push(Held::open(Replica::open(me, Arc::clone(range), rules)));
        self.ranges.sort_by_key(|held| held.replica.range().key.range);
    }

    fn begin_with_writers(&mut self, range: RangeIndex, rules: Rules) {
        let writers = self.writers.clone();
        let Some(held) = self.held_mut(range) else { return };
        if held.replica.range().begins_with_writers() && rules.hold(Rule::WritersTravel) {
            held.queue(Logged {
                at: held.replica.next(),
                content: Content::Writers(writers),
                is_late: false,
            });
        }
    }

    /// What the writers have stored, with what is queued in this range.
    fn writers_of(&self, held: &Held) -> Writers {
        let mut writers = match held.log.first().map(|logged| &logged.content) {
            Some(Content::Writers(_)) => Writers::default(),
            _ if held.replica.range().begins_with_writers() => self.writers.clone(),
            _ => Writers::default(),
        };
        for logged in &held.log {
            writers.fold(logged);
        }
        writers
    }

    /// A writer's append arrives. `fenced` is the highest epoch of that writer of which a fence was acknowledged.
    pub(crate) fn append(&mut self, range: RangeIndex, what: Append, fenced: u8, rules: Rules) {
        let Some(held) = self.held(range) else { return };
        if held.replica.takes_appends().is_err() {
            return;
        }
        let writers = self.writers_of(held);
        let Some(held) = self.held_mut(range) else { return };
        let at = held.replica.next();
        let (content, is_late) = match what {
            Append::Batch(batch) => match writers.judge(batch) {
                Judgement::Next => (Content::Batch(batch), batch.epoch < fenced),
                Judgement::Repeat(offset) => return held.repeat(what, offset, rules),
                Judgement::Gap | Judgement::Fenced => return,
            },
            Append::Fence { writer, epoch } => (Content::Fence { writer, epoch }, false),
        };
        let until = held.queue(Logged { at, content, is_late });
        held.waiting.push(Waiting {
            what,
            until,
            offset: Some(at.offset),
        });
    }

    /// Another server sends an entry.
    pub(crate) fn offered(
        &mut self,
        range: RangeIndex,
        offered: &Offered,
        logged: &Logged,
        rules: Rules,
    ) -> Option<Verdict> {
        let held = self.held_mut(range)?;
        let verdict = held.replica.offered(offered);
        if verdict == Verdict::Take {
            held.queue(logged.clone());
        }
        self.fold(rules);
        Some(verdict)
    }

    /// The log syncs its first `entries` that are not synced yet in each range, and the metadata with them.
    pub(crate) fn sync(&mut self, entries: usize, rules: Rules) {
        self.ranges.iter_mut().for_each(|held| held.sync(entries));
        self.fold(rules);
    }

    /// The log syncs what this server follows, and everything where a range is being sealed.
    pub(crate) fn sync_followed(&mut self, rules: Rules) {
        let me = self.id;
        if self.ranges.iter().any(Held::has_new_fence) {
            return self.sync(usize::MAX, rules);
        }
        for held in self
            .ranges
            .iter_mut()
            .filter(|held| held.replica.range().primary() != me)
        {
            held.sync(usize::MAX);
        }
        self.fold(rules);
    }

    /// Whether there is something to sync.
    pub(crate) fn can_sync(&self) -> bool {
        let dirty = |held: &Held| held.synced < held.log.len() || held.has_new_fence();
        self.is_up && self.ranges.iter().any(dirty)
    }

    /// The log drops what is queued.
    pub(crate) fn drop_queued(&mut self) {
        for held in &mut self.ranges {
            held.log.truncate(held.synced);
            held.replica.dropped();
            // Alone it knows that they are not stored. Where others hold the range, its end will tell.
            if held.replica.range().servers.len() == 1 {
                let queued = held.replica.next();
                held.waiting.retain(|waiting| waiting.until <= queued);
            }
        }
    }

    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        for held in &mut self.ranges {
            held.log.truncate(held.synced);
            held.waiting.clear();
            held.question = None;
        }
    }

    pub(crate) fn start(&mut self, rules: Rules) {
        let Some(me) = self.id else { return };
        self.is_up = true;
        (self.writers, self.folding) = Default::default();
        for held in &mut self.ranges {
            let range: Arc<ReplicatedRange> = Arc::clone(held.replica.range());
            let found = Recovered {
                synced: held.log.last().map_or(range.beginning(), Logged::end),
                fenced_at: held.fenced_at,
                end: held.replica.end(),
            };
            held.shown = range.beginning();
            held.replica = Replica::recover(me, range, found, rules);
            held.fenced_at = held.replica.fenced_at();
        }
        self.fold(rules);
    }

    /// Takes what is confirmed into what is remembered of the writers.
    pub(crate) fn fold(&mut self, rules: Rules) {
        for held in &self.ranges {
            let replica = &held.replica;
            let (synced, confirmed) = (replica.synced_end(), replica.confirmed());
            let index = replica.range().key.range;
            let Some(fold) = self
                .folding
                .fold(index, replica.range().beginning(), synced, confirmed, rules)
            else {
                continue;
            };
            let wanted = held
                .log
                .iter()
                .filter(|one| one.at >= fold.from && one.end() <= fold.to);
            wanted.for_each(|logged| self.writers.fold(logged));
        }
    }
}

impl Held {
    /// Whether there is a fence that is not on the disk.
    fn has_new_fence(&self) -> bool {
        self.replica.is_fenced() && self.fenced_at.is_none()
    }

    fn sync(&mut self, entries: usize) {
        self.synced = self.log.len().min(self.synced.saturating_add(entries));
        if let Some(last) = self.log.get(self.synced.wrapping_sub(1)) {
            self.replica.synced(last.end());
        }
        self.fenced_at = self.fenced_at.or(self.replica.fenced_at());
        if let Some(taken) = self.fenced_at {
            self.replica.fence_is_durable(taken);
        }
    }

    fn repeat(&mut self, what: Append, offset: Option<sbp_types::Offset>, rules: Rules) {
        let end = offset.and_then(|offset| offset.checked_add(1)).map(Position::start);
        // What is before the range is confirmed: the range began behind it.
        let waits = end.filter(|end| *end > self.replica.range().beginning() && *end > self.replica.confirmed());
        let until = waits
            .filter(|_| rules.hold(Rule::RepeatsWaitForConfirmed))
            .unwrap_or_default();
        self.waiting.push(Waiting { what, until, offset });
    }

    fn end_told(&mut self, end: Position) {
        self.replica.end_told(end);
        // Of what lies behind the end nobody ever hears again.
        self.log.retain(|logged| logged.end() <= end);
        self.synced = self.synced.min(self.log.len());
        self.waiting.retain(|waiting| waiting.until <= end);
    }
}
