//! Answers that other tasks complete and post to a connection.

use sbp_frame::CallId;
use sbp_messages::{DeleteStreamsResponse, DescribeRangesResponse, SealRangesResponse, SyncRangesResponse};
use sbp_session::Session;

use super::replier::Replier;

/// A complete answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Sealed(SealRangesResponse),
    Synced(SyncRangesResponse),
    Deleted(DeleteStreamsResponse),
    Described(DescribeRangesResponse),
}

impl Answer {
    /// Encodes the answer and sends it.
    pub(crate) fn send(&self, session: &mut Session, replier: &mut Replier, call: CallId) {
        match self {
            Self::Sealed(response) => replier.finish(session, call, response),
            Self::Synced(response) => replier.finish(session, call, response),
            Self::Deleted(response) => replier.finish(session, call, response),
            Self::Described(response) => replier.finish(session, call, response),
        }
    }
}
