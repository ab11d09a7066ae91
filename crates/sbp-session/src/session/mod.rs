//! The state machine of a connection.

mod closing;
mod input;
mod judge;
mod output;
#[cfg(test)]
mod tests;
mod timers;

use std::{collections::VecDeque, io::IoSlice, time::Instant};

use bytes::{BytesMut, buf::Limit};
use sbp_frame::WriteQueue;
use sbp_wire::{Arrival, Keepalive};

use crate::{
    Authentication, CloseReason, Event, Role, SessionConfig, SessionStats,
    budget::Budget,
    own_calls::OwnCalls,
    peer_calls::PeerCalls,
    phase::{Phase, Step},
    receiver::Receiver,
};

/// The system errors queued since the peer last took all queued before.
#[derive(Debug, Clone, Copy, Default)]
struct Refusals {
    count: usize,
    /// Where the last one begins, as counted by [`WriteQueue::pushed`].
    last: u64,
}

/// What the peer has sent before it has said who it is. Small, because each connection has room for it.
#[derive(Debug, Clone, Copy, Default)]
struct Unauthenticated {
    /// Without PINGs that were answered.
    frames: u16,
    bytes: u32,
}

/// One end of a connection.
///
/// Methods named `handle_*` take what has happened, `poll_*` return what is due, `send_*` queue frames. None blocks or
/// reads a clock; time moves forward only by the `now` arguments.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    phase: Phase,
    /// The latest time given by any call.
    now: Instant,
    receiver: Receiver,
    arrival: Arrival,
    queue: WriteQueue,
    events: VecDeque<Event>,
    own: OwnCalls,
    peer: PeerCalls,
    keepalive: Keepalive,
    discards: Budget,
    pings: Budget,
    stats: SessionStats,
    /// Since when there are more orphans than allowed.
    crowded_since: Option<Instant>,
    /// The number of GOAWAYs received: 0, 1, or 2 for more.
    peer_go_aways: u8,
    /// The number of own requests that the peer's GOAWAY declared not started. The peer may still refuse each of them.
    unstarted: usize,
    refusals: Refusals,
    /// `None`: the peer is known, or is not asked who it is.
    unauthenticated: Option<Unauthenticated>,
    /// Whether parsing stopped at a limit with bytes left. It goes on when there is room.
    held: bool,
    /// Whether memory is short and this connection has more than its share.
    tight: bool,
}

