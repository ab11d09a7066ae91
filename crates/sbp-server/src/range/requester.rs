//! Whom a range server answers, and with what.

use std::fmt::Debug;

use sbp_frame::CallId;
use sbp_types::StreamId;

use super::found::ReadDone;
use super::outcome::AppendDone;

/// Whoever asks a range server for something: a connection of the server, or a test.
///
/// Every answer that comes later than the call it belongs to leaves through this trait, on whatever thread has it; no
/// method blocks. A requester that is gone is told in vain: what was synced stays.
///
/// Records are never pushed through it. A FETCH that waits is told that its stream has grown; the requester then plans
/// a read of as many bytes as it has room for, and plans no other while its peer has not taken the answers before. So a
/// peer that does not read holds up its own fetches alone.
pub(crate) trait Requester: Debug + Send + Sync {
    /// Tells everything that one step of the range server means for this requester, so that it is woken once.
    fn notify(&self, notification: Notification);

    /// Gives what a [read](super::ReadJob) of the call has found.
    fn deliver(&self, call: CallId, found: ReadDone);

    /// Whether nobody waits for answers any more, so that reads for them need not begin.
    fn is_gone(&self) -> bool;
}

/// What one step of the range server (a group of the log that ended, an order that was carried out) means for one
/// requester.
#[derive(Debug, Default)]
pub(crate) struct Notification {
    /// Entries of its APPENDs that have ended.
    pub(crate) appended: Vec<AppendDone>,
    /// Streams that its waiting FETCHes have to look at again. Each is told once, and has to be waited for anew.
    pub(crate) advanced: Vec<StreamId>,
}

impl Notification {
    pub(super) fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.advanced.is_empty()
    }
}
