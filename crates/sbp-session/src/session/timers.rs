//! The timers of a connection.

use std::time::Instant;

use sbp_frame::CallId;

use super::Session;
use crate::{
    CallFailure, CloseReason, Event, Role,
    phase::{Phase, Step},
};

impl Session {
    /// Does what is due at `now`. Calling it too early does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_time(now);
        if self.phase.until().is_some_and(|until| until <= now) {
            if self.demanded().is_none() {
                let flush_by = now + self.config.flush_timeout;
                self.step(Step::TimeIsUp { flush_by });
            } else {
                self.end_unauthenticated();
            }
        }
        if !self.phase.is_alive() {
            return;
        }
        self.expire_calls();
        self.check_arrival();
        self.check_keepalive();
        let patience = self.config.limits.orphan_age;
        if self.crowded_since.is_some_and(|since| since + patience <= now) {
            self.end_after_flush(CloseReason::TooManyOrphans);
        }
        self.settle();
    }

    /// Closes the connection if a frame arrives too slowly, because it takes up a place that other connections could
    /// use.
    fn check_arrival(&mut self) {
        self.note_room();
        if let Some(slow) = self.arrival.check(self.now) {
            self.end_for_slowness(CloseReason::TooSlow {
                bytes: slow.bytes,
                within: slow.within,
            });
        }
    }

    fn expire_calls(&mut self) {
        if self.own.earliest_deadline().is_none_or(|earliest| earliest > self.now) {
            return;
        }
        for call in self.own.expired(self.now) {
            let Some(own) = self.own.get(call) else { continue };
            // A queued frame cannot be taken back, so it will be written.
            let failed = Event::CallFailed {
                user: own.user,
                call,
                failure: CallFailure::DeadlineExceeded,
                bytes_sent: true,
            };
            self.events.push_back(failed);
            self.orphan(call);
        }
    }

    fn check_keepalive(&mut self) {
        let busy = self.own.busy() > 0 || self.peer.len() > 0;
        let due = self.keepalive.check(self.now, busy);
        if due.interval && self.config.role == Role::Client && matches!(self.phase, Phase::Open) {
            self.events.push_back(Event::HeartbeatDue);
        }
        if let Some(patience) = due.stalled {
            self.end_now(CloseReason::Stalled(patience));
        } else if due.silent {
            self.end_after_flush(CloseReason::Silent(self.keepalive.silence()));
        } else if due.interval && !busy && self.queue.is_empty() {
            self.shrink();
        }
    }

    /// The answer to `call` is not awaited any more.
    pub(super) fn orphan(&mut self, call: CallId) {
        if self.own.orphan(call) {
            self.note_orphans();
        }
    }

    /// The answer to `call` has ended.
    pub(super) fn forget(&mut self, call: CallId) {
        self.own.remove(call);
        self.note_orphans();
    }

    /// Notes since when there are too many orphans.
    pub(super) fn note_orphans(&mut self) {
        if self.own.orphans() <= self.config.limits.orphans {
            self.crowded_since = None;
        } else {
            self.crowded_since.get_or_insert(self.now);
        }
    }
}
