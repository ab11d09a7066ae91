//! Streams as verbs of Seastar RPC, with real servers.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use sbp_client::Client;
use sbp_e2e::clients::{client, contents, stream_ids};
use sbp_e2e::servers;
use sbp_e2e::wait::bounded;
use sbp_gateway::seastar::{SeastarConfig, SeastarServer};
use sbp_peers::seastar::{Rpc, RpcConfig, SeastarError, SeastarErrorKind};

const LIMIT: Duration = Duration::from_secs(30);
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// A key and a value.
type Row = (Option<Vec<u8>>, Vec<u8>);

fn start(client: &Client) -> (SeastarServer, Rpc) {
    let server = SeastarServer::start(client, &SeastarConfig::new("127.0.0.1:0")).unwrap();
    let runtime = tokio::runtime::Handle::current();
    let rpc = Rpc::new(&server.address().to_string(), RpcConfig::default(), runtime);
    (server, rpc)
}

async fn call(rpc: &Rpc, verb: u64, arguments: &[u8]) -> Result<Bytes, SeastarError> {
    let arguments = Bytes::copy_from_slice(arguments);
    bounded(rpc.call(verb, arguments, Instant::now() + LIMIT)).await
}

fn name(name: &str) -> Vec<u8> {
    [&u32::try_from(name.len()).unwrap().to_le_bytes()[..], name.as_bytes()].concat()
}

