//! One tail over many streams of which one is written to, against a real server.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::time::Duration;

use sbp_client::{AppendOptions, Client, ClientConfig, Position, TailOptions};
use sbp_messages::Stream;
use sbp_server::{Durability, Server, ServerConfig};
use tokio::runtime::Handle;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// The server may hold an unanswered FETCH for ten minutes, so an answer that waited for the quiet streams never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_hot_one_of_a_thousand_streams_is_followed_while_the_others_wait() {
    let server = Server::start(ServerConfig {
        durability: Durability::None,
        ..ServerConfig::default()
    })
    .unwrap();
    let mut config = ClientConfig::new(server.address()).unwrap();
    config.tail_wait = Duration::from_secs(600);
    let client = Client::new(config, Handle::current());
    let wanted = (0..1_000).map(|index| Stream {
        name: format!("quiet/{index}"),
        ..Stream::default()
    });
    let created = client.create_streams(wanted.collect(), None).await.unwrap();
    let streams: Vec<_> = created.into_iter().map(|stream| stream.unwrap().stream_id).collect();
    let from: Vec<_> = streams.iter().map(|&stream| (stream, Position::Latest)).collect();
    let mut tail = client.tail(&from, TailOptions::default()).await.unwrap();

    let rounds = async {
        for round in 0..100_i64 {
            // Now and then another stream has something too, and later FETCHes ask for two.
            let others = streams.iter().step_by(97).take(usize::from(round % 10 == 0) * 5);
            let hot: Vec<_> = [streams[500]].into_iter().chain(others.copied()).collect();
            for &stream in &hot {
                client
                    .append(stream, b"x".as_slice(), &AppendOptions::default())
                    .await
                    .unwrap();
            }
            for _ in &hot {
                tail.next().await.unwrap().unwrap();
            }
        }
    };
    timeout(LIMIT, rounds).await.expect("the tail waited for quiet streams");
    client.close().await;
    server.shutdown().unwrap();
}
