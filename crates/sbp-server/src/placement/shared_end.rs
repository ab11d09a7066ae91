//! The end of a range that several servers hold, and the servers of the next one.

use std::sync::Arc;

use sbp_types::{Position, RangeKey, ServerId};

use super::choose::Candidate;
use super::effects::{Effects, Outcome};
use super::next_range::{Holders, known_range, next_servers, orders, successor};
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
        let holders = Holders {
            key: sealed.key,
            complete: &sealed.complete,
            knowing: &sealed.knowing,
        };
        let servers = next_servers(state, candidates, &holders, &next)?;
        let next = Arc::new(RangeRecord {
            servers,
            ..RangeRecord::clone(&next)
        });
        changes.push(Change::PutRange(Arc::clone(&next)));
        told.push(Arc::clone(&next));
        outcome = Outcome::Range(next);
    }
    Ok(Effects {
        changes,
        orders: orders(state, &told)?,
        outcome,
    })
}
