//! A channel against real servers, and against peers that a test plays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sbp_frame::{FORMAT_FLATBUFFERS, Flags, Frame, OpCode, Prelude};
use sbp_messages::{
    ClientRole, CreateStreamsRequest, CreateStreamsResponse, DescribeStreamsRequest, DescribeStreamsResponse, Encoder,
    ErrorCode, HeartbeatRequest, HeartbeatResponse, Message, Status, Stream, SystemErrorResponse,
};
use sbp_transport::Descriptors;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::channel::MOST_CALLS;
use super::{PeerChannel, PeerConfig, PeerError};
use crate::cluster_id::{Learned, OwnCluster};
use crate::{Server, ServerConfig};

/// Longer than anything takes, shorter than anybody waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn channel(addresses: &[&str], stays: bool) -> PeerChannel {
    let config = PeerConfig {
        followed: None,
        cluster: OwnCluster::of(&Learned::default()),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        hello: HeartbeatRequest {
            client_id: "test".to_owned(),
            client_role: ClientRole::PLACEMENT_DRIVER,
            protocol_revision: 1,
            ..Default::default()
        },
        heartbeat_interval: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(5),
        tls: None,
        token: None,
        stays,
    };
    PeerChannel::new(config, Handle::current(), Descriptors::new(16))
}

pub(crate) fn start(listen: &str) -> Server {
    Server::start(ServerConfig {
        listen: listen.to_owned(),
        durability: crate::Durability::None,
        ..ServerConfig::default()
    })
    .unwrap()
}

/// An address that refuses connections.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn count_streams(channel: &PeerChannel, within: Duration) -> Result<usize, PeerError> {
    let request = DescribeStreamsRequest::default();
    let answers: Vec<DescribeStreamsResponse> = channel.call(&request, within).await?;
    Ok(answers.iter().map(|answer| answer.describe_responses.len()).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_outlives_the_server_it_was_meant_for() {
    let server = start("127.0.0.1:0");
    let address = server.address().to_owned();
    let channel = Arc::new(channel(&[&nobody(), &address], true));
    let mut connections = channel.connections();
    timeout(PATIENCE, connections.wait_for(|number| *number == 1))
        .await
        .unwrap()
        .unwrap();
    let request = CreateStreamsRequest {
        streams: vec![Stream {
            name: "s".to_owned(),
            ..Stream::default()
        }],
        ..Default::default()
    };
    let answers: Vec<CreateStreamsResponse> = channel.call(&request, PATIENCE).await.unwrap();
    assert!(answers[0].create_responses[0].status.is_success());
    assert_eq!(count_streams(&channel, PATIENCE).await, Ok(1));
    drop(server);
    let waiting = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move { count_streams(&channel, PATIENCE).await }
    });
    tokio::task::yield_now().await;
    let _server = start(&address);
    assert_eq!(waiting.await.unwrap(), Ok(0), "the new server has no streams");
    timeout(PATIENCE, connections.wait_for(|number| *number > 1))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn without_a_server_a_call_says_who_is_missing_and_what_went_wrong() {
    let address = nobody();
    let channel = channel(&[&address], false);
    let error = count_streams(&channel, Duration::from_millis(100)).await.unwrap_err();
    let refusal = error.to_refusal();
    assert_eq!(refusal.code, ErrorCode::PD_NO_AVAILABLE_RS);
    assert!(refusal.message.contains(&address), "{}", refusal.message);
    assert!(refusal.message.contains("cannot connect"), "{}", refusal.message);
}

