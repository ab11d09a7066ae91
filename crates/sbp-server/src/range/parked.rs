//! Appends that cannot be judged yet.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;

use super::job::AppendJob;
use super::requester::Requester;

/// Bytes of batches that may be parked, over all streams.
const MAX_PARKED: usize = 64 << 20;

/// Appends that wait until it is decided which range is next, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_stream: HashMap<StreamId, Vec<ParkedJob>>,
    bytes: usize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct ParkedJob {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) job: AppendJob,
    /// It waits for the answer to a question, and is judged by what is known then.
    pub(super) asked: bool,
}

impl Parked {
    /// Whether a batch of this size may be parked too.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= MAX_PARKED
    }

    /// Keeps an append.
    pub(super) fn park(&mut self, requester: &Arc<dyn Requester>, job: AppendJob, asked: bool) {
        self.bytes = self.bytes.saturating_add(job.entry.length);
        let requester = Arc::clone(requester);
        self.by_stream
            .entry(job.entry.stream)
            .or_default()
            .push(ParkedJob { requester, job, asked });
    }

    /// Takes everything that waits for the stream.
    pub(super) fn take(&mut self, stream: StreamId) -> Vec<ParkedJob> {
        let jobs = self.by_stream.remove(&stream).unwrap_or_default();
        let bytes: usize = jobs.iter().map(|parked| parked.job.entry.length).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        jobs
    }
}
