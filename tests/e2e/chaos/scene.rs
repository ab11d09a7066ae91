//! A cluster under load: three servers and what places their ranges, each behind a proxy that everybody dials, writers, and a reader
//! that reads along.

use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sbp_client::{Ack, Client, ClientError};
use sbp_e2e::etcd::Etcd;
use sbp_e2e::ledger::Ledger;
use sbp_e2e::load::{Progress, client, read, read_all, write};
use sbp_e2e::process::{Lasting, Setup};
use sbp_locks::Mutex;
use sbp_messages::{Range, RangeId, ReplicaServer, ReplicaState, SealKind, Stream};
use sbp_proxy::{Fault as Broken, Held, Hook, Proxy, ProxyConfig, Rule};
use sbp_server::{ClusterTimes, Roles};
use sbp_types::{Offset, StreamId};
use tokio::task::JoinHandle;

use crate::faults::{Fault, Kind};

const SERVERS: usize = 3;
const WRITERS: usize = 4;
const STREAMS: usize = 2;
/// Batches of one writer on their way.
const IN_FLIGHT: usize = 8;

/// Longer than servers wait for each other before they do without one that says nothing.
const LONG: Duration = Duration::from_secs(5);
/// Appends have to go on within so long behind a fault.
const LIMIT: Duration = Duration::from_secs(60);
/// So many batches show that they do.
const GOES_ON: u64 = 40;
const POLL: Duration = Duration::from_millis(5);

/// A server, and the proxy by which others reach it.
struct Member {
    server: Lasting,
    proxy: Proxy,
}

impl Member {
    fn start(setup: Setup) -> Self {
        let proxy = Proxy::start(ProxyConfig::default()).unwrap();
        // Before the server runs: one that has both roles dials itself by the proxy.
        let listen = free_address();
        proxy.set_target(Some(listen.clone()));
        let server = Lasting::start(Setup {
            listen,
            advertise: Some(proxy.address()),
            ..setup
        });
        Self { server, proxy }
    }

    /// Has frames that match wait on their way, for longer than servers do.
    async fn hold(&self, which: impl FnOnce(Rule) -> Rule) {
        let held = Arc::new(Mutex::new(Vec::new()));
        let keeping = Arc::clone(&held);
        let hook = Hook::new(move |frame: Held| keeping.lock().push(frame));
        let rule = self.proxy.add(which(Rule::new(Broken::Hold(hook))));
        tokio::time::sleep(LONG).await;
        self.proxy.remove(rule);
        let mut held = std::mem::take(&mut *held.lock());
        held.drain(..).for_each(Held::pass);
    }

    async fn pause(&self) {
        let process = self.server.process().expect("it runs");
        process.pause();
        tokio::time::sleep(LONG).await;
        process.signal(Signal::CONT);
    }

    async fn kill(&mut self, away: Duration) {
        self.server.kill();
        tokio::time::sleep(away).await;
        self.server.restart();
    }
}

/// An address at which nobody listened a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// What places ranges besides the servers.
enum Placing {
    Driver(Box<Member>),
    Etcd(Etcd),
}

impl Placing {
    fn driver(&mut self) -> &mut Member {
        match self {
            Self::Driver(driver) => driver,
            Self::Etcd(_) => panic!("there is no placement driver in a process of its own"),
        }
    }

    fn etcd(&mut self) -> &mut Etcd {
        match self {
            Self::Etcd(etcd) => etcd,
            Self::Driver(_) => panic!("there is no etcd"),
        }
    }
}

/// A writer at work, and its acknowledgements.
type Writing = JoinHandle<Result<Vec<Ack>, ClientError>>;

pub(crate) struct Scene {
    _directory: tempfile::TempDir,
    placing: Placing,
    servers: Vec<Member>,
    /// Where clients begin.
    home: String,
    admin: Client,
    streams: Vec<StreamId>,
    writers: Vec<Writing>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    ledger: Arc<Mutex<Ledger>>,
    reader: JoinHandle<()>,
    /// Before which offset each stream is trimmed.
    trimmed: Vec<i64>,
}