#[tokio::test]
async fn a_closed_channel_tells_those_who_wait_and_those_who_come() {
    let channel = Arc::new(channel(&[&nobody()], false));
    let waiting = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move { count_streams(&channel, PATIENCE).await }
    });
    while channel.shared.channel.lock().queue.calls.is_empty() {
        tokio::task::yield_now().await;
    }
    channel.close();
    assert_eq!(waiting.await.unwrap(), Err(PeerError::Closed));
    assert_eq!(count_streams(&channel, PATIENCE).await, Err(PeerError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_peer_refuses_is_told_in_its_words() {
    let server = start("127.0.0.1:0");
    let channel = channel(&[server.address()], false);
    let request = DescribeStreamsRequest {
        continuation: bytes::Bytes::from_static(b"no token"),
        ..Default::default()
    };
    let refused = channel
        .call::<_, DescribeStreamsResponse>(&request, PATIENCE)
        .await
        .unwrap_err();
    assert_eq!(refused.to_refusal().code, ErrorCode::INVALID_REQUEST, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_asks_about_connections_sees_the_one_that_is_there_and_hears_of_others() {
    let server = start("127.0.0.1:0");
    let channel = channel(&[server.address()], true);
    let mut early = channel.connections();
    timeout(PATIENCE, early.wait_for(|number| *number == 1))
        .await
        .unwrap()
        .unwrap();
    let mut late = channel.connections();
    assert_eq!((*late.borrow_and_update(), channel.standing()), (1, 1));
    assert!(!late.has_changed().unwrap(), "it was there before");
    let address = server.address().to_owned();
    server.shutdown().unwrap();
    let _again = start(&address);
    timeout(PATIENCE, late.changed()).await.unwrap().unwrap();
    assert!(*late.borrow_and_update() > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_asks_the_one_who_dialled_is_told_that_nothing_is_served_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _link = channel(&[&listener.local_addr().unwrap().to_string()], true);
    let answer = timeout(PATIENCE, async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = Prelude::new(OpCode::APPEND, 0, 5, 1, 3, 0).unwrap();
        let asked = [&asked.to_bytes()[..], b"any", &[0; 4]].concat();
        stream.write_all(&asked).await.unwrap();
        let mut received = BytesMut::new();
        loop {
            match Frame::decode(&mut received).unwrap() {
                Some(frame) if frame.opcode == OpCode::APPEND => return frame,
                Some(greeting) => assert_eq!(greeting.opcode, OpCode::HEARTBEAT),
                None => assert!(stream.read_buf(&mut received).await.unwrap() > 0),
            }
        }
    });
    let answer = answer.await.unwrap();
    assert_eq!((answer.call_id.raw(), answer.flags.bits()), (5, 0x07));
    let status = SystemErrorResponse::decode(&answer.header).unwrap().status;
    assert_eq!(status.code, ErrorCode::UNSUPPORTED_OPERATION);
}

/// What five connections take at least that fail one after the other: half of 20, 40, 80 and 160 ms.
const FOUR_PAUSES: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_peer_that_hangs_up_is_dialled_again_after_a_pause_that_grows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _link = channel(&[&listener.local_addr().unwrap().to_string()], true);
    let begin = Instant::now();
    for _ in 0..5 {
        let (socket, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        drop(socket);
    }
    assert!(begin.elapsed() >= FOUR_PAUSES, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_peer_that_refuses_the_greeting_is_asked_again_after_a_pause_that_grows() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = channel(&[&listener.local_addr().unwrap().to_string()], true);
    let begin = Instant::now();
    for _ in 0..5 {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        timeout(PATIENCE, refuse_the_greeting(&mut stream)).await.unwrap();
    }
    assert!(begin.elapsed() >= FOUR_PAUSES, "{:?}", begin.elapsed());
    let error = count_streams(&channel, Duration::from_millis(10)).await.unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("the peer refused the greeting") && told.contains("not you"),
        "{told}"
    );
}

#[tokio::test]
async fn more_calls_than_a_peer_has_room_for_wait_and_those_that_were_given_up_are_not_sent() {
    const CALLS: usize = MOST_CALLS + 100;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = Arc::new(channel(&[&listener.local_addr().unwrap().to_string()], true));
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let channel = Arc::clone(&channel);
            tokio::spawn(async move { count_streams(&channel, PATIENCE).await })
        })
        .collect();
    let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut received = BytesMut::new();
    let mut asked = Vec::new();
    while asked.len() < MOST_CALLS {
        let frame = timeout(PATIENCE, next_frame(&mut stream, &mut received)).await.unwrap();
        match frame.opcode {
            OpCode::HEARTBEAT => answer(&mut stream, &frame, &HeartbeatResponse::default()).await,
            _ => asked.push(frame),
        }
    }
    // The last ones wait, and nobody waits for them any more but for one.
    for call in &calls[MOST_CALLS..CALLS - 1] {
        call.abort();
    }
    for frame in &asked {
        answer(&mut stream, frame, &DescribeStreamsResponse::default()).await;
    }
    loop {
        let frame = timeout(PATIENCE, next_frame(&mut stream, &mut received)).await.unwrap();
        match frame.opcode {
            OpCode::HEARTBEAT => answer(&mut stream, &frame, &HeartbeatResponse::default()).await,
            _ => {
                answer(&mut stream, &frame, &DescribeStreamsResponse::default()).await;
                break;
            }
        }
    }
    let mut ended = Vec::new();
    for call in calls {
        ended.push(call.await);
    }
    let given_up = ended.iter().filter(|ended| ended.is_err()).count();
    assert_eq!(given_up, CALLS - 1 - MOST_CALLS);
    assert!(ended.iter().flatten().all(|ended| *ended == Ok(0)), "{ended:?}");
}

async fn next_frame(stream: &mut TcpStream, received: &mut BytesMut) -> Frame {
    loop {
        match Frame::decode(received).unwrap() {
            Some(frame) => return frame,
            None => assert!(stream.read_buf(received).await.unwrap() > 0),
        }
    }
}

async fn answer(stream: &mut TcpStream, asked: &Frame, with: &impl Message) {
    let mut header = BytesMut::new();
    with.encode(&mut Encoder::new(), &mut header);
    let flags = (Flags::RESPONSE | Flags::END).bits();
    let raw_call_id = asked.call_id.raw();
    let prelude = Prelude::new(asked.opcode, flags, raw_call_id, FORMAT_FLATBUFFERS, header.len(), 0).unwrap();
    let answer = [&prelude.to_bytes()[..], &header, &[0; 4]].concat();
    stream.write_all(&answer).await.unwrap();
}

/// Answers the HEARTBEAT that begins a connection with a refusal, and waits until the other side leaves.
async fn refuse_the_greeting(stream: &mut TcpStream) {
    let mut received = BytesMut::new();
    let greeting = next_frame(stream, &mut received).await;
    assert_eq!(greeting.opcode, OpCode::HEARTBEAT);
    let refusal = HeartbeatResponse {
        status: Status::error(ErrorCode::INVALID_REQUEST, "not you"),
        ..Default::default()
    };
    answer(stream, &greeting, &refusal).await;
    while stream.read_buf(&mut received).await.unwrap() > 0 {}
}
