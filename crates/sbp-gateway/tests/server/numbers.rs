//! Topics whose numbers have gaps.

use std::time::Duration;

use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_gateway::import::{ImportFrom, ImportOptions, import_tank};
use sbp_peers::tank::Start;
use sbp_record::Compression;
use sbp_tank::encode_sparse_bundle;
use tokio::task::JoinSet;

use super::{broker, bundle, message, numbered, read, tank};

#[path = "../../../../tests/tank/scripted.rs"]
#[allow(dead_code, reason = "it is not stopped here")]
mod scripted;

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_topic_is_consumed_with_the_numbers_it_had() {
    let server = servers::start(None);
    let client = client(server.address());
    let scripted = scripted::Scripted::start(&[]);
    let source = scripted.client();
    source.create_topic("t", 1).await.unwrap();
    let sparse = |messages: &[(u64, &str)]| {
        let messages: Vec<_> = messages
            .iter()
            .map(|(number, content)| message(*number, None, content.as_bytes()))
            .collect();
        encode_sparse_bundle(&messages).unwrap()
    };
    source.produce("t", 0, sparse(&[(10, "a"), (11, "b")])).await.unwrap();
    // Too far apart for one bundle.
    source.produce("t", 0, sparse(&[(20, "c")])).await.unwrap();
    source.produce("t", 0, sparse(&[(5_000_000_000, "d")])).await.unwrap();
    source.produce("t", 0, bundle(&["e"])).await.unwrap();
    let options = ImportOptions {
        topic: "t".to_owned(),
        partitions: Vec::new(),
        stream: None,
        source: None,
        follow: false,
        skip_unfit: false,
        skip_lost: false,
        compression: Compression::LZ4,
        patience: Duration::from_secs(20),
    };
    let from = ImportFrom::Broker(scripted.address());
    import_tank(&client, &from, &options, std::future::pending(), |_| ())
        .await
        .unwrap();
    let tank = tank(&client);
    let broker = broker(&tank);
    let there = read(&source, "t", Start::Earliest).await;
    for start in [0, 10, 11, 12, 20, 21, 4_000_000_000] {
        let expected: Vec<_> = there.iter().filter(|(number, _)| *number >= start).cloned().collect();
        if !expected.is_empty() {
            assert_eq!(
                read(&broker, "t", Start::At(start.max(10))).await,
                expected,
                "from {start}"
            );
        }
    }
    assert_eq!(there[..3], numbered(&[(10, "a"), (11, "b"), (20, "c")]));
    assert_eq!(
        broker.partitions("t").await.unwrap(),
        source.partitions("t").await.unwrap()
    );
    // What is produced gets the numbers behind the last one.
    let last = there.last().unwrap().0;
    assert_eq!(last, 5_000_000_001);
    broker.produce("t", 0, bundle(&["f", "g"])).await.unwrap();
    let more = numbered(&[(last + 1, "f"), (last + 2, "g")]);
    assert_eq!(read(&broker, "t", Start::At(last + 1)).await, more);
    // Two brokers in front of one service, and many clients: each number is given once, in an order that all see.
    let other = self::tank(&client);
    let others = self::broker(&other);
    let mut producing = JoinSet::new();
    for number in 0..20 {
        let broker = if number % 2 == 0 {
            broker.clone()
        } else {
            others.clone()
        };
        let content = format!("{number}");
        producing.spawn(async move { broker.produce("t", 0, bundle(&[&content, &content])).await });
    }
    for stored in producing.join_all().await {
        stored.unwrap();
    }
    let all = read(&others, "t", Start::At(last + 3)).await;
    let numbers: Vec<_> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (last + 3..last + 43).collect::<Vec<_>>());
    for pair in all.chunks(2) {
        assert_eq!(pair[0].1, pair[1].1, "a bundle stays together");
    }
    assert_eq!(read(&broker, "t", Start::At(last + 3)).await, all);
    other.close().await;
    tank.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
