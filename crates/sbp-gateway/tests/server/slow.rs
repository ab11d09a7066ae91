//! Clients that send too slowly, or say nothing.

use std::time::{Duration, Instant};

use sbp_client::{AppendOptions, Client, Records};
use sbp_e2e::clients::{client, stream_ids};
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_gateway::tank::{TankConfig, TankServer};
use sbp_record::RecordsBuilder;
use sbp_tank::ServerConfig;
use sbp_wire::{Pace, Patience};

use super::raw::{Raw, frame, name};

const MOMENT: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);

/// A broker that gives each part of a request a moment.
fn hurrying(client: &Client) -> TankServer {
    let each = ServerConfig {
        pace: Pace {
            head_timeout: MOMENT,
            ..Pace::default()
        },
        ..ServerConfig::default()
    };
    TankServer::start_with(client, &TankConfig::new("127.0.0.1:0"), each).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dribbled_or_cut_ends_its_connection_and_no_other() {
    let server = servers::start(None);
    let client = client(server.address());
    let tank = hurrying(&client);
    let mut other = Raw::connect(tank.address()).await;
    other.is_served().await;
    let request = frame(7, &[0; 4_000]);
    // Bytes that come at once, and those that follow one by one.
    for at_once in [0, 1, 5, 6, 3_000] {
        let mut slow = Raw::connect(tank.address()).await;
        let begun = Instant::now();
        let (head, rest) = request.split_at(at_once);
        slow.send(head).await;
        // The head itself would take half a minute.
        let pause = if at_once < 5 { 5 * SECOND } else { MOMENT / 10 };
        let what = format!("{at_once} bytes at once, then one by one");
        slow.is_closed_amid(rest, pause, &what).await;
        assert!(begun.elapsed() >= MOMENT, "{what}");
        // And then nothing.
        let mut cut = Raw::connect(tank.address()).await;
        let begun = Instant::now();
        cut.send(&request[..at_once.max(1)]).await;
        let what = format!("{at_once} bytes, then nothing");
        cut.is_closed(&what).await;
        assert!(begun.elapsed() >= MOMENT, "{what}");
        other.is_served().await;
    }
    // Who has sent whole requests waits as long as it likes for the next one to begin.
    tokio::time::sleep(2 * MOMENT).await;
    other.is_served().await;
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

/// A request for messages of a topic's partition 0 from the first on, which waits a minute for one.
fn consume(topic: &str) -> Vec<u8> {
    let mut payload = [&2_u16.to_le_bytes()[..], &9_u32.to_le_bytes(), &name("raw")].concat();
    payload.extend(60_000_u64.to_le_bytes());
    payload.extend(1_u32.to_le_bytes());
    payload.extend([&[1][..], &name(topic), &[1, 0, 0]].concat());
    payload.extend(1_u64.to_le_bytes());
    payload.extend(1_000_u32.to_le_bytes());
    frame(2, &payload)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_has_a_place_for_a_while_and_who_waits_for_messages_for_as_long_as_that() {
    let server = servers::start(None);
    let client = client(server.address());
    let ids = stream_ids(&client, &["t/0"]).await;
    let each = ServerConfig {
        patience: Patience {
            interval: SECOND,
            silent_intervals: 5,
            ..Patience::default()
        },
        ..ServerConfig::default()
    };
    let config = TankConfig {
        max_connections_per_address: 33,
        ..TankConfig::new("127.0.0.1:0")
    };
    let tank = TankServer::start_with(&client, &config, each).unwrap();
    let mut waiting = Raw::connect(tank.address()).await;
    waiting.send(&consume("t")).await;
    let begun = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(Raw::connect(tank.address()).await);
    }
    assert!(Raw::try_connect(tank.address()).await.is_none(), "one too many");
    for each in &mut silent {
        each.is_closed("silent").await;
    }
    assert!(begun.elapsed() >= 5 * SECOND);
    drop(silent);
    // Their places are free when the connections are over.
    let again = bounded(async {
        loop {
            if let Some(raw) = Raw::try_connect(tank.address()).await {
                break raw;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    again.await.is_served().await;
    let mut records = RecordsBuilder::new();
    records.push(Some(b"x"), None, Some(0), &[]).unwrap();
    client
        .append(ids[0], Records::from(records), &AppendOptions::default())
        .await
        .unwrap();
    let (message, answer) = waiting.answer().await;
    assert_eq!((message, &answer[4..8]), (2, &[9, 0, 0, 0][..]));
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
