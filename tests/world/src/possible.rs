//! What may happen next.

use std::sync::Arc;

use sbp_replication::{ReplicatedRange, Rule, SealJob, SealStep, Sealed};
use sbp_types::{Position, RangeIndex, ServerId};

use crate::action::Action;
use crate::held::Held;
use crate::node::Node;
use crate::world::{Message, Reply, World};

impl World {
    /// Everything that may happen next.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.ghost.violation.is_none() {
            self.client_actions(&mut actions);
            self.network_actions(&mut actions);
            self.node_actions(&mut actions);
            for driver in 0..self.drivers.len() {
                self.driver_actions(driver, &mut actions);
            }
        }
        actions
    }

    pub(crate) fn client_actions(&self, actions: &mut Vec<Action>) {
        for (writer, known) in (0_u8..).zip(&self.writers) {
            let end = self.setup.0.batches.min(known.sent + 1);
            // The answer to the last one may have been lost.
            for sequence in known.acknowledged.saturating_sub(1)..end {
                let may_send = sequence == known.sent || self.left.resends > 0;
                for node in (0..self.nodes.len()).filter(|node| may_send && self.takes_appends(*node)) {
                    actions.push(Action::Append { writer, sequence, node });
                }
            }
            for node in (0..self.nodes.len()).filter(|node| self.left.fences > 0 && self.takes_appends(*node)) {
                actions.push(Action::FenceWriter { writer, node });
            }
        }
        for (node, asked) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            let Some(held) = asked.ranges.last() else { continue };
            let Some(question) = &held.question else {
                if self.left.questions > 0 && held.replica.range().primary() == asked.id {
                    actions.push(Action::Ask(node));
                }
                continue;
            };
            for server in question.asked.asks(&held.replica) {
                let Some(by) = self.place_of(server).filter(|by| self.nodes[*by].is_up) else {
                    continue;
                };
                if self.reaches(node, by) && self.reaches(by, node) && self.nodes[by].held(held.index()).is_some() {
                    actions.push(Action::SayUnfenced { node, by });
                }
            }
        }
    }

    pub(crate) fn takes_appends(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.ranges
            .last()
            .is_some_and(|held| node.takes_appends(held, self.rules()))
    }

    /// What a server sends to another: range by range, as primary, and up to the ends of orders.
    pub(crate) fn flows(&self, from: usize, to: usize) -> Vec<(RangeIndex, Option<Position>)> {
        let Some(id) = self.nodes[to].id else { return Vec::new() };
        let of = |held: &Held| {
            let index = held.index();
            let ends: Vec<_> = held.replica.orders_for(id).map(Some).collect();
            std::iter::once(None).chain(ends).map(move |end| (index, end))
        };
        self.nodes[from].ranges.iter().flat_map(of).collect()
    }

    pub(crate) fn network_actions(&self, actions: &mut Vec<Action>) {
        for (place, message) in self.flight.iter().enumerate() {
            let is_before = |one: &Message| !one.is_stray && one.from == message.from && one.to == message.to;
            let arrives = self.passes(message.from, message.to);
            if arrives && (message.is_stray || !self.flight[..place].iter().any(is_before)) {
                actions.push(Action::Deliver(place));
            }
        }
        let heard = self
            .answers
            .iter()
            .enumerate()
            .filter(|(_, one)| self.passes(one.from, one.to));
        actions.extend(heard.map(|(place, _)| Action::Hear(place)));
        for from in (0..self.nodes.len()).filter(|from| self.nodes[*from].is_up) {
            for to in (0..self.nodes.len()).filter(|to| *to != from && self.nodes[*to].is_up) {
                self.pair_actions(from, to, actions);
            }
        }
        self.cut_actions(actions);
    }

    /// Whether what a server says reaches another one. Of one that is gone anything may arrive.
    fn passes(&self, from: ServerId, to: ServerId) -> bool {
        match (self.place_of(from), self.place_of(to)) {
            (Some(from), Some(to)) => self.reaches(from, to),
            _ => true,
        }
    }

    fn pair_actions(&self, from: usize, to: usize, actions: &mut Vec<Action>) {
        let Some(id) = self.nodes[to].id else { return };
        let is_instant = !self.setup.0.in_flight;
        let is_open = self.reaches(from, to) && self.reaches(to, from);
        for (index, sealed_end) in self.flows(from, to) {
            let Some(held) = self.nodes[from].held(index) else {
                continue;
            };
            let range = index.0;
            let next = held.replica.next_in(id, sealed_end);
            let is_here = next.is_some_and(|at| held.entry_at(at, sealed_end).is_some());
            if is_here && (is_open || !is_instant) {
                actions.push(Action::Send {
                    range,
                    from,
                    to,
                    sealed_end,
                });
            }
            if self.would_retry(from, to, held, sealed_end) && is_open {
                actions.push(Action::Retry {
                    range,
                    from,
                    to,
                    sealed_end,
                });
            }
            if self.would_tell(to, from, index, sealed_end) && (is_open || !is_instant) {
                let (from, to) = (to, from);
                actions.push(Action::Report {
                    range,
                    from,
                    to,
                    sealed_end,
                });
            }
        }
        if self.left.breaks > 0 {
            let lost = [true, false]
                .into_iter()
                .filter(|is_lost| *is_lost || self.setup.0.in_flight);
            actions.extend(lost.map(|is_lost| Action::Break { from, to, is_lost }));
        }
    }

    fn cut_actions(&self, actions: &mut Vec<Action>) {
        let servers = self.nodes.len();
        let places = servers + self.drivers.len();
        if self.left.cuts > 0 {
            let pairs = (0..places).flat_map(|from| (0..places).map(move |to| (from, to)));
            // Placement drivers have nothing to say to each other.
            let pairs = pairs.filter(|(from, to)| from != to && (*from < servers || *to < servers));
            actions.extend(pairs.map(|(from, to)| Action::Cut { from, to }));
        }
        actions.extend(self.cuts.iter().map(|(from, to)| Action::Join { from: *from, to: *to }));
        for (node, it) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            for (of, other) in self.nodes.iter().enumerate() {
                let is_silent = !other.is_up || !self.reaches(of, node);
                let is_known = other.id.is_none_or(|id| it.missed.contains(&id));
                if self.setup.0.in_flight && of != node && is_silent && !is_known {
                    actions.push(Action::Miss { node, of });
                }
            }
        }
    }

    /// Whether entries were sent that did not arrive, and now would.
    pub(crate) fn would_retry(&self, from: usize, to: usize, ours: &Held, sealed_end: Option<Position>) -> bool {
        let (sender, Some(id)) = (self.nodes[from].id, self.nodes[to].id) else {
            return false;
        };
        let index = ours.index();
        let (Some(sent), Some(theirs)) = (ours.replica.sent_to(id, sealed_end), self.nodes[to].held(index)) else {
            return false;
        };
        let lacks = theirs.replica.next() < sent.min(sealed_end.unwrap_or(sent));
        let is_unfinished = sealed_end.is_some() && !ours.replica.copying_done(id) && {
            let known = ours.replica.heard_of(id, sealed_end);
            known < Some(theirs.replica.answer_written_back().place().unwrap_or_default())
                || ours.replica.is_halted(id, sealed_end)
                || ours.replica.next_in(id, sealed_end).is_none()
        };
        let takes = match sealed_end {
            Some(end) => theirs.replica.end().is_none_or(|theirs| theirs == end) && !theirs.can_sync(),
            None => !theirs.replica.is_fenced() && theirs.replica.end().is_none() && !theirs.replica.end_is_damaged(),
        };
        let is_on_its_way =
            |one: &Message| !one.is_stray && Some(one.from) == sender && one.to == id && one.range == index;
        let is_answered = |one: &Reply| Some(one.to) == sender && one.from == id && one.range == index;
        (lacks || is_unfinished)
            && takes
            && !self.flight.iter().any(is_on_its_way)
            && !self.answers.iter().any(is_answered)
    }

    /// Whether a report changes anything.
    pub(crate) fn would_tell(&self, from: usize, to: usize, range: RangeIndex, sealed_end: Option<Position>) -> bool {
        let (Some(theirs), Some(ours)) = (self.nodes[from].held(range), self.nodes[to].held(range)) else {
            return false;
        };
        let Some(id) = self.nodes[from].id else { return false };
        let Some(known) = ours.replica.heard_of(id, sealed_end) else {
            return false;
        };
        let is_under_way = |one: &Reply| {
            (Some(one.to), one.from, one.range, one.sealed_end) == (self.nodes[to].id, id, range, sealed_end)
        };
        if self.answers.iter().any(is_under_way) {
            return false;
        }
        let answer = match sealed_end {
            Some(_) => theirs.replica.answer_written_back(),
            None => theirs.replica.answer(),
        };
        let is_primary = ours.replica.range().primary() == self.nodes[to].id;
        answer.place() > Some(known)
            || (is_primary && sealed_end.is_none() && theirs.replica.confirmed() < ours.replica.confirmed())
    }

    pub(crate) fn node_actions(&self, actions: &mut Vec<Action>) {
        for (node, it) in self.nodes.iter().enumerate() {
            if !it.is_up {
                actions.push(Action::Start(node));
                self.end_damages(node, actions);
                continue;
            }
            if it.can_commit() {
                actions.push(Action::Commit(node));
            }
            self.damages(node, actions);
            if it.can_sync() {
                actions.push(Action::Sync {
                    node,
                    entries: usize::MAX,
                });
                if self.setup.0.in_flight {
                    actions.push(Action::Sync { node, entries: 1 });
                }
            }
            let is_queued = it.ranges.iter().any(|held| held.synced < held.log.len());
            if self.left.drops > 0 && is_queued {
                actions.push(Action::Drop(node));
            }
            if self.left.crashes > 0 && it.id.is_some() {
                actions.push(Action::Crash(node));
            }
            if self.left.wipes > 0 && it.id.is_some() {
                actions.push(Action::Wipe(node));
            }
        }
        if self.left.restores > 0 {
            actions.push(Action::Restore);
        }
        if self.left.replacements > 0 && !self.rules().hold(Rule::SetNeverChanges) {
            let Some(last) = self.store.ranges.last().filter(|record| record.end.is_none()) else {
                return;
            };
            let set = |node: &usize| {
                self.nodes[*node]
                    .id
                    .is_some_and(|id| last.range.servers[1..].contains(&id))
            };
            let out = |by: &usize| self.nodes[*by].id.is_some_and(|id| !last.range.servers.contains(&id));
            for node in (0..self.nodes.len()).filter(set) {
                actions.extend((0..self.nodes.len()).filter(out).map(|by| Action::Replace { node, by }));
            }
        }
    }

    /// Entries that a server's disk may lose.
    fn damages(&self, node: usize, actions: &mut Vec<Action>) {
        for held in self.nodes[node].ranges.iter().filter(|_| self.left.damages > 0) {
            let whole = (0..held.synced).filter(|place| !held.log[*place].is_damaged);
            let range = held.index().0;
            actions.extend(whole.map(|place| Action::Damage { node, range, place }));
        }
    }

    /// Ends of open ranges that the disk of a server may lose that is away.
    fn end_damages(&self, node: usize, actions: &mut Vec<Action>) {
        let may_lose = self.left.damages > 0 && self.setup.0.budget.forces == 0;
        let open = |held: &&Held| held.replica.end().is_none() && may_lose;
        for held in self.nodes[node].ranges.iter().filter(open) {
            let range = held.index().0;
            actions.extend((0..held.synced).map(|kept| Action::DamageEnd { node, range, kept }));
        }
    }

    pub(crate) fn driver_actions(&self, driver: usize, actions: &mut Vec<Action>) {
        let it = &self.drivers[driver];
        if self.left.leads > 0 {
            actions.push(Action::Lead(driver));
        }
        if it.term.is_none() {
            return;
        }
        let up = || {
            let nodes = self.nodes.iter().enumerate();
            nodes.filter(|(place, node)| node.is_up && self.converses(driver, *place))
        };
        let follows = |node: &Node| node.would_follow(it.term, self.rules());
        for (node, _) in up().filter(|(_, one)| one.id.is_none()) {
            actions.push(Action::Number { driver, node });
        }
        let open = it.open_range();
        let is_free = it.job.is_none() || self.setup.0.in_flight;
        let is_sealed = |range: &Arc<ReplicatedRange>| range.servers.len() > 1 || self.setup.0.alternates;
        if self.left.seals > 0 && is_free && open.is_some_and(is_sealed) {
            actions.push(Action::Seal(driver));
        }
        for (node, _) in up().filter(|(_, one)| follows(one) && self.lacks_news(driver, one)) {
            actions.push(Action::Tell { driver, node });
        }
        self.copy_actions(driver, actions);
        self.trim_actions(driver, actions);
        let Some(job) = &it.job else { return };
        let index = job.range().key.range;
        for (node, one) in up().filter(|(_, one)| follows(one)) {
            if !one.id.is_some_and(|id| job.wants_vote(id)) {
                continue;
            }
            if one.held(index).is_none_or(|held| !held.replica.is_fenced()) {
                actions.push(Action::Fence { driver, node });
            } else if self.may_vote(driver, node) {
                actions.push(Action::Vote { driver, node });
            }
        }
        if job.can_decide() {
            actions.push(Action::Decide(driver));
        }
        if self.left.forces > 0 && job.has_enough_votes() && !job.can_decide() {
            actions.push(Action::Force(driver));
        }
        for id in job.counts_on() {
            if self.is_away(driver, id) {
                actions.push(Action::Away { driver, server: id.0 });
            }
        }
        match job.step() {
            SealStep::Vote => {}
            SealStep::Again => actions.push(Action::Again(driver)),
            SealStep::WriteBack { source, to, end } => self.write_back_actions(driver, source, &to, end, actions),
            SealStep::Store(sealed) => {
                for first in self.successors(driver, index, &sealed) {
                    for is_answered in [true, false] {
                        if is_answered || self.left.lost_answers > 0 {
                            actions.push(Action::Store {
                                driver,
                                first,
                                is_answered,
                            });
                        }
                    }
                }
            }
        }
    }

    /// The servers that a placement driver may like best for the range after this one, each with another outcome.
    pub(crate) fn successors(&self, driver: usize, range: RangeIndex, sealed: &Sealed) -> Vec<usize> {
        let place = self
            .store
            .ranges
            .iter()
            .position(|record| record.range.key.range == range);
        let Some(place) = place.filter(|place| self.leads(driver) && self.store.ranges[*place].end.is_none()) else {
            return vec![0];
        };
        let mut seen = Vec::new();
        let mut is_new = |first: &usize| {
            let next = self.next_range(driver, place, sealed, *first).map(|next| next.range);
            let is_new = next.is_some() && !seen.contains(&next);
            seen.push(next);
            is_new
        };
        (0..self.nodes.len()).filter(|first| is_new(first)).collect()
    }

    pub(crate) fn write_back_actions(
        &self,
        driver: usize,
        source: ServerId,
        to: &[ServerId],
        end: Position,
        actions: &mut Vec<Action>,
    ) {
        let Some(index) = self.drivers[driver].job.as_ref().map(|job| job.range().key.range) else {
            return;
        };
        let place = self.place_of(source).filter(|place| self.nodes[*place].is_up);
        let place = place.filter(|place| self.converses(driver, *place));
        let held = place.and_then(|place| self.nodes[place].held(index));
        let Some(replica) = held.map(|held| &held.replica) else {
            return;
        };
        if !self.to_order(driver, source, to, end).is_empty() {
            actions.push(Action::WriteBack(driver));
        }
        for id in to {
            let is_answered =
                self.drivers[driver].ordered.contains(&(source, *id, end)) && replica.is_written_back(*id, end);
            if let Some(node) = self.place_of(*id).filter(|_| is_answered) {
                actions.push(Action::WrittenBack { driver, node });
            }
        }
    }

    /// The servers for which the source has no order of this seal, or has lost it.
    pub(crate) fn to_order(&self, driver: usize, source: ServerId, to: &[ServerId], end: Position) -> Vec<ServerId> {
        let known = &self.drivers[driver];
        let Some(index) = known.job.as_ref().map(|job| job.range().key.range) else {
            return Vec::new();
        };
        let held = self.place_of(source).and_then(|place| self.nodes[place].held(index));
        let has_order = |server: ServerId| {
            let is_known = held.is_some_and(|held| held.replica.writes_back(&[server], end));
            is_known && known.ordered.contains(&(source, server, end))
        };
        to.iter().copied().filter(|server| !has_order(*server)).collect()
    }

    fn trim_actions(&self, driver: usize, actions: &mut Vec<Action>) {
        if self.left.trims > 0 {
            let starts = self.store.start.0 + 1..=self.ghost.acknowledged_end().0;
            actions.extend(starts.map(|start| Action::Trim { driver, start }));
        }
        let sealed = self.drivers[driver].ranges.iter().filter(|record| record.end.is_some());
        for record in sealed.filter(|_| self.left.moves > 0) {
            let range = record.range.key.range.0;
            let out = |node: &usize| self.nodes[*node].id.is_some_and(|id| !record.is_on(id));
            actions.extend(
                (0..self.nodes.len())
                    .filter(out)
                    .map(|to| Action::Move { driver, range, to }),
            );
        }
    }

    pub(crate) fn copy_actions(&self, driver: usize, actions: &mut Vec<Action>) {
        for record in self.drivers[driver].ranges.iter().filter(|record| record.end.is_some()) {
            let index = record.range.key.range;
            let lacks = |server: &&ServerId| {
                let place = self.place_of(**server);
                let held = place.and_then(|place| self.nodes[place].held(index));
                !record.complete.contains(server) || held.is_some_and(|held| !held.replica.is_complete())
            };
            for server in record.range.servers.iter().chain(&record.copying).filter(lacks) {
                let to = self.place_of(*server).filter(|to| self.nodes[*to].is_up);
                let Some(to) = to.filter(|to| self.converses(driver, *to)) else {
                    continue;
                };
                let theirs = self.nodes[to].held(index);
                if theirs.is_some_and(|held| held.replica.is_complete()) && !record.complete.contains(server) {
                    actions.push(Action::Copied {
                        driver,
                        range: index.0,
                        to,
                    });
                    continue;
                }
                for (from, it) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
                    let Some(held) = it.held(index).filter(|held| held.replica.is_complete()) else {
                        continue;
                    };
                    let end = record.end.unwrap_or_default();
                    let counts = !record.complete.contains(server) && theirs.is_some();
                    if counts && held.replica.copying_done(*server) && held.replica.writes_back(&[*server], end) {
                        actions.push(Action::Copied {
                            driver,
                            range: index.0,
                            to,
                        });
                    } else if self.left.copies > 0 && !held.replica.writes_back(&[*server], end) {
                        actions.push(Action::Copy {
                            range: index.0,
                            from,
                            to,
                        });
                    }
                }
            }
        }
    }

    /// Whether a placement driver has reason to count on a server no more, during a seal.
    fn is_away(&self, driver: usize, server: ServerId) -> bool {
        let Some(node) = self.place_of(server) else { return true };
        let SealStep::WriteBack { source, .. } =
            self.drivers[driver].job.as_ref().map_or(SealStep::Vote, SealJob::step)
        else {
            return !self.nodes[node].is_up || !self.converses(driver, node);
        };
        let source = self.place_of(source);
        if source == Some(node) && self.cannot_read(node, driver) {
            return true;
        }
        let is_cut = |source: usize| !self.reaches(source, node) || !self.reaches(node, source);
        !self.nodes[node].is_up || !self.converses(driver, node) || source.is_some_and(is_cut)
    }

    /// Whether a server cannot write back because something is damaged.
    fn cannot_read(&self, node: usize, driver: usize) -> bool {
        let Some(job) = &self.drivers[driver].job else {
            return false;
        };
        let Some(held) = self.nodes[node].held(job.range().key.range) else {
            return false;
        };
        let mut servers = job.range().servers.iter();
        servers.any(|server| {
            let mut ends = held.replica.orders_for(*server);
            ends.any(|end| {
                let next = held.replica.next_in(*server, Some(end));
                next.is_some_and(|at| held.entry_at(at, Some(end)).is_none())
            })
        })
    }

    /// Whether a server does not know all that a placement driver would tell it.
    pub(crate) fn lacks_news(&self, driver: usize, node: &Node) -> bool {
        let Some(id) = node.id else { return false };
        let records = self.drivers[driver].ranges.iter();
        let mine = records.filter(|record| record.is_on(id));
        let mut mine = mine.map(|record| (record, node.held(record.range.key.range)));
        let is_trimmed = self.drivers[driver].start > node.start;
        is_trimmed
            || mine.any(|(record, held)| match held {
                None => true,
                Some(held) => record.end.is_some() && held.replica.end() != record.end,
            })
    }
}
