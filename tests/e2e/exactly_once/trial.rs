//! The trial: writers, a proxy that breaks things, a server that is killed, a reader, and a verdict.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_client::{Ack, Client, ClientError, Positions};
use sbp_e2e::ledger::{Ledger, RECORDS};
use sbp_e2e::load::{Progress, client, read, write};
use sbp_e2e::process::{Lasting, Setup};
use sbp_frame::OpCode;
use sbp_locks::Mutex;
use sbp_messages::{ErrorCode, RangeId, SealKind, Stream};
use sbp_proxy::{Fault, Held, Hook, Proxy, ProxyConfig, Rule};
use sbp_server::{ForgetWriters, Roles};
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Writers, and the streams they share.
const WRITERS: usize = 4;
const STREAMS: usize = 2;

/// Batches of one writer on their way.
const IN_FLIGHT: usize = 64;

/// How often something that must come is looked for.
const POLL: Duration = Duration::from_millis(5);
/// How long the server may store nothing before what it has counts as all that has reached it.
const QUIET: Duration = Duration::from_millis(400);

/// What is tried.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Batches of all writers together.
    pub(crate) batches: u64,
    /// How often the server is killed with acknowledgements held back.
    pub(crate) kills: u64,
    /// Whether everything that is stored is trimmed before each second of these kills, or before the only one.
    pub(crate) trims: bool,
    /// Whether one of the streams goes on in a new range after each kill.
    pub(crate) seals: bool,
    /// What the proxy does to frames.
    pub(crate) rules: Vec<String>,
    /// Whether placement driver and range server are processes of their own. At each third kill both are killed then.
    pub(crate) apart: bool,
    /// How the server breaks its promise.
    pub(crate) forget: ForgetWriters,
    /// How long it may take.
    pub(crate) limit: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What is wrong with what was read; each entry is one finding.
    pub(crate) wrong: Vec<String>,
    pub(crate) batches: u64,
    pub(crate) faults: u64,
    pub(crate) connections: u64,
    pub(crate) kills: u64,
    /// How often a placement driver of its own was killed.
    pub(crate) driver_kills: u64,
    pub(crate) seals: u64,
    /// Records that were synced and not acknowledged when the server was killed.
    pub(crate) unacknowledged: u64,
    /// Acknowledgements that said that the batch had been stored before.
    pub(crate) duplicates: u64,
    pub(crate) time: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} batches, {} faults on {} connections, {} seals, {} kills with {} records synced and not acknowledged, \
             {} of them with the placement driver, {} duplicates recognised, {:.1} s; {} wrong",
            self.batches,
            self.faults,
            self.connections,
            self.seals,
            self.kills,
            self.unacknowledged,
            self.driver_kills,
            self.duplicates,
            self.time.as_secs_f64(),
            self.wrong.len()
        )?;
        for wrong in self.wrong.iter().take(5) {
            write!(f, "\n  {wrong}")?;
        }
        Ok(())
    }
}

/// Asks until it is done: a server that has just come back may not have been heard of yet. The trial's limit bounds it.
async fn until_served<T>(mut ask: impl AsyncFnMut() -> Result<T, ClientError>) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if error.code() == ErrorCode::PD_NO_AVAILABLE_RS => tokio::time::sleep(POLL).await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn create(client: &Client, name: String) -> StreamId {
    let wanted = Stream {
        name,
        ..Stream::default()
    };
    let make = async || client.create_streams(vec![wanted.clone()], None).await?.remove(0);
    until_served(make).await.stream_id
}

impl Trial {
    /// Runs it; panics when it does not end in time.
    pub(crate) async fn run(self) -> Outcome {
        let limit = self.limit;
        tokio::time::timeout(limit, self.run_unbounded())
            .await
            .expect("the trial did not end in time")
    }

