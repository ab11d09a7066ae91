//! Data directories, checked while no server uses them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

use super::{run, sbp, serve, text};

fn verify(directory: &Path, arguments: &[&str]) -> Output {
    sbp(&["verify"]).arg(directory).args(arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All files of a directory, with their bytes.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_flipped_byte_is_named_with_file_stream_and_offsets_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    text(&run(
        &server,
        &["append", "orders", "--batch", "2"],
        "a\nb\nc\nd\nsought\nf\n",
    ));
    let used = verify(dir.path(), &[]);
    assert_eq!(used.status.code(), Some(1));
    assert!(
        errors(&used).contains("is in use by another server: stop that one"),
        "{}",
        errors(&used)
    );
    // Killed: nothing of what that leaves is damage.
    server.end(Signal::KILL);

    let before = contents(dir.path());
    let sound = verify(dir.path(), &["--json"]);
    assert_eq!(sound.status.code(), Some(0), "{}", errors(&sound));
    let found = report(&sound);
    assert_eq!(
        (&found["sound"], &found["streams"], &found["batches"]),
        (&true.into(), &1.into(), &3.into())
    );
    assert!(text(&verify(dir.path(), &[])).contains("1 streams"));

    let (segment, mut bytes) = before[..]
        .iter()
        .find(|(path, _)| path.ends_with("segment-0000000000000001"))
        .unwrap()
        .clone();
    let at = bytes.windows(6).position(|bytes| bytes == b"sought").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let damaged = verify(dir.path(), &["--json"]);
    assert_eq!(damaged.status.code(), Some(3), "{}", errors(&damaged));
    assert!(
        errors(&damaged).contains("is damaged in 1 place(s)"),
        "{}",
        errors(&damaged)
    );
    let found = report(&damaged);
    let fault = &found["faults"][0];
    assert_eq!(fault["file"], segment.to_str().unwrap());
    let place = fault["from_byte"].as_u64().unwrap()..fault["to_byte"].as_u64().unwrap();
    assert!(place.contains(&(at as u64)), "{fault}");
    let lost = serde_json::json!([{"stream": 1, "name": "orders", "range": 0, "from": 4, "to": 6}]);
    assert_eq!(fault["lost"], lost);
    let said = String::from_utf8(verify(dir.path(), &[]).stdout).unwrap();
    assert!(
        said.contains("lost: stream 1 (orders), range 0, offsets 4 to 6"),
        "{said}"
    );

    bytes[at] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    assert!(before == contents(dir.path()), "a check has changed a file");
    let (metadata, mut bytes) = before
        .into_iter()
        .find(|(path, _)| path.ends_with("metadata.redb"))
        .unwrap();
    let at = bytes.windows(6).rposition(|bytes| bytes == b"orders").unwrap();
    bytes[at] ^= 1;
    fs::write(&metadata, &bytes).unwrap();
    let damaged = verify(dir.path(), &["--json"]);
    assert_eq!(damaged.status.code(), Some(3), "{}", errors(&damaged));
    assert_eq!(report(&damaged)["faults"][0]["file"], metadata.to_str().unwrap());
}

/// Of a batch whose head is damaged those behind it, and the metadata, tell what is missing. Where none can tell, nothing is
/// made up.
#[test]
fn a_damaged_head_of_a_batch_costs_what_others_tell_and_perhaps_more() {
    const GROUP: usize = 4_096;
    // Behind the head of its group.
    const HEAD: usize = 70;
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    // A group each.
    for records in ["first\nb\n", "second\nd\n", "third\nf\n"] {
        text(&run(&server, &["append", "orders"], records));
    }
    server.end(Signal::KILL);
    let segment = dir.path().join("segment-0000000000000001");
    let bytes = fs::read(&segment).unwrap();
    let lost =
        |from: i64, to: i64| serde_json::json!([{"stream": 1, "name": "orders", "range": 0, "from": from, "to": to}]);
    for (record, lost) in [
        ("first", lost(0, 2)),
        ("second", lost(2, 4)),
        ("third", serde_json::json!([])),
    ] {
        let at = bytes.windows(record.len()).position(|found| found == record.as_bytes());
        let group = at.unwrap() / GROUP * GROUP;
        let mut damaged = bytes.clone();
        damaged[group + HEAD] ^= 1;
        fs::write(&segment, &damaged).unwrap();
        let found = verify(dir.path(), &["--json"]);
        assert_eq!(found.status.code(), Some(3), "{record}: {}", errors(&found));
        let fault = &report(&found)["faults"][0];
        assert_eq!(fault["file"], segment.to_str().unwrap(), "{record}");
        assert_eq!(fault["from_byte"], group, "{record}: {fault}");
        assert_eq!(
            (&fault["lost"], &fault["more_lost"]),
            (&lost, &true.into()),
            "{record}: {fault}"
        );
        let said = String::from_utf8(verify(dir.path(), &[]).stdout).unwrap();
        assert!(said.contains("more records may be lost; nothing tells which"), "{said}");
    }
}

#[test]
fn a_flipped_byte_of_the_superblock_is_no_fault_of_the_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "127.0.0.1:0");
    text(&run(&server, &["stream", "create", "orders"], ""));
    assert!(server.end(Signal::TERM).success());
    let superblock = dir.path().join("superblock");
    let sound = fs::read(&superblock).unwrap();
    let mut named = 0;
    for at in 0..sound.len().min(64) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&superblock, &bytes).unwrap();
        let damaged = verify(dir.path(), &["--json"]);
        let text = format!("{}{}", String::from_utf8_lossy(&damaged.stdout), errors(&damaged));
        assert!(
            !damaged.status.success() && text.contains("superblock"),
            "byte {at}: {text}"
        );
        assert!(!text.contains("metadata.redb"), "byte {at}: {text}");
        named += 1;
    }
    assert!(named > 0);
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = verify(dir.path(), &[]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        errors(&empty).contains("this is no data directory"),
        "{}",
        errors(&empty)
    );
    let missing = verify(&dir.path().join("missing"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(errors(&missing).contains("missing"), "{}", errors(&missing));
    assert!(contents(dir.path()).is_empty());
}
