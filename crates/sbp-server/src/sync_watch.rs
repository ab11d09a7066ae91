//! How long the disk takes for syncs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_log::SyncObserver;
use sbp_transport::LogRateLimiter;

use crate::disk_watch::DiskWatch;
use crate::stats::Counters;

/// A sync that takes longer is logged: appends waited for it.
const SLOW: Duration = Duration::from_secs(1);

/// Counts the syncs of the log, and logs the slow ones. Time in which this process was stopped is not the disk's.
#[derive(Debug)]
pub(crate) struct SyncWatch {
    counters: Arc<Counters>,
    disk: Arc<DiskWatch>,
    slow: LogRateLimiter,
}

impl SyncWatch {
    pub(crate) fn new(counters: Arc<Counters>, disk: Arc<DiskWatch>) -> Arc<Self> {
        let slow = LogRateLimiter::default();
        Arc::new(Self { counters, disk, slow })
    }
}

impl SyncObserver for SyncWatch {
    fn sync_ended(&self, took: Duration) {
        let took = self.disk.ran_for(took);
        self.counters.sync_seconds.observe(took, 1);
        if took > SLOW
            && let Some(left_out) = self.slow.due(Instant::now())
        {
            tracing::warn!(seconds = took.as_secs_f64(), left_out, "a sync of the log was slow");
        }
    }
}
