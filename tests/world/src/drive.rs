//! What placement drivers and their store do.

use std::sync::Arc;

use sbp_replication::{EndWrite, Holder, Quorum, ReplicatedRange, Rule, SealJob, SealStep, Sealed, Term, choose_next};
use sbp_types::{Epoch, Offset, RangeIndex, RangeKey, ServerId};

use crate::action::Action;
use crate::driver::RangeRecord;
use crate::ghost::{Violation, has_whole};
use crate::world::World;

impl World {
    pub(crate) fn act_as_driver(&mut self, action: Action) {
        match action {
            Action::Number { driver, node } => self.number(driver, node),
            Action::Lead(driver) => {
                self.left.leads -= 1;
                self.store.term.0 += 1;
                let known = &mut self.drivers[driver];
                known.term = Some(self.store.term);
                known.forget_job();
                known.load(&self.store);
            }
            Action::Seal(driver) => {
                self.left.seals -= 1;
                self.begin_seal(driver);
            }
            Action::Again(driver) => self.begin_seal(driver),
            Action::Fence { driver, node } => self.fence(driver, node),
            Action::Vote { driver, node } => self.vote(driver, node),
            Action::Decide(driver) => {
                if let Some(job) = &mut self.drivers[driver].job {
                    job.decide();
                }
            }
            Action::Force(driver) => {
                self.left.forces -= 1;
                if let Some(job) = &mut self.drivers[driver].job {
                    let is_forced = job.end_by_force().is_some();
                    self.drivers[driver].is_forced |= is_forced;
                }
            }
            Action::WriteBack(driver) => self.write_back(driver),
            Action::WrittenBack { driver, node } => {
                if let (Some(job), Some(id)) = (&mut self.drivers[driver].job, self.nodes[node].id) {
                    job.written_back(id);
                }
            }
            Action::Away { driver, server } => {
                let known = &mut self.drivers[driver];
                if let Some(job) = &mut known.job {
                    job.away(ServerId(server));
                    known.away.push(ServerId(server));
                }
            }
            Action::Store {
                driver,
                first,
                is_answered,
            } => self.store(driver, first, is_answered),
            Action::Tell { driver, node } => self.tell(driver, node),
            Action::Copy { range, from, to } => {
                self.left.copies -= 1;
                if let Some(id) = self.nodes[to].id {
                    self.nodes[from].copy_to(id, RangeIndex(range), &self.setup.0);
                }
            }
            Action::Copied { driver, range, to } => self.copied(driver, RangeIndex(range), to),
            Action::Trim { driver, start } => {
                self.left.trims -= 1;
                if self.leads(driver) {
                    self.store.start = Offset(start);
                    self.ghost.trimmed(self.store.start);
                    self.drivers[driver].start = self.store.start;
                    if let Some(job) = &mut self.drivers[driver].job {
                        job.trimmed(Offset(start));
                    }
                }
            }
            Action::Move { driver, range, to } => self.move_to(driver, RangeIndex(range), to),
            Action::Restore => {
                self.left.restores -= 1;
                self.store = World::new(&self.setup.0).store;
                self.store.term = Term(0);
            }
            Action::Replace { node, by } => self.replace(node, by),
            _ => unreachable!("not a placement driver's"),
        }
    }

    fn begin_seal(&mut self, driver: usize) {
        let rules = self.rules();
        let Some(range) = self.drivers[driver].open_range().cloned() else {
            return;
        };
        let mut job = SealJob::new(self.as_sealed(range), rules);
        job.trimmed(self.drivers[driver].start);
        self.drivers[driver].job = Some(job);
        self.drivers[driver].ordered.clear();
        self.drivers[driver].excused.clear();
        self.drivers[driver].away.clear();
        self.drivers[driver].is_forced = false;
    }

    /// The range as its seal sees it: with the quorum that it was opened with.
    pub(crate) fn as_sealed(&self, range: Arc<ReplicatedRange>) -> Arc<ReplicatedRange> {
        let scenario = &self.setup.0;
        if self.rules().hold(Rule::QuorumsOfTheSet) {
            return range;
        }
        let quorum = Quorum::new(scenario.later_replicas, scenario.acks).expect("a set of servers");
        Arc::new(ReplicatedRange {
            quorum,
            ..ReplicatedRange::clone(&range)
        })
    }

    pub(crate) fn number(&mut self, driver: usize, node: usize) {
        let leads = self.leads(driver);
        let known = &mut self.drivers[driver];
        if !leads {
            known.term = None;
            return;
        }
        let number = known.next_server;
        known.next_server += 1;
        self.store.next_server = self.store.next_server.max(number + 1);
        self.nodes[node].id = Some(ServerId(number));
    }

    /// Whether a write of this driver is taken by the store.
    pub(crate) fn leads(&self, driver: usize) -> bool {
        let term = self.drivers[driver].term.unwrap_or_default();
        term.may_write(self.store.term, self.rules())
    }

