//! Answers that have to wait until the log is through with something.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_frame::CallId;
use sbp_types::StreamId;

use super::job::AppendJob;
use super::notifications::Notifications;
use super::outcome::{AppendDone, NotStored, Stored};
use super::requester::Requester;
use super::writers::{Question, Until};

/// Entries of APPENDs that stored nothing themselves, by stream. What a connection may have in flight bounds them.
#[derive(Debug, Default)]
pub(super) struct Pending {
    by_stream: HashMap<StreamId, Vec<PendingAnswer>>,
}

#[derive(Debug)]
pub(super) struct PendingAnswer {
    requester: Arc<dyn Requester>,
    call: CallId,
    request_index: i32,
    /// What has to end first.
    until: Until,
    pub(super) answer: Answer,
}

/// What an entry is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The batch is a repeat: this if the original is synced, else the original's error.
    Repeat(Stored),
    /// Where the writer stands then.
    Question(Question),
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.by_stream.is_empty()
    }

    pub(super) fn wait(&mut self, requester: &Arc<dyn Requester>, job: &AppendJob, until: Until, answer: Answer) {
        self.by_stream.entry(job.entry.stream).or_default().push(PendingAnswer {
            requester: Arc::clone(requester),
            call: job.call,
            request_index: job.request_index,
            until,
            answer,
        });
    }

    /// Takes those for which `over` says that what they wait for is.
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

impl PendingAnswer {
    pub(super) fn send(self, stream: StreamId, outcome: Result<Stored, NotStored>, notifications: &mut Notifications) {
        notifications.to(self.requester).appended.push(AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream,
            outcome,
        });
    }
}
