//! The interface through which the log reports the outcome of appends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::LogError;

/// Told the outcome of each group of appends.
pub trait GroupObserver<T>: Send + Sync + 'static {
    /// Called once per group, in the order in which its entries were queued: after the sync, when readers can see the
    /// entries, or when it is known that they were not or may not have been written. Must not block, because the next
    /// group waits.
    ///
    /// After [`LogError::DiskFull`], each range of which something was refused continues from the first offset that was: all
    /// that was queued behind it in the range is refused too.
    fn group_ended(&self, contexts: Vec<T>, outcome: Result<(), Arc<LogError>>);
}

/// Told how long each sync of a segment took, on the thread that waited for it. Must not block.
pub trait SyncObserver: fmt::Debug + Send + Sync + 'static {
    /// A sync of a segment has ended, well or not.
    fn sync_ended(&self, took: Duration);
}
