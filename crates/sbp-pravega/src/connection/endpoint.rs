//! The connection as its driver knows it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use bytes::{BytesMut, buf::Limit};
use sbp_wire::{Endpoint, TooSlow};

use super::{Connection, Phase, Role};
use crate::event::{CallFailure, CloseReason, Event};

impl Endpoint for Connection {
    type Event = Event;
    type Reason = CloseReason;

    fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        self.intake.buffer()
    }

    fn wants_read(&self) -> bool {
        self.is_open() && (self.has_room() || self.is_amid_frame() && !self.held)
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
            Role::Client { .. } => self.end_now(reason),
            Role::Server { .. } => self.end_after_flush(reason),
        }
    }

    fn note_nothing_to_read(&mut self) {
        self.intake.shrink();
    }

    fn is_mid_frame(&self) -> bool {
        self.is_amid_frame()
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
    }

    fn bytes_out(&self) -> u64 {
        self.queue.pushed()
    }

    fn note_time(&mut self, now: Instant) {
        self.advance_time(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_role = match (&self.phase, &self.role) {
            (Phase::Closed { .. }, _) => return None,
            (Phase::Flushing { until, .. }, _) => return Some(*until),
            (Phase::Open, Role::Client { greeted_by, calls, .. }) => [*greeted_by, calls.next_deadline()],
            (Phase::Open, Role::Server { arrival, .. }) => [arrival.due(), None],
        };
        of_role.into_iter().flatten().chain([self.keepalive.next()]).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance_time(now);
        match &self.phase {
            Phase::Closed { .. } => return,
            Phase::Flushing { .. } => {
                if let Some(reason) = self.phase.overdue(self.now) {
                    self.end_now(reason);
                }
                return;
            }
            Phase::Open => {}
        }
        // A server answers every KeepAlive, so one that says nothing is gone, whatever is asked of it.
        let may_be_silent = match &self.role {
            Role::Client { .. } => false,
            Role::Server { calls, .. } => !calls.is_empty(),
        };
        let due = self.keepalive.check(self.now, may_be_silent);
        if let Some(patience) = due.stalled {
            return self.end_now(CloseReason::Stalled(patience));
        }
        if due.silent {
            return self.end_after_flush(CloseReason::Silent(self.keepalive.silence()));
        }
        match &mut self.role {
            Role::Client {
                config,
                greeted_by,
                calls,
                ..
            } => {
                if greeted_by.is_some_and(|by| by <= self.now) {
                    let patience = config.greeting;
                    return self.end_after_flush(CloseReason::NotGreeted(patience));
                }
                let is_greeted = greeted_by.is_none();
                while let Some(call) = calls.take_due(self.now) {
                    // A queued frame cannot be taken back, so it will be written.
                    self.events.push_back(Event::CallFailed {
                        user: call.what.user,
                        failure: CallFailure::DeadlineExceeded,
                        bytes_sent: true,
                    });
                }
                if due.interval && is_greeted {
                    self.keep_alive();
                }
            }
            Role::Server { arrival, .. } => {
                if let Some(TooSlow { bytes, within }) = arrival.check(self.now) {
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
            Role::Client { .. } => 0,
            Role::Server { bytes, block, .. } => *bytes + block.as_ref().map_or(0, |(_, data)| data.len()),
        };
        requests + self.queue.len() + self.intake.received().len()
    }

    fn set_tight(&mut self, tight: bool, now: Instant) {
        self.advance_time(now);
        self.tight = tight && matches!(self.role, Role::Server { .. });
        self.keepalive.note_short(self.tight, self.now);
    }

    fn is_tight(&self) -> bool {
        self.tight
    }

    fn peer_calls(&self) -> usize {
        match &self.role {
            Role::Client { .. } => 0,
            Role::Server { calls, .. } => calls.len(),
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
        self.end_after_flush(CloseReason::Local);
    }

    fn is_closed(&self) -> bool {
        self.phase.is_over(self.queue.is_empty())
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.phase.reason()
    }
}
