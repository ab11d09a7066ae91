//! Three equal servers, each with both roles, and an etcd.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sbp_client::{Ack, Client, ClientError};
use sbp_e2e::clients::{client, client_with};
use sbp_e2e::etcd::Etcd;
use sbp_e2e::load::{self, Progress, read_all};
use sbp_e2e::peer::Peer;
use sbp_e2e::process::{Lasting, Setup};
use sbp_e2e::servers::copy_all;
use sbp_e2e::wait::{LIMIT, bounded_by, until};
use sbp_messages::{ClientRole, HeartbeatRequest, HeartbeatResponse, Range, RangeServer};
use sbp_server::{ClusterTimes, MetadataConfig, Server, ServerConfig};
use sbp_types::{ServerId, StreamId};
use tokio::task::JoinHandle;

use super::questions::{append, create, described, leader, names};

const SERVERS: usize = 3;
/// Appends go on within so long, whoever is gone.
const TAKEN_OVER: Duration = Duration::from_secs(10);
/// Batches of a writer on their way.
const IN_FLIGHT: usize = 4;
/// So many more show that appends go on.
const GOES_ON: u64 = 20;
/// Longer than servers wait for each other.
const LONG: Duration = Duration::from_secs(5);

struct Trio {
    servers: Vec<Lasting>,
    _directory: tempfile::TempDir,
}

impl Trio {
    /// Starts all at once, and waits until each serves.
    fn start(location: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let setup = |index: usize| Setup {
            metadata: Some(location.to_owned()),
            cluster: ClusterTimes {
                renew_after: Duration::from_secs(1),
                ..ClusterTimes::default()
            },
            ..Setup::new(directory.path().join(format!("server{index}")))
        };
        let setups: Vec<_> = (0..SERVERS).map(setup).collect();
        let servers = std::thread::scope(|scope| {
            let starting: Vec<_> = setups
                .into_iter()
                .map(|setup| scope.spawn(|| Lasting::start(setup)))
                .collect();
            starting.into_iter().map(|server| server.join().unwrap()).collect()
        });
        Self {
            servers,
            _directory: directory,
        }
    }

    fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address().to_owned()).collect()
    }

    fn client(&self) -> Client {
        client(&self.addresses().join(","))
    }

    /// Which one leads.
    fn leader(&self) -> usize {
        self.index_of(&leader(&self.addresses()))
    }

    fn index_of(&self, address: &str) -> usize {
        let place = self.servers.iter().position(|server| server.address() == address);
        place.unwrap()
    }

    /// Kills all, and starts all at once.
    fn restart(&mut self) {
        for server in &mut self.servers {
            server.kill();
        }
        std::thread::scope(|scope| {
            for server in &mut self.servers {
                scope.spawn(|| server.restart());
            }
        });
    }

    /// Makes streams of three copies until one has this server for its primary.
    async fn stream_led_by(&self, client: &Client, server: usize) -> StreamId {
        for number in 0..20 {
            let stream = create(client, &format!("stream{number}"), 3, 2).await;
            let ranges = client.list_ranges(stream, None).await.unwrap();
            if primary(&ranges) == self.servers[server].address() {
                return stream;
            }
        }
        panic!("no stream has server {server} for its primary");
    }

    /// Waits until the last range of a stream is on all three servers, none of which lacks any of it.
    async fn wait_until_whole(&self, client: &Client, stream: StreamId) {
        let began = Instant::now();
        loop {
            let ranges = client.list_ranges(stream, None).await.unwrap_or_default();
            if ranges.last().is_some_and(|range| holders(range).len() == SERVERS) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{ranges:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn holders(range: &Range) -> Vec<&RangeServer> {
    range
        .servers
        .iter()
        .filter_map(|replica| replica.range_server.as_ref())
        .collect()
}

/// Where the primary of the last range is.
fn primary(ranges: &[Range]) -> &str {
    &holders(ranges.last().unwrap())[0].advertise_addr
}

/// A writer at work on a stream.
struct Load {
    client: Client,
    stream: StreamId,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    writer: JoinHandle<Result<Vec<Ack>, ClientError>>,
}

impl Load {
    async fn begin(trio: &Trio, stream: StreamId) -> Self {
        let (stop, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
        let client = load::client(&trio.addresses().join(","));
        let goes_on = {
            let stop = Arc::clone(&stop);
            move |_| !stop.load(Ordering::Relaxed)
        };
        let writing = load::write(client, (stream, 0), IN_FLIGHT, goes_on, Arc::clone(&progress));
        let load = Self {
            client: trio.client(),
            stream,
            stop,
            progress,
            writer: tokio::spawn(writing),
        };
        load.goes_on("the writer has begun").await;
        load
    }

    /// Waits until appends go on, and says how long that took.
    async fn goes_on(&self, what: &str) {
        let began = Instant::now();
        let from = self.progress.acknowledged();
        while self.progress.acknowledged() < from + GOES_ON {
            assert!(!self.writer.is_finished(), "the writer has failed: {what}");
            assert!(
                began.elapsed() < TAKEN_OVER,
                "appends do not go on: {what}: {:?}",
                self.client.list_ranges(self.stream, Some(Duration::from_secs(5))).await
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        say(&format!("{what}: appends went on after {:?}", began.elapsed()));
    }

    /// Ends the writer; then everything it was told is there is, once and in order, whoever is asked.
    async fn verdict(self, trio: &Trio) {
        self.stop.store(true, Ordering::Relaxed);
        let acks = self.writer.await.unwrap().unwrap();
        assert!(acks.len() > 2 * usize::try_from(GOES_ON).unwrap());
        for address in trio.addresses() {
            let read = read_all(&load::client(&address), &[(self.stream, 0)]).await;
            assert_eq!(read.judge(&[(self.stream, acks.clone())]), [""; 0]);
        }
    }
}

#[allow(clippy::print_stderr, reason = "a figure for people")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_when_the_server_is_killed_that_leads_and_takes_them_and_it_holds_copies_again() {
    bounded_by(2 * LIMIT, async {
        let etcd = Etcd::start(1);
        let mut trio = Trio::start(&etcd.location("killed"));
        let client = trio.client();
        for address in &trio.addresses() {
            // Any of them can be dialled for anything.
            let client = self::client(address);
            let stream = create(&client, &format!("by_{}", address.replace(':', "_")), 3, 2).await;
            append(&client, stream, "record".to_owned()).await.unwrap();
        }
        assert_eq!(names(&client).await.len(), SERVERS);
        let old = trio.leader();
        let stream = trio.stream_led_by(&client, old).await;
        let load = Load::begin(&trio, stream).await;
        trio.servers[old].kill();
        load.goes_on("killed").await;
        assert_ne!(trio.index_of(&leader(&but(&trio, old))), old);
        // On two of three.
        create(&client, "between", 3, 2).await;
        trio.servers[old].restart();
        trio.wait_until_whole(&client, stream).await;
        load.goes_on("on all three again").await;
        load.verdict(&trio).await;
    })
    .await;
}

/// The addresses of all but one.
fn but(trio: &Trio, index: usize) -> Vec<String> {
    let mut addresses = trio.addresses();
    addresses.remove(index);
    addresses
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_when_the_server_is_stopped_that_leads_and_takes_them() {
    bounded_by(2 * LIMIT, async {
        let etcd = Etcd::start(1);
        let trio = Trio::start(&etcd.location("stopped"));
        let client = trio.client();
        let old = trio.leader();
        let stream = trio.stream_led_by(&client, old).await;
        let load = Load::begin(&trio, stream).await;
        let process = trio.servers[old].process().unwrap();
        process.pause();
        load.goes_on("stopped").await;
        tokio::time::sleep(LONG).await;
        process.signal(Signal::CONT);
        load.goes_on("it has gone on").await;
        trio.wait_until_whole(&client, stream).await;
        create(&client, "after", 3, 2).await;
        load.verdict(&trio).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_all_killed_go_on_with_what_they_had() {
    bounded_by(2 * LIMIT, async {
        let etcd = Etcd::start(1);
        let mut trio = Trio::start(&etcd.location("all"));
        let client = trio.client();
        let stream = create(&client, "orders", 3, 2).await;
        let load = Load::begin(&trio, stream).await;
        for round in 0..2 {
            tokio::task::block_in_place(|| trio.restart());
            load.goes_on(&format!("all were killed, {round}")).await;
            trio.wait_until_whole(&client, stream).await;
        }
        assert_eq!(names(&client).await, ["orders"]);
        load.verdict(&trio).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_etcd_is_away_appends_and_reads_go_on_and_a_server_that_starts_serves() {
    bounded_by(2 * LIMIT, async {
        let mut etcd = Etcd::start(1);
        let mut trio = Trio::start(&etcd.location("away"));
        let client = trio.client();
        let stream = create(&client, "orders", 3, 2).await;
        let load = Load::begin(&trio, stream).await;
        etcd.pause(0);
        tokio::time::sleep(LONG).await;
        load.goes_on("etcd is stopped").await;
        etcd.go_on(0);
        create(&client, "between", 3, 2).await;
        let ranges = client.list_ranges(stream, None).await.unwrap();
        let follower = trio.index_of(&holders(ranges.last().unwrap())[1].advertise_addr);
        // Who knows where a stream is, needs nobody to say it.
        let before = read_all(&client, &[(stream, 0)]).await;
        etcd.kill(0);
        tokio::time::sleep(LONG).await;
        load.goes_on("etcd is gone").await;
        let impatient = client_with(&trio.addresses().join(","), |config| {
            config.timeout = Duration::from_secs(1)
        });
        let error = impatient.list_ranges(stream, None).await.unwrap_err();
        assert!(error.to_string().contains("metadata store unreachable"), "{error}");
        let read = read_all(&client, &[(stream, 0)]).await;
        assert!(read.end(stream) > before.end(stream));
        trio.servers[follower].kill();
        tokio::task::block_in_place(|| trio.servers[follower].restart());
        load.goes_on("a server has started without etcd").await;
        etcd.start_member(0);
        create(&client, "after", 3, 2).await;
        trio.wait_until_whole(&client, stream).await;
        load.verdict(&trio).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_started_before_etcd_answers_find_each_other_when_it_does() {
    bounded_by(2 * LIMIT, async {
        let (mut etcd, asking) = super::started(1).await;
        etcd.kill(0);
        let location = etcd.location("early");
        let starting = tokio::task::spawn_blocking(move || Trio::start(&location));
        // As long as none of them waits any more for an answer to its first question.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!starting.is_finished(), "there is nobody who gives out numbers");
        etcd.start_member(0);
        super::settled(&asking).await;
        let trio = starting.await.unwrap();
        create(&trio.client(), "orders", 3, 3).await;
        let seen = described(&trio.addresses()[trio.leader()]);
        let servers = seen.range_servers.iter().flatten();
        let mut numbers: Vec<_> = servers.filter_map(|status| status.range_server.as_ref()).collect();
        numbers.sort_by_key(|server| server.server_id);
        numbers.dedup_by_key(|server| server.server_id);
        assert_eq!(numbers.len(), SERVERS, "each has a number of its own");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_soon_although_its_roles_are_connected_with_each_other() {
    bounded_by(2 * LIMIT, async {
        let etcd = Etcd::start(1);
        let directory = tempfile::tempdir().unwrap();
        for life in 0..2 {
            let config = config(directory.path(), Some(&etcd.location("ends")));
            let server = tokio::task::block_in_place(|| Server::start(config)).unwrap();
            let client = client(server.address());
            let stream = create(&client, &format!("of_life_{life}"), 1, 1).await;
            append(&client, stream, "record".to_owned()).await.unwrap();
            client.close().await;
            let began = Instant::now();
            tokio::task::block_in_place(|| server.shutdown()).unwrap();
            let took = began.elapsed();
            say(&format!("a server ended after {took:?}"));
            // The grace for what clients have under way is 10 s.
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    })
    .await;
}

fn config(directory: &Path, metadata: Option<&str>) -> ServerConfig {
    ServerConfig {
        data_dir: Some(directory.to_owned()),
        metadata: metadata.map(|location| MetadataConfig {
            location: location.parse().unwrap(),
            tls: None,
        }),
        ..ServerConfig::default()
    }
}

#[test]
fn a_directory_with_its_own_metadata_is_not_started_in_a_cluster_nor_one_of_a_cluster_by_itself() {
    let etcd = Etcd::start(1);
    let location = etcd.location("others");
    let refused = |config| {
        let error = Server::start(config).unwrap_err().to_string();
        assert!(error.contains("belongs to"), "{error}");
        error
    };
    let [alone, of_cluster] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |config| Server::start(config).unwrap().shutdown().unwrap();
    start(config(alone.path(), None));
    start(config(of_cluster.path(), Some(&location)));
    let error = refused(config(alone.path(), Some(&location)));
    assert!(error.contains("a placement driver"), "{error}");
    let error = refused(config(of_cluster.path(), None));
    assert!(error.contains("a range server whose metadata are not in it"), "{error}");
    // Neither was changed by that.
    start(config(alone.path(), None));
    start(config(of_cluster.path(), Some(&location)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_data_directory_that_is_started_beside_the_original_is_refused() {
    bounded_by(2 * LIMIT, async {
        let etcd = Etcd::start(1);
        let location = etcd.location("copied");
        let mut trio = Trio::start(&location);
        let client = trio.client();
        let stream = create(&client, "orders", 3, 2).await;
        let load = Load::begin(&trio, stream).await;
        let before = numbers(&trio);
        let copy = tempfile::tempdir().unwrap();
        trio.servers[0].kill();
        copy_all(trio.servers[0].dir(), copy.path());
        tokio::task::block_in_place(|| trio.servers[0].restart());
        let second = Setup {
            metadata: Some(location),
            ..Setup::new(copy.path())
        };
        let second = tokio::task::block_in_place(|| second.start());
        assert_eq!(numbers(&trio), before);
        let (number, original) = before
            .iter()
            .find(|(_, address)| address == trio.servers[0].address())
            .unwrap();
        let starts = registered_after_restart(&trio, *number);
        let leader = trio.leader();
        for (index, address) in trio.addresses().iter().enumerate() {
            for said in [starts - 1, starts, starts + 1] {
                let greeting = HeartbeatRequest {
                    client_role: ClientRole::RANGE_SERVER,
                    range_server: Some(RangeServer {
                        server_id: *number,
                        advertise_addr: second.address.clone(),
                        starts: said,
                        ..RangeServer::default()
                    }),
                    ..HeartbeatRequest::default()
                };
                let is_refused = || {
                    let (greeted, _): (HeartbeatResponse, _) = Peer::dial(address).call(&greeting, b"");
                    let words = greeted.status.to_string();
                    let is_refused = !greeted.status.is_success() && words.contains(original);
                    // Who does not lead takes on trust what it hears before it has read which range servers are registered.
                    assert!(is_refused || greeted.status.is_success() && index != leader, "{words}");
                    is_refused
                };
                until("the copy is refused", || is_refused().then_some(()));
                assert!(is_refused(), "for good");
            }
        }
        assert_eq!(numbers(&trio), before);
        drop(second);
        load.goes_on("the copy is gone").await;
        load.verdict(&trio).await;
    })
    .await;
}

/// How often the directory of a range server was started, when it is registered since it was started again.
fn registered_after_restart(trio: &Trio, number: ServerId) -> i64 {
    until("the server is registered since its restart", || {
        let seen = described(&trio.addresses()[trio.leader()]);
        let mut servers = seen.range_servers.into_iter().flatten();
        let server = servers.find_map(|status| status.range_server.filter(|server| server.server_id == number));
        server.map(|server| server.starts).filter(|starts| *starts > 1)
    })
}

/// The range servers of the cluster, and where each is.
fn numbers(trio: &Trio) -> Vec<(ServerId, String)> {
    let seen = described(&trio.addresses()[trio.leader()]);
    let servers = seen.range_servers.into_iter().flatten();
    let servers = servers.filter_map(|status| status.range_server);
    servers
        .map(|server| (server.server_id, server.advertise_addr))
        .collect()
}
