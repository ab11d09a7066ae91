//! Imports of which the one or the other side is killed.

use sbp_client::Client;
use sbp_e2e::clients::client;
use sbp_e2e::process::{Lasting, Setup};
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_gateway::import::{ImportFrom, import_tank};
use sbp_peers::tank::Broker;
use sbp_server::ForgetWriters;
use tokio::sync::mpsc;

use super::scripted::Scripted;
use super::{bundle, import, imported, options, values};

/// Produces messages with these numbers as their contents, a hundred in a bundle.
async fn produce(broker: &Broker, numbers: std::ops::Range<u32>) {
    let contents: Vec<_> = numbers.map(|number| number.to_string()).collect();
    for part in contents.chunks(100) {
        let part: Vec<_> = part.iter().map(String::as_str).collect();
        broker.produce("t", 0, bundle(&part)).await.unwrap();
    }
}

async fn assert_whole(client: &Client, count: u32) {
    let expected: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    assert!(
        values(client, "t/0").await == expected,
        "not every message once and in order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_outlives_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Lasting::start(Setup::new(dir.path()));
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    broker.create_topic("t", 1).await.unwrap();
    produce(&broker, 0..10_000).await;
    let client = client(server.address());
    let (progress, mut seen) = mpsc::unbounded_channel();
    let (importer, from) = (client.clone(), ImportFrom::Broker(scripted.address()));
    let run = tokio::spawn(async move {
        let mut all = options("t");
        all.follow = true;
        let told = |now: sbp_gateway::import::Progress| progress.send(now.done).unwrap();
        import_tank(&importer, &from, &all, std::future::pending(), told).await
    });
    // Killed amid the import, several times.
    for round in 1..=3 {
        while seen.recv().await.unwrap() < round * 3_000 {}
        server.kill();
        server.restart();
    }
    produce(&broker, 10_000..10_100).await;
    bounded_by(LIMIT, async { while seen.recv().await.unwrap() < 10_100 {} }).await;
    // The task is ended amid whatever it does, and another run brings the rest.
    run.abort();
    produce(&broker, 10_100..10_200).await;
    let from = ImportFrom::Broker(scripted.address());
    import(&client, &from, &options("t")).await.unwrap();
    assert_whole(&client, 10_200).await;
    assert_eq!(imported(&import(&client, &from, &options("t")).await.unwrap()), [0]);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_has_forgotten_the_writer_is_given_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Lasting::start(Setup {
        forget: ForgetWriters::AtStart,
        ..Setup::new(dir.path())
    });
    let scripted = Scripted::start(&[]);
    let (client, broker) = (client(server.address()), scripted.client());
    let from = ImportFrom::Broker(scripted.address());
    broker.create_topic("t", 1).await.unwrap();
    let mut all = 0;
    for more in [100, 0, 50, 1] {
        produce(&broker, all..all + more).await;
        all += more;
        assert_eq!(
            imported(&import(&client, &from, &options("t")).await.unwrap()),
            [u64::from(more)]
        );
        server.kill();
        server.restart();
    }
    assert_whole(&client, all).await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_that_is_started_last_goes_on_alone() {
    let server = sbp_e2e::servers::start(None);
    let scripted = Scripted::start(&[]);
    let (client, broker) = (client(server.address()), scripted.client());
    broker.create_topic("t", 1).await.unwrap();
    produce(&broker, 0..100).await;
    let (progress, mut seen) = mpsc::unbounded_channel();
    let (importer, from) = (client.clone(), ImportFrom::Broker(scripted.address()));
    let first = tokio::spawn(async move {
        let mut all = options("t");
        all.follow = true;
        let told = |now: sbp_gateway::import::Progress| progress.send(now.done).unwrap();
        import_tank(&importer, &from, &all, std::future::pending(), told).await
    });
    bounded_by(LIMIT, async { while seen.recv().await.unwrap() < 100 {} }).await;
    let from = ImportFrom::Broker(scripted.address());
    import(&client, &from, &options("t")).await.unwrap();
    produce(&broker, 100..200).await;
    assert_eq!(imported(&import(&client, &from, &options("t")).await.unwrap()), [100]);
    let error = bounded_by(LIMIT, first).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("t"), "{error}");
    assert_whole(&client, 200).await;
    client.close().await;
    server.shutdown().unwrap();
}
