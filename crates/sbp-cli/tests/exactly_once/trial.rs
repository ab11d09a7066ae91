//! The trial: writers, a proxy that breaks things, a server that is killed, a reader, and a verdict.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_locks::Mutex;
use sbp_client::{Ack, Client, ClientError, Positions};
use sbp_frame::OpCode;
use sbp_messages::{RangeId, SealKind, Stream};
use sbp_proxy::{Fault, Held, Hook, Proxy, ProxyConfig, Rule};
use sbp_server::ForgetWriters;
use sbp_types::{Offset, StreamId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::child::ServerProcess;
use crate::ledger::{Ledger, RECORDS};
use crate::load::{Progress, client, read, write};

/// Writers, and the streams they share.
const WRITERS: usize = 4;
const STREAMS: usize = 2;

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
             {} duplicates recognised, {:.1} s; {} wrong",
            self.batches,
            self.faults,
            self.connections,
            self.seals,
            self.kills,
            self.unacknowledged,
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
struct Scene<'a> {
    dir: &'a Path,
    forget: ForgetWriters,
    proxy: Proxy,
    server: Option<ServerProcess>,
    /// Where the server listens, every time.
    address: String,
    /// Not through the proxy.
    direct: Client,
    streams: Vec<StreamId>,
    progress: Arc<Progress>,
    ledger: Arc<Mutex<Ledger>>,
    reader: JoinHandle<()>,
}

impl<'a> Scene<'a> {
    async fn set(dir: &'a Path, trial: &Trial) -> Self {
        let proxy = Proxy::start(ProxyConfig {
            rules: trial.rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            seed: 4,
            ..ProxyConfig::default()
        })
        .unwrap();
        let server = ServerProcess::start(dir, "127.0.0.1:0", &proxy.address(), trial.forget);
        let address = server.address.clone();
        proxy.set_target(Some(address.clone()));
        let direct = client(&address);
        let wanted = (0..STREAMS).map(|stream| Stream {
            name: format!("trial/{stream}"),
            ..Stream::default()
        });
        let created = direct.create_streams(wanted.collect(), None).await.unwrap();
        let streams: Vec<_> = created.into_iter().map(|stream| stream.unwrap().stream_id).collect();
        let ledger = Arc::default();
        let reader = tokio::spawn(read(direct.clone(), streams.clone(), Arc::clone(&ledger)));
        Self {
            dir,
            forget: trial.forget,
            proxy,
            server: Some(server),
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
        let client = client(&self.proxy.address());
        let progress = Arc::clone(&self.progress);
        let stream = self.stream_of(writer);
        tokio::spawn(write(client, stream, writer, batches / WRITERS as u64, progress))
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
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.proxy.remove(rule);
        first.cut();
        held.close();
        while let Some(another) = held.recv().await {
            another.cut();
        }
        self.server = Some(ServerProcess::start(
            self.dir,
            &self.address,
            &self.proxy.address(),
            self.forget,
        ));
        ends.iter()
            .map(|(_, end)| end)
            .sum::<u64>()
            .saturating_sub(acknowledged)
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
        for trimmed in self.direct.trim_streams(&offsets, None).await.unwrap() {
            trimmed.unwrap();
        }
    }

    /// Seals the open range of one of the streams, under the appends that come.
    async fn seal(&self, number: u64) {
        let place = usize::try_from(number).unwrap() % STREAMS;
        let open = [RangeId {
            stream_id: self.streams[place],
            ..RangeId::default()
        }];
        let sealed = self.direct.seal_ranges(&open, SealKind::PLACEMENT_DRIVER, None);
        for range in sealed.await.unwrap() {
            assert!(range.unwrap().is_open());
        }
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
