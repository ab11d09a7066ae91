//! The one place where it is found out that a server is silent: something is awaited of it, and nothing at all comes, although it
//! was asked. A stopped process is so, whose machine still accepts connections, and a network that drops everything.
//!
//! What others can do is then given up here, and its callers go elsewhere as they do after any failure. What nobody else can
//! do waits on for its own time.

use std::time::{Duration, Instant};

use sbp_session::Session;

use super::Phase;
use super::in_flight::{InFlight, token};
use super::{Connection, Context};
use crate::failure::Cause;

/// How often is looked whether something has come.
const LOOK: Duration = Duration::from_secs(1);

/// So many looks in a row that see nothing mean that the server is silent. A placement driver does without one after as long.
const SILENT: u32 = 3;

/// So many of a server that was silent when it was last asked.
const STILL_SILENT: u32 = 2;

/// Why such a connection is replaced.
const REASON: &str = "the server says nothing";

/// What was seen of a connection so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the next look is due; nothing while nothing is awaited.
    due: Option<Instant>,
    /// Bytes that had come at the last look.
    bytes: u64,
    /// Looks in a row that saw nothing.
    quiet: u32,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It is too early to say.
    Nothing,
    /// Something has come.
    Heard,
    /// Nothing has come: the server is asked for a sign of life.
    Quiet,
    /// Nothing has come for too long.
    Silent,
}

impl Watch {
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Says whether something is awaited.
    fn await_something(&mut self, is_awaited: bool, bytes: u64, now: Instant) {
        if !is_awaited {
            self.due = None;
        } else if self.due.is_none() {
            *self = Self {
                due: Some(now + LOOK),
                bytes,
                quiet: 0,
            };
        }
    }

    fn look(&mut self, bytes: u64, limit: u32, now: Instant) -> Seen {
        let Some(due) = self.due.filter(|due| *due <= now) else {
            return Seen::Nothing;
        };
        let was_late = now.saturating_duration_since(due) >= LOOK;
        let is_news = bytes != self.bytes;
        self.due = Some(now + LOOK);
        self.bytes = bytes;
        if is_news {
            self.quiet = 0;
            return Seen::Heard;
        }
        if was_late {
            // This process was stopped, or had no time itself: whatever it missed says nothing of the server.
            self.quiet = 0;
        }
        self.quiet = self.quiet.saturating_add(1);
        match self.quiet {
            quiet if quiet >= limit => Seen::Silent,
            1 => Seen::Quiet,
            _ => Seen::Nothing,
        }
    }
}

impl Connection {
    /// Notes whether anything is awaited, where there may be others to go to.
    pub(super) fn watch_silence(&mut self, session: &Session, now: Instant) {
        let is_awaited = self.phase == Phase::Open
            && !(self.calls.is_empty() && self.held.is_empty() && self.appends.is_empty())
            && (self.silence.due.is_some() || self.context.channel.has_others());
        self.silence.await_something(is_awaited, session.stats().bytes_in, now);
    }

    /// Looks whether the server is silent.
    pub(super) fn check_silence(&mut self, session: &mut Session, now: Instant) {
        let Context { channel, endpoint, .. } = &self.context;
        let limit = if channel.silences.is_asked_last(endpoint, now) {
            STILL_SILENT
        } else {
            SILENT
        };
        match self.silence.look(session.stats().bytes_in, limit, now) {
            Seen::Nothing => {}
            Seen::Heard => channel.silences.heard(endpoint),
            Seen::Quiet if self.context.features.is_some() => self.ask_for_a_sign(session, now),
            // HEARTBEAT is on its way, which asks too.
            Seen::Quiet => {}
            Seen::Silent => self.give_up(),
        }
    }

    /// A PING whose answer is read as any byte is.
    fn ask_for_a_sign(&mut self, session: &mut Session, now: Instant) {
        let place = self.calls.insert(InFlight::Probe);
        let deadline = now + LOOK * SILENT;
        if session.send_ping(now, token(place), Some(deadline)).is_err() {
            self.calls.try_remove(place);
        }
    }

