//! Backups while writers run, and what is restored from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use sbp_client::{Client, Writer, WriterOptions};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{client_with, contents};
use sbp_e2e::process::Serving;
use sbp_e2e::wait::LIMIT;
use sbp_types::{Offset, StreamId, WriterId};
use serde_json::Value;
use tokio::sync::watch;

use super::{run, sbp, serve, text};

/// Streams with a writer each, all the time.
const WRITERS: u64 = 4;

fn client(server: &Serving) -> Client {
    client_with(&server.address, |config| config.timeout = LIMIT)
}

fn on_directories(what: &str, from: &Path, to: &Path) -> Command {
    let mut command = sbp(&[what]);
    command.arg(from).arg("--to").arg(to).arg("--json");
    command
}

fn done(what: &str, from: &Path, to: &Path) -> Value {
    serde_json::from_str(&text(&on_directories(what, from, to).output().unwrap())).unwrap()
}

fn refused(output: &Output, code: i32) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    errors
}

fn verified(directory: &Path) {
    text(&sbp(&["verify"]).arg(directory).output().unwrap());
}

/// The end of each stream by a manifest.
fn ends(manifest: &Value) -> BTreeMap<i64, i64> {
    let streams = manifest["streams"].as_array().unwrap().iter();
    streams
        .map(|stream| (stream["id"].as_i64().unwrap(), stream["end"].as_i64().unwrap()))
        .collect()
}

/// Appends until it is told to stop; tells how many records are acknowledged.
async fn load(writer: Writer, acknowledged: watch::Sender<i64>, stop: watch::Receiver<bool>) {
    let mut number = 0;
    while !*stop.borrow() {
        let values = (number..number + 8).map(|number| format!("{number} {}", "x".repeat(3_000)));
        let appends: Vec<_> = values.map(|value| writer.append(records([value]))).collect();
        for append in appends {
            append.await.unwrap();
            number += 1;
            acknowledged.send_replace(number);
        }
    }
}

/// Makes, seals, trims and deletes streams until it is told to stop.
fn churn(server: &Serving, stop: &watch::Receiver<bool>) {
    for number in 0.. {
        let name = format!("churn/{number}");
        text(&run(server, &["stream", "create", &name], ""));
        text(&run(server, &["append", &name], "a\nb\nc\n"));
        text(&run(server, &["stream", "seal", &name], ""));
        text(&run(server, &["append", &name], "d\n"));
        text(&run(server, &["stream", "trim", &name, "--before", "2"], ""));
        text(&run(server, &["stream", "seal", "s1"], ""));
        if number % 2 == 0 {
            text(&run(server, &["stream", "delete", &name], ""));
        }
        if *stop.borrow() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_restored_is_equal_record_by_record_up_to_the_point_told_while_writers_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let server = serve(&path("data"), "127.0.0.1:0");
    let live = client(&server);
    let (stop, stopped) = watch::channel(false);
    let mut counts = Vec::new();
    let mut tasks = Vec::new();
    for number in 1..=WRITERS {
        text(&run(&server, &["stream", "create", &format!("s{number}")], ""));
        let options = WriterOptions {
            writer_id: Some(WriterId { high: 1, low: number }),
            timeout: LIMIT,
            ..WriterOptions::default()
        };
        let writer = live.writer(StreamId(number.cast_signed()), options);
        let (count, acknowledged) = watch::channel(0);
        tasks.push(tokio::spawn(load(writer, count, stopped.clone())));
        counts.push(acknowledged);
    }
    let mut backups = Vec::new();
    std::thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&server, &stopped));
        for name in ["first", "second", "third"] {
            // A segment more each time.
            let goes_on = |count: &watch::Receiver<i64>, from: i64| *count.borrow() >= from + 2_000;
            for count in &counts {
                let from = *count.borrow();
                sbp_e2e::wait::until("the writers stand still", || goes_on(count, from).then_some(()));
            }
            let before: Vec<i64> = counts.iter().map(|count| *count.borrow()).collect();
            let manifest = done("backup", &path("data"), &path(name));
            for (stream, acknowledged) in (1..).zip(before) {
                assert!(ends(&manifest)[&stream] >= acknowledged, "{name}: stream {stream}");
            }
            backups.push((name, manifest));
        }
        stop.send_replace(true);
        churning.join().unwrap();
    });
    for task in tasks {
        task.await.unwrap();
    }
    let mut all = BTreeMap::new();
    for stream in 1..=WRITERS.cast_signed() {
        all.insert(stream, contents(&live, StreamId(stream)).await);
    }
    live.close().await;
    server.end(Signal::KILL);
    fs::remove_dir_all(path("data")).unwrap();

    let (_, last) = backups.last().unwrap();
    let linked = last["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|file| file["linked"] == true)
        .count();
    assert!(linked > 0, "sealed segments are linked: {}", last["files"]);
    done("backup", &path("second"), &path("of a backup"));
    assert_eq!(
        ends(&done("restore", &path("of a backup"), &path("twice"))),
        ends(&backups[1].1)
    );
    for (name, manifest) in &backups {
        verified(&path(name));
        let target = path(&format!("restored {name}"));
        assert_eq!(done("restore", &path(name), &target)["streams"], manifest["streams"]);
        let server = serve(&target, "127.0.0.1:0");
        let restored = client(&server);
        let listed = restored.list_streams(None).await.unwrap();
        let listed: Vec<i64> = listed.iter().map(|stream| stream.stream_id.0).collect();
        assert_eq!(listed, ends(manifest).into_keys().collect::<Vec<_>>(), "{name}");
        for (stream, end) in ends(manifest) {
            let kept = contents(&restored, StreamId(stream)).await;
            assert_eq!(
                kept.last().map_or(end, |(offset, _)| offset.0 + 1),
                end,
                "{name}: stream {stream}"
            );
            if let Some(all) = all.get(&stream) {
                let same = kept.iter().eq(all.iter().filter(|(offset, _)| offset.0 < end));
                assert!(same, "{name}: stream {stream} differs");
            }
        }
        goes_on_exactly_once(&restored, name).await;
        restored.close().await;
        assert!(server.end(Signal::TERM).success());
        verified(&target);
    }
}

