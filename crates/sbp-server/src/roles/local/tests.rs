//! A placement driver and its range server in one process, with a store that fails when it is told to.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use sbp_locks::Mutex;
use sbp_log::{Clock, Helpers, Log, LogConfig};
use sbp_messages::{ErrorCode, RangeId};
use sbp_replication::Term;
use sbp_sim::{ManualClock, SimFileSystem};
use sbp_types::RangeIndex;

use super::*;
use crate::failure::Health;
use crate::placement::testing::{PATIENCE, code, end, key, seal, start};
use crate::placement::{
    DriverParts, MetadataJob, NewStream, NoOthers, Outcome, Outcomes, PlacementDriver, PlacementState, Request, SealFor,
};
use crate::range::{Phase, RangeHub};
use crate::refusal::Refusal;

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

struct Bench {
    driver: PlacementDriver,
    failures: Arc<Mutex<VecDeque<MetadataError>>>,
    commits: Arc<AtomicUsize>,
    health: Arc<Health>,
    ranges: Arc<range::RangeServer>,
}

impl Bench {
    fn new() -> Self {
        let (health, counters) = (Arc::<Health>::default(), Arc::default());
        let hub = RangeHub::new(Arc::clone(&health), counters);
        hub.set_knows_all(true);
        let config = LogConfig {
            segment_bytes: 64 << 10,
            group_bytes: 16 << 10,
            reserve_bytes: 4 << 10,
            helpers: Helpers::Inline,
            ..LogConfig::new(Path::new("/data"))
        };
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let observer = Arc::clone(&hub);
        let (log, _) = Log::open(Arc::new(SimFileSystem::new()), Arc::clone(&clock), config, observer).unwrap();
        let ranges = Arc::new(range::RangeServer::new(hub, log, Arc::clone(&clock)));
        let store = Store::default();
        let (failures, commits) = (Arc::clone(&store.failures), Arc::clone(&store.commits));
        let local = LocalRangeServer {
            id: ServerId(5),
            ranges: Arc::clone(&ranges),
        };
        let driver = PlacementDriver::start(DriverParts {
            term: Term(1),
            state: PlacementState::default(),
            store: Box::new(SharedStore {
                store: Box::new(store),
                local: Some(local.clone()),
            }),
            always_up: Some(local.id),
            range_servers: Arc::new(LocalAndOthers::new(local, Arc::new(NoOthers))),
            clock,
            health: Arc::clone(&health),
            times: Default::default(),
        });
        Self {
            driver: driver.unwrap(),
            failures,
            commits,
            health,
            ranges,
        }
    }

    fn start(&self, request: Request) -> mpsc::Receiver<Result<Outcomes, Refusal>> {
        start(&self.driver, request)
    }

    fn stream(&self) -> StreamId {
        let created = self.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
        match end(&created) {
            Ok(Outcome::NewStream(stream, _)) => stream.id,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_lost_a_name_is_told_when_the_stream_can_be_seen() {
    let bench = Bench::new();
    // The worker is kept busy, so that both requests are decided in one go.
    let (busy, (release, released)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
    let entered = Arc::clone(&busy);
    let job = MetadataJob {
        done: Box::new(move |_| {
            entered.store(1, Ordering::Release);
            released.recv_timeout(PATIENCE).unwrap();
        }),
        deadline: Instant::now() + PATIENCE,
        request: Request::AllocateServerId,
    };
    bench.driver.submit(job).unwrap();
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
        done: Box::new(move |answer| {
            sender.send((answer, commits.load(Ordering::Relaxed))).unwrap();
        }),
        deadline: Instant::now() + PATIENCE,
        request: wanted(2_000),
    };
    bench.driver.submit(job).unwrap();
    release.send(()).unwrap();
    assert!(end(&winner).is_ok());
    let (answer, then) = loser.recv_timeout(PATIENCE).unwrap();
    assert_eq!(answer.unwrap().remove(0).unwrap_err().code, ErrorCode::ALREADY_EXISTS);
    assert!(then > before, "told before the stream was durable");
}

#[test]
fn a_range_goes_on_when_the_disk_has_no_room_for_its_end() {
    let bench = Bench::new();
    let stream = bench.stream();
    let ranges = Arc::clone(&bench.ranges);
    let phase = || {
        let held = ranges.hub.ranges.lock();
        held.table.range(key(stream, 0)).map(|range| range.phase)
    };
    bench.failures.lock().push_back(MetadataError::DiskFull);
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::INSUFFICIENT_STORAGE);
    assert_eq!(phase(), Some(Phase::Open));
    assert_eq!(bench.health.failure(), None);
    assert!(end(&bench.start(seal(stream))).is_ok());
    assert_eq!(phase(), Some(Phase::Sealed));
}

#[test]
fn a_range_whose_end_may_be_on_the_disk_takes_no_more_appends() {
    let bench = Bench::new();
    let stream = bench.stream();
    let failure = std::io::Error::other("the cable");
    bench.failures.lock().push_back(MetadataError::Io(failure));
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::PD_INTERNAL_SERVER_ERROR);
    assert_eq!(bench.health.failure().unwrap().what, "the metadata store");
    let ranges = &bench.ranges;
    let held = ranges.hub.ranges.lock();
    let range = held.table.range(key(stream, 0)).unwrap();
    assert!(
        matches!(range.phase, Phase::Sealing { .. }),
        "records behind an end that a restart finds would be lost: {:?}",
        range.phase
    );
}

#[test]
fn the_entries_of_a_request_become_durable_together() {
    const STREAMS: i64 = 1_000;
    let bench = Bench::new();
    let wanted = (0..STREAMS).map(|_| Ok(NewStream::default())).collect();
    let created = bench.start(Request::CreateStreams(wanted));
    let reply = created.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(reply.iter().all(Result::is_ok));
    assert_eq!(bench.commits.load(Ordering::Relaxed), 1);
    let ids = || (1..=STREAMS).map(StreamId);
    let sealed = bench.start(Request::SealRanges(
        SealFor::PlacementDriver.into(),
        ids()
            .map(|stream| {
                Ok(RangeId {
                    stream_id: stream,
                    range_index: Some(RangeIndex(0)),
                    epoch: None,
                    end_offset: None,
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
