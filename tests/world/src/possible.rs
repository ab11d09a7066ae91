//! What may happen next.

use sbp_replication::{Rule, SealStep, Sealed};
use sbp_types::{Position, RangeIndex, ServerId};

use crate::action::Action;
use crate::node::{Held, Node};
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
            for server in held
                .replica
                .range()
                .servers
                .iter()
                .filter(|server| !question.said.contains(server))
            {
                let Some(by) = self.place_of(*server).filter(|by| *by != node && self.nodes[*by].is_up) else {
                    continue;
                };
                let theirs = self.nodes[by].held(held.replica.range().key.range);
                if theirs.is_some_and(|theirs| !theirs.replica.is_fenced() && theirs.replica.end().is_none()) {
                    actions.push(Action::SayUnfenced { node, by });
                }
            }
        }
    }

    pub(crate) fn takes_appends(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.is_up
            && node
                .ranges
                .last()
                .is_some_and(|held| held.replica.takes_appends().is_ok())
    }

    pub(crate) fn network_actions(&self, actions: &mut Vec<Action>) {
        for (place, message) in self.flight.iter().enumerate() {
            let is_before = |one: &Message| !one.is_stray && one.from == message.from && one.to == message.to;
            if message.is_stray || !self.flight[..place].iter().any(is_before) {
                actions.push(Action::Deliver(place));
            }
        }
        actions.extend((0..self.answers.len()).map(Action::Hear));
        for (from, sender) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            for (to, receiver) in self
                .nodes
                .iter()
                .enumerate()
                .filter(|(to, node)| *to != from && node.is_up)
            {
                let Some(id) = receiver.id else { continue };
                for held in &sender.ranges {
                    let range = held.replica.range().key.range;
                    let next = held.replica.next_for(id).and_then(|(at, _)| held.entry_at(at));
                    if next.is_some() {
                        actions.push(Action::Send {
                            range: range.0,
                            from,
                            to,
                        });
                    }
                    if self.would_retry(from, to, held) {
                        actions.push(Action::Retry {
                            range: range.0,
                            from,
                            to,
                        });
                    }
                    if self.would_tell(to, from, range) {
                        let (from, to) = (to, from);
                        actions.push(Action::Report {
                            range: range.0,
                            from,
                            to,
                        });
                    }
                }
                if self.left.breaks > 0 {
                    actions.push(Action::Break {
                        from,
                        to,
                        is_lost: true,
                    });
                    if self.setup.0.in_flight {
                        actions.push(Action::Break {
                            from,
                            to,
                            is_lost: false,
                        });
                    }
                }
            }
        }
    }

    /// Whether entries were sent that did not arrive, and now would.
    pub(crate) fn would_retry(&self, from: usize, to: usize, ours: &Held) -> bool {
        let (sender, Some(id)) = (self.nodes[from].id, self.nodes[to].id) else {
            return false;
        };
        let index = ours.replica.range().key.range;
        let Some((sent, is_written_back)) = ours.replica.sent_to(id) else {
            return false;
        };
        let Some(theirs) = self.nodes[to].held(index) else {
            return false;
        };
        let lacks = theirs.replica.next() < sent;
        let takes = is_written_back || (!theirs.replica.is_fenced() && theirs.replica.end().is_none());
        let is_on_its_way =
            |one: &Message| !one.is_stray && Some(one.from) == sender && one.to == id && one.range == index;
        lacks && takes && !self.flight.iter().any(is_on_its_way)
    }

    /// Whether a report changes anything.
    pub(crate) fn would_tell(&self, from: usize, to: usize, range: RangeIndex) -> bool {
        let (Some(theirs), Some(ours)) = (self.nodes[from].held(range), self.nodes[to].held(range)) else {
            return false;
        };
        let Some(id) = self.nodes[from].id else { return false };
        let Some(known) = ours.replica.heard_of(id) else {
            return false;
        };
        let sealed_end = ours.replica.writes_back_up_to(id);
        let is_under_way = |one: &Reply| {
            (Some(one.to), one.from, one.range, one.sealed_end) == (self.nodes[to].id, id, range, sealed_end)
        };
        if self.answers.iter().any(is_under_way) {
            return false;
        }
        let synced = match sealed_end {
            Some(_) => theirs.replica.synced_end(),
            None => theirs.replica.answer().place(),
        };
        let early = [Rule::WriteBackSynced, Rule::CopiesCountWhenSynced];
        let is_early = early.iter().any(|rule| !self.rules().hold(*rule)) && theirs.replica.next() > known;
        let is_primary = ours.replica.range().primary() == self.nodes[to].id;
        synced > known || is_early || (is_primary && theirs.replica.confirmed() < ours.replica.confirmed())
    }

    pub(crate) fn node_actions(&self, actions: &mut Vec<Action>) {
        for (node, it) in self.nodes.iter().enumerate() {
            if !it.is_up {
                actions.push(Action::Start(node));
                continue;
            }
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

    pub(crate) fn driver_actions(&self, driver: usize, actions: &mut Vec<Action>) {
        let it = &self.drivers[driver];
        if self.left.leads > 0 {
            actions.push(Action::Lead(driver));
        }
        if it.term.is_none() {
            return;
        }
        let up = || self.nodes.iter().enumerate().filter(|(_, node)| node.is_up);
        let follows = |node: &Node| node.would_follow(it.term, self.rules());
        for (node, _) in up().filter(|(_, one)| one.id.is_none()) {
            actions.push(Action::Number { driver, node });
        }
        let open = it.open_range();
        let is_free = it.job.is_none() || self.setup.0.in_flight;
        if self.left.seals > 0 && is_free && open.is_some_and(|range| range.servers.len() > 1) {
            actions.push(Action::Seal(driver));
        }
        for (node, _) in up().filter(|(_, one)| follows(one) && self.lacks_news(driver, one)) {
            actions.push(Action::Tell { driver, node });
        }
        self.copy_actions(driver, actions);
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
        for id in job.counts_on() {
            if self.place_of(id).is_none_or(|node| !self.nodes[node].is_up) {
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
            let next = self.next_range(place, sealed, *first).map(|next| next.range);
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
        let source = self.place_of(source).filter(|source| self.nodes[*source].is_up);
        let replica = source
            .and_then(|source| self.nodes[source].held(index))
            .map(|held| &held.replica);
        if replica.is_some_and(|replica| !replica.writes_back(to, end)) {
            actions.push(Action::WriteBack(driver));
        }
        for id in to {
            let node = self.place_of(*id);
            if let Some(node) = node.filter(|_| replica.is_some_and(|replica| replica.is_written_back(*id, end))) {
                actions.push(Action::WrittenBack { driver, node });
            }
        }
    }

    pub(crate) fn copy_actions(&self, driver: usize, actions: &mut Vec<Action>) {
        for record in self.drivers[driver].ranges.iter().filter(|record| record.end.is_some()) {
            let index = record.range.key.range;
            let lacks = |server: &&ServerId| !record.complete.contains(server);
            for server in record.range.servers.iter().filter(lacks) {
                let Some(to) = self.place_of(*server).filter(|to| self.nodes[*to].is_up) else {
                    continue;
                };
                if self.nodes[to]
                    .held(index)
                    .is_some_and(|held| held.replica.is_complete())
                {
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
                    if held.replica.is_written_back(*server, end) && held.replica.writes_back(&[*server], end) {
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

    /// Whether a server does not know all that a placement driver would tell it.
    pub(crate) fn lacks_news(&self, driver: usize, node: &Node) -> bool {
        let Some(id) = node.id else { return false };
        let mine = self.drivers[driver]
            .ranges
            .iter()
            .filter(|record| record.range.servers.contains(&id));
        let mut mine = mine.map(|record| (record, node.held(record.range.key.range)));
        mine.any(|(record, held)| match held {
            None => true,
            Some(held) => record.end.is_some() && held.replica.end() != record.end,
        })
    }
}