    async fn run_unbounded(self) -> Outcome {
        let begin = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let mut scene = Scene::set(dir.path(), &self).await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scene.start_writer(writer, self.batches))
            .collect();
        let mut outcome = Outcome {
            batches: self.batches,
            ..Outcome::default()
        };
        for kill in 1..=self.kills {
            let due = self.batches * kill / (self.kills + 1);
            scene.wait_for_acknowledged(due, &writers).await;
            let trim = self.trims && (kill % 2 == 0 || self.kills == 1);
            let unacknowledged = scene.kill_before_acknowledgement(trim).await;
            if kill % 3 == 0 && scene.kill_driver() {
                outcome.driver_kills += 1;
            }
            assert!(unacknowledged > 0, "the server was killed with nothing to acknowledge");
            outcome.unacknowledged += unacknowledged;
            outcome.kills += 1;
            if self.seals {
                scene.seal(kill).await;
                outcome.seals += 1;
            }
        }
        let mut acked = Vec::new();
        for (writer, task) in writers.into_iter().enumerate() {
            let acks = match task.await.unwrap() {
                Ok(acks) => acks,
                Err(error) => {
                    outcome.wrong.push(format!("writer {writer} failed: {error}"));
                    Vec::new()
                }
            };
            outcome.duplicates += acks.iter().filter(|ack| ack.duplicate).count() as u64;
            acked.push((scene.stream_of(writer), acks));
        }
        scene.wait_for_reader().await;
        outcome.wrong.extend(scene.ledger.lock().judge(&acked));
        let counts = scene.proxy.counts();
        // Acknowledgements are held for the kills, which are counted by themselves.
        outcome.faults = counts.faults() - counts.held;
        outcome.connections = counts.connections;
        outcome.time = begin.elapsed();
        scene.reader.abort();
        outcome
    }
}

/// A writer at work, and its acknowledgements.
type Writing = JoinHandle<Result<Vec<Ack>, ClientError>>;

/// Everything that takes part.
struct Scene {
    proxy: Proxy,
    /// Stores the records, and listens at the same address every time.
    server: Lasting,
    /// Where it is apart.
    driver: Option<Lasting>,
    /// Where writers begin.
    address: String,
    /// Its appends do not go through the proxy: it makes none.
    direct: Client,
    streams: Vec<StreamId>,
    progress: Arc<Progress>,
    ledger: Arc<Mutex<Ledger>>,
    reader: JoinHandle<()>,
}

impl Scene {
    async fn set(dir: &Path, trial: &Trial) -> Self {
        let proxy = Proxy::start(ProxyConfig {
            rules: trial.rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            seed: 4,
            ..ProxyConfig::default()
        })
        .unwrap();
        let setup = |name: &str, advertise: Option<String>, roles: Roles| Setup {
            dir: dir.join(name),
            listen: "127.0.0.1:0".to_owned(),
            advertise,
            roles,
            metadata: None,
            forget: trial.forget,
            // Small, so that a trial fills many and trims delete them.
            segment_bytes: Some(1 << 20),
            ..Setup::new("")
        };
        let driver = trial
            .apart
            .then(|| Lasting::start(setup("driver", None, Roles::PlacementDriver)));
        let roles = driver.as_ref().map_or(Roles::Both, |driver| Roles::RangeServer {
            placement_driver: vec![driver.address().to_owned()],
        });
        // Who is told where the records are is told of the proxy.
        let server = Lasting::start(setup("server", Some(proxy.address()), roles));
        proxy.set_target(Some(server.address().to_owned()));
        let (address, direct) = match &driver {
            Some(driver) => (driver.address().to_owned(), client(driver.address())),
            None => (proxy.address(), client(server.address())),
        };
        let mut streams = Vec::new();
        for stream in 0..STREAMS {
            streams.push(create(&direct, format!("trial/{stream}")).await);
        }
        let ledger = Arc::default();
        let reader = tokio::spawn(read(direct.clone(), streams.clone(), Arc::clone(&ledger)));
        Self {
            proxy,
            server,
            driver,
            address,
            direct,
            streams,
            progress: Arc::default(),
            ledger,
            reader,
        }
    }

    fn stream_of(&self, writer: usize) -> StreamId {
        self.streams[writer % STREAMS]
    }

    /// Each writer has a client, and so a connection, of its own.
    fn start_writer(&self, writer: usize, batches: u64) -> Writing {
        let client = client(&self.address);
        let progress = Arc::clone(&self.progress);
        let stream = self.stream_of(writer);
        let each = batches / WRITERS as u64;
        let goes_on = move |batch| batch < each;
        tokio::spawn(write(client, (stream, writer), IN_FLIGHT, goes_on, progress))
    }

