//! Streams as segments of a Pravega store: with real servers, the client of Pravega in Rust, and a peer that knows the protocol's
//! frames alone.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod appends;
mod events;
mod gateways;
mod input;
mod lives;
mod raw;
mod reads;
mod tables;
mod through;

use sbp_client::Client;
use sbp_gateway::pravega::{PravegaConfig, PravegaServer};
use sbp_peers::pravega::{End, NewEvent, Pravega, PravegaConfig as PeerConfig, Reader, Start, StreamName};

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}

/// A segment store in front of the service that `client` is one of.
fn pravega(client: &Client) -> PravegaServer {
    PravegaServer::start(client, &PravegaConfig::new("127.0.0.1:0")).unwrap()
}

/// A client of it.
fn peer(server: &PravegaServer) -> Pravega {
    let runtime = tokio::runtime::Handle::current();
    Pravega::direct(&server.address().to_string(), PeerConfig::default(), runtime)
}

fn event(content: impl Into<String>, key: Option<&str>) -> NewEvent {
    let content: String = content.into();
    NewEvent {
        content: content.into(),
        key: key.map(str::to_owned),
    }
}

fn stream(name: &str) -> StreamName {
    StreamName::parse(name).unwrap()
}

/// All events that a stream has, by segment in its order.
async fn read_all(peer: &Pravega, stream: &StreamName) -> Vec<(i64, String)> {
    let mut reader: Reader = peer.read(stream, Start::Earliest, End::Latest).await.unwrap();
    let mut all = Vec::new();
    while let Some(read) = reader.next_batch().await.unwrap() {
        for record in read.batch.records().unwrap() {
            let content = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            all.push((read.segment.id.number(), content));
        }
    }
    all
}
