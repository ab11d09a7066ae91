//! Several gateways in front of one service, and a service whose streams have several copies.

use sbp_client::Client;
use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_gateway::pravega::PravegaServer;
use sbp_messages::{ErrorCode, KeyValue, Stream};
use sbp_server::{Roles, Server, ServerConfig};

use super::pravega;
use super::raw::{NEW, Raw, append, event, id, long, text};

const SEGMENT: &str = "sc/st/0.#epoch.0";
/// Types of frames: an append is stored, and the segment is sealed.
const APPENDED: i32 = 7;
const IS_SEALED: i32 = 51;

impl Raw {
    async fn attribute(&mut self, name: u128) -> i64 {
        let payload = [&long(6)[..], &text(SEGMENT), &id(name), &text("")].concat();
        let mut answer = self.ask(34, &payload).await;
        assert_eq!((answer.kind, answer.long()), (35, 6));
        answer.long()
    }

    async fn set_attribute(&mut self, name: u128, new: i64, expected: i64) -> bool {
        let values = [long(new), long(expected)].concat();
        let payload = [&long(6)[..], &text(SEGMENT), &id(name), &values, &text("")].concat();
        let mut answer = self.ask(36, &payload).await;
        assert_eq!((answer.kind, answer.long()), (37, 6));
        answer.bool()
    }

