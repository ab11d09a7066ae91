//! Pulling the plug on a range server alone: what it was told, what it sealed, and what was appended in between.

use super::*;
use sbp_replication::Term;
use sbp_types::{ClusterId, Position, ServerId, StreamIdentity};

use crate::meta;
use crate::placement::{Settings, StreamRecord};
use crate::range::{CopyRecord, HeldRange, Phase, RangeServer, ReplicaSet};
use crate::roles::{Job, RangeStore, Update};
use crate::storage::{self, RangeStorage, open_range_server};

/// A range server with its range store.
pub(super) struct Life {
    pub(super) ranges: Arc<RangeServer>,
    pub(super) range_store: RangeStore,
}

/// The server does not answer as a healthy one any more.
#[derive(Debug)]
pub(super) struct Dead;

impl Life {
    pub(super) fn start(disk: &SimFileSystem) -> Result<Self, StartError> {
        let parts = parts(disk);
        let RangeStorage {
            ranges,
            hosted_ranges,
            store,
            ..
        } = open_range_server(&parts, small_log())?;
        let range_store = RangeStore::start(hosted_ranges, store, Arc::clone(&ranges), parts.health).unwrap();
        Ok(Self { ranges, range_store })
    }

    /// Has the range store do something.
    pub(super) fn keep<T: Send + 'static>(
        &self,
        job: impl FnOnce(Box<dyn FnOnce(Result<T, Refusal>) + Send>) -> Job,
    ) -> Result<T, Dead> {
        let (sender, answer) = mpsc::channel();
        self.range_store
            .submit(job(Box::new(move |result| sender.send(result).unwrap())));
        let answer = answer.recv_timeout(PATIENCE).expect("the range store says nothing");
        answer.map_err(|_| Dead)
    }

    pub(super) fn learn(&self, stream: StreamId, ranges: &[HeldRange]) -> Result<(), Dead> {
        let update = Update {
            question: 0,
            stream: Some(record(stream)),
            ranges: ranges.to_vec(),
            first: ranges.first().map(|first| (first.key.range, first.start)),
            ..Update::default()
        };
        self.keep(|done| Job::Learn { stream, update, done }).map(drop)
    }

    pub(super) fn append(&self, listener: &Listener, stream: StreamId, body: &Bytes) -> Result<Offset, ErrorCode> {
        let mut done = Vec::new();
        let mut jobs = vec![job(stream, 0, body)];
        self.ranges.append(&listener.requester, &mut jobs, &mut done);
        while done.is_empty() {
            done = listener.next();
        }
        let outcome = done.remove(0).outcome;
        let stored = outcome.map_err(|refused| refused.refusal.code)?;
        Ok(stored.base_offset.expect("it has a record"))
    }

    /// Writes a checkpoint.
    pub(super) fn checkpoint(&self) -> Result<(), Dead> {
        self.ranges.log.checkpoint().map_err(|_| Dead)
    }

    fn held(&self, stream: StreamId) -> Vec<HeldRange> {
        let held = self.ranges.all_held().into_iter();
        held.filter(|held| held.key.stream == stream).collect()
    }

    /// Every record of a stream that is kept.
    fn read(&self, stream: StreamId) -> BTreeMap<Offset, Bytes> {
        let mut all = BTreeMap::new();
        for held in self.held(stream) {
            let end = self.ranges.hub.ranges.lock().table.next_offset(held.key).unwrap();
            let mut from = held.start;
            while from < end {
                let batches = self.ranges.log.read(held.key, from, 1 << 20, true).unwrap();
                assert!(!batches.is_empty(), "nothing at {from} of range {}", held.key);
                for batch in batches {
                    let bytes = batch.bytes.into_contiguous();
                    let head = inspect(std::slice::from_ref(&bytes), true).unwrap();
                    assert_eq!((head.base_offset, batch.base_offset), (from, from));
                    all.insert(from, bytes.slice(head.head_length..head.head_length + head.body_length));
                    from = from.checked_add(batch.count).unwrap();
                }
            }
        }
        all
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.range_store.stop();
    }
}

fn record(id: StreamId) -> Arc<StreamRecord> {
    Arc::new(StreamRecord {
        id,
        name: None,
        settings: Settings {
            replica_count: 1,
            ack_count: 1,
            retention_period_ms: 0,
            retention_bytes: None,
            schema: None,
            properties: BTreeMap::new(),
        },
        created_at: TimestampMs(0),
        identity: None,
        owner: None,
    })
}

