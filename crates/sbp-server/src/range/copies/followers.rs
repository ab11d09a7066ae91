//! The interface through which a range server has entries sent to others.

use std::fmt::Debug;

use sbp_types::ServerId;

/// Sends what is fed to it to followers. Called under no lock.
pub(crate) trait Followers: Debug + Send + Sync {
    /// There may be something to send to this server.
    fn wake(&self, server: ServerId);
}
