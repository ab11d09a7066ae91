//! A server's copy of a range, in memory and on its disk.

use std::sync::Arc;

use sbp_replication::{EndQuestion, Offered, Recovered, Replica, ReplicatedRange, Verdict};
use sbp_types::{Offset, Position, RangeIndex, ServerId};

use crate::entries::{Append, Content, Logged};
use crate::scenario::Scenario;

/// A server's copy of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) replica: Replica,
    pub(crate) log: Vec<Logged>,
    /// So many entries of the log are on the disk.
    pub(crate) synced: usize,
    /// Whether it is on the disk that the range is here.
    pub(crate) is_known: bool,
    /// Whether this server is its primary, and has not begun it yet.
    pub(crate) opens: bool,
    /// Where the copy ended when it was fenced, once that is on the disk.
    fenced_at: Option<Position>,
    /// The range's end, once that is on the disk.
    end: Option<Position>,
    /// Where the copy begins, as it is on the disk.
    begins_at: Position,
    /// Everything before it is trimmed.
    floor: Position,
    /// Whether it is unknown where the copy ends.
    pub(crate) is_end_damaged: bool,
    /// The disk has lost the end, and no placement driver that leads has heard that the copy is not whole.
    pub(crate) has_unsaid_loss: bool,
    /// Places of damaged entries for which others were received.
    mending: Vec<Position>,
    /// Who sent the state of the writers that closes the copy, its parts, and how many of them are on the disk.
    closing: Option<(ServerId, Vec<Content>, usize)>,
    /// What follows when this copy is copied.
    pub(crate) closes_with: Vec<Content>,
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
    pub(crate) offset: Option<Offset>,
}

/// A reader asks where the stream ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) asked: EndQuestion,
    /// What had been acknowledged when the question came.
    pub(crate) must_see: Offset,
}

impl Held {
    pub(crate) fn open(replica: Replica) -> Self {
        let beginning = replica.range().beginning();
        Self {
            replica,
            log: Vec::new(),
            synced: 0,
            is_known: false,
            opens: false,
            fenced_at: None,
            end: None,
            begins_at: beginning,
            floor: beginning,
            is_end_damaged: false,
            has_unsaid_loss: false,
            mending: Vec::new(),
            closing: None,
            closes_with: Vec::new(),
            waiting: Vec::new(),
            shown: beginning,
            question: None,
        }
    }

    pub(crate) fn index(&self) -> RangeIndex {
        self.replica.range().key.range
    }

    /// Gives an entry to the log.
    pub(crate) fn queue(&mut self, logged: Logged) -> Position {
        let end = logged.end();
        self.log.push(logged);
        self.replica.queued(end);
        end
    }

    /// The entry that begins at a place, or a part of the state of the writers that closes the copy.
    pub(crate) fn entry_at(&self, at: Position, sealed_end: Option<Position>) -> Option<Logged> {
        if let Some(end) = sealed_end.filter(|end| at >= *end) {
            let part = usize::try_from(at.marks - end.marks).expect("few parts");
            return Some(Logged::new(at, self.closes_with.get(part)?.clone()));
        }
        let found = self.log.iter().find(|logged| logged.at == at);
        found.filter(|logged| !logged.is_damaged).cloned()
    }

    /// Does as the copy says with an entry that another server has sent.
    pub(crate) fn take(&mut self, verdict: Verdict, offered: &Offered, logged: &Logged) {
        let logged = Logged {
            is_damaged: false,
            ..logged.clone()
        };
        match verdict {
            Verdict::Take => {
                self.queue(logged);
            }
            Verdict::Begin => {
                self.log.clear();
                self.synced = 0;
                self.floor = offered.at;
                self.begins_at = offered.at;
                self.queue(logged);
            }
            Verdict::Mend => self.mending.push(offered.at),
            Verdict::Close => {
                let is_first = matches!(logged.content, Content::Writers { part: 0, .. });
                match &mut self.closing {
                    Some((from, parts, _)) if *from == offered.from && !is_first => parts.push(logged.content),
                    _ => self.closing = Some((offered.from, vec![logged.content], 0)),
                }
            }
            Verdict::Held | Verdict::GoOn(_) | Verdict::Refused(_) => {}
        }
    }