    pub(crate) fn fence(&mut self, driver: usize, node: usize) {
        let (rules, term) = (self.rules(), self.drivers[driver].term);
        let (Some(job), Some(term)) = (&self.drivers[driver].job, term) else {
            return;
        };
        let key = job.range().key;
        let record = self.drivers[driver]
            .ranges
            .iter()
            .find(|record| record.range.key == key);
        let Some(range) = record.map(|record| Arc::clone(&record.range)) else {
            return;
        };
        let target = &mut self.nodes[node];
        if target.follows(term, rules) {
            target.fence(&range, &self.setup.0);
        }
    }

    pub(crate) fn vote(&mut self, driver: usize, node: usize) {
        let (rules, term) = (self.rules(), self.drivers[driver].term);
        let Some(range) = self.drivers[driver].job.as_ref().map(|job| job.range().key.range) else {
            return;
        };
        let target = &mut self.nodes[node];
        if !term.is_some_and(|term| target.follows(term, rules)) {
            return;
        }
        let held = target.held(range);
        let vote = held.and_then(|held| held.replica.vote());
        let spans = held.map_or_else(Vec::new, |held| held.replica.damaged_spans().to_vec());
        if let (Some(vote), Some(id), Some(job)) = (vote, target.id, &mut self.drivers[driver].job) {
            job.cannot_read(id, spans);
            job.vote(id, vote);
        }
    }

    pub(crate) fn write_back(&mut self, driver: usize) {
        let (rules, term) = (self.rules(), self.drivers[driver].term);
        let Some(job) = &self.drivers[driver].job else { return };
        let SealStep::WriteBack { source, to, end } = job.step() else {
            return;
        };
        let range = job.range().key.range;
        let Some(place) = self.place_of(source) else { return };
        let to = self.to_order(driver, source, &to, end);
        let target = &mut self.nodes[place];
        if !term.is_some_and(|term| target.follows(term, rules)) {
            return;
        }
        if let Some(held) = target.held_mut(range) {
            held.replica.write_back(to.iter().copied(), end);
            let orders = to.into_iter().map(|server| (source, server, end));
            self.drivers[driver].ordered.extend(orders);
        }
    }

    pub(crate) fn store(&mut self, driver: usize, first: usize, is_answered: bool) {
        if !is_answered {
            self.left.lost_answers -= 1;
        }
        let rules = self.rules();
        let Some(job) = &self.drivers[driver].job else { return };
        let SealStep::Store(sealed) = job.step() else { return };
        let key = job.range().key;
        if !self.leads(driver) {
            self.drivers[driver].term = None;
            self.drivers[driver].forget_job();
            return;
        }
        let place = self.store.ranges.iter().position(|record| record.range.key == key);
        let Some(place) = place else { return };
        if EndWrite::given(self.store.ranges[place].end, rules) == EndWrite::Store {
            let Some(next) = self.next_range(driver, place, &sealed, first) else {
                return;
            };
            self.check_copies(driver, &sealed, place);
            self.store.ranges.truncate(place + 1);
            self.store.ranges[place].end = Some(sealed.end);
            self.store.ranges[place].complete = sealed.complete;
            self.store.ranges[place].knowing = sealed.knowing;
            self.store.ranges.push(next);
        }
        if is_answered {
            let store = self.store.clone();
            self.drivers[driver].load(&store);
            self.drivers[driver].forget_job();
        }
    }

    /// Before an end is stored, as many servers as acknowledge have everything up to it, or all that could be reached.
    pub(crate) fn check_copies(&mut self, driver: usize, sealed: &Sealed, place: usize) {
        if self.drivers[driver].is_forced {
            return;
        }
        let set = &self.store.ranges[place].range;
        let away = &self.drivers[driver].away;
        let index = set.key.range;
        // Who lost its disk, or something of it, after it had voted has done its part.
        let is_excused = |server: &ServerId| {
            let counts = sealed.complete.contains(server);
            counts && (self.place_of(*server).is_none() || self.drivers[driver].excused.contains(server))
        };
        let has_whole = |server: &ServerId| {
            let node = self.place_of(*server);
            node.is_some_and(|node| has_whole(&self.nodes[node], index, sealed.end)) || is_excused(server)
        };
        let beginning = set.beginning();
        let copies = set
            .servers
            .iter()
            .filter(|server| sealed.end <= beginning || has_whole(server));
        let lacks = |server: &ServerId| !has_whole(server) && !away.contains(server);
        if copies.count() < set.quorum.acks() && set.servers.iter().any(lacks) {
            self.ghost.break_promise(Violation::TooFewCopies(index));
        }
    }

