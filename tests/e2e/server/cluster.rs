//! A cluster for tests: a placement driver in this process, and range servers in processes of their own.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sbp_e2e::admin::{Admin, created};
use sbp_e2e::peer::Peer;
use sbp_e2e::process::{Serving, Setup};
use sbp_e2e::servers::config;
use sbp_e2e::wait::until;
use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, ErrorCode, Range, RangeServer,
    RangeServerStatus, ReportMetricsRequest, ReportMetricsResponse, ServerState, Stream,
};
use sbp_server::{ClusterTimes, Roles, Server, ServerConfig};
use sbp_types::{ServerId, StreamId};

/// A placement driver in this process, and range servers in their own. The n-th to be started has number n.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    /// `None` only while it is started again.
    placement: Option<Server>,
    address: String,
    times: ClusterTimes,
    retention_interval: Option<Duration>,
    servers: Vec<Option<Serving>>,
}

impl Cluster {
    pub(crate) fn start(servers: usize, times: ClusterTimes) -> Self {
        Self::with_retention(servers, times, None)
    }

    /// With range servers that remove so often what need not be kept, if that is not as usual.
    pub(crate) fn with_retention(servers: usize, times: ClusterTimes, retention_interval: Option<Duration>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let placement = placement(directory.path(), times, "127.0.0.1:0");
        let mut cluster = Self {
            directory,
            address: placement.address().to_owned(),
            placement: Some(placement),
            times,
            retention_interval,
            servers: Vec::new(),
        };
        for _server in 0..servers {
            cluster.add();
        }
        cluster
    }

    fn setup(&self, server: ServerId) -> Setup {
        Setup {
            roles: Roles::RangeServer {
                placement_driver: vec![self.address.clone()],
            },
            retention_interval: self.retention_interval,
            ..Setup::new(self.directory_of(server))
        }
    }

    /// One more range server.
    pub(crate) fn add(&mut self) -> ServerId {
        let server = ServerId(i32::try_from(self.servers.len()).unwrap() + 1);
        self.servers.push(Some(self.setup(server).start()));
        server
    }

    /// Ends the placement driver, and starts it again at its address.
    pub(crate) fn restart_placement(&mut self) {
        drop(self.placement.take());
        self.placement = Some(placement(self.directory.path(), self.times, &self.address));
    }

    /// Says what is to become of a range server.
    pub(crate) fn want(&self, server: ServerId, wanted: ServerState) -> ErrorCode {
        let request = ReportMetricsRequest {
            range_server: Some(RangeServer {
                server_id: server,
                ..RangeServer::default()
            }),
            wanted,
            ..ReportMetricsRequest::default()
        };
        let (answer, _): (ReportMetricsResponse, _) = self.admin().call(&request, b"");
        answer.status.code
    }

    /// A range server as the placement driver sees it: it is known soon after it was started.
    pub(crate) fn status_of(&self, server: ServerId) -> RangeServerStatus {
        let is_it = |status: &RangeServerStatus| status.range_server.as_ref().is_some_and(|it| it.server_id == server);
        until("a server that is known", || self.status().into_iter().find(is_it))
    }

    pub(crate) fn process(&self, server: ServerId) -> &Serving {
        let index = usize::try_from(server.0).unwrap() - 1;
        self.servers[index].as_ref().expect("it runs")
    }

    pub(crate) fn kill(&mut self, server: ServerId) {
        let index = usize::try_from(server.0).unwrap() - 1;
        self.servers[index].take().expect("it runs").end(Signal::KILL);
    }

    /// Ends a server in order.
    pub(crate) fn end(&mut self, server: ServerId) {
        let index = usize::try_from(server.0).unwrap() - 1;
        assert!(self.servers[index].take().expect("it runs").finish().success());
    }

    /// Starts a server again that has ended.
    pub(crate) fn start_again(&mut self, server: ServerId) {
        let index = usize::try_from(server.0).unwrap() - 1;
        assert!(self.servers[index].is_none(), "it runs");
        self.servers[index] = Some(self.setup(server).start());
    }

