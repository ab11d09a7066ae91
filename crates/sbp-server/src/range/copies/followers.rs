//! The interface through which a range server has entries sent to others.

use std::fmt::Debug;

use sbp_types::ServerId;

use super::Repeated;

/// Sends what is fed to it to followers. Called under no lock.
pub(crate) trait Followers: Debug + Send + Sync {
    /// There may be something to send to this server.
    fn wake(&self, server: ServerId);

    /// Has these entries [compared](crate::range::RangeServer::compare) on a thread that may wait for the disk.
    fn compare(&self, repeated: Vec<Repeated>);
}