impl Session {
    /// A session for a new connection. A client's first event is [`Event::HeartbeatDue`].
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        let limits = &config.limits;
        let mut events = VecDeque::new();
        if config.role == Role::Client {
            events.push_back(Event::HeartbeatDue);
        }
        let mut receiver = Receiver::new(limits.frame_length);
        let phase = match &config.authentication {
            Some(demanded) if config.role == Role::Server => {
                receiver.keep_small(true);
                Phase::Unauthenticated {
                    until: now + demanded.within,
                }
            }
            _ => Phase::Open,
        };
        Self {
            now,
            receiver,
            arrival: Arrival::new(config.pace()),
            queue: WriteQueue::new(),
            events,
            own: OwnCalls::new(config.first_call_id),
            peer: PeerCalls::new(),
            keepalive: Keepalive::new(config.patience(), now),
            discards: Budget::new(limits.discards, limits.discards_per_second, now),
            pings: Budget::new(limits.pings, limits.pings_per_second, now),
            stats: SessionStats::default(),
            crowded_since: None,
            peer_go_aways: 0,
            unstarted: 0,
            refusals: Refusals::default(),
            unauthenticated: matches!(phase, Phase::Unauthenticated { .. }).then(Unauthenticated::default),
            phase,
            held: false,
            tight: false,
            config,
        }
    }

    /// The configuration of this session.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// It is known who the peer is: from now on all its requests are served.
    pub fn set_authenticated(&mut self) {
        if self.step(Step::Authenticate) {
            self.unauthenticated = None;
            self.receiver.keep_small(false);
        }
    }

    /// Whether who the peer is is known, or was never asked. A connection that ends before that stays without.
    pub fn is_authenticated(&self) -> bool {
        self.unauthenticated.is_none()
    }

    /// What was demanded of the peer, while it has not done it.
    fn demanded(&self) -> Option<&Authentication> {
        match self.phase {
            Phase::Unauthenticated { .. } => self.config.authentication.as_ref(),
            _ => None,
        }
    }

    /// The buffer to read the next bytes into, which always has room. Call [`Session::handle_received`] with the number
    /// of bytes before any other method.
    ///
    /// The room grows with the bytes received, not with the length that a peer claims. Only payloads of 64 KiB or more
    /// for which a caller has set memory aside, and those below [`SessionConfig::detach_payloads_below`], get
    /// allocations of their own.
    pub fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        self.receiver.buffer()
    }

    /// Whether to read now. False at a limit, which is how a server applies backpressure, and when the connection is
    /// closing.
    pub fn wants_read(&self) -> bool {
        self.phase.is_alive() && self.has_room() && (!self.tight || !self.receiver.is_between_frames())
    }

    /// Whether parsing may begin the peer's next frame.
    fn may_begin(&self) -> bool {
        self.has_room() && !self.tight
    }

    /// Bytes that this connection holds: requests that are not yet answered, answers that are not yet written, and the
    /// received part of the next frame.
    pub fn held_bytes(&self) -> usize {
        self.peer.bytes() + self.queue.len() + self.receiver.held()
    }

    /// Says whether memory is short and this connection has more than its share. Until that ends, a server begins no
    /// further request of this peer, and allows it only [`SessionConfig::short_stall_timeout`] to take answers.
    pub fn set_tight(&mut self, tight: bool, now: Instant) {
        self.advance_time(now);
        self.tight = tight && self.config.role == Role::Server;
        self.keepalive.note_short(self.tight, self.now);
    }

    /// Whether memory is short; see [`Session::set_tight`].
    pub fn is_tight(&self) -> bool {
        self.tight
    }

    /// Whether part of a frame has been received.
    pub fn is_mid_frame(&self) -> bool {
        !self.receiver.is_between_frames()
    }

    /// The next event. Call it until it returns `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            self.note_room();
            if !(self.held && self.phase.is_alive() && self.may_begin()) {
                return None;
            }
            self.parse();
        }
    }

    /// Fills `slices` with the bytes to be written next, and returns how many slices were set. Call
    /// [`Session::handle_written`] with the number of bytes that were written.
    pub fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.queue.slices(slices)
    }

    /// `count` of the bytes that [`Session::transmit`] returned were written.
    pub fn handle_written(&mut self, count: usize, now: Instant) {
        self.advance_time(now);
        self.queue.advance(count);
        self.keepalive.note_written(!self.queue.is_empty(), self.now);
        if self.queue.is_empty() && self.demanded().is_some() {
            // A stranger may say nothing more, and then costs no more than one who never did.
            self.shrink();
        }
    }

    /// There is nothing to read now. A peer that is not known may never say more: no memory is kept for it meanwhile.
    pub fn note_nothing_to_read(&mut self) {
        if self.demanded().is_some() {
            self.receiver.shrink();
        }
    }

    /// Frees memory that is not in use.
    fn shrink(&mut self) {
        self.receiver.shrink();
        self.queue.shrink();
        self.own.shrink();
        self.peer.shrink();
        if self.events.is_empty() {
            self.events.shrink_to_fit();
        }
    }

    /// Sets the time, which counts for what is queued next. All `handle_*` methods do it too.
    pub fn note_time(&mut self, now: Instant) {
        self.advance_time(now);
    }

    /// The number of bytes that wait to be written.
    pub fn transmit_len(&self) -> usize {
        self.queue.len()
    }

    /// When to call [`Session::handle_timeout`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.phase.is_alive() {
            return self.phase.until();
        }
        let crowded = self.crowded_since.map(|since| since + self.config.limits.orphan_age);
        let due = [
            self.phase.until(),
            self.own.earliest_deadline(),
            crowded,
            self.arrival.due(),
        ];
        Some(due.into_iter().flatten().fold(self.keepalive.next(), Instant::min))
    }

    /// Whether the connection is over and its socket can be closed.
    pub fn is_closed(&self) -> bool {
        match &self.phase {
            Phase::Unauthenticated { .. } | Phase::Open | Phase::Draining { .. } => false,
            Phase::Flushing { .. } => self.queue.is_empty(),
            Phase::Closed { .. } => true,
        }
    }

    /// Whether new requests have to use another connection: this one is ending, or has no call ids left.
    pub fn is_going_away(&self) -> bool {
        !matches!(self.phase, Phase::Unauthenticated { .. } | Phase::Open) || self.own.next_id().is_none()
    }

    /// Why the connection is closed, once that is decided.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.phase.reason()
    }

    /// The number of own requests whose answers are awaited, without PING and HEARTBEAT.
    pub fn own_calls(&self) -> usize {
        self.own.busy()
    }

    /// The number of the peer's requests in flight, without waiting ones.
    pub fn peer_calls(&self) -> usize {
        self.peer.active()
    }

    /// The number of the peer's requests that wait.
    pub fn waiting(&self) -> usize {
        self.peer.waiting()
    }

    /// The counters since the beginning of the connection.
    pub fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// Whether the limits allow another request of the peer. A client has no such limits, because if it stopped
    /// reading, its own answers would be held up. But it refuses every request, so a peer that keeps sending them has
    /// to take the refusals first.
    fn has_room(&self) -> bool {
        let limits = &self.config.limits;
        match self.config.role {
            Role::Client => self.refusals.count < limits.calls || self.refusals.last < self.queue.written(),
            // The frames behind a HEARTBEAT are judged when it is answered: it may have authenticated the peer. Refusals
            // are queued one by one, so that one read does not bring many.
            Role::Server if self.demanded().is_some() => {
                self.peer.active() == 0 && self.events.is_empty() && !self.is_queue_full()
            }
            Role::Server => {
                self.peer.active() < limits.calls && self.peer.bytes() < limits.request_bytes && !self.is_queue_full()
            }
        }
    }

    /// Whether the limit of unwritten answers is reached; while memory is short, a single byte is too many. A client's
    /// queue is limited by the number of its requests.
    fn is_queue_full(&self) -> bool {
        let limit = match self.demanded() {
            _ if self.tight => 1,
            Some(demanded) => demanded.answer_bytes,
            None => self.config.limits.answer_bytes,
        };
        self.config.role == Role::Server && self.queue.len() >= limit
    }

    /// Notes whether this side reads, so that a peer is not blamed for times in which it does not.
    fn note_room(&mut self) {
        if self.arrival.is_under_way() {
            let reading = self.wants_read();
            self.arrival.set_reading(reading, self.now);
        }
    }

    fn advance_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
