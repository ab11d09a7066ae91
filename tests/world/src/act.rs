//! What happens when one thing happens: to writers and readers, on the network, on a server.

use sbp_replication::{Answer, EndTold, Offered, Rule, Verdict};
use sbp_types::{Position, RangeIndex};

use crate::action::Action;
use crate::entries::{Append, Batch};
use crate::ghost::Violation;
use crate::held::{Held, Question};
use crate::node::Node;
use crate::world::{Message, Reply, World};

impl World {
    /// Does one thing.
    pub fn act(&mut self, action: Action) {
        match action {
            Action::Append { .. } | Action::FenceWriter { .. } | Action::Ask(_) | Action::SayUnfenced { .. } => {
                self.act_as_client(action);
            }
            Action::Send { .. }
            | Action::Retry { .. }
            | Action::Deliver(_)
            | Action::Report { .. }
            | Action::Hear(_)
            | Action::Break { .. }
            | Action::Cut { .. }
            | Action::Join { .. }
            | Action::Miss { .. } => {
                self.act_on_network(action);
            }
            Action::Sync { .. }
            | Action::Commit(_)
            | Action::Drop(_)
            | Action::Crash(_)
            | Action::Start(_)
            | Action::Wipe(_)
            | Action::Damage { .. }
            | Action::DamageEnd { .. } => {
                self.act_on_node(action);
            }
            _ => self.act_as_driver(action),
        }
        if !self.setup.0.in_flight {
            self.rush();
        }
        self.settle();
    }

    /// Leaves out orders that a search has no time for: a follower's copy is synced as it arrives (a crash before that is a
    /// message that was lost), answers arrive at once (they only add to what is promised), and a fenced server votes. Runs by
    /// chance have all of them apart.
    pub(crate) fn rush(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.is_up) {
            node.sync_followed(&self.setup.0);
        }
        let pairs = || (0..self.nodes.len()).flat_map(|from| (0..self.nodes.len()).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs().filter(|(from, to)| from != to).collect();
        for (from, to) in pairs {
            let is_open = self.reaches(from, to) && self.reaches(to, from);
            if !self.nodes[from].is_up || !self.nodes[to].is_up || !is_open {
                continue;
            }
            for (range, sealed_end) in self.flows(to, from) {
                if self.would_tell(from, to, range, sealed_end) {
                    self.report(range, from, to, sealed_end);
                }
            }
        }
        for driver in 0..self.drivers.len() {
            for node in 0..self.nodes.len() {
                if self.may_vote(driver, node) {
                    self.vote(driver, node);
                }
            }
        }
    }

    /// Whether a server has a vote that a placement driver waits for.
    pub(crate) fn may_vote(&self, driver: usize, node: usize) -> bool {
        let place = node;
        let (known, node) = (&self.drivers[driver], &self.nodes[node]);
        let (Some(job), Some(id)) = (&known.job, node.id) else {
            return false;
        };
        let held = node.held(job.range().key.range);
        node.is_up
            && self.converses(driver, place)
            && job.wants_vote(id)
            && node.would_follow(known.term, self.rules())
            && held.is_some_and(|held| held.replica.vote().is_some())
    }

    pub(crate) fn act_as_client(&mut self, action: Action) {
        match action {
            Action::Append { writer, sequence, node } => {
                let known = &mut self.writers[usize::from(writer)];
                if sequence < known.sent {
                    self.left.resends -= 1;
                }
                known.sent = known.sent.max(sequence + 1);
                let batch = Batch {
                    writer,
                    epoch: 0,
                    sequence,
                };
                self.append(node, Append::Batch(batch), writer);
            }
            Action::FenceWriter { writer, node } => {
                self.left.fences -= 1;
                let known = &mut self.writers[usize::from(writer)];
                known.epoch += 1;
                let epoch = known.epoch;
                self.append(node, Append::Fence { writer, epoch }, writer);
            }
            Action::Ask(node) => {
                self.left.questions -= 1;
                let must_see = self.ghost.acknowledged_end();
                if let Some(held) = self.nodes[node].ranges.last_mut() {
                    held.question = Some(Question {
                        asked: Default::default(),
                        must_see,
                    });
                }
                self.answer_question(node);
            }
            Action::SayUnfenced { node, by } => {
                let who = self.nodes[by].id;
                let range = self.nodes[node].ranges.last().map(Held::index);
                let theirs = range.and_then(|range| self.nodes[by].held(range));
                let is_fenced = theirs.is_none_or(|held| held.replica.is_fenced() || held.replica.end().is_some());
                let question = self.nodes[node]
                    .ranges
                    .last_mut()
                    .and_then(|held| held.question.as_mut());
                if let (Some(question), Some(who)) = (question, who) {
                    question.asked.said(who, is_fenced);
                }
                self.answer_question(node);
            }
            _ => unreachable!("not a client's"),
        }
    }