impl Scene {
    pub(crate) async fn set(kind: Kind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let setup = |name: &str, roles: Roles| Setup {
            roles,
            segment_bytes: Some(1 << 20),
            cluster: ClusterTimes {
                renew_after: Duration::from_millis(500),
                replace_after: Duration::from_secs(2),
                ..ClusterTimes::default()
            },
            ..Setup::new(directory.path().join(name))
        };
        let (placing, roles, metadata) = match kind {
            Kind::OneDriver => {
                let driver = Member::start(setup("driver", Roles::PlacementDriver));
                let placement_driver = vec![driver.proxy.address()];
                (
                    Placing::Driver(Box::new(driver)),
                    Roles::RangeServer { placement_driver },
                    None,
                )
            }
            Kind::EqualServers => {
                let etcd = Etcd::start(1);
                let location = etcd.location("chaos");
                (Placing::Etcd(etcd), Roles::Both, Some(location))
            }
        };
        let server = |number: usize| {
            Member::start(Setup {
                metadata: metadata.clone(),
                ..setup(&number.to_string(), roles.clone())
            })
        };
        let servers: Vec<_> = (0..SERVERS).map(server).collect();
        let home = match &placing {
            Placing::Driver(driver) => driver.proxy.address(),
            Placing::Etcd(_) => {
                let addresses: Vec<_> = servers.iter().map(|server| server.proxy.address()).collect();
                addresses.join(",")
            }
        };
        let admin = client(&home);
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            streams.push(create(&admin, number).await);
        }
        let ledger = Arc::default();
        let reader = tokio::spawn(read(admin.clone(), streams.clone(), Arc::clone(&ledger)));
        let mut scene = Self {
            _directory: directory,
            placing,
            servers,
            home,
            admin,
            streams,
            writers: Vec::new(),
            stop: Arc::default(),
            progress: Arc::default(),
            ledger,
            reader,
            trimmed: vec![0; STREAMS],
        };
        for writer in 0..WRITERS {
            let stop = Arc::clone(&scene.stop);
            let stream = scene.streams[writer % STREAMS];
            let goes_on = move |_| !stop.load(Ordering::Relaxed);
            let client = client(&scene.home);
            let progress = Arc::clone(&scene.progress);
            let writing = write(client, (stream, writer), IN_FLIGHT, goes_on, progress);
            scene.writers.push(tokio::spawn(writing));
        }
        scene.wait_for_progress(Instant::now()).await;
        scene
    }

    /// Lets something happen, and waits until appends go on. Returns for how long at most none was acknowledged.
    pub(crate) async fn suffer(&mut self, fault: Fault, random: &mut fastrand::Rng) -> Duration {
        let began = Instant::now();
        let watch = Watch::begin(Arc::clone(&self.progress));
        let server = random.usize(..SERVERS);
        let stream = random.usize(..STREAMS);
        match fault {
            Fault::KillServer => {
                let away = Duration::from_millis(random.u64(..4_000));
                self.servers[server].kill(away).await;
            }
            Fault::PauseServer => self.servers[server].pause().await,
            Fault::CutOff => self.servers[server].hold(|rule| rule).await,
            Fault::Deaf => self.servers[server].hold(Rule::requests).await,
            Fault::Mute => self.servers[server].hold(Rule::answers).await,
            Fault::LoseDisk => self.lose_disk(server).await,
            Fault::KillDriver => {
                let away = Duration::from_millis(random.u64(..2_000));
                self.placing.driver().kill(away).await;
            }
            Fault::PauseDriver => self.placing.driver().pause().await,
            Fault::KillEtcd => {
                let away = Duration::from_millis(random.u64(..4_000));
                let etcd = self.placing.etcd();
                etcd.kill(0);
                tokio::time::sleep(away).await;
                etcd.start_member(0);
            }
            Fault::PauseEtcd => {
                let etcd = self.placing.etcd();
                etcd.pause(0);
                tokio::time::sleep(LONG).await;
                etcd.go_on(0);
            }
            Fault::Seal => self.seal(stream).await,
            Fault::Trim => self.trim(stream).await,
        }
        self.wait_for_progress(began).await;
        watch.end().await
    }

    /// Appends go on after this moment.
    async fn wait_for_progress(&self, since: Instant) {
        let from = self.progress.acknowledged();
        let deadline = since.max(Instant::now()) + LIMIT;
        while self.progress.acknowledged() < from + GOES_ON {
            let ended = self.writers.iter().position(JoinHandle::is_finished);
            assert_eq!(ended, None, "a writer has failed");
            assert!(!self.reader.is_finished(), "the reader has failed");
            assert!(Instant::now() < deadline, "appends do not go on");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether every range has all its copies, whole.
    async fn is_whole(&self) -> bool {
        for stream in &self.streams {
            let Ok(ranges) = self.admin.list_ranges(*stream, None).await else {
                return false;
            };
            let is_whole = |range: &Range| {
                let copying = range.servers.iter().any(|server| server.state == ReplicaState::COPYING);
                range.servers.len() >= SERVERS && !copying
            };
            if !ranges.iter().all(is_whole) {
                return false;
            }
        }
        true
    }

    /// The servers of all ranges, for a test that fails.
    async fn ranges(&self) -> String {
        let mut text = String::new();
        for stream in &self.streams {
            for range in self.admin.list_ranges(*stream, None).await.unwrap_or_default() {
                let server = |server: &ReplicaServer| {
                    let id = server.range_server.as_ref().map(|server| server.server_id);
                    (id, server.state)
                };
                let servers: Vec<_> = range.servers.iter().map(server).collect();
                writeln!(
                    text,
                    "{stream}/{} ends {:?} on {servers:?}",
                    range.range_index,
                    range.end()
                )
                .unwrap();
            }
        }
        text
    }

    /// What one machine had is lost, when the others have everything.
    async fn lose_disk(&mut self, server: usize) {
        let deadline = Instant::now() + LIMIT;
        while !self.is_whole().await {
            assert!(
                Instant::now() < deadline,
                "copies are not made: {}",
                self.ranges().await
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let member = &mut self.servers[server];
        member.server.kill();
        std::fs::remove_dir_all(member.server.dir()).unwrap();
        member.server.restart();
    }

    async fn seal(&self, stream: usize) {
        let open = [RangeId {
            stream_id: self.streams[stream],
            ..RangeId::default()
        }];
        // It may be sealed for another reason at the same time.
        let _sealed = self.admin.seal_ranges(&open, SealKind::PLACEMENT_DRIVER, None).await;
    }

    async fn trim(&mut self, stream: usize) {
        let end = self.ledger.lock().end(self.streams[stream]);
        let offset = (self.streams[stream], Offset(end / 2));
        if let Ok(mut trimmed) = self.admin.trim_streams(&[offset], None).await
            && trimmed.remove(0).is_ok()
        {
            self.trimmed[stream] = end / 2;
        }
    }

    /// Ends the writers. Returns how many batches they wrote, and what is wrong with what was read.
    pub(crate) async fn verdict(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut wrong = Vec::new();
        let mut acked = Vec::new();
        for (writer, task) in std::mem::take(&mut self.writers).into_iter().enumerate() {
            let stream = self.streams[writer % STREAMS];
            match task.await.unwrap() {
                Ok(acks) => acked.push((stream, acks)),
                Err(error) => {
                    wrong.push(format!("writer {writer} failed: {error}"));
                    acked.push((stream, Vec::new()));
                }
            }
        }
        let spans: Vec<_> = self.streams.iter().copied().zip(self.trimmed.iter().copied()).collect();
        let later = read_all(&client(&self.home), &spans).await;
        let deadline = Instant::now() + LIMIT;
        for stream in &self.streams {
            while self.ledger.lock().end(*stream) < later.end(*stream) {
                assert!(Instant::now() < deadline, "the reader does not go on");
                tokio::time::sleep(POLL).await;
            }
        }
        self.reader.abort();
        let ledger = self.ledger.lock();
        wrong.extend(ledger.judge(&acked));
        for (stream, start) in self.streams.iter().zip(&self.trimmed) {
            wrong.extend(ledger.judge_later(&later, *stream, *start));
        }
        (self.progress.acknowledged(), wrong)
    }
}

/// A stream of three copies, as soon as there are servers for them.
async fn create(client: &Client, number: usize) -> StreamId {
    let wanted = Stream {
        name: format!("chaos/{number}"),
        replica_nums: 3,
        ack_count: 2,
        ..Stream::default()
    };
    let deadline = Instant::now() + LIMIT;
    loop {
        let made = client.create_streams(vec![wanted.clone()], None).await;
        if let Ok(Ok(stream)) = made.map(|mut made| made.remove(0)) {
            return stream.stream_id;
        }
        assert!(Instant::now() < deadline, "no stream can be made");
        tokio::time::sleep(POLL).await;
    }
}

/// Notes for how long no batch is acknowledged.
struct Watch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl Watch {
    fn begin(progress: Arc<Progress>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            let (mut seen, mut since) = (progress.acknowledged(), Instant::now());
            while !ends.load(Ordering::Relaxed) {
                tokio::time::sleep(POLL).await;
                let now = progress.acknowledged();
                longest = longest.max(since.elapsed());
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
            }
            longest
        });
        Self { stop, task }
    }

    async fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}
