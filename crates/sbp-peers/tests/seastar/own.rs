//! Our client with our server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_peers::seastar::{Codec, SeastarErrorKind};

use crate::service::{ADD, BOOM, CUT_STREAM, ECHO, ECHO_STREAM, NOTE, Running, SILENT, TEN, WHO};
use crate::{deadline, soon};

const CODECS: [&[Codec]; 3] = [&[], &[Codec::Lz4], &[Codec::Lz4Fragmented, Codec::Lz4]];

fn pair(one: i32, two: i32) -> Bytes {
    [one.to_le_bytes(), two.to_le_bytes()].concat().into()
}

#[tokio::test]
async fn verbs_are_called_and_return() {
    for codecs in CODECS {
        let running = Running::start();
        let rpc = running.client(codecs);
        let sum = soon(rpc.call(ADD, pair(3, 4), deadline())).await.expect("a sum");
        assert_eq!(sum[..], 7_i32.to_le_bytes());
        let large: Bytes = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let (back, handler) = soon(rpc.measured_call(ECHO, large.clone(), deadline()))
            .await
            .expect("an echo");
        assert_eq!(back, large);
        assert!(handler.is_some(), "the server says how long its handler took");
        assert_eq!(
            soon(rpc.call(WHO, Bytes::new(), deadline())).await.expect("a cookie"),
            &b"ck1"[..]
        );
        let boom = soon(rpc.call(BOOM, Bytes::new(), deadline()))
            .await
            .expect_err("it fails");
        assert_eq!(
            (boom.kind(), boom.code(), boom.what()),
            (SeastarErrorKind::Refused, 9405, "boom")
        );
        assert_eq!((boom.verb(), boom.endpoint()), (Some(BOOM), Some(&*running.address())));
        assert!(boom.is_certain() && !boom.is_timeout());
        let unknown = soon(rpc.call(99, Bytes::new(), deadline()))
            .await
            .expect_err("there is none");
        assert_eq!((unknown.kind(), unknown.code()), (SeastarErrorKind::UnknownVerb, 9407));
        assert!(unknown.is_certain() && !unknown.is_retriable());
        soon(rpc.close()).await;
        soon(running.server.close()).await;
        let closed = soon(rpc.call(ECHO, Bytes::new(), deadline()))
            .await
            .expect_err("closed");
        assert_eq!(closed.kind(), SeastarErrorKind::Lost);
        assert!(closed.is_certain());
    }
}

#[tokio::test]
async fn calls_that_return_nothing_end_when_they_are_written() {
    let mut running = Running::start();
    let rpc = running.client(&[]);
    for number in 0..100_u8 {
        soon(rpc.send(NOTE, Bytes::copy_from_slice(&[number]), deadline()))
            .await
            .expect("written");
    }
    for _ in 0..100 {
        soon(running.noted.recv()).await.expect("it arrives");
    }
    let noted: Vec<_> = running
        .seen
        .noted
        .lock()
        .unwrap()
        .iter()
        .map(|bytes| bytes[0])
        .collect();
    assert_eq!(noted, (0..100).collect::<Vec<_>>(), "in their order");
    soon(rpc.close()).await;
}

#[tokio::test]
async fn a_call_that_is_never_answered_ends_at_its_deadline_and_others_go_on() {
    let running = Running::start();
    let rpc = running.client(&[]);
    soon(rpc.connect()).await.expect("it is there");
    let begun = Instant::now();
    let silent = soon(rpc.call(SILENT, Bytes::new(), begun + Duration::from_millis(300))).await;
    let silent = silent.expect_err("no answer");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!((silent.kind(), silent.code()), (SeastarErrorKind::Lost, 9406));
    assert!(!silent.is_certain() && silent.is_timeout(), "the handler may have run");
    soon(rpc.call(ADD, pair(1, 2), deadline()))
        .await
        .expect("the connection is as before");
    // One without time is not sent.
    let late = soon(rpc.call(ADD, pair(1, 2), begun)).await.expect_err("too late");
    assert!(late.is_certain(), "{late}");
    soon(rpc.close()).await;
}

#[tokio::test]
async fn replies_of_one_client_go_in_one_post() {
    let running = Running::start();
    let rpc = running.client(&[]);
    let mut calls = Vec::new();
    for number in 0..10_u8 {
        let rpc = rpc.clone();
        calls.push(tokio::spawn(async move {
            rpc.call(TEN, Bytes::copy_from_slice(&[number]), deadline()).await
        }));
    }
    for (number, call) in (0_u8..).zip(calls) {
        let reply = soon(call).await.expect("no panic").expect("a reply");
        assert_eq!(reply[..], [number]);
    }
    soon(rpc.close()).await;
}

