//! Streams as topics of a broker: with real servers, the client of brokers in Rust, and one in Python that knows the protocol's
//! description alone.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod clients;
mod input;
mod lives;
#[path = "../../../../tests/tank/messages.rs"]
mod messages;
mod numbers;
mod raw;
mod slow;

use std::path::Path;
use std::process::{Command, Stdio};

use sbp_client::Client;
use sbp_gateway::tank::{TankConfig, TankServer};
use sbp_peers::tank::{Broker, BrokerConfig, End, ReadOptions, Start};
use sbp_tank::Message;

use messages::{TIME_MS, bundle, message};

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}

/// A broker in front of the service that `client` is one of.
fn tank(client: &Client) -> TankServer {
    TankServer::start(client, &TankConfig::new("127.0.0.1:0")).unwrap()
}

/// A client of it.
fn broker(server: &TankServer) -> Broker {
    let runtime = tokio::runtime::Handle::current();
    Broker::new(&server.address().to_string(), BrokerConfig::default(), runtime)
}

/// The client in Python.
fn python(arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command
        .args(["-m", "tests.tank.client"])
        .args(arguments)
        .current_dir(root);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The numbers and contents of all messages of a topic's partition 0, from a place on.
async fn read(broker: &Broker, topic: &str, start: Start) -> Vec<(u64, String)> {
    let options = ReadOptions {
        partitions: vec![0],
        start,
        end: End::Latest,
    };
    let mut reader = broker.read(topic, &options).await.unwrap();
    let mut all = Vec::new();
    while let Some(bundle) = reader.next().await.unwrap() {
        let take = |message: Message<'_>| {
            all.push((message.sequence, String::from_utf8(message.content.to_vec()).unwrap()));
        };
        bundle.for_each(take).unwrap();
    }
    all
}

fn numbered(messages: &[(u64, &str)]) -> Vec<(u64, String)> {
    let each = messages.iter();
    each.map(|(number, content)| (*number, (*content).to_owned())).collect()
}
