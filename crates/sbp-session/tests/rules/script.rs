//! Frames as raw as they come, and what a session makes of them.

use std::{
    io::IoSlice,
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use sbp_frame::{Checksum, Frame, OpCode, Payload, checksum};
use sbp_session::{CallFailure, Event, Outgoing, RejectReason, Role, Session, SessionConfig, Violation};

/// A frame to be written, right or wrong in every field.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) frame_length: Option<u32>,
    pub(crate) magic: u8,
    pub(crate) opcode: u16,
    pub(crate) flags: u8,
    pub(crate) call_id: u32,
    pub(crate) format: u8,
    pub(crate) header_length: Option<u32>,
    pub(crate) header: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) checksum: Option<u32>,
}

impl Raw {
    /// A request that is right in every field.
    pub(crate) fn request(opcode: OpCode, call_id: u32) -> Self {
        Self {
            frame_length: None,
            magic: 23,
            opcode: opcode.0,
            flags: 0,
            call_id,
            format: 1,
            header_length: None,
            header: b"header".to_vec(),
            payload: Vec::new(),
            checksum: None,
        }
    }

    /// The last frame of an answer.
    pub(crate) fn response(opcode: OpCode, call_id: u32) -> Self {
        Self {
            flags: 0x03,
            ..Self::request(opcode, call_id)
        }
    }

    pub(crate) fn header(mut self, header: impl Into<Vec<u8>>) -> Self {
        self.header = header.into();
        self
    }

    pub(crate) fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    pub(crate) fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    pub(crate) fn format(mut self, format: u8) -> Self {
        self.format = format;
        self
    }

    /// The bytes, lengths and checksum filled in where they are not given.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = |part: &[u8]| u32::try_from(part.len()).expect("a part of a frame");
        let body = length(&self.header) + length(&self.payload);
        let header_length = self.header_length.unwrap_or(length(&self.header));
        let mut out = Vec::new();
        out.put_u32(self.frame_length.unwrap_or(body + 16));
        out.put_u8(self.magic);
        out.put_u16(self.opcode);
        out.put_u8(self.flags);
        out.put_u32(self.call_id);
        out.put_u8(self.format);
        out.put_slice(&header_length.to_be_bytes()[1..]);
        out.put_slice(&self.header);
        out.put_slice(&self.payload);
        out.put_u32(self.checksum.unwrap_or(checksum(&self.payload)));
        out
    }
}

/// Bytes that differ from place to place, so that a piece in the wrong place shows.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// What happened, in words that compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Request {
        call: u32,
        opcode: OpCode,
        header: Vec<u8>,
        payload: Bytes,
    },
    Response {
        user: u64,
        header: Vec<u8>,
        payload: Bytes,
        system_error: bool,
        end: bool,
    },
    Reject {
        raw: u32,
        reason: RejectReason,
        must_answer: bool,
    },
    Failed {
        user: u64,
        failure: CallFailure,
        bytes_sent: bool,
    },
    HeartbeatDue,
    PeerGoAway {
        last_started: u32,
        header: Vec<u8>,
    },
    Pong {
        user: u64,
    },
    Closing(Why),
}

/// Parts of more bytes than this are told by their checksum.
const LONG: usize = 64 * 1024;

/// A part of a frame, short enough to be compared thousands of times.
pub(crate) fn told(part: &Payload) -> Bytes {
    if part.len() <= LONG {
        return part.clone().into_contiguous();
    }
    let mut sum = Checksum::new();
    part.chunks().iter().for_each(|chunk| sum.update(chunk));
    format!("{} bytes with checksum {:#010x}", part.len(), sum.finish()).into()
}

/// A close reason in words that compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    NotSbp,
    SpeaksTls,
    Violation(Violation),
    Peer { mid_frame: bool },
    Other(String),
}