    /// Gives up what others can do, and goes on with another connection. Where nobody else can do anything that is awaited, all
    /// of it waits on.
    fn give_up(&mut self) {
        let is_elsewhere = |call: &InFlight| match call {
            InFlight::Call { call, .. } => call.has_elsewhere,
            InFlight::Fetch { fetch, .. } => fetch.has_elsewhere,
            InFlight::Append { id, .. } => self.appends.is_held_elsewhere(&self.context, *id),
            _ => false,
        };
        let places = self.calls.iter().filter(|(_, call)| is_elsewhere(call));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let (elsewhere, here): (Vec<_>, Vec<_>) = self.held.drain(..).partition(super::Command::has_elsewhere);
        self.held = here;
        let channel = self.context.channel.clone();
        let has_next = channel.servers_named() > 1;
        let unsent = channel.knows_places() && self.appends.in_flight() == 0 && !self.appends.is_empty();
        if places.is_empty() && elsewhere.is_empty() && !has_next && !unsent {
            return;
        }
        tracing::debug!(endpoint = %self.context.endpoint, calls = places.len(), "{REASON}: others are asked");
        channel.note_silent(self.generation, &self.context.endpoint, REASON);
        for place in places {
            let Some(call) = self.calls.get_mut(place) else {
                continue;
            };
            let cause = Cause::Silent { sent: true };
            match std::mem::replace(call, InFlight::GivenUp) {
                InFlight::Append { id, .. } => self.appends.failed(&self.context, id, cause),
                call => call.fail(self.context.failure(cause)),
            }
        }
        let cause = Cause::Silent { sent: false };
        for command in elsewhere {
            command.fail(self.context.failure(cause.clone()));
        }
        if channel.knows_places() {
            self.appends.fail_waiting(&self.context, &cause);
        }
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{LOOK, SILENT, STILL_SILENT, Seen, Watch};

    /// A watch on a connection of which something is awaited, and when that began.
    fn watch() -> (Watch, Instant) {
        let (mut watch, begun) = (Watch::default(), Instant::now());
        watch.await_something(true, 0, begun);
        (watch, begun)
    }

    #[test]
    fn a_server_is_asked_once_and_is_silent_when_nothing_has_come_at_all() {
        let (mut watch, begun) = watch();
        let seen: Vec<_> = (1..=4).map(|look| watch.look(0, SILENT, begun + LOOK * look)).collect();
        assert_eq!(seen, [Seen::Quiet, Seen::Nothing, Seen::Silent, Seen::Silent]);
    }

    #[test]
    fn one_that_was_silent_before_is_so_sooner() {
        let (mut watch, begun) = watch();
        let seen: Vec<_> = (1..=2)
            .map(|look| watch.look(0, STILL_SILENT, begun + LOOK * look))
            .collect();
        assert_eq!(seen, [Seen::Quiet, Seen::Silent]);
    }

    #[test]
    fn any_byte_counts_as_a_sign_of_life() {
        let (mut watch, begun) = watch();
        for look in 1..20 {
            // A byte of a long frame, every other second.
            let seen = watch.look(u64::from(look / 2), SILENT, begun + LOOK * look);
            assert!(matches!(seen, Seen::Heard | Seen::Quiet), "look {look}: {seen:?}");
        }
    }

    #[test]
    fn time_in_which_this_process_was_stopped_does_not_count() {
        let (mut watch, begun) = watch();
        assert_eq!(watch.look(0, SILENT, begun + LOOK), Seen::Quiet);
        let later = begun + Duration::from_secs(60);
        assert_eq!(watch.look(0, SILENT, later), Seen::Quiet, "asked anew");
        assert_eq!(watch.look(0, SILENT, later + LOOK), Seen::Nothing);
        assert_eq!(watch.look(0, SILENT, later + LOOK * 2), Seen::Silent);
    }

    #[test]
    fn while_nothing_is_awaited_nobody_is_silent() {
        let (mut watch, begun) = watch();
        assert_eq!(watch.look(0, SILENT, begun + LOOK), Seen::Quiet);
        watch.await_something(false, 0, begun + LOOK);
        assert_eq!(
            (watch.due(), watch.look(0, SILENT, begun + LOOK * 9)),
            (None, Seen::Nothing)
        );
        watch.await_something(true, 0, begun + LOOK * 9);
        assert_eq!(watch.look(0, SILENT, begun + LOOK * 10), Seen::Quiet, "counted anew");
    }
}
