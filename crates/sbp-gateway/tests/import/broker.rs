//! From a running broker.

use sbp_client::AppendOptions;
use sbp_e2e::clients::{client, stream_ids};
use sbp_e2e::servers;
use sbp_gateway::import::{ImportError, ImportFrom, import_tank};
use sbp_peers::tank::Broker;
use sbp_tank::encode_bundle;
use tokio::sync::oneshot;

use super::scripted::Scripted;
use super::{
    TIME_MS, bundle, import, imported, message, numbered, options, property, sparse, stored, values, values_once,
};

async fn produce(broker: &Broker, topic: &str, partition: u16, contents: &[&str]) {
    broker.produce(topic, partition, bundle(contents)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_becomes_a_record() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    broker.create_topic("orders", 1).await.unwrap();
    let keyed = encode_bundle(&[message(0, Some(b"k"), b"first")]).unwrap();
    broker.produce("orders", 0, keyed).await.unwrap();
    let report = import(&client, &ImportFrom::Broker(scripted.address()), &options("orders"))
        .await
        .unwrap();
    assert_eq!(imported(&report), [1]);
    let all = stored(&client, "orders/0").await;
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].value.as_str(), all[0].key.as_deref()),
        ("first", Some(&b"k"[..]))
    );
    assert_eq!((all[0].time_us, all[0].number), (TIME_MS as i64 * 1_000, None));
    assert_eq!(property(&client, "orders/0", "tank.first").await.as_deref(), Some("1"));
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_brings_what_is_new() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    broker.create_topic("2026", 3).await.unwrap();
    produce(&broker, "2026", 0, &["a", "b"]).await;
    produce(&broker, "2026", 2, &["x"]).await;
    let report = import(&client, &from, &options("2026")).await.unwrap();
    assert_eq!(imported(&report), [2, 0, 1]);
    let report = import(&client, &from, &options("2026")).await.unwrap();
    assert_eq!(imported(&report), [0, 0, 0]);
    assert_eq!(report.partitions[0].before, 2);
    produce(&broker, "2026", 0, &["c"]).await;
    produce(&broker, "2026", 1, &["m"]).await;
    // A partition alone, and then the rest.
    let mut one = options("2026");
    one.partitions = vec![1];
    assert_eq!(imported(&import(&client, &from, &one).await.unwrap()), [1]);
    assert_eq!(
        imported(&import(&client, &from, &options("2026")).await.unwrap()),
        [1, 0, 0]
    );
    assert_eq!(values(&client, "_2026/0").await, ["a", "b", "c"]);
    assert_eq!(values(&client, "_2026/1").await, ["m"]);
    assert_eq!(values(&client, "_2026/2").await, ["x"]);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_with_gaps_are_kept_in_headers() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    broker.create_topic("t", 1).await.unwrap();
    broker
        .produce("t", 0, sparse(&[(10, "a"), (11, "b"), (15, "c")]))
        .await
        .unwrap();
    produce(&broker, "t", 0, &["d"]).await;
    let report = import(&client, &from, &options("t")).await.unwrap();
    let partition = &report.partitions[0];
    assert_eq!((partition.imported, partition.left_out), (4, 3));
    assert_eq!((partition.first, partition.last), (Some(10), Some(16)));
    // The run that goes on knows the number of the last.
    broker.produce("t", 0, sparse(&[(20, "e")])).await.unwrap();
    let report = import(&client, &from, &options("t")).await.unwrap();
    assert_eq!((imported(&report), report.partitions[0].left_out), (vec![1], 3));
    let text = |number, value: &str| (number, value.to_owned());
    let expected = [
        text(None, "a"),
        text(None, "b"),
        text(Some(15), "c"),
        text(Some(16), "d"),
        text(Some(20), "e"),
    ];
    assert_eq!(numbered(&client, "t/0").await, expected);
    assert_eq!(property(&client, "t/0", "tank.first").await.as_deref(), Some("10"));
    assert_eq!(property(&client, "t/0", "tank.sparse").await.as_deref(), Some("2"));
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_stream_can_hold_ends_the_import_or_is_left_out() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    broker.create_topic("t", 1).await.unwrap();
    let large = "x".repeat(17 << 20);
    produce(&broker, "t", 0, &["a", &large, "b"]).await;
    let error = import(&client, &from, &options("t")).await.unwrap_err();
    assert!(matches!(&error, ImportError::Unfit { sequence: 2, .. }), "{error}");
    assert!(error.to_string().contains("--skip-unfit"), "{error}");
    assert_eq!(values(&client, "t/0").await, ["a"]);
    let mut skipping = options("t");
    skipping.skip_unfit = true;
    let report = import(&client, &from, &skipping).await.unwrap();
    assert_eq!((imported(&report), report.partitions[0].unfit), (vec![1], 1));
    let expected = [(None, "a".to_owned()), (Some(3), "b".to_owned())];
    assert_eq!(numbered(&client, "t/0").await, expected);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_records_of_others_is_not_imported_into() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    broker.create_topic("t", 1).await.unwrap();
    produce(&broker, "t", 0, &["a"]).await;
    let ids = stream_ids(&client, &["t/0"]).await;
    client
        .append(ids[0], b"mine".as_slice(), &AppendOptions::default())
        .await
        .unwrap();
    let error = import(&client, &from, &options("t")).await.unwrap_err();
    assert!(matches!(&error, ImportError::Foreign { offset: 0, .. }), "{error}");
    // Another stream does. Later records of others are seen too.
    let mut elsewhere = options("t");
    elsewhere.stream = Some("copy".to_owned());
    assert_eq!(imported(&import(&client, &from, &elsewhere).await.unwrap()), [1]);
    let copy = client.find_stream("copy", None).await.unwrap().stream_id;
    client
        .append(copy, b"mine".as_slice(), &AppendOptions::default())
        .await
        .unwrap();
    let error = import(&client, &from, &elsewhere).await.unwrap_err();
    assert!(matches!(&error, ImportError::Foreign { offset: 1, .. }), "{error}");
    // So is another source.
    elsewhere.source = Some("another".to_owned());
    elsewhere.stream = Some("copy2".to_owned());
    assert_eq!(imported(&import(&client, &from, &elsewhere).await.unwrap()), [1]);
    elsewhere.source = None;
    assert!(import(&client, &from, &elsewhere).await.is_err());
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_not_is_told() {
    let (server, scripted) = (servers::start(None), Scripted::start(&[]));
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    let error = import(&client, &from, &options("none")).await.unwrap_err().to_string();
    assert!(error.contains("no such topic"), "{error}");
    broker.create_topic("t", 2).await.unwrap();
    let mut asked = options("t");
    asked.partitions = vec![7];
    let error = import(&client, &from, &asked).await.unwrap_err().to_string();
    assert!(error.contains("has no partition 7"), "{error}");
    asked.partitions.clear();
    asked.stream = Some("one".to_owned());
    let error = import(&client, &from, &asked).await.unwrap_err().to_string();
    assert!(error.contains("--partition"), "{error}");
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_followed_while_the_broker_comes_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("topics").display().to_string();
    let (server, mut scripted) = (servers::start(None), Scripted::start(&["--keep", &kept]));
    let client = client(server.address());
    let from = ImportFrom::Broker(scripted.address());
    let broker = scripted.client();
    broker.create_topic("t", 1).await.unwrap();
    produce(&broker, "t", 0, &["a"]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let (follower, mut following) = (client.clone(), options("t"));
    following.follow = true;
    let import = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        import_tank(&follower, &from, &following, stop, |_| ()).await
    });
    let wait = async |count| values_once(&client, "t/0", count).await;
    assert_eq!(wait(1).await, ["a"]);
    produce(&broker, "t", 0, &["b"]).await;
    assert_eq!(wait(2).await, ["a", "b"]);
    scripted.stop();
    let again = Scripted::start(&["--keep", &kept, "--port", &scripted.port]);
    produce(&again.client(), "t", 0, &["c"]).await;
    assert_eq!(wait(3).await, ["a", "b", "c"]);
    stop.send(()).unwrap();
    let report = sbp_e2e::wait::bounded(import).await.unwrap().unwrap();
    assert_eq!(imported(&report), [3]);
    client.close().await;
    server.shutdown().unwrap();
}
