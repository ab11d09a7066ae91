//! The file that tells who changed what, and who was refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sbp_e2e::access::{Names, client_as, hello};
use sbp_e2e::admin::{open_next, seal};
use sbp_e2e::clients::stream_ids;
use sbp_e2e::peer::Peer;
use sbp_e2e::wait::{bounded, until};
use sbp_frame::OpCode;
use sbp_messages::{ClientRole, SealKind, Stream, Token};
use serde_json::Value;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Who did what to which stream, and the outcome.
fn told(line: &Value) -> [&str; 4] {
    ["who", "operation", "name", "outcome"].map(|key| line[key].as_str().unwrap_or("-"))
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_refusals_are_written_with_names_and_never_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    // What an earlier server left: the last line is not whole, and is not continued.
    fs::write(&file, "{}\n{\"torn\":tr").unwrap();
    let names = Names::default();
    let root = names.add("root", &["admin:*", "read:*", "write:*"]);
    let billing = names.add("billing", &["read:orders/*"]);
    let server = names.serve_with(|config| config.audit = Some(file.clone()));
    let admin = client_as(&server, &root);
    let ids = stream_ids(&admin, &["orders/eu"]).await;
    let reader = client_as(&server, &billing);
    let options = sbp_client::AppendOptions::default();
    let refused = bounded(reader.append(ids[0], b"record".as_slice(), &options)).await;
    refused.unwrap_err();
    let refused = reader.delete_streams(&ids, None).await.unwrap();
    refused.into_iter().next().unwrap().unwrap_err();
    let renamed = Stream {
        stream_id: ids[0],
        name: "orders/europe".to_owned(),
        ..Stream::default()
    };
    let done = admin.update_streams(vec![renamed], None).await.unwrap();
    done.into_iter().next().unwrap().unwrap();
    let done = admin.delete_streams(&ids, None).await.unwrap();
    done.into_iter().next().unwrap().unwrap();
    let stranger = Token::new("sbp_of_nobody_here");
    let mut peer = Peer::connect(&server);
    hello(&mut peer, &stranger, ClientRole::CLIENT);
    drop((admin, reader, peer));
    tokio::task::spawn_blocking(move || server.shutdown().unwrap())
        .await
        .unwrap();

    let text = fs::read_to_string(&file).unwrap();
    for token in [&root, &billing, &stranger] {
        assert!(!text.contains(token.secret()), "a token is in {text}");
    }
    let text = text.strip_prefix("{}\n{\"torn\":tr\n").expect("what was there stays");
    fs::write(&file, text).unwrap();
    let lines = lines(&file);
    let shown: Vec<_> = lines.iter().map(told).collect();
    assert_eq!(
        shown,
        [
            ["root", "CREATE_STREAMS", "orders/eu", "ok"],
            ["billing", "APPEND", "orders/eu", "1403"],
            ["billing", "DELETE_STREAMS", "orders/eu", "1403"],
            ["root", "UPDATE_STREAMS", "orders/eu", "ok"],
            ["root", "DELETE_STREAMS", "orders/europe", "ok"],
            ["-", "HEARTBEAT", "-", "1401"],
        ]
    );
    for line in &lines[..5] {
        assert_eq!(line["stream"].as_i64(), Some(ids[0].0), "{line}");
        assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    assert_eq!(lines[3]["new_name"], "orders/europe");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_changes_are_written_of_nobody_into_a_file_for_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    let names = Names::default();
    let server = names.serve_with(|config| {
        config.access = None;
        config.audit = Some(file.clone());
    });
    let client = sbp_e2e::clients::client_with(server.address(), |_| ());
    let ids = stream_ids(&client, &["free"]).await;
    let done = client.delete_streams(&ids, None).await.unwrap();
    done.into_iter().next().unwrap().unwrap();
    drop(client);
    tokio::task::spawn_blocking(move || server.shutdown().unwrap())
        .await
        .unwrap();
    let lines = lines(&file);
    let shown: Vec<_> = lines.iter().map(told).collect();
    assert_eq!(
        shown,
        [
            ["-", "CREATE_STREAMS", "free", "ok"],
            ["-", "DELETE_STREAMS", "free", "ok"]
        ]
    );
    assert!(lines.iter().all(|line| line["who"].is_null()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_server_does_not_start_without_the_audit_file_it_should_keep() {
    let names = Names::default();
    let mut config = sbp_e2e::servers::quick_config(None, "127.0.0.1:0");
    config.audit = Some(names.path().join("no").join("audit.jsonl"));
    let said = sbp_server::Server::start(config).unwrap_err().to_string();
    assert!(said.contains("cannot keep the audit file: cannot write"), "{said}");
}

/// Lines about ranges say which, and a connection that is closed because its token is gone has a line.
#[test]
fn ranges_have_their_numbers_and_who_is_thrown_out_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    let names = Names::default();
    let root = names.add("root", &["admin:*"]);
    let gone = names.add("gone", &["read:*"]);
    let server = names.serve_with(|config| config.audit = Some(file.clone()));
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &root, ClientRole::CLIENT).status.is_success());
    let stream = peer.create("s");
    seal(&mut peer, stream, 0, SealKind::RANGE_SERVER);
    open_next(&mut peer, stream, 1, 0);
    let mut thrown_out = Peer::connect(&server);
    assert!(hello(&mut thrown_out, &gone, ClientRole::CLIENT).status.is_success());
    names.revoke("gone");
    let goodbye = thrown_out.recv();
    assert_eq!(goodbye.opcode, OpCode::GOAWAY);
    assert!(thrown_out.recv_or_end().is_none(), "closed");
    drop(peer);
    server.shutdown().unwrap();

    let lines = lines(&file);
    let ranges: Vec<_> = lines.iter().map(|line| line["range"].as_i64()).collect();
    let operations: Vec<_> = lines.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    assert_eq!(
        operations,
        [
            "CREATE_STREAMS",
            "SEAL_RANGES",
            "CREATE_RANGE",
            "NAME_REMOVED",
            "GOAWAY"
        ]
    );
    assert_eq!(ranges, [None, Some(0), Some(1), None, None], "{lines:?}");
    assert_eq!(told(&lines[4]), ["gone", "GOAWAY", "-", "1401"]);
    assert!(lines[4]["from"].as_str().unwrap().starts_with("127.0.0.1:"));
}

/// What becomes of names is written when the server has read it, and nobody knows who did it.
#[test]
fn names_that_are_added_changed_and_removed_have_lines() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    let names = Names::default();
    names.add("root", &["admin:*"]);
    let server = names.serve_with(|config| config.audit = Some(file.clone()));
    let written = |count| until("the lines are written", || (lines(&file).len() >= count).then_some(()));
    names.add("billing", &["read:orders/*"]);
    written(1);
    names.add("billing", &["read:*"]);
    written(2);
    names.revoke("billing");
    written(3);
    server.shutdown().unwrap();
    let lines = lines(&file);
    let shown: Vec<_> = lines.iter().map(told).collect();
    let expected = ["NAME_ADDED", "NAME_CHANGED", "NAME_REMOVED"].map(|what| ["-", what, "billing", "ok"]);
    assert_eq!(shown, expected);
    for line in &lines {
        assert!(line["who"].is_null() && line.get("from").is_none(), "{line}");
    }
}