    /// The state of the writers that closes the copy, if all of it is on the disk.
    pub(crate) fn closing(&self) -> Option<&[Content]> {
        let (_, parts, _) = self.closing.as_ref().filter(|_| self.replica.is_closed())?;
        Some(parts)
    }

    /// Whether there is a fence that is not on the disk.
    pub(crate) fn has_new_fence(&self) -> bool {
        self.replica.is_fenced() && self.fenced_at.is_none()
    }

    pub(crate) fn can_sync(&self) -> bool {
        let closing = self.closing.as_ref();
        self.synced < self.log.len()
            || !self.mending.is_empty()
            || closing.is_some_and(|(_, parts, synced)| *synced < parts.len())
    }

    pub(crate) fn can_commit(&self) -> bool {
        let new_fence = self.fenced_at.is_none() && self.replica.fenced_at().is_some();
        !self.is_known || new_fence || self.end != self.replica.end()
    }

    pub(crate) fn commit(&mut self) {
        self.is_known = true;
        self.end = self.replica.end();
        self.is_end_damaged &= self.end.is_none();
        self.fenced_at = self.fenced_at.or(self.replica.fenced_at());
        if let Some(taken) = self.fenced_at {
            self.replica.fence_is_durable(taken);
        }
    }

    pub(crate) fn sync(&mut self, entries: usize) {
        self.synced = self.log.len().min(self.synced.saturating_add(entries));
        if let Some(last) = self.log.get(self.synced.wrapping_sub(1)) {
            self.replica.synced(last.end());
        }
        for at in self.mending.drain(..) {
            if let Some(logged) = self.log.iter_mut().find(|logged| logged.at == at) {
                logged.is_damaged = false;
                self.replica.mended(at, logged.end());
            }
        }
        if let Some((from, parts, synced)) = &mut self.closing {
            *synced = parts.len();
            let count = u32::try_from(*synced).expect("few parts");
            self.replica.closing_synced(*from, count);
        }
    }

    pub(crate) fn drop_queued(&mut self) {
        self.log.truncate(self.synced);
        self.mending.clear();
        self.forget_closing();
        self.replica.dropped();
        // Alone it knows that they are not stored. Where others hold the range, its end will tell.
        if self.replica.range().servers.len() == 1 {
            let queued = self.replica.next();
            self.waiting.retain(|waiting| waiting.until <= queued);
        }
    }

    fn forget_closing(&mut self) {
        if let Some((_, parts, synced)) = &mut self.closing {
            parts.truncate(*synced);
        }
    }

    pub(crate) fn crash(&mut self) {
        self.log.truncate(self.synced);
        self.opens = false;
        self.mending.clear();
        self.forget_closing();
        if !self.replica.is_closed() {
            self.closing = None;
        }
        self.closes_with.clear();
        self.waiting.clear();
        self.question = None;
    }

    pub(crate) fn start(&mut self, me: ServerId, scenario: &Scenario) {
        let range: Arc<ReplicatedRange> = Arc::clone(self.replica.range());
        let writers_end = self.log.iter().find_map(|logged| match logged.content {
            Content::Writers { parts, .. } => Some(Position {
                marks: parts,
                ..range.beginning()
            }),
            _ => None,
        });
        let whole = self.closing.as_ref().filter(|_| self.replica.is_closed());
        let found = Recovered {
            synced: self.reaches(),
            begins_at: self.begins_at,
            writers_end,
            fenced_at: self.fenced_at,
            end: self.end,
            closed: whole.map(|(_, parts, _)| u32::try_from(parts.len()).expect("few parts")),
            // Nobody here has something else than another server.
            disputed: None,
        };
        self.shown = range.beginning();
        let recover = || Replica::recover(me, Arc::clone(&range), found, scenario.rules);
        self.replica = recover().with_most_unconfirmed(scenario.most_unconfirmed);
        if let Some(end) = self.end {
            self.cut(end);
        }
        for logged in self.log.iter().filter(|logged| logged.is_damaged) {
            self.replica.damaged(logged.at, logged.end());
        }
        if self.is_end_damaged {
            self.replica.end_damaged(found.synced);
        }
        self.fenced_at = self.replica.fenced_at();
    }

