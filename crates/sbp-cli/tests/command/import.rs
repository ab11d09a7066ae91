//! `sbp import`.

#[path = "../../../../tests/tank/scripted.rs"]
mod scripted;

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sbp_client::{Client, ClientError};
use sbp_e2e::clients::client;
use sbp_e2e::process::Serving;
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_peers::tank::Broker;
use sbp_tank::{Message, encode_bundle};

use self::scripted::Scripted;
use super::{run, sbp, serve, text};

pub(super) fn start(server: &Serving, arguments: &[&str]) -> Child {
    let mut command = sbp(arguments);
    command.env("SBP_SERVERS", &server.address);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Produces messages whose contents are these numbers.
async fn produce(broker: &Broker, numbers: std::ops::Range<u32>) {
    let contents: Vec<_> = numbers.map(|number| number.to_string()).collect();
    let messages: Vec<_> = contents
        .iter()
        .map(|content| Message {
            sequence: 0,
            time_ms: 1_700_000_000_000,
            key: None,
            content: content.as_bytes(),
        })
        .collect();
    broker
        .produce("orders", 0, encode_bundle(&messages).unwrap())
        .await
        .unwrap();
}

/// How many records the stream has.
pub(super) async fn records(client: &Client, name: &str) -> i64 {
    let count = async || {
        let stream = client.find_stream(name, None).await?.stream_id;
        let positions = client.positions(&[stream], None).await?.pop().unwrap()?;
        Ok::<_, ClientError>(positions.latest.0)
    };
    count().await.unwrap_or(0)
}

pub(super) async fn wait_for_records(client: &Client, name: &str, least: i64) {
    let wait = async {
        while records(client, name).await < least {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    bounded_by(LIMIT, wait).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_again_and_again_repeats_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let scripted = Scripted::start(&[]);
    let broker = scripted.client();
    broker.create_topic("orders", 1).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let producing = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let mut produced = 0;
            while !is_over.load(Ordering::SeqCst) {
                produce(&broker, produced..produced + 20).await;
                produced += 20;
            }
            produced
        }
    });
    let client = client(&server.address);
    let address = scripted.address();
    let import = [
        "import",
        "tank",
        "orders",
        "--from",
        address.as_str(),
        "--timeout",
        "20s",
    ];
    for _ in 0..10 {
        let before = records(&client, "orders/0").await;
        let mut child = start(&server, &[&import[..], &["--follow"]].concat());
        wait_for_records(&client, "orders/0", before + 200).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    let produced = producing.await.unwrap();
    let told = text(&run(&server, &import[..5], ""));
    assert!(
        told.contains("orders/0") && told.contains(&produced.to_string()),
        "{told}"
    );
    let expected: String = (0..produced).map(|number| format!("{number}\n")).collect();
    assert!(text(&run(&server, &["fetch", "orders/0", "--format", "raw"], "")) == expected);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_ends_in_order_when_it_is_interrupted_and_tells_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let mut scripted = Scripted::start(&[]);
    let broker = scripted.client();
    broker.create_topic("orders", 1).await.unwrap();
    produce(&broker, 0..100).await;
    let client = client(&server.address);
    let address = scripted.address();
    let child = start(
        &server,
        &["import", "tank", "orders", "--from", &address, "--follow", "--json"],
    );
    wait_for_records(&client, "orders/0", 100).await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let told = text(&child.wait_with_output().unwrap());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["imported"], 100);
    assert_eq!(
        (&told["stream"], &told["first"], &told["last"]),
        (&"orders/0".into(), &1.into(), &100.into())
    );
    // A broker that is not there is told, and nothing is made up.
    scripted.stop();
    let failed = start(
        &server,
        &["import", "tank", "orders", "--from", &address, "--timeout", "1s"],
    );
    let failed = failed.wait_with_output().unwrap();
    assert!(!failed.status.success());
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains(&address) && said.contains("goes on behind it"), "{said}");
    client.close().await;
}
