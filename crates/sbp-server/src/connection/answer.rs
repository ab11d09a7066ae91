//! Answers that are complete before their connection hears of them.

use sbp_frame::CallId;
use sbp_messages::{DeleteStreamsResponse, DescribeRangesResponse, SealRangesResponse, SyncRangesResponse};
use sbp_session::Session;

use super::replier::Replier;

/// An answer that is complete.
#[derive(Debug)]
pub(crate) enum Answer {
    Sealed(SealRangesResponse),
    Synced(SyncRangesResponse),
    Deleted(DeleteStreamsResponse),
    Described(DescribeRangesResponse),
}

impl Answer {
    /// Sends it.
    pub(crate) fn send(&self, session: &mut Session, replier: &mut Replier, call: CallId) {
        match self {
            Self::Sealed(response) => replier.finish(session, call, response),
            Self::Synced(response) => replier.finish(session, call, response),
            Self::Deleted(response) => replier.finish(session, call, response),
            Self::Described(response) => replier.finish(session, call, response),
        }
    }
}
