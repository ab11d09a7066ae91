//! Pulling the plug on seals, trims, deletions and updates.
//!
//! What was answered stands after the start; what was asked for and not answered happened as a whole or not at all; and
//! whatever happened, the ranges of each stream tile its offsets, with at most one open, on both halves of the server.

use std::collections::BTreeSet;

use sbp_log::FileSystem;
use sbp_messages::RangeId;

use super::super::identify;
use super::*;
use crate::meta::{MetadataChange, MetadataError, MetadataStore, RedbStore};
use crate::placement::{Change, PlacementState, RangeRecord, RequestedSettings, SealFor, StreamRecord, StreamUpdate};
use crate::range::Phase;

/// What was asked for, and what of it was answered.
#[derive(Debug, Default)]
struct Model {
    streams: BTreeMap<StreamId, Expected>,
    /// Numbers that were given.
    next_stream: i64,
    sent: HashSet<Bytes>,
}

/// What is known about one stream.
#[derive(Debug, Default)]
struct Expected {
    name: String,
    records: BTreeMap<Offset, Bytes>,
    /// The start that was answered, and the highest one that was asked for.
    start: Offset,
    highest_start: Offset,
    /// Ends that were answered.
    ends: BTreeMap<RangeIndex, Offset>,
    deletion: Deletion,
    /// The retention that was answered last, and others that were asked for since.
    retention: i64,
    retention_asked: BTreeSet<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deletion {
    #[default]
    No,
    Asked,
    Answered,
}

impl Expected {
    fn end(&self) -> Offset {
        let last = self.records.keys().next_back();
        let records = last.map_or(0, |last| last.0 + 1);
        Offset(records.max(self.start.0))
    }
}

/// The server does not answer as a healthy one any more.
struct Dead;

/// One server's life, which ends with the script or with the power.
struct Life<'a> {
    storage: &'a Storage,
    listener: &'a Listener,
    model: &'a mut Model,
    random: fastrand::Rng,
}

