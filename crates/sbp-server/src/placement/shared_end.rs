//! The end of a range that several servers hold, and the servers of the next one.

use std::sync::Arc;

use sbp_types::{Offset, Position, RangeKey, ServerId};

use super::choose::Candidate;
use super::effects::{Effects, Outcome};
use super::next_range::{Holders, known_range, on_next_servers, orders, successor};
use super::records::RangeRecord;
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// The end of a range, as its servers' votes decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedEnd {
    pub(crate) key: RangeKey,
    pub(crate) end: Position,
    /// The servers that have everything up to the end.
    pub(crate) complete: Vec<ServerId>,
    /// The servers that know the writers at the end of what they have.
    pub(crate) knowing: Vec<ServerId>,
    /// Whether the next range is opened.
    pub(crate) open_next: bool,
    /// From and to of the records before the end that no server which has voted can read: it was ended by force.
    pub(crate) lost: Vec<(Offset, Offset)>,
}

/// Stores the end of a range and, where it is asked for, opens the next one.
pub(super) fn finish_shared_seal(
    state: &PlacementState,
    candidates: &[Candidate],
    sealed: &SharedEnd,
) -> Result<Effects, Refusal> {
    let range = known_range(state, sealed.key)?;
    if range.end_offset.is_some() {
        // Another seal was first, and its end is the range's.
        return Ok(Effects::nothing(Outcome::Range(Arc::clone(range))));
    }
    let lacks = |server: &ServerId| !sealed.complete.contains(server);
    let ended = Arc::new(RangeRecord {
        end_offset: Some(sealed.end.offset.max(range.start_offset)),
        end_marks: sealed.end.marks,
        incomplete: range.servers.iter().copied().filter(lacks).collect(),
        ..RangeRecord::clone(range)
    });
    let mut changes = vec![Change::PutRange(Arc::clone(&ended))];
    let mut told = vec![Arc::clone(&ended)];
    let mut outcome = Outcome::Range(Arc::clone(&ended));
    if sealed.open_next {
        let next = successor(state, &ended, sealed.end.offset)?;
        let before = passed_over_to(state, range, sealed);
        let holders = Holders {
            key: sealed.key,
            complete: before.as_ref().map_or(&sealed.complete, |before| &before.complete),
            knowing: before.as_ref().map_or(&sealed.knowing, |before| &before.knowing),
        };
        let next = on_next_servers(state, candidates, &holders, &next)?;
        changes.push(Change::PutRange(Arc::clone(&next)));
        told.push(Arc::clone(&next));
        outcome = match sealed.lost.is_empty() {
            true => Outcome::Range(next),
            false => Outcome::RangeBehindLoss(next, sealed.lost.clone()),
        };
    }
    Ok(Effects {
        changes,
        orders: orders(state, &told)?,
        outcome,
    })
}

/// Who has all of a range, and who of those knows the writers at its end.
struct Before {
    complete: Vec<ServerId>,
    knowing: Vec<ServerId>,
}

/// Where a range is empty and nobody has the state of the writers that was to begin it, its primary is gone before it could write
/// that: the servers of the last range before it that was begun. `None` for every other range, and where that one is trimmed: a copy
/// of it may not know the writers.
fn passed_over_to(state: &PlacementState, range: &RangeRecord, sealed: &SharedEnd) -> Option<Before> {
    let is_empty = sealed.end == Position::start(range.opened_offset);
    let mut before = state.ranges_of(range.key.stream);
    let before = before.rfind(|before| before.key < range.key && before.was_begun())?;
    let is_whole = before.start_offset == before.opened_offset && before.end_offset == Some(range.opened_offset);
    (is_empty && sealed.knowing.is_empty() && is_whole).then(|| Before {
        complete: before.complete().collect(),
        knowing: before.knowing().collect(),
    })
}
