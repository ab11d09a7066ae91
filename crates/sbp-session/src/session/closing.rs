//! How a connection ends.

use std::time::Instant;

use bytes::Bytes;
use sbp_frame::{CallId, FORMAT_FLATBUFFERS, Flags, FrameHead, OpCode};

use super::Session;
use crate::{CallFailure, CloseReason, Event, Violation, own_calls::OwnCall, phase::Phase};

impl Session {
    /// Announces that this side starts nothing more. What was started is finished, for at most
    /// [`crate::SessionConfig::grace`]; then the connection ends. `header` is the encoded GoAway table.
    ///
    /// A server answers the FETCHes that wait itself, right after this. A second call does nothing.
    pub fn go_away(&mut self, header: &[u8], now: Instant) {
        self.advance_time(now);
        let until = Some(now + self.config.grace);
        match &mut self.phase {
            Phase::Open => self.phase = Phase::Draining { until },
            Phase::Draining { until: limit @ None } => *limit = until,
            Phase::Draining { .. } | Phase::Flushing { .. } | Phase::Closed { .. } => return,
        }
        self.push_go_away(header);
        self.settle();
    }

    /// Ends the connection: what is queued is written, what is in flight fails.
    pub fn close(&mut self) {
        self.end_after_flush(CloseReason::Local);
    }

    pub(super) fn handle_go_away(&mut self, last_started: u32, header: Bytes) {
        if self.peer_went_away {
            return;
        }
        self.peer_went_away = true;
        if matches!(self.phase, Phase::Open) {
            self.phase = Phase::Draining { until: None };
        }
        self.events.push_back(Event::PeerGoAway { last_started, header });
        for (call, own) in self.own.remove_above(last_started) {
            self.report(call, &own, CallFailure::NotStarted, true);
        }
        self.note_orphans();
    }

    /// Ends a connection that is going away and has nothing left to do.
    pub(super) fn settle(&mut self) {
        let Phase::Draining { until } = self.phase else { return };
        if self.own.busy() == 0 && self.peer.len() == 0 {
            let until = until.unwrap_or(self.now + self.config.grace);
            self.end(CloseReason::WentAway, Some(until));
        }
    }

    /// Ends for what the peer did: it is told, if it reads.
    pub(super) fn end_for(&mut self, violation: Violation) {
        if self.phase.is_alive() {
            let header = self.config.violation_header.clone();
            self.push_go_away(&header);
            self.end_after_flush(CloseReason::Violation(violation));
        }
    }

    /// As [`Session::end_for`], but without a word to a peer that never sent a frame.
    pub(super) fn end_foreign_or(&mut self, violation: Violation) {
        if self.stats.frames_in == 0 {
            self.end_now(CloseReason::NotSbp);
        } else {
            self.end_for(violation);
        }
    }

    /// Ends when what is queued is written.
    pub(super) fn end_after_flush(&mut self, reason: CloseReason) {
        self.end(reason, Some(self.now + self.config.flush_timeout));
    }

    /// Ends at once; what is queued is never written.
    pub(super) fn end_now(&mut self, reason: CloseReason) {
        if let Phase::Flushing { .. } = self.phase {
            return self.cut();
        }
        self.end(reason, None);
    }

    /// Gives up on the bytes that are still queued.
    pub(super) fn cut(&mut self) {
        if let Phase::Flushing { reason, .. } = &self.phase {
            self.phase = Phase::Closed { reason: reason.clone() };
            self.queue.clear();
        }
    }

    fn end(&mut self, reason: CloseReason, flush_until: Option<Instant>) {
        if !self.phase.is_alive() {
            return;
        }
        for (call, own) in self.own.remove_all() {
            self.report(call, &own, CallFailure::ConnectionClosed, flush_until.is_some());
        }
        self.events.push_back(Event::Closing { reason: reason.clone() });
        self.phase = match flush_until {
            Some(until) => Phase::Flushing { until, reason },
            None => {
                self.queue.clear();
                Phase::Closed { reason }
            }
        };
        self.receiver.stop();
        self.held = false;
        self.crowded_since = None;
    }

    /// Tells of a failed call, unless nobody waits for it. `still_written` says whether the queue goes on being
    /// written: then even a request of which no byte has left may reach the peer.
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
        // A header that fits no frame is a local mistake; the peer then learns of the end when it comes.
        let _ = self.push(head, header, &[]);
    }
}
