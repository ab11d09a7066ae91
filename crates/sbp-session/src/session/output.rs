//! Queues frames for sending.

use std::time::Instant;

use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, FrameHead, FrameTooLarge, OpCode, PayloadPart, PushFrame};

use super::Session;
use crate::{
    Outgoing, SendError,
    own_calls::{AnswerLeft, OwnCall},
    phase::Phase,
};

impl Session {
    /// Queues a request and returns its id. The call ends with a [`crate::Event::Response`] whose `end` is set or with
    /// a [`crate::Event::CallFailed`]; a PING ends with a [`crate::Event::Pong`].
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued then, and the request may be sent on another connection.
    pub fn send_request(&mut self, now: Instant, request: Outgoing<'_>) -> Result<CallId, SendError> {
        self.advance_time(now);
        match self.phase {
            Phase::Unauthenticated { .. } | Phase::Open => {}
            Phase::Draining { .. } => return Err(SendError::GoingAway),
            Phase::Flushing { .. } | Phase::Closed { .. } => return Err(SendError::Closed),
        }
        let limits = &self.config.limits;
        // HEARTBEAT and PING are sent even when the limit of calls is reached, to keep the connection alive.
        let is_upkeep = matches!(request.opcode, OpCode::HEARTBEAT | OpCode::PING);
        if self.own.len() >= limits.own_calls && !is_upkeep {
            return Err(SendError::TooManyCalls);
        }
        check_header(request.header, limits.request_header)?;
        let id = self.own.next_id().ok_or(SendError::CallIdsExhausted)?;
        let left = AnswerLeft {
            frames: limits.answer_frames,
            bytes: u64::from(request.receive_charge).saturating_add(limits.answer_overshoot),
        };
        let position = self.queue.pushed();
        let head = FrameHead {
            opcode: request.opcode,
            flags: Flags::NONE,
            raw_call_id: id.raw(),
            format: FORMAT_FLATBUFFERS,
        };
        self.push(head, request.header, request.payload)?;
        let call = OwnCall {
            user: request.user,
            opcode: request.opcode,
            deadline: request.deadline,
            queued_at: now,
            position,
            charge: request.receive_charge,
            left,
            orphan: false,
        };
        self.own.insert(id, call);
        Ok(id)
    }

    /// Queues a PING; its answer is an [`crate::Event::Pong`]. Peers allow one per second.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued then.
    pub fn send_ping(&mut self, now: Instant, user: u64, deadline: Option<Instant>) -> Result<CallId, SendError> {
        let ping = Outgoing {
            opcode: OpCode::PING,
            header: &[],
            payload: &[],
            user,
            deadline,
            receive_charge: 0,
        };
        self.send_request(now, ping)
    }

    /// Queues a frame of the answer to request `to`. `end` marks the last one.
    ///
    /// # Errors
    /// [`SendError::UnknownCall`] when the request is not, or no longer, in flight. After any error nothing was queued,
    /// and the request is still in flight if it was before.
    pub fn send_response(
        &mut self,
        to: CallId,
        opcode: OpCode,
        end: bool,
        header: &[u8],
        payload: &[PayloadPart<'_>],
    ) -> Result<(), SendError> {
        if !self.phase.is_alive() {
            // The request is done, although its answer can no longer be sent.
            if end {
                self.peer.remove(to);
            }
            return Err(SendError::Closed);
        }
        if !self.peer.contains(to) {
            return Err(SendError::UnknownCall(to));
        }
        check_header(header, self.config.limits.response_header)?;
        let flags = if end {
            Flags::RESPONSE | Flags::END
        } else {
            Flags::RESPONSE
        };
        let head = FrameHead {
            opcode,
            flags,
            raw_call_id: to.raw(),
            format: FORMAT_FLATBUFFERS,
        };
        self.push(head, header, payload)?;
        if end {
            self.peer.remove(to);
            self.settle();
        }
        Ok(())
    }

    /// Queues a system error under the id that a request came with, and ends that request if it is in flight. Queues
    /// nothing once the connection is closing.
    pub fn send_system_error(&mut self, to_raw: u32, opcode: OpCode, header: &[u8]) {
        if !self.phase.is_alive() {
            if let Some(call) = CallId::from_raw(to_raw) {
                self.peer.remove(call);
            }
            return;
        }
        let flags = Flags::RESPONSE | Flags::END | Flags::SYSTEM_ERROR;
        let head = FrameHead {
            opcode,
            flags,
            raw_call_id: to_raw,
            format: FORMAT_FLATBUFFERS,
        };
        self.note_refusal();
        // Fails only if the header exceeds the limits of a frame; the request then ends without an answer.
        let _ = self.push(head, header, &[]);
        if let Some(call) = CallId::from_raw(to_raw) {
            self.peer.remove(call);
        }
        self.settle();
    }

    /// Counts the system errors that the peer has not taken yet.
    fn note_refusal(&mut self) {
        if self.refusals.last < self.queue.written() {
            self.refusals.count = 0;
        }
        self.refusals.count += 1;
        self.refusals.last = self.queue.pushed();
    }

    /// Gives up an own request: no more events come for it, and its answer is dropped when it comes. The peer may still
    /// carry out the request.
    pub fn cancel(&mut self, call: CallId) {
        self.orphan(call);
        self.settle();
    }

    /// Marks a request of the peer as waiting, so that it does not count against the limits of calls and bytes. False
    /// when it is not in flight or when [`crate::Limits::waits`] requests wait already; it has to be answered then.
    pub fn mark_waiting(&mut self, call: CallId) -> bool {
        self.peer.mark_waiting(call, self.config.limits.waits)
    }

    /// Appends a frame to the queue.
    pub(super) fn push(
        &mut self,
        head: FrameHead,
        header: &[u8],
        payload: &[PayloadPart<'_>],
    ) -> Result<(), FrameTooLarge> {
        let bytes = self.queue.push_frame(head, header, payload)?;
        self.keepalive.note_queued(self.now);
        self.stats.frames_out += 1;
        self.stats.bytes_out += bytes as u64;
        Ok(())
    }
}

fn check_header(header: &[u8], limit: u32) -> Result<(), SendError> {
    match u32::try_from(header.len()) {
        Ok(length) if length <= limit => Ok(()),
        _ => Err(SendError::HeaderTooLarge {
            length: header.len(),
            limit,
        }),
    }
}