    /// The same, at the address where it was.
    pub(crate) fn start_again_at(&mut self, server: ServerId, address: &str) {
        let index = usize::try_from(server.0).unwrap() - 1;
        assert!(self.servers[index].is_none(), "it runs");
        let setup = Setup {
            listen: address.to_owned(),
            ..self.setup(server)
        };
        self.servers[index] = Some(setup.start());
    }

    /// Where a range server keeps what it has.
    pub(crate) fn directory_of(&self, server: ServerId) -> std::path::PathBuf {
        self.directory.path().join(server.to_string())
    }

    pub(crate) fn peer(&self, server: ServerId) -> Peer {
        Peer::dial(self.process(server).address.as_str())
    }

    /// Where clients begin.
    pub(crate) fn placement_address(&self) -> &str {
        &self.address
    }

    pub(crate) fn admin(&self) -> Peer {
        Peer::dial(self.address.as_str())
    }

    /// A stream whose range is on so many servers.
    pub(crate) fn create(&self, replicas: i8, acks: i8, on: usize) -> (StreamId, Vec<ServerId>) {
        let mut admin = self.admin();
        until("as many range servers", || {
            let stream = Stream {
                replica_nums: replicas,
                ack_count: acks,
                ..Stream::default()
            };
            match created(&mut admin, vec![stream]).remove(0) {
                (stream, Some(range), ErrorCode::NONE) if range.servers.len() == on => {
                    Some((stream.stream_id, servers(&range)))
                }
                (.., code) => {
                    assert!(
                        [ErrorCode::NONE, ErrorCode::PD_NO_AVAILABLE_RS].contains(&code),
                        "{code}"
                    );
                    None
                }
            }
        })
    }

    /// The stream's last range.
    pub(crate) fn last(&self, stream: StreamId) -> Range {
        self.admin().ranges(stream).pop().unwrap()
    }

    /// Waits until the stream's last range is on so many servers.
    pub(crate) fn wait_for_set(&self, stream: StreamId, count: usize) -> Vec<ServerId> {
        until("the set", || {
            let servers = servers(&self.last(stream));
            (servers.len() == count).then_some(servers)
        })
    }

    pub(crate) fn status(&self) -> Vec<RangeServerStatus> {
        let request = DescribePlacementDriverClusterRequest::default();
        let (answer, _): (DescribePlacementDriverClusterResponse, _) = self.admin().call(&request, b"");
        answer.cluster.unwrap().range_servers.unwrap()
    }

    /// Appends where the stream's primary is, among those that run, until it is stored.
    pub(crate) fn append(&self, stream: StreamId, body: &[u8]) {
        until("a primary", || {
            let primary = servers(&self.last(stream))[0];
            let result = self.peer(primary).append(stream, body);
            let again = [ErrorCode::RANGE_NOT_FOUND, ErrorCode::RANGE_ALREADY_SEALED];
            assert!(
                result.status.is_success() || again.contains(&result.status.code),
                "{}",
                result.status
            );
            result.status.is_success().then_some(())
        });
    }
}

fn placement(directory: &Path, times: ClusterTimes, listen: &str) -> Server {
    Server::start(ServerConfig {
        roles: Roles::PlacementDriver,
        cluster: times,
        listen: listen.to_owned(),
        ..config(Some(&directory.join("placement")))
    })
    .unwrap()
}

/// How many ranges a server holds that count.
pub(crate) fn held(status: &RangeServerStatus) -> i32 {
    status.open_range_cnt + status.follower_range_cnt + status.sealed_range_cnt
}

/// The servers of a range, the primary first.
pub(crate) fn servers(range: &Range) -> Vec<ServerId> {
    let mut servers: Vec<_> = range.servers.iter().collect();
    servers.sort_by_key(|server| !server.is_primary);
    let ids = servers.iter().filter_map(|server| server.range_server.as_ref());
    ids.map(|server| server.server_id).collect()
}

/// Servers are missed late, so that what a test sees is not due to silence.
pub(crate) fn patient() -> ClusterTimes {
    ClusterTimes {
        silence: Duration::from_secs(3_600),
        ..ClusterTimes::default()
    }
}

/// Ranges are renewed as soon as a server is there.
pub(crate) fn eager() -> ClusterTimes {
    ClusterTimes {
        renew_after: Duration::from_millis(200),
        ..ClusterTimes::default()
    }
}