/// A writer that had stored records is known: it goes on behind them, and what it sends again is stored once.
async fn goes_on_exactly_once(restored: &Client, name: &str) {
    let stream = StreamId(2);
    let stored = contents(restored, stream).await;
    let options = WriterOptions {
        writer_id: Some(WriterId { high: 1, low: 2 }),
        first_sequence: Some(stored.len() as i64 - 3),
        ..WriterOptions::default()
    };
    let writer = restored.writer(stream, options);
    let again = stored.iter().skip(stored.len() - 3).map(|(_, value)| value.clone());
    let mut offsets = Vec::new();
    for value in again.chain(["new".to_owned()]) {
        offsets.push(writer.append(records([value])).await.map(|ack| ack.base_offset));
    }
    let last = stored.len() as i64;
    let expected: Vec<_> = (last - 3..=last).map(|offset| Some(Offset(offset))).collect();
    let offsets: Vec<_> = offsets
        .into_iter()
        .map(|offset| offset.unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect();
    assert_eq!(offsets, expected, "{name}");
    assert_eq!(contents(restored, stream).await.len() as i64, last + 1, "{name}");
}

fn small_backup(dir: &Path) {
    let server = serve(&dir.join("data"), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    text(&run(&server, &["append", "orders"], "a\nb\nsought\n"));
    text(&run(&server, &["cursor", "set", "job", "orders", "--to", "2"], ""));
    done("backup", &dir.join("data"), &dir.join("backup"));
    server.end(Signal::KILL);
}

#[test]
fn what_is_damaged_not_whole_or_in_the_way_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    let restore = |to: &str| on_directories("restore", &path("backup"), &path(to)).output().unwrap();
    let there = on_directories("backup", &path("data"), &path("backup"))
        .output()
        .unwrap();
    assert!(refused(&there, 1).contains("is not empty: name a directory that is to be made"));
    assert!(refused(&restore("data"), 1).contains("is not empty"));
    let nothing = on_directories("backup", &path("nowhere"), &path("b")).output().unwrap();
    assert!(refused(&nothing, 1).contains("no server has ever used it"));
    let plain = on_directories("restore", &path("data"), &path("r")).output().unwrap();
    assert!(refused(&plain, 1).contains("is no backup: manifest.json"));

    let segment = path("backup/segment-0000000000000001");
    let good = fs::read(&segment).unwrap();
    let mut bad = good.clone();
    let at = bad.windows(6).position(|bytes| bytes == b"sought").unwrap();
    bad[at] ^= 1;
    fs::write(&segment, &bad).unwrap();
    let why = refused(&restore("r"), 3);
    assert!(
        why.contains("is damaged in 1 place(s)") && why.contains("segment-0000000000000001"),
        "{why}"
    );
    fs::write(&segment, &good).unwrap();
    fs::rename(path("backup/manifest.json"), path("manifest.json")).unwrap();
    assert!(refused(&restore("r"), 1).contains("is no backup"));
    fs::rename(path("manifest.json"), path("backup/manifest.json")).unwrap();
    assert!(!path("r").exists() && !path("b").exists());

    text(&restore("r"));
    let server = serve(&path("r"), "127.0.0.1:0");
    assert_eq!(
        text(&run(&server, &["fetch", "orders", "--format", "raw"], "")),
        "a\nb\nsought\n"
    );
    assert!(text(&run(&server, &["cursor", "show", "job", "--json"], "")).contains('2'));
}

#[test]
fn damage_that_the_server_knew_of_is_restored_as_that_and_other_damage_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let flip = |file: &Path, wanted: &[u8]| {
        let mut bytes = fs::read(file).unwrap();
        let at = bytes.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
        bytes[at] ^= 1;
        fs::write(file, &bytes).unwrap();
    };
    let server = serve(&path("data"), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    for records in ["first\nsecond\n", "sought\n", "fourth\n"] {
        text(&run(&server, &["append", "orders"], records));
    }
    server.end(Signal::KILL);
    flip(&path("data/segment-0000000000000001"), b"sought");

    // Before the server has seen the damage it is told, and nothing is left out.
    let unseen = on_directories("backup", &path("data"), &path("unseen"))
        .output()
        .unwrap();
    let why = refused(&unseen, 1);
    assert!(
        why.contains("segment-0000000000000001") && why.contains("cannot be read at byte"),
        "{why}"
    );
    assert!(!path("unseen").exists());

    let server = serve(&path("data"), "127.0.0.1:0");
    text(&run(&server, &["append", "orders"], "fifth\n"));
    let manifest = done("backup", &path("data"), &path("backup"));
    assert_eq!(manifest["streams"][0]["damaged"], serde_json::json!([[2, 3]]));
    server.end(Signal::KILL);

    done("restore", &path("backup"), &path("restored"));
    let server = serve(&path("restored"), "127.0.0.1:0");
    let fetch = |from: &str| run(&server, &["fetch", "orders", "--from", from, "--format", "raw"], "");
    assert_eq!(text(&fetch("3")), "fourth\nfifth\n");
    refused(&fetch("2"), 1);
    server.end(Signal::KILL);

    let segment = path("backup/segment-0000000000000001");
    flip(&segment, b"second");
    let other = on_directories("restore", &path("backup"), &path("other"))
        .output()
        .unwrap();
    assert!(refused(&other, 3).contains("is damaged in 1 place(s)"));
    assert!(!path("other").exists());
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_that_calls_itself_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    for round in 0..12_u64 {
        let target = path(&format!("killed {round}"));
        let mut command = on_directories("backup", &path("data"), &target);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(fastrand::u64(..(3 + round * 15))));
        child.kill().unwrap();
        child.wait().unwrap();
        if target.exists() {
            done("restore", &target, &path(&format!("restored {round}")));
        } else {
            let refused_now = on_directories("restore", &target, &path("r")).output().unwrap();
            refused(&refused_now, 1);
            // What is left of it is in nobody's way.
            done("backup", &path("data"), &target);
        }
        assert!(!path(&format!(".killed {round}.unfinished")).exists());
    }
}
