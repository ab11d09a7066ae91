//! Handles received bytes and frames.

use std::{io, sync::Arc, time::Instant};

use bytes::Bytes;
use sbp_frame::{CallId, Flags, Frame, FrameHead, OpCode, PayloadPart, Prelude};
use smallvec::SmallVec;

use super::{Session, judge::FrameDecision};
use crate::{
    CallFailure, CloseReason, Event, RejectReason, Role, Violation,
    phase::Phase,
    receiver::{Progress, Received},
};

/// The cost of a frame that has to be discarded.
const DISCARD_COST: u32 = 1;
/// The cost of a request whose header cannot be decoded; higher, because all of it had to be read.
const MALFORMED_COST: u32 = 2;

impl Session {
    /// `count` bytes were read into [`Session::recv_buffer`]. Handles all frames that are complete now, as far as the
    /// limits allow.
    pub fn handle_received(&mut self, count: usize, now: Instant) {
        self.advance_time(now);
        self.stats.bytes_in += count as u64;
        self.receiver.note_received(count);
        self.parse();
    }

    /// The peer has closed its side. A server still writes its queued answers, which the peer may still read; a client
    /// closes at once.
    pub fn handle_eof(&mut self, now: Instant) {
        self.advance_time(now);
        let reason = CloseReason::Peer {
            mid_frame: self.receiver.is_mid_frame(),
        };
        match self.config.role {
            Role::Client => self.end_now(reason),
            Role::Server => self.end_after_flush(reason),
        }
    }

    /// The socket has failed: nothing more can be read or written.
    pub fn handle_transport_error(&mut self, error: io::Error, now: Instant) {
        self.advance_time(now);
        self.end_now(CloseReason::Transport(Arc::new(error)));
    }

    /// The layer above could not decode a request's header. That costs the peer more than a frame refused by its first
    /// 16 bytes.
    pub fn handle_malformed_header(&mut self, now: Instant) {
        self.advance_time(now);
        self.charge(MALFORMED_COST);
    }

    /// Parses and handles frames until the received bytes are used up or a limit is reached.
    pub(super) fn parse(&mut self) {
        self.held = false;
        while self.phase.is_alive() {
            if self.receiver.is_between_frames() && !self.may_begin() {
                self.held = true;
                self.arrival.stop();
                return;
            }
            match self.receiver.poll() {
                Progress::NeedBytes => {
                    self.tell_begun();
                    let (part, frame) = (self.receiver.part(), self.stats.frames_in);
                    return self.arrival.note(part, frame, self.stats.bytes_in, self.now);
                }
                Progress::ImpossibleLength(length) => self.end_foreign_or(Violation::FrameLength(length)),
                Progress::ForeignMagic { .. } if self.stats.frames_in == 0 => self.end_now(CloseReason::NotSbp),
                Progress::ForeignMagic { wire_length } => {
                    if self.admit(wire_length, false) {
                        self.discard(wire_length);
                    }
                }
                Progress::Head(prelude) => self.handle_head(prelude),
                Progress::Skipped => self.note_frame(),
                Progress::Complete(received) => {
                    self.note_frame();
                    self.handle_complete(received);
                }
            }
            // After each frame, so that the end does not depend on how many frames a read brings.
            self.settle();
        }
        self.receiver.stop();
    }

    /// Announces an answer whose header has arrived and whose payload has not.
    fn tell_begun(&mut self) {
        if !self.config.announce_answers {
            return;
        }
        let Some((prelude, header)) = self.receiver.take_begun() else {
            return;
        };
        let Some(call) = CallId::from_raw(prelude.raw_call_id) else {
            return;
        };
        if let Some(own) = self.own.get(call).filter(|own| !own.orphan) {
            let user = own.user;
            self.events.push_back(Event::ResponseBegins { user, call, header });
        }
    }

    fn handle_head(&mut self, prelude: Prelude) {
        let wire_length = prelude.wire_length();
        let decision = self.judge(&prelude);
        let is_answered_ping = prelude.opcode == OpCode::PING && matches!(decision, FrameDecision::Read(_));
        if !self.admit(wire_length, is_answered_ping) {
            return;
        }
        match decision {
            FrameDecision::Read(placement) => self.receiver.read(prelude, placement),
            FrameDecision::Skip => self.receiver.skip(wire_length),
            FrameDecision::Discard => self.discard(wire_length),
            FrameDecision::Reject { reason, must_answer } => {
                self.receiver.skip(wire_length);
                self.stats.rejected += 1;
                let (raw_call_id, opcode) = (prelude.raw_call_id, prelude.opcode);
                self.events.push_back(Event::Reject {
                    raw_call_id,
                    opcode,
                    reason,
                    must_answer,
                });
            }
            FrameDecision::Fail { call, failure, discard } => {
                self.fail_answered(call, failure, Flags::from_bits_truncate(prelude.flags).ends_answer());
                if discard {
                    self.discard(wire_length);
                } else {
                    self.receiver.skip(wire_length);
                }
            }
            FrameDecision::BareGoAway => {
                self.receiver.skip(wire_length);
                self.handle_go_away(prelude.raw_call_id, Bytes::new());
            }
            FrameDecision::Violation(violation) => self.end_for(violation),
        }
    }

