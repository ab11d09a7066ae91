//! Three placement drivers that share an etcd, and three range servers, each a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sbp_client::Client;
use sbp_e2e::clients::{client, client_with, contents};
use sbp_e2e::etcd::Etcd;
use sbp_e2e::peer::Peer;
use sbp_e2e::process::{Serving, Setup};
use sbp_e2e::wait::{LIMIT, bounded_by, until};
use sbp_messages::{
    ClientRole, CreateStreamsRequest, DeleteStreamsRequest, DeleteStreamsResponse, ErrorCode, HeartbeatRequest,
    HeartbeatResponse, SealKind, SystemErrorResponse,
};
use sbp_server::Roles;
use sbp_types::Offset;

use super::questions::{append, create, described, leader, names, stream};

/// How soon a stream can be made again after the leader has ended or stopped answering.
const TAKEN_OVER: Duration = Duration::from_secs(5);

pub(crate) struct Cluster {
    drivers: Vec<Option<Serving>>,
    /// Where the drivers are.
    pub(crate) addresses: Vec<String>,
    pub(crate) servers: Vec<Serving>,
    location: String,
    directory: tempfile::TempDir,
}

impl Cluster {
    fn start(etcd: &Etcd, name: &str, servers: usize) -> Self {
        let mut cluster = Self {
            drivers: Vec::new(),
            addresses: Vec::new(),
            servers: Vec::new(),
            location: etcd.location(name),
            directory: tempfile::tempdir().unwrap(),
        };
        for index in 0..3 {
            let driver = cluster.driver(index, "127.0.0.1:0").start();
            cluster.addresses.push(driver.address.clone());
            cluster.drivers.push(Some(driver));
        }
        for index in 0..servers {
            let setup = Setup {
                roles: Roles::RangeServer {
                    placement_driver: cluster.addresses.clone(),
                },
                ..Setup::new(cluster.directory.path().join(format!("server{index}")))
            };
            cluster.servers.push(setup.start());
        }
        cluster
    }

    fn driver(&self, index: usize, listen: &str) -> Setup {
        Setup {
            listen: listen.to_owned(),
            roles: Roles::PlacementDriver,
            metadata: Some(self.location.clone()),
            ..Setup::new(self.directory.path().join(format!("driver{index}")))
        }
    }

    fn process(&self, index: usize) -> &Serving {
        self.drivers[index].as_ref().expect("it runs")
    }

    pub(crate) fn kill(&mut self, index: usize) {
        let driver = self.drivers[index].take().expect("it runs");
        driver.end(Signal::KILL);
    }

    pub(crate) fn start_again(&mut self, index: usize) {
        self.drivers[index] = Some(self.driver(index, &self.addresses[index]).start());
    }

    /// The addresses of all drivers but one.
    fn but(&self, index: usize) -> Vec<String> {
        let mut addresses = self.addresses.clone();
        addresses.remove(index);
        addresses
    }

    /// Which driver leads, as it says itself.
    pub(crate) fn leader(&self, among: &[String]) -> usize {
        let leader = leader(among);
        self.addresses.iter().position(|known| *known == leader).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        client(&self.addresses.join(","))
    }
}

