//! `sbp import pravega`.

#[path = "../../../../tests/pravega/scripted.rs"]
mod scripted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use sbp_e2e::clients::client;
use sbp_peers::pravega::{NewEvent, Pravega, StreamName, Writer};

use self::scripted::Scripted;
use super::import::{records, start, wait_for_records};
use super::{run, serve, text};

const STREAM: &str = "shop/orders/0";

/// A stream of one segment, and its writer.
async fn writer(pravega: &Pravega) -> Writer {
    let stream = StreamName::parse("shop/orders").unwrap();
    pravega.create_stream(&stream, 1).await.unwrap();
    pravega.writer(&stream).await.unwrap()
}

/// Writes events whose contents are these numbers.
async fn write(writer: &Writer, numbers: std::ops::Range<u32>) {
    let events = numbers.map(|number| NewEvent {
        content: Bytes::from(number.to_string()),
        key: None,
    });
    writer.append(events.collect()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_again_and_again_repeats_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let scripted = Scripted::start();
    let writer = writer(&scripted.client()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let mut written = 0;
            while !is_over.load(Ordering::SeqCst) {
                write(&writer, written..written + 20).await;
                written += 20;
            }
            written
        }
    });
    let client = client(&server.address);
    let store = scripted.address.as_str();
    let import = ["import", "pravega", "shop/orders", "--from-segment-store", store];
    for _ in 0..8 {
        let before = records(&client, STREAM).await;
        let mut child = start(&server, &[&import[..], &["--follow", "--timeout", "20s"]].concat());
        wait_for_records(&client, STREAM, before + 200).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    let written = writing.await.unwrap();
    let told = text(&run(&server, &import, ""));
    for part in ["SEGMENT", "0.#epoch.0", STREAM, &written.to_string()] {
        assert!(told.contains(part), "{told}");
    }
    let expected: String = (0..written).map(|number| format!("{number}\n")).collect();
    assert!(text(&run(&server, &["fetch", STREAM, "--format", "raw"], "")) == expected);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_interrupted_tells_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    let mut scripted = Scripted::start();
    let writer = writer(&scripted.client()).await;
    write(&writer, 0..100).await;
    let client = client(&server.address);
    let store = scripted.address.clone();
    let import = ["import", "pravega", "shop/orders", "--from-segment-store", &store];
    let child = start(&server, &[&import[..], &["--follow", "--json"]].concat());
    wait_for_records(&client, STREAM, 100).await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let told = text(&child.wait_with_output().unwrap());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["imported"], &told["stream"]), (&100.into(), &STREAM.into()));
    // Ten events of 9 bytes, and 89 of 10 in front of the last.
    assert_eq!((&told["first"], &told["last"]), (&0.into(), &(10 * 9 + 89 * 10).into()));
    // A server that is not there is told, and nothing is made up.
    scripted.stop();
    let failed = start(&server, &[&import[..], &["--timeout", "1s"]].concat());
    let failed = failed.wait_with_output().unwrap();
    assert!(!failed.status.success());
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains(&store) && said.contains("goes on behind it"), "{said}");
    client.close().await;
}
