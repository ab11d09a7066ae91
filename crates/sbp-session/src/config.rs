//! What a session may hold, wait for and put up with.

use std::time::Duration;

use bytes::Bytes;
use sbp_frame::{CallId, MAX_FRAME_LENGTH};

/// Which end of the connection a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that dialled. It keeps the connection alive with HEARTBEATs.
    Client,
    /// The end that accepted. It stops reading at its limits.
    Server,
}

/// The limits of one connection. Beyond a count or a sum of bytes a server stops reading; it does not err.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests of the peer that are in flight, waiting FETCHes left out.
    pub calls: usize,
    /// Bytes of the peer's requests that were read and are not yet answered.
    pub request_bytes: usize,
    /// Bytes of answers that are not yet written.
    pub answer_bytes: usize,
    /// FETCHes of the peer that wait.
    pub waits: usize,
    /// Own requests in flight, cancelled ones included.
    pub own_calls: usize,
    /// Entries in one request. The session looks at no entry; the number is here because it is told to the peer.
    pub entries: usize,
    /// The largest *Frame Length*; at most [`sbp_frame::MAX_FRAME_LENGTH`], which it is by default.
    pub frame_length: u32,
    /// Bytes of a request's extended header.
    pub request_header: u32,
    /// Bytes of a response's extended header.
    pub response_header: u32,
    /// Bytes of a PING, header and payload together.
    pub ping: u32,
    /// Discarded frames that are put up with in a burst.
    pub discards: u32,
    /// Discards that are forgiven each second.
    pub discards_per_second: u32,
    /// PINGs that are answered in a burst.
    pub pings: u32,
    /// PINGs that are answered each second.
    pub pings_per_second: u32,
    /// Own cancelled requests whose answer is outstanding. More of them for [`Limits::orphan_age`] close the connection.
    pub orphans: usize,
    /// How long there may be more than [`Limits::orphans`].
    pub orphan_age: Duration,
    /// Frames of one answer. A FETCH is answered in at most two for each of its entries, and one more.
    pub answer_frames: u32,
    /// Bytes of one answer, all its frames together, beyond what the caller has set memory aside for. It is what a
    /// server may have to say that returns more than it was asked for: whole batches, long lists.
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

/// How a session behaves. Start from [`SessionConfig::client`] or [`SessionConfig::server`].
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Which end this is.
    pub role: Role,
    /// What the connection may hold.
    pub limits: Limits,
    /// How often a client is told to send a HEARTBEAT, and what "silent" is measured in.
    pub heartbeat_interval: Duration,
    /// A connection from which nothing came for this many intervals, and for two seconds at least, is closed, unless
    /// calls are in flight.
    pub silent_intervals: u32,
    /// How long a connection that announced its end may take to finish what was started.
    pub grace: Duration,
    /// How long the last bytes may take once a connection is being closed.
    pub flush_timeout: Duration,
    /// How long bytes that wait to be written may fail to move before the peer counts as gone. Meanwhile a server whose
    /// answers have reached [`Limits::answer_bytes`] reads no more: a process that was paused for a while goes on.
    pub stall_timeout: Duration,
    /// The same while memory is short and this connection has more than its part ([`crate::Session::set_tight`]): then
    /// others need what the peer does not take.
    pub short_stall_timeout: Duration,
    /// How long the first 16 bytes of a frame may take, from the first of them on; then so long again for the rest.
    pub head_timeout: Duration,
    /// Bytes of a frame's rest that buy it another second. A frame that comes in more slowly ends the connection.
    pub body_bytes_per_second: u32,
    /// The GoAway header sent before a connection is closed for what the peer did. Encoded by the layer above, because
    /// a session knows no messages; may be empty.
    pub violation_header: Bytes,
    /// The first id given to an own request.
    pub first_call_id: CallId,
    /// Ask for an answer to requests with an unknown opcode, instead of discarding them as the specification says.
    pub answer_unknown_opcodes: bool,
    /// Tell of large answers as soon as their header is here: see [`crate::Event::ResponseBegins`].
    pub announce_answers: bool,
    /// Payloads of less than this many bytes are copied out of the receive block, so that one that is kept for long
    /// does not keep the block. A client's batches live as long as the user likes; a server's are soon in the log.
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
        Self {
            role,
            limits: Limits::default(),
            heartbeat_interval: Duration::from_secs(30),
            silent_intervals: 3,
            grace: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
            short_stall_timeout: Duration::from_millis(1_500),
            head_timeout: Duration::from_secs(5),
            body_bytes_per_second: 16 * 1024,
            violation_header: Bytes::new(),
            first_call_id: CallId::FIRST,
            answer_unknown_opcodes: false,
            announce_answers: false,
            detach_payloads_below: match role {
                Role::Client => 64 * 1024,
                Role::Server => 0,
            },
        }
    }
}
