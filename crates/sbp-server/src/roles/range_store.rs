//! The thread that makes a range server's hosted ranges durable.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Instant;

use sbp_locks::Mutex;
use sbp_messages::ErrorCode;
use sbp_replication::{Order, Rules, Term};
use sbp_types::{ClusterId, Epoch, Offset, Position, RangeIndex, RangeKey, StreamId};

use super::hosted_ranges::{HostedRanges, Update};
use crate::failure::Health;
use crate::meta::{MetadataChange, MetadataError, MetadataStore};
use crate::placement::{Change, ServerRecord};
use crate::range::{CopyRecord, FencedEnd, HeldRange, RangeServer, SWEEP};
use crate::refusal::{Done, Refusal};

/// The most changes of one transaction, about.
const MOST_CHANGES: usize = 1_024;

/// A change of the ranges held here that has to become durable.
pub(crate) enum Job {
    /// Take over what the placement driver has told about a stream. The result is the stream's ranges held here
    /// afterwards.
    Learn {
        stream: StreamId,
        update: Update,
        done: Done<Vec<HeldRange>>,
    },
    /// Seal a range; `end` is the end that the requester expects, if any. The result is given when the end is durable.
    Seal {
        key: RangeKey,
        epoch: Option<Epoch>,
        end: Option<Offset>,
        done: Done<HeldRange>,
    },
    /// Fence the copy of a range that other servers hold too. The result, where the copy ends, is given when the fence is
    /// durable.
    Fence {
        key: RangeKey,
        epoch: Option<Epoch>,
        done: Done<FencedEnd>,
    },
    /// A fenced copy ended here.
    Fenced {
        key: RangeKey,
        taken: Result<Position, Refusal>,
        done: Done<FencedEnd>,
    },
    /// Another server has something else of a range from here on than this one.
    Dispute {
        key: RangeKey,
        at: Position,
        done: Done<()>,
    },
    /// The log has ended everything that a range accepted before its seal.
    Drained {
        key: RangeKey,
        end: Result<Offset, Refusal>,
    },
    /// A stream is deleted.
    Delete { stream: StreamId, done: Done<()> },
    /// Which time it is that each of these ranges is held. The result has those that are.
    Times {
        keys: Vec<RangeKey>,
        done: Done<Vec<(RangeKey, u64)>>,
    },
    /// The server was let go of those of these ranges that are `held` still at the given time. The result are those of all of
    /// them, which are `told` as they are elsewhere, of which something is here.
    LetGo {
        told: Vec<HeldRange>,
        held: Vec<(RangeKey, u64)>,
        done: Done<Vec<RangeKey>>,
    },
    /// The log has nothing any more of ranges that the server was let go of.
    Cleared { keys: Vec<RangeKey>, done: Done<()> },
    /// What a placement driver of this term has ordered or told, to be done unless one of a higher term was followed.
    Ordered { term: Term, job: Box<Job> },
    /// Nothing but what [`Ordered`](Self::Ordered) asks.
    Follow { done: Done<()> },
    /// Range servers are where the placement driver says.
    Locate { servers: Vec<ServerRecord> },
    /// The directory belongs to this cluster.
    Join { cluster: ClusterId, done: Done<()> },
    /// Check which deleted streams can be forgotten.
    Sweep,
    /// The server is shutting down.
    Stop,
}

impl Job {
    /// Tells whoever waits for it that it is not done.
    fn refuse(self, refusal: Refusal) {
        match self {
            Self::Learn { done, .. } => done(Err(refusal)),
            Self::Seal { done, .. } => done(Err(refusal)),
            Self::Fence { done, .. } | Self::Fenced { done, .. } => done(Err(refusal)),
            Self::Delete { done, .. }
            | Self::Cleared { done, .. }
            | Self::Dispute { done, .. }
            | Self::Follow { done }
            | Self::Join { done, .. } => done(Err(refusal)),
            Self::Times { done, .. } => done(Err(refusal)),
            Self::LetGo { done, .. } => done(Err(refusal)),
            Self::Ordered { job, .. } => job.refuse(refusal),
            // Nobody waits.
            Self::Drained { .. } | Self::Locate { .. } | Self::Sweep | Self::Stop => {}
        }
    }
}

/// The hosted ranges of a range server in a process of its own. One thread changes them, in the order of the jobs.
#[derive(Debug)]
pub(crate) struct RangeStore {
    jobs: mpsc::Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The term of the placement driver that is followed; 0: of none.
    followed: Arc<AtomicU64>,
}

