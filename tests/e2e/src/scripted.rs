//! A server that does what a test tells it, frame by frame.

use std::time::Duration;

use bytes::BytesMut;
use sbp_client::Client;
use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, Frame, FrameHead, OpCode};
use sbp_messages::{
    AppendRequest, AppendResponse, AppendResult, Encoder, Feature, HeartbeatResponse, Message, Status,
    SystemErrorResponse,
};
use sbp_types::{Offset, TimestampMs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clients::client_with;
use crate::frames::{answer_bytes, frame_bytes};

/// A listener on loopback and its address.
pub async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// A client with short waits.
pub fn client(servers: &str) -> Client {
    client_with(servers, |config| {
        config.timeout = Duration::from_secs(10);
        config.retry.first_connect_wait = Duration::from_millis(100);
        config.retry.backoff_max = Duration::from_millis(50);
    })
}

/// One connection of the client that is tested.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Peer {
    /// The next connection to a listener.
    pub async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Accepts and answers the first HEARTBEAT with everything a server of ours offers.
    pub async fn greeted(listener: &TcpListener) -> Self {
        let mut peer = Self::accept(listener).await;
        peer.greet(&[
            ("names", "1"),
            ("bounded-fetch", "1"),
            ("durability", "fsync"),
            ("max-calls", "1024"),
        ])
        .await;
        peer
    }

    /// Answers the first HEARTBEAT with these features.
    pub async fn greet(&mut self, features: &[(&str, &str)]) {
        let hello = self.frame().await;
        assert_eq!(hello.opcode, OpCode::HEARTBEAT, "a client's first frame is HEARTBEAT");
        let answer = HeartbeatResponse {
            protocol_revision: 1,
            connection_id: 7,
            features: features
                .iter()
                .map(|&(name, value)| Feature::new(name, value))
                .collect(),
            ..HeartbeatResponse::default()
        };
        self.answer(&hello, &answer, &[], true).await;
    }

    /// The next frame; panics at the end of the connection.
    pub async fn frame(&mut self) -> Frame {
        self.try_frame().await.expect("the client closed the connection")
    }

    /// The next frame; `None` at the end of the connection.
    pub async fn try_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next APPEND.
    pub async fn append(&mut self) -> (Frame, AppendRequest) {
        let frame = self.frame().await;
        assert_eq!(frame.opcode, OpCode::APPEND);
        let request = AppendRequest::decode(&frame.header).unwrap();
        (frame, request)
    }

    /// Answers a request, with its last frame or another.
    pub async fn answer<M: Message>(&mut self, to: &Frame, message: &M, payload: &[u8], end: bool) {
        self.raw(&answer_bytes(to, message, payload, end)).await;
    }

    /// Answers a request with a system error.
    pub async fn refuse(&mut self, to: &Frame, status: Status) {
        let flags = Flags::RESPONSE | Flags::END | Flags::SYSTEM_ERROR;
        let mut header = BytesMut::new();
        SystemErrorResponse { status }.encode(&mut Encoder::new(), &mut header);
        self.write(to.opcode, flags, to.call_id, &header, &[]).await;
    }

    /// Says that it goes away, and which request it has started last.
    pub async fn go_away(&mut self, last_started: CallId) {
        self.write(OpCode::GOAWAY, Flags::NONE, last_started, &[], &[]).await;
    }

    /// The answer to a PING, as it came.
    pub async fn pong(&mut self, ping: &Frame) {
        assert_eq!(ping.opcode, OpCode::PING);
        let payload = ping.payload.clone().into_contiguous();
        self.write(
            OpCode::PING,
            Flags::RESPONSE | Flags::END,
            ping.call_id,
            &ping.header,
            &payload,
        )
        .await;
    }

    /// A request of the server to the client.
    pub async fn ask(&mut self, opcode: OpCode, id: CallId, header: &[u8]) {
        self.write(opcode, Flags::NONE, id, header, &[]).await;
    }

    async fn write(&mut self, opcode: OpCode, flags: Flags, call_id: CallId, header: &[u8], payload: &[u8]) {
        let head = FrameHead {
            opcode,
            flags,
            raw_call_id: call_id.raw(),
            format: FORMAT_FLATBUFFERS,
        };
        self.raw(&frame_bytes(head, header, payload)).await;
    }

    /// Bytes as they are, be they a frame or not.
    pub async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

/// Success for every entry, at `offset`.
pub fn stored(request: &AppendRequest, offset: i64) -> AppendResponse {
    let results = request.append_requests.iter().map(|info| AppendResult {
        stream_id: info.stream_id,
        request_index: info.request_index,
        base_offset: Some(Offset(offset)),
        next_offset: Some(Offset(offset + 1)),
        stream_append_time_ms: TimestampMs(1_000),
        ..AppendResult::default()
    });
    AppendResponse {
        append_responses: results.collect(),
        ..AppendResponse::default()
    }
}

/// A refusal of the first entry.
pub fn entry_refused(request: &AppendRequest, status: Status) -> AppendResponse {
    let mut answer = stored(request, -1);
    answer.append_responses[0].status = status;
    answer
}
