//! A server's session before it is known who the peer is: what a stranger sends, in any pieces, while the layer above
//! believes its HEARTBEATs or not, asks it for another token, and throws it out.
//!
//! At any time: nothing of it is served but HEARTBEAT, one at a time, and PING; it is heard as long as it may take to say
//! who it is and no longer; what is read of it, and what it holds in memory, is little. Once it is known, each of its requests is served in the order
//! it came in, and no request that came before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use bytes::{BufMut, BytesMut};
use sbp_frame::{Frame, OpCode, PayloadPart, Prelude};
use sbp_messages::{Encoder, HeartbeatRequest, HeartbeatResponse, Message, Token};
use sbp_session::{Authentication, Event, Limits, Outgoing, RejectReason, Session, SessionConfig};

use crate::vectors;

/// The token that is believed.
const RIGHT: &str = "sbp_right";
/// HEARTBEATs that are not believed before the connection is closed.
const MOST_REFUSED: u8 = 3;
/// Above the limit of a HEARTBEAT, its prelude, and what is read at once.
const MOST_HELD: usize = 16 << 10;

/// Above the bytes that are read at once.
const READ_AT_ONCE: u64 = 16 << 10;

const OPCODES: [OpCode; 6] = [
    OpCode::APPEND,
    OpCode::FETCH,
    OpCode::PING,
    OpCode::CREATE_STREAMS,
    OpCode::GOAWAY,
    OpCode(0x7777),
];

/// A server's end of a connection.
struct Scene {
    session: Session,
    now: Instant,
    since: Instant,
    demanded: Authentication,
    /// Bytes on their way to the session.
    incoming: VecDeque<u8>,
    /// The ids of requests that were sent whole, behind nothing but whole frames.
    sent: VecDeque<u32>,
    /// Something other than whole frames was sent, so that nobody knows what is a request.
    meddled: bool,
    last_call: u32,
    /// HEARTBEATs that want an answer.
    asked: Vec<Frame>,
    refused: u8,
    closing: bool,
}

/// The bytes are a script.
pub fn run(data: &[u8]) {
    let mut script = Unstructured::new(data);
    let mut scene = Scene::new();
    while !script.is_empty() {
        if step(&mut scene, &mut script).is_err() {
            break;
        }
        scene.settle();
    }
    // Whoever has not become known by now is closed in its time, whatever it has sent.
    scene.read(usize::MAX);
    scene.settle();
    scene.pass(scene.demanded.within);
    scene.settle();
    scene.pass(scene.session.config().flush_timeout);
    scene.settle();
    assert!(
        scene.session.is_authenticated() || scene.session.is_closed(),
        "a stranger stays"
    );
}

/// One operation: a byte for what, then its arguments.
fn step(scene: &mut Scene, script: &mut Unstructured<'_>) -> Result<()> {
    match script.arbitrary::<u8>()? & 0x0f {
        0 | 1 => scene.heartbeat(RIGHT),
        2 => {
            let length = usize::from(script.arbitrary::<u8>()?) * 40;
            let text = script.arbitrary::<char>()?;
            scene.heartbeat(&String::from(text).repeat(length));
        }
        3 => {
            let opcode = *script.choose(&OPCODES)?;
            let (header, payload) = (script.arbitrary::<u8>()?, script.arbitrary::<u16>()?);
            scene.send(opcode, &vec![header; header.into()], payload.into());
        }
        4 => {
            let count = usize::from(script.arbitrary::<u8>()?).min(script.len());
            let bytes = script.bytes(count)?;
            scene.meddled = true;
            scene.incoming.extend(bytes);
        }
        // A frame that claims to be of any length, and its beginning.
        5 => {
            let (header, payload) = (script.arbitrary::<u32>()? >> 8, script.arbitrary::<u32>()? >> 8);
            let prelude = Prelude::new(OpCode::HEARTBEAT, 0, 1, 1, header as usize, payload as usize);
            scene.meddled = true;
            scene
                .incoming
                .extend(prelude.map(|prelude| prelude.to_bytes()).unwrap_or_default());
        }
        6 | 7 => scene.read(usize::from(script.arbitrary::<u8>()?)),
        8 => scene.read(usize::MAX),
        9 => scene.write(usize::from(script.arbitrary::<u16>()?)),
        10 | 11 => scene.answer(),
        12 => scene.pass(Duration::from_millis(script.arbitrary::<u16>()?.into())),
        13 => scene.ask_for_another(),
        14 => scene.throw_out(),
        _ => match script.arbitrary::<u8>()? {
            0 => scene.session.handle_eof(scene.now),
            1 => scene.session.set_tight(true, scene.now),
            2 => scene.session.set_tight(false, scene.now),
            _ => {}
        },
    }
    Ok(())
}

