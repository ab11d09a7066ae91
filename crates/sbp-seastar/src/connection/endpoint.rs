//! The connection as its driver knows it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use bytes::{BytesMut, buf::Limit};
use sbp_wire::{Endpoint, Part, Phase, TooSlow};

use super::{Connection, Role, Stage};
use crate::event::{CallFailure, CloseReason, Event};
use crate::limits::STREAM_WINDOW_BYTES;

impl Endpoint for Connection {
    type Event = Event;
    type Reason = CloseReason;

    fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        self.intake.buffer()
    }

    fn wants_read(&self) -> bool {
        self.is_open() && (self.has_room() || self.is_mid_frame() && !self.held)
    }

    fn handle_received(&mut self, count: usize, now: Instant) {
        self.advance_time(now);
        self.bytes_in = self.bytes_in.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        self.intake.note_received(count);
        self.parse();
    }

    fn handle_eof(&mut self, now: Instant) {
        self.advance_time(now);
        let reason = CloseReason::Peer {
            is_idle: self.is_idle(),
        };
        match self.role {
            Role::Client(_) => self.end_now(reason),
            Role::Server(_) => self.end_after_flush(reason),
        }
    }

    fn note_nothing_to_read(&mut self) {
        self.intake.shrink();
    }

    fn is_mid_frame(&self) -> bool {
        self.part() != Part::Nothing
    }

    fn frames_in(&self) -> u64 {
        self.stats.frames_in
    }

    fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.queue.slices(slices)
    }

    fn transmit_len(&self) -> usize {
        self.queue.len()
    }

    fn handle_written(&mut self, count: usize, now: Instant) {
        self.advance_time(now);
        self.queue.advance(count);
        self.keepalive.note_written(!self.queue.is_empty(), self.now);
        let written = self.queue.written();
        if let Role::Client(client) = &mut self.role {
            while let Some(unsent) = client.unsent.pop_front_if(|unsent| unsent.ends <= written) {
                self.events.push_back(Event::Sent { user: unsent.user });
            }
        }
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.is_full)
            && self.queue.len() < STREAM_WINDOW_BYTES
        {
            stream.is_full = false;
            self.events.push_back(Event::Room);
        }
    }

    fn bytes_out(&self) -> u64 {
        self.queue.pushed()
    }

    fn note_time(&mut self, now: Instant) {
        self.advance_time(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let negotiation = self.negotiate_by.map(|(by, _)| by);
        let of_role = match (&self.phase, &self.role) {
            (Phase::Closed { .. }, _) => return None,
            (Phase::Flushing { until, .. }, _) => return Some(*until),
            (Phase::Open, Role::Client(client)) => client.calls.next_deadline(),
            (Phase::Open, Role::Server(server)) => server.arrival.due(),
        };
        let all = [negotiation, of_role, self.keepalive.next_stall()];
        all.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance_time(now);
        if !self.is_open() {
            if let Some(reason) = self.phase.overdue(self.now) {
                self.end_now(reason);
            }
            return;
        }
        // The protocol has no message by which a peer without anything to say could say so.
        let due = self.keepalive.check(self.now, true);
        if let Some(patience) = due.stalled {
            return self.end_now(CloseReason::Stalled(patience));
        }
        if let Some((_, patience)) = self.negotiate_by.filter(|(by, _)| *by <= self.now) {
            return self.end_now(CloseReason::NotNegotiated(patience));
        }
        match &mut self.role {
            Role::Client(client) => {
                while let Some(call) = client.calls.take_due(self.now) {
                    // A queued frame cannot be taken back, so it will be written.
                    self.events.push_back(Event::CallFailed {
                        user: call.what,
                        failure: CallFailure::DeadlineExceeded,
                        bytes_sent: true,
                    });
                }
            }
            Role::Server(server) => {
                if let Some(TooSlow { bytes, within }) = server.arrival.check(self.now) {
                    self.end_after_flush(CloseReason::TooSlow { bytes, within });
                }
            }
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() && self.held && self.has_room() {
            self.parse();
        }
        self.events.pop_front()
    }

    fn held_bytes(&self) -> usize {
        let requests = match &self.role {
            Role::Client(_) => 0,
            Role::Server(server) => server.bytes,
        };
        let unread = self.stream.map_or(0, |stream| stream.unread_bytes);
        requests + unread + self.queue.len() + self.intake.received().len()
    }

    fn set_tight(&mut self, tight: bool, now: Instant) {
        self.advance_time(now);
        self.tight = tight && matches!(self.role, Role::Server(_));
        self.keepalive.note_short(self.tight, self.now);
    }

    fn is_tight(&self) -> bool {
        self.tight
    }

    fn peer_calls(&self) -> usize {
        match &self.role {
            Role::Client(_) => 0,
            Role::Server(server) => server.calls.len(),
        }
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn handle_transport_error(&mut self, error: io::Error, now: Instant) {
        self.advance_time(now);
        self.end_now(CloseReason::Transport(Arc::new(error)));
    }

    fn close(&mut self) {
        // A stream that was not let in is told nothing.
        match self.stage {
            Stage::Admission => self.end_now(CloseReason::Local),
            _ => self.end_after_flush(CloseReason::Local),
        }
    }

    fn is_closed(&self) -> bool {
        self.phase.is_over(self.queue.is_empty())
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.phase.reason()
    }
}