pub(crate) fn started(name: &str, servers: usize) -> (Etcd, Cluster) {
    let etcd = Etcd::start(1);
    let cluster = Cluster::start(&etcd, name, servers);
    (etcd, cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_driver_is_asked_the_leader_does_it() {
    bounded_by(LIMIT, async {
        let (_etcd, cluster) = started("any", 3);
        let leader = cluster.leader(&cluster.addresses);
        for (index, address) in cluster.addresses.iter().enumerate() {
            let seen = until("all drivers", || {
                let seen = described(address);
                (seen.nodes.len() == 3).then_some(seen)
            });
            assert_eq!(seen.leader().unwrap().advertise_addr, cluster.addresses[leader]);
            assert_eq!(
                seen.range_servers.is_some(),
                index == leader,
                "the leader alone knows all"
            );

            let client = client(address);
            let id = create(&client, &format!("stream_{index}"), 3, 2).await;
            for number in 0..10 {
                append(&client, id, format!("record {number}")).await.unwrap();
            }
            let range = sbp_e2e::admin::range_id(id, 0);
            let sealed = client
                .seal_ranges(&[range], SealKind::PLACEMENT_DRIVER, None)
                .await
                .unwrap()
                .remove(0)
                .unwrap();
            assert_eq!(sealed.start_offset, Offset(10), "it is the next one");
            append(&client, id, "behind".to_owned()).await.unwrap();
            client
                .trim_streams(&[(id, Offset(4))], None)
                .await
                .unwrap()
                .remove(0)
                .unwrap();
            let left = contents(&client, id).await;
            assert_eq!((left.len(), left[0].0), (7, Offset(4)));
            assert_eq!(left[6].1, "behind");
            client.delete_streams(&[id], None).await.unwrap().remove(0).unwrap();
            assert_eq!(names(&client).await, Vec::<String>::new());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_is_killed_another_one_goes_on_with_all_that_was_decided() {
    bounded_by(LIMIT, async {
        let (_etcd, mut cluster) = started("killed", 3);
        let client = cluster.client();
        let first = create(&client, "first", 3, 2).await;
        let mut expected = vec!["first".to_owned()];
        let mut slowest = Duration::ZERO;
        for round in 0..3 {
            let leader = cluster.leader(&cluster.addresses);
            // All that is answered is decided, up to the last moment.
            for number in 0..20 {
                let name = format!("made_{round}_{number:02}");
                create(&client, &name, 1, 1).await;
                expected.push(name);
            }
            cluster.kill(leader);
            let began = Instant::now();
            append(&client, first, format!("record {round}")).await.unwrap();
            let name = format!("made_{round}_after");
            create(&client, &name, 3, 2).await;
            slowest = slowest.max(began.elapsed());
            expected.push(name);
            expected.sort();
            assert_eq!(names(&client).await, expected);
            cluster.start_again(leader);
        }
        assert!(slowest < TAKEN_OVER, "{slowest:?}");
        #[allow(clippy::print_stderr, reason = "a figure for people")]
        {
            eprintln!("a stream could be made {slowest:?} after the leader was killed, at the latest");
        }
        assert_eq!(contents(&client, first).await.len(), 3);
    })
    .await;
}

/// How a driver refuses to make a stream, and what it says.
fn refused(peer: &mut Peer, call: sbp_frame::CallId) -> (ErrorCode, String) {
    let frame = peer.recv();
    assert_eq!(frame.call_id, call);
    assert!(
        frame.flags.contains(sbp_frame::Flags::SYSTEM_ERROR),
        "it makes a stream"
    );
    let status = SystemErrorResponse::decode(&frame.header).unwrap().status;
    (status.code, status.message)
}

fn creation(name: &str) -> CreateStreamsRequest {
    CreateStreamsRequest {
        streams: vec![stream(name, 1, 1)],
        ..CreateStreamsRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_for_longer_than_its_lease_writes_nothing_and_follows() {
    bounded_by(LIMIT, async {
        let (_etcd, cluster) = started("stopped", 3);
        let old = cluster.leader(&cluster.addresses);
        create(&cluster.client(), "before", 3, 2).await;
        let mut known = Peer::dial(&*cluster.addresses[old]);
        known.create("of_the_old");
        cluster.process(old).pause();
        let began = Instant::now();
        // It is in the socket when the driver goes on.
        let late = known.send(&creation("late"), b"");
        let others = cluster.but(old);
        let new = cluster.leader(&others);
        // Not the third one, which may still name the old leader.
        let client = client(&cluster.addresses[new]);
        create(&client, "of_the_new", 3, 2).await;
        let took = began.elapsed();
        assert!(took < TAKEN_OVER, "{took:?}");
        #[allow(clippy::print_stderr, reason = "a figure for people")]
        {
            eprintln!("a stream could be made {took:?} after the leader was stopped");
        }

        cluster.process(old).signal(Signal::CONT);
        let (code, message) = refused(&mut known, late);
        assert!(
            [ErrorCode::PD_NOT_LEADER, ErrorCode::PD_NO_AVAILABLE_RS].contains(&code),
            "{code}: {message}"
        );
        until("the old leader to follow", || {
            let seen = described(&cluster.addresses[old]);
            let leader = seen.leader()?;
            (leader.advertise_addr == cluster.addresses[new]).then_some(())
        });
        let expected = ["before", "of_the_new", "of_the_old"];
        assert_eq!(names(&client).await, expected);
        // The leader is named to who asks the old one.
        assert_eq!(names(&self::client(&cluster.addresses[old])).await, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_server_does_nothing_that_a_deposed_leader_orders() {
    bounded_by(LIMIT, async {
        let (_etcd, cluster) = started("orders", 1);
        let leader = cluster.leader(&cluster.addresses);
        let term = described(&cluster.addresses[leader]).term;
        assert!(term > 1, "{term}");
        let client = cluster.client();
        let kept = create(&client, "kept", 1, 1).await;
        append(&client, kept, "record".to_owned()).await.unwrap();
        let mut deposed = Peer::dial(&*cluster.servers[0].address);
        let greeting = HeartbeatRequest {
            client_role: ClientRole::PLACEMENT_DRIVER,
            ..HeartbeatRequest::default()
        };
        let (greeted, _): (HeartbeatResponse, _) = deposed.call(&greeting, b"");
        assert!(greeted.status.is_success());
        let mut order = |term| {
            let request = DeleteStreamsRequest {
                streams: vec![sbp_e2e::admin::numbered(kept)],
                term,
                ..DeleteStreamsRequest::default()
            };
            let (answer, _): (DeleteStreamsResponse, _) = deposed.call(&request, b"");
            answer.delete_responses[0].status.clone()
        };
        let status = order(term - 1);
        assert_eq!(status.code, ErrorCode::PD_NOT_LEADER, "{status}");
        assert!(status.message.contains(&format!("term {term}")), "{status}");
        assert!(status.message.contains("older copy"), "{status}");
        assert_eq!(contents(&client, kept).await.len(), 1);
        assert!(order(term).is_success());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_etcd_does_not_answer_appends_go_on_and_metadata_wait() {
    bounded_by(LIMIT, async {
        let (mut etcd, cluster) = started("away", 3);
        let client = cluster.client();
        let orders = create(&client, "orders", 3, 2).await;
        append(&client, orders, "record 0".to_owned()).await.unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let appended = Arc::new(AtomicI64::new(1));
        let appending = tokio::spawn({
            let (client, done, appended) = (client.clone(), Arc::clone(&done), Arc::clone(&appended));
            async move {
                let mut slowest = Duration::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let number = appended.load(Ordering::Relaxed);
                    append(&client, orders, format!("record {number}")).await.unwrap();
                    slowest = slowest.max(began.elapsed());
                    appended.fetch_add(1, Ordering::Relaxed);
                }
                slowest
            }
        });
        for kills in [false, true] {
            let leader = cluster.leader(&cluster.addresses);
            let mut begun = Peer::dial(&*cluster.addresses[leader]);
            if kills {
                etcd.kill(0);
            } else {
                etcd.pause(0);
            }
            // What becomes of it is known afterwards.
            let call = begun.send(&creation(&format!("in_doubt_{kills}")), b"");
            for address in &cluster.addresses {
                until("the refusal", || {
                    let mut peer = Peer::dial(&**address);
                    let call = peer.send(&creation("none"), b"");
                    let (code, message) = refused(&mut peer, call);
                    (code == ErrorCode::PD_NO_AVAILABLE_RS && message.contains("metadata store unreachable"))
                        .then_some(())
                });
            }
            let (code, message) = refused(&mut begun, call);
            // It is in doubt, unless another one was under way and it did not begin.
            let codes = [ErrorCode::PD_INTERNAL_SERVER_ERROR, ErrorCode::PD_NOT_LEADER];
            assert!(codes.contains(&code), "{code}: {message}");
            let impatient = client_with(&cluster.addresses.join(","), |config| {
                config.timeout = Duration::from_secs(1);
            });
            let error = impatient
                .create_streams(vec![stream("none", 1, 1)], None)
                .await
                .unwrap_err();
            assert!(
                error.is_retriable() && error.to_string().contains("metadata store unreachable"),
                "{error}"
            );

            let before = appended.load(Ordering::Relaxed);
            until("further appends", || {
                (appended.load(Ordering::Relaxed) > before + 10).then_some(())
            });
            if kills {
                etcd.start_member(0);
            } else {
                etcd.go_on(0);
            }
            create(&client, &format!("after_{kills}"), 3, 2).await;
        }
        done.store(true, Ordering::Relaxed);
        let slowest = appending.await.unwrap();
        assert!(slowest < Duration::from_secs(2), "an append took {slowest:?}");
        let records = contents(&client, orders).await;
        let expected: Vec<_> = (0..records.len()).map(|number| format!("record {number}")).collect();
        let found: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
        assert_eq!(found, expected);
        let names = names(&client).await;
        let certain: Vec<_> = names.iter().filter(|name| !name.starts_with("in_doubt")).collect();
        assert_eq!(certain, ["after_false", "after_true", "orders"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_other_names_in_the_same_etcd_are_apart() {
    bounded_by(LIMIT, async {
        let etcd = Etcd::start(1);
        let [first, second] = ["one", "one.more"].map(|name| Cluster::start(&etcd, name, 1));
        let clients = [first.client(), second.client()];
        for (client, name) in clients.iter().zip(["of_the_first", "of_the_second"]) {
            create(client, name, 1, 1).await;
        }
        assert_eq!(names(&clients[0]).await, ["of_the_first"]);
        assert_eq!(names(&clients[1]).await, ["of_the_second"]);
        for cluster in [&first, &second] {
            until("all drivers", || {
                let nodes = described(&cluster.addresses[0]).nodes;
                let mut seen: Vec<_> = nodes.into_iter().map(|node| node.advertise_addr).collect();
                let mut expected = cluster.addresses.clone();
                seen.sort();
                expected.sort();
                (seen == expected).then_some(())
            });
            until("the members of the store", || {
                let store = described(&cluster.addresses[0]).metadata_store?;
                (store.len() == 1 && store.iter().all(|member| member.is_up)).then_some(())
            });
        }
    })
    .await;
}
