//! The worker among range servers that do what the test says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use sbp_log::testing::{ManualClock, SimFileSystem};
use sbp_log::{Helpers, Log, LogConfig};
use sbp_types::{Epoch, RangeIndex};

use super::*;
use crate::placement::{
    DriverParts, NewStream, PlacementDriver, RangeServers, Reply, ReplyTo, Request, SealTarget, ServerRecord,
};
use crate::range::{HeldRange, RangeHub, RangeServer, StreamFacts};

const PATIENCE: Duration = Duration::from_secs(20);
const A: ServerId = ServerId(5);
const CONNECTION: i64 = 77;

/// What a range server was asked, with what it answers by.
enum Asked {
    Seal(RangeKey, Option<Offset>, Done<Offset>),
    Sync(StreamId, Vec<HeldRange>, Done<()>),
    Trim(StreamId, Offset, Done<()>),
    Delete(Vec<StreamId>, Done<()>),
    Ends(Vec<RangeKey>, Done<Vec<Option<Offset>>>),
}

/// Hands every question to the test.
#[derive(Debug)]
struct Scripted(Mutex<mpsc::Sender<Asked>>);

impl Scripted {
    fn ask(&self, asked: Asked) {
        self.0.lock().send(asked).unwrap();
    }
}

impl RangeServers for Scripted {
    fn locate(&self, _: ServerId, _: &str) {}

    fn seal(&self, _: ServerId, key: RangeKey, _: Epoch, seen: Option<Offset>, done: Done<Offset>) {
        self.ask(Asked::Seal(key, seen, done));
    }

    fn sync(&self, _: ServerId, stream: StreamId, _: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>) {
        self.ask(Asked::Sync(stream, ranges, done));
    }

    fn trim(&self, _: ServerId, stream: StreamId, start: Offset, done: Done<()>) {
        self.ask(Asked::Trim(stream, start, done));
    }

    fn delete(&self, _: ServerId, streams: Vec<StreamId>, done: Done<()>) {
        self.ask(Asked::Delete(streams, done));
    }

    fn next_offsets(&self, _: ServerId, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        self.ask(Asked::Ends(keys, done));
    }
}

/// Keeps nothing, counts, and fails when it is told to.
#[derive(Debug, Default)]
struct Store {
    failures: Arc<Mutex<VecDeque<MetadataError>>>,
    commits: Arc<AtomicUsize>,
}

impl MetadataStore for Store {
    fn load(&self) -> Result<Vec<MetadataChange>, MetadataError> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: &[MetadataChange]) -> Result<(), MetadataError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.failures.lock().pop_front().map_or(Ok(()), Err)
    }
}

/// A placement driver with one range server, elsewhere or in this process.
struct Bench {
    driver: PlacementDriver,
    asked: mpsc::Receiver<Asked>,
    failures: Arc<Mutex<VecDeque<MetadataError>>>,
    commits: Arc<AtomicUsize>,
    health: Arc<Health>,
    ranges: Option<Arc<RangeServer>>,
}

impl Bench {
    fn new(local: Option<Arc<RangeServer>>) -> Self {
        let (sender, asked) = mpsc::channel();
        let health = Arc::<Health>::default();
        let store = Store::default();
        let (failures, commits) = (Arc::clone(&store.failures), Arc::clone(&store.commits));
        let driver = PlacementDriver::start(DriverParts {
            state: PlacementState::default(),
            store: Box::new(store),
            local: local.clone().map(|ranges| LocalRanges { id: A, ranges }),
            others: Arc::new(Scripted(Mutex::new(sender))),
            clock: Arc::new(ManualClock::default()),
            health: Arc::clone(&health),
        });
        Self {
            driver: driver.unwrap(),
            asked,
            failures,
            commits,
            health,
            ranges: local,
        }
    }

    /// With a range server elsewhere that is up.
    fn apart() -> Self {
        let bench = Self::new(None);
        let address = "elsewhere:1".to_owned();
        let registered = bench.start(Request::RegisterServer(ServerRecord { id: A, address }));
        assert_eq!(end(&registered), Ok(Outcome::Done));
        bench.driver.heard(A, CONNECTION);
        bench
    }

    /// With both halves in one process.
    fn together() -> Self {
        let (health, counters) = (Arc::<Health>::default(), Arc::default());
        let hub = RangeHub::new(health, counters);
        hub.set_knows_all(true);
        let config = LogConfig {
            segment_bytes: 64 << 10,
            group_bytes: 16 << 10,
            reserve_bytes: 4 << 10,
            helpers: Helpers::Inline,
            ..LogConfig::new(std::path::Path::new("/data"))
        };
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let observer = Arc::clone(&hub);
        let (log, _) = Log::open(Arc::new(SimFileSystem::new()), Arc::clone(&clock), config, observer).unwrap();
        Self::new(Some(Arc::new(RangeServer::new(hub, log, clock))))
    }