    /// An entry on the disk cannot be read any more. The server finds it at once.
    pub(crate) fn damage(&mut self, place: usize) {
        let logged = &mut self.log[place];
        logged.is_damaged = true;
        self.replica.damaged(logged.at, logged.end());
    }

    /// While the server is away its disk loses what follows so many entries, so that nobody knows what there was.
    pub(crate) fn damage_end(&mut self, kept: usize) {
        self.log.truncate(kept);
        self.synced = kept;
        self.is_end_damaged = true;
        self.has_unsaid_loss = true;
    }

    /// Where the part of the copy ends that is on the disk.
    pub(crate) fn reaches(&self) -> Position {
        let last = self.log.get(self.synced.wrapping_sub(1));
        last.map_or(self.floor, |last| last.end().max(self.floor))
    }

    pub(crate) fn repeat(&mut self, what: Append, offset: Option<Offset>) {
        let end = offset.and_then(|offset| offset.checked_add(1)).map(Position::start);
        let until = end.and_then(|end| self.replica.answers_at(end));
        self.waiting.push(Waiting {
            what,
            until: until.unwrap_or_default(),
            offset,
        });
    }

    pub(crate) fn end_told(&mut self, end: Position) {
        self.replica.end_told(end);
        self.settle_beginning();
        self.cut(end);
        self.waiting.retain(|waiting| waiting.until <= end);
    }

    /// Of what lies behind the end nobody ever hears again.
    fn cut(&mut self, end: Position) {
        self.log.retain(|logged| logged.end() <= end);
        self.synced = self.synced.min(self.log.len());
    }

    /// The stream is trimmed: the log drops what is before, but for what begins the range, and what a follower lacks.
    pub(crate) fn trimmed(&mut self, start: Offset) {
        let needed = self.replica.needed_from().filter(|_| self.replica.end().is_none());
        let goes = |logged: &Logged| logged.is_before(start) && needed.is_none_or(|needed| logged.end() <= needed);
        let is_gone = |logged: &Logged| goes(logged) && logged.end() <= self.replica.confirmed();
        let gone: Vec<_> = self.log[..self.synced]
            .iter()
            .filter(|one| is_gone(one))
            .map(Logged::end)
            .collect();
        let Some(last) = gone.last() else {
            let first = if self.floor > self.replica.range().beginning() {
                self.first()
            } else {
                Position::default()
            };
            self.replica.trimmed(start, first);
            return self.settle_beginning();
        };
        self.floor = self.floor.max(*last);
        self.synced -= gone.len();
        self.log.retain(|logged| !gone.contains(&logged.end()));
        self.replica.trimmed(start, self.first());
        self.settle_beginning();
    }

    /// The first entry of the log, but for what begins the range.
    fn first(&self) -> Position {
        let kept = self
            .log
            .iter()
            .find(|logged| !matches!(logged.content, Content::Writers { .. }));
        kept.map_or(self.replica.next(), |logged| logged.at)
    }

    /// A copy of which nothing is wanted any more begins at its end.
    fn settle_beginning(&mut self) {
        let begins_at = self.replica.begins_at();
        if begins_at > self.begins_at && self.log.first().is_none_or(|logged| logged.at < begins_at) {
            self.log.clear();
            self.synced = 0;
            self.floor = begins_at;
            self.begins_at = begins_at;
        }
    }
}