impl Life<'_> {
    fn request(&self, request: Request) -> Result<Result<Outcome, Refusal>, Dead> {
        let answer = ask(self.storage, request, Instant::now() + PATIENCE);
        let result = answer.map_err(|_| Dead)?.remove(0);
        match result {
            Err(refusal) if is_health(refusal.code) => Err(Dead),
            result => Ok(result),
        }
    }

    /// Twenty things, each on one stream.
    fn run(&mut self) -> Result<(), Dead> {
        for name in ["a", "b", "c"] {
            self.create(name)?;
        }
        for _step in 0..20 {
            let alive: Vec<_> = self
                .model
                .streams
                .iter()
                .filter(|(_, stream)| stream.deletion == Deletion::No)
                .map(|(id, _)| *id)
                .collect();
            let Some(id) = self.random.choice(alive) else { break };
            match self.random.u8(0..20) {
                0..9 => self.append(id)?,
                9..13 => self.seal(id, SealFor::PlacementDriver)?,
                13..15 => self.seal(id, SealFor::RangeServer)?,
                15..18 => self.trim(id)?,
                18 => self.update(id)?,
                _ => self.delete(id)?,
            }
        }
        Ok(())
    }

    fn create(&mut self, name: &str) -> Result<(), Dead> {
        let wanted = NewStream {
            name: name.to_owned(),
            ..NewStream::default()
        };
        let taken = self
            .model
            .streams
            .values()
            .any(|stream| stream.name == name && stream.deletion == Deletion::No);
        if taken {
            return Ok(());
        }
        match self.request(Request::CreateStreams(vec![Ok(wanted)]))? {
            Ok(Outcome::NewStream(stream, _)) => {
                let found = self.model.streams.entry(stream.id).or_default();
                found.name = name.to_owned();
                // It may be one whose deletion was asked for in vain.
                found.deletion = Deletion::No;
                self.model.next_stream = self.model.next_stream.max(stream.id.0 + 1);
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, id: StreamId) -> Result<(), Dead> {
        let body = Bytes::from(format!("{:016x}", self.random.u64(..)).repeat(self.random.usize(1..50)));
        self.model.sent.insert(body.clone());
        let mut done = Vec::new();
        let (port, mut jobs) = (&self.listener.requester, vec![job(id, 0, &body)]);
        self.storage.ranges.append(port, &mut jobs, &mut done);
        while done.is_empty() {
            done = self.listener.next();
        }
        match done.remove(0).outcome {
            Ok(stored) => {
                let records = &mut self.stream(id).records;
                let offset = stored.base_offset.expect("it has a record");
                let before = records.insert(offset, body);
                assert_eq!(before, None, "offset {offset} was given twice");
                Ok(())
            }
            Err(not_stored) if not_stored.refusal.code == ErrorCode::RANGE_ALREADY_SEALED => Ok(()),
            Err(_) => Err(Dead),
        }
    }

    fn seal(&mut self, id: StreamId, on_behalf: SealFor) -> Result<(), Dead> {
        let target = RangeId {
            stream_id: id,
            range_index: None,
            epoch: None,
            end_offset: None,
        };
        let sealed = match self.request(Request::SealRanges(on_behalf.into(), vec![Ok(target)]))? {
            Ok(Outcome::Range(range)) => range,
            other => panic!("{other:?}"),
        };
        let (index, end) = match (on_behalf, sealed.end_offset) {
            (SealFor::RangeServer, Some(end)) => (sealed.key.range, end),
            (SealFor::PlacementDriver, None) => (RangeIndex(sealed.key.range.0 - 1), sealed.start_offset),
            other => panic!("{other:?}"),
        };
        let stream = self.stream(id);
        assert_eq!(end, stream.end(), "the end is behind the last acknowledged record");
        assert_eq!(*stream.ends.entry(index).or_insert(end), end, "an end does not move");
        Ok(())
    }

    fn trim(&mut self, id: StreamId) -> Result<(), Dead> {
        let (from, to) = (self.stream(id).start.0, self.stream(id).end().0);
        let start = Offset(self.random.i64(from..=to));
        let stream = self.stream(id);
        stream.highest_start = stream.highest_start.max(start);
        match self.request(Request::TrimStreams(vec![Ok((id, start))]))? {
            Ok(Outcome::StreamRange(_, first)) => {
                assert_eq!(first.start_offset, start, "it begins where it was asked to");
                self.stream(id).start = start;
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn update(&mut self, id: StreamId) -> Result<(), Dead> {
        let retention = self.random.i64(1..1_000_000);
        self.stream(id).retention_asked.insert(retention);
        let update = StreamUpdate {
            id,
            name: String::new(),
            settings: RequestedSettings {
                retention_period_ms: retention,
                ..RequestedSettings::default()
            },
        };
        match self.request(Request::UpdateStreams(vec![Ok(update)]))? {
            Ok(Outcome::Stream(_)) => {
                let stream = self.stream(id);
                stream.retention = retention;
                stream.retention_asked.clear();
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, id: StreamId) -> Result<(), Dead> {
        self.stream(id).deletion = Deletion::Asked;
        match self.request(Request::DeleteStreams(vec![Ok(id)]))? {
            Ok(Outcome::Stream(_)) => {
                self.stream(id).deletion = Deletion::Answered;
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn stream(&mut self, id: StreamId) -> &mut Expected {
        self.model.streams.get_mut(&id).unwrap()
    }
}

/// Whether the code says that the server is ill, not that the request is wrong.
fn is_health(code: ErrorCode) -> bool {
    [
        ErrorCode::PD_INTERNAL_SERVER_ERROR,
        ErrorCode::INSUFFICIENT_STORAGE,
        ErrorCode::LOG_FAILED,
        ErrorCode::SHUTTING_DOWN,
    ]
    .contains(&code)
}

fn live(disk: &SimFileSystem, listener: &Listener, seed: u64, model: &mut Model) -> bool {
    let Ok(storage) = start(disk) else { return false };
    let mut life = Life {
        storage: &storage,
        listener,
        model,
        random: fastrand::Rng::with_seed(seed),
    };
    let alive = life.run().is_ok();
    stop(storage);
    alive
}

/// What a start on this disk must find; what it finds is expected from now on.
fn check(disk: &SimFileSystem, model: &mut Model) -> Result<(), String> {
    let storage = start(disk).map_err(|error| format!("does not start: {error}"))?;
    let checked = check_streams(&storage, model);
    stop(storage);
    checked
}

fn check_streams(storage: &Storage, model: &mut Model) -> Result<(), String> {
    let next = storage.placement.read(|state| state.next_stream_id());
    if next.0 < model.next_stream {
        return Err(format!("stream {next} would be given again"));
    }
    // A stream may have been made and not answered.
    for id in (1..next.0).map(StreamId) {
        let found = storage.placement.read(|state| state.stream(id).cloned());
        let expected = model.streams.entry(id).or_insert_with(|| Expected {
            deletion: Deletion::Asked,
            name: found
                .as_ref()
                .and_then(|found| found.name.clone())
                .unwrap_or_default()
                .to_string(),
            ..Expected::default()
        });
        match (found, expected.deletion) {
            (None, Deletion::No) => return Err(format!("stream {id} is gone")),
            (Some(_), Deletion::Answered) => return Err(format!("stream {id} is there again")),
            (None, _) => {
                expected.deletion = Deletion::Answered;
                if storage.ranges.hub.ranges.lock().table.stream(id).is_some() {
                    return Err(format!("the range server still has stream {id}"));
                }
            }
            (Some(found), _) => {
                expected.deletion = Deletion::No;
                let retention = found.settings.retention_period_ms;
                if retention != expected.retention && !expected.retention_asked.contains(&retention) {
                    return Err(format!("stream {id} has retention {retention}, which nobody asked for"));
                }
                expected.retention = retention;
                expected.retention_asked.clear();
                check_ranges(storage, id, expected)?;
                check_records(storage, id, expected, &model.sent)?;
            }
        }
    }
    Ok(())
}

/// I9, and that both halves agree.
fn check_ranges(storage: &Storage, id: StreamId, expected: &mut Expected) -> Result<(), String> {
    let ranges: Vec<RangeRecord> = storage
        .placement
        .read(|state| state.ranges_of(id).map(|range| RangeRecord::clone(range)).collect());
    for pair in ranges.windows(2) {
        let (one, two) = (&pair[0], &pair[1]);
        let tiles = one.end_offset == Some(two.start_offset) && one.key.range.0 + 1 == two.key.range.0;
        if !tiles || one.epoch >= two.epoch {
            return Err(format!("{one:?} is followed by {two:?}"));
        }
    }
    let Some(first) = ranges.first() else {
        return Err(format!("stream {id} has no range"));
    };
    if first.start_offset < expected.start || first.start_offset > expected.highest_start {
        let (start, highest) = (expected.start, expected.highest_start);
        return Err(format!(
            "stream {id} starts at {}, not {start} to {highest}",
            first.start_offset
        ));
    }
    expected.start = first.start_offset;
    expected.highest_start = first.start_offset;
    for (index, end) in &expected.ends {
        let range = ranges.iter().find(|range| range.key.range == *index);
        let trimmed = *end <= expected.start;
        match range {
            Some(range) if range.end_offset == Some(*end) => {}
            None if trimmed => {}
            other => return Err(format!("range {index} of stream {id} ended at {end} and is {other:?}")),
        }
    }
    let held = storage.ranges.hub.ranges.lock();
    for range in &ranges {
        let Some(state) = held.table.range(range.key) else {
            return Err(format!("the range server does not have {}", range.key));
        };
        let end = (state.phase == Phase::Sealed).then_some(state.confirmed);
        if (state.epoch, state.start, end) != (range.epoch, range.start_offset, range.end_offset) {
            return Err(format!("{range:?} is {state:?} at the range server"));
        }
    }
    match held.table.stream(id).map(|stream| stream.ranges.len()) {
        Some(count) if count == ranges.len() => Ok(()),
        count => Err(format!(
            "the range server has {count:?} ranges of stream {id}, not {}",
            ranges.len()
        )),
    }
}

/// I1 to I3: every acknowledged record from the start on is there, once, and no other but those that were sent.
fn check_records(
    storage: &Storage,
    id: StreamId,
    expected: &mut Expected,
    sent: &HashSet<Bytes>,
) -> Result<(), String> {
    let found = read(storage, id);
    let mut next = expected.start;
    for (offset, body) in &found {
        if *offset != next {
            return Err(format!("stream {id} goes on at {offset}, not at {next}"));
        }
        if !sent.contains(body) {
            return Err(format!("a record that nobody sent at {offset} of stream {id}"));
        }
        next = Offset(offset.0 + 1);
    }
    let found: BTreeMap<_, _> = found.into_iter().collect();
    for (offset, body) in expected.records.range(expected.start..) {
        if found.get(offset) != Some(body) {
            return Err(format!(
                "the acknowledged record at {offset} of stream {id} is gone or another one"
            ));
        }
    }
    expected.records = found;
    Ok(())
}

fn crash(listener: &Listener, seed: u64, operation: u64, lying: bool) -> Result<(), String> {
    let disk = SimFileSystem::new();
    if lying {
        disk.ignore_syncs();
    }
    let mut model = Model::default();
    disk.power_off_at(operation);
    live(&disk, listener, seed, &mut model);
    let second = disk.power_cut(Survival::Random(seed ^ operation));
    let in_life = |life: &'static str| move |problem: String| format!("{life} life: {problem}");
    check(&second, &mut model).map_err(in_life("first"))?;
    check(&second, &mut model).map_err(in_life("first, looked at again"))?;
    second.power_off_at(second.operations() + 1 + operation % 97);
    live(&second, listener, seed + 1, &mut model);
    check(&second.power_cut(Survival::Random(operation)), &mut model).map_err(in_life("second"))
}

fn script_length(listener: &Listener, seed: u64) -> u64 {
    let disk = SimFileSystem::new();
    assert!(
        live(&disk, listener, seed, &mut Model::default()),
        "the script runs through"
    );
    disk.operations()
}

#[test]
fn ranges_tile_and_answers_stand_when_the_power_goes() {
    let listener = Listener::new();
    // More of them for a longer soak: SBP_POWER_LOSS_SEEDS=100.
    let seeds = std::env::var("SBP_POWER_LOSS_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(4);
    for seed in 1..=seeds {
        let length = script_length(&listener, seed);
        // Another few places with every seed.
        for operation in (1 + seed % 11..=length + 1).step_by(11) {
            if let Err(problem) = crash(&listener, seed, operation, false) {
                panic!("seed {seed}, power off at operation {operation} of {length}: {problem}");
            }
        }
    }
}

#[test]
fn a_disk_that_does_not_sync_is_noticed_here_too() {
    let listener = Listener::new();
    let length = script_length(&listener, 1);
    let noticed = (1..=length).step_by(11).any(|operation| {
        let crash = std::panic::AssertUnwindSafe(|| crash(&listener, 1, operation, true));
        !matches!(std::panic::catch_unwind(crash), Ok(Ok(())))
    });
    assert!(noticed);
}

/// Appends to a stream until the log has gone on in another segment, a few times. Gives the stream's end.
fn fill(storage: &Storage, listener: &Listener, stream: StreamId) -> Offset {
    let groups = || storage.ranges.log.stats().written_bytes;
    let before = groups();
    for _append in 0..1_000 {
        let offset = append_one(storage, listener, stream).unwrap();
        if groups() > before + 3 * small_log().segment_bytes {
            return Offset(offset.0 + 1);
        }
    }
    panic!("the log does not go on in another segment");
}

#[test]
fn a_deleted_stream_is_forgotten_when_nothing_of_it_is_left() {
    let (disk, listener) = (SimFileSystem::new(), Listener::new());
    let mut storage = start(&disk).unwrap();
    let ask = |storage: &Storage, request| {
        let answer = ask(storage, request, Instant::now() + PATIENCE);
        answer.unwrap().remove(0).unwrap()
    };
    let stream = |storage: &Storage, name: &str| {
        let name = name.to_owned();
        let wanted = NewStream {
            name,
            ..NewStream::default()
        };
        match ask(storage, Request::CreateStreams(vec![Ok(wanted)])) {
            Outcome::NewStream(stream, _) => stream.id,
            other => panic!("{other:?}"),
        }
    };
    let (kept, full, trimmed) = (
        stream(&storage, "kept"),
        stream(&storage, "full"),
        stream(&storage, "trimmed"),
    );
    fill(&storage, &listener, full);
    let end = append_one(&storage, &listener, trimmed).unwrap();
    // Its records, and their segments, are gone before the stream is.
    ask(&storage, Request::TrimStreams(vec![Ok((trimmed, Offset(end.0 + 1)))]));
    fill(&storage, &listener, kept);
    for _checkpoint in 0..4 {
        storage.ranges.log.checkpoint().unwrap();
    }
    ask(&storage, Request::DeleteStreams(vec![Ok(full), Ok(trimmed)]));
    let tombstones = |storage: &Storage| storage.placement.read(|state| state.tombstones().collect::<Vec<_>>());
    storage.placement.sweep();
    assert_eq!(
        tombstones(&storage),
        [full, trimmed],
        "segments still hold records of it"
    );
    // Whatever is forgotten in between: the directory can be started.
    for round in 0..6 {
        stop(storage);
        storage = start(&disk).unwrap_or_else(|error| panic!("round {round}: {error}"));
        // What is kept must not keep the segment that it shares with a deleted stream.
        let end = fill(&storage, &listener, kept);
        ask(&storage, Request::TrimStreams(vec![Ok((kept, end))]));
        storage.ranges.log.checkpoint().unwrap();
        for _sweep in 0..2 {
            storage.placement.sweep();
        }
        // The sweep is done when a later request is.
        ask(
            &storage,
            Request::UpdateStreams(vec![Ok(StreamUpdate {
                id: kept,
                ..StreamUpdate::default()
            })]),
        );
        let more = storage.ranges.log.stats().checkpoints;
        while storage.ranges.log.stats().checkpoints < more + 3 {
            storage.ranges.log.checkpoint().unwrap();
            storage.placement.sweep();
            ask(
                &storage,
                Request::UpdateStreams(vec![Ok(StreamUpdate {
                    id: kept,
                    ..StreamUpdate::default()
                })]),
            );
        }
    }
    assert_eq!(tombstones(&storage), []);
    assert!(storage.ranges.log.ranges().iter().all(|key| key.stream == kept));
    stop(storage);
    stop(start(&disk).unwrap());
}

/// Writes the stream back as it was before streams had an identity.
fn forget_identity(disk: &SimFileSystem, stream: &StreamRecord) {
    let files: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let mut store = RedbStore::open(&files, Path::new("/data")).unwrap();
    let old = StreamRecord {
        identity: None,
        owner: None,
        ..stream.clone()
    };
    let change = MetadataChange::Placement(Change::PutStream(Arc::new(old)));
    store.commit(&[change]).unwrap();
}

#[test]
fn streams_that_were_made_without_an_identity_get_one_at_the_next_start_and_keep_it() {
    let (disk, listener) = (SimFileSystem::new(), Listener::new());
    let (storage, id) = with_two_records(&parts(&disk), &listener);
    let record = |storage: &Storage| {
        storage
            .placement
            .read(|state| StreamRecord::clone(state.stream(id).unwrap()))
    };
    let made = record(&storage);
    stop(storage);
    forget_identity(&disk, &made);
    let storage = start(&disk).unwrap();
    let identified = record(&storage);
    stop(storage);
    assert!(
        identified
            .identity
            .is_some_and(|identity| Some(identity) != made.identity)
    );
    let identity = identified.identity;
    assert_eq!(
        StreamRecord {
            identity,
            ..made.clone()
        },
        identified,
        "nothing else changes"
    );
    let storage = start(&disk).unwrap();
    assert_eq!(record(&storage), identified);
    stop(storage);
    // Without room for it, the stream is as it was, and the server starts all the same.
    let mut state = PlacementState::default();
    let without = StreamRecord { identity: None, ..made };
    state.install(Change::PutStream(Arc::new(without)));
    identify(Path::new("/data"), &mut state, &mut NoRoom).unwrap();
    assert_eq!(
        state.stream(id).unwrap().identity,
        None,
        "nobody sees what is not durable"
    );
}

/// A store whose disk is full.
#[derive(Debug)]
struct NoRoom;

impl MetadataStore for NoRoom {
    fn load(&self) -> Result<Vec<MetadataChange>, MetadataError> {
        Ok(Vec::new())
    }

    fn commit(&mut self, changes: &[MetadataChange]) -> Result<(), MetadataError> {
        assert_ne!(changes, [], "a commit of nothing");
        Err(MetadataError::DiskFull)
    }
}

#[test]
fn a_full_disk_can_be_freed() {
    let (disk, listener) = (SimFileSystem::new(), Listener::new());
    let parts = parts(&disk);
    let (storage, stream) = with_two_records(&parts, &listener);
    let mut model = Model::default();
    model.streams.entry(stream).or_default().records = (0..2).map(|n| (Offset(n), Bytes::new())).collect();
    let mut life = Life {
        storage: &storage,
        listener: &listener,
        model: &mut model,
        random: fastrand::Rng::with_seed(1),
    };
    disk.set_capacity(Some(0));
    while append_one(&storage, &listener, stream).map(|offset| {
        life.stream(stream).records.insert(offset, Bytes::new());
    }) != Err(ErrorCode::INSUFFICIENT_STORAGE)
    {}
    assert!(life.seal(stream, SealFor::PlacementDriver).is_ok(), "a seal");
    assert!(life.trim(stream).is_ok(), "a trim");
    assert!(life.update(stream).is_ok(), "an update");
    assert!(life.delete(stream).is_ok(), "a deletion");
    assert_eq!(parts.health.failure(), None);
    stop(storage);
}

#[test]
fn nothing_is_appended_behind_an_end_that_may_be_on_the_disk() {
    let (disk, listener) = (SimFileSystem::new(), Listener::new());
    let parts = parts(&disk);
    let (storage, stream) = with_two_records(&parts, &listener);
    disk.fail(Operation::Sync, 0, io::ErrorKind::Other);
    let mut life = Life {
        storage: &storage,
        listener: &listener,
        model: &mut Model::default(),
        random: fastrand::Rng::with_seed(1),
    };
    life.model.streams.entry(stream).or_default();
    assert!(life.seal(stream, SealFor::PlacementDriver).is_err());
    assert_eq!(parts.health.failure().unwrap().what, "the metadata store");
    // At once, and not never: an append does not wait for a range that will not come.
    assert_eq!(
        append_one(&storage, &listener, stream),
        Err(ErrorCode::RANGE_ALREADY_SEALED)
    );
    assert_eq!(read(&storage, stream).len(), 2);
    stop(storage);
    let storage = open(&self::parts(&disk), small_log(), Arc::new(NoOthers)).unwrap();
    let next = append_one(&storage, &listener, stream);
    assert_eq!(next, Ok(Offset(2)), "in whichever range a restart finds");
    assert_eq!(read(&storage, stream).len(), 3);
    stop(storage);
}
