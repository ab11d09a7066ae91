//! Decides how to handle a frame, from its first 16 bytes.

use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, OpCode, Prelude};

use super::Session;
use crate::{CallFailure, Limits, RejectReason, Role, Violation, phase::Phase, receiver::Placement};

/// Payloads of at least this size get an aligned allocation of their own, if memory was set aside for them.
const OWN_PLACE_FROM: u32 = 64 * 1024;

/// A decision about a frame whose body is not read yet.
#[derive(Debug)]
pub(super) enum FrameDecision {
    /// Read the body.
    Read(Placement),
    /// Skip the body, at no cost to the peer.
    Skip,
    /// Skip the body, at the peer's cost.
    Discard,
    /// Skip the body and refuse the request.
    Reject { reason: RejectReason, must_answer: bool },
    /// Skip the body and fail the own call that the frame answers.
    Fail {
        call: CallId,
        failure: CallFailure,
        discard: bool,
    },
    /// Skip the body and treat the frame as a GOAWAY without a header.
    BareGoAway,
    /// Close the connection.
    Violation(Violation),
}

impl Session {
    /// Does the protocol's checks from *Header Length* on, in its order; the first that fails decides. *Frame Length*
    /// and *Magic* were checked before, in the receiver; the checksum, the CallId and the header's content are checked
    /// later.
    pub(super) fn judge(&mut self, prelude: &Prelude) -> FrameDecision {
        let Some(payload) = prelude.payload_length() else {
            let over_frame = Violation::HeaderOverFrame {
                header: prelude.header_length,
                frame: prelude.frame_length,
            };
            return FrameDecision::Violation(over_frame);
        };
        // A GOAWAY is recognised by its opcode alone, because peers disagree about its flags and CallId.
        if prelude.opcode == OpCode::GOAWAY {
            return match prelude.header_length {
                // A second GOAWAY may cross with this side's; further ones cost the peer.
                _ if self.peer_go_aways > 1 => FrameDecision::Discard,
                _ if self.peer_go_aways == 1 => {
                    self.peer_go_aways = 2;
                    FrameDecision::Skip
                }
                header if header > self.config.limits.request_header => FrameDecision::BareGoAway,
                _ => FrameDecision::Read(Placement::Blocks),
            };
        }
        let flags = Flags::from_bits_truncate(prelude.flags);
        if flags.is_response() {
            self.judge_response(prelude, payload)
        } else if flags != Flags::NONE && self.config.role == Role::Client {
            // The flags are those of an answer, but RESPONSE is missing. A server accepts such requests, because old
            // clients set these flags.
            FrameDecision::Discard
        } else {
            self.judge_request(prelude, payload)
        }
    }

    fn judge_request(&mut self, prelude: &Prelude, payload: u32) -> FrameDecision {
        let reject = |reason| FrameDecision::Reject {
            reason,
            must_answer: true,
        };
        let limits = &self.config.limits;
        let is_ping = prelude.opcode == OpCode::PING;
        if !prelude.opcode.is_known() {
            return if self.config.answer_unknown_opcodes {
                reject(RejectReason::UnknownOpCode)
            } else {
                FrameDecision::Discard
            };
        }
        if CallId::from_raw(prelude.raw_call_id).is_none() {
            return reject(RejectReason::CallIdTopBit);
        }
        if let Some(reason) = header_fault(prelude, payload, limits, limits.request_header) {
            return reject(reason);
        }
        if is_ping && !self.pings.take(1, self.now) {
            return FrameDecision::Discard;
        }
        // A client, which has opened the connection, serves no requests but PING.
        if !is_ping && self.config.role == Role::Client {
            return reject(RejectReason::NotServed);
        }
        if let Some(demanded) = self.demanded() {
            if !is_ping && prelude.opcode != OpCode::HEARTBEAT {
                return reject(RejectReason::NotAuthenticated);
            }
            let (length, limit) = (prelude.header_length.saturating_add(payload), demanded.heartbeat);
            if length > limit {
                return reject(RejectReason::HeaderTooLarge { length, limit });
            }
        } else if !is_ping && !matches!(self.phase, Phase::Open) {
            return FrameDecision::Reject {
                reason: RejectReason::GoingAway,
                must_answer: false,
            };
        }
        FrameDecision::Read(Placement::Blocks)
    }

    fn judge_response(&mut self, prelude: &Prelude, payload: u32) -> FrameDecision {
        let known = CallId::from_raw(prelude.raw_call_id).and_then(|id| Some((id, self.own.get_mut(id)?)));
        let Some((call, own)) = known else {
            // After its GOAWAY a peer may still refuse the requests it did not start. These have failed on this side
            // already.
            let is_refusal = self.unstarted > 0 && Flags::from_bits_truncate(prelude.flags).ends_answer();
            if is_refusal {
                self.unstarted -= 1;
                return FrameDecision::Skip;
            }
            return FrameDecision::Discard;
        };
        let is_allowed = own.left.take(prelude.wire_length());
        if own.orphan {
            self.stats.late_answers += 1;
            if Flags::from_bits_truncate(prelude.flags).ends_answer() {
                self.forget(call);
            }
            // The orphan's answer was requested once, so it costs the peer nothing, unless it exceeds the limits.
            return if is_allowed {
                FrameDecision::Skip
            } else {
                FrameDecision::Discard
            };
        }
        let fail = |failure, discard| FrameDecision::Fail { call, failure, discard };
        if !is_allowed {
            return fail(CallFailure::AnswerTooLong, true);
        }
        if prelude.opcode != own.opcode {
            return fail(CallFailure::OpCodeMismatch { found: prelude.opcode }, true);
        }
        let limits = &self.config.limits;
        if let Some(reason) = header_fault(prelude, payload, limits, limits.response_header) {
            let is_too_large = matches!(reason, RejectReason::HeaderTooLarge { .. });
            return fail(CallFailure::BadAnswer(reason), is_too_large);
        }
        let is_paid = payload >= OWN_PLACE_FROM && payload <= own.charge;
        let is_small = payload < self.config.detach_payloads_below.min(OWN_PLACE_FROM);
        FrameDecision::Read(if payload > 0 && (is_paid || is_small) {
            Placement::Own
        } else {
            Placement::Blocks
        })
    }
}

/// What is wrong with the header of a frame, for which `limit` is allowed. A PING need not have one; it is limited as a
/// whole.
fn header_fault(prelude: &Prelude, payload: u32, limits: &Limits, limit: u32) -> Option<RejectReason> {
    let (length, limit) = if prelude.opcode == OpCode::PING {
        (prelude.header_length.saturating_add(payload), limits.ping)
    } else if prelude.format != FORMAT_FLATBUFFERS {
        return Some(RejectReason::HeaderFormat(prelude.format));
    } else if prelude.header_length == 0 {
        return Some(RejectReason::HeaderMissing);
    } else {
        (prelude.header_length, limit)
    };
    (length > limit).then_some(RejectReason::HeaderTooLarge { length, limit })
}
