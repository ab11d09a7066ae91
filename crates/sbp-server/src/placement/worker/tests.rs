//! The worker with a range server that does what the test says.

mod lost;

use sbp_sim::ManualClock;
use sbp_types::{Epoch, Position};

use super::*;
use crate::placement::testing::{PATIENCE, code, end, key, seal, start};
use crate::placement::{DriverParts, NewStream, Outcomes, PlacementDriver, RangeRecord, Request, ServerRecord};
use crate::range::{FencedEnd, HeldRange, StreamFacts};

const A: ServerId = ServerId(5);
const CONNECTION: i64 = 77;

/// What a range server was asked, with what it answers by.
enum Asked {
    Seal(RangeKey, Option<Offset>, Done<Offset>),
    Sync(StreamId, Vec<HeldRange>, Done<()>),
    Trim(StreamId, Offset, Done<()>),
    Delete(Vec<StreamId>, Done<bool>),
    /// To remove what it has of these ranges.
    LetGo(ServerId, Vec<RangeKey>, Done<Vec<RangeKey>>),
    Ends(Vec<RangeKey>, Done<Vec<Option<Offset>>>),
    Vote(ServerId, Done<FencedEnd>),
    /// The first server is to send the second one what that lacks.
    WriteBack(ServerId, ServerId, Done<()>),
    /// Nobody waits for its seals any more.
    GivenUp,
    /// Whether it is refused to be dialled.
    Knock(Done<bool>),
}

/// Range servers that hand every question to the test.
#[derive(Clone, Debug)]
struct Scripted {
    asked: mpsc::Sender<Asked>,
    servers: &'static [ServerId],
}

/// One of them.
#[derive(Debug)]
struct ScriptedServer {
    asked: mpsc::Sender<Asked>,
    id: ServerId,
}

impl ScriptedServer {
    fn ask(&self, asked: Asked) {
        self.asked.send(asked).unwrap();
    }
}

impl RangeServer for ScriptedServer {
    fn fence(&self, _: RangeKey, _: Epoch, done: Done<FencedEnd>) {
        self.ask(Asked::Vote(self.id, done));
    }

    fn write_back(&self, _: RangeKey, _: Epoch, to: &[ServerId], _: Position, done: Done<()>) {
        self.ask(Asked::WriteBack(self.id, to[0], done));
    }

    fn seal(&self, key: RangeKey, _: Epoch, seen: Option<Offset>, done: Done<Offset>) {
        self.ask(Asked::Seal(key, seen, done));
    }

    fn give_up_seals(&self) {
        self.ask(Asked::GivenUp);
    }

    fn abandon_seal(&self, _: RangeKey, _: AbandonedEnd) {}

    fn publish_end(&self, _: RangeKey, _: Offset) {}

    fn sync(&self, stream: StreamId, _: StreamFacts, ranges: Vec<HeldRange>, done: Done<()>) {
        self.ask(Asked::Sync(stream, ranges, done));
    }

    fn trim(&self, stream: StreamId, start: Offset, done: Done<()>) {
        self.ask(Asked::Trim(stream, start, done));
    }

    fn delete(&self, streams: Vec<StreamId>, done: Done<bool>) {
        self.ask(Asked::Delete(streams, done));
    }

    fn let_go(&self, _: StreamId, ranges: Vec<HeldRange>, done: Done<Vec<RangeKey>>) {
        let keys = ranges.iter().map(|range| range.key).collect();
        self.ask(Asked::LetGo(self.id, keys, done));
    }

    fn is_refused(&self, done: Done<bool>) {
        self.ask(Asked::Knock(done));
    }

    fn answers(&self, done: Done<bool>) {
        done(Ok(true));
    }

    fn next_offsets(&self, keys: Vec<RangeKey>, done: Done<Vec<Option<Offset>>>) {
        self.ask(Asked::Ends(keys, done));
    }
}

impl RangeServers for Scripted {
    fn locate(&self, _: ServerId, _: &str) {}

    fn server(&self, server: ServerId) -> Option<Arc<dyn RangeServer>> {
        let asked = self.asked.clone();
        let is_known = self.servers.contains(&server);
        is_known.then(|| Arc::new(ScriptedServer { asked, id: server }) as _)
    }