    fn start(&self, request: Request) -> mpsc::Receiver<Result<Reply, Refusal>> {
        let (sender, receiver) = mpsc::channel();
        let job = MetadataJob {
            reply_to: ReplyTo::Caller(Box::new(move |answer| sender.send(answer).unwrap())),
            deadline: Instant::now() + PATIENCE,
            request,
        };
        assert!(self.driver.submit(job));
        receiver
    }

    fn asked(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("no range server is asked")
    }

    /// Nothing was asked up to now. Another request goes through first, so that everything before it is done.
    fn assert_nothing_asked(&self) {
        assert_eq!(end(&self.start(Request::AllocateServerId)).map(drop), Ok(()));
        assert!(self.asked.try_recv().is_err());
    }

    /// A stream whose range server has heard of it.
    fn stream(&self) -> StreamId {
        let created = self.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
        if self.ranges.is_none() {
            let Asked::Sync(_, _, done) = self.asked() else {
                panic!()
            };
            done(Ok(()));
        }
        match end(&created) {
            Ok(Outcome::StreamRange(stream, _)) => stream.id,
            other => panic!("{other:?}"),
        }
    }
}

/// How the only entry of a request ended.
fn end(answer: &mpsc::Receiver<Result<Reply, Refusal>>) -> Result<Outcome, Refusal> {
    answer.recv_timeout(PATIENCE).expect("no answer")?.remove(0)
}

fn code(answer: &mpsc::Receiver<Result<Reply, Refusal>>) -> ErrorCode {
    end(answer).unwrap_err().code
}

fn key(stream: StreamId, range: i32) -> RangeKey {
    let range = RangeIndex(range);
    RangeKey { stream, range }
}

fn seal(stream: StreamId) -> Request {
    let target = SealTarget {
        stream,
        range: RangeIndex::OPEN,
        epoch: Epoch::ANY,
        end: None,
    };
    Request::SealRanges(SealFor::PlacementDriver, vec![Ok(target)])
}

fn trim(stream: StreamId, start: i64) -> Request {
    Request::TrimStreams(vec![Ok((stream, Offset(start)))])
}

fn down() -> Refusal {
    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, "it does not answer")
}

#[test]
fn a_new_range_is_synced_before_it_is_answered() {
    let bench = Bench::apart();
    let created = bench.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
    let Asked::Sync(stream, ranges, done) = bench.asked() else {
        panic!()
    };
    assert_eq!((ranges[0].key, ranges[0].end), (key(stream, 0), None));
    let durable = bench.driver.read(|state| state.stream(stream).is_some());
    assert!(durable, "the range server may ask about it");
    assert!(created.try_recv().is_err());
    done(Ok(()));
    assert!(end(&created).is_ok());
}

