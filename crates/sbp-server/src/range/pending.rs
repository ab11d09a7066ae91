//! Answers to APPEND entries that are given when another entry's batch or fence is synced or has failed.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_types::StreamId;

use super::job::AppendJob;
use super::outcome::{EntryId, NotStored, Stored};
use super::requester::Requester;
use super::writers::{Until, WriterQuestion};

/// APPEND entries, by stream, that write nothing and wait for entries before them. Their number is bounded by what
/// connections may have in flight.
#[derive(Debug, Default)]
pub(super) struct PendingEntries {
    by_stream: HashMap<StreamId, Vec<PendingAnswer>>,
}

#[derive(Debug)]
pub(super) struct PendingAnswer {
    pub(super) requester: Arc<dyn Requester>,
    pub(super) entry: EntryId,
    /// What must be synced, or have failed, before this entry is answered.
    until: Until,
    pub(super) answer: Answer,
}

/// What to answer then.
#[derive(Debug)]
pub(super) enum Answer {
    /// The batch repeats an earlier one: this answer if the earlier one is synced, else the earlier one's error.
    Repeat(Stored),
    /// This refusal, if what it rests on is confirmed; else the error of that.
    Refusal(NotStored),
    /// The writer asks for its next sequence, which is looked up when it is answered.
    Question(WriterQuestion),
}

impl PendingEntries {
    pub(super) fn is_empty(&self) -> bool {
        self.by_stream.is_empty()
    }

    pub(super) fn wait(&mut self, requester: &Arc<dyn Requester>, job: &AppendJob, until: Until, answer: Answer) {
        self.by_stream.entry(job.entry.stream).or_default().push(PendingAnswer {
            requester: Arc::clone(requester),
            entry: job.id(),
            until,
            answer,
        });
    }

    /// Takes out the entries of the stream for which `over` says that their wait is over.
    pub(super) fn take(&mut self, stream: StreamId, over: impl Fn(Until) -> bool) -> Vec<PendingAnswer> {
        let Some(waiting) = self.by_stream.get_mut(&stream) else {
            return Vec::new();
        };
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(waiting)
            .into_iter()
            .partition(|pending| over(pending.until));
        if left.is_empty() {
            self.by_stream.remove(&stream);
        } else {
            *waiting = left;
        }
        taken
    }
}
