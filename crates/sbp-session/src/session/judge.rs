//! What is to be done with a frame, decided on its first 16 bytes.

use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, OpCode, Prelude};

use super::Session;
use crate::{CallFailure, RejectReason, Role, Violation, phase::Phase, receiver::Placement};

/// Payloads from this size on are worth an aligned allocation, if their memory was set aside.
const OWN_PLACE_FROM: u32 = 64 * 1024;

/// A decision about a frame whose body is not read yet.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Read the body.
    Read(Placement),
    /// Let the frame pass; it costs nothing.
    Skip,
    /// Let the frame pass, at the peer's cost.
    Discard,
    /// Let the frame pass, and refuse the request.
    Reject { reason: RejectReason, must_answer: bool },
    /// Let the frame pass; the own call it answers has failed.
    Fail {
        call: CallId,
        failure: CallFailure,
        discard: bool,
    },
    /// Let the frame pass, but take it for a GOAWAY without a header.
    BareGoAway,
    /// The connection cannot go on.
    Violation(Violation),
}

impl Session {
    /// The order of checks of the protocol from *Header Length* on; the first that matches decides. *Frame Length* and
    /// *Magic* come before it, in the receiver; checksum, CallId in flight and the header's content come after it.
    pub(super) fn judge(&mut self, prelude: &Prelude) -> Verdict {
        let Some(payload) = prelude.payload_length() else {
            let over_frame = Violation::HeaderOverFrame {
                header: prelude.header_length,
                frame: prelude.frame_length,
            };
            return Verdict::Violation(over_frame);
        };
        // Known by its opcode, whatever flags and number it has: peers disagree about both.
        if prelude.opcode == OpCode::GOAWAY {
            return match prelude.header_length {
                // A second one may cross with ours; more of them are noise.
                _ if self.peer_go_aways > 1 => Verdict::Discard,
                _ if self.peer_go_aways == 1 => {
                    self.peer_go_aways = 2;
                    Verdict::Skip
                }
                header if header > self.config.limits.request_header => Verdict::BareGoAway,
                _ => Verdict::Read(Placement::Blocks),
            };
        }
        let flags = Flags::from_bits_truncate(prelude.flags);
        if flags.is_response() {
            self.judge_response(prelude, payload)
        } else if flags != Flags::NONE && self.config.role == Role::Client {
            // It says that it ends an answer, and not that it is one. Servers put up with that: old clients set such bits.
            Verdict::Discard
        } else {
            self.judge_request(prelude, payload)
        }
    }

    fn judge_request(&mut self, prelude: &Prelude, payload: u32) -> Verdict {
        let reject = |reason| Verdict::Reject {
            reason,
            must_answer: true,
        };
        let limits = &self.config.limits;
        let is_ping = prelude.opcode == OpCode::PING;
        if !prelude.opcode.is_known() {
            return if self.config.answer_unknown_opcodes {
                reject(RejectReason::UnknownOpCode)
            } else {
                Verdict::Discard
            };
        }
        if CallId::from_raw(prelude.raw_call_id).is_none() {
            return reject(RejectReason::CallIdTopBit);
        }
        if prelude.format != FORMAT_FLATBUFFERS && !is_ping {
            return reject(RejectReason::HeaderFormat(prelude.format));
        }
        if prelude.header_length == 0 && !is_ping {
            return reject(RejectReason::HeaderMissing);
        }
        let (length, limit) = match is_ping {
            true => (prelude.header_length.saturating_add(payload), limits.ping),
            false => (prelude.header_length, limits.request_header),
        };
        if length > limit {
            return reject(RejectReason::HeaderTooLarge { length, limit });
        }
        if is_ping && !self.pings.take(1, self.now) {
            return Verdict::Discard;
        }
        // Who dialled has nothing to serve, and counts nothing: its limits are those of what it asks for.
        if !is_ping && self.config.role == Role::Client {
            return reject(RejectReason::NotServed);
        }
        if !is_ping && !matches!(self.phase, Phase::Open) {
            return Verdict::Reject {
                reason: RejectReason::GoingAway,
                must_answer: false,
            };
        }
        Verdict::Read(Placement::Blocks)
    }

    fn judge_response(&mut self, prelude: &Prelude, payload: u32) -> Verdict {
        let known = CallId::from_raw(prelude.raw_call_id).and_then(|id| Some((id, self.own.get_mut(id)?)));
        let Some((call, own)) = known else {
            // Who goes away may refuse what it did not start, which this side has heard of by then.
            let is_refusal = self.unstarted > 0 && Flags::from_bits_truncate(prelude.flags).ends_answer();
            if is_refusal {
                self.unstarted -= 1;
                return Verdict::Skip;
            }
            return Verdict::Discard;
        };
        let is_allowed = own.left.take(prelude.wire_length());
        if own.orphan {
            self.stats.late_answers += 1;
            if Flags::from_bits_truncate(prelude.flags).ends_answer() {
                self.forget(call);
            }
            // It was asked for once, so it costs the peer nothing, unless it never ends.
            return if is_allowed { Verdict::Skip } else { Verdict::Discard };
        }
        if !is_allowed {
            return Verdict::Fail {
                call,
                failure: CallFailure::AnswerTooLong,
                discard: true,
            };
        }
        if prelude.opcode != own.opcode {
            let failure = CallFailure::OpCodeMismatch { found: prelude.opcode };
            return Verdict::Fail {
                call,
                failure,
                discard: true,
            };
        }
        let is_pong = prelude.opcode == OpCode::PING;
        let bad = |reason, discard| Verdict::Fail {
            call,
            failure: CallFailure::BadAnswer(reason),
            discard,
        };
        if prelude.format != FORMAT_FLATBUFFERS && !is_pong {
            return bad(RejectReason::HeaderFormat(prelude.format), false);
        }
        if prelude.header_length == 0 && !is_pong {
            return bad(RejectReason::HeaderMissing, false);
        }
        let limits = &self.config.limits;
        let (length, limit) = match is_pong {
            true => (prelude.header_length.saturating_add(payload), limits.ping),
            false => (prelude.header_length, limits.response_header),
        };
        if length > limit {
            return bad(RejectReason::HeaderTooLarge { length, limit }, true);
        }
        let is_paid = payload >= OWN_PLACE_FROM && payload <= own.charge;
        let is_small = payload < self.config.detach_payloads_below.min(OWN_PLACE_FROM);
        Verdict::Read(if payload > 0 && (is_paid || is_small) {
            Placement::Own
        } else {
            Placement::Blocks
        })
    }
}