impl RangeStore {
    /// Starts the thread.
    pub(crate) fn start(
        hosted_ranges: HostedRanges,
        store: Box<dyn MetadataStore>,
        ranges: Arc<RangeServer>,
        health: Arc<Health>,
    ) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel();
        let followed = Arc::new(AtomicU64::new(hosted_ranges.followed.get().0));
        let worker = Worker {
            followed: Arc::clone(&followed),
            hosted_ranges,
            store,
            ranges,
            health,
            jobs: sender.clone(),
            sealing: HashMap::new(),
            group: Group::default(),
        };
        let thread = std::thread::Builder::new()
            .name("sbp-metadata".to_owned())
            .spawn(move || worker.run(&jobs))?;
        Ok(Self {
            jobs: sender,
            thread: Mutex::new(Some(thread)),
            followed,
        })
    }

    /// The highest term of a placement driver that was followed; 0: none.
    pub(crate) fn followed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.followed)
    }

    /// Whether the placement driver of this term is followed already, so that it need not be asked of the thread.
    pub(super) fn follows(&self, term: Term) -> bool {
        term == Term(self.followed.load(Ordering::Relaxed))
    }

    /// Submits a job. While the server shuts down, jobs are dropped without calling `done`.
    pub(crate) fn submit(&self, job: Job) {
        // The receiving end lives as long as the thread, which only `stop` ends.
        let _stopped = self.jobs.send(job);
    }

    /// The way to the thread, for who submits jobs without owning it.
    pub(crate) fn sender(&self) -> mpsc::Sender<Job> {
        self.jobs.clone()
    }

    /// Ends the thread once the submitted jobs are done.
    pub(crate) fn stop(&self) {
        self.submit(Job::Stop);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata thread panicked");
        }
    }
}

/// A request to seal a range: the end that its sender expects, and the callback for the result.
type Sealer = (Option<Offset>, Done<HeldRange>);

/// What follows when changes were made durable, or could not be.
type Then = Box<dyn FnOnce(&mut Worker, Result<(), Refusal>) + Send>;

/// Changes of jobs that are made durable in one transaction, and what follows then.
#[derive(Default)]
struct Group {
    changes: Vec<MetadataChange>,
    /// In the order of the jobs.
    then: Vec<Then>,
    /// The streams that the changes are about. What a job does goes by what is durable, so another one about such a stream
    /// waits until these are.
    streams: HashSet<StreamId>,
}

struct Worker {
    /// Told once a placement driver's term is durable.
    followed: Arc<AtomicU64>,
    hosted_ranges: HostedRanges,
    store: Box<dyn MetadataStore>,
    ranges: Arc<RangeServer>,
    health: Arc<Health>,
    /// For callbacks of the range server, which submit further jobs.
    jobs: mpsc::Sender<Job>,
    /// The requests to seal a range that wait for its end.
    sealing: HashMap<RangeKey, Vec<Sealer>>,
    group: Group,
}

