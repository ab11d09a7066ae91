//! Requests to seal a range that wait until its end is known.

use std::collections::HashMap;
use std::fmt;

use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey};

use super::command::SealStep;
use super::table::RangeTable;
use crate::refusal::{Done, Refusal};

/// Seal requests, by range, that wait for the log to end what the range accepted before.
#[derive(Default)]
pub(super) struct Seals(HashMap<RangeKey, Vec<Done<Offset>>>);

/// The outcome of a seal: the range's end, or why it could not be sealed.
pub(super) type SealEnd = Result<Offset, Refusal>;

impl Seals {
    /// Answers `done` when the range's end is known or its seal fails.
    pub(super) fn wait(&mut self, key: RangeKey, done: Done<Offset>) {
        self.0.entry(key).or_default().push(done);
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Answers to seal requests, collected under the lock and given after it.
#[derive(Default)]
pub(super) struct SealAnswers(Vec<(Done<Offset>, SealEnd)>);

impl SealAnswers {
    /// Adds this answer for all requests that wait for the range.
    pub(super) fn take(&mut self, seals: &mut Seals, key: RangeKey, end: SealEnd) {
        let waiting = seals.0.remove(&key).unwrap_or_default();
        self.0.extend(waiting.into_iter().map(|done| (done, end.clone())));
    }

    /// Adds an answer for one request.
    pub(super) fn push(&mut self, done: Done<Offset>, end: SealEnd) {
        self.0.push((done, end));
    }

    /// Gives all answers. Not under a lock: a callback may take it.
    pub(super) fn give(self) {
        for (done, end) in self.0 {
            done(end);
        }
    }
}

/// The answer to a seal request for a range at this step.
pub(super) fn seal_end(step: SealStep, key: RangeKey, table: &RangeTable) -> SealEnd {
    match step {
        SealStep::Done(end) => Ok(end),
        SealStep::Unknown if table.stream(key.stream).is_none() => Err(table.missing(key.stream)),
        SealStep::Unknown => Err(Refusal::range_not_here(key)),
        SealStep::EndDamaged => Err(Refusal::new(
            ErrorCode::RS_DATA_CORRUPTED,
            format!("the end of range {key} is damaged on disk, so it cannot be sealed"),
        )),
        SealStep::Begun | SealStep::UnderWay | SealStep::Undone => Err(Refusal::new(
            ErrorCode::RS_INTERNAL_SERVER_ERROR,
            format!("the seal of range {key} was undone; seal it again"),
        )),
    }
}