fn records(rows: &[(Option<&[u8]>, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32_le(u32::try_from(rows.len()).unwrap());
    for (key, value) in rows {
        bytes.put_i64_le(1_700_000_000_000);
        match key {
            None => bytes.put_u32_le(u32::MAX),
            Some(key) => {
                bytes.put_u32_le(u32::try_from(key.len()).unwrap());
                bytes.put_slice(key);
            }
        }
        bytes.put_u32_le(u32::try_from(value.len()).unwrap());
        bytes.put_slice(value);
    }
    bytes
}

fn values(values: &[&str]) -> Vec<u8> {
    let rows: Vec<_> = values.iter().map(|value| (None, value.as_bytes())).collect();
    records(&rows)
}

fn rows(bytes: &mut Bytes) -> Vec<Row> {
    let count = bytes.get_u32_le();
    let field = |bytes: &mut Bytes| match bytes.get_u32_le() {
        u32::MAX => None,
        length => Some(bytes.split_to(usize::try_from(length).unwrap()).to_vec()),
    };
    let rows = (0..count).map(|_| {
        assert_eq!(bytes.get_i64_le(), 1_700_000_000_000);
        let key = field(bytes);
        (key, field(bytes).unwrap())
    });
    rows.collect()
}

fn texts(bytes: &mut Bytes) -> Vec<String> {
    let rows = rows(bytes).into_iter();
    rows.map(|(_, value)| String::from_utf8(value).unwrap()).collect()
}

fn fetch(stream: &str, offset: i64, wait: u32) -> Vec<u8> {
    let mut bytes = name(stream);
    bytes.put_i64_le(offset);
    bytes.put_u32_le(1 << 20);
    bytes.put_u32_le(wait);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_appended_and_fetched() {
    let server = servers::start(None);
    let client = client(server.address());
    let (seastar, rpc) = start(&client);
    let id = call(&rpc, 1005, &name("orders")).await.unwrap().get_i64_le();
    assert_eq!(client.find_stream("orders", None).await.unwrap().stream_id.0, id);
    let rows_in = records(&[(Some(b"k"), b"a"), (None, b""), (Some(b""), b"c")]);
    let mut placed = call(&rpc, 1001, &[name("orders"), rows_in].concat()).await.unwrap();
    assert_eq!((placed.get_i64_le(), placed.get_i64_le(), placed.get_u8()), (0, 3, 0));
    bounded(rpc.send(
        1002,
        [name("orders"), values(&["d"])].concat().into(),
        Instant::now() + LIMIT,
    ))
    .await
    .unwrap();
    // One behind it is stored behind it.
    let mut placed = call(&rpc, 1001, &[name("orders"), values(&["e"])].concat())
        .await
        .unwrap();
    assert_eq!(placed.get_i64_le(), 4);
    let mut found = call(&rpc, 1003, &fetch("orders", EARLIEST, 0)).await.unwrap();
    assert_eq!((found.get_i64_le(), found.get_i64_le(), found.get_i64_le()), (0, 5, 5));
    let expected: [Row; 5] = [
        (Some(b"k".to_vec()), b"a".to_vec()),
        (None, Vec::new()),
        (Some(Vec::new()), b"c".to_vec()),
        (None, b"d".to_vec()),
        (None, b"e".to_vec()),
    ];
    assert_eq!(rows(&mut found), expected);
    // From amid a batch.
    let mut found = call(&rpc, 1003, &fetch("orders", 2, 0)).await.unwrap();
    assert_eq!((found.get_i64_le(), found.get_i64_le(), found.get_i64_le()), (2, 5, 5));
    assert_eq!(texts(&mut found), ["c", "d", "e"]);
    let mut held = call(&rpc, 1004, &name("orders")).await.unwrap();
    assert_eq!((held.get_i64_le(), held.get_i64_le()), (0, 5));
    let found: Vec<_> = contents(&client, sbp_types::StreamId(id))
        .await
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(found, ["a", "", "c", "d", "e"]);
    bounded(rpc.close()).await;
    bounded(seastar.close()).await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_waits_for_records() {
    let server = servers::start(None);
    let client = client(server.address());
    let (seastar, rpc) = start(&client);
    stream_ids(&client, &["s"]).await;
    let begun = Instant::now();
    let mut none = call(&rpc, 1003, &fetch("s", LATEST, 200)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!((none.get_i64_le(), none.get_i64_le(), none.get_i64_le()), (0, 0, 0));
    assert_eq!(texts(&mut none), [""; 0]);
    let waits = {
        let rpc = rpc.clone();
        tokio::spawn(async move { call(&rpc, 1003, &fetch("s", LATEST, 20_000)).await })
    };
    // Answered on the same connection, so it is under way.
    call(&rpc, 1004, &name("s")).await.unwrap();
    call(&rpc, 1001, &[name("s"), values(&["x"])].concat()).await.unwrap();
    let mut found = bounded(waits).await.unwrap().unwrap();
    found.advance(24);
    let found = texts(&mut found);
    // It may have asked where the end is only after that.
    assert!(found == ["x"] || found.is_empty(), "{found:?}");
    bounded(rpc.close()).await;
    bounded(seastar.close()).await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn numbered_batches_are_stored_once() {
    let server = servers::start(None);
    let client = client(server.address());
    let (seastar, rpc) = start(&client);
    let id = stream_ids(&client, &["s"]).await[0];
    let numbered = |text: &str, epoch: i64, sequence: i64| {
        let mut bytes = [name("s"), values(&[text])].concat();
        bytes.put_slice(&[7; 16]);
        bytes.put_i64_le(epoch);
        bytes.put_i64_le(sequence);
        bytes
    };
    for (text, sequence, expected) in [
        ("a", 0, (0, 1, 0)),
        ("b", 1, (1, 2, 0)),
        ("b", 1, (1, 2, 1)),
        ("a", 0, (0, 1, 1)),
    ] {
        let mut placed = call(&rpc, 1001, &numbered(text, 0, sequence)).await.unwrap();
        assert_eq!((placed.get_i64_le(), placed.get_i64_le(), placed.get_u8()), expected);
    }
    let gap = call(&rpc, 1001, &numbered("z", 0, 9)).await.unwrap_err();
    assert_eq!(gap.kind(), SeastarErrorKind::Refused);
    assert!(gap.what().starts_with("SBP-"), "{gap}");
    // Many at once, in their order.
    let mut calls = Vec::new();
    for sequence in 2..50 {
        let (rpc, arguments) = (rpc.clone(), numbered("c", 0, sequence));
        calls.push(async move { call(&rpc, 1001, &arguments).await });
    }
    for reply in calls {
        reply.await.unwrap();
    }
    assert_eq!(contents(&client, id).await.len(), 50);
    bounded(rpc.close()).await;
    bounded(seastar.close()).await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_and_go_on_streams() {
    let server = servers::start(None);
    let client = client(server.address());
    let (seastar, rpc) = start(&client);
    stream_ids(&client, &["s"]).await;
    let tail = bounded(rpc.stream()).await.unwrap();
    let mut arguments = name("s");
    arguments.put_i64_le(EARLIEST);
    arguments.put_u64_le(tail.id());
    assert_eq!(call(&rpc, 1006, &arguments).await.unwrap().get_u64_le(), tail.id());
    let ingest = bounded(rpc.stream()).await.unwrap();
    let arguments = [name("s"), ingest.id().to_le_bytes().to_vec()].concat();
    assert_eq!(call(&rpc, 1007, &arguments).await.unwrap().get_u64_le(), ingest.id());
    for number in 0..300_i64 {
        let text = number.to_string();
        bounded(ingest.send(values(&[&text, &text]).into())).await.unwrap();
    }
    bounded(ingest.end()).await.unwrap();
    let mut next = 0;
    while let Some(mut placed) = bounded(ingest.next()).await.unwrap() {
        assert_eq!((placed.get_i64_le(), placed.get_i64_le()), (next, next + 2));
        next += 2;
    }
    assert_eq!(next, 600);
    let mut seen: Vec<String> = Vec::new();
    while seen.len() < 600 {
        let mut message = bounded(tail.next()).await.unwrap().unwrap();
        assert_eq!(message.get_i64_le(), i64::try_from(seen.len()).unwrap());
        seen.extend(texts(&mut message));
    }
    let expected: Vec<_> = (0..600).map(|place| (place / 2).to_string()).collect();
    assert_eq!(seen, expected);
    bounded(tail.end()).await.unwrap();
    assert_eq!(bounded(tail.next()).await, Ok(None));
    bounded(rpc.close()).await;
    bounded(seastar.close()).await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said() {
    let server = servers::start(None);
    let client = client(server.address());
    let (seastar, rpc) = start(&client);
    stream_ids(&client, &["s"]).await;
    let not_found = "SBP-1404";
    let invalid = "SBP-0002";
    let refused = [
        (1001, [name("none"), values(&["x"])].concat(), not_found),
        (1003, fetch("none", 0, 0), not_found),
        (1004, name("none"), not_found),
        (1001, name("s"), invalid),
        (1001, [name("s"), values(&[])].concat(), invalid),
        (1001, [name("s"), vec![255; 4]].concat(), invalid),
        (1001, [name("s"), values(&["x"]), vec![1]].concat(), invalid),
        (1003, fetch("s", -3, 0), invalid),
        (1004, vec![9, 0, 0, 0], invalid),
        (1006, [fetch("s", 0, 0)[..13].to_vec(), vec![9; 8]].concat(), invalid),
        (1007, [name("s"), vec![9; 8]].concat(), invalid),
    ];
    for (verb, arguments, code) in refused {
        let error = call(&rpc, verb, &arguments).await.unwrap_err();
        assert_eq!(error.kind(), SeastarErrorKind::Refused, "{verb}: {error}");
        assert!(error.what().starts_with(code), "{verb}: {error}");
    }
    let unknown = call(&rpc, 1008, &[]).await.unwrap_err();
    assert_eq!(unknown.kind(), SeastarErrorKind::UnknownVerb);
    bounded(rpc.close()).await;
    bounded(seastar.close()).await;
    client.close().await;
    server.shutdown().unwrap();
}
