//! Backups while writers run, and what is restored from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
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
            // By its address, or by its directory.
            let from = match name {
                "second" => Path::new(&server.address).to_owned(),
                _ => path("data"),
            };
            let manifest = done("backup", &from, &path(name));
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
fn an_address_is_that_of_the_server_which_listens_there_and_others_are_refused_with_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let server = serve(&path("data"), "127.0.0.1:0");
    let port = server.address.rsplit(':').next().unwrap();
    let from = |address: &str, to: &str| {
        let mut command = on_directories("backup", Path::new(address), &path(to));
        command.output().unwrap()
    };
    for (number, host) in ["127.0.0.1", "localhost"].iter().enumerate() {
        let backup = format!("backup {number}");
        text(&from(&format!("{host}:{port}"), &backup));
        verified(&path(&backup));
    }
    let beside = refused(&from(&format!("127.0.0.2:{port}"), "b"), 1);
    assert!(beside.contains("no process of this machine listens there"), "{beside}");
    // A port that is taken, and at which nobody listens.
    let connected = std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    let closed = connected.local_addr().unwrap().to_string();
    let why = refused(&from(&closed, "b"), 1);
    assert!(
        why.contains(&format!("{closed}: no process of this machine listens there")),
        "{why}"
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap().to_string();
    let foreign = refused(&from(&other, "b"), 1);
    assert!(
        foreign.contains("has no data directory open that is found here"),
        "{foreign}"
    );
    assert!(!path("b").exists());
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
        let at = bytes.windows(wanted.len()).rposition(|bytes| bytes == wanted).unwrap();
        bytes[at] ^= 1;
        fs::write(file, &bytes).unwrap();
    };
    let server = serve(&path("data"), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    for records in ["first\nsecond\n", "third\n", "sought\n", "fifth\n"] {
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
    text(&run(&server, &["append", "orders"], "sixth\n"));
    let manifest = done("backup", &path("data"), &path("backup"));
    assert_eq!(manifest["streams"][0]["damaged"], serde_json::json!([[3, 4]]));
    server.end(Signal::KILL);
    // What it knew of is no news.
    let known = sbp(&["verify", "--json"]).arg(path("data")).output().unwrap();
    assert!(refused(&known, 4).contains("all of which its server knew of"));
    let known: Value = serde_json::from_slice(&known.stdout).unwrap();
    assert_eq!(
        (&known["sound"], &known["faults"][0]["known"]),
        (&false.into(), &true.into())
    );

    done("restore", &path("backup"), &path("restored"));
    let server = serve(&path("restored"), "127.0.0.1:0");
    let fetch = |from: &str| run(&server, &["fetch", "orders", "--from", from, "--format", "raw"], "");
    assert_eq!(text(&fetch("4")), "fifth\nsixth\n");
    refused(&fetch("3"), 1);
    server.end(Signal::KILL);

    let segment = path("backup/segment-0000000000000001");
    flip(&segment, b"second");
    let other = on_directories("restore", &path("backup"), &path("other"))
        .output()
        .unwrap();
    assert!(refused(&other, 3).contains("is damaged in 1 place(s)"));
    assert!(!path("other").exists());
    let both = sbp(&["verify", "--json"]).arg(path("backup")).output().unwrap();
    assert!(refused(&both, 3).contains("is damaged in 1 place(s)"));
    let both: Value = serde_json::from_slice(&both.stdout).unwrap();
    let known: Vec<_> = both["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| &fault["known"])
        .collect();
    assert_eq!(known, [false, true]);

    // What is left of it can be had.
    let rest = on_directories("restore", &path("backup"), &path("rest"))
        .arg("--with-damage")
        .output()
        .unwrap();
    assert!(refused(&rest, 3).contains("with the damage of its backup, in 1 place(s)"));
    let told: Value = serde_json::from_slice(&rest.stdout).unwrap();
    assert_eq!(told["faults"][0]["lost"][0]["to"], 2, "{told}");
    let server = serve(&path("rest"), "127.0.0.1:0");
    let fetch = |from: &str| run(&server, &["fetch", "orders", "--from", from, "--format", "raw"], "");
    assert_eq!(text(&fetch("4")), "fifth\nsixth\n");
    refused(&fetch("0"), 1);
    refused(&fetch("3"), 1);
    server.end(Signal::KILL);
    // But not without what a server cannot start without.
    flip(&path("backup/metadata.redb"), b"orders");
    let none = on_directories("restore", &path("backup"), &path("none"))
        .arg("--with-damage")
        .output()
        .unwrap();
    assert!(refused(&none, 3).contains("metadata.redb"));
    assert!(!path("none").exists());
}

#[test]
fn a_damaged_backup_on_which_no_server_would_start_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    let segment = path("backup/segment-0000000000000001");
    let good = fs::read(&segment).unwrap();
    let restore = || {
        let mut command = on_directories("restore", &path("backup"), &path("restored"));
        command.arg("--with-damage").output().unwrap()
    };
    let mut bad_header = good.clone();
    bad_header[20] ^= 1;
    let damages = [Some(bad_header), Some(good[..good.len() - 4096].to_vec()), None];
    for damage in damages {
        match damage {
            Some(bytes) => fs::write(&segment, bytes).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let why = refused(&restore(), 3);
        assert!(why.contains("segment-0000000000000001"), "{why}");
        assert!(!path("restored").exists());
    }
    fs::write(&segment, &good).unwrap();
    text(&restore());
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

#[test]
fn a_target_may_be_an_empty_directory_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    let names = |of: &str| {
        let entries = fs::read_dir(path(of)).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let expected = names("backup");
    for name in ["empty", "mounted", "killed", "here", "behind a link"] {
        fs::create_dir(path(name)).unwrap();
    }
    done("backup", &path("data"), &path("empty"));
    assert_eq!(names("empty"), expected);
    // As a new file system, and as a backup that was killed leaves it.
    fs::create_dir(path("mounted/lost+found")).unwrap();
    fs::create_dir(path("killed/.unfinished")).unwrap();
    fs::set_permissions(path("killed/.unfinished"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(path("killed/.unfinished/segment-0000000000000001"), b"half").unwrap();
    // As one that was killed while its files moved up.
    fs::hard_link(
        path("killed/.unfinished/segment-0000000000000001"),
        path("killed/segment-0000000000000001"),
    )
    .unwrap();
    done("backup", &path("data"), &path("mounted"));
    done("backup", &path("data"), &path("killed"));
    assert_eq!(names("killed"), expected);
    symlink(path("behind a link"), path("link")).unwrap();
    done("backup", &path("data"), &path("link"));
    assert!(path("link").is_symlink());
    let here = on_directories("backup", &path("data"), Path::new("."))
        .current_dir(path("here"))
        .output()
        .unwrap();
    text(&here);
    assert_eq!(names("here"), expected);
    for name in ["empty", "mounted", "killed", "here", "link"] {
        verified(&path(name));
        done("restore", &path(name), &path(&format!("restored {name}")));
    }

    symlink(path("nowhere"), path("dangling")).unwrap();
    let dangling = on_directories("backup", &path("data"), &path("dangling"))
        .output()
        .unwrap();
    assert!(refused(&dangling, 1).contains("dangling"));
    fs::write(path("file"), b"mine").unwrap();
    let file = on_directories("backup", &path("data"), &path("file")).output().unwrap();
    assert!(refused(&file, 1).contains("Not a directory"));
    fs::write(path("mounted/mine"), b"mine").unwrap();
    let full = on_directories("backup", &path("data"), &path("mounted"))
        .output()
        .unwrap();
    assert!(refused(&full, 1).contains("is not empty"));
    assert_eq!(fs::read(path("file")).unwrap(), b"mine");
}

#[test]
fn what_others_put_where_an_unfinished_backup_lies_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    for name in ["mine", "linked", "open"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("mine/key"), b"mine").unwrap();
    symlink(path("mine"), path("linked/.unfinished")).unwrap();
    symlink(path("mine"), path(".new.unfinished")).unwrap();
    fs::create_dir(path("open/.unfinished")).unwrap();
    fs::set_permissions(path("open/.unfinished"), fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["linked", "new", "open"] {
        let output = on_directories("backup", &path("data"), &path(name)).output().unwrap();
        assert!(refused(&output, 1).contains("nothing in it is touched"), "{name}");
    }
    let left: Vec<_> = fs::read_dir(path("mine"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["key"]);
}

#[test]
fn what_is_made_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    small_backup(dir.path());
    done("restore", &path("backup"), &path("restored"));
    for name in ["backup", "restored"] {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path(name)), 0o700, "{name}");
        for entry in fs::read_dir(path(name)).unwrap() {
            let entry = entry.unwrap().path();
            assert_eq!(mode(&entry), 0o600, "{}", entry.display());
        }
    }
}

#[test]
fn another_file_system_gets_copies() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(
        device(dir.path()),
        device(other.path()),
        "this test needs two file systems"
    );
    small_backup(dir.path());
    let data = dir.path().join("data");
    let there = done("backup", &data, &other.path().join("there"));
    assert!(
        there["files"]
            .as_array()
            .unwrap()
            .iter()
            .all(|file| file["linked"] == false)
    );
    done("backup", &other.path().join("there"), &dir.path().join("back"));
    for (from, to) in [
        (other.path().join("there"), dir.path().join("r1")),
        (dir.path().join("back"), other.path().join("r2")),
    ] {
        done("restore", &from, &to);
        let server = serve(&to, "127.0.0.1:0");
        assert_eq!(
            text(&run(&server, &["fetch", "orders", "--format", "raw"], "")),
            "a\nb\nsought\n"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_backed_up_and_a_backup_that_does_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut command = sbp(&[
        "serve",
        "--log",
        "warn",
        "--listen",
        "127.0.0.1:0",
        "--retention-interval",
        "20ms",
    ]);
    let server = Serving::spawn(command.arg("--data-dir").arg(path("data")));
    let live = client(&server);
    // What is kept for a moment goes, with its segments and their checkpoints.
    text(&run(
        &server,
        &["stream", "create", "s1", "--retention-bytes", "1000000"],
        "",
    ));
    let (stop, stopped) = watch::channel(false);
    let (count, acknowledged) = watch::channel(0);
    let writer = live.writer(
        StreamId(1),
        WriterOptions {
            timeout: LIMIT,
            ..WriterOptions::default()
        },
    );
    let loading = tokio::spawn(load(writer, count, stopped));
    for round in 0..8_u64 {
        let from = *acknowledged.borrow();
        sbp_e2e::wait::until("the writer stands still", || {
            (*acknowledged.borrow() >= from + 500).then_some(())
        });
        let name = format!("backup {round}");
        let before = *acknowledged.borrow();
        let manifest = if round % 2 == 0 {
            server.pause();
            let made = done("backup", &path("data"), &path(&name));
            server.signal(Signal::CONT);
            made
        } else {
            let child = on_directories("backup", &path("data"), &path(&name))
                .arg("--copy")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(fastrand::u64(..30)));
            let id = rustix::process::Pid::from_child(&child);
            sbp_e2e::process::pause(&child);
            // Longer than files live.
            sbp_e2e::wait::until("the writer stands still", || {
                (*acknowledged.borrow() >= before + 2_000).then_some(())
            });
            rustix::process::kill_process(id, Signal::CONT).unwrap();
            serde_json::from_str(&text(&child.wait_with_output().unwrap())).unwrap()
        };
        assert!(
            ends(&manifest)[&1] >= before,
            "{name}: {before} were acknowledged before"
        );
        verified(&path(&name));
        done("restore", &path(&name), &path(&format!("restored {round}")));
        verified(&path(&format!("restored {round}")));
    }
    stop.send_replace(true);
    loading.await.unwrap();
    live.close().await;
    assert!(server.end(Signal::TERM).success());
}
