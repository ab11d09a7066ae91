//! The id of a cluster: written once, the same wherever it is asked for, and what becomes of a directory of another cluster.

use std::time::Duration;

use bytes::Bytes;
use sbp_e2e::clients::{client_with, contents};
use sbp_e2e::etcd::Etcd;
use sbp_e2e::peer::Peer;
use sbp_e2e::process::{Serving, Setup};
use sbp_e2e::wait::{LIMIT, bounded_by, until};
use sbp_etcd::Write;
use sbp_messages::{
    ClientRole, DescribePlacementDriverClusterRequest, ErrorCode, Feature, HeartbeatRequest, HeartbeatResponse,
    RangeServer, features,
};
use sbp_server::{MetadataConfig, Monitor, Roles, Server, ServerConfig, StartError};

use super::questions::{append, create, described, leader};

/// The id that a server tells, once it knows it.
fn id(address: &str) -> String {
    let request = HeartbeatRequest {
        features: vec![Feature::new(features::CLUSTER, "")],
        ..HeartbeatRequest::default()
    };
    until("the id of the cluster", || {
        let (answer, _): (HeartbeatResponse, _) = Peer::dial(address).call(&request, b"");
        features::find(&answer.features, features::CLUSTER).map(str::to_owned)
    })
}

/// Starts so many placement drivers at once.
fn drivers(etcd: &Etcd, name: &str, directory: &std::path::Path, count: usize) -> Vec<Serving> {
    std::thread::scope(|scope| {
        let start = |index: usize| {
            let setup = Setup {
                roles: Roles::PlacementDriver,
                metadata: Some(etcd.location(name)),
                ..Setup::new(directory.join(format!("{name}{index}")))
            };
            scope.spawn(move || setup.start())
        };
        let starting: Vec<_> = (0..count).map(start).collect();
        starting.into_iter().map(|driver| driver.join().unwrap()).collect()
    })
}

