//! DELETE_STREAMS.

use std::collections::BTreeSet;
use std::sync::Arc;

use sbp_types::StreamId;

use super::effects::{Action, Effects, Order, Outcome};
use super::state::{Change, PlacementState};
use crate::refusal::Refusal;

/// Deletes the stream and all its ranges. Its name can be used again, its id never is.
pub(super) fn delete_stream(state: &PlacementState, id: StreamId) -> Result<Effects, Refusal> {
    let Some(stream) = state.stream(id) else {
        return Err(Refusal::no_stream(id));
    };
    let servers: BTreeSet<_> = state.ranges_of(id).flat_map(|range| &range.servers).copied().collect();
    let order = |server| Order {
        server,
        stream: id,
        action: Action::Delete,
    };
    Ok(Effects {
        changes: vec![Change::PutTombstone(id)],
        orders: servers.into_iter().map(order).collect(),
        outcome: Outcome::Stream(Arc::clone(stream)),
    })
}