    pub(crate) fn append(&mut self, node: usize, what: Append, writer: u8) {
        let (rules, fenced) = (self.rules(), self.ghost.fenced(writer));
        let Some(range) = self.nodes[node]
            .ranges
            .last()
            .map(|held| held.replica.range().key.range)
        else {
            return;
        };
        self.nodes[node].append(range, what, fenced, rules);
    }

    /// Answers a reader once enough servers have said that they are not fenced.
    pub(crate) fn answer_question(&mut self, node: usize) {
        let rules = self.rules();
        let Some(held) = self.nodes[node].ranges.last() else {
            return;
        };
        let (Some(question), Some(me)) = (&held.question, self.nodes[node].id) else {
            return;
        };
        match question.asked.answer(&held.replica, me, rules) {
            EndTold::NotYet => return,
            EndTold::At(told) if told.offset < question.must_see => {
                self.ghost.break_promise(Violation::OldEnd(told.offset));
            }
            EndTold::At(_) | EndTold::Elsewhere => {}
        }
        if let Some(held) = self.nodes[node].ranges.last_mut() {
            held.question = None;
        }
    }

    pub(crate) fn act_on_network(&mut self, action: Action) {
        match action {
            Action::Send {
                range,
                from,
                to,
                sealed_end,
            } => self.send(RangeIndex(range), from, to, sealed_end),
            Action::Retry {
                range,
                from,
                to,
                sealed_end,
            } => self.retry(RangeIndex(range), from, to, sealed_end),
            Action::Deliver(place) => {
                let message = self.flight.remove(place);
                self.deliver(message);
            }
            Action::Report {
                range,
                from,
                to,
                sealed_end,
            } => self.report(RangeIndex(range), from, to, sealed_end),
            Action::Cut { from, to } => {
                self.left.cuts -= 1;
                self.cuts.insert((from, to));
            }
            Action::Join { from, to } => {
                self.cuts.remove(&(from, to));
            }
            Action::Miss { node, of } => {
                if let Some(id) = self.nodes[of].id {
                    self.nodes[node].missed.insert(id);
                }
            }
            Action::Hear(place) => {
                let reply = self.answers.remove(place);
                self.hear(reply);
            }
            Action::Break { from, to, is_lost } => {
                self.left.breaks -= 1;
                let (Some(sender), Some(receiver)) = (self.nodes[from].id, self.nodes[to].id) else {
                    return;
                };
                let theirs = |message: &Message| message.from == sender && message.to == receiver;
                if is_lost {
                    self.flight.retain(|message| !theirs(message));
                }
                self.answers.retain(|one| one.from != receiver || one.to != sender);
                self.flight
                    .iter_mut()
                    .filter(|one| theirs(one))
                    .for_each(|one| one.is_stray = true);
                for held in &mut self.nodes[from].ranges {
                    held.replica.disconnected(receiver);
                }
            }
            _ => unreachable!("not of the network"),
        }
    }

    pub(crate) fn send(&mut self, range: RangeIndex, from: usize, to: usize, sealed_end: Option<Position>) {
        let (Some(sender), Some(receiver)) = (self.nodes[from].id, self.nodes[to].id) else {
            return;
        };
        let Some(held) = self.nodes[from].held_mut(range) else {
            return;
        };
        let next = held.replica.next_in(receiver, sealed_end);
        let Some((at, logged)) = next.and_then(|at| Some((at, held.entry_at(at, sealed_end)?))) else {
            return;
        };
        let round = held.replica.sent(receiver, sealed_end, logged.end());
        let message = Message {
            from: sender,
            to: receiver,
            range,
            offered: Offered {
                from: sender,
                epoch: held.replica.range().epoch,
                at,
                entry: logged.content.entry(),
                confirmed: held.replica.confirmed(),
                sealed_end,
            },
            logged,
            round,
            is_stray: false,
        };
        if self.setup.0.in_flight {
            self.flight.push(message);
        } else {
            self.deliver(message);
        }
    }

    /// The sender has waited long enough, and makes the connection anew.
    fn retry(&mut self, range: RangeIndex, from: usize, to: usize, sealed_end: Option<Position>) {
        let (sender, Some(receiver)) = (self.nodes[from].id, self.nodes[to].id) else {
            return;
        };
        self.answers.retain(|one| {
            let is_old = Some(one.to) == sender && one.from == receiver && one.range == range;
            !is_old || matches!(one.answer, Answer::Synced(_)) || one.sealed_end != sealed_end
        });
        if let Some(held) = self.nodes[from].held_mut(range) {
            held.replica.disconnected(receiver);
        }
    }

