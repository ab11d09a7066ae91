//! The interface through which a range server answers.

use std::fmt::Debug;
use std::time::Instant;

use sbp_frame::CallId;
use sbp_types::StreamId;

use super::found::ReadDone;
use super::outcome::AppendDone;

/// A sender of appends and fetches to a range server: a connection of the server, or a test.
///
/// Every answer that is not returned by the call itself leaves through this trait, on whatever thread produces it; no
/// method may block. If the requester is gone, its answers are dropped; batches that were synced stay.
///
/// Records are never pushed through it. A FETCH that waits is told that its stream has grown; the requester then plans
/// a read of as many bytes as it has room for, and plans no other while its peer has not taken the earlier answers. So
/// a peer that does not read holds up its own fetches alone.
pub(crate) trait Requester: Debug + Send + Sync {
    /// Tells the requester everything that one step of the range server means for it, so that it is woken once.
    fn notify(&self, notification: Notification);

    /// Hands over what a [read](super::ReadJob) of the call has found.
    fn deliver(&self, call: CallId, found: ReadDone);

    /// Whether the answers are no longer wanted, so that reads for this requester need not begin.
    fn is_gone(&self) -> bool;
}

/// What one step of the range server (a group of the log that ended, an order that was carried out) means for one
/// requester.
#[derive(Debug, Default)]
pub(crate) struct Notification {
    /// Entries of its APPENDs that have ended.
    pub(crate) appended: Vec<AppendDone>,
    /// Streams that have changed, for which its FETCHes were registered. Each registration is used up by this.
    pub(crate) advanced: Vec<StreamId>,
    /// When the first of the appends arrived that changed them, if appends did.
    pub(crate) arrived: Option<Instant>,
}

impl Notification {
    pub(super) fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.advanced.is_empty()
    }
}