/// What a placement driver knows of one stream, and what was promised about it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// As the placement driver has them.
    pub(super) ranges: Vec<HeldRange>,
    pub(super) records: BTreeMap<Offset, Bytes>,
    pub(super) start: Offset,
    pub(super) deletion_asked: bool,
    pub(super) deleted: bool,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) sent: HashSet<Bytes>,
}

fn step(life: &Life, listener: &Listener, random: &mut fastrand::Rng, model: &mut Model) -> Result<(), Dead> {
    let id = StreamId(random.i64(1..=3));
    let stream = model.streams.entry(id).or_default();
    if stream.deletion_asked {
        return Ok(());
    }
    let Some(last) = stream.ranges.last().cloned() else {
        stream.ranges.push(HeldRange {
            key: RangeKey {
                stream: id,
                range: RangeIndex(0),
            },
            epoch: Epoch(0),
            start: Offset(0),
            end: None,
            set: ReplicaSet::alone(),
            copy: CopyRecord::default(),
        });
        return life.learn(id, &stream.ranges);
    };
    match random.u8(..10) {
        0 | 1 => {
            let (key, epoch) = (last.key, last.epoch);
            let sealed = life.keep(|done| Job::Seal {
                key,
                epoch: Some(epoch),
                end: None,
                done,
            })?;
            let end = sealed.end.unwrap();
            stream.ranges.pop();
            stream.ranges.push(sealed);
            stream.ranges.push(HeldRange {
                key: RangeKey {
                    stream: id,
                    range: RangeIndex(key.range.0 + 1),
                },
                epoch: Epoch(epoch.0 + 1),
                start: end,
                end: None,
                set: ReplicaSet::alone(),
                copy: CopyRecord::default(),
            });
            life.learn(id, &stream.ranges)
        }
        2 => {
            let end = stream.records.keys().next_back().map_or(0, |last| last.0 + 1);
            let start = Offset(random.i64(stream.start.0..=end.max(stream.start.0)));
            let last = stream.ranges.len() - 1;
            let gone = stream.ranges[..last]
                .iter()
                .take_while(|range| range.end.is_some_and(|end| end <= start));
            let gone = gone.count();
            stream.ranges.drain(..gone);
            stream.ranges[0].start = stream.ranges[0].start.max(start);
            life.learn(id, &stream.ranges)?;
            stream.start = start;
            Ok(())
        }
        3 if random.u8(..4) == 0 => {
            stream.deletion_asked = true;
            life.keep(|done| Job::Delete { stream: id, done })?;
            stream.deleted = true;
            Ok(())
        }
        _ => {
            let body = Bytes::from(format!("{:016x}", random.u64(..)).repeat(random.usize(1..200)));
            model.sent.insert(body.clone());
            let offset = life.append(listener, id, &body).map_err(|_| Dead)?;
            assert_eq!(
                stream.records.insert(offset, body),
                None,
                "offset {offset} was given twice"
            );
            Ok(())
        }
    }
}

fn live(disk: &SimFileSystem, listener: &Listener, seed: u64, model: &mut Model) -> bool {
    let Ok(life) = Life::start(disk) else { return false };
    let mut random = fastrand::Rng::with_seed(seed);
    (0..24).all(|_| step(&life, listener, &mut random, model).is_ok())
}

/// What a start on this disk must find.
pub(super) fn check_stream(life: &Life, id: StreamId, stream: &Stream, sent: &HashSet<Bytes>) -> Result<(), String> {
    let held = life.held(id);
    if held.is_empty() {
        return match stream.deletion_asked || stream.records.is_empty() {
            true => Ok(()),
            false => Err(format!("stream {id} is gone")),
        };
    }
    if stream.deleted {
        return Err(format!("stream {id} is back"));
    }
    for pair in held.windows(2) {
        if pair[0].end != Some(pair[1].start) || pair[0].key.range.0 + 1 != pair[1].key.range.0 {
            return Err(format!("ranges do not meet: {held:?}"));
        }
    }
    if held[0].start < stream.start {
        return Err(format!(
            "stream {id} begins at {}, not at {}",
            held[0].start, stream.start
        ));
    }
    for told in &stream.ranges {
        let there = held.iter().find(|held| held.key == told.key);
        if told.end.is_some() && there.is_some_and(|there| there.end != told.end) {
            return Err(format!("the end of {told:?} has moved: {there:?}"));
        }
    }
    let found = life.read(id);
    for (offset, body) in stream.records.range(held[0].start..) {
        if found.get(offset) != Some(body) {
            return Err(format!(
                "the acknowledged record {offset} of stream {id} is gone or another one"
            ));
        }
    }
    match found.values().find(|body| !sent.contains(*body)) {
        Some(phantom) => Err(format!("a record that nobody sent: {phantom:?}")),
        None => Ok(()),
    }
}

