//! How the rest of the server reaches a connection.

use sbp_frame::CallId;
use sbp_transport::Mailbox;
use sbp_types::{Offset, RangeKey, StreamId};

use super::answer::Answer;
use crate::placement::Reply;
use crate::range::{AppendDone, Notification, ReadDone, Requester};
use crate::refusal::Refusal;

/// A connection's address inside the server.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
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

impl ConnectionHandle {
    /// Tells the connection something. One that is gone is told in vain: that undoes nothing that is durable.
    pub(crate) fn post(&self, command: ConnectionCommand) {
        let _gone = self.mailbox.post(command);
    }
}

impl Requester for ConnectionHandle {
    fn notify(&self, notification: Notification) {
        let Notification { appended, advanced } = notification;
        let mut commands = Vec::with_capacity(2);
        if !appended.is_empty() {
            commands.push(ConnectionCommand::Appended(appended));
        }
        if !advanced.is_empty() {
            commands.push(ConnectionCommand::Advanced(advanced));
        }
        let _gone = self.mailbox.post_all(&mut commands);
    }

    fn deliver(&self, call: CallId, found: ReadDone) {
        self.post(ConnectionCommand::Read { call, done: found });
    }

    fn is_gone(&self) -> bool {
        self.mailbox.is_closed()
    }
}
