//! One tail over many streams of which one is written to, against a real server.

use std::time::Duration;

use sbp_client::{AppendOptions, Position, TailOptions};
use sbp_e2e::clients::{client_with, stream_ids};
use sbp_e2e::servers::quick_anywhere;
use sbp_e2e::wait::{LIMIT, bounded_by};

/// The server may hold an unanswered FETCH for ten minutes, so an answer that waited for the quiet streams never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_hot_one_of_a_thousand_streams_is_followed_while_the_others_wait() {
    let server = quick_anywhere();
    let client = client_with(server.address(), |config| config.tail_wait = Duration::from_secs(600));
    let names: Vec<_> = (0..1_000).map(|index| format!("quiet/{index}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let streams = stream_ids(&client, &names).await;
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
    // Over, if the tail waits for quiet streams.
    bounded_by(LIMIT, rounds).await;
    client.close().await;
    server.shutdown().unwrap();
}
