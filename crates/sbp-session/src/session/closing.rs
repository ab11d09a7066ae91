//! The end of a connection.

use std::time::Instant;

use bytes::Bytes;
use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, FrameHead, OpCode};

use super::Session;
use crate::{
    CallFailure, CloseReason, Event, Violation,
    own_calls::OwnCall,
    phase::{Phase, Step},
};

impl Session {
    /// Announces that this side starts no more requests. Calls in flight may finish within
    /// [`crate::SessionConfig::grace`]; then the connection is closed. `header` is the encoded GoAway table.
    ///
    /// A server has to answer the waiting FETCHes itself, right after this call. A second call does nothing.
    pub fn go_away(&mut self, header: &[u8], now: Instant) {
        self.advance_time(now);
        let until = now + self.config.grace;
        if self.step(Step::Announce { until }) {
            self.push_go_away(header);
            self.settle();
        }
    }

    /// Closes the connection: queued bytes are still written, calls in flight fail.
    pub fn close(&mut self) {
        self.end_after_flush(CloseReason::Local);
    }

    pub(super) fn handle_go_away(&mut self, last_started: u32, header: Bytes) {
        self.peer_go_aways = 1;
        self.step(Step::PeerAnnounces);
        self.events.push_back(Event::PeerGoAway { last_started, header });
        for (call, own) in self.own.remove_above(Some(last_started)) {
            self.unstarted += 1;
            self.report(call, &own, CallFailure::NotStarted, true);
        }
        self.note_orphans();
    }

    /// Closes a connection that is going away and has no calls in flight.
    pub(super) fn settle(&mut self) {
        if matches!(self.phase, Phase::Draining { .. }) && self.own.busy() == 0 && self.peer.len() == 0 {
            let flush_by = self.now + self.config.grace;
            self.step(Step::NothingLeft { flush_by });
        }
    }

    /// Closes the connection because of a violation, and tells the peer.
    pub(super) fn end_for(&mut self, violation: Violation) {
        self.end_with_word(CloseReason::Violation(violation));
    }

    /// Closes a connection whose peer has not said in time who it is.
    pub(super) fn end_unauthenticated(&mut self) {
        let Some(demanded) = self.demanded() else { return };
        let (reason, goodbye) = (CloseReason::NotAuthenticated(demanded.within), demanded.goodbye.clone());
        if self.stats.frames_in == 0 {
            self.end_now(reason);
        } else {
            self.end_with_header(reason, &goodbye);
        }
    }

    /// Counts a frame that begins to arrive, and closes the connection where that is too much for a peer that has not said
    /// who it is. Returns whether the frame may be handled. It counts with the length that it claims, so that nothing of
    /// one that is too long is waited for.
    pub(super) fn admit(&mut self, wire_length: u64, is_answered_ping: bool) -> bool {
        let (Some(demanded), Some(mut sent)) = (self.demanded(), self.unauthenticated) else {
            return true;
        };
        let (frames, bytes, goodbye) = (demanded.frames, demanded.bytes, demanded.goodbye.clone());
        sent.frames = sent.frames.saturating_add(u16::from(!is_answered_ping));
        sent.bytes = sent
            .bytes
            .saturating_add(u32::try_from(wire_length).unwrap_or(u32::MAX));
        self.unauthenticated = Some(sent);
        let is_admitted = sent.frames <= frames && sent.bytes <= bytes;
        if !is_admitted {
            self.end_with_header(CloseReason::TooMuchUnauthenticated { frames, bytes }, &goodbye);
        }
        is_admitted
    }

    /// Closes the connection after a GOAWAY that says that the peer is the reason.
    fn end_with_word(&mut self, reason: CloseReason) {
        let header = self.config.violation_header.clone();
        self.end_with_header(reason, &header);
    }

    fn end_with_header(&mut self, reason: CloseReason, header: &[u8]) {
        if self.phase.is_alive() {
            self.push_go_away(header);
            self.end_after_flush(reason);
        }
    }

    /// Closes the connection because a frame arrives too slowly. A peer that never sent a complete frame may not speak
    /// the protocol, so it gets no GOAWAY.
    pub(super) fn end_for_slowness(&mut self, reason: CloseReason) {
        if self.stats.frames_in == 0 {
            self.end_now(reason);
        } else {
            self.end_with_word(reason);
        }
    }

    /// As [`Session::end_for`], but without a GOAWAY to a peer that never sent a complete frame. One that speaks TLS gets
    /// it: that the answer is plain is how it finds out that this side does not.
    pub(super) fn end_foreign_or(&mut self, violation: Violation) {
        match violation {
            _ if self.stats.frames_in > 0 => self.end_for(violation),
            Violation::FrameLength(length) if begins_tls(length) => self.end_with_word(CloseReason::SpeaksTls),
            _ => self.end_now(CloseReason::NotSbp),
        }
    }

    /// Closes the connection when the queued bytes are written.
    pub(super) fn end_after_flush(&mut self, reason: CloseReason) {
        let flush_by = self.now + self.config.flush_timeout;
        self.step(Step::End { reason, flush_by });
    }

    /// Closes the connection at once; queued bytes are dropped.
    pub(super) fn end_now(&mut self, reason: CloseReason) {
        self.step(Step::Cut { reason });
    }

    /// Changes the phase by `step`. If that ends the connection, fails the calls in flight and tells the layer above.
    /// Returns whether the phase changed.
    pub(super) fn step(&mut self, step: Step) -> bool {
        let Some(next) = self.phase.after(step) else {
            return false;
        };
        let still_written = matches!(next, Phase::Flushing { .. });
        if let (true, Some(reason)) = (self.phase.is_alive(), next.reason()) {
            for (call, own) in self.own.remove_above(None) {
                self.report(call, &own, CallFailure::ConnectionClosed, still_written);
            }
            self.events.push_back(Event::Closing { reason: reason.clone() });
            self.receiver.stop();
            self.arrival.stop();
            self.held = false;
            self.crowded_since = None;
        }
        if matches!(next, Phase::Closed { .. }) {
            self.queue.clear();
        }
        self.phase = next;
        true
    }

    /// Reports a failed call, unless it is an orphan. `still_written` says whether queued bytes are still written: then
    /// the request may reach the peer even if no byte of it was written yet.
    fn report(&mut self, call: CallId, own: &OwnCall, failure: CallFailure, still_written: bool) {
        if !own.orphan {
            let bytes_sent = still_written || self.queue.written() > own.position;
            self.events.push_back(Event::CallFailed {
                user: own.user,
                call,
                failure,
                bytes_sent,
            });
        }
    }

    fn push_go_away(&mut self, header: &[u8]) {
        let head = FrameHead {
            opcode: OpCode::GOAWAY,
            flags: Flags::NONE,
            raw_call_id: self.peer.highest_started(),
            format: FORMAT_FLATBUFFERS,
        };
        // Fails only if the header exceeds the limits of a frame, an error of this side. The peer then sees only the
        // close.
        let _ = self.push(head, header, &[]);
    }
}

/// Whether the four bytes of a length begin a record of TLS instead: an alert or a message of its handshake, of any version.
fn begins_tls(length: u32) -> bool {
    let [kind, major, ..] = length.to_be_bytes();
    matches!(kind, 0x15 | 0x16) && major == 3
}
