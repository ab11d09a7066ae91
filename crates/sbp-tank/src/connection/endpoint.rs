//! The connection as its driver knows it.

use std::time::Instant;

use sbp_wire::{Core, Due, Machine, Part, TooSlow};

use super::{Connection, Role, Stage};
use crate::event::{CallFailure, CloseReason, Event};

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
        matches!(self.role, Role::Server { .. })
    }

    /// A client has no such limits: if it stopped reading, its own answers would be held up.
    fn has_room(&self) -> bool {
        match &self.role {
            Role::Client { .. } => true,
            Role::Server {
                config, calls, bytes, ..
            } => {
                calls.len() < config.calls
                    && *bytes < config.request_bytes
                    && self.core.queue.len() < config.answer_bytes
                    && !self.core.tight
            }
        }
    }

    fn part(&self) -> Part {
        match self.stage {
            Stage::Head if self.core.intake.received().is_empty() => Part::Nothing,
            Stage::Head => Part::Head,
            _ => Part::Body,
        }
    }

    fn is_idle(&self) -> bool {
        let calls = match &self.role {
            Role::Client { calls, .. } => calls.len(),
            Role::Server { calls, .. } => calls.len(),
        };
        calls == 0 && self.core.queue.is_empty() && self.part() == Part::Nothing
    }

    fn frames_received(&self) -> u64 {
        self.stats.frames_in
    }

    fn request_bytes(&self) -> usize {
        match &self.role {
            Role::Client { .. } => 0,
            Role::Server { bytes, .. } => *bytes,
        }
    }

    fn calls_of_peer(&self) -> usize {
        match &self.role {
            Role::Client { .. } => 0,
            Role::Server { calls, .. } => calls.len(),
        }
    }

    fn parse(&mut self) {
        self.take_apart();
    }

    fn next_due(&self) -> Option<Instant> {
        let all = match &self.role {
            Role::Client { greeted_by, calls, .. } => {
                [*greeted_by, calls.next_deadline(), self.core.keepalive.next_stall()]
            }
            Role::Server { ping_at, arrival, .. } => [Some(*ping_at), arrival.due(), Some(self.core.keepalive.next())],
        };
        all.into_iter().flatten().min()
    }

    /// A client has deadlines for its requests; for how long its broker says nothing else does not matter to it.
    fn may_be_silent(&self) -> bool {
        match &self.role {
            Role::Client { .. } => true,
            Role::Server { calls, .. } => !calls.is_empty(),
        }
    }

    fn handle_due(&mut self, due: Due) {
        if due.silent {
            return self.end_after_flush(CloseReason::Silent(self.core.keepalive.silence()));
        }
        match &mut self.role {
            Role::Client {
                config,
                greeted_by,
                calls,
                ..
            } => {
                if greeted_by.is_some_and(|by| by <= self.core.now) {
                    let patience = config.greeting;
                    return self.end_after_flush(CloseReason::NotGreeted(patience));
                }
                while let Some(call) = calls.take_due(self.core.now) {
                    // A queued frame cannot be taken back, so it will be written.
                    self.core.events.push_back(Event::CallFailed {
                        user: call.what.user,
                        failure: CallFailure::DeadlineExceeded,
                        bytes_sent: true,
                    });
                }
            }
            Role::Server { ping_at, arrival, .. } => {
                if let Some(TooSlow { bytes, within }) = arrival.check(self.core.now) {
                    self.end_after_flush(CloseReason::TooSlow { bytes, within });
                } else if *ping_at <= self.core.now {
                    self.ping();
                }
            }
        }
    }

    fn abandon(&mut self, still_written: bool) {
        if let Role::Client { calls, .. } = &mut self.role {
            for call in calls.take_all() {
                self.core.events.push_back(Event::CallFailed {
                    user: call.what.user,
                    failure: CallFailure::ConnectionClosed,
                    bytes_sent: still_written || self.core.queue.written() > call.position,
                });
            }
        }
        self.stage = Stage::Head;
    }
}
