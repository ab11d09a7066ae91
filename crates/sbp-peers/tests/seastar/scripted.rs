//! Our client with peers that say what no server should.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_peers::seastar::{Codec, SeastarErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::service::client;
use crate::{deadline, soon};

/// A negotiation without features.
const PLAIN: &[u8] = b"SSTARRPC\0\0\0\0";

/// A peer that says `first`, and `second` when a request has come; then it waits for the end.
async fn peer(first: &'static [u8], second: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, first, second.clone()));
        }
    });
    address
}

async fn serve(mut socket: TcpStream, first: &'static [u8], second: Vec<u8>) {
    let mut head = [0; 12];
    let _ = socket.read_exact(&mut head).await;
    let length = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
    let mut features = vec![0; usize::try_from(length).expect("a length")];
    let _ = socket.read_exact(&mut features).await;
    let _ = socket.write_all(first).await;
    let mut buffer = [0; 1_000];
    if socket.read(&mut buffer).await.is_ok_and(|count| count > 0) {
        let _ = socket.write_all(&second).await;
    }
    while socket.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

fn response(id: i64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short");
    [&id.to_le_bytes()[..], &length.to_le_bytes(), payload].concat()
}

async fn fails(first: &'static [u8], second: Vec<u8>, codecs: &[Codec], kind: SeastarErrorKind) -> String {
    let rpc = client(&peer(first, second).await, codecs);
    let error = soon(rpc.call(1, Bytes::new(), deadline())).await.expect_err("it fails");
    assert_eq!(error.kind(), kind, "{error}");
    soon(rpc.close()).await;
    error.to_string()
}

#[tokio::test]
async fn each_fault_of_a_peer_is_an_error_of_its_own() {
    let framing = fails(
        b"HTTP/1.1 400 Bad Request\r\n",
        Vec::new(),
        &[],
        SeastarErrorKind::Framing,
    )
    .await;
    assert!(framing.contains("speaks something else"), "{framing}");
    fails(PLAIN, response(-1, &[9]), &[], SeastarErrorKind::Framing).await;
    let mut long = response(1, &[]);
    long[8..].copy_from_slice(&u32::MAX.to_le_bytes());
    fails(PLAIN, long, &[], SeastarErrorKind::Limit).await;
    let lz4 = b"SSTARRPC\x0b\0\0\0\0\0\0\0\x03\0\0\0LZ4";
    let bomb = [&8_u32.to_le_bytes()[..], &0x100_0000_u32.to_le_bytes(), &[0; 4]].concat();
    fails(lz4, bomb, &[Codec::Lz4], SeastarErrorKind::Compression).await;
    fails(lz4, Vec::new(), &[], SeastarErrorKind::Peer).await;
    let generic = response(-1, &[7, 0, 0, 0, 0, 0, 0, 0]);
    fails(PLAIN, generic, &[], SeastarErrorKind::Peer).await;
}

#[tokio::test]
async fn a_server_without_streams_is_told_from_one_that_is_gone() {
    let rpc = client(&peer(PLAIN, Vec::new()).await, &[]);
    let error = soon(rpc.stream()).await.expect_err("it has none");
    assert_eq!(error.kind(), SeastarErrorKind::Peer);
    assert!(error.what().contains("no streams"), "{error}");
    soon(rpc.close()).await;
}

#[tokio::test]
async fn who_never_negotiates_is_not_waited_for_longer_than_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let rpc = client(&listener.local_addr().expect("an address").to_string(), &[]);
    let begun = Instant::now();
    let error = soon(rpc.call(1, Bytes::new(), begun + Duration::from_millis(200))).await;
    let error = error.expect_err("nobody answers");
    assert_eq!(error.kind(), SeastarErrorKind::Lost);
    assert!(error.is_certain(), "nothing was sent: {error}");
    soon(rpc.close()).await;
}

#[tokio::test]
async fn an_idle_connection_that_its_peer_closes_is_made_again_in_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let rpc = client(&listener.local_addr().expect("an address").to_string(), &[]);
    let serving = tokio::spawn(async move {
        for _ in 0..3 {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut buffer = [0; 1_000];
            // The negotiation, then one request; then it goes.
            assert!(socket.read(&mut buffer).await.expect("readable") > 0);
            socket.write_all(PLAIN).await.expect("writable");
            assert!(socket.read(&mut buffer).await.expect("readable") > 0);
            let id = i64::from_le_bytes(buffer[8..16].try_into().expect("eight bytes"));
            socket.write_all(&response(id, b"x")).await.expect("writable");
        }
    });
    let mut connected = rpc.watch_connected();
    for _ in 0..3 {
        assert_eq!(
            soon(rpc.call(7, Bytes::new(), deadline())).await.expect("a reply"),
            &b"x"[..]
        );
        soon(connected.wait_for(|connected| !connected)).await.expect("told");
    }
    soon(serving).await.expect("no panic");
    soon(rpc.close()).await;
}
