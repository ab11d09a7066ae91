//! The connection's state machine.

mod closing;
mod input;
mod judge;
mod output;
mod timers;
#[cfg(test)]
mod transitions;

use std::{collections::VecDeque, io::IoSlice, time::Instant};

use bytes::{BytesMut, buf::Limit};
use sbp_frame::WriteQueue;

use crate::{
    CloseReason, Event, Role, SessionConfig, SessionStats, arrival::Arrival, budget::Budget, keepalive::Keepalive,
    own_calls::OwnCalls, peer_calls::PeerCalls, phase::Phase, receiver::Receiver,
};

/// System errors queued since the queue was last free of them.
#[derive(Debug, Clone, Copy, Default)]
struct Refusals {
    count: usize,
    /// Where the last one begins, counted as [`WriteQueue::pushed`].
    last: u64,
}

/// One connection, seen from one of its ends.
///
/// Methods named `handle_*` take what happened, `poll_*` give what is due, `send_*` queue frames. None blocks, none
/// reads a clock; time only moves forward with the `now` arguments.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    phase: Phase,
    /// The latest time heard of, for what happens between two of them.
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
    /// GOAWAYs of the peer, counted as far as it matters: none, one, more.
    peer_go_aways: u8,
    /// Own requests that the peer's GOAWAY declared not started. It may still refuse each of them.
    unstarted: usize,
    refusals: Refusals,
    /// Parsing stopped at a limit with bytes left, and goes on when there is room.
    held: bool,
    /// Memory is short, and this connection has more than its part.
    tight: bool,
}

impl Session {
    /// A session at the beginning of a connection. A client's first event is [`Event::HeartbeatDue`].
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        let limits = &config.limits;
        let mut events = VecDeque::new();
        if config.role == Role::Client {
            events.push_back(Event::HeartbeatDue);
        }
        Self {
            phase: Phase::Open,
            now,
            receiver: Receiver::new(limits.frame_length),
            arrival: Arrival::new(&config),
            queue: WriteQueue::new(),
            events,
            own: OwnCalls::new(config.first_call_id),
            peer: PeerCalls::new(),
            keepalive: Keepalive::new(&config, now),
            discards: Budget::new(limits.discards, limits.discards_per_second, now),
            pings: Budget::new(limits.pings, limits.pings_per_second, now),
            stats: SessionStats::default(),
            crowded_since: None,
            peer_go_aways: 0,
            unstarted: 0,
            refusals: Refusals::default(),
            held: false,
            tight: false,
            config,
        }
    }

    /// How this session was set up.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Where the next bytes are to be read into; never without room. Call [`Session::handle_received`] with their
    /// number before anything else.
    ///
    /// The room grows in blocks with what is received, never with what a peer claims. Only a payload of 64 KiB or more
    /// that a caller has set memory aside for, or one below [`SessionConfig::detach_payloads_below`], has an allocation
    /// of its own.
    pub fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        self.receiver.buffer()
    }

    /// Whether bytes should be read now. False at a limit, which is how a server pushes back, and when the connection
    /// ends.
    pub fn wants_read(&self) -> bool {
        self.phase.is_alive() && self.has_room() && (!self.tight || !self.receiver.is_between_frames())
    }

    /// Whether the peer's next request may be begun.
    fn may_begin(&self) -> bool {
        self.has_room() && !self.tight
    }

    /// Bytes that this connection holds: requests that are not yet answered, answers that are not yet written, and what
    /// there is of the frame at hand.
    pub fn held_bytes(&self) -> usize {
        self.peer.bytes() + self.queue.len() + self.receiver.held()
    }

    /// Says whether memory is short and this connection has more than its part: until that ends, a server begins no
    /// request of this peer, and gives one that takes no answers only [`SessionConfig::short_stall_timeout`].
    pub fn set_tight(&mut self, tight: bool, now: Instant) {
        self.advance_time(now);
        self.tight = tight && self.config.role == Role::Server;
        self.keepalive.note_short(self.tight, self.now);
    }

    /// Whether memory is short; see [`Session::set_tight`].
    pub fn is_tight(&self) -> bool {
        self.tight
    }

    /// Whether a frame has begun to come in and is not complete.
    pub fn is_mid_frame(&self) -> bool {
        !self.receiver.is_between_frames()
    }

    /// The next event. To be called until there is none.
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

    /// Fills `slices` with the bytes to be written next, and returns how many were set. Call
    /// [`Session::handle_written`] with how many of these bytes were written.
    pub fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.queue.slices(slices)
    }

    /// So many of the bytes that [`Session::transmit`] gave are written.
    pub fn handle_written(&mut self, count: usize, now: Instant) {
        self.advance_time(now);
        self.queue.advance(count);
        self.keepalive.note_written(!self.queue.is_empty(), self.now);
    }

    /// What time it is: what is queued next is queued now. Every `handle_*` tells it too.
    pub fn note_time(&mut self, now: Instant) {
        self.advance_time(now);
    }

    /// Bytes that wait to be written.
    pub fn transmit_len(&self) -> usize {
        self.queue.len()
    }

    /// When [`Session::handle_timeout`] is to be called, if nothing else happens before.
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

    /// Whether the connection is over: the socket can be closed.
    pub fn is_closed(&self) -> bool {
        match &self.phase {
            Phase::Open | Phase::Draining { .. } => false,
            Phase::Flushing { .. } => self.queue.is_empty(),
            Phase::Closed { .. } => true,
        }
    }

    /// Whether new requests have to go on another connection: this one ends, or has no ids left.
    pub fn is_going_away(&self) -> bool {
        !matches!(self.phase, Phase::Open) || self.own.next_id().is_none()
    }

    /// Why the connection ends, from the moment on that this is settled.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.phase.reason()
    }

    /// Own requests that somebody waits for, PING and HEARTBEAT left out.
    pub fn own_calls(&self) -> usize {
        self.own.busy()
    }

    /// Requests of the peer in flight, waiting ones left out.
    pub fn peer_calls(&self) -> usize {
        self.peer.active()
    }

    /// Requests of the peer that wait.
    pub fn waiting(&self) -> usize {
        self.peer.waiting()
    }

    /// Lowers the number of own requests in flight to what the peer told to take.
    pub fn limit_own_calls(&mut self, calls: usize) {
        let limit = &mut self.config.limits.own_calls;
        *limit = (*limit).min(calls.max(1));
    }

    /// Counters since the beginning.
    pub fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// Whether the limits allow another request of the peer. A client has no such limits: if it stopped reading, its
    /// own answers would be held up. But it serves nothing, and a peer that asks it again and again has to take the
    /// refusals.
    fn has_room(&self) -> bool {
        let limits = &self.config.limits;
        match self.config.role {
            Role::Client => self.refusals.count < limits.calls || self.refusals.last < self.queue.written(),
            Role::Server => {
                self.peer.active() < limits.calls && self.peer.bytes() < limits.request_bytes && !self.is_queue_full()
            }
        }
    }

    /// Whether as many bytes of answers wait as may; any are many while memory is short. A client's requests are limited
    /// by their number.
    fn is_queue_full(&self) -> bool {
        let limit = if self.tight { 1 } else { self.config.limits.answer_bytes };
        self.config.role == Role::Server && self.queue.len() >= limit
    }

    /// Keeps the times in which this side does not read, so that a peer is not blamed for them.
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
