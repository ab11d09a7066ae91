//! Answers that have to wait until the log is through with something.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_frame::CallId;
use sbp_types::{Offset, StreamId, WriterId};

use super::letters::Letters;
use super::server::{AppendJob, Ranges};
use super::writers::{Question, Until};
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
    /// What has to end first.
    until: Until,
    answer: Answer,
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
    pub(super) fn wait(&mut self, port: &Arc<Port>, job: &AppendJob, until: Until, answer: Answer) {
        self.by_stream.entry(job.entry.stream).or_default().push(PendingAnswer {
            port: Arc::clone(port),
            call: job.call,
            request_index: job.request_index,
            until,
            answer,
        });
    }

    /// Takes those for which `over` says that what they wait for is.
    fn take(&mut self, stream: StreamId, over: impl Fn(Until) -> bool) -> Vec<PendingAnswer> {
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
        let over = |until| matches!(until, Until::Synced(until) if until <= end);
        self.answer(stream, over, None, letters);
    }

    /// Nothing from `from` on is there, for this reason.
    pub(super) fn answer_lost(&mut self, stream: StreamId, from: Offset, why: &Refusal, letters: &mut Letters) {
        let over = |until| matches!(until, Until::Synced(until) if until > from);
        self.answer(stream, over, Some(why), letters);
    }

    /// A writer's fence is synced, or for this reason it is not there.
    pub(super) fn answer_fenced(
        &mut self,
        stream: StreamId,
        writer: WriterId,
        epoch: i64,
        why: Option<&Refusal>,
        letters: &mut Letters,
    ) {
        self.answer(stream, |until| until == Until::Fenced { writer, epoch }, why, letters);
    }

    /// The stream is gone.
    pub(super) fn answer_deleted(&mut self, stream: StreamId, letters: &mut Letters) {
        self.answer(stream, |_| true, Some(&Refusal::no_stream(stream)), letters);
    }

    fn answer(
        &mut self,
        stream: StreamId,
        over: impl Fn(Until) -> bool,
        lost: Option<&Refusal>,
        letters: &mut Letters,
    ) {
        if self.pending.by_stream.is_empty() {
            return;
        }
        let not_there = || Err(NotStored::from(lost.cloned().unwrap_or_else(Refusal::unanswered)));
        for pending in self.pending.take(stream, over) {
            let outcome = match pending.answer {
                Answer::Repeat(_) if lost.is_some() => not_there(),
                Answer::Repeat(stored) => Ok(stored),
                Answer::Question(question) => {
                    let answer = self.table.answer_question(stream, &question);
                    answer.unwrap_or_else(not_there)
                }
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