impl Scene {
    fn new() -> Self {
        let demanded = Authentication {
            goodbye: bytes::Bytes::from_static(b"goodbye"),
            ..Authentication::default()
        };
        let mut config = SessionConfig::server();
        config.limits = Limits {
            calls: 4,
            ..Limits::default()
        };
        config.authentication = Some(demanded.clone());
        let now = Instant::now();
        Self {
            session: Session::new(config, now),
            now,
            since: now,
            demanded,
            incoming: VecDeque::new(),
            sent: VecDeque::new(),
            meddled: false,
            last_call: 0,
            asked: Vec::new(),
            refused: 0,
            closing: false,
        }
    }

    fn heartbeat(&mut self, token: &str) {
        let request = HeartbeatRequest {
            token: Token::new(token),
            ..HeartbeatRequest::default()
        };
        let header = encoded(&request);
        self.send(OpCode::HEARTBEAT, &header, 0);
    }

    fn send(&mut self, opcode: OpCode, header: &[u8], payload: usize) {
        self.last_call += 1;
        let Ok(prelude) = Prelude::new(opcode, 0, self.last_call, 1, header.len(), payload) else {
            return;
        };
        let payload = vec![0; payload];
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &payload);
        self.incoming.extend(prelude.to_bytes());
        self.incoming.extend(header);
        self.incoming.extend(&payload);
        self.incoming
            .extend(u32::try_from(checksum).unwrap_or_default().to_be_bytes());
        if ![OpCode::PING, OpCode::GOAWAY].contains(&opcode) {
            self.sent.push_back(self.last_call);
        }
    }

    /// Moves at most `count` bytes into the session.
    fn read(&mut self, count: usize) {
        let mut left = count;
        while left > 0 && !self.incoming.is_empty() && self.session.wants_read() {
            let mut buffer = self.session.recv_buffer();
            let some = left.min(self.incoming.len()).min(buffer.remaining_mut());
            let bytes: Vec<u8> = self.incoming.drain(..some).collect();
            buffer.put_slice(&bytes);
            self.session.handle_received(some, self.now);
            left -= some;
            if !self.session.is_authenticated() {
                let held = self.session.held_bytes();
                assert!(held <= MOST_HELD, "a stranger holds {held} bytes");
                let read = self.session.stats().bytes_in;
                assert!(
                    read <= u64::from(self.demanded.bytes) + READ_AT_ONCE,
                    "{read} bytes of a stranger were read"
                );
            }
        }
    }

    fn write(&mut self, count: usize) {
        let mut left = count;
        while left > 0 && self.session.transmit_len() > 0 {
            let mut slices = [std::io::IoSlice::new(&[]); 1];
            self.session.transmit(&mut slices);
            let some = slices[0].len().min(left);
            self.session.handle_written(some, self.now);
            left -= some;
        }
    }

    /// As a server does with the oldest HEARTBEAT.
    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let frame = self.asked.remove(0);
        match HeartbeatRequest::decode(&frame.header) {
            Ok(request) if request.token.secret() == RIGHT => self.session.set_authenticated(),
            Ok(_) => self.refused += 1,
            Err(_) => {
                self.session.handle_malformed_header(self.now);
                self.session.send_system_error(frame.call_id.raw(), frame.opcode, b"no");
                return;
            }
        }
        let header = encoded(&HeartbeatResponse::default());
        // Refused where the connection is over.
        let _ = self
            .session
            .send_response(frame.call_id, frame.opcode, true, &header, &[]);
        if self.refused >= MOST_REFUSED {
            self.throw_out();
        }
    }

    /// The token is about to expire.
    fn ask_for_another(&mut self) {
        if self.session.is_authenticated() {
            let ask = Outgoing {
                opcode: OpCode::HEARTBEAT,
                header: &encoded(&HeartbeatRequest::default()),
                payload: &[] as &[PayloadPart<'_>],
                user: 0,
                deadline: Some(self.now + Duration::from_secs(10)),
                receive_charge: 0,
            };
            let _ = self.session.send_request(self.now, ask);
        }
    }

    /// The token has expired, or was revoked.
    fn throw_out(&mut self) {
        self.session.go_away(b"gone", self.now);
        self.session.close();
        self.closing = true;
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
        let over = self.since + self.demanded.within + self.session.config().flush_timeout;
        let in_time = self.session.is_authenticated() || self.now < over;
        // The first timeout ends it, the second one the writing of its last bytes.
        self.session.handle_timeout(self.now);
        assert!(
            in_time || self.session.close_reason().is_some(),
            "a stranger is heard for too long"
        );
    }

    fn settle(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Request(frame) => self.requested(frame),
                Event::Reject {
                    raw_call_id,
                    opcode,
                    reason,
                    must_answer,
                } => {
                    if opcode != OpCode::PING {
                        self.came(raw_call_id);
                    }
                    assert!(
                        !matches!(reason, RejectReason::NotAuthenticated) || opcode != OpCode::HEARTBEAT,
                        "a stranger may say HEARTBEAT"
                    );
                    if must_answer {
                        self.session.send_system_error(raw_call_id, opcode, b"no");
                    }
                }
                _ => {}
            }
        }
    }

    fn requested(&mut self, frame: Frame) {
        assert!(!self.closing, "a request of one that was thrown out is served");
        self.came(frame.call_id.raw());
        if frame.opcode == OpCode::HEARTBEAT {
            assert!(
                self.session.is_authenticated() || self.asked.is_empty(),
                "two HEARTBEATs of a stranger at once"
            );
            self.asked.push(frame);
            return;
        }
        assert!(
            self.session.is_authenticated(),
            "{} of a stranger is served",
            frame.opcode
        );
        self.session
            .send_system_error(frame.call_id.raw(), frame.opcode, b"done");
    }

    /// A request was heard of: those before it were, or were discarded.
    fn came(&mut self, raw: u32) {
        if self.meddled {
            return;
        }
        let place = self.sent.iter().position(|sent| *sent == raw);
        let place = place.expect("a request that nobody sent, or one for the second time");
        self.sent.drain(..=place);
    }
}

