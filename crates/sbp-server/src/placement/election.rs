//! Which of several placement drivers leads, as the one in this process knows it.

use std::fmt::Debug;

use sbp_messages::PlacementDriverCluster;
use sbp_replication::Term;

use crate::refusal::Refusal;

/// Who leads a cluster with several placement drivers.
pub(crate) trait Election: Debug + Send + Sync {
    /// The term in which the placement driver of this process leads now.
    ///
    /// # Errors
    ///
    /// It does not. [`PD_NOT_LEADER`](sbp_messages::ErrorCode::PD_NOT_LEADER) names who does, where that is known;
    /// [`PD_NO_AVAILABLE_RS`](sbp_messages::ErrorCode::PD_NO_AVAILABLE_RS): the store does not answer.
    fn term(&self) -> Result<Term, Refusal>;

    /// The placement drivers that live, as far as is known, with the leader marked.
    fn cluster(&self) -> PlacementDriverCluster;

    /// Whether every placement driver that lives reads records of this format. What an earlier version cannot read is not written
    /// while it could lead.
    fn all_read(&self, format: u32) -> bool;
}

/// The format from which on records of range servers say how often these were started.
pub(crate) const WITH_STARTS: u32 = 2;
/// The format from which on records of ranges say which servers were let go of them, and whose copies say nothing of the writers.
pub(crate) const WITH_COPY_NOTES: u32 = 3;
