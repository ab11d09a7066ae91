//! A placement driver and two range servers, each a process of its own, that are killed again and again under load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sbp_client::{Client, Writer, WriterOptions};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{client_with, contents};
use sbp_e2e::process::Serving;
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_messages::{Range, RangeId, SealKind, Stream};
use sbp_types::{Offset, StreamId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::sbp;

/// How often each process is killed; twenty times in `make test-long`, with `SBP_THOROUGH` set.
fn kills() -> usize {
    if std::env::var_os("SBP_THOROUGH").is_some() {
        20
    } else {
        2
    }
}

const STREAMS: usize = 6;
/// Appends of one writer that are on their way together.
const TOGETHER: usize = 8;
/// How long after a restart appends, and decisions of the placement driver, may take to go on.
const BACK_AGAIN: Duration = Duration::from_secs(5);

/// One of the processes, which comes back at the same address with the same directory.
struct Role {
    arguments: Vec<String>,
    directory: PathBuf,
    serving: Option<Serving>,
    address: String,
}

impl Role {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut role = Self {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            directory: directory.to_owned(),
            serving: None,
            address: "127.0.0.1:0".to_owned(),
        };
        role.restart();
        role
    }

    fn restart(&mut self) {
        let mut command = sbp(&["serve", "--log", "error", "--listen", &self.address, "--data-dir"]);
        let serving = Serving::spawn(command.arg(&self.directory).args(&self.arguments));
        self.address.clone_from(&serving.address);
        self.serving = Some(serving);
    }

    fn kill(&mut self) {
        let serving = self.serving.take().unwrap();
        assert!(!serving.end(Signal::KILL).success());
    }
}

fn client(address: &str) -> Client {
    client_with(address, |config| config.timeout = LIMIT)
}

/// Asks until it works, for as long as a restart may be felt.
async fn soon<T, E: std::fmt::Debug>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + BACK_AGAIN;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => panic!("no answer in time: {error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn create(driver: &Client, name: String) -> StreamId {
    let wanted = Stream {
        name,
        ..Stream::default()
    };
    let created = soon(async || {
        let mut created = driver.create_streams(vec![wanted.clone()], Some(BACK_AGAIN)).await?;
        created.remove(0)
    });
    created.await.stream_id
}

async fn last_range(driver: &Client, stream: StreamId) -> Range {
    let ranges = soon(async || driver.list_ranges(stream, Some(BACK_AGAIN)).await).await;
    ranges.last().unwrap().clone()
}

fn value(stream: StreamId, number: usize) -> String {
    format!("{stream}/{number}")
}

/// A writer that goes on until it is told to stop, and what it was promised.
struct Load {
    stream: StreamId,
    /// Records acknowledged so far.
    acknowledged: watch::Receiver<usize>,
    task: JoinHandle<Vec<(Offset, String)>>,
}

