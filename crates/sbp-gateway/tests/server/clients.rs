//! Clients of brokers, as they are.

use std::time::Duration;

use sbp_client::{AppendOptions, Records};
use sbp_e2e::clients::{client, contents, stream_ids};
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_gateway::tank::{TankConfig, TankError, TankServer};
use sbp_peers::tank::{End, ReadOptions, Start, TankErrorKind};
use sbp_record::RecordsBuilder;
use sbp_tank::{Message, PartitionBounds, encode_bundle};
use sbp_types::Offset;
use tokio::task::JoinSet;

use super::{TIME_MS, broker, bundle, message, numbered, python, read, tank};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_every_version_is_answered_all_that_it_asks() {
    let server = servers::start(None);
    let client = client(server.address());
    let tank = tank(&client);
    let port = tank.address().port().to_string();
    for version in ["0", "2", "3"] {
        let mut command = python(&[&port, version]);
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = bounded(run).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "version {version}: {said}");
    }
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_produced_is_a_stream_and_a_stream_is_consumed() {
    let server = servers::start(None);
    let client = client(server.address());
    let tank = tank(&client);
    let broker = broker(&tank);
    broker.create_topic("2026", 1).await.unwrap();
    let keyed = encode_bundle(&[message(0, Some(b"k"), b"a"), message(0, None, b"b")]).unwrap();
    broker.produce("2026", 0, keyed).await.unwrap();
    let id = client.find_stream("_2026/0", None).await.unwrap().stream_id;
    let values = contents(&client, id).await;
    assert_eq!(
        values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    // A stream without a partition in its name is its topic's first.
    let ids = stream_ids(&client, &["plain", "not.a.topic"]).await;
    let mut records = RecordsBuilder::new();
    let long = [7; 300];
    records
        .push(Some(b"x"), Some(b"key"), Some(TIME_MS as i64 * 1_000), &[])
        .unwrap();
    records
        .push(None, Some(&long), Some(TIME_MS as i64 * 1_000), &[("h", Some(b"v"))])
        .unwrap();
    client
        .append(ids[0], Records::from(records), &AppendOptions::default())
        .await
        .unwrap();
    let options = ReadOptions {
        partitions: Vec::new(),
        start: Start::Earliest,
        end: End::Latest,
    };
    let mut reader = broker.read("plain", &options).await.unwrap();
    let mut all = Vec::new();
    while let Some(bundle) = bounded(reader.next()).await.unwrap() {
        let take = |message: Message<'_>| {
            let key = message.key.map(<[u8]>::to_vec);
            all.push((message.sequence, message.time_ms, key, message.content.to_vec()));
        };
        bundle.for_each(take).unwrap();
    }
    // TANK has no null, and no room for the long key.
    let expected = [
        (1, TIME_MS, Some(b"key".to_vec()), b"x".to_vec()),
        (2, TIME_MS, None, Vec::new()),
    ];
    assert_eq!(all, expected);
    let topics = broker.topics().await.unwrap();
    assert_eq!(
        topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(),
        ["2026", "plain"]
    );
    // What was trimmed is told.
    client.trim_streams(&[(id, Offset(1))], None).await.unwrap();
    let bounds = PartitionBounds {
        first: 2,
        high_water: 2,
    };
    assert_eq!(broker.partitions("2026").await.unwrap(), [Some(bounds)]);
    assert_eq!(read(&broker, "2026", Start::Earliest).await, numbered(&[(2, "b")]));
    let mut gone = broker
        .read(
            "2026",
            &ReadOptions {
                start: Start::At(1),
                ..options
            },
        )
        .await
        .unwrap();
    let error = bounded(gone.next()).await.unwrap_err();
    assert_eq!(error.kind(), TankErrorKind::OutOfRange, "{error}");
    broker.close().await;
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_wait_and_each_is_told_of_its_own() {
    let server = servers::start(None);
    let client = client(server.address());
    let tank = tank(&client);
    let producer = broker(&tank);
    producer.create_topic("t", 40).await.unwrap();
    let mut waiting = JoinSet::new();
    let (ready, mut readies) = tokio::sync::mpsc::unbounded_channel();
    for partition in 0..40_u16 {
        let (reader, ready) = (broker(&tank), ready.clone());
        waiting.spawn(async move {
            let options = ReadOptions {
                partitions: vec![partition],
                start: Start::Latest,
                end: End::Never,
            };
            let mut reader = reader.read("t", &options).await.unwrap();
            ready.send(()).unwrap();
            let mut got = Vec::new();
            while got.len() < 3 {
                let bundle = reader.next().await.unwrap().unwrap();
                bundle.for_each(|message| got.push(message.content.to_vec())).unwrap();
            }
            (partition, got)
        });
    }
    for _ in 0..40 {
        bounded(readies.recv()).await.unwrap();
    }
    for round in 0..3 {
        for partition in (0..40_u16).rev() {
            let content = format!("{partition} {round}");
            producer.produce("t", partition, bundle(&[&content])).await.unwrap();
        }
    }
    while let Some(got) = bounded(waiting.join_next()).await {
        let (partition, got) = got.unwrap();
        let expected: Vec<_> = (0..3)
            .map(|round| format!("{partition} {round}").into_bytes())
            .collect();
        assert_eq!(got, expected);
    }
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_connect_and_only_from_here() {
    let server = servers::start(None);
    let client = client(server.address());
    let elsewhere = TankConfig::new("0.0.0.0:0");
    let error = TankServer::start(&client, &elsewhere).unwrap_err();
    assert!(matches!(error, TankError::Insecure { .. }), "{error}");
    let config = TankConfig {
        max_connections: 2,
        ..TankConfig::new("127.0.0.1:0")
    };
    let tank = TankServer::start(&client, &config).unwrap();
    let (one, two, three) = (broker(&tank), broker(&tank), broker(&tank));
    one.topics().await.unwrap();
    two.topics().await.unwrap();
    let error = bounded(three.topics()).await.unwrap_err();
    assert_eq!(error.kind(), TankErrorKind::Lost, "{error}");
    one.close().await;
    // Its place is free when the connection is over.
    bounded(async {
        while three.topics().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
