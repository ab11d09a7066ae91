//! A peer that does what a test tells it, frame by frame.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::future::Future;
use std::time::Duration;

use bytes::BytesMut;
use sbp_client::{Client, ClientConfig};
use sbp_frame::{CallId, Flags, Frame, FrameHead, OpCode, PayloadPart, WriteQueue};
use sbp_messages::{
    AppendRequest, AppendResponse, AppendResult, Encoder, Feature, HeartbeatResponse, Message, Status,
    SystemErrorResponse,
};
use sbp_record::{EncodeOptions, RecordsBuilder, stamp_base_offset};
use sbp_types::{Offset, TimestampMs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Everything a test waits for is bounded by this.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Runs a test's future with a bound.
pub(crate) async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("the test did not end in time")
}

/// A listener on loopback and its address.
pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// A client with short waits.
pub(crate) fn client(servers: &str) -> Client {
    let mut config = ClientConfig::new(servers).unwrap();
    config.timeout = Duration::from_secs(10);
    config.retry.first_connect_wait = Duration::from_millis(100);
    config.retry.backoff_min = Duration::from_millis(5);
    config.retry.backoff_max = Duration::from_millis(50);
    Client::new(config, tokio::runtime::Handle::current())
}

pub(crate) struct Peer {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Peer {
    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Accepts and answers the first HEARTBEAT with everything a server of ours offers.
    pub(crate) async fn greeted(listener: &TcpListener) -> Self {
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

    pub(crate) async fn greet(&mut self, features: &[(&str, &str)]) {
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
    pub(crate) async fn frame(&mut self) -> Frame {
        self.try_frame().await.expect("the client closed the connection")
    }

    pub(crate) async fn try_frame(&mut self) -> Option<Frame> {
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
    pub(crate) async fn append(&mut self) -> (Frame, AppendRequest) {
        let frame = self.frame().await;
        assert_eq!(frame.opcode, OpCode::APPEND);
        let request = AppendRequest::decode(&frame.header).unwrap();
        (frame, request)
    }

    pub(crate) async fn answer<M: Message>(&mut self, to: &Frame, message: &M, payload: &[u8], end: bool) {
        self.raw(&answer_bytes(to, message, payload, end)).await;
    }

    pub(crate) async fn refuse(&mut self, to: &Frame, status: Status) {
        let flags = Flags::RESPONSE | Flags::END | Flags::SYSTEM_ERROR;
        let mut header = BytesMut::new();
        SystemErrorResponse { status }.encode(&mut Encoder::new(), &mut header);
        self.write(to.opcode, flags, to.call_id, &header, &[]).await;
    }

    pub(crate) async fn go_away(&mut self, last_started: CallId) {
        self.write(OpCode::GOAWAY, Flags::NONE, last_started, &[], &[]).await;
    }

    /// The answer to a PING, as it came.
    pub(crate) async fn pong(&mut self, ping: &Frame) {
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
    pub(crate) async fn ask(&mut self, opcode: OpCode, id: CallId, header: &[u8]) {
        self.write(opcode, Flags::NONE, id, header, &[]).await;
    }

    async fn write(&mut self, opcode: OpCode, flags: Flags, call_id: CallId, header: &[u8], payload: &[u8]) {
        self.raw(&frame_bytes(opcode, flags, call_id, header, payload)).await;
    }

    /// Bytes as they are, be they a frame or not.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

/// A frame of an answer.
pub(crate) fn answer_bytes<M: Message>(to: &Frame, message: &M, payload: &[u8], end: bool) -> Vec<u8> {
    let flags = if end {
        Flags::RESPONSE | Flags::END
    } else {
        Flags::RESPONSE
    };
    let mut header = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut header);
    frame_bytes(to.opcode, flags, to.call_id, &header, payload)
}

fn frame_bytes(opcode: OpCode, flags: Flags, call_id: CallId, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    let head = FrameHead {
        opcode,
        flags,
        raw_call_id: call_id.raw(),
        format: sbp_frame::FORMAT_FLATBUFFERS,
    };
    queue.push_frame(head, header, &[PayloadPart::Copy(payload)]).unwrap();
    let mut bytes = Vec::new();
    while !queue.is_empty() {
        let mut slices = [std::io::IoSlice::new(&[]); 8];
        let filled = queue.slices(&mut slices);
        let before = bytes.len();
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
        queue.advance(bytes.len() - before);
    }
    bytes
}

/// One batch of records as a server returns it.
pub(crate) fn batch(base: i64, records: usize) -> Vec<u8> {
    let mut builder = RecordsBuilder::new();
    for _ in 0..records {
        builder.push(Some(b"value"), None, None, &[]).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&EncodeOptions::default(), &mut out).unwrap_or_default();
    if let Some(stamp) = out.get_mut(..9) {
        stamp.copy_from_slice(&stamp_base_offset(Offset(base)));
    }
    out.to_vec()
}

/// Success for every entry, at `offset`.
pub(crate) fn stored(request: &AppendRequest, offset: i64) -> AppendResponse {
    let results = request.append_requests.iter().map(|info| AppendResult {
        stream_id: info.stream_id,
        request_index: info.request_index,
        base_offset: Offset(offset),
        next_offset: Offset(offset + 1),
        stream_append_time_ms: TimestampMs(1_000),
        ..AppendResult::default()
    });
    AppendResponse {
        append_responses: results.collect(),
        ..AppendResponse::default()
    }
}

/// A refusal of the first entry.
pub(crate) fn entry_refused(request: &AppendRequest, status: Status) -> AppendResponse {
    let mut answer = stored(request, -1);
    answer.append_responses[0].status = status;
    answer
}