fn check(disk: &SimFileSystem, listener: &Listener, model: &Model) -> Result<(), String> {
    let life = Life::start(disk).map_err(|error| format!("does not start: {error}"))?;
    for (id, stream) in &model.streams {
        check_stream(&life, *id, stream, &model.sent)?;
        let open = life.held(*id).last().is_some_and(|last| last.end.is_none());
        let phase = life
            .ranges
            .hub
            .ranges
            .lock()
            .table
            .stream(*id)
            .map(|stream| stream.last().unwrap().phase);
        if open {
            assert_eq!(phase, Some(Phase::Open));
            let next = life.read(*id).keys().next_back().map(|last| last.0 + 1);
            let offset = life.append(listener, *id, &Bytes::from_static(b"after"));
            let offset = offset.map_err(|code| format!("stream {id} takes nothing: {code}"))?;
            if next.is_some_and(|next| next != offset.0) {
                return Err(format!("stream {id} goes on at {offset}, not at {next:?}"));
            }
        } else if stream.deleted {
            let refused = life.append(listener, *id, &Bytes::from_static(b"after"));
            assert_eq!(refused, Err(ErrorCode::NOT_FOUND), "a deletion is remembered");
        }
    }
    Ok(())
}

/// Runs the script with the power going at `operation`, and starts twice on what is left.
fn crash(listener: &Listener, seed: u64, operation: u64, lying: bool) -> Result<(), String> {
    let disk = SimFileSystem::new();
    if lying {
        disk.ignore_syncs();
    }
    let mut model = Model::default();
    disk.power_off_at(operation);
    live(&disk, listener, seed, &mut model);
    let left = disk.power_cut(Survival::Random(seed ^ operation));
    model.sent.insert(Bytes::from_static(b"after"));
    let again = left.power_cut(Survival::Random(operation));
    check(&left, listener, &model).map_err(|problem| format!("first start: {problem}"))?;
    check(&again, listener, &model).map_err(|problem| format!("second start: {problem}"))
}

fn script_length(listener: &Listener, seed: u64) -> u64 {
    let disk = SimFileSystem::new();
    assert!(live(&disk, listener, seed, &mut Model::default()));
    disk.operations()
}

#[test]
fn nothing_that_a_range_server_was_told_or_promised_is_lost_when_the_power_goes() {
    let listener = Listener::new();
    for seed in 1..=2 {
        let length = script_length(&listener, seed);
        // Between them two seeds have the power go at every operation.
        for operation in (1 + seed % 2..=length + 1).step_by(2) {
            if let Err(problem) = crash(&listener, seed, operation, false) {
                panic!("seed {seed}, power off at operation {operation} of {length}: {problem}");
            }
        }
    }
}

#[test]
fn a_disk_that_does_not_sync_is_noticed_on_a_range_server_too() {
    let listener = Listener::new();
    let length = script_length(&listener, 1);
    let noticed = (1..=length).step_by(7).any(|operation| {
        let crash = std::panic::AssertUnwindSafe(|| crash(&listener, 1, operation, true));
        !matches!(std::panic::catch_unwind(crash), Ok(Ok(())))
    });
    assert!(noticed);
}

#[test]
fn a_range_server_starts_although_a_stream_in_its_log_goes_on_elsewhere() {
    let (disk, listener) = (SimFileSystem::new(), Listener::new());
    let stream = StreamId(1);
    let key = RangeKey {
        stream,
        range: RangeIndex(0),
    };
    let held = HeldRange {
        key,
        epoch: Epoch(0),
        start: Offset(0),
        end: None,
        set: ReplicaSet::alone(),
        copy: CopyRecord::default(),
    };
    let life = Life::start(&disk).unwrap();
    life.learn(stream, std::slice::from_ref(&held)).unwrap();
    life.append(&listener, stream, &Bytes::from_static(b"trimmed")).unwrap();
    let (epoch, end) = (None, None);
    let sealed = life.keep(|done| Job::Seal { key, epoch, end, done }).unwrap();
    assert_eq!(sealed.end, Some(Offset(1)));
    let update = Update {
        first: Some((RangeIndex(1), Offset(1))),
        ..Update::default()
    };
    life.keep(|done| Job::Learn { stream, update, done }).unwrap();
    drop(life);
    let life = Life::start(&disk).unwrap();
    let left = HeldRange {
        start: Offset(1),
        end: Some(Offset(1)),
        ..held
    };
    assert_eq!(life.held(stream), [left]);
}