impl Load {
    fn start(stream: StreamId, writer: Writer, stop: watch::Receiver<bool>) -> Self {
        let (count, acknowledged) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut promised = Vec::new();
            while !*stop.borrow() {
                let values: Vec<_> = (0..TOGETHER).map(|n| value(stream, promised.len() + n)).collect();
                let appends: Vec<_> = values.iter().map(|value| writer.append(records([value]))).collect();
                for (append, value) in appends.into_iter().zip(values) {
                    let ack = append.await.unwrap_or_else(|error| panic!("{value}: {error}"));
                    promised.push((ack.base_offset.unwrap(), value));
                    count.send_replace(promised.len());
                }
            }
            promised
        });
        Self {
            stream,
            acknowledged,
            task,
        }
    }

    /// Waits until something that is sent from now on is acknowledged.
    async fn goes_on(&self, when: &str) {
        let mut acknowledged = self.acknowledged.clone();
        let now = *acknowledged.borrow();
        // What was on its way already does not count.
        let more = acknowledged.wait_for(|count| *count > now + 2 * TOGETHER);
        let more = tokio::time::timeout(BACK_AGAIN, more).await;
        more.unwrap_or_else(|_| panic!("stream {} stands still {when}", self.stream))
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_is_killed_again_and_again_and_nothing_acknowledged_is_lost() {
    let kills = kills();
    let mut all_at_once = 0;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut driver_role = Role::start(&path("pd"), &["--role", "placement-driver"]);
    let address = driver_role.address.clone();
    let range_server = ["--role", "range-server", "--placement-driver", &address];
    let mut range_roles = [
        Role::start(&path("a"), &range_server),
        Role::start(&path("b"), &range_server),
    ];
    let driver = client(&address);
    // Streams until both servers have some.
    let mut holders: BTreeMap<StreamId, Range> = BTreeMap::new();
    while holders.len() < STREAMS {
        let stream = create(&driver, format!("s{}", holders.len())).await;
        holders.insert(stream, last_range(&driver, stream).await);
    }
    let server_of = |stream: StreamId| holders[&stream].primary().unwrap().clone();
    let place_of = |stream| {
        let address = server_of(stream).advertise_addr;
        range_roles.iter().position(|role| role.address == address).unwrap()
    };
    let places: BTreeMap<StreamId, usize> = holders.keys().map(|stream| (*stream, place_of(*stream))).collect();
    for place in 0..range_roles.len() {
        assert!(
            places.values().any(|at| *at == place),
            "both servers hold streams: {places:?}"
        );
    }
    let (stop, stopped) = watch::channel(false);
    let loads: Vec<_> = places
        .keys()
        .map(|stream| {
            let options = WriterOptions {
                timeout: LIMIT,
                attempt_timeout: Duration::from_secs(2),
                ..WriterOptions::default()
            };
            Load::start(*stream, driver.writer(*stream, options), stopped.clone())
        })
        .collect();

    for load in &loads {
        load.goes_on("before anything is killed").await;
    }
    let mut longest = Duration::ZERO;
    for kill in 0..kills {
        for (place, role) in range_roles.iter_mut().enumerate() {
            role.kill();
            role.restart();
            let back = Instant::now();
            for load in loads.iter().filter(|load| places[&load.stream] == place) {
                load.goes_on("after its server was killed").await;
            }
            longest = longest.max(back.elapsed());
        }
        driver_role.kill();
        for load in &loads {
            load.goes_on("without a placement driver").await;
        }
        if kill % 5 == 4 || kill + 1 == kills {
            all_at_once += 1;
            // All of them at once; the range servers come back before the placement driver does.
            range_roles.iter_mut().for_each(Role::kill);
            range_roles.iter_mut().for_each(Role::restart);
            for load in &loads {
                load.goes_on("after all were killed").await;
            }
        }
        driver_role.restart();
        // It decides again: about a new stream, and about the end of a range that is written to.
        create(&driver, format!("after kill {kill}").replace(' ', "_")).await;
        let load = &loads[kill % loads.len()];
        let range = last_range(&driver, load.stream).await;
        let id = RangeId {
            stream_id: load.stream,
            range_index: Some(range.range_index),
            ..RangeId::default()
        };
        let next = soon(async || {
            let ids = [id];
            let sealed = driver.seal_ranges(&ids, SealKind::PLACEMENT_DRIVER, Some(BACK_AGAIN));
            sealed.await?.remove(0)
        });
        let next = next.await;
        assert_eq!(next.range_index.0, range.range_index.0 + 1);
        assert_eq!(
            next.primary(),
            Some(&server_of(load.stream)),
            "it has kept its number and its place"
        );
        load.goes_on("after a seal").await;
    }
    assert!(longest <= BACK_AGAIN, "{longest:?}");

    stop.send_replace(true);
    let mut total = 0;
    for load in loads {
        let promised = load.task.await.unwrap();
        total += promised.len();
        let stored = bounded_by(LIMIT, contents(&driver, load.stream)).await;
        let expected: Vec<_> = (0..promised.len())
            .map(|number| (Offset(i64::try_from(number).unwrap()), value(load.stream, number)))
            .collect();
        assert_eq!(
            promised, expected,
            "stream {}: promised in order, each once",
            load.stream
        );
        assert_eq!(stored, expected, "stream {}: stored in order, each once", load.stream);
    }
    println!(
        "{total} records acknowledged over {} kills; appends went on after {longest:?} at most",
        3 * kills + 2 * all_at_once
    );
}

#[test]
fn a_role_says_what_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let mut command = sbp(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        let output = command.arg(directory.path()).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused(&["--role", "range-server"]);
    assert!(text.contains("--placement-driver"), "{text}");
    let text = refused(&["--placement-driver", "127.0.0.1:1"]);
    assert!(text.contains("--role range-server"), "{text}");
    let everywhere = ["--listen", "0.0.0.0:0"];
    let range_server = ["--role", "range-server", "--placement-driver", "127.0.0.1:1"];
    let mut command = sbp(&["serve", "--insecure-listen", "--data-dir"]);
    let command = command.arg(directory.path()).args(everywhere).args(range_server);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("advertise"), "{text}");
}
