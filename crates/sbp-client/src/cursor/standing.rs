//! Where a holder stands in its cursor's stream, and what follows from what it is told: decisions without I/O.
//!
//! Every commit is an append on the condition that it gets the offset behind the last record the holder knows. So two
//! holders that begin at the same record cannot both append: the second is refused, and reads whose record is there.
//! An append whose answer is lost is sent again on the same condition. Whichever of the two comes first is stored; the
//! other is refused, whenever it arrives; and the record itself, which names holder and commit, tells what happened.
//!
//! ```text
//!            stored                        no answer
//!   Known ──────────► Known (one further)     Known ─────────► InDoubt
//!
//!            refused, and the record there is
//!   Known, InDoubt ────── ours ─────► Known (behind it)
//!                  ────── another's ► TakenOver (for good)
//! ```
//!
//! A commit that is found stored is stored, even if another holder's record is behind it already.

use sbp_types::Offset;

use super::record::{CommitRecord, Holder, Places};

/// Where a holder stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommitPosition {
    /// It knows the last record; the next one goes to `next`.
    Known { next: Offset },
    /// Commits of its own, `commit` the last of them, may be stored at `next` or on their way there. One at most is.
    InDoubt { next: Offset, commit: u64 },
    /// Others have gone on. It is not the holder any more.
    TakenOver(TakenOver),
}

/// How a cursor was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TakenOver {
    /// Another holder's record is where the next one was to go.
    By { holder: Holder, at: Offset },
    /// The records there are trimmed already: others have gone far beyond.
    LongAgo { next: Offset, start: Offset },
    /// The stream ends before the last record known: the server has lost it.
    Undone { next: Offset, end: Offset },
}

/// What to do next about a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Append its record, on condition that it gets this offset.
    Append { at: Offset },
    /// Read what is stored from this offset on. With `expected` something is there, though perhaps not synced yet.
    Look { from: Offset, expected: bool },
    /// It is stored.
    Done,
    /// It is refused, and so is every other.
    TakenOver(TakenOver),
    /// Every other is refused, and nobody can tell any more whether this one was stored before.
    Untold(TakenOver),
}

/// How one append ended. One that was refused for any other reason is the end of its commit, and changes nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendEnd {
    /// It is stored where it was to be.
    Stored,
    /// The offset is not the next one.
    Refused,
    /// It may be stored, or may be yet.
    Unknown,
}

/// What was read from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// These records, which begin there.
    Records(Vec<CommitRecord>),
    /// The stream ends there.
    Nothing,
    /// The stream begins later.
    Trimmed { start: Offset },
    /// The stream ends before.
    Short { end: Offset },
}

/// A holder's place, and what the last record says.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    holder: Holder,
    place: CommitPosition,
    committed: Places,
}

impl Standing {
    /// The standing of a holder that has read the stream up to `next`.
    pub(super) fn new(holder: Holder, next: Offset, committed: Places) -> Self {
        Self {
            holder,
            place: CommitPosition::Known { next },
            committed,
        }
    }

    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// What the last record says that is known to be stored.
    pub(super) fn committed(&self) -> &Places {
        &self.committed
    }

    /// Whether this commit may be stored although nobody has said so.
    pub(super) fn doubts(&self, commit: u64) -> bool {
        matches!(self.place, CommitPosition::InDoubt { commit: doubtful, .. } if doubtful == commit)
    }

    /// The offset behind the last record known; to a holder that has been taken over, that it has.
    pub(super) fn next(&self) -> Result<Offset, Step> {
        match &self.place {
            CommitPosition::Known { next } | CommitPosition::InDoubt { next, .. } => Ok(*next),
            CommitPosition::TakenOver(taken) => Err(Step::TakenOver(taken.clone())),
        }
    }

    /// The first step of a commit.
    pub(super) fn begin(&self) -> Step {
        self.next().map_or_else(|taken| taken, |at| Step::Append { at })
    }

    /// After an append of `record`.
    pub(super) fn handle_append(&mut self, record: &CommitRecord, end: AppendEnd) -> Step {
        let next = match self.next() {
            Ok(next) => next,
            Err(taken) => return taken,
        };
        match end {
            AppendEnd::Stored => {
                self.committed.clone_from(&record.places);
                self.place = CommitPosition::Known { next: behind(next, 1) };
                Step::Done
            }
            AppendEnd::Refused => Step::Look {
                from: next,
                expected: true,
            },
            AppendEnd::Unknown => {
                let commit = record.commit;
                self.place = CommitPosition::InDoubt { next, commit };
                Step::Look {
                    from: next,
                    expected: false,
                }
            }
        }
    }

    /// After a look at what is stored, for the sake of commit number `commit`.
    pub(super) fn handle_look(&mut self, commit: u64, found: Found) -> Step {
        let next = match self.next() {
            Ok(next) => next,
            Err(taken) => return taken,
        };
        match found {
            Found::Nothing => Step::Append { at: next },
            Found::Records(records) => self.judge(commit, next, records),
            Found::Trimmed { start } if self.doubts(commit) => {
                let taken = TakenOver::LongAgo { next, start };
                self.lose(taken.clone());
                Step::Untold(taken)
            }
            Found::Trimmed { start } => self.lose(TakenOver::LongAgo { next, start }),
            Found::Short { end } => self.lose(TakenOver::Undone { next, end }),
        }
    }

    fn judge(&mut self, commit: u64, next: Offset, records: Vec<CommitRecord>) -> Step {
        let mut place = next;
        let mut done = false;
        for record in records {
            if record.holder != self.holder {
                let holder = record.holder;
                let taken = self.lose(TakenOver::By { holder, at: place });
                return if done { Step::Done } else { taken };
            }
            place = behind(place, 1);
            done |= record.commit == commit;
            self.committed = record.places;
        }
        if place != next {
            self.place = CommitPosition::Known { next: place };
        }
        if done { Step::Done } else { Step::Append { at: place } }
    }

    fn lose(&mut self, taken: TakenOver) -> Step {
        self.place = CommitPosition::TakenOver(taken.clone());
        Step::TakenOver(taken)
    }
}

fn behind(offset: Offset, records: i64) -> Offset {
    Offset(offset.0.saturating_add(records))
}

#[cfg(test)]
mod tests;