#[test]
fn a_range_that_others_hold_too_is_never_sealed_by_one_server_alone() {
    let life = Life::start(&SimFileSystem::new()).unwrap();
    let stream = StreamId(1);
    let key = RangeKey {
        stream,
        range: RangeIndex(0),
    };
    let shared = HeldRange {
        key,
        epoch: Epoch(0),
        start: Offset(0),
        end: None,
        set: ReplicaSet::new([1, 2, 3].map(ServerId), Some(2)),
        copy: CopyRecord::default(),
    };
    life.learn(stream, &[shared]).unwrap();
    // Somebody did not find it, and it came in between.
    let (epoch, end) = (Some(Epoch(0)), None);
    assert!(life.keep(|done| Job::Seal { key, epoch, end, done }).is_err());
    assert_eq!(life.held(stream)[0].end, None);
}

#[test]
fn that_another_server_has_something_else_is_known_in_the_next_life() {
    for is_disputed in [false, true] {
        let disk = SimFileSystem::new();
        let life = Life::start(&disk).unwrap();
        life.ranges.log.set_server_id(ServerId(2)).unwrap();
        let stream = StreamId(1);
        let key = RangeKey {
            stream,
            range: RangeIndex(0),
        };
        let shared = HeldRange {
            key,
            epoch: Epoch(0),
            start: Offset(0),
            end: None,
            set: ReplicaSet::new([1, 2, 3].map(ServerId), Some(2)),
            copy: CopyRecord::default(),
        };
        life.learn(stream, &[shared]).unwrap();
        let at = Position::start(Offset(0));
        if is_disputed {
            life.keep(|done| Job::Dispute { key, at, done }).unwrap();
        }
        drop(life);
        let life = Life::start(&disk).unwrap();
        let (sender, fenced) = mpsc::channel();
        let done = Box::new(move |fenced: Result<Position, Refusal>| sender.send(fenced).unwrap());
        life.ranges.fence(key, Some(Epoch(0)), done);
        let fenced = fenced.recv_timeout(PATIENCE).unwrap().map_err(|refusal| refusal.code);
        let expected = if is_disputed {
            Err(ErrorCode::RS_DATA_CORRUPTED)
        } else {
            Ok(at)
        };
        assert_eq!(fenced, expected);
    }
}

#[test]
fn who_has_followed_a_leader_does_nothing_that_an_earlier_one_says_not_even_after_a_restart() {
    let disk = SimFileSystem::new();
    let stream = StreamId(1);
    let held = HeldRange {
        key: RangeKey {
            stream,
            range: RangeIndex(0),
        },
        epoch: Epoch(0),
        start: Offset(0),
        end: None,
        set: ReplicaSet::alone(),
        copy: CopyRecord::default(),
    };
    let ordered = |life: &Life, term| {
        let (sender, answer) = mpsc::channel();
        life.range_store.submit(Job::Ordered {
            term: Term(term),
            job: Box::new(Job::Delete {
                stream: StreamId(2),
                done: Box::new(move |result| sender.send(result).unwrap()),
            }),
        });
        answer.recv_timeout(PATIENCE).unwrap().map_err(|refusal| refusal.code)
    };
    let life = Life::start(&disk).unwrap();
    life.learn(stream, std::slice::from_ref(&held)).unwrap();
    assert_eq!(ordered(&life, 5), Ok(()));
    assert_eq!(ordered(&life, 4), Err(ErrorCode::PD_NOT_LEADER));
    assert_eq!(ordered(&life, 5), Ok(()));
    drop(life);
    let life = Life::start(&disk).unwrap();
    assert_eq!(ordered(&life, 4), Err(ErrorCode::PD_NOT_LEADER));
    assert_eq!(ordered(&life, 6), Ok(()));
    assert_eq!(ordered(&life, 5), Err(ErrorCode::PD_NOT_LEADER));
    // Who tells no term is asked by nobody else who does.
    assert_eq!(ordered(&life, 0), Ok(()));
    assert_eq!(life.held(stream), [held]);
}

