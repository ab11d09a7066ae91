//! Servers over real sockets, asked by a client that says exactly what a test tells it to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod access_apart;
mod access_table;
mod admin;
mod audit;
mod chunks;
mod cluster;
mod cluster_id;
mod idempotence;
mod jwks;
mod jwt;
mod key_server;
mod older_metadata;
mod peers;
mod places;
mod quotas;
mod ranges;
mod refuse;
mod replicas;
mod replication;
mod replication_alone;
mod replication_burials;
mod replication_copies;
mod replication_drain;
mod replication_let_go;
mod replication_mend;
mod replication_upkeep;
mod retention;
mod roles;
mod scrub;
mod serve;
mod slow_disk;
mod slow_peer;
mod specification;
mod start;
mod strangers;
mod streaming;
mod zones;

/// Not a test: the process that tests start.
mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}