impl From<&sbp_session::CloseReason> for Why {
    fn from(reason: &sbp_session::CloseReason) -> Self {
        match reason {
            sbp_session::CloseReason::NotSbp => Self::NotSbp,
            sbp_session::CloseReason::SpeaksTls => Self::SpeaksTls,
            sbp_session::CloseReason::Violation(violation) => Self::Violation(*violation),
            sbp_session::CloseReason::Peer { mid_frame } => Self::Peer { mid_frame: *mid_frame },
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Event> for Seen {
    fn from(event: Event) -> Self {
        let payload = |frame: &Frame| told(&frame.payload);
        match event {
            Event::Request(frame) => {
                let payload = payload(&frame);
                let (call, opcode) = (frame.call_id.raw(), frame.opcode);
                Self::Request {
                    call,
                    opcode,
                    header: told(&frame.header.into()).to_vec(),
                    payload,
                }
            }
            Event::ResponseBegins { .. } => unreachable!("told only on demand"),
            Event::Response { user, frame, end, .. } => {
                let payload = payload(&frame);
                let system_error = frame.flags.contains(sbp_frame::Flags::SYSTEM_ERROR);
                Self::Response {
                    user,
                    header: told(&frame.header.into()).to_vec(),
                    payload,
                    system_error,
                    end,
                }
            }
            Event::Reject {
                raw_call_id,
                reason,
                must_answer,
                ..
            } => Self::Reject {
                raw: raw_call_id,
                reason,
                must_answer,
            },
            Event::CallFailed {
                user,
                failure,
                bytes_sent,
                ..
            } => Self::Failed {
                user,
                failure,
                bytes_sent,
            },
            Event::HeartbeatDue => Self::HeartbeatDue,
            Event::PeerGoAway { last_started, header } => Self::PeerGoAway {
                last_started,
                header: header.to_vec(),
            },
            Event::Pong { user, .. } => Self::Pong { user },
            Event::Closing { reason } => Self::Closing((&reason).into()),
        }
    }
}

/// One session under test, with the bytes it has sent.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    pub(crate) seen: Vec<Seen>,
    pub(crate) sent: BytesMut,
}

/// Everything about a run that must not depend on how the bytes were cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) seen: Vec<Seen>,
    pub(crate) sent: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) frames: u64,
    pub(crate) discarded: u64,
    pub(crate) odd_checksums: u64,
}

impl Subject {
    pub(crate) fn new(config: SessionConfig) -> Self {
        let now = Instant::now();
        let mut subject = Self {
            session: Session::new(config, now),
            now,
            seen: Vec::new(),
            sent: BytesMut::new(),
        };
        // The first HEARTBEAT of a client is always due; tests are about what comes behind it.
        if subject.session.config().role == Role::Client {
            assert!(matches!(subject.session.poll_event(), Some(Event::HeartbeatDue)));
        }
        subject
    }

    pub(crate) fn server() -> Self {
        Self::new(SessionConfig {
            violation_header: b"violation".as_slice().into(),
            ..SessionConfig::server()
        })
    }

    pub(crate) fn client() -> Self {
        Self::new(SessionConfig {
            violation_header: b"violation".as_slice().into(),
            ..SessionConfig::client()
        })
    }

    /// Sends `calls` requests of a client, users 100, 101, ..., and forgets their bytes.
    pub(crate) fn with_calls(mut self, opcode: OpCode, calls: u64) -> Self {
        for user in 0..calls {
            self.call(opcode, 100 + user, 0);
        }
        self.write();
        self.sent.clear();
        self
    }

    pub(crate) fn call(&mut self, opcode: OpCode, user: u64, receive_charge: u32) -> sbp_frame::CallId {
        let request = Outgoing {
            opcode,
            header: b"ask",
            payload: &[],
            user,
            deadline: None,
            receive_charge,
        };
        self.session
            .send_request(self.now, request)
            .expect("room for a request")
    }

    /// Receives `bytes`, as many at a time as there is room for, until the session has had enough.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.session.wants_read() {
            let mut buffer = self.session.recv_buffer();
            let count = buffer.remaining_mut().min(rest.len());
            assert!(count > 0, "a buffer without room");
            buffer.put_slice(&rest[..count]);
            self.session.handle_received(count, self.now);
            rest = &rest[count..];
            self.take_events();
        }
    }

    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            self.seen.push(event.into());
        }
    }

    /// What was seen since the last call.
    pub(crate) fn seen(&mut self) -> Vec<Seen> {
        self.take_events();
        std::mem::take(&mut self.seen)
    }

    /// Writes everything out.
    pub(crate) fn write(&mut self) {
        while self.session.transmit_len() > 0 {
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self.session.transmit(&mut slices);
            let mut written = 0;
            for slice in &slices[..count] {
                self.sent.extend_from_slice(slice);
                written += slice.len();
            }
            self.session.handle_written(written, self.now);
        }
    }

    /// The frames written since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Frame> {
        self.write();
        let mut frames = Vec::new();
        while let Some(frame) = Frame::decode(&mut self.sent).expect("valid frames") {
            frames.push(frame);
        }
        assert!(self.sent.is_empty(), "half a frame was sent");
        frames
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
        self.take_events();
    }

    /// Passes time up to `time` from now, stopping at each moment that the session asks for.
    pub(crate) fn live_through(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.session.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.session.handle_timeout(self.now);
            self.take_events();
            assert!(
                self.session.poll_timeout().is_none_or(|next| next > at),
                "a timer that does not move"
            );
        }
        self.now = end;
    }

    pub(crate) fn outcome(mut self) -> Outcome {
        self.take_events();
        self.write();
        let stats = *self.session.stats();
        Outcome {
            seen: self.seen,
            sent: self.sent.to_vec(),
            closed: self.session.is_closed(),
            frames: stats.frames_in,
            discarded: stats.discarded,
            odd_checksums: stats.odd_checksums,
        }
    }
}
