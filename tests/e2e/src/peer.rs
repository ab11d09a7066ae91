//! A client that says exactly what a test tells it to, over a real socket. Every read is bounded by a timeout.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};

use bytes::{Bytes, BytesMut};
use sbp_frame::{CallId, Flags, Frame, FrameHead, OpCode};
use sbp_messages::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, CreateStreamsRequest, CreateStreamsResponse, ErrorCode,
    FetchInfo, FetchRequest, FetchResponse, Message, Stream,
};
use sbp_server::Server;
use sbp_types::{Offset, StreamId};

use crate::batches::{bodies, raw_batch};
use crate::frames::{frame_bytes, header, system_error};
use crate::wait::PATIENCE;

/// One connection.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    received: BytesMut,
    last_call: u32,
}

impl Peer {
    /// Dials a server.
    pub fn connect(server: &Server) -> Self {
        Self::dial(server.local_addr())
    }

    /// Dials a server at an address, as one in another process.
    pub fn dial(address: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            received: BytesMut::new(),
            last_call: 0,
        }
    }

    /// Sends a request and returns its id.
    pub fn send<M: Message>(&mut self, message: &M, payload: &[u8]) -> CallId {
        self.send_raw(M::OPCODE, &header(message), payload)
    }

    /// Sends a request with whatever header.
    pub fn send_raw(&mut self, opcode: OpCode, header: &[u8], payload: &[u8]) -> CallId {
        self.last_call += 1;
        let head = FrameHead {
            opcode,
            flags: Flags::NONE,
            raw_call_id: self.last_call,
            format: 1,
        };
        let bytes = frame_bytes(head, header, payload);
        self.write(&bytes);
        CallId::from_raw(self.last_call).unwrap()
    }

    /// Sends bytes, be they frames or not.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Says that nothing more comes.
    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next frame; `None` when the server has closed the connection.
    pub fn recv_or_end(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received).unwrap() {
                return Some(frame);
            }
            let mut block = [0; 64 * 1024];
            match self.stream.read(&mut block) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came in time: {error}"),
            }
        }
    }

    /// The next frame.
    pub fn recv(&mut self) -> Frame {
        self.recv_or_end().expect("the server closed the connection")
    }

    /// Waits for the answer to a call, which must come in one frame.
    pub fn answer(&mut self, call: CallId) -> Frame {
        let frame = self.recv();
        assert_eq!(frame.call_id, call);
        assert_eq!(frame.flags, Flags::RESPONSE | Flags::END, "{:?}", system_error(&frame));
        frame
    }

    /// Sends a request and returns its answer, which must come in one frame.
    pub fn call<Q: Message, A: Message>(&mut self, request: &Q, payload: &[u8]) -> (A, Bytes) {
        let call = self.send(request, payload);
        let frame = self.recv();
        assert_eq!((frame.call_id, frame.opcode), (call, Q::OPCODE));
        assert_eq!(frame.flags, Flags::RESPONSE | Flags::END, "{:?}", system_error(&frame));
        (A::decode(&frame.header).unwrap(), frame.payload.into_contiguous())
    }

    /// Sends a request that must end in a system error.
    pub fn refused<Q: Message>(&mut self, request: &Q, payload: &[u8]) -> ErrorCode {
        let call = self.send(request, payload);
        self.expect_system_error(call)
    }

    /// Waits for the system error that a call must end in.
    pub fn expect_system_error(&mut self, call: CallId) -> ErrorCode {
        let frame = self.recv();
        assert_eq!(frame.call_id, call);
        assert_eq!(frame.flags.bits(), 0x07, "{frame:?}");
        assert!(frame.payload.is_empty());
        system_error(&frame).unwrap()
    }

    /// Makes a stream that must be made.
    pub fn create(&mut self, name: &str) -> StreamId {
        let stream = Stream {
            name: name.to_owned(),
            ..Stream::default()
        };
        let request = CreateStreamsRequest {
            streams: vec![stream],
            ..Default::default()
        };
        let (response, _): (CreateStreamsResponse, _) = self.call(&request, b"");
        let result = &response.create_responses[0];
        assert!(result.status.is_success(), "{}", result.status);
        result.stream.as_ref().unwrap().stream_id
    }

    /// Appends one RAW batch.
    pub fn append(&mut self, stream: StreamId, body: &[u8]) -> AppendResult {
        let batch = raw_batch(body);
        let (mut response, _): (AppendResponse, _) = self.call(&append_request(&[(stream, batch.len())]), &batch);
        response.append_responses.remove(0)
    }

    /// Appends one RAW batch that must be stored, and returns its offset.
    pub fn store(&mut self, stream: StreamId, body: &[u8]) -> i64 {
        let result = self.append(stream, body);
        assert!(result.status.is_success(), "{}", result.status);
        let base = result.base_offset.expect("an offset").0;
        assert_eq!(result.next_offset, Some(Offset(base + 1)));
        base
    }

    /// Everything from an offset on, at once: base offsets and batches.
    pub fn fetch_all(&mut self, stream: StreamId, from: i64) -> Vec<(i64, Bytes)> {
        let info = FetchInfo {
            stream_id: stream,
            fetch_offset: Offset(from),
            ..FetchInfo::default()
        };
        let (response, payload): (FetchResponse, _) = self.call(&fetch_request(0, 0, &[info]), b"");
        let result = &response.fetch_responses[0];
        assert!(result.status.is_success(), "{}", result.status);
        bodies(&payload)
    }
}

/// A request for batches of these lengths, each expected to find the open range.
pub fn append_request(entries: &[(StreamId, usize)]) -> AppendRequest {
    let infos = entries.iter().enumerate().map(|(index, (stream, length))| AppendInfo {
        stream_id: *stream,
        request_index: i32::try_from(index).unwrap(),
        batch_length: i32::try_from(*length).unwrap(),
        ..AppendInfo::default()
    });
    AppendRequest {
        timeout_ms: 0,
        append_requests: infos.collect(),
    }
}

/// A request for these entries, numbered in order.
pub fn fetch_request(max_wait_ms: i32, min_bytes: i32, entries: &[FetchInfo]) -> FetchRequest {
    let numbered = entries.iter().enumerate().map(|(index, info)| FetchInfo {
        request_index: i32::try_from(index).unwrap(),
        ..*info
    });
    FetchRequest {
        max_wait_ms,
        min_bytes,
        fetch_requests: numbered.collect(),
        ..FetchRequest::default()
    }
}

/// A fetch from an offset on.
pub fn from(stream: StreamId, offset: i64) -> FetchInfo {
    FetchInfo {
        stream_id: stream,
        fetch_offset: Offset(offset),
        ..FetchInfo::default()
    }
}
