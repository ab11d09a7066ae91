//! DELETE_STREAMS.

use std::collections::BTreeSet;
use std::sync::Arc;

use sbp_types::{ServerId, StreamId};

use super::choose::Candidate;
use super::effects::{Action, Effects, Order, Outcome};
use super::records::RangeRecord;
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// Deletes the stream and all its ranges. Its name can be used again, its id never is.
///
/// It is buried in the name of each server that has a range of it, or was let go of one, and of those that are up: they may have
/// what was trimmed.
pub(super) fn delete_stream(
    state: &PlacementState,
    candidates: &[Candidate],
    id: StreamId,
) -> Result<Effects, Refusal> {
    let Some(stream) = state.stream(id) else {
        return Err(Refusal::no_stream(id));
    };
    let with_some =
        |range: &'_ Arc<RangeRecord>| range.servers.iter().chain(&range.let_go).copied().collect::<Vec<_>>();
    let servers: BTreeSet<_> = state.ranges_of(id).flat_map(with_some).collect();
    let up = candidates.iter().map(|candidate| candidate.id);
    let buried_on = servers.iter().copied().chain(up).collect();
    let order = |server| Order {
        server,
        stream: id,
        action: Action::Delete,
    };
    Ok(Effects {
        changes: vec![Change::PutTombstone(id), Change::BuriedOn(id, buried_on)],
        orders: servers.into_iter().map(order).collect(),
        outcome: Outcome::Stream(Arc::clone(stream)),
    })
}

/// A server has nothing of a deleted stream any more.
pub(super) fn removed_from(state: &PlacementState, stream: StreamId, server: ServerId) -> Effects {
    let mut servers: BTreeSet<_> = state.buried_on(stream).collect();
    if !servers.remove(&server) {
        return Effects::nothing(Outcome::Done);
    }
    Effects {
        changes: vec![Change::BuriedOn(stream, servers)],
        orders: Vec::new(),
        outcome: Outcome::Done,
    }
}
