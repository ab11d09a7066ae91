//! How the rest of the server reaches a connection.

use sbp_frame::CallId;
use sbp_transport::Mailbox;
use sbp_types::{Offset, RangeKey, StreamId};

use super::fetch::ReadDone;
use crate::placement::Reply;
use crate::refusal::Refusal;
use crate::roles::Answer;

/// A connection's address inside the server.
#[derive(Debug)]
pub(crate) struct Port {
    /// Above 0, never given twice while the server runs; told to the peer in HEARTBEAT.
    pub(crate) id: i64,
    pub(crate) mailbox: Mailbox<ConnectionCommand>,
}

/// What a connection is told by the rest of the server.
#[derive(Debug)]
pub(crate) enum ConnectionCommand {
    /// A group of the log has ended: these batches are synced, or never will be.
    Appended(Vec<AppendDone>),
    /// These streams, which fetches of this connection wait for, have grown. Each is told once and has to be waited for
    /// anew.
    Advanced(Vec<StreamId>),
    /// Batches were read from the disk.
    Read { call: CallId, done: ReadDone },
    /// A metadata change is durable, or was refused as a whole.
    Changed {
        call: CallId,
        answer: Result<Reply, Refusal>,
    },
    /// A range server has told, for a question about ranges, where readers of them stand.
    Ends {
        call: CallId,
        keys: Vec<RangeKey>,
        ends: Result<Vec<Option<Offset>>, Refusal>,
    },
    /// A range server alone has done what its peer asked for.
    Answered { call: CallId, answer: Answer },
    /// The server goes down.
    GoAway,
}

/// How one batch of an APPEND ended.
#[derive(Debug)]
pub(crate) struct AppendDone {
    pub(crate) call: CallId,
    pub(crate) request_index: i32,
    pub(crate) stream: StreamId,
    /// Where it is, or why it is nowhere.
    pub(crate) outcome: Result<Stored, NotStored>,
}

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// -1 for an empty batch, and for one that was stored so long ago that nobody remembers where.
    pub(crate) base_offset: Offset,
    pub(crate) next_offset: Offset,
    /// It was there before.
    pub(crate) duplicate: bool,
    /// What the writer has to send next; -1 without a writer.
    pub(crate) next_sequence: i64,
}

/// Why a batch is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotStored {
    pub(crate) refusal: Refusal,
    /// The stream's next offset, where that is the reason.
    pub(crate) next_offset: Option<Offset>,
    /// What the writer has to send next; -1 where that does not help.
    pub(crate) next_sequence: i64,
}

impl From<Refusal> for NotStored {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            next_offset: None,
            next_sequence: -1,
        }
    }
}