    fn may_forget(&self, _: StreamId) -> bool {
        true
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct Store;

impl PlacementStore for Store {
    fn commit(&mut self, _: &[Change]) -> Result<(), CommitError> {
        Ok(())
    }
}

/// A placement driver with one range server.
struct Bench {
    driver: PlacementDriver,
    asked: mpsc::Receiver<Asked>,
}

impl Bench {
    /// With a range server that is up.
    fn new() -> Self {
        Self::with(&[A], false)
    }

    /// With these range servers, which are up.
    fn with(servers: &'static [ServerId], replicate: bool) -> Self {
        let bench = Self::serving(PlacementState::default(), servers);
        for id in servers.iter().copied() {
            let address = format!("server-{id}:1");
            let registered = bench.start(Request::RegisterServer(ServerRecord::new(id, address)));
            assert_eq!(end(&registered), Ok(Outcome::Done));
            bench.driver.heard(id, connection(id), replicate);
        }
        bench
    }

    /// A placement driver that starts with what it had, and has heard nobody yet.
    fn of(state: PlacementState) -> Self {
        Self::serving(state, &[A])
    }

    fn serving(state: PlacementState, servers: &'static [ServerId]) -> Self {
        let (sender, asked) = mpsc::channel();
        let driver = PlacementDriver::start(DriverParts {
            term: Term(1),
            state,
            store: Box::new(Store),
            range_servers: Arc::new(Scripted { asked: sender, servers }),
            always_up: None,
            clock: Arc::new(ManualClock::default()),
            health: Arc::default(),
            times: ClusterTimes {
                silence: Duration::from_secs(3_600),
                ..ClusterTimes::default()
            },
        });
        Self {
            driver: driver.unwrap(),
            asked,
        }
    }

    /// The range server ends.
    fn lose(&self) {
        self.lose_server(A);
    }

    fn lose_server(&self, server: ServerId) {
        self.driver.closed(server, connection(server));
        let Asked::Knock(done) = self.asked() else { panic!() };
        done(Ok(true));
    }

    fn start(&self, request: Request) -> mpsc::Receiver<Result<Outcomes, Refusal>> {
        start(&self.driver, request)
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
        let Asked::Sync(_, _, done) = self.asked() else {
            panic!()
        };
        done(Ok(()));
        match end(&created) {
            Ok(Outcome::NewStream(stream, _)) => stream.id,
            other => panic!("{other:?}"),
        }
    }
}

/// The number of the server's first connection.
fn connection(server: ServerId) -> i64 {
    CONNECTION + i64::from(server.0)
}

fn trim(stream: StreamId, start: i64) -> Request {
    Request::TrimStreams(vec![Ok((stream, Offset(start)))])
}

fn down() -> Refusal {
    Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, "it does not answer")
}

#[test]
fn a_new_range_is_synced_before_it_is_answered() {
    let bench = Bench::new();
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
fn without_a_range_server_that_is_up_there_are_no_new_streams() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.lose();
    let created = bench.start(Request::CreateStreams(vec![Ok(NewStream::default())]));
    assert_eq!(code(&created), ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(code(&bench.start(seal(stream))), ErrorCode::PD_NO_AVAILABLE_RS);
    assert_eq!(code(&bench.start(trim(stream, 1))), ErrorCode::PD_NO_AVAILABLE_RS);
    bench.assert_nothing_asked();
}

#[test]
fn a_stream_is_made_when_the_servers_that_were_known_had_time_to_report() {
    let state = Bench::new().driver.read(PlacementState::clone);
    let bench = Bench::of(state);
    let new = || Request::CreateStreams(vec![Ok(NewStream::default())]);
    let created = bench.start(new());
    bench.assert_nothing_asked();
    assert!(created.try_recv().is_err(), "it waits");
    bench.driver.heard(A, connection(A), false);
    let Asked::Sync(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Ok(()));
    assert!(end(&created).is_ok());
    // Nobody is waited for who was never there, nor anybody for ever.
    assert_eq!(
        code(&Bench::of(PlacementState::default()).start(new())),
        ErrorCode::PD_NO_AVAILABLE_RS
    );
    let state = bench.driver.read(PlacementState::clone);
    assert_eq!(code(&Bench::of(state).start(new())), ErrorCode::PD_NO_AVAILABLE_RS);
}

#[test]
fn a_server_without_connections_is_dialled_until_that_is_refused_or_it_is_back() {
    let bench = Bench::new();
    let is_up = || bench.driver.presence(A).0;
    bench.driver.closed(A, connection(A));
    // Its process ends, and what it listens on goes last.
    for _time in 0..2 {
        let Asked::Knock(done) = bench.asked() else { panic!() };
        assert!(is_up());
        done(Ok(false));
    }
    let Asked::Knock(done) = bench.asked() else { panic!() };
    done(Ok(true));
    bench.assert_nothing_asked();
    assert!(!is_up());
    bench.driver.heard(A, connection(A), false);
    assert!(is_up());
    bench.driver.closed(A, connection(A));
    let Asked::Knock(done) = bench.asked() else { panic!() };
    bench.driver.heard(A, connection(A) + 1, false);
    done(Ok(true));
    bench.assert_nothing_asked();
    assert!(is_up(), "it has connected since it was dialled");
}

#[test]
fn a_seal_elsewhere_waits_for_its_server_and_only_its_stream_waits_with_it() {
    let bench = Bench::new();
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
    told(Ok(true));
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
    told(Ok(true));
    assert!(end(&behind).is_ok());
}

#[test]
fn a_seal_that_fails_changes_nothing_and_may_be_repeated() {
    let bench = Bench::new();
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
    let bench = Bench::new();
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
    let bench = Bench::new();
    let (stream, gone) = (bench.stream(), bench.stream());
    let trimmed = bench.start(trim(stream, 3));
    let Asked::Ends(_, done) = bench.asked() else { panic!() };
    done(Ok(vec![Some(Offset(3))]));
    let Asked::Trim(_, _, done) = bench.asked() else {
        panic!()
    };
    done(Err(down()));
    assert!(end(&trimmed).is_ok(), "it is durable here");
    bench.lose();
    assert!(end(&bench.start(Request::DeleteStreams(vec![Ok(gone)]))).is_ok());
    bench.assert_nothing_asked();
    bench.driver.heard(A, connection(A) + 1, false);
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
    // It is asked again until it says that it has nothing of it any more, and once at a time.
    bench.driver.heard(A, connection(A) + 1, false);
    bench.assert_nothing_asked();
    done(Ok(false));
    bench.driver.heard(A, connection(A) + 1, false);
    let Asked::Delete(deleted, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(deleted, [gone]);
    done(Ok(true));
    bench.driver.heard(A, connection(A) + 1, false);
    bench.assert_nothing_asked();
}

#[test]
fn a_server_that_goes_down_answers_what_waits_for_others() {
    let bench = Bench::new();
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
        done: Box::new(|_| {}),
        deadline: Instant::now() + PATIENCE,
        request: Request::AllocateServerId,
    };
    assert_eq!(bench.driver.submit(late).unwrap_err().code, ErrorCode::SHUTTING_DOWN);
}

/// Takes some changes, and then says that another placement driver leads.
#[derive(Debug)]
struct UntilDeposed(usize);

impl PlacementStore for UntilDeposed {
    fn commit(&mut self, _: &[Change]) -> Result<(), CommitError> {
        let Some(left) = self.0.checked_sub(1) else {
            return Err(CommitError::Deposed("another one leads".to_owned()));
        };
        self.0 = left;
        Ok(())
    }

    fn has_room(&self, staged: &[Change], more: &[Change]) -> bool {
        staged.len() + more.len() <= 3
    }
}

/// Makes three streams with one request, which takes a transaction for each.
fn three_streams() -> Request {
    let stream = || {
        Ok(NewStream {
            name: String::new(),
            settings: Default::default(),
            owner: None,
        })
    };
    Request::CreateStreams(vec![stream(), stream(), stream()])
}

#[test]
fn a_deposed_placement_driver_says_what_is_in_doubt_and_begins_nothing_more() {
    let (sender, _asked) = mpsc::channel();
    let health = Arc::new(Health::default());
    let driver = PlacementDriver::start(DriverParts {
        term: Term(1),
        state: PlacementState::default(),
        store: Box::new(UntilDeposed(2)),
        range_servers: Arc::new(Scripted {
            asked: sender,
            servers: &[A],
        }),
        always_up: Some(A),
        clock: Arc::new(ManualClock::default()),
        health: Arc::clone(&health),
        times: ClusterTimes::default(),
    })
    .unwrap();
    let answer = start(&driver, three_streams());
    // Two of them are there, and the third may be: the request as a whole is in doubt.
    let refusal = answer.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PD_INTERNAL_SERVER_ERROR, "{}", refusal.message);
    assert_eq!(driver.read(|state| state.stream_count()), 2);
    let answer = start(&driver, three_streams());
    let refusal = answer.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PD_NOT_LEADER);
    assert!(health.failure().is_none(), "the server is as sound as before");
    driver.rest();
    assert_eq!(
        driver.read(|state| state.stream_count()),
        0,
        "what it knew is forgotten"
    );
}