fn addresses(drivers: &[Serving]) -> Vec<String> {
    drivers.iter().map(|driver| driver.address.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_that_begin_at_once_give_one_id_which_survives_them_and_that_of_another_cluster_is_another() {
    bounded_by(LIMIT, async {
        let directory = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(1);
        let mut seen = Vec::new();
        for name in ["one", "two", "three"] {
            let began = drivers(&etcd, name, directory.path(), 2);
            let ids: Vec<_> = addresses(&began).iter().map(|address| id(address)).collect();
            assert_eq!(ids[0], ids[1], "{name}");
            drop(began);
            let again = drivers(&etcd, name, directory.path(), 1);
            assert_eq!(id(&again[0].address), ids[0], "{name}");
            assert!(!seen.contains(&ids[0]), "{name}");
            seen.push(ids[0].clone());
        }
    })
    .await;
}

fn range_server(directory: &std::path::Path, placement_driver: Vec<String>) -> Server {
    watched(directory, placement_driver, &Monitor::default())
}

fn watched(directory: &std::path::Path, placement_driver: Vec<String>, monitor: &Monitor) -> Server {
    Server::start(ServerConfig {
        monitor: monitor.clone(),
        roles: Roles::RangeServer { placement_driver },
        data_dir: Some(directory.to_owned()),
        listen: "127.0.0.1:0".to_owned(),
        ..ServerConfig::default()
    })
    .unwrap()
}

/// A greeting is refused by the names of both clusters, and so is what is asked behind it.
fn are_told_apart(address: &str, greeting: &HeartbeatRequest, clusters: [&str; 2]) {
    let mut peer = Peer::dial(address);
    let (refused, _): (HeartbeatResponse, _) = peer.call(greeting, b"");
    let words = refused.status.to_string();
    assert_eq!(refused.status.code, ErrorCode::INVALID_REQUEST, "{words}");
    assert!(clusters.iter().all(|cluster| words.contains(cluster)), "{words}");
    let behind = peer.refused(&DescribePlacementDriverClusterRequest::default(), b"");
    assert_eq!(behind, ErrorCode::INVALID_REQUEST);
}

/// How many range servers the leader knows.
fn known(drivers: &[Serving]) -> usize {
    let described = described(&leader(&addresses(drivers)));
    described.range_servers.map_or(0, |servers| servers.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_moved_to_another_cluster_is_refused_by_name_and_goes_on_in_its_own() {
    bounded_by(LIMIT, async {
        let directory = tempfile::tempdir().unwrap();
        let moved = directory.path().join("moved");
        let etcd = Etcd::start(1);
        let own = drivers(&etcd, "own", directory.path(), 1);
        let other = drivers(&etcd, "other", directory.path(), 1);
        let (own_id, other_id) = (id(&own[0].address), id(&other[0].address));

        let server = range_server(&moved, addresses(&own));
        assert_eq!(id(server.address()), own_id);
        until("the range server", || (known(&own) == 1).then_some(()));
        server.shutdown().unwrap();

        // In the other cluster its number is that of another server.
        let native = range_server(&directory.path().join("native"), addresses(&other));
        until("the other range server", || (known(&other) == 1).then_some(()));
        let monitor = Monitor::default();
        let server = watched(&moved, addresses(&other), &monitor);
        let greeting = HeartbeatRequest {
            client_role: ClientRole::RANGE_SERVER,
            range_server: Some(RangeServer {
                server_id: sbp_types::ServerId(1),
                advertise_addr: server.address().to_owned(),
                starts: 100,
                ..RangeServer::default()
            }),
            features: vec![Feature::new(features::CLUSTER, own_id.clone())],
            ..HeartbeatRequest::default()
        };
        are_told_apart(&other[0].address, &greeting, [&own_id, &other_id]);
        // Nor does a range server do what the placement driver of another cluster says.
        let order = HeartbeatRequest {
            client_role: ClientRole::PLACEMENT_DRIVER,
            features: vec![Feature::new(features::CLUSTER, other_id.clone())],
            ..HeartbeatRequest::default()
        };
        are_told_apart(server.address(), &order, [&own_id, &other_id]);
        let path = moved.display().to_string();
        until("its own words", || {
            let words = monitor.readiness().problems.into_iter().map(|problem| problem.text);
            let words = words.collect::<String>();
            [&path, &own_id, &other_id]
                .iter()
                .all(|part| words.contains(&***part))
                .then_some(())
        });
        server.shutdown().unwrap();
        let described = described(&other[0].address).range_servers.unwrap();
        let addresses_there: Vec<_> = described
            .iter()
            .map(|known| known.range_server.as_ref().unwrap().advertise_addr.clone())
            .collect();
        assert_eq!(addresses_there, [native.address()]);

        let server = range_server(&moved, addresses(&own));
        assert_eq!(id(server.address()), own_id);
        until("the range server", || {
            let described = self::described(&own[0].address).range_servers?;
            described
                .iter()
                .any(|known| known.range_server.as_ref().unwrap().advertise_addr == server.address())
                .then_some(())
        });
        server.shutdown().unwrap();
        native.shutdown().unwrap();
    })
    .await;
}

fn both(directory: &std::path::Path, location: &str) -> Result<Server, StartError> {
    Server::start(ServerConfig {
        metadata: Some(MetadataConfig {
            location: location.parse().unwrap(),
            tls: None,
        }),
        data_dir: Some(directory.to_owned()),
        listen: "127.0.0.1:0".to_owned(),
        ..ServerConfig::default()
    })
}

fn assert_refused(started: Result<Server, StartError>, parts: &[&str]) {
    match started {
        Err(error @ StartError::OtherCluster { .. }) => {
            let words = error.to_string();
            assert!(parts.iter().all(|part| words.contains(part)), "{words}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_a_cluster_does_not_start_on_the_metadata_of_none_or_of_another_one() {
    bounded_by(LIMIT, async {
        let directory = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(1);
        let (own, other) = (etcd.location("own"), etcd.location("other"));
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let server = both(&first, &own).unwrap();
        let own_id = id(server.address());
        server.shutdown().unwrap();
        let path = first.display().to_string();
        // It begins no cluster there: what is placed in its own would be lost to it.
        for _ in 0..2 {
            assert_refused(both(&first, &other), &[&path, &own_id, &other, "of no cluster"]);
        }
        let server = both(&second, &other).unwrap();
        let other_id = id(server.address());
        assert_ne!(other_id, own_id);
        server.shutdown().unwrap();
        assert_refused(both(&first, &other), &[&path, &own_id, &other, &other_id]);
        assert_refused(both(&second, &own), &[&own_id, &own, &other_id]);
        let server = both(&first, &own).unwrap();
        assert_eq!(id(server.address()), own_id);
        server.shutdown().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_from_before_the_id_is_taken_once_the_id_is_put_into_it_by_hand() {
    bounded_by(LIMIT, async {
        let directory = tempfile::tempdir().unwrap();
        let (etcd, store) = crate::started(1).await;
        let own = etcd.location("own");
        let here = directory.path().join("here");
        let server = both(&here, &own).unwrap();
        let own_id = id(server.address());
        let client = client_with(server.address(), |_| {});
        let kept = create(&client, "kept", 1, 1).await;
        append(&client, kept, "a record".to_owned()).await.unwrap();
        client.close().await;
        server.shutdown().unwrap();
        let key = Bytes::from_static(b"/sbp/own/id");
        crate::write(&store, vec![Write::Delete(key.clone())]).await.unwrap();
        assert_refused(both(&here, &own), &[&own_id, &own, "of no cluster"]);
        // What `etcdctl put /sbp/own/id ID` writes, with the id that the server has named.
        let value = Bytes::from(own_id.clone());
        crate::write(&store, vec![Write::Put(key, value, None)]).await.unwrap();
        let server = both(&here, &own).unwrap();
        assert_eq!(id(server.address()), own_id);
        let client = client_with(server.address(), |_| {});
        append(&client, kept, "another one".to_owned()).await.unwrap();
        assert_eq!(contents(&client, kept).await.len(), 2);
        client.close().await;
        server.shutdown().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_started_before_etcd_answers_does_not_lead_another_cluster_when_it_does() {
    bounded_by(LIMIT, async {
        let directory = tempfile::tempdir().unwrap();
        let mut etcd = Etcd::start(1);
        let (own, other) = (etcd.location("own"), etcd.location("other"));
        let first = directory.path().join("first");
        let server = both(&first, &own).unwrap();
        let own_id = id(server.address());
        server.shutdown().unwrap();
        etcd.kill(0);
        let server = both(&first, &other).unwrap();
        etcd.start_member(0);
        let impatient = client_with(server.address(), |config| config.timeout = Duration::from_secs(1));
        loop {
            let error = impatient.allocate_id("127.0.0.1:1", None).await.unwrap_err();
            let words = error.to_string();
            if [&own_id, &other, "of no cluster"]
                .iter()
                .all(|part| words.contains(&**part))
            {
                break;
            }
        }
        impatient.close().await;
        server.shutdown().unwrap();
        let server = both(&first, &own).unwrap();
        assert_eq!(id(server.address()), own_id);
        server.shutdown().unwrap();
    })
    .await;
}
