//! Batches that will not be stored, and what that means for those behind them.

use super::{Batch, Kind, Machine, Phase, State};
use crate::codes;
use crate::error::{ClientError, ErrorKind};
use crate::failure::{Cause, Failure};
use crate::retry::Repeat;

impl<P> Machine<P> {
    /// A batch is refused for good: its caller is told, and a hole is left.
    pub(super) fn refuse(&mut self, place: usize, may_have_been_done: bool) {
        if let Some((doubtful, error)) = self.refusal(place, may_have_been_done) {
            self.leave_hole(place, doubtful, error);
        }
    }

    /// Whether a batch that is refused for good may be stored all the same, and what its caller is told.
    fn refusal(&self, place: usize, may_have_been_done: bool) -> Option<(bool, ClientError)> {
        let batch = self.batches.get(place)?;
        let doubtful = may_have_been_done || batch.floating;
        let error = batch.failure.as_ref().map_or_else(
            || out_of_time(doubtful),
            |failure| ClientError::from_failure(failure, Repeat::Deduplicated, doubtful, batch.attempts),
        );
        Some((doubtful, error))
    }

    /// A batch is out of time.
    pub(super) fn give_up(&mut self, place: usize) {
        let Some(batch) = self.batches.get(place) else { return };
        let doubtful = batch.may_be_stored();
        let error = match &batch.failure {
            // What it was refused for says more than that its time is over.
            Some(failure) if !doubtful && matches!(failure.cause, Cause::Refused { .. }) => {
                definite(failure, batch.attempts)
            }
            Some(failure) => out_of_time(doubtful).after(failure),
            None => out_of_time(doubtful),
        };
        self.leave_hole(place, doubtful, error);
    }

    fn leave_hole(&mut self, place: usize, doubtful: bool, error: ClientError) {
        let stops = self.setup.kind != Kind::Anonymous && !matches!(self.phase, Phase::Stopped(_));
        let told = if stops && self.setup.kind == Kind::Named {
            error
                .clone()
                .with_remedy("the writer stores nothing behind it until it is opened again")
        } else {
            error.clone()
        };
        self.tell_as(place, State::Hole { doubtful }, Err(told));
        if stops {
            self.stop(error);
        }
    }

    /// A batch was answered in a way that leaves nothing to go on with. Its caller is told first.
    pub(super) fn stop_at(&mut self, place: usize, next_sequence: Option<i64>) {
        let error = self
            .batches
            .get(place)
            .and_then(|batch| batch.failure.as_ref())
            .map_or_else(
                || ClientError::protocol("a writer was stopped without a reason"),
                |failure| definite(failure, 1),
            );
        if let Some((doubtful, own)) = self.refusal(place, false) {
            self.tell_as(place, State::Hole { doubtful }, Err(own));
        }
        self.stop(error.with_next_sequence(next_sequence));
    }

    /// Ends the writer. What is on its way may still be answered; what waits is over.
    pub(super) fn stop(&mut self, error: ClientError) {
        let error = error.into_stopped_writer(self.setup.kind == Kind::Named);
        for place in 0..self.batches.len() {
            match self.batches.get(place) {
                Some(batch) if batch.state != State::Waiting => {}
                Some(batch) if batch.may_be_stored() => self.give_up_on(place),
                Some(_) => self.tell(place, Err(error.clone())),
                None => {}
            }
        }
        self.phase = Phase::Stopped(error);
    }

    /// Nothing is in flight and the front batch will not be stored, or perhaps was: those behind go on without it.
    pub(super) fn mend(&mut self, doubtful: bool) {
        let Some(hole) = self.batches.front() else { return };
        let from = hole.base_sequence;
        self.pop_front();
        if !doubtful && !self.is_in_doubt() {
            // The server has seen nothing behind the hole that it could take for something else.
            return self.number_from(from);
        }
        // In a new epoch nothing of the old one that is still on its way can be stored between.
        if doubtful {
            for place in 0..self.batches.len() {
                if self.batches.get(place).is_some_and(Batch::may_be_stored) {
                    self.give_up_on(place);
                }
            }
        }
        self.epoch = self.epoch.saturating_add(1);
        // The server lets an epoch begin at 0 or where the one before stood. Were several batches of the new one on their
        // way, one behind the first could have that second number, and be stored when the first did not arrive.
        self.known_at = None;
        self.number_from(0);
    }

    /// A batch behind one whose fate is unknown has an unknown fate itself.
    fn give_up_on(&mut self, place: usize) {
        let Some(batch) = self.batches.get(place) else { return };
        let error = batch.failure.as_ref().map_or_else(
            || out_of_time(true),
            |failure| ClientError::from_failure(failure, Repeat::Deduplicated, true, batch.attempts),
        );
        self.tell(place, Err(error));
    }
}

/// A failure of something that was certainly not done.
pub(super) fn definite(failure: &Failure, attempts: u32) -> ClientError {
    ClientError::from_failure(failure, Repeat::Deduplicated, false, attempts)
}

fn out_of_time(doubtful: bool) -> ClientError {
    if doubtful {
        let what = "the batch's time is over, and its fate is unknown";
        ClientError::new(ErrorKind::Indeterminate, codes::DEADLINE_AFTER_SEND, what)
    } else {
        let what = "the batch's time is over before it was sent";
        ClientError::new(ErrorKind::TimedOut, codes::DEADLINE_BEFORE_SEND, what)
    }
}
