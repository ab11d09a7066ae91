//! The connection as its driver knows it.

use std::time::Instant;

use sbp_wire::{Core, Due, Machine, Part, TooSlow};

use super::{Connection, Role, Stage};
use crate::event::{CallFailure, CloseReason, Event};
use crate::limits::{STREAM_WINDOW_BYTES, STREAM_WINDOW_FRAMES};

impl Machine for Connection {
    type Event = Event;
    type Reason = CloseReason;

    fn core(&self) -> &Core<Event, CloseReason> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core<Event, CloseReason> {
        &mut self.core
    }

    fn closing(reason: CloseReason) -> Event {
        Event::Closing { reason }
    }

    fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// A client that waits for replies has no such limits: if it stopped reading, its own replies would be held up.
    fn has_room(&self) -> bool {
        if let Some(stream) = &self.stream {
            return stream.unread < STREAM_WINDOW_FRAMES
                && stream.unread_bytes < STREAM_WINDOW_BYTES
                && self.stage != Stage::Admission;
        }
        match &self.role {
            Role::Client(_) => true,
            Role::Server(server) => {
                server.calls.len() < server.config.calls
                    && server.bytes < server.config.request_bytes
                    && self.core.queue.len() < server.config.answer_bytes
                    && !self.core.tight
            }
        }
    }

    fn part(&self) -> Part {
        match (self.stage, self.core.intake.received().len()) {
            (Stage::Skip { .. }, _) => Part::Body,
            (_, 0) => Part::Nothing,
            (_, length) if length < self.head_length() => Part::Head,
            _ => Part::Body,
        }
    }

    fn is_idle(&self) -> bool {
        let is_over = match (&self.stream, &self.role) {
            (Some(stream), _) => stream.has_ended && stream.peer_has_ended,
            (None, Role::Client(client)) => client.calls.is_empty() && client.unsent.is_empty(),
            (None, Role::Server(server)) => server.calls.is_empty(),
        };
        // Who leaves before it has negotiated has not been served at all.
        let is_begun = self.is_server() || self.negotiate_by.is_none();
        is_over && is_begun && self.core.queue.is_empty() && self.part() == Part::Nothing
    }

    fn frames_received(&self) -> u64 {
        self.stats.frames_in
    }

    fn request_bytes(&self) -> usize {
        let requests = match &self.role {
            Role::Client(_) => 0,
            Role::Server(server) => server.bytes,
        };
        requests + self.stream.map_or(0, |stream| stream.unread_bytes)
    }

    fn calls_of_peer(&self) -> usize {
        match &self.role {
            Role::Client(_) => 0,
            Role::Server(server) => server.calls.len(),
        }
    }

    fn parse(&mut self) {
        self.take_apart();
    }

    fn note_written(&mut self) {
        let written = self.core.queue.written();
        if let Role::Client(client) = &mut self.role {
            while let Some(unsent) = client.unsent.pop_front_if(|unsent| unsent.ends <= written) {
                self.core.events.push_back(Event::Sent { user: unsent.user });
            }
        }
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.is_full)
            && self.core.queue.len() < STREAM_WINDOW_BYTES
        {
            stream.is_full = false;
            self.core.events.push_back(Event::Room);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let negotiation = self.negotiate_by.map(|(by, _)| by);
        let of_role = match &self.role {
            Role::Client(client) => client.calls.next_deadline(),
            Role::Server(server) => server.arrival.due(),
        };
        let all = [negotiation, of_role, self.core.keepalive.next_stall()];
        all.into_iter().flatten().min()
    }

    /// The protocol has no message by which a peer without anything to say could say so.
    fn may_be_silent(&self) -> bool {
        true
    }

    fn handle_due(&mut self, _: Due) {
        if let Some((_, patience)) = self.negotiate_by.filter(|(by, _)| *by <= self.core.now) {
            return self.end_now(CloseReason::NotNegotiated(patience));
        }
        match &mut self.role {
            Role::Client(client) => {
                while let Some(call) = client.calls.take_due(self.core.now) {
                    // A queued frame cannot be taken back, so it will be written.
                    self.core.events.push_back(Event::CallFailed {
                        user: call.what,
                        failure: CallFailure::DeadlineExceeded,
                        bytes_sent: true,
                    });
                }
            }
            Role::Server(server) => {
                if let Some(TooSlow { bytes, within }) = server.arrival.check(self.core.now) {
                    self.end_after_flush(CloseReason::TooSlow { bytes, within });
                }
            }
        }
    }

    fn abandon(&mut self, still_written: bool) {
        if let Role::Client(client) = &mut self.role {
            let calls = client.calls.take_all().into_iter();
            let calls = calls.map(|call| (call.position, call.what));
            let unsent = client.unsent.drain(..).map(|unsent| (unsent.begins, unsent.user));
            let mut all: Vec<_> = calls.chain(unsent).collect();
            all.sort_unstable();
            for (position, user) in all {
                self.core.events.push_back(Event::CallFailed {
                    user,
                    failure: CallFailure::ConnectionClosed,
                    bytes_sent: still_written || self.core.queue.written() > position,
                });
            }
        }
        self.stage = Stage::Frames;
    }

    fn end_by_choice(&mut self) {
        // A stream that was not let in is told nothing.
        match self.stage {
            Stage::Admission => self.end_now(CloseReason::Local),
            _ => self.end_after_flush(CloseReason::Local),
        }
    }
}