#[tokio::test]
async fn a_connection_is_made_again_when_it_was_lost() {
    let running = Running::start();
    let address = running.address();
    let rpc = running.client(&[]);
    soon(rpc.call(ADD, pair(1, 2), deadline())).await.expect("a sum");
    let mut connected = rpc.watch_connected();
    assert!(*connected.borrow_and_update());
    let waits = {
        let rpc = rpc.clone();
        tokio::spawn(async move { rpc.call(SILENT, Bytes::new(), deadline()).await })
    };
    // It is there when one behind it is.
    soon(rpc.call(ADD, pair(1, 2), deadline())).await.expect("a sum");
    soon(running.server.close()).await;
    let lost = soon(waits).await.expect("no panic").expect_err("the server is gone");
    assert_eq!(lost.kind(), SeastarErrorKind::Lost);
    assert!(!lost.is_certain());
    soon(connected.wait_for(|connected| !connected)).await.expect("told");
    let nobody = soon(rpc.call(ADD, pair(1, 2), deadline()))
        .await
        .expect_err("nobody listens");
    assert_eq!(nobody.kind(), SeastarErrorKind::Lost);
    assert!(nobody.is_certain() && nobody.is_retriable());
    let again = Running::start_at(&address);
    // The first attempts may still be those that fail.
    let sum = soon(async {
        loop {
            match rpc.call(ADD, pair(5, 6), deadline()).await {
                Ok(sum) => return sum,
                Err(error) => assert!(error.is_certain(), "{error}"),
            }
        }
    });
    assert_eq!(sum.await[..], 11_i32.to_le_bytes());
    soon(rpc.close()).await;
    soon(again.server.close()).await;
}

#[tokio::test]
async fn streams_carry_messages_both_ways() {
    for codecs in CODECS {
        let running = Running::start();
        let rpc = running.client(codecs);
        let stream = soon(rpc.stream()).await.expect("a stream");
        let id = Bytes::copy_from_slice(&stream.id().to_le_bytes());
        let told = soon(rpc.call(ECHO_STREAM, id.clone(), deadline()))
            .await
            .expect("it takes the stream");
        assert_eq!(told, id);
        // Far more than either side holds for the other.
        let sends = stream.clone();
        let sending = tokio::spawn(async move {
            for number in 0..2_000_u32 {
                let length = 1 + usize::try_from(number).expect("small") * 7 % 5_000;
                let mut message = vec![7; length];
                message.extend_from_slice(&number.to_le_bytes());
                sends.send(message.into()).await?;
            }
            sends.end().await
        });
        let mut count = 0_u32;
        while let Some(message) = soon(stream.next()).await.expect("it goes on") {
            assert_eq!(message[message.len() - 4..], count.to_le_bytes());
            count += 1;
        }
        assert_eq!(count, 2_000);
        soon(sending).await.expect("no panic").expect("sent");
        assert_eq!(soon(stream.next()).await, Ok(None), "it stays at its end");
        let again = soon(rpc.call(ECHO_STREAM, id, deadline()))
            .await
            .expect_err("it was handed out");
        assert_eq!(again.what(), "no such stream");
        soon(rpc.close()).await;
        soon(running.server.close()).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_incomplete() {
    let running = Running::start();
    let rpc = running.client(&[]);
    let stream = soon(rpc.stream()).await.expect("a stream");
    let id = Bytes::copy_from_slice(&stream.id().to_le_bytes());
    soon(rpc.call(CUT_STREAM, id, deadline()))
        .await
        .expect("it takes the stream");
    soon(stream.send(Bytes::from_static(b"x"))).await.expect("sent");
    let cut = soon(stream.next()).await.expect_err("it was cut");
    assert_eq!((cut.kind(), cut.code()), (SeastarErrorKind::Peer, 9404));
    assert!(cut.what().contains("incomplete"), "{cut}");
    let empty = soon(rpc.stream()).await.expect("a stream");
    let refused = soon(empty.send(Bytes::new()))
        .await
        .expect_err("empty messages are none");
    assert_eq!(refused.kind(), SeastarErrorKind::Limit);
    soon(rpc.close()).await;
}

#[tokio::test]
async fn a_stream_ends_with_the_connection_that_it_belongs_to() {
    let running = Running::start();
    let rpc = running.client(&[]);
    let stream = soon(rpc.stream()).await.expect("a stream");
    let id = Bytes::copy_from_slice(&stream.id().to_le_bytes());
    soon(rpc.call(ECHO_STREAM, id, deadline()))
        .await
        .expect("it takes the stream");
    let reads = stream.clone();
    let reading = tokio::spawn(async move { reads.next().await });
    soon(rpc.close()).await;
    soon(reading).await.expect("no panic").expect_err("it is closed");
    soon(stream.send(Bytes::from_static(b"x")))
        .await
        .expect_err("it is closed");
    // The server's end went too: its close has no stream to wait for.
    soon(running.server.close()).await;
}

#[tokio::test]
async fn other_machines_may_not_connect_unless_it_is_said() {
    use std::sync::Arc;

    use sbp_peers::seastar::{Handler, HostConfig, HostError, Incoming, RpcServer, ServerConfig};

    struct Nothing;

    impl Handler for Nothing {
        fn call(&self, _: Incoming) {}
    }

    let config = HostConfig::new("0.0.0.0:0");
    let runtime = tokio::runtime::Handle::current();
    let refused = RpcServer::start(Arc::new(Nothing), &config, ServerConfig::default(), &runtime);
    assert!(matches!(refused, Err(HostError::Insecure { .. })));
}
