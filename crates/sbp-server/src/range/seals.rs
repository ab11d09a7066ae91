//! Requests to seal a range that wait for its end.

use std::collections::HashMap;
use std::fmt;

use sbp_messages::ErrorCode;
use sbp_types::{Offset, RangeKey};

use super::command::SealStep;
use super::table::RangeTable;
use crate::refusal::{Done, Refusal};

/// Seals that wait for the log.
#[derive(Default)]
pub(super) struct Seals(HashMap<RangeKey, Vec<Done<Offset>>>);

/// How a seal ended.
pub(super) type SealEnd = Result<Offset, Refusal>;

impl Seals {
    /// Answers `done` when the log is through.
    pub(super) fn wait(&mut self, key: RangeKey, done: Done<Offset>) {
        self.0.entry(key).or_default().push(done);
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Answers to be given when no lock is held.
#[derive(Default)]
pub(super) struct SealAnswers(Vec<(Done<Offset>, SealEnd)>);

impl SealAnswers {
    /// Takes those who wait for a range: this is their answer.
    pub(super) fn take(&mut self, seals: &mut Seals, key: RangeKey, end: SealEnd) {
        let waiting = seals.0.remove(&key).unwrap_or_default();
        self.0.extend(waiting.into_iter().map(|done| (done, end.clone())));
    }

    /// One more answer.
    pub(super) fn push(&mut self, done: Done<Offset>, end: SealEnd) {
        self.0.push((done, end));
    }

    /// Gives them.
    pub(super) fn give(self) {
        for (done, end) in self.0 {
            done(end);
        }
    }
}

/// What a seal that got this far is told.
pub(super) fn seal_end(step: SealStep, key: RangeKey, table: &RangeTable) -> SealEnd {
    match step {
        SealStep::Done(end) => Ok(end),
        SealStep::Unknown if table.stream(key.stream).is_none() => Err(table.missing(key.stream)),
        SealStep::Unknown => Err(Refusal::new(
            ErrorCode::RANGE_NOT_FOUND,
            format!("range {key} is not here"),
        )),
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