impl Worker {
    fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        let mut sweep_at = Instant::now() + SWEEP;
        loop {
            match jobs.recv_timeout(sweep_at.saturating_duration_since(Instant::now())) {
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(job) => {
                    self.handle_job(job);
                    while self.group.changes.len() < MOST_CHANGES
                        && let Ok(job) = jobs.try_recv()
                    {
                        if matches!(job, Job::Stop) {
                            self.commit_group();
                            return;
                        }
                        self.handle_job(job);
                    }
                    self.commit_group();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.handle_job(Job::Sweep);
                    sweep_at = Instant::now() + SWEEP;
                }
            }
        }
    }

    /// Forgets deleted streams of which no records are left.
    fn sweep(&mut self) {
        let mut gone: Vec<_> = self.hosted_ranges.streams.tombstones().collect();
        gone.retain(|stream| self.ranges.may_forget(*stream));
        let forget = |stream: StreamId| MetadataChange::Placement(Change::DropTombstone(stream));
        // If the disk is full or has failed, the next sweep tries again.
        let _committed = self.commit(gone.into_iter().map(forget).collect());
    }

    fn handle_job(&mut self, job: Job) {
        match &job {
            Job::Learn { stream, .. } if !self.group.streams.contains(stream) => {}
            Job::Fence { key, .. } | Job::Fenced { key, .. } if !self.group.streams.contains(&key.stream) => {}
            // These change nothing of a stream by themselves.
            Job::Ordered { .. } | Job::Follow { .. } => {}
            _ => self.commit_group(),
        }
        match job {
            Job::Learn { stream, update, done } => self.learn(stream, update, done),
            Job::Seal { key, epoch, end, done } => self.seal(key, epoch, end, done),
            Job::Fence { key, epoch, done } => self.fence(key, epoch, done),
            Job::Fenced { key, taken, done } => match taken {
                Ok(taken) => self.fenced(key, taken, done),
                Err(refusal) => done(Err(refusal)),
            },
            Job::Dispute { key, at, done } => done(self.keep_dispute(key, at)),
            Job::Drained { key, end } => self.drained(key, end),
            Job::Delete { stream, done } => done(self.delete(stream)),
            Job::Times { keys, done } => {
                let time = |key: RangeKey| Some((key, self.hosted_ranges.time(key)?));
                done(Ok(keys.into_iter().filter_map(time).collect()));
            }
            Job::LetGo { told, held, done } => {
                let gone = self.let_go(&told, &held);
                let keys: Vec<_> = told.iter().map(|range| range.key).collect();
                done(gone.map(|()| self.hosted_ranges.left_of(&keys)));
            }
            Job::Cleared { keys, done } => done(self.cleared(&keys)),
            Job::Ordered { term, job } => match self.follow(term) {
                Ok(()) => self.handle_job(*job),
                Err(refusal) => job.refuse(refusal),
            },
            Job::Follow { done } => done(Ok(())),
            Job::Locate { servers } => self.locate(servers),
            Job::Join { cluster, done } => done(self.commit(vec![MetadataChange::Cluster(cluster)])),
            Job::Sweep => self.sweep(),
            Job::Stop => {}
        }
    }

    /// Whether to do what a placement driver of this term says. The first time it is made durable that no one of a lower term is
    /// followed any more. Who tells none is followed: those that have one tell it.
    fn follow(&mut self, term: Term) -> Result<(), Refusal> {
        if term == Term::default() {
            return Ok(());
        }
        match self.hosted_ranges.followed.judge(term, Rules::default()) {
            Order::Follow => {
                self.followed.store(term.0, Ordering::Relaxed);
                Ok(())
            }
            Order::FollowNew => {
                self.commit_group();
                self.commit(vec![MetadataChange::Followed(term)])?;
                self.followed.store(term.0, Ordering::Relaxed);
                Ok(())
            }
            Order::Refuse(followed) => {
                let message = format!(
                    "this range server has followed the placement driver that leads in term {followed}, and does nothing \
                     more that was said in term {term}: by one that was deposed, or whose metadata were put back from an \
                     older copy. Such a one is to be stopped, and to get the newest metadata that there are"
                );
                Err(Refusal::new(ErrorCode::PD_NOT_LEADER, message))
            }
        }
    }

    fn learn(&mut self, stream: StreamId, update: Update, done: Done<Vec<HeldRange>>) {
        self.hosted_ranges.note_description(stream, &update);
        let first = update.first;
        let learnt = move |worker: &mut Self, kept, gone| done(worker.learnt(stream, first, kept, gone));
        match self.hosted_ranges.learn(stream, &update) {
            Ok(changes) => {
                let gone = changes.iter().filter_map(|change| match change {
                    MetadataChange::LetGo(key) => Some(*key),
                    _ => None,
                });
                let gone: Vec<_> = gone.collect();
                self.gather(stream, changes, move |worker, kept| learnt(worker, kept, gone));
            }
            Err(refusal) => learnt(self, Err(refusal), Vec::new()),
        }
    }

    /// What the placement driver has told about a stream is durable, or is not; with it that this server is done without the ranges
    /// that are `gone`.
    fn learnt(
        &mut self,
        stream: StreamId,
        first: Option<(RangeIndex, Offset)>,
        kept: Result<(), Refusal>,
        gone: Vec<RangeKey>,
    ) -> Result<Vec<HeldRange>, Refusal> {
        let held = self.hosted_ranges.of(stream);
        // Also when the disk does not take it: who may do what goes by the name that the placement driver knows.
        let facts = self.hosted_ranges.description(stream).map(|record| record.facts());
        self.ranges.install(stream, facts.unwrap_or_default(), &held);
        kept?;
        self.ranges.leave(gone);
        if let Some((range, start)) = first {
            self.ranges.begins_with(RangeKey { stream, range });
            self.ranges.trim(stream, start);
        }
        Ok(held)
    }

    /// Adds to what is kept of ranges with copies what the log may forget after a trim.
    fn with_copies(&self, mut changes: Vec<MetadataChange>) -> Vec<MetadataChange> {
        for change in &mut changes {
            if let MetadataChange::Hold(held) = change
                && !held.set.is_alone()
            {
                held.copy.writers_parts = held.copy.writers_parts.max(self.ranges.writers_parts(held.key));
            }
        }
        changes
    }

    fn seal(&mut self, key: RangeKey, epoch: Option<Epoch>, seen: Option<Offset>, done: Done<HeldRange>) {
        let Some(held) = self.hosted_ranges.ranges.get(&key) else {
            let refusal = match self.hosted_ranges.streams.has_tombstone(key.stream) {
                true => Refusal::no_stream(key.stream),
                false => Refusal::range_not_here(key),
            };
            return done(Err(refusal));
        };
        if let Err(refusal) = Refusal::check_epoch(key, held.epoch, epoch) {
            return done(Err(refusal));
        }
        if let Some(end) = held.end {
            return done(Refusal::check_end(key, end, seen).map(|()| held.clone()));
        }
        if !held.set.is_alone() {
            // Whoever asked took it for a range that is here alone, or did not find it yet: its end takes votes.
            return done(Err(Refusal::range_not_here(key)));
        }
        let waiting = self.sealing.entry(key).or_default();
        waiting.push((seen, done));
        if waiting.len() == 1 {
            let jobs = self.jobs.clone();
            self.ranges.seal(
                key,
                Box::new(move |end| {
                    // The receiver has ended if the server is shutting down.
                    let _stopped = jobs.send(Job::Drained { key, end });
                }),
            );
        }
    }

    fn fence(&mut self, key: RangeKey, epoch: Option<Epoch>, done: Done<FencedEnd>) {
        let jobs = self.jobs.clone();
        self.ranges.fence(
            key,
            epoch,
            Box::new(move |taken| {
                // The receiver has ended if the server is shutting down.
                let _stopped = jobs.send(Job::Fenced { key, taken, done });
            }),
        );
    }

    /// Makes a fence durable, together with the place where the copy ended.
    fn fenced(&mut self, key: RangeKey, taken: Position, done: Done<FencedEnd>) {
        let Some(held) = self.hosted_ranges.ranges.get(&key) else {
            return done(Err(Refusal::range_not_here(key)));
        };
        let mut changes = Vec::new();
        if held.copy.fenced_at.is_none() {
            let copy = CopyRecord {
                fenced_at: Some(taken),
                ..held.copy
            };
            changes.push(MetadataChange::Hold(HeldRange { copy, ..held.clone() }));
        }
        self.gather(key.stream, changes, move |worker, kept| {
            done(kept.and_then(|()| worker.ranges.fence_is_durable(key, taken)));
        });
    }

    /// The copy counts for nothing from here on, also after a restart.
    fn keep_dispute(&mut self, key: RangeKey, at: Position) -> Result<(), Refusal> {
        let Some(held) = self.hosted_ranges.ranges.get(&key) else {
            return Err(Refusal::range_not_here(key));
        };
        if held.copy.disputed.is_some_and(|known| known <= at) {
            return Ok(());
        }
        let copy = CopyRecord {
            disputed: Some(at),
            ..held.copy
        };
        self.commit(vec![MetadataChange::Hold(HeldRange { copy, ..held.clone() })])
    }

    fn drained(&mut self, key: RangeKey, end: Result<Offset, Refusal>) {
        let waiting = self.sealing.remove(&key).unwrap_or_default();
        let agrees = |end: Offset| waiting.iter().any(|(seen, _)| seen.is_none_or(|seen| seen == end));
        let result = match end {
            Ok(end) if agrees(end) => self.make_end_durable(key, end),
            // All requesters expect another end: the range is not sealed.
            Ok(end) => {
                self.ranges.unseal(key);
                for (seen, done) in waiting {
                    done(Err(Refusal::other_end(key, end, seen.unwrap_or(end))));
                }
                return;
            }
            Err(refusal) => Err(refusal),
        };
        for (seen, done) in waiting {
            let agreed = |(held, end)| Refusal::check_end(key, end, seen).map(|()| held);
            done(result.clone().and_then(agreed));
        }
    }

    /// Returns the range with its end.
    fn make_end_durable(&mut self, key: RangeKey, end: Offset) -> Result<(HeldRange, Offset), Refusal> {
        let Some(held) = self.hosted_ranges.ranges.get(&key) else {
            return Err(Refusal::no_stream(key.stream));
        };
        let stored = end.max(held.start);
        let held = HeldRange {
            end: Some(stored),
            ..held.clone()
        };
        match self.commit(vec![MetadataChange::Hold(held.clone())]) {
            Ok(()) => {
                self.ranges.publish_seal(key, end);
                Ok((held, stored))
            }
            Err(refusal) => {
                self.ranges.unseal(key);
                Err(refusal)
            }
        }
    }

    /// Keeps the addresses of servers. Where the disk does not take them, they are told again.
    fn locate(&mut self, servers: Vec<ServerRecord>) {
        let known = &self.hosted_ranges.streams;
        let is_new = |record: &ServerRecord| known.server(record.id).is_none_or(|known| **known != *record);
        let new: Vec<_> = servers.into_iter().filter(is_new).map(Arc::new).collect();
        let put = |record: &Arc<ServerRecord>| MetadataChange::Placement(Change::PutServer(Arc::clone(record)));
        if self.commit(new.iter().map(put).collect()).is_ok() {
            for record in new {
                self.ranges.addresses.note(record.id, &record.address);
            }
        }
    }

    fn delete(&mut self, stream: StreamId) -> Result<(), Refusal> {
        if !self.hosted_ranges.of(stream).is_empty() {
            self.commit(vec![MetadataChange::Placement(Change::PutTombstone(stream))])?;
        }
        self.ranges.delete(stream);
        Ok(())
    }

    /// The server was let go of ranges, which are `told` as they are elsewhere, unless they were given to it again since it was
    /// asked which are `held`.
    fn let_go(&mut self, told: &[HeldRange], held: &[(RangeKey, u64)]) -> Result<(), Refusal> {
        let is_this = |(key, time): &&(RangeKey, u64)| self.hosted_ranges.time(*key) == Some(*time);
        let keys: Vec<_> = held.iter().filter(is_this).map(|(key, _)| *key).collect();
        // One that was away may not know yet where the range ends; what waits for that is told.
        let ended = |range: &&HeldRange| keys.contains(&range.key);
        let ended: Vec<_> = told.iter().filter(ended).cloned().collect();
        self.commit(keys.iter().copied().map(MetadataChange::LetGo).collect())?;
        for range in ended {
            tracing::info!(range = %range.key, "others have all of a sealed range, and are counted on without this server: its copy is removed");
            let facts = self
                .hosted_ranges
                .description(range.key.stream)
                .map(|record| record.facts());
            self.ranges
                .install(range.key.stream, facts.unwrap_or_default(), &[range]);
        }
        self.ranges.leave(keys);
        Ok(())
    }

    /// Ranges have left the disk.
    fn cleared(&mut self, keys: &[RangeKey]) -> Result<(), Refusal> {
        let known = keys.iter().filter(|key| self.hosted_ranges.let_go.contains(key));
        self.commit(known.copied().map(MetadataChange::Cleared).collect())?;
        self.ranges.has_left(keys);
        Ok(())
    }

    /// Has changes made durable together with those of the jobs that have come meanwhile. `then` gets whether they are.
    fn gather(
        &mut self,
        stream: StreamId,
        changes: Vec<MetadataChange>,
        then: impl FnOnce(&mut Self, Result<(), Refusal>) + Send + 'static,
    ) {
        if changes.is_empty() {
            return then(self, Ok(()));
        }
        self.group.changes.extend(self.with_copies(changes));
        self.group.streams.insert(stream);
        self.group.then.push(Box::new(then));
    }

    /// Makes durable what was gathered.
    fn commit_group(&mut self) {
        let Group { changes, then, .. } = std::mem::take(&mut self.group);
        let kept = self.commit(changes);
        for then in then {
            then(self, kept.clone());
        }
    }

    /// Makes changes durable, and only then visible.
    fn commit(&mut self, changes: Vec<MetadataChange>) -> Result<(), Refusal> {
        if changes.is_empty() {
            return Ok(());
        }
        match self.store.commit(&changes) {
            Ok(()) => {
                for change in changes {
                    self.hosted_ranges.install(change);
                }
                Ok(())
            }
            Err(error @ MetadataError::DiskFull) => {
                Err(Refusal::new(ErrorCode::INSUFFICIENT_STORAGE, error.to_string()))
            }
            Err(error) => {
                // The changes may or may not be on the disk; the next start reads which.
                self.health.fail("the metadata store", error.to_string());
                Err(Refusal::new(ErrorCode::RS_INTERNAL_SERVER_ERROR, error.to_string()))
            }
        }
    }
}
