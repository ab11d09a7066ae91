//! Answers that have to wait until the log is through with something.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_frame::CallId;
use sbp_types::{Offset, StreamId};

use super::letters::Letters;
use super::server::{AppendJob, Ranges};
use super::writers::Claim;
use crate::connection::{AppendDone, NotStored, Port, Stored};
use crate::refusal::Refusal;

/// Entries of APPENDs that stored nothing themselves, by stream. What a connection may have in flight bounds them.
#[derive(Debug, Default)]
pub(super) struct Pending {
    by_stream: HashMap<StreamId, Vec<PendingAnswer>>,
}

#[derive(Debug)]
struct PendingAnswer {
    port: Arc<Port>,
    call: CallId,
    request_index: i32,
    /// What comes before this offset has to end first.
    until: Offset,
    answer: Answer,
}

/// What an entry is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The batch is a repeat: this if the original is synced, else the original's error.
    Repeat(Stored),
    /// Where the writer stands then.
    Question(Claim),
}

impl Pending {
    pub(super) fn wait(&mut self, port: &Arc<Port>, job: &AppendJob, until: Offset, answer: Answer) {
        self.by_stream.entry(job.entry.stream).or_default().push(PendingAnswer {
            port: Arc::clone(port),
            call: job.call,
            request_index: job.request_index,
            until,
            answer,
        });
    }

    /// Takes those for which `over` says that the wait up to their offset is.
    fn take(&mut self, stream: StreamId, over: impl Fn(Offset) -> bool) -> Vec<PendingAnswer> {
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

impl Ranges {
    /// Everything before `end` is synced.
    pub(super) fn answer_synced(&mut self, stream: StreamId, end: Offset, letters: &mut Letters) {
        if self.pending.by_stream.is_empty() {
            return;
        }
        for pending in self.pending.take(stream, |until| until <= end) {
            let outcome = match pending.answer {
                Answer::Repeat(stored) => Ok(stored),
                Answer::Question(claim) => self.table.answer_question(stream, &claim),
            };
            pending.send(stream, outcome, letters);
        }
    }

    /// Nothing from `from` on is there, for this reason.
    pub(super) fn answer_lost(&mut self, stream: StreamId, from: Offset, why: &Refusal, letters: &mut Letters) {
        if self.pending.by_stream.is_empty() {
            return;
        }
        for pending in self.pending.take(stream, |until| until > from) {
            let outcome = match pending.answer {
                Answer::Repeat(_) => Err(NotStored::from(why.clone())),
                Answer::Question(claim) => self.table.answer_question(stream, &claim),
            };
            pending.send(stream, outcome, letters);
        }
    }
}

impl PendingAnswer {
    fn send(self, stream: StreamId, outcome: Result<Stored, NotStored>, letters: &mut Letters) {
        letters.to(self.port).appended.push(AppendDone {
            call: self.call,
            request_index: self.request_index,
            stream,
            outcome,
        });
    }
}
