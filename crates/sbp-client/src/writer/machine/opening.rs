//! How a writer with a name begins: it asks where it stands, or takes over from the instances before it.

use std::time::Instant;

use sbp_messages::features;

use super::holes::definite;
use super::{ATTEMPTS, AttemptEnd, Content, Machine, Opening, Phase, QUESTION, ToSend, token};
use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::failure::{Cause, Failure};
use crate::outcome::Ack;
use crate::retry::{Decision, Wait};

/// How far the question is that a writer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningQuestion {
    Due,
    /// With the number of its attempt.
    InFlight(u32),
}

impl<P> Machine<P> {
    pub(super) fn question(&mut self, now: Instant) -> ToSend<'_, P> {
        self.question_attempts = (self.question_attempts + 1) & ATTEMPTS;
        self.phase = Phase::Asking(OpeningQuestion::InFlight(self.question_attempts));
        ToSend {
            token: token(QUESTION, self.question_attempts),
            epoch: self.epoch,
            base_sequence: 0,
            deadline: self.setup.open_by.min(now + self.setup.attempt_timeout),
            content: match self.setup.opening {
                Opening::TakesOver { .. } => Content::Fence,
                Opening::At(_) | Opening::Asks => Content::Question,
            },
        }
    }

    /// The answer to the question.
    pub(super) fn handle_answer(&mut self, now: Instant, attempt: u32, end: AttemptEnd) {
        if !matches!(self.phase, Phase::Asking(OpeningQuestion::InFlight(current)) if current == attempt) {
            return;
        }
        self.phase = Phase::Asking(OpeningQuestion::Due);
        let takes_over = matches!(self.setup.opening, Opening::TakesOver { .. });
        match end.outcome {
            // The epoch was current before: another instance has it, or an attempt of ours whose answer was lost. One
            // cannot be told from the other, and two instances in one epoch would take each other's records for repeats.
            Ok(Ack { duplicate: true, .. }) if takes_over => self.fence_above(now, self.epoch),
            Ok(_) => self.open(now, end.next_sequence),
            Err(failure) => match end.fenced_by {
                Some(epoch) if takes_over && epoch >= self.epoch => self.fence_above(now, epoch),
                _ => self.handle_no_answer(now, &failure, end.next_sequence),
            },
        }
    }

    fn open(&mut self, now: Instant, told: Option<i64>) {
        // Unknown writers may start anywhere; they start at 0.
        let told = told.filter(|&sequence| sequence >= 0);
        let start = match self.setup.opening {
            Opening::TakesOver {
                first_sequence: Some(first_sequence),
            } => first_sequence,
            _ => told.unwrap_or(0),
        };
        self.known_at = told.map(|_| now);
        self.phase = Phase::Open;
        self.refusals = 0;
        self.number_from(start);
    }

    /// Tries the epoch behind one that is taken.
    fn fence_above(&mut self, now: Instant, epoch: i64) {
        match epoch.checked_add(1) {
            _ if now >= self.setup.open_by => self.stop_opening(None),
            Some(next) => self.epoch = next,
            None => self.stop(ClientError::invalid(
                "the writer has the highest epoch there is, so nobody can take over from it: use another writer_id",
            )),
        }
    }

    fn handle_no_answer(&mut self, now: Instant, failure: &Failure, next_sequence: Option<i64>) {
        match self.decide(&failure.cause) {
            Decision::Final { .. } => {
                let error = match failure.cause {
                    Cause::Unsupported {
                        feature: features::FENCE,
                    } => no_fence(failure),
                    _ => definite(failure, self.question_attempts),
                };
                self.stop(error.with_next_sequence(next_sequence));
            }
            Decision::Again { after, at } => {
                let after = if after == Wait::None { Wait::BackOff } else { after };
                let wait = self.pause(now, after, at);
                if now + wait >= self.setup.open_by {
                    self.stop_opening(Some(failure));
                }
            }
        }
    }

    /// The time to open it is over. An epoch may have become current, which does no harm: the next one is above it.
    pub(super) fn stop_opening(&mut self, last: Option<&Failure>) {
        let what = "the writer could not be opened in its time, and nothing was written";
        let error = ClientError::new(ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND, what);
        self.stop(match last {
            Some(last) => error.after(last),
            None => error,
        });
    }
}

fn no_fence(failure: &Failure) -> ClientError {
    let what = "the server does not offer \"fence\", with which a writer that is opened by name shuts out the instances \
                before it: give the writer an epoch, higher than theirs";
    let error = ClientError::new(ErrorKind::Unsupported, codes::FEATURE_NOT_OFFERED, what);
    error.with_endpoint(failure.endpoint.as_ref())
}
