//! Appends that cannot be judged yet.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;

use super::job::AppendJob;
use super::outcome::AppendDone;
use super::requester::Requester;
use crate::refusal::Refusal;

/// Bytes of batches that may be parked, over all streams.
const MAX_PARKED: usize = 64 << 20;

/// Appends that wait until it is known which range they go to, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_stream: HashMap<StreamId, Vec<ParkedJob>>,
    bytes: usize,
}

/// A parked append.
#[derive(Debug)]
pub(super) struct ParkedJob {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) job: AppendJob,
    /// Whether the append waits for the placement driver's answer about an unknown stream, not for the end of a seal.
    pub(super) asked: bool,
}

impl Parked {
    /// Whether a batch of this size may be parked as well.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= MAX_PARKED
    }

    /// Parks an append.
    pub(super) fn park(&mut self, requester: &Arc<dyn Requester>, job: AppendJob, asked: bool) {
        self.bytes = self.bytes.saturating_add(job.entry.length);
        let requester = Arc::clone(requester);
        self.by_stream
            .entry(job.entry.stream)
            .or_default()
            .push(ParkedJob { requester, job, asked });
    }

    /// Judges the parked appends of one requester again, and takes out those that may not be stored any more.
    pub(super) fn refuse_of(
        &mut self,
        requester: &Arc<dyn Requester>,
        mut judge: impl FnMut(&mut AppendJob) -> Result<(), Refusal>,
    ) -> Vec<AppendDone> {
        let mut refused = Vec::new();
        let bytes = &mut self.bytes;
        self.by_stream.retain(|_, jobs| {
            jobs.retain_mut(|ParkedJob { requester: of, job, .. }| {
                if !Arc::ptr_eq(of, requester) {
                    return true;
                }
                let Err(refusal) = judge(job) else { return true };
                *bytes = bytes.saturating_sub(job.entry.length);
                refused.push(job.refuse(refusal));
                false
            });
            !jobs.is_empty()
        });
        refused
    }

    /// Takes out all appends parked for the stream.
    pub(super) fn take(&mut self, stream: StreamId) -> Vec<ParkedJob> {
        let jobs = self.by_stream.remove(&stream).unwrap_or_default();
        let bytes: usize = jobs.iter().map(|parked| parked.job.entry.length).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        jobs
    }
}