    pub(crate) fn deliver(&mut self, message: Message) {
        let rules = self.rules();
        let Some(to) = self.place_of(message.to).filter(|to| self.nodes[*to].is_up) else {
            return;
        };
        self.nodes[to].missed.remove(&message.from);
        let verdict = self.nodes[to].offered(message.range, &message.offered, &message.logged, rules);
        if message.is_stray {
            return;
        }
        let answer = match verdict {
            Some(Verdict::GoOn(at)) => Answer::GoOn(at),
            Some(Verdict::Refused(why)) => Answer::Refused(why),
            // What is taken is answered when it is synced.
            Some(Verdict::Take | Verdict::Begin | Verdict::Held | Verdict::Mend | Verdict::Close) | None => return,
        };
        let reply = Reply {
            from: message.to,
            to: message.from,
            range: message.range,
            sealed_end: message.offered.sealed_end,
            round: message.round,
            answer,
        };
        if self.setup.0.in_flight {
            self.answers.push(reply);
        } else {
            self.hear(reply);
        }
    }

    /// A server answers what it was sent last by another one.
    pub(crate) fn report(&mut self, range: RangeIndex, from: usize, to: usize, sealed_end: Option<Position>) {
        let (Some(reporter), Some(asker)) = (self.nodes[from].id, self.nodes[to].id) else {
            return;
        };
        let Some(held) = self.nodes[from].held(range) else {
            return;
        };
        let answer = match sealed_end {
            None => held.replica.answer(),
            Some(_) => held.replica.answer_written_back(),
        };
        // It answers what it is now, so that it may as well answer what arrived last.
        let known = self.nodes[to].held(range);
        let round = known.map(|held| held.replica.round(reporter, sealed_end));
        let reply = Reply {
            from: reporter,
            to: asker,
            range,
            sealed_end,
            round: round.unwrap_or_default(),
            answer,
        };
        if self.setup.0.in_flight {
            self.answers.push(reply);
        } else {
            self.hear(reply);
        }
    }

    /// An answer arrives; with the next entry the other server learns what is confirmed.
    pub(crate) fn hear(&mut self, reply: Reply) {
        let rules = self.rules();
        let places = (self.place_of(reply.from), self.place_of(reply.to));
        let (Some(from), Some(to)) = places else { return };
        if !self.nodes[from].is_up || !self.nodes[to].is_up {
            return;
        }
        self.nodes[to].missed.remove(&reply.from);
        let Some(held) = self.nodes[to].held_mut(reply.range) else {
            return;
        };
        held.replica
            .heard(reply.from, reply.sealed_end, Some(reply.round), reply.answer);
        let is_primary = held.replica.range().primary() == Some(reply.to);
        let confirmed = held.replica.confirmed();
        if is_primary
            && self.reaches(to, from)
            && let Some(held) = self.nodes[from].held_mut(reply.range)
        {
            held.replica.learn(confirmed);
            self.nodes[from].missed.remove(&reply.to);
        }
        self.nodes[from].fold(rules);
        self.nodes[to].fold(rules);
    }

    fn tell_damaged(&mut self, node: usize) {
        if let Some(id) = self.nodes[node].id {
            self.drivers.iter_mut().for_each(|driver| driver.damaged(id));
        }
    }

    pub(crate) fn act_on_node(&mut self, action: Action) {
        let rules = self.rules();
        match action {
            Action::Sync { node, entries } => self.nodes[node].sync(entries, rules),
            Action::Drop(node) => {
                self.left.drops -= 1;
                self.nodes[node].drop_queued();
            }
            Action::Crash(node) => {
                self.left.crashes -= 1;
                self.nodes[node].crash();
                self.disconnect(node);
            }
            Action::Start(node) => {
                let scenario = std::sync::Arc::clone(&self.setup.0);
                self.nodes[node].start(&scenario);
                self.ghost.recovered(&self.nodes[node], &scenario);
            }
            Action::Commit(node) => self.nodes[node].commit(&self.setup.0),
            Action::Damage { node, range, place } => {
                self.left.damages -= 1;
                self.tell_damaged(node);
                if let Some(held) = self.nodes[node].held_mut(RangeIndex(range)) {
                    held.damage(place);
                }
            }
            Action::DamageEnd { node, range, kept } => {
                self.left.damages -= 1;
                self.tell_damaged(node);
                if let Some(held) = self.nodes[node].held_mut(RangeIndex(range)) {
                    held.damage_end(kept);
                }
            }
            Action::Wipe(node) => {
                self.left.wipes -= 1;
                let id = self.nodes[node].id;
                self.disconnect(node);
                self.nodes[node] = Node::new(if rules.hold(Rule::LostDiskIsANewServer) {
                    None
                } else {
                    id
                });
            }
            _ => unreachable!("not a server's"),
        }
    }

    /// A server's connections end with its process.
    pub(crate) fn disconnect(&mut self, node: usize) {
        let Some(id) = self.nodes[node].id else { return };
        self.flight
            .iter_mut()
            .filter(|one| one.from == id || one.to == id)
            .for_each(|one| one.is_stray = true);
        self.flight.retain(|one| one.to != id);
        let is_heard = |one: &Reply| one.from != id || matches!(one.answer, Answer::Synced(_));
        self.answers.retain(|one| one.to != id && is_heard(one));
        for other in &mut self.nodes {
            other.ranges.iter_mut().for_each(|held| held.replica.disconnected(id));
        }
    }
}