#[test]
fn who_lost_a_name_is_told_when_the_stream_can_be_seen() {
    let bench = Bench::together();
    // The worker is kept busy, so that both requests are decided in one go.
    let (busy, (release, released)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
    let entered = Arc::clone(&busy);
    let job = MetadataJob {
        reply_to: ReplyTo::Caller(Box::new(move |_| {
            entered.store(1, Ordering::Release);
            released.recv_timeout(PATIENCE).unwrap();
        })),
        deadline: Instant::now() + PATIENCE,
        request: Request::AllocateServerId,
    };
    assert!(bench.driver.submit(job));
    while busy.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let wanted = |retention| {
        let mut wanted = NewStream {
            name: "contested".to_owned(),
            ..NewStream::default()
        };
        wanted.settings.retention_period_ms = retention;
        Request::CreateStreams(vec![Ok(wanted)])
    };
    let winner = bench.start(wanted(1_000));
    let before = bench.commits.load(Ordering::Relaxed);
    let (sender, loser) = mpsc::channel();
    let commits = Arc::clone(&bench.commits);
    let job = MetadataJob {
        reply_to: ReplyTo::Caller(Box::new(move |answer| {
            sender.send((answer, commits.load(Ordering::Relaxed))).unwrap();
        })),
        deadline: Instant::now() + PATIENCE,
        request: wanted(2_000),
    };
    assert!(bench.driver.submit(job));
    release.send(()).unwrap();
    assert!(end(&winner).is_ok());
    let (answer, then) = loser.recv_timeout(PATIENCE).unwrap();
    assert_eq!(answer.unwrap().remove(0).unwrap_err().code, ErrorCode::ALREADY_EXISTS);
    assert!(then > before, "told before the stream was durable");
}

#[test]
fn without_a_range_server_that_is_up_there_are_no_new_streams() {
    let bench = Bench::apart();
    let stream = bench.stream();
    bench.driver.closed(A, CONNECTION);
    let created = bench.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
    assert_eq!(code(&created), ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(code(&bench.start(trim(stream, 1))), ErrorCode::PD_NO_AVAILABLE_RS);
    bench.assert_nothing_asked();
}

#[test]
fn a_seal_elsewhere_waits_for_its_server_and_only_its_stream_waits_with_it() {
    let bench = Bench::apart();
    let (stream, other) = (bench.stream(), bench.stream());
    let sealed = bench.start(seal(stream));
    let Asked::Seal(asked, None, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(asked, key(stream, 0));
    let behind = bench.start(Request::DeleteStreams(vec![Ok(stream)]));
    let beside = bench.start(Request::DeleteStreams(vec![Ok(other)]));
    let Asked::Delete(deleted, told) = bench.asked() else {
        panic!()
    };
    assert_eq!(deleted, [other]);
    told(Ok(()));
    assert!(end(&beside).is_ok());
    bench.assert_nothing_asked();
    done(Ok(Offset(9)));
    let Asked::Sync(_, ranges, told) = bench.asked() else {
        panic!()
    };
    let ends: Vec<_> = ranges.iter().map(|held| (held.key, held.start, held.end)).collect();
    assert_eq!(
        ends,
        [
            (key(stream, 0), Offset(0), Some(Offset(9))),
            (key(stream, 1), Offset(9), None)
        ]
    );
    assert!(sealed.try_recv().is_err(), "the next range is synced first");
    told(Ok(()));
    assert!(matches!(end(&sealed), Ok(Outcome::Range(next)) if next.key == key(stream, 1)));
    let Asked::Delete(deleted, told) = bench.asked() else {
        panic!()
    };
    assert_eq!(deleted, [stream]);
    told(Ok(()));
    assert!(end(&behind).is_ok());
}

#[test]
fn a_seal_that_fails_changes_nothing_and_may_be_repeated() {
    let bench = Bench::apart();
    let stream = bench.stream();
    let sealed = bench.start(seal(stream));
    let Asked::Seal(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Err(down()));
    assert_eq!(code(&sealed), ErrorCode::PD_NO_AVAILABLE_RS);
    let sealed = bench.start(seal(stream));
    let Asked::Seal(_, _, done) = bench.asked() else {
        panic!()
    };
    // Whoever had to answer is gone.
    drop(done);
    assert_eq!(code(&sealed), ErrorCode::PD_INTERNAL_SERVER_ERROR);
    assert_eq!(bench.driver.read(|state| state.ranges_of(stream).count()), 1);
    let sealed = bench.start(seal(stream));
    let Asked::Seal(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Ok(Offset(0)));
    let Asked::Sync(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Ok(()));
    assert!(end(&sealed).is_ok());
}

#[test]
fn a_trim_asks_the_server_where_readers_stand() {
    let bench = Bench::apart();
    let stream = bench.stream();
    let beyond = bench.start(trim(stream, 8));
    let Asked::Ends(keys, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(keys, [key(stream, 0)]);
    done(Ok(vec![Some(Offset(7))]));
    assert_eq!(code(&beyond), ErrorCode::OFFSET_OUT_OF_RANGE_BOUNDS);
    let unknown = bench.start(trim(stream, 1));
    let Asked::Ends(_, done) = bench.asked() else { panic!() };
    done(Ok(vec![None]));
    assert_eq!(code(&unknown), ErrorCode::PD_NO_AVAILABLE_RS);
    let trimmed = bench.start(trim(stream, 7));
    let Asked::Ends(_, done) = bench.asked() else { panic!() };
    done(Ok(vec![Some(Offset(7))]));
    let Asked::Trim(asked, Offset(7), done) = bench.asked() else {
        panic!()
    };
    assert_eq!(asked, stream);
    done(Ok(()));
    assert!(matches!(end(&trimmed), Ok(Outcome::StreamRange(_, first)) if first.start_offset == Offset(7)));
}

#[test]
fn a_server_that_was_not_told_is_told_when_it_is_heard_of() {
    let bench = Bench::apart();
    let (stream, gone) = (bench.stream(), bench.stream());
    let trimmed = bench.start(trim(stream, 3));
    let Asked::Ends(_, done) = bench.asked() else { panic!() };
    done(Ok(vec![Some(Offset(3))]));
    let Asked::Trim(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Err(down()));
    assert!(end(&trimmed).is_ok(), "it is durable here");
    bench.driver.closed(A, CONNECTION);
    assert!(end(&bench.start(Request::DeleteStreams(vec![Ok(gone)]))).is_ok());
    bench.assert_nothing_asked();
    bench.driver.heard(A, CONNECTION + 1);
    let Asked::Sync(synced, ranges, done) = bench.asked() else {
        panic!()
    };
    assert_eq!((synced, ranges[0].start), (stream, Offset(3)));
    done(Ok(()));
    let Asked::Trim(_, Offset(3), done) = bench.asked() else {
        panic!()
    };
    done(Ok(()));
    let Asked::Delete(deleted, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(deleted, [gone]);
    done(Ok(()));
    bench.driver.heard(A, CONNECTION + 1);
    bench.assert_nothing_asked();
}

#[test]
fn a_server_that_goes_down_answers_what_waits_for_others() {
    let bench = Bench::apart();
    let stream = bench.stream();
    let sealed = bench.start(seal(stream));
    let Asked::Seal(_, _, done) = bench.asked() else {
        panic!()
    };
    bench.driver.stop();
    assert_eq!(code(&sealed), ErrorCode::SHUTTING_DOWN);
    // Too late, and harmless.
    done(Ok(Offset(1)));
    let late = MetadataJob {
        reply_to: ReplyTo::Caller(Box::new(|_| {})),
        deadline: Instant::now() + PATIENCE,
        request: Request::AllocateServerId,
    };
    assert!(!bench.driver.submit(late));
}

#[test]
fn a_range_goes_on_when_the_disk_has_no_room_for_its_end() {
    let bench = Bench::together();
    let stream = bench.stream();
    let ranges = bench.ranges.clone().unwrap();
    let phase = || {
        let held = ranges.hub.ranges.lock();
        held.table.range(key(stream, 0)).map(|range| range.phase)
    };
    bench.failures.lock().push_back(MetadataError::DiskFull);
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::INSUFFICIENT_STORAGE);
    assert_eq!(phase(), Some(crate::range::Phase::Open));
    assert_eq!(bench.health.failure(), None);
    assert!(end(&bench.start(seal(stream))).is_ok());
    assert_eq!(phase(), Some(crate::range::Phase::Sealed));
}

#[test]
fn a_range_whose_end_may_be_on_the_disk_takes_no_more_appends() {
    let bench = Bench::together();
    let stream = bench.stream();
    let failure = std::io::Error::other("the cable");
    bench.failures.lock().push_back(MetadataError::Io(failure));
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::PD_INTERNAL_SERVER_ERROR);
    assert_eq!(bench.health.failure().unwrap().what, "the metadata store");
    let ranges = bench.ranges.as_ref().unwrap();
    let held = ranges.hub.ranges.lock();
    let range = held.table.range(key(stream, 0)).unwrap();
    assert!(
        matches!(range.phase, crate::range::Phase::Sealing { .. }),
        "records behind an end that a restart finds would be lost: {:?}",
        range.phase
    );
}

#[test]
fn the_entries_of_a_request_become_durable_together() {
    const STREAMS: i64 = 1_000;
    let bench = Bench::together();
    let wanted = (0..STREAMS).map(|_| Ok(NewStream::default())).collect();
    let created = bench.start(Request::CreateStreams(wanted));
    let reply = created.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(reply.iter().all(Result::is_ok));
    assert_eq!(bench.commits.load(Ordering::Relaxed), 1);
    let ids = || (1..=STREAMS).map(StreamId);
    let sealed = bench.start(Request::SealRanges(
        SealFor::PlacementDriver,
        ids()
            .map(|stream| {
                Ok(SealTarget {
                    stream,
                    range: RangeIndex(0),
                    epoch: Epoch::ANY,
                    end: None,
                })
            })
            .collect(),
    ));
    let reply = sealed.recv_timeout(PATIENCE).unwrap().unwrap();
    let next = |(place, result): (usize, &Result<Outcome, Refusal>)| match result {
        Ok(Outcome::Range(range)) => range.key == key(StreamId(i64::try_from(place).unwrap() + 1), 1),
        _ => false,
    };
    assert!(reply.iter().enumerate().all(next), "in the order of the request");
    let before = bench.commits.load(Ordering::Relaxed);
    let deleted = bench.start(Request::DeleteStreams(ids().map(Ok).collect()));
    let reply = deleted.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(reply.iter().all(Result::is_ok));
    assert_eq!(bench.commits.load(Ordering::Relaxed), before + 1);
}