    fn handle_complete(&mut self, received: Received) {
        let Received {
            prelude,
            header,
            payload,
            stated,
            found,
        } = received;
        self.stats.copied_bytes = self.receiver.copied();
        if stated != found {
            if !payload.is_empty() {
                return self.end_for(Violation::Checksum { stated, found });
            }
            // An empty payload cannot be damaged, whatever its checksum says.
            self.stats.odd_checksums += 1;
        }
        if prelude.opcode == OpCode::GOAWAY {
            return self.handle_go_away(prelude.raw_call_id, header);
        }
        // Ids with the top bit set were refused before the body was read.
        let Some(call_id) = CallId::from_raw(prelude.raw_call_id) else {
            return;
        };
        let flags = Flags::from_bits_truncate(prelude.flags);
        let frame = Frame {
            opcode: prelude.opcode,
            flags,
            call_id,
            format: prelude.format,
            header,
            payload,
        };
        if flags.is_response() {
            self.handle_response(frame);
        } else {
            self.handle_request(frame, prelude.wire_length());
        }
    }

    fn handle_request(&mut self, frame: Frame, wire_length: u64) {
        if self.peer.contains(frame.call_id) {
            return self.end_for(Violation::CallIdInFlight(frame.call_id));
        }
        if frame.opcode == OpCode::PING {
            self.peer.note_started(frame.call_id);
            return self.answer_ping(&frame);
        }
        if !matches!(self.phase, Phase::Unauthenticated { .. } | Phase::Open) {
            // The request began to arrive before this side announced the end, but was not counted as started.
            self.stats.rejected += 1;
            return self.events.push_back(Event::Reject {
                raw_call_id: frame.call_id.raw(),
                opcode: frame.opcode,
                reason: RejectReason::GoingAway,
                must_answer: false,
            });
        }
        self.peer
            .insert(frame.call_id, usize::try_from(wire_length).unwrap_or(usize::MAX));
        self.events.push_back(Event::Request(frame));
    }

    fn answer_ping(&mut self, ping: &Frame) {
        let parts: SmallVec<[_; 1]> = ping
            .payload
            .chunks()
            .iter()
            .map(|chunk| PayloadPart::Copy(chunk))
            .collect();
        let head = FrameHead {
            opcode: OpCode::PING,
            flags: Flags::RESPONSE | Flags::END,
            raw_call_id: ping.call_id.raw(),
            format: ping.format,
        };
        // It fits, because the request was as large.
        if self.push(head, &ping.header, &parts).is_ok() {
            self.stats.pings_answered += 1;
        }
    }

    fn handle_response(&mut self, frame: Frame) {
        let call = frame.call_id;
        // An answer to PING is always one frame, even if its sender did not set the END flag.
        let end = frame.flags.ends_answer() || frame.opcode == OpCode::PING;
        // The call was known when the body began to arrive; it may have ended since.
        let Some(own) = self.own.get_mut(call) else { return };
        let (user, queued_at) = (own.user, own.queued_at);
        own.charge = own
            .charge
            .saturating_sub(u32::try_from(frame.payload.len()).unwrap_or(u32::MAX));
        if own.orphan {
            self.stats.late_answers += 1;
        } else if frame.opcode == OpCode::PING {
            let rtt = self.now.saturating_duration_since(queued_at);
            self.events.push_back(Event::Pong { user, rtt });
        } else {
            self.events.push_back(Event::Response { user, call, frame, end });
        }
        if end {
            self.forget(call);
        }
    }

    /// An answer is unusable: fails the call, and drops the rest of the answer.
    fn fail_answered(&mut self, call: CallId, failure: CallFailure, end: bool) {
        if let Some(own) = self.own.get(call) {
            self.events.push_back(Event::CallFailed {
                user: own.user,
                call,
                failure,
                bytes_sent: true,
            });
        }
        if end {
            self.forget(call);
        } else {
            self.orphan(call);
        }
    }

    fn discard(&mut self, wire_length: u64) {
        self.receiver.skip(wire_length);
        self.stats.discarded += 1;
        self.charge(DISCARD_COST);
    }

    fn charge(&mut self, cost: u32) {
        if !self.discards.take(cost, self.now) {
            self.end_for(Violation::TooManyDiscards);
        }
    }

    fn note_frame(&mut self) {
        self.stats.frames_in += 1;
        self.keepalive.note_received(self.now);
    }
}