fn encoded<M: Message>(message: &M) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(&mut Encoder::new(), &mut out);
    out.to_vec()
}

/// Scripts that go through the ways in and out, and one for every frame of the vectors.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    const IN: [u8; 2] = [8, 10];
    const WRONG: [u8; 6] = [2, 1, b'x', 0, 0, 0];
    const APPEND: [u8; 5] = [3, 0, 9, 20, 0];
    let mut seeds = vec![
        // Let in, then served.
        [&[0][..], &IN, &APPEND, &[8]].concat(),
        // Requests right behind the HEARTBEAT, in pieces.
        [&[0][..], &APPEND, &APPEND, &[6, 30, 6, 40, 10, 8, 9, 255, 255]].concat(),
        // Refused until it is closed.
        [&WRONG[..], &IN, &WRONG, &IN, &WRONG, &IN, &[0], &IN].concat(),
        // Not asked, and refused.
        [&APPEND[..], &[8], &[0], &IN].concat(),
        // Silent.
        vec![12, 0x10, 0x27, 12, 0xff, 0xff],
        // A frame that claims much.
        [&[5, 0, 0, 0, 1, 0, 0, 0, 2, 8][..], &[12, 0xff, 0xff]].concat(),
        // Asked for another token, then thrown out.
        [&[0][..], &IN, &[13, 9, 255, 255], &[14], &APPEND, &[8, 9, 255, 255]].concat(),
        // The peer goes first.
        [&[0][..], &[15, 0], &IN].concat(),
    ];
    for (_, file) in vectors::files("frames") {
        for (_, bytes) in file.iter().flat_map(|vector| &vector.parts) {
            let count = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
            seeds.push([&[4, count], &bytes[..usize::from(count)], &[8, 10]].concat());
        }
    }
    seeds
}
