//! What waits for a range server goes on without it when that server is gone, and not only when the time of a call is over.

use sbp_messages::ErrorCode;
use sbp_types::{Position, ServerId, StreamId};

use super::{AwaitedStep, Worker};
use crate::placement::operations::OperationId;
use crate::refusal::Refusal;

/// An answer that a lost server owes.
enum Owed {
    Seal,
    TrimEnd,
    Orders(Vec<StreamId>),
    Vote,
    WriteBack {
        source: ServerId,
        to: ServerId,
        end: Position,
    },
}

impl Worker {
    /// Ends the wait of all operations for this server. What it answers later is ignored, but for a vote in a seal that is not
    /// decided by then.
    pub(super) fn go_on_without(&mut self, server: ServerId) {
        let mut operations: Vec<OperationId> = self.waiting.keys().copied().collect();
        // Operations end in the order in which they began.
        operations.sort_unstable();
        for id in operations {
            for owed in self.owed_by(id, server) {
                self.refuse_for(id, server, owed);
            }
        }
    }

    fn owed_by(&self, id: OperationId, server: ServerId) -> Vec<Owed> {
        match self.waiting.get(&id) {
            Some(AwaitedStep::Seal { server: asked, .. }) if *asked == server => vec![Owed::Seal],
            Some(AwaitedStep::TrimEnd { server: asked, .. }) if *asked == server => vec![Owed::TrimEnd],
            Some(AwaitedStep::Orders { missing, .. }) => {
                let streams = missing.iter().filter(|(told, _)| *told == server);
                vec![Owed::Orders(streams.map(|(_, stream)| *stream).collect())]
            }
            Some(AwaitedStep::SharedSeal(seal)) => {
                let vote = seal.awaits_vote(server).then_some(Owed::Vote);
                let written = seal.awaited_writes(server);
                let written = written.map(|(source, to, end)| Owed::WriteBack { source, to, end });
                vote.into_iter().chain(written).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Handles a refusal in place of the answer that does not come.
    fn refuse_for(&mut self, id: OperationId, server: ServerId, owed: Owed) {
        let message = format!("range server {server} went down before it answered");
        let gone = Refusal::new(ErrorCode::PD_NO_AVAILABLE_RS, message);
        match owed {
            Owed::Seal => {
                // A server that is back is not to end a range whose seal was refused.
                if let Some(range_server) = self.range_servers.server(server) {
                    range_server.give_up_seals();
                }
                self.handle_sealed(id, Err(gone));
            }
            Owed::TrimEnd => self.handle_end(id, Err(gone)),
            Owed::Orders(streams) => {
                for stream in streams {
                    self.handle_told(Some(id), server, stream, Err(gone.clone()));
                }
            }
            Owed::Vote => self.handle_voted(id, server, Err(gone)),
            Owed::WriteBack { source, to, end } => self.handle_written_back(id, source, to, end, Err(gone)),
        }
    }
}
