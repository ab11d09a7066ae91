//! Streams that are deleted while a server that has a copy of them is away.

use std::time::Duration;

use sbp_e2e::admin::delete;
use sbp_e2e::servers::config;
use sbp_e2e::wait::until;
use sbp_messages::ErrorCode;
use sbp_server::{ClusterTimes, Roles, Server, ServerConfig};
use sbp_types::{ServerId, StreamId};

use super::cluster::Cluster;

/// Starts a server of the cluster again, in this process.
fn here(cluster: &Cluster, server: ServerId) -> Server {
    Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![cluster.placement_address().to_owned()],
        },
        report_interval: Duration::from_millis(100),
        ..config(Some(&cluster.directory_of(server)))
    })
    .unwrap()
}

fn is_deleted(cluster: &Cluster, server: ServerId, stream: StreamId) {
    until("the deletion", || {
        let answer = cluster.peer(server).append(stream, b"x").status.code;
        (answer == ErrorCode::NOT_FOUND).then_some(())
    });
}

#[test]
fn a_server_that_was_away_removes_what_was_deleted_meanwhile_also_on_the_word_of_another_leader() {
    let mut cluster = Cluster::start(3, ClusterTimes::default());
    let (stream, on) = cluster.create(3, 2, 3);
    let (kept, _) = cluster.create(3, 2, 3);
    cluster.append(stream, b"deleted");
    cluster.append(kept, b"kept");
    let away = on[2];
    cluster.kill(away);
    delete(&mut cluster.admin(), stream);
    for server in &on[..2] {
        is_deleted(&cluster, *server, stream);
    }
    // Whoever leads from now on was not there.
    cluster.restart_placement();
    {
        let back = here(&cluster, away);
        // It is at another address than before, which whoever leads takes when it has listened for 3 s.
        // What a server only keeps, because the placement driver knows nothing of it, counts here.
        until("one stream less", || (back.stats().streams == 1).then_some(()));
        back.shutdown().unwrap();
    }
    // Nor is it there after another start, and what was not deleted is.
    let again = here(&cluster, away);
    assert_eq!(again.stats().streams, 1);
}