    /// The range that follows, if one can be opened.
    pub(crate) fn next_range(&self, driver: usize, place: usize, sealed: &Sealed, first: usize) -> Option<RangeRecord> {
        let scenario = &self.setup.0;
        let last = &self.store.ranges[place].range;
        // Where nothing was ever stored, who knew the writers before knows them still.
        let older = self.store.ranges[..place].iter().rev();
        let mut older = older.filter(|record| record.knows_writers());
        let (complete, knowing) = match older.next() {
            Some(older) if !sealed.knows_writers() && self.rules().hold(Rule::SuccessorKnowsWriters) => {
                (&older.complete, &older.knowing)
            }
            _ => (&sealed.complete, &sealed.knowing),
        };
        let places = (first..self.nodes.len()).chain(0..first);
        let alive = places
            .filter(|node| self.nodes[*node].is_up && self.converses(driver, *node))
            .filter_map(|node| self.nodes[node].id);
        let holders: Vec<_> = alive
            .map(|server| Holder {
                server,
                is_complete: complete.contains(&server),
                knows_writers: knowing.contains(&server),
            })
            .collect();
        let (replicas, acks) = match scenario.alternates && last.key.range.0 % 2 == 0 {
            true => (1, 1),
            false => (scenario.later_replicas, scenario.acks),
        };
        let servers = choose_next(&holders, replicas, acks, self.rules()).ok()?;
        let quorum = Quorum::new(servers.len(), acks)?;
        let range = Arc::new(ReplicatedRange {
            key: RangeKey {
                range: RangeIndex(last.key.range.0 + 1),
                ..last.key
            },
            epoch: Epoch(last.epoch.0 + 1),
            start: sealed.end.offset,
            servers,
            quorum,
        });
        Some(RangeRecord::open(range))
    }

    pub(crate) fn tell(&mut self, driver: usize, node: usize) {
        let scenario = &self.setup.0;
        let Some(term) = self.drivers[driver].term else { return };
        let target = &mut self.nodes[node];
        if !target.follows(term, scenario.rules) {
            return;
        }
        target.trimmed(self.drivers[driver].start, scenario.rules);
        for record in &self.drivers[driver].ranges {
            target.told(record, scenario);
        }
        target.trimmed(self.drivers[driver].start, scenario.rules);
        if self.leads(driver) {
            self.hear_who_lacks(node);
        }
    }

    /// A server that was told of all ranges says which of them are not whole there.
    fn hear_who_lacks(&mut self, node: usize) {
        let Some(id) = self.nodes[node].id else { return };
        let asks_anew = self.rules().hold(Rule::AskedAnew);
        for record in &mut self.store.ranges {
            let (index, Some(end)) = (record.range.key.range, record.end) else {
                continue;
            };
            let Some(held) = self.nodes[node].held_mut(index) else {
                continue;
            };
            held.has_unsaid_loss = false;
            if !held.replica.says_incomplete() {
                continue;
            }
            // Who alone has the most goes on counting: others could learn nothing anywhere else.
            if record.complete.as_slice() == [id] {
                held.has_unsaid_loss = true;
                continue;
            }
            record.complete.retain(|server| *server != id);
            record.knowing.retain(|server| *server != id);
            // Whoever sent it that is ordered to send it again, which is an order of its own.
            for held in self.nodes.iter_mut().filter_map(|node| node.held_mut(index)) {
                if asks_anew && held.replica.is_written_back(id, end) {
                    held.replica.forget(id, end);
                }
            }
        }
    }

    pub(crate) fn copied(&mut self, driver: usize, range: RangeIndex, to: usize) {
        let Some(id) = self.nodes[to].id.filter(|_| self.leads(driver)) else {
            return;
        };
        let knows_writers = self.nodes[to]
            .held(range)
            .is_some_and(|held| held.replica.knows_writers());
        let record = self
            .store
            .ranges
            .iter_mut()
            .find(|record| record.range.key.range == range);
        if let Some(record) = record
            && !record.complete.contains(&id)
        {
            record.complete.push(id);
            // The seal knew what it would know if it was sent all that it lacked. Where that was trimmed, it was not.
            record.knowing.retain(|known| *known != id);
            if knows_writers {
                record.knowing.push(id);
            }
        }
        let store = self.store.clone();
        self.drivers[driver].load(&store);
    }

    fn move_to(&mut self, driver: usize, range: RangeIndex, to: usize) {
        self.left.moves -= 1;
        let Some(id) = self.nodes[to].id.filter(|_| self.leads(driver)) else {
            return;
        };
        let mut records = self.store.ranges.iter_mut();
        if let Some(record) = records.find(|record| record.range.key.range == range) {
            record.copying.push(id);
        }
        let store = self.store.clone();
        self.drivers[driver].load(&store);
    }

    pub(crate) fn replace(&mut self, node: usize, by: usize) {
        self.left.replacements -= 1;
        let (Some(leaves), Some(comes)) = (self.nodes[node].id, self.nodes[by].id) else {
            return;
        };
        let Some(record) = self.store.ranges.last_mut() else {
            return;
        };
        let mut range = ReplicatedRange::clone(&record.range);
        range
            .servers
            .iter_mut()
            .filter(|server| **server == leaves)
            .for_each(|server| *server = comes);
        record.range = Arc::new(range);
        let record = record.clone();
        for node in &mut self.nodes {
            if let Some(held) = node.held_mut(record.range.key.range) {
                held.replica.replace_set(&record.range);
            }
            node.told(&record, &self.setup.0);
        }
        let store = self.store.clone();
        self.drivers
            .iter_mut()
            .filter(|driver| driver.term.is_some())
            .for_each(|driver| driver.load(&store));
    }
}
