//! What happens when one thing happens: to writers and readers, on the network, on a server.

use sbp_replication::{Answer, Offered, Rule, Verdict};
use sbp_types::RangeIndex;

use crate::action::Action;
use crate::entries::Batch;
use crate::ghost::Violation;
use crate::node::{Append, Node, Question};
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
            | Action::Break { .. } => {
                self.act_on_network(action);
            }
            Action::Sync { .. } | Action::Drop(_) | Action::Crash(_) | Action::Start(_) | Action::Wipe(_) => {
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
        let rules = self.rules();
        for node in self.nodes.iter_mut().filter(|node| node.is_up) {
            node.sync_followed(rules);
        }
        let pairs = || (0..self.nodes.len()).flat_map(|from| (0..self.nodes.len()).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs().filter(|(from, to)| from != to).collect();
        for (from, to) in pairs {
            if !self.nodes[from].is_up || !self.nodes[to].is_up {
                continue;
            }
            let ranges: Vec<_> = self.nodes[to]
                .ranges
                .iter()
                .map(|held| held.replica.range().key.range)
                .collect();
            for range in ranges {
                if self.would_tell(from, to, range) {
                    self.report(range, from, to);
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
        let (known, node) = (&self.drivers[driver], &self.nodes[node]);
        let (Some(job), Some(id)) = (&known.job, node.id) else {
            return false;
        };
        let held = node.held(job.range().key.range);
        node.is_up
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
                        said: Vec::new(),
                        must_see,
                    });
                }
                self.answer_question(node);
            }
            Action::SayUnfenced { node, by } => {
                let who = self.nodes[by].id;
                let question = self.nodes[node]
                    .ranges
                    .last_mut()
                    .and_then(|held| held.question.as_mut());
                if let (Some(question), Some(who)) = (question, who) {
                    question.said.push(who);
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
        let Some(held) = self.nodes[node].ranges.last_mut() else {
            return;
        };
        let replica = &held.replica;
        let needed = replica.range().quorum.acks() - 1;
        let Some(question) = &held.question else { return };
        let is_sure = (question.said.len() >= needed && replica.takes_appends().is_ok() && !replica.is_fenced())
            || !rules.hold(Rule::EndToldByTheLivingPrimary);
        if is_sure {
            if replica.confirmed().offset < question.must_see {
                let told = replica.confirmed().offset;
                self.ghost.break_promise(Violation::OldEnd(told));
            }
            held.question = None;
        }
    }

    pub(crate) fn act_on_network(&mut self, action: Action) {
        match action {
            Action::Send { range, from, to } => self.send(RangeIndex(range), from, to),
            Action::Retry { range, from, to } => {
                if let (Some(id), Some(held)) = (self.nodes[to].id, self.nodes[from].held_mut(RangeIndex(range))) {
                    held.replica.disconnected(id);
                }
            }
            Action::Deliver(place) => {
                let message = self.flight.remove(place);
                self.deliver(message);
            }
            Action::Report { range, from, to } => self.report(RangeIndex(range), from, to),
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

    pub(crate) fn send(&mut self, range: RangeIndex, from: usize, to: usize) {
        let (Some(sender), Some(receiver)) = (self.nodes[from].id, self.nodes[to].id) else {
            return;
        };
        let Some(held) = self.nodes[from].held_mut(range) else {
            return;
        };
        let Some((at, sealed_end)) = held.replica.next_for(receiver) else {
            return;
        };
        let Some(logged) = held.entry_at(at).cloned() else {
            return;
        };
        held.replica.sent(receiver, logged.end());
        let message = Message {
            from: sender,
            to: receiver,
            range,
            offered: Offered {
                from: sender,
                at,
                entry: logged.content.entry(),
                confirmed: held.replica.confirmed(),
                sealed_end,
            },
            logged,
            is_stray: false,
        };
        if self.setup.0.in_flight {
            self.flight.push(message);
        } else {
            self.deliver(message);
        }
    }

    pub(crate) fn deliver(&mut self, message: Message) {
        let rules = self.rules();
        let Some(to) = self.place_of(message.to).filter(|to| self.nodes[*to].is_up) else {
            return;
        };
        let verdict = self.nodes[to].offered(message.range, &message.offered, &message.logged, rules);
        if message.is_stray {
            return;
        }
        let Some(from) = self.place_of(message.from).filter(|from| self.nodes[*from].is_up) else {
            return;
        };
        let Some(held) = self.nodes[from].held_mut(message.range) else {
            return;
        };
        match verdict {
            Some(Verdict::GoOn(at)) => {
                held.replica
                    .heard(message.to, message.offered.sealed_end, Answer::GoOn(at));
            }
            // Nothing is sent again before the receiver says where it is.
            Some(Verdict::Refused(_) | Verdict::Take | Verdict::Held) | None => {}
        }
    }

    /// A server answers what it was sent last by another one.
    pub(crate) fn report(&mut self, range: RangeIndex, from: usize, to: usize) {
        let (Some(reporter), Some(asker)) = (self.nodes[from].id, self.nodes[to].id) else {
            return;
        };
        let (Some(held), Some(asking)) = (self.nodes[from].held(range), self.nodes[to].held(range)) else {
            return;
        };
        let sealed_end = asking.replica.writes_back_up_to(reporter);
        let answer = match sealed_end {
            None => held.replica.answer(),
            Some(_) => held.replica.answer_written_back(),
        };
        let reply = Reply {
            from: reporter,
            to: asker,
            range,
            sealed_end,
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
        let Some(held) = self.nodes[to].held_mut(reply.range) else {
            return;
        };
        held.replica.heard(reply.from, reply.sealed_end, reply.answer);
        let is_primary = held.replica.range().primary() == Some(reply.to);
        let confirmed = held.replica.confirmed();
        if is_primary && let Some(held) = self.nodes[from].held_mut(reply.range) {
            held.replica.learn(confirmed);
        }
        self.nodes[from].fold(rules);
        self.nodes[to].fold(rules);
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
            Action::Start(node) => self.nodes[node].start(rules),
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
        self.answers.retain(|one| one.to != id);
        for other in &mut self.nodes {
            other.ranges.iter_mut().for_each(|held| held.replica.disconnected(id));
        }
    }
}