#[test]
fn what_comes_while_the_disk_is_at_work_is_made_durable_together() {
    const STREAMS: i64 = 200;
    let disk = SimFileSystem::new();
    let life = Life::start(&disk).unwrap();
    let range = |stream: i64, end: Option<i64>| HeldRange {
        key: RangeKey {
            stream: StreamId(stream),
            range: RangeIndex(0),
        },
        epoch: Epoch(0),
        start: Offset(0),
        end: end.map(Offset),
        set: ReplicaSet::new([1, 2, 3].map(ServerId), Some(2)),
        copy: CopyRecord::default(),
    };
    // The log syncs files of its own, also after its start.
    let is_of_metadata = |done: &&String| done.contains("Sync") && done.contains(meta::FILE);
    let syncs = || disk.trace().iter().filter(is_of_metadata).count();
    let before = syncs();
    life.learn(StreamId(STREAMS), &[range(STREAMS, None)]).unwrap();
    let of_one = syncs() - before;
    assert!(of_one > 0);

    // The thread waits until all are there.
    let (go_on, wait) = mpsc::channel();
    let done = Box::new(move |_| wait.recv().unwrap());
    life.range_store.submit(Job::Follow { done });
    let (sender, answers) = mpsc::channel();
    let submit = |stream: i64, end| {
        let update = Update {
            stream: Some(record(StreamId(stream))),
            ranges: vec![range(stream, end)],
            ..Update::default()
        };
        let (stream, sender) = (StreamId(stream), sender.clone());
        let done = Box::new(move |held: Result<Vec<HeldRange>, Refusal>| sender.send(held.unwrap()).unwrap());
        life.range_store.submit(Job::Learn { stream, update, done });
    };
    let before = syncs();
    for stream in 0..STREAMS {
        submit(stream, None);
    }
    // What is said of a stream of which something is gathered already goes by that.
    submit(STREAMS - 1, Some(0));
    go_on.send(()).unwrap();
    for stream in 0..STREAMS {
        assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), [range(stream, None)]);
    }
    assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), [range(STREAMS - 1, Some(0))]);
    assert_eq!(syncs() - before, 2 * of_one);
    drop(life);
    let life = Life::start(&disk.power_cut(Survival::Random(1))).unwrap();
    assert_eq!(life.held(StreamId(STREAMS - 1)), [range(STREAMS - 1, Some(0))]);
    assert_eq!(life.held(StreamId(7)), [range(7, None)]);
}

const ONE: ClusterId = ClusterId(StreamIdentity([1; 16]));
const TWO: ClusterId = ClusterId(StreamIdentity([2; 16]));

/// Opens the directory of a range server; which cluster it belongs to, and whether it has a number.
fn opened(disk: &SimFileSystem) -> (Option<ClusterId>, Option<ServerId>) {
    let parts = parts(disk);
    let storage = open_range_server(&parts, small_log()).unwrap();
    let cluster = parts.cluster.get().copied();
    assert_eq!(storage.has_joined, cluster.is_some());
    (cluster, storage.server_id)
}

/// As a range server that has asked for its number.
fn join(disk: &SimFileSystem, cluster: Option<ClusterId>, id: ServerId) {
    let parts = parts(disk);
    let mut storage = open_range_server(&parts, small_log()).unwrap();
    if let Some(cluster) = cluster {
        parts.cluster.set(cluster).unwrap();
    }
    storage::join(&mut storage, Path::new("/data"), &parts.cluster, id).unwrap();
}

#[test]
fn a_number_is_kept_with_the_cluster_that_has_given_it() {
    let disk = SimFileSystem::new();
    join(&disk, Some(ONE), ServerId(7));
    assert_eq!(opened(&disk), (Some(ONE), Some(ServerId(7))));
}

#[test]
fn a_directory_without_an_id_keeps_the_one_of_the_cluster_that_takes_it_in() {
    let disk = SimFileSystem::new();
    // Of an earlier version, or from a placement driver of one.
    join(&disk, None, ServerId(7));
    assert_eq!(opened(&disk), (None, Some(ServerId(7))));
    let life = Life::start(&disk).unwrap();
    life.keep(|done| Job::Join { cluster: ONE, done }).unwrap();
    drop(life);
    assert_eq!(opened(&disk), (Some(ONE), Some(ServerId(7))));
}

#[test]
fn a_directory_that_has_got_no_number_yet_may_go_into_another_cluster() {
    let disk = SimFileSystem::new();
    // The power went before it had the number.
    let life = Life::start(&disk).unwrap();
    life.keep(|done| Job::Join { cluster: ONE, done }).unwrap();
    drop(life);
    assert_eq!(opened(&disk), (None, None));
    join(&disk, Some(TWO), ServerId(3));
    assert_eq!(opened(&disk), (Some(TWO), Some(ServerId(3))));
}

#[test]
fn a_placement_driver_begins_a_cluster_once() {
    let disk = SimFileSystem::new();
    let begun = || {
        let parts = parts(&disk);
        stop(open(&parts, small_log(), Arc::new(NoOthers)).unwrap());
        *parts.cluster.get().unwrap()
    };
    let id = begun();
    assert_eq!(begun(), id);
    let other = parts(&SimFileSystem::new());
    stop(open(&other, small_log(), Arc::new(NoOthers)).unwrap());
    assert_ne!(*other.cluster.get().unwrap(), id);
}