/// A stream that was deleted while another placement driver led, when this server was away.
fn buried() -> (PlacementState, StreamId) {
    let mut state = PlacementState::default();
    let stream = StreamId(3);
    state.install(Change::PutTombstone(stream));
    state.install(Change::BuriedOn(stream, [A].into()));
    (state, stream)
}

#[test]
fn who_leads_next_has_a_stream_deleted_by_the_servers_in_whose_names_it_is_buried() {
    let (state, stream) = buried();
    let bench = Bench::of(state);
    bench.driver.heard(ServerId(6), connection(ServerId(6)), false);
    bench.assert_nothing_asked();
    bench.driver.heard(A, connection(A), false);
    let Asked::Delete(deleted, done) = bench.asked() else {
        panic!()
    };
    assert_eq!(deleted, [stream]);
    done(Err(down()));
    // Behind the refusal.
    bench.assert_nothing_asked();
    bench.driver.heard(A, connection(A) + 1, false);
    let Asked::Delete(_, done) = bench.asked() else {
        panic!()
    };
    done(Ok(true));
    bench.assert_nothing_asked();
    let left = |state: &PlacementState| state.buried_on(stream).count();
    assert_eq!(bench.driver.read(left), 0);
}

#[test]
fn a_deletion_is_remembered_until_every_server_of_the_stream_has_carried_it_out() {
    let (state, stream) = buried();
    let (events, _inbox) = mpsc::channel();
    let (asked, _asked) = mpsc::channel();
    let parts = DriverParts {
        term: Term(1),
        state: state.clone(),
        store: Box::new(Store),
        range_servers: Arc::new(Scripted { asked, servers: &[A] }),
        always_up: Some(ServerId(1)),
        clock: Arc::new(ManualClock::default()),
        health: Arc::default(),
        times: ClusterTimes::default(),
    };
    let registry = Registry::new(None, Duration::from_secs(3_600), Instant::now());
    let published = Arc::new(RwLock::new(state));
    let mut worker = Worker::new(parts, published, Arc::new(Mutex::new(registry)), Arc::default(), events);
    let mut sweep = |servers: &[ServerId]| {
        let servers = servers.iter().copied().collect();
        worker.state.install(Change::BuriedOn(stream, servers));
        worker.sweep();
        worker.state.has_tombstone(stream)
    };
    assert!(sweep(&[A, ServerId(1)]));
    // What the one in this process has is gone when nothing of it is in its log.
    assert!(!sweep(&[ServerId(1)]));
}