    /// Waits until that many batches are acknowledged, or a writer has ended, well or not.
    async fn wait_for_acknowledged(&self, batches: u64, writers: &[Writing]) {
        while self.progress.acknowledged() < batches && !writers.iter().any(JoinHandle::is_finished) {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Holds all acknowledgements back, lets the server sync what is on its way, and kills it. Returns how many records
    /// were then synced and not acknowledged.
    async fn kill_before_acknowledgement(&mut self, trim: bool) -> u64 {
        let (send, mut held) = mpsc::unbounded_channel::<Held>();
        let hook = Hook::new(move |frame| {
            // Nobody takes it any more when the kill is over: then it passes.
            let _ = send.send(frame);
        });
        let rule = self
            .proxy
            .add(Rule::new(Fault::Hold(hook)).opcode(OpCode::APPEND).answers());
        let first = held.recv().await.expect("the rule is there");
        let ends = self.wait_until_quiet().await;
        let acknowledged = self.progress.acknowledged() * RECORDS;
        if trim {
            self.trim(&ends).await;
        }
        self.server.kill();
        self.proxy.remove(rule);
        first.cut();
        held.close();
        while let Some(another) = held.recv().await {
            another.cut();
        }
        self.server.restart();
        ends.iter()
            .map(|(_, end)| end)
            .sum::<u64>()
            .saturating_sub(acknowledged)
    }

    /// Kills the placement driver where there is one of its own; the range server is served without it meanwhile.
    fn kill_driver(&mut self) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        driver.kill();
        driver.restart();
        true
    }

    /// Waits until the server has synced all that was sent, or nothing new for a while; then where its streams end.
    async fn wait_until_quiet(&self) -> Vec<(StreamId, u64)> {
        let mut ends = self.ends().await;
        let mut since = Instant::now();
        loop {
            let stored: u64 = ends.iter().map(|(_, end)| end).sum();
            if stored == self.progress.submitted() * RECORDS || since.elapsed() > QUIET {
                return ends;
            }
            tokio::time::sleep(POLL).await;
            let now = self.ends().await;
            if now != ends {
                (ends, since) = (now, Instant::now());
            }
        }
    }

    /// Where the streams end: nothing in front of it is lost by a kill.
    async fn ends(&self) -> Vec<(StreamId, u64)> {
        let positions = self.direct.positions(&self.streams, None).await.unwrap();
        let end = |found: Result<Positions, ClientError>| u64::try_from(found.unwrap().latest.0).unwrap();
        self.streams
            .iter()
            .copied()
            .zip(positions.into_iter().map(end))
            .collect()
    }

    /// Trims everything that is stored, once the reader has seen it.
    async fn trim(&self, ends: &[(StreamId, u64)]) {
        let offset = |&(stream, end): &(StreamId, u64)| (stream, Offset(i64::try_from(end).unwrap()));
        let offsets: Vec<_> = ends.iter().map(offset).collect();
        for &(stream, offset) in &offsets {
            while self.ledger.lock().end(stream) < offset.0 {
                assert!(!self.reader.is_finished(), "the reader has failed");
                tokio::time::sleep(POLL).await;
            }
        }
        for trim in offsets {
            until_served(async || self.direct.trim_streams(&[trim], None).await?.remove(0)).await;
        }
    }

    /// Seals the open range of one of the streams, under the appends that come.
    async fn seal(&self, number: u64) {
        let place = usize::try_from(number).unwrap() % STREAMS;
        let open = [RangeId {
            stream_id: self.streams[place],
            ..RangeId::default()
        }];
        let seal = async || {
            let sealed = self.direct.seal_ranges(&open, SealKind::PLACEMENT_DRIVER, None);
            sealed.await?.remove(0)
        };
        assert!(until_served(seal).await.is_open());
    }

    /// Waits until the reader has seen everything.
    async fn wait_for_reader(&self) {
        for (stream, end) in self.ends().await {
            while self.ledger.lock().end(stream) < i64::try_from(end).unwrap() {
                assert!(!self.reader.is_finished(), "the reader has failed");
                tokio::time::sleep(POLL).await;
            }
        }
    }
}
