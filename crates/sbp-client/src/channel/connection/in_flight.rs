//! The calls of a connection that have been sent and are not over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sbp_frame::{Flags, Frame};
use sbp_messages::{AppendResult, DecodeError, ErrorCode, PlacementDriverCluster, Status, SystemErrorResponse};
use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot};

use crate::address::ServerAddress;
use crate::channel::command::{Answer, FetchEvent};
use crate::channel::credit::Charge;
use crate::failure::{Cause, Failure};

/// One call that was sent.
pub(super) enum InFlight {
    /// The connection's own sign of life.
    Heartbeat,
    /// A PING of the connection's own, to a peer that did not answer HEARTBEAT.
    Probe,
    /// An append: which of the submissions, which of its operations, and results that came without END.
    Append {
        batch: u32,
        op: u32,
        sent: Instant,
        results: Vec<AppendResult>,
    },
    /// A call whose frames are gathered.
    Call {
        reply: oneshot::Sender<Result<Answer, Failure>>,
        sent: Instant,
        frames: SmallVec<[Frame; 1]>,
    },
    /// A PING.
    Ping {
        reply: oneshot::Sender<Result<Duration, Failure>>,
    },
    /// A FETCH: what is left of its charge, and who takes its frames.
    Fetch {
        charge: Charge,
        tag: u32,
        events: mpsc::UnboundedSender<FetchEvent>,
        begins: Option<oneshot::Sender<Bytes>>,
    },
}

impl InFlight {
    /// Whether it is the connection's own, so that no caller waits for it.
    pub(super) fn is_upkeep(&self) -> bool {
        matches!(self, Self::Heartbeat | Self::Probe)
    }

    /// Tells a call or a FETCH that it failed. Appends are told by the append pipeline.
    pub(super) fn fail(self, failure: Failure) {
        // A receiver that is gone has given up on the call.
        match self {
            Self::Heartbeat | Self::Probe | Self::Append { .. } => {}
            Self::Ping { reply } => drop(reply.send(Err(failure))),
            Self::Call { reply, .. } => drop(reply.send(Err(failure))),
            Self::Fetch { tag, events, .. } => drop(events.send(FetchEvent::Failed { tag, failure })),
        }
    }
}

/// Passes a frame of a FETCH on, with credit for what it holds: nobody asked for more than was charged, but a server
/// returns at least one whole batch.
pub(super) fn pass_on(
    charge: &mut Charge,
    tag: u32,
    events: &mpsc::UnboundedSender<FetchEvent>,
    frame: Frame,
    end: bool,
    endpoint: &Arc<str>,
) {
    let arrived = charge.split(frame.payload.len());
    drop(events.send(FetchEvent::Frame {
        tag,
        frame,
        charge: arrived,
        end,
        endpoint: Arc::clone(endpoint),
    }));
}

/// What a system error says.
pub(super) fn system_error(frame: &Frame) -> Option<Cause> {
    if !frame.flags.contains(Flags::SYSTEM_ERROR) {
        return None;
    }
    Some(match SystemErrorResponse::decode(&frame.header) {
        Ok(answer) => refused(&answer.status, 0),
        Err(error) => undecodable(frame, &error),
    })
}

/// A status that is an error, as a cause.
pub(crate) fn refused(status: &Status, throttle_ms: i32) -> Cause {
    let throttle = u64::try_from(throttle_ms).unwrap_or(0);
    Cause::Refused {
        code: status.code,
        message: if status.message.is_empty() {
            status.code.name().to_owned()
        } else {
            status.message.clone()
        },
        throttle: Duration::from_millis(throttle),
        leader: leader(status),
    }
}

/// Whom a refusal names as the leader. Its text is a peer's: what is no address is no hint.
fn leader(status: &Status) -> Option<ServerAddress> {
    if status.code != ErrorCode::PD_NOT_LEADER {
        return None;
    }
    let cluster = PlacementDriverCluster::from_detail(&status.detail).ok()?;
    ServerAddress::of_peer(&cluster.leader()?.advertise_addr)
}

/// An answer that cannot be read.
pub(crate) fn undecodable(frame: &Frame, error: &DecodeError) -> Cause {
    let name = frame.opcode.name().unwrap_or("unknown operation");
    Cause::Protocol {
        what: format!("the answer to {name} cannot be read: {error}"),
    }
}
