//! The limits and timeouts of a session.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, MAX_FRAME_LENGTH};
use sbp_wire::{Pace, Patience};

/// Which end of the connection a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that dialled. It keeps the connection alive with HEARTBEATs.
    Client,
    /// The end that accepted. It stops reading at its limits.
    Server,
}

/// The limits of one connection. At a limit on counts or bytes a server stops reading; it does not refuse.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests of the peer in flight, without waiting FETCHes.
    pub calls: usize,
    /// Bytes of the peer's requests that are not yet answered.
    pub request_bytes: usize,
    /// Bytes of answers that are not yet written.
    pub answer_bytes: usize,
    /// FETCHes of the peer that wait for data.
    pub waits: usize,
    /// Own requests in flight, including cancelled ones.
    pub own_calls: usize,
    /// Entries in one request. The session does not check it, because it cannot read headers; the number is here to be
    /// told to the peer.
    pub entries: usize,
    /// The largest *Frame Length* accepted; at most [`sbp_frame::MAX_FRAME_LENGTH`], the default.
    pub frame_length: u32,
    /// Bytes of a request's extended header.
    pub request_header: u32,
    /// Bytes of a response's extended header.
    pub response_header: u32,
    /// Bytes of a PING's header and payload together.
    pub ping: u32,
    /// Frames that may have to be discarded in a burst before the connection is closed.
    pub discards: u32,
    /// Discarded frames per second that are tolerated in the long run.
    pub discards_per_second: u32,
    /// PINGs that are answered in a burst.
    pub pings: u32,
    /// PINGs that are answered per second in the long run.
    pub pings_per_second: u32,
    /// Own cancelled requests whose answers are outstanding. More than this for [`Limits::orphan_age`] close the
    /// connection.
    pub orphans: usize,
    /// How long there may be more than [`Limits::orphans`].
    pub orphan_age: Duration,
    /// Frames of one answer. A FETCH is answered in at most two for each of its entries, and one more.
    pub answer_frames: u32,
    /// Bytes of one answer, over all frames, beyond the memory that the caller has set aside. Servers may return more
    /// than was asked for: whole batches, long lists.
    pub answer_overshoot: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            request_bytes: 64 * 1024 * 1024,
            answer_bytes: 64 * 1024 * 1024,
            waits: 256,
            own_calls: 8192,
            entries: 1024,
            frame_length: MAX_FRAME_LENGTH,
            request_header: 1024 * 1024,
            response_header: 4 * 1024 * 1024,
            ping: 1024,
            discards: 64,
            discards_per_second: 8,
            pings: 200,
            pings_per_second: 100,
            orphans: 1024,
            orphan_age: Duration::from_secs(1),
            answer_frames: 2 * 1024 + 1,
            answer_overshoot: 256 * 1024 * 1024,
        }
    }
}

/// What a server demands of a connection before it serves it, and what such a connection may cost until then.
#[derive(Debug, Clone)]
pub struct Authentication {
    /// How long the peer may take to say who it is.
    pub within: Duration,
    /// Bytes of a HEARTBEAT's header and payload together: a token, and what else a peer says of itself.
    pub heartbeat: u32,
    /// Bytes of answers that are not yet written.
    pub answer_bytes: usize,
    /// Frames that the peer may send until then, good or bad. PINGs that are answered do not count.
    pub frames: u16,
    /// Bytes of all frames together that the peer may send until then, by the lengths that they claim.
    pub bytes: u32,
    /// The header of the GOAWAY that is sent before the connection is closed because the peer did not say who it is, in time
    /// or before it had sent too much. Encoded by the layer above; may be empty.
    pub goodbye: Bytes,
}

impl Default for Authentication {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(10),
            heartbeat: 6 * 1024,
            answer_bytes: 2 * 1024,
            frames: 16,
            bytes: 64 * 1024,
            goodbye: Bytes::new(),
        }
    }
}

/// How a session behaves. Start from [`SessionConfig::client`] or [`SessionConfig::server`].
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Which end this is.
    pub role: Role,
    /// What the connection may hold.
    pub limits: Limits,
    /// How often a client sends a HEARTBEAT.
    pub heartbeat_interval: Duration,
    /// A connection on which nothing was received for this many intervals, and at least for two seconds, is closed
    /// unless calls are in flight.
    pub silent_intervals: u32,
    /// How long a connection may take to finish its calls after this side has announced the end.
    pub grace: Duration,
    /// How long a connection that is being closed may take to write its last bytes.
    pub flush_timeout: Duration,
    /// How long queued bytes may remain unwritten before the peer counts as gone. Long enough for a process that was
    /// suspended; meanwhile a server whose answers have reached [`Limits::answer_bytes`] does not read.
    pub stall_timeout: Duration,
    /// As [`stall_timeout`](Self::stall_timeout), while memory is short and this connection has more than its share
    /// ([`crate::Session::set_tight`]): other connections need the memory.
    pub short_stall_timeout: Duration,
    /// How long the first 16 bytes of a frame may take to arrive, from the first byte on, and again the rest.
    pub head_timeout: Duration,
    /// For each so many bytes of the rest, another second is allowed. A frame that arrives more slowly closes the
    /// connection.
    pub body_bytes_per_second: u32,
    /// The header of the GOAWAY that is sent before the connection is closed because of a violation. Encoded by the
    /// layer above, because the session does not know messages; may be empty.
    pub violation_header: Bytes,
    /// What a server demands before it serves the connection; `None`: nothing. Until
    /// [`crate::Session::set_authenticated`] is called, all requests but HEARTBEAT and PING are refused.
    pub authentication: Option<Authentication>,
    /// The id of the first own request.
    pub first_call_id: CallId,
    /// Refuse requests with an unknown opcode, instead of discarding them as the specification says.
    pub answer_unknown_opcodes: bool,
    /// Announce a large answer when its header has arrived: see [`crate::Event::ResponseBegins`].
    pub announce_answers: bool,
    /// Payloads of fewer bytes are copied out of the receive block, so that one that is kept for long does not keep the
    /// whole block in memory. A client's batches live as long as the user holds them; a server's are soon in the log.
    pub detach_payloads_below: u32,
}

impl SessionConfig {
    /// The defaults of the end that dialled.
    pub fn client() -> Self {
        Self::new(Role::Client)
    }

    /// The defaults of the end that accepted.
    pub fn server() -> Self {
        Self::new(Role::Server)
    }

    /// The defaults for `role`.
    pub fn new(role: Role) -> Self {
        let (pace, patience) = (Pace::default(), Patience::default());
        Self {
            role,
            limits: Limits::default(),
            heartbeat_interval: patience.interval,
            silent_intervals: patience.silent_intervals,
            grace: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(1),
            stall_timeout: patience.stall,
            short_stall_timeout: patience.short_stall,
            head_timeout: pace.head_timeout,
            body_bytes_per_second: pace.bytes_per_second,
            violation_header: Bytes::new(),
            authentication: None,
            first_call_id: CallId::FIRST,
            answer_unknown_opcodes: false,
            announce_answers: false,
            detach_payloads_below: match role {
                Role::Client => 64 * 1024,
                Role::Server => 0,
            },
        }
    }

    pub(crate) fn pace(&self) -> Pace {
        Pace {
            head_timeout: self.head_timeout,
            bytes_per_second: self.body_bytes_per_second,
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience {
            interval: self.heartbeat_interval,
            silent_intervals: self.silent_intervals,
            stall: self.stall_timeout,
            short_stall: self.short_stall_timeout,
        }
    }
}
