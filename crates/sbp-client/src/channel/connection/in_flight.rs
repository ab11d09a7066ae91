//! The calls of a connection that have been sent and are not over.

use std::time::Instant;

use sbp_frame::{CallId, Frame, OpCode};
use sbp_messages::AppendResult;
use sbp_session::Outgoing;
use smallvec::SmallVec;

use crate::channel::command::{Call, Command, Fetch, Ping};
use crate::failure::Failure;

/// Where an append is: its batch of the append pipeline, and its place in that.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendId {
    pub(super) batch: usize,
    pub(super) op: usize,
}

/// A call that was sent and is not over.
pub(super) enum InFlight {
    /// The connection's own sign of life.
    Heartbeat,
    /// A PING of the connection's own, to a peer that did not answer HEARTBEAT.
    Probe,
    /// An append, and results that came without END.
    Append {
        id: AppendId,
        sent: Instant,
        results: Vec<AppendResult>,
    },
    /// A call whose frames are gathered.
    Call {
        call: Box<Call>,
        sent: Instant,
        frames: SmallVec<[Frame; 1]>,
    },
    /// A PING.
    Ping(Box<Ping>),
    /// A FETCH, whose frames are passed on.
    Fetch {
        fetch: Box<Fetch>,
        sent: Instant,
        /// What its server knows it by, until it is told to end it.
        id: Option<CallId>,
    },
    /// What ends a FETCH that nobody waits for any more.
    Withdrawal,
    /// A call that its caller makes elsewhere, because the server was silent. Its place is kept until the session is done with it.
    GivenUp,
}

impl InFlight {
    /// Whether it is the connection's own, so that no caller waits for it.
    pub(super) fn is_upkeep(&self) -> bool {
        matches!(self, Self::Heartbeat | Self::Probe | Self::Withdrawal | Self::GivenUp)
    }

    /// Tells a call, a PING or a FETCH that it failed. Appends are told by the append pipeline.
    pub(super) fn fail(self, failure: Failure) {
        match self {
            Self::Heartbeat | Self::Probe | Self::Withdrawal | Self::GivenUp | Self::Append { .. } => {}
            Self::Ping(ping) => Command::Ping(ping).fail(failure),
            Self::Call { call, .. } => Command::Call(call).fail(failure),
            Self::Fetch { fetch, .. } => fetch.fail(failure),
        }
    }
}

/// A request without a payload, by which the session knows the call at this place.
pub(super) fn request(opcode: OpCode, header: &[u8], place: usize, deadline: Instant) -> Outgoing<'_> {
    Outgoing {
        opcode,
        header,
        payload: &[],
        user: token(place),
        deadline: Some(deadline),
        receive_charge: 0,
    }
}

/// What the session knows the call at a place by.
pub(super) fn token(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(u64::MAX)
}