/// A refusal that is no question of rights is none of the audit's.
#[test]
fn a_connection_too_many_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.jsonl");
    let names = Names::default();
    let tenant = names.add_with("tenant", &["read:*"], |entry| entry.quota.connections = Some(1));
    let server = names.serve_with(|config| config.audit = Some(file.clone()));
    let mut first = Peer::connect(&server);
    assert!(hello(&mut first, &tenant, ClientRole::CLIENT).status.is_success());
    let mut second = Peer::connect(&server);
    let status = hello(&mut second, &tenant, ClientRole::CLIENT).status;
    assert_eq!(status.code, sbp_messages::ErrorCode::TOO_MANY_REQUESTS);
    drop((first, second));
    server.shutdown().unwrap();
    assert_eq!(lines(&file), [] as [Value; 0]);
}

/// A disk that is full under the audit file keeps nobody from being served, and the server from nothing.
#[test]
fn a_full_disk_under_the_audit_keeps_nobody_waiting() {
    let names = Names::default();
    let root = names.add("root", &["admin:*"]);
    // Takes no byte, as a disk without room.
    let server = names.serve_with(|config| config.audit = Some("/dev/full".into()));
    let mut peer = Peer::connect(&server);
    assert!(hello(&mut peer, &root, ClientRole::CLIENT).status.is_success());
    for number in 0..100 {
        peer.create(&format!("s{number}"));
    }
    drop(peer);
    assert_eq!(server.stats().streams, 100);
    server.shutdown().unwrap();
}