/// A sealed range that A was let go of.
fn let_go() -> (PlacementState, RangeKey) {
    let mut state = PlacementState::default();
    let key = key(StreamId(3), 0);
    state.install(Change::PutRange(Arc::new(RangeRecord {
        key,
        epoch: Epoch(0),
        start_offset: Offset(0),
        opened_offset: Offset(0),
        end_offset: Some(Offset(9)),
        end_marks: 0,
        servers: vec![ServerId(7), ServerId(8)],
        incomplete: Vec::new(),
        let_go: vec![A],
        unknowing: Vec::new(),
        replica_count: 2,
        ack_count: 1,
    })));
    (state, key)
}

#[test]
fn a_server_is_asked_one_thing_at_a_time_about_a_copy_until_it_has_nothing_of_it() {
    let (state, key) = let_go();
    let (events, inbox) = mpsc::channel();
    let (asked, questions) = mpsc::channel();
    let parts = DriverParts {
        term: Term(1),
        state: state.clone(),
        store: Box::new(Store),
        range_servers: Arc::new(Scripted { asked, servers: &[A] }),
        always_up: None,
        clock: Arc::new(ManualClock::default()),
        health: Arc::default(),
        times: ClusterTimes::default(),
    };
    let mut registry = Registry::new(None, Duration::from_secs(3_600), Instant::now());
    registry.heard(A, connection(A), true, Instant::now());
    let published = Arc::new(RwLock::new(state));
    let mut worker = Worker::new(parts, published, Arc::new(Mutex::new(registry)), Arc::default(), events);
    let answers = [Ok(vec![key]), Err(down()), Ok(vec![])];
    for answer in answers {
        worker.let_go_again();
        let Ok(Asked::LetGo(A, keys, done)) = questions.try_recv() else {
            panic!("it is asked")
        };
        assert_eq!(keys, [key]);
        worker.let_go_again();
        assert!(questions.try_recv().is_err(), "it has not answered");
        let still = worker.state.with_let_go().count();
        assert_eq!(still, 1);
        done(answer);
        worker.handle(inbox.try_recv().unwrap());
    }
    assert_eq!(worker.state.with_let_go().count(), 0);
    worker.let_go_again();
    assert!(questions.try_recv().is_err(), "it has nothing of it");
}
