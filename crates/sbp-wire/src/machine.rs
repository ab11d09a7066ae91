//! One end of a connection of a protocol whose both roles are one state machine.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BytesMut, buf::Limit};

use crate::{Due, Endpoint, Intake, Keepalive, Part, Patience, Phase, Reason, WriteQueue};

/// What such machines have in common: bytes in and out, the time, events that nobody has taken yet, and their end.
#[derive(Debug)]
pub struct Core<E, R> {
    /// Whether the connection is open.
    pub phase: Phase<R>,
    /// The latest time given by any call.
    pub now: Instant,
    /// What has arrived.
    pub intake: Intake,
    /// What is to be written.
    pub queue: WriteQueue,
    /// Whether the peer says and takes anything.
    pub keepalive: Keepalive,
    /// Bytes received.
    pub bytes_in: u64,
    /// What has happened.
    pub events: VecDeque<E>,
    /// Whether parsing stopped at a limit with bytes left.
    pub held: bool,
    /// Whether memory is short; see [`Endpoint::set_tight`].
    pub tight: bool,
}

impl<E, R: Clone> Core<E, R> {
    /// That of a new connection.
    #[must_use]
    pub fn new(patience: Patience, now: Instant) -> Self {
        Self {
            phase: Phase::Open,
            now,
            intake: Intake::new(),
            queue: WriteQueue::new(),
            keepalive: Keepalive::new(patience, now),
            bytes_in: 0,
            events: VecDeque::new(),
            held: false,
            tight: false,
        }
    }

    /// Whether the connection is neither over nor about to be.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase.is_open()
    }

    /// Sets the time, which does not go back.
    pub fn advance_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}

/// Why the connection of a [`Machine`] has ended.
pub trait MachineReason: Reason {
    /// The peer closed it; `is_idle`: nothing was under way in either direction.
    fn peer(is_idle: bool) -> Self;

    /// Queued bytes could not be written for so long.
    fn stalled(patience: Duration) -> Self;

    /// The socket failed.
    fn transport(error: Arc<io::Error>) -> Self;
}

/// A client's or a server's end of a connection, which is an [`Endpoint`] by what it has in its [`Core`]: this is what is
/// different from protocol to protocol.
pub trait Machine: Send + 'static {
    /// What happens on the connection.
    type Event;
    /// Why it has ended.
    type Reason: MachineReason;

    /// What it has in common with others.
    fn core(&self) -> &Core<Self::Event, Self::Reason>;

    /// The same, to be changed.
    fn core_mut(&mut self) -> &mut Core<Self::Event, Self::Reason>;

    /// The event that tells why the connection ends.
    fn closing(reason: Self::Reason) -> Self::Event;

    /// Whether it is a server's end.
    fn is_server(&self) -> bool;

    /// Whether limits allow that another frame is begun with.
    fn has_room(&self) -> bool;

    /// How much of the next frame has arrived.
    fn part(&self) -> Part;

    /// Whether nothing is under way in either direction.
    fn is_idle(&self) -> bool;

    /// Frames received since the beginning.
    fn frames_received(&self) -> u64;

    /// Bytes of the peer's requests that are under way, and of what it has sent that nobody has taken.
    fn request_bytes(&self) -> usize;

    /// The number of the peer's requests that are under way.
    fn calls_of_peer(&self) -> usize;

    /// Takes apart what has arrived, as far as that and the limits allow.
    fn parse(&mut self);

    /// Bytes were written.
    fn note_written(&mut self) {}

    /// When [`Self::handle_due`] is to be called, while the connection is open.
    fn next_due(&self) -> Option<Instant>;

    /// Whether the peer need not say anything now.
    fn may_be_silent(&self) -> bool;

    /// Does what is due now, while the connection is open.
    fn handle_due(&mut self, due: Due);

    /// Fails what is under way, and forgets what has arrived of a frame. `still_written`: what is queued is still written.
    fn abandon(&mut self, still_written: bool);

    /// Ends the connection because this side wants it.
    fn end_by_choice(&mut self) {
        self.end_after_flush(Self::Reason::local());
    }

    /// Ends the connection when what is queued is written.
    fn end_after_flush(&mut self, reason: Self::Reason) {
        if self.core().is_open() {
            let phase = Phase::flushing(reason, self.core().now);
            end(self, phase, true);
        }
    }

    /// Ends the connection. What is queued is dropped.
    fn end_now(&mut self, reason: Self::Reason) {
        match self.core().phase.reason().cloned() {
            None => end(self, Phase::Closed { reason }, false),
            Some(reason) => self.core_mut().phase = Phase::Closed { reason },
        }
        self.core_mut().queue.clear();
    }
}

