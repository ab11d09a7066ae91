//! Range servers say where they stand, and the copies of a range go to different zones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use sbp_e2e::admin::{Admin, created};
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::config;
use sbp_e2e::wait::until;
use sbp_messages::{DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, ErrorCode, Stream};
use sbp_server::{ClusterTimes, Roles, Server, ServerConfig};
use sbp_types::ServerId;

use super::cluster::servers;

fn range_server(directory: &Path, placement: &Server, zone: &str) -> Server {
    Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![placement.address().to_owned()],
        },
        zone: zone.to_owned(),
        report_interval: Duration::from_millis(100),
        ..config(Some(directory))
    })
    .unwrap()
}

/// The zone of each server that is up.
fn zones(placement: &Server) -> BTreeMap<ServerId, String> {
    let request = DescribePlacementDriverClusterRequest::default();
    let (answer, _): (DescribePlacementDriverClusterResponse, _) = Peer::connect(placement).call(&request, b"");
    let servers = answer.cluster.unwrap().range_servers.unwrap();
    let up = servers.into_iter().filter(|status| status.is_up);
    up.filter_map(|status| status.range_server)
        .map(|server| (server.server_id, server.zone))
        .collect()
}

#[test]
fn the_copies_of_a_range_go_to_different_zones() {
    let directory = tempfile::tempdir().unwrap();
    let placement = Server::start(ServerConfig {
        roles: Roles::PlacementDriver,
        cluster: ClusterTimes {
            replace_after: Duration::from_millis(500),
            ..ClusterTimes::default()
        },
        ..config(Some(&directory.path().join("placement")))
    })
    .unwrap();
    let mut running: Vec<_> = ["a", "a", "a", "b", "b", "c"]
        .iter()
        .enumerate()
        .map(|(index, zone)| range_server(&directory.path().join(index.to_string()), &placement, zone))
        .collect();
    let told = until("all servers", || {
        Some(zones(&placement)).filter(|zones| zones.len() == 6)
    });
    let count = |zone: &str| told.values().filter(|named| *named == zone).count();
    assert_eq!(["a", "b", "c"].map(count), [3, 2, 1]);
    let zones_of = |servers: &[ServerId]| servers.iter().map(|id| told[id].clone()).collect::<BTreeSet<_>>();
    let mut admin = Peer::connect(&placement);
    // More of them than would go to different zones by chance.
    let mut streams = Vec::new();
    for _ in 0..20 {
        let wanted = Stream {
            replica_nums: 3,
            ack_count: 2,
            ..Stream::default()
        };
        let (stream, range, code) = created(&mut admin, vec![wanted]).remove(0);
        assert_eq!(code, ErrorCode::NONE);
        let range = range.unwrap();
        assert_eq!(zones_of(&servers(&range)).len(), 3, "{range:?}");
        streams.push((stream.stream_id, servers(&range)));
    }
    // A server of zone b is lost: ranges go on in all three zones, on the other server of b.
    let lost = told.iter().rfind(|(_, zone)| *zone == "b").map(|(id, _)| *id).unwrap();
    let of_b = told.iter().find(|(_, zone)| *zone == "b").map(|(id, _)| *id).unwrap();
    let address = {
        let request = DescribePlacementDriverClusterRequest::default();
        let (answer, _): (DescribePlacementDriverClusterResponse, _) = admin.call(&request, b"");
        let servers = answer.cluster.unwrap().range_servers.unwrap();
        let mut named = servers.into_iter().filter_map(|status| status.range_server);
        named.find(|server| server.server_id == lost).unwrap().advertise_addr
    };
    let place = running.iter().position(|server| server.address() == address).unwrap();
    running.remove(place).shutdown().unwrap();
    let affected: Vec<_> = streams.iter().filter(|(_, servers)| servers.contains(&lost)).collect();
    assert!(!affected.is_empty(), "{streams:?}");
    for (stream, first) in affected {
        let next = until("the next range", || {
            let ranges = admin.ranges(*stream);
            let last = servers(ranges.last()?);
            (ranges.len() > 1 && !last.contains(&lost)).then_some(last)
        });
        assert_eq!(zones_of(&next).len(), 3, "{first:?}, then {next:?}");
        // The copy of what is sealed goes to b too.
        let sealed = until("a copy of the sealed range", || {
            let sealed = servers(&admin.ranges(*stream)[0]);
            (!sealed.contains(&lost)).then_some(sealed)
        });
        assert!(sealed.contains(&of_b), "{first:?}, then {sealed:?}");
    }
}
