//! What the thread does without being asked: it finds out which range servers are gone, and has ranges go on elsewhere.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use sbp_messages::RangeId;
use sbp_types::{RangeKey, ServerId};

use super::{Event, Worker};
use crate::placement::apply::Command;
use crate::placement::operations::OperationId;
use crate::placement::request::{Outcomes, Request, Task};
use crate::placement::seal::SealFor;
use crate::placement::upkeep::Due;
use crate::range::SWEEP;
use crate::refusal::Refusal;

/// The pause between two attempts to find out whether a server whose connection is gone can be dialled.
const KNOCK_AGAIN: Duration = Duration::from_millis(100);

/// What is due at a time.
#[derive(Clone, Copy, Debug)]
pub(in crate::placement) enum Timer {
    /// A seal is decided without the servers that have not voted.
    Seal(OperationId),
    /// A server without connections is dialled once more.
    Knock(ServerId),
    /// Those that were never heard are asked whether they are there.
    AskUnheard,
    /// Range servers had the time to report.
    Reported,
}

impl Worker {
    /// How long to wait for an event: until something else is due.
    pub(super) fn until_timer(&self) -> Duration {
        let timers = self.timers.iter().map(|(at, _)| *at);
        let next = timers.chain(self.next_look).min();
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        // Without range servers elsewhere there is nobody whose silence counts.
        let has_others = self.state.servers().next().is_some();
        let look_at_clock = has_others.then(|| self.registry.lock().pause());
        left.into_iter().chain(look_at_clock).fold(SWEEP, Duration::min)
    }

    /// Does what is due. Returns true when the server shuts down.
    pub(super) fn fire_timers(&mut self, inbox: &mpsc::Receiver<Event>) -> bool {
        let now = Instant::now();
        let mut due: Vec<_> = self.timers.extract_if(.., |(at, _)| *at <= now).collect();
        let look = self.next_look.is_some_and(|at| at <= now);
        let timers = due.drain(..).map(|(_, timer)| Event::Timer(timer));
        let mut events = timers.chain(look.then_some(Event::Look));
        events.any(|event| self.handle_all(event, inbox))
    }

    /// Whether a stream can be made with all its copies only when range servers have reported that had no time for it yet.
    pub(super) fn is_early(&self, task: &Task) -> bool {
        let Task::Apply(Command::CreateStream(stream, _)) = task else {
            return false;
        };
        let wanted = usize::try_from(stream.settings.replica_count).unwrap_or(0).max(1);
        if Instant::now() >= self.reported_by || self.candidates().len() >= wanted {
            return false;
        }
        let registry = self.registry.lock();
        self.state.servers().any(|server| registry.is_unheard(server.id))
    }

    /// Starts the requests that came too early: a range server has reported, or had its time.
    pub(super) fn start_early(&mut self) {
        for (id, task) in std::mem::take(&mut self.early) {
            self.start(id, task);
        }
    }

    pub(super) fn handle_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Seal(id) => self.decide_in_time(id),
            Timer::Knock(server) => self.knock(server),
            Timer::AskUnheard => self.ask_unheard(),
            Timer::Reported => self.start_early(),
        }
    }

    /// The last connection of a server is gone: finds out whether anybody listens at its address.
    pub(super) fn knock(&mut self, server: ServerId) {
        if !self.registry.lock().is_in_doubt(server, Instant::now()) {
            return;
        }
        let done = self.promise(move |is_refused| Event::Knocked(server, is_refused));
        match self.range_servers.server(server) {
            Some(range_server) => range_server.is_refused(done),
            None => done(Ok(false)),
        }
    }

    /// A server without connections was dialled.
    pub(super) fn handle_knocked(&mut self, server: ServerId, is_refused: Result<bool, Refusal>) {
        let now = Instant::now();
        if is_refused != Ok(true) {
            // Its process may be about to end: of what it listened on, connections go first.
            return self.timers.push((now + KNOCK_AGAIN, Timer::Knock(server)));
        }
        if self.registry.lock().refused(server, now) {
            self.look();
        }
    }

    /// A placement driver that begins to lead asks the servers itself of which it has heard nothing: they may not know of it yet.
    fn ask_unheard(&mut self) {
        let unheard: Vec<ServerId> = {
            let registry = self.registry.lock();
            let servers = self.state.servers().map(|server| server.id);
            servers.filter(|server| registry.is_unheard(*server)).collect()
        };
        for server in unheard {
            let done = self.promise(move |answers| Event::Answered(server, answers));
            match self.range_servers.server(server) {
                Some(range_server) => range_server.answers(done),
                None => done(Ok(true)),
            }
        }
    }

    /// A server that was never heard has answered, or not.
    pub(super) fn handle_answered(&mut self, server: ServerId, answers: &Result<bool, Refusal>) {
        if *answers == Ok(false) {
            tracing::info!(%server, "a range server that was never heard does not answer either");
            self.registry.lock().unanswered(server);
            self.look();
        }
    }

    /// Looks which servers are gone, and begins to seal the ranges that have to go on on other servers. What cannot be sealed
    /// now is tried again when a server reports.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        let lost = self.registry.lock().take_lost(now);
        for server in lost {
            tracing::warn!(%server, "a range server is gone: ranges that it alone has cannot be used until it is back");
            self.go_on_without(server);
        }
        let due = {
            let registry = self.registry.lock();
            self.next_look = registry.next_silence(now);
            self.upkeep.due(&self.state, &registry, now)
        };
        for Due { key, epoch, why } in due {
            tracing::info!(range = %key, %why, "a range is to be sealed, so that its stream goes on on other servers");
            let events = self.events.clone();
            let done = Box::new(move |sealed: Result<Outcomes, Refusal>| {
                let refusals = sealed.iter().flatten().filter_map(|sealed| sealed.as_ref().err());
                let mut refusals = refusals.chain(sealed.as_ref().err()).peekable();
                if refusals.peek().is_none() {
                    let seconds = now.elapsed().as_secs_f64();
                    tracing::info!(range = %key, seconds, "a range is sealed, and its stream goes on on other servers");
                }
                for refusal in refusals {
                    tracing::warn!(range = %key, %why, message = refusal.message, "a range is not sealed yet");
                }
                // The receiver has ended if the server is shutting down.
                let _stopped = events.send(Event::UpkeepEnded(key));
            });
            let target = RangeId {
                stream_id: key.stream,
                range_index: Some(key.range),
                epoch: Some(epoch),
                end_offset: None,
            };
            let request = Request::SealRanges(SealFor::PlacementDriver.into(), vec![Ok(target)]);
            self.operations.admit(done, request.into_tasks());
        }
        self.copy_what_is_due(now);
    }

    /// What was begun about a range without being asked has ended.
    pub(super) fn upkeep_ended(&mut self, key: RangeKey) {
        if self.upkeep.ended(key) {
            self.look();
        }
    }
}