/// Fails what is under way, and tells why.
fn end<M: Machine + ?Sized>(machine: &mut M, phase: Phase<M::Reason>, still_written: bool) {
    machine.abandon(still_written);
    let reason = phase.reason().cloned();
    let core = machine.core_mut();
    core.events.extend(reason.map(M::closing));
    core.phase = phase;
    core.intake.clear();
    core.held = false;
}

impl<M: Machine> Endpoint for M {
    type Event = M::Event;
    type Reason = M::Reason;

    fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        self.core_mut().intake.buffer()
    }

    fn wants_read(&self) -> bool {
        let core = self.core();
        core.is_open() && (self.has_room() || self.part() != Part::Nothing && !core.held)
    }

    fn handle_received(&mut self, count: usize, now: Instant) {
        let core = self.core_mut();
        core.advance_time(now);
        core.bytes_in = core.bytes_in.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        core.intake.note_received(count);
        self.parse();
    }

    fn handle_eof(&mut self, now: Instant) {
        self.core_mut().advance_time(now);
        let reason = M::Reason::peer(self.is_idle());
        match self.is_server() {
            true => self.end_after_flush(reason),
            false => self.end_now(reason),
        }
    }

    fn note_nothing_to_read(&mut self) {
        self.core_mut().intake.shrink();
    }

    fn is_mid_frame(&self) -> bool {
        self.part() != Part::Nothing
    }

    fn frames_in(&self) -> u64 {
        self.frames_received()
    }

    fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.core_mut().queue.slices(slices)
    }

    fn transmit_len(&self) -> usize {
        self.core().queue.len()
    }

    fn handle_written(&mut self, count: usize, now: Instant) {
        let core = self.core_mut();
        core.advance_time(now);
        core.queue.advance(count);
        core.keepalive.note_written(!core.queue.is_empty(), core.now);
        self.note_written();
    }

    fn bytes_out(&self) -> u64 {
        self.core().queue.pushed()
    }

    fn note_time(&mut self, now: Instant) {
        self.core_mut().advance_time(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.core().phase {
            Phase::Open => self.next_due(),
            Phase::Flushing { until, .. } => Some(*until),
            Phase::Closed { .. } => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let may_be_silent = self.may_be_silent();
        let core = self.core_mut();
        core.advance_time(now);
        if !core.is_open() {
            if let Some(reason) = core.phase.overdue(core.now) {
                self.end_now(reason);
            }
            return;
        }
        let due = core.keepalive.check(core.now, may_be_silent);
        match due.stalled {
            Some(patience) => self.end_now(M::Reason::stalled(patience)),
            None => self.handle_due(due),
        }
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        let core = self.core();
        if core.events.is_empty() && core.held && self.has_room() {
            self.parse();
        }
        self.core_mut().events.pop_front()
    }

    fn held_bytes(&self) -> usize {
        let core = self.core();
        self.request_bytes() + core.queue.len() + core.intake.received().len()
    }

    fn set_tight(&mut self, tight: bool, now: Instant) {
        let is_server = self.is_server();
        let core = self.core_mut();
        core.advance_time(now);
        core.tight = tight && is_server;
        core.keepalive.note_short(core.tight, core.now);
    }

    fn is_tight(&self) -> bool {
        self.core().tight
    }

    fn peer_calls(&self) -> usize {
        self.calls_of_peer()
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn handle_transport_error(&mut self, error: io::Error, now: Instant) {
        self.core_mut().advance_time(now);
        self.end_now(M::Reason::transport(Arc::new(error)));
    }

    fn close(&mut self) {
        self.end_by_choice();
    }

    fn is_closed(&self) -> bool {
        let core = self.core();
        core.phase.is_over(core.queue.is_empty())
    }

    fn close_reason(&self) -> Option<&M::Reason> {
        self.core().phase.reason()
    }
}