    /// Raises an attribute so often; each time from what it is then.
    async fn count(&mut self, name: u128, times: i64) {
        for _ in 0..times {
            loop {
                let now = self.attribute(name).await;
                let next = if now == NEW { 1 } else { now + 1 };
                if self.set_attribute(name, next, now).await {
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_of_an_attribute_is_lost_between_two_gateways() {
    const TIMES: i64 = 25;
    let server = servers::start(None);
    let client = client(server.address());
    let gateways = [pravega(&client), pravega(&client)];
    let mut raw = Raw::connect(gateways[0].address()).await;
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.set_up(9, SEGMENT).await, NEW);
    raw.append(9, &event(&[0; 100]), 1, 1).await;
    // All raise one, each raises one of its own, and meanwhile a property changes.
    let counting = (0..4_usize).map(|place| {
        let address = gateways[place % 2].address();
        tokio::spawn(async move {
            let mut raw = Raw::connect(address).await;
            raw.count(1, TIMES).await;
            raw.count(10 + place as u128, TIMES).await;
        })
    });
    let counting: Vec<_> = counting.collect();
    for place in 1..50 {
        assert_eq!(raw.truncate(SEGMENT, place).await, 39);
    }
    for counting in counting {
        bounded(counting).await.unwrap();
    }
    for gateway in &gateways {
        let mut raw = Raw::connect(gateway.address()).await;
        assert_eq!(raw.attribute(1).await, 4 * TIMES);
        for name in 10..14 {
            assert_eq!(raw.attribute(name).await, TIMES);
        }
        assert_eq!(raw.info(SEGMENT).await, (false, 108, 49));
    }
    // A segment that is made anew has none.
    let held = client.find_stream("sc/st/0", None).await.unwrap();
    let attributes = format!("_sbp/pravega/attributes/{}", held.stream_id);
    assert!(client.find_stream(&attributes, None).await.is_ok());
    assert_eq!(raw.about(30, SEGMENT).await.kind, 31);
    assert!(client.find_stream(&attributes, None).await.is_err());
    assert_eq!(raw.create(SEGMENT).await, 21);
    assert_eq!(raw.attribute(1).await, NEW);
    for gateway in gateways {
        gateway.close().await;
    }
    client.close().await;
    server.shutdown().unwrap();
}

/// A placement driver and three range servers.
struct Cluster {
    _directory: tempfile::TempDir,
    placement: Server,
    servers: Vec<Server>,
}

impl Cluster {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let placement = Server::start(ServerConfig {
            roles: Roles::PlacementDriver,
            ..servers::config(Some(&directory.path().join("placement")))
        })
        .unwrap();
        let range_server = |number: i32| {
            Server::start(ServerConfig {
                roles: Roles::RangeServer {
                    placement_driver: vec![placement.address().to_owned()],
                },
                ..servers::config(Some(&directory.path().join(number.to_string())))
            })
            .unwrap()
        };
        Self {
            servers: (1..=3).map(range_server).collect(),
            _directory: directory,
            placement,
        }
    }

    fn stop(self) {
        for server in self.servers {
            server.shutdown().unwrap();
        }
        self.placement.shutdown().unwrap();
    }
}

/// A segment with three copies of each record.
async fn with_copies(client: &Client) {
    let wanted = Stream {
        name: "sc/st/0".to_owned(),
        replica_nums: 3,
        ack_count: 2,
        properties: Some(vec![KeyValue {
            key: "pravega".to_owned(),
            value: "segment".to_owned(),
        }]),
        ..Stream::default()
    };
    bounded(async {
        loop {
            let made = client
                .create_streams(vec![wanted.clone()], None)
                .await
                .unwrap()
                .remove(0);
            match made {
                Ok(_) => return,
                // Not all of them have told that they are there.
                Err(error) => assert_eq!(error.code(), ErrorCode::PD_NO_AVAILABLE_RS, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Appends events of one byte until the segment is sealed: how many are stored.
async fn append_until_sealed(server: &PravegaServer, writer: u128) -> tokio::task::JoinHandle<i64> {
    let mut raw = Raw::connect(server.address()).await;
    assert_eq!(raw.set_up(writer, SEGMENT).await, NEW);
    tokio::spawn(async move {
        for number in 1.. {
            raw.send(&append(writer, &event(b"x"), 1, number)).await;
            let answer = raw.answer().await;
            if answer.kind == IS_SEALED {
                return number - 1;
            }
            assert_eq!(answer.kind, APPENDED);
        }
        unreachable!("it goes on until it is sealed")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_with_several_copies_is_sealed_for_all_gateways() {
    let cluster = Cluster::start();
    let client = client(cluster.placement.address());
    with_copies(&client).await;
    let gateways = [pravega(&client), pravega(&client)];
    let mut raw = Raw::connect(gateways[0].address()).await;
    // One that has said nothing for a while, and does not know.
    let mut idle = Raw::connect(gateways[1].address()).await;
    assert_eq!(idle.set_up(7, SEGMENT).await, NEW);
    idle.append(7, &event(b"x"), 1, 1).await;
    let appending = [
        append_until_sealed(&gateways[1], 1).await,
        append_until_sealed(&gateways[1], 2).await,
    ];
    while raw.info(SEGMENT).await.1 < 200 {}
    assert_eq!(raw.about(28, SEGMENT).await.kind, 29);
    let (is_sealed, length, _) = raw.info(SEGMENT).await;
    assert!(is_sealed);
    let mut stored = 1;
    for appending in appending {
        stored += bounded(appending).await.unwrap();
    }
    assert_eq!(length, 9 * stored, "what was stored before is all that there is");
    idle.send(&append(7, &event(b"y"), 1, 2)).await;
    assert_eq!(idle.answer().await.kind, IS_SEALED);
    // A gateway that comes later knows it at once.
    let later = pravega(&client);
    let mut late = Raw::connect(later.address()).await;
    assert_eq!(late.info(SEGMENT).await, (true, length, 0));
    let bytes = late.read_all(SEGMENT, 0).await;
    assert_eq!(bytes, event(b"x").repeat(usize::try_from(stored).unwrap()));
    let (_, is_end, rest) = late.read(SEGMENT, length, 100).await;
    assert!(is_end && rest.is_empty());
    assert_eq!(late.about(28, SEGMENT).await.kind, 29, "again");
    assert_eq!(late.info(SEGMENT).await, (true, length, 0));
    later.close().await;
    for gateway in gateways {
        gateway.close().await;
    }
    client.close().await;
    cluster.stop();
}
