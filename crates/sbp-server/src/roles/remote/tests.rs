//! A range server that is away and comes back, played by the test.

use bytes::BytesMut;
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, Frame, OpCode, Prelude};
use sbp_messages::{ClientRole, Encoder, HeartbeatResponse, Message};
use sbp_types::RangeIndex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::cluster_id::Learned;

/// Longer than anything takes, shorter than anybody waits.
const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: ServerId = ServerId(1);
const KEY: RangeKey = RangeKey {
    stream: StreamId(1),
    range: RangeIndex(0),
};

fn servers() -> RemoteServers {
    let hello = HeartbeatRequest {
        client_id: "test".to_owned(),
        client_role: ClientRole::PLACEMENT_DRIVER,
        protocol_revision: 1,
        ..HeartbeatRequest::default()
    };
    let cluster = OwnCluster::of(&Learned::default());
    RemoteServers::new(hello, cluster, Handle::current(), Descriptors::new(16), None, None)
}

async fn next_frame(stream: &mut TcpStream, received: &mut BytesMut) -> Frame {
    loop {
        match Frame::decode(received).unwrap() {
            Some(frame) => return frame,
            None => assert!(stream.read_buf(received).await.unwrap() > 0),
        }
    }
}

/// The first request behind the HEARTBEAT, which is answered.
async fn first_request(listener: &TcpListener) -> OpCode {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = BytesMut::new();
    loop {
        let asked = next_frame(&mut stream, &mut received).await;
        if asked.opcode != OpCode::HEARTBEAT {
            return asked.opcode;
        }
        let mut header = BytesMut::new();
        HeartbeatResponse::default().encode(&mut Encoder::new(), &mut header);
        let (flags, call) = ((Flags::RESPONSE | Flags::END).bits(), asked.call_id.raw());
        let prelude = Prelude::new(asked.opcode, flags, call, FORMAT_FLATBUFFERS, header.len(), 0).unwrap();
        let answer = [&prelude.to_bytes()[..], &header, &[0; 4]].concat();
        stream.write_all(&answer).await.unwrap();
    }
}

#[tokio::test]
async fn a_seal_that_nobody_waits_for_any_more_is_not_sent_to_a_server_that_is_back() {
    for is_given_up in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let servers = servers();
        servers.locate(SERVER, &address.to_string());
        let server = servers.server(SERVER).unwrap();
        let (sender, sealed) = oneshot::channel();
        server.seal(KEY, Epoch(0), None, Box::new(move |end| drop(sender.send(end))));
        // Its task has begun, and waits for a connection.
        tokio::task::yield_now().await;
        if is_given_up {
            server.give_up_seals();
            let told = timeout(PATIENCE, sealed).await.unwrap().unwrap();
            assert_eq!(told, Err(Refusal::unanswered()));
        }
        let listener = TcpListener::bind(address).await.unwrap();
        server.next_offsets(vec![KEY], Box::new(drop));
        let first = timeout(PATIENCE, first_request(&listener)).await.unwrap();
        let expected = match is_given_up {
            true => OpCode::DESCRIBE_RANGES,
            false => OpCode::SEAL_RANGES,
        };
        assert_eq!(first, expected);
    }
}
